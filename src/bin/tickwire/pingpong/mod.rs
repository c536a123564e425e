//! `tickwire pingpong`: two processes, one measures and one echoes.

mod job;
mod report;
mod side;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use tickwire::ports::faults::FaultConfig;

/// Which port carries the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PortName {
    /// Kernel sockets.
    Udp,
    /// A libfabric provider.
    Libfabric,
    /// A simulated network, both sides in this process, in virtual time.
    Sim,
}

impl PortName {
    fn as_str(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Libfabric => "libfabric",
            Self::Sim => "sim",
        }
    }
}

/// Options of `pingpong`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// What carries the messages
    #[arg(long, value_enum, default_value = "udp")]
    port: PortName,
    /// libfabric provider, such as udp or verbs (default: the first with datagrams)
    #[arg(long)]
    provider: Option<String>,
    /// Two hosts: wait for the other side here and measure
    #[arg(long, value_name = "ADDR", conflicts_with = "connect")]
    listen: Option<SocketAddr>,
    /// Two hosts: join the side that listens at ADDR, and echo; what to measure is given there
    #[arg(long, value_name = "ADDR")]
    connect: Option<SocketAddr>,
    /// Local IP address for the messages (default: loopback)
    #[arg(long, value_name = "IP")]
    bind: Option<IpAddr>,
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
    /// Faults on everything received, at both sides, such as
    /// loss=1%,dup=0.5%,reorder=5%,corrupt=0.1%
    #[arg(long)]
    faults: Option<FaultConfig>,
    /// Seed of the faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// CRC32C over each datagram (on by itself when faults corrupt)
    #[arg(long)]
    checksum: bool,
    /// An authentication tag on each datagram. The key of both sides is made for the run; of two hosts,
    /// each has it in TICKWIRE_KEY (32 hexadecimal digits)
    #[arg(long)]
    authenticate: bool,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seconds without progress before giving up
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
    /// What both sides must share
    #[arg(long, default_value_t = 1)]
    key: u64,
    /// This process was started by the measuring side
    #[arg(long, hide = true)]
    child: bool,
}

impl Args {
    fn checksum(&self) -> bool {
        let corrupts = self.faults.as_ref().is_some_and(|faults| faults.corrupt > 0.0);
        !self.authenticate && (self.checksum || corrupts)
    }

    /// Round trips for messages of `size` bytes: about 256 MiB each way at most, at least 8.
    fn iters_for(&self, size: usize) -> u32 {
        let bytes_max = if self.faults.is_some() { 32 << 20 } else { 256 << 20 };
        self.iters.min(u32::try_from(bytes_max / size.max(1)).unwrap_or(u32::MAX).max(8))
    }
}

/// Options that would have no effect are a misunderstanding, so they are told.
fn refuse_senseless(args: &Args) -> Result<(), String> {
    let sim = args.port == PortName::Sim;
    if sim && (args.listen.is_some() || args.connect.is_some() || args.bind.is_some()) {
        return Err("--port sim runs in this process alone: no --listen, --connect, --bind".into());
    }
    if args.provider.is_some() && args.port != PortName::Libfabric {
        return Err("--provider goes with --port libfabric".into());
    }
    if args.connect.is_some() && args.json.is_some() {
        return Err("the side that listens measures: give --json there, not with --connect".into());
    }
    Ok(())
}

/// `8`, `4K`, `4KiB`, `1M`: powers of 1024.
fn parse_size(text: &str) -> Result<usize, String> {
    let upper = text.trim().to_ascii_uppercase();
    let upper = upper.trim_end_matches("IB").trim_end_matches('B');
    let (digits, shift) = match upper.strip_suffix(['K', 'M', 'G']) {
        Some(digits) if upper.ends_with('K') => (digits, 10),
        Some(digits) if upper.ends_with('M') => (digits, 20),
        Some(digits) => (digits, 30),
        None => (upper, 0),
    };
    let number: usize = digits.parse().map_err(|_| format!("{text} is not a size such as 4K"))?;
    number.checked_mul(1 << shift).filter(|&n| n <= 1 << 30).ok_or(format!("{text} is over 1G"))
}

/// Runs the side that the options ask for.
pub fn run(args: &Args) -> Result<(), String> {
    if args.checksum() && !args.checksum && !args.child {
        eprintln!("note: faults corrupt, so every datagram carries a checksum");
    }
    refuse_senseless(args)?;
    match (args.port, args.connect) {
        (PortName::Sim, _) => job::simulated(args),
        (_, Some(rendezvous)) => job::echoing(args, rendezvous),
        (_, None) => job::measuring(args),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn sizes() {
        for (text, want) in
            [("8", 8), ("4K", 4096), ("4kib", 4096), ("1M", 1 << 20), ("2MB", 2 << 20)]
        {
            assert_eq!(parse_size(text), Ok(want), "{text}");
        }
        for text in ["", "x", "-1", "4T", "2G", "99999999999999999999"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
