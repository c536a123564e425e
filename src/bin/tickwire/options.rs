//! Options that commands with real processes share.

use crate::key;
use std::net::IpAddr;
use std::time::Duration;
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
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Libfabric => "libfabric",
            Self::Sim => "sim",
        }
    }
}

/// How many segments may be on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CongestionName {
    /// As many as keep the delay low.
    Delay,
    /// As many as the windows hold, whatever the network says.
    Fixed,
}

impl CongestionName {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delay => "delay",
            Self::Fixed => "fixed",
        }
    }
}

/// What all processes of a job have to agree on, and what carries their messages.
#[derive(Clone, Debug, clap::Args)]
pub struct JobArgs {
    /// What carries the messages
    #[arg(long, value_enum, default_value = "udp")]
    pub port: PortName,
    /// libfabric provider, such as udp or verbs (default: the first with datagrams)
    #[arg(long)]
    pub provider: Option<String>,
    /// Local IP address for the messages (default: loopback)
    #[arg(long, value_name = "IP")]
    pub bind: Option<IpAddr>,
    /// Faults on everything received, at all sides, such as
    /// loss=1%,dup=0.5%,reorder=5%,corrupt=0.1%
    #[arg(long)]
    pub faults: Option<FaultConfig>,
    /// Seed of the faults
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// CRC32C over each datagram (on by itself when faults corrupt)
    #[arg(long = "checksum")]
    checksum_asked: bool,
    /// A tag on each datagram that strangers can neither make nor repeat. Processes on one host get
    /// their key from the one that starts them; on several hosts, each has it in TICKWIRE_KEY
    #[arg(long)]
    authenticate: bool,
    /// What governs how much is on its way: the delay, or nothing but the windows
    #[arg(long, value_enum, default_value = "delay")]
    pub congestion: CongestionName,
    /// What all sides must share
    #[arg(long, default_value_t = 1)]
    pub key: u64,
    /// This process was started by another one of the job
    #[arg(long, hide = true)]
    pub child: bool,
}

impl JobArgs {
    pub fn checksum(&self) -> bool {
        !self.authenticate && self.corruption_is_to_be_found()
    }

    fn corruption_is_to_be_found(&self) -> bool {
        self.checksum_asked || self.faults.as_ref().is_some_and(|faults| faults.corrupt > 0.0)
    }

    /// Options that would have no effect are a misunderstanding, so they are told. `is_alone`: this
    /// process starts all others of the job, so it also makes the key of their tags.
    pub fn set_up(&self, is_alone: bool) -> Result<(), String> {
        if self.authenticate {
            key::set_up(is_alone && !self.child)?;
        }
        if self.provider.is_some() && self.port != PortName::Libfabric {
            return Err("--provider goes with --port libfabric".into());
        }
        if self.checksum() && !self.checksum_asked && !self.child {
            eprintln!("note: faults corrupt, so every datagram carries a checksum");
        }
        Ok(())
    }

    /// The options of another process of this job, but for its address.
    pub fn arguments(&self) -> Vec<String> {
        let mut out = vec![format!("--port={}", self.port.as_str())];
        out.push(format!("--key={}", self.key));
        out.push(format!("--seed={}", self.seed));
        if let Some(provider) = &self.provider {
            out.push(format!("--provider={provider}"));
        }
        if let Some(faults) = &self.faults {
            out.push(format!("--faults={faults}"));
        }
        if self.checksum() {
            out.push("--checksum".into());
        }
        if self.authenticate {
            out.push("--authenticate".into());
        }
        if self.congestion != CongestionName::Delay {
            out.push(format!("--congestion={}", self.congestion.as_str()));
        }
        out
    }
}

/// `8`, `4K`, `4KiB`, `1M`: powers of 1024.
pub fn parse_size(text: &str) -> Result<usize, String> {
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

/// `10s`, `500ms`, `2m`, `8h`; a bare number is seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let (digits, unit_ms) = match text.find(|c: char| !c.is_ascii_digit()).map(|at| &text[at..]) {
        Some("ms") => (text.trim_end_matches("ms"), 1),
        None => (text, 1000),
        Some("s") => (text.trim_end_matches('s'), 1000),
        Some("m") => (text.trim_end_matches('m'), 60_000),
        Some("h") => (text.trim_end_matches('h'), 3_600_000),
        Some(_) => ("", 0),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text} is not a time such as 10s"))?;
    number.checked_mul(unit_ms).map(Duration::from_millis).ok_or(format!("{text} is too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn durations() {
        for (text, ms) in [("10", 10_000), ("10s", 10_000), ("250ms", 250), ("8h", 28_800_000)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "ms", "-1s", "1 s", "1d", "99999999999999999999h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
