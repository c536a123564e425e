//! `tickwire pingpong`: two processes, one measures and one echoes.

mod job;
mod report;
mod side;

use crate::options::{JobArgs, PortName, parse_size};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Options of `pingpong`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    job: JobArgs,
    /// Two hosts: wait for the other side here and measure
    #[arg(long, value_name = "ADDR", conflicts_with = "connect")]
    listen: Option<SocketAddr>,
    /// Two hosts: join the side that listens at ADDR, and echo; what to measure is given there
    #[arg(long, value_name = "ADDR")]
    connect: Option<SocketAddr>,
    /// Message sizes, such as 8,4K,1M
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = parse_size,
        default_value = "8,64,512,1K,4K,16K,64K,256K,1M,4M"
    )]
    sizes: Vec<usize>,
    /// Round trips per size; fewer for large ones
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    iters: u32,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seconds without progress before giving up
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
}

impl Args {
    /// Round trips for messages of `size` bytes: about 256 MiB each way at most, at least 8.
    fn iters_for(&self, size: usize) -> u32 {
        let bytes_max = if self.job.faults.is_some() { 32 << 20 } else { 256 << 20 };
        self.iters.min(u32::try_from(bytes_max / size.max(1)).unwrap_or(u32::MAX).max(8))
    }
}

/// Options that would have no effect are a misunderstanding, so they are told.
fn refuse_senseless(args: &Args) -> Result<(), String> {
    let sim = args.job.port == PortName::Sim;
    if sim && (args.listen.is_some() || args.connect.is_some() || args.job.bind.is_some()) {
        return Err("--port sim runs in this process alone: no --listen, --connect, --bind".into());
    }
    if args.connect.is_some() && args.json.is_some() {
        return Err("the side that listens measures: give --json there, not with --connect".into());
    }
    Ok(())
}

/// Runs the side that the options ask for.
pub fn run(args: &Args) -> Result<(), String> {
    refuse_senseless(args)?;
    args.job.set_up(args.listen.is_none() && args.connect.is_none())?;
    match (args.job.port, args.connect) {
        (PortName::Sim, _) => job::simulated(args),
        (_, Some(rendezvous)) => job::echoing(args, rendezvous),
        (_, None) => job::measuring(args),
    }
}
