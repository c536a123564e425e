//! `tickwire info`.

use tickwire::ports::{Port, libfabric, udp};

/// Options of `info`.
#[derive(clap::Args)]
pub struct Args {}

/// Prints what there is. Something unusable is told, not an error.
pub fn run(_args: &Args) -> Result<(), String> {
    println!("sim        simulated network inside one process, virtual time: always usable");
    show_udp();
    show_libfabric();
    Ok(())
}

fn show_udp() {
    match udp::Udp::open(&udp::UdpConfig::default()) {
        Ok(port) => {
            println!("udp        {}", port.describe());
            for warning in port.warnings() {
                println!("           warning: {warning}");
            }
        }
        Err(error) => println!("udp        unusable: {error}"),
    }
    match udp::interfaces() {
        Ok(interfaces) => {
            for i in interfaces {
                let state = if i.up { "up" } else { "down: unusable" };
                println!("           {} {}: MTU {}, {state}", i.name, i.address, i.mtu_bytes);
            }
        }
        Err(error) => println!("           interfaces: {error}"),
    }
}

fn show_libfabric() {
    let providers = match libfabric::providers() {
        Ok(providers) => providers,
        Err(error) => return println!("libfabric  unusable: {error}"),
    };
    println!("libfabric  {} datagram endpoints offered", providers.len());
    for p in providers {
        let verdict = match p.usable {
            Ok(()) => "usable".to_owned(),
            Err(reason) => format!("unusable: {reason}"),
        };
        println!(
            "           {} on {} ({}): datagrams {} B, prefix {} B, gathers {}, queues {}/{}: \
             {verdict}",
            p.provider,
            p.domain,
            p.fabric,
            p.max_msg_size,
            p.prefix,
            p.iov_limit,
            p.tx_size,
            p.rx_size,
        );
    }
}
