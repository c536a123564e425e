//! Opening the port that the options ask for.

use crate::key;
use crate::options::{CongestionName, JobArgs, PortName};
use tickwire::ports::Port;
use tickwire::ports::faults::{FaultConfig, FaultCounters, Faults};
use tickwire::ports::libfabric::{Libfabric, LibfabricConfig};
use tickwire::ports::udp::{Udp, UdpConfig};
use tickwire::{Config, Congestion, JobKey, Rank};

/// A port with what a report wants to know of it.
pub trait JobPort: Port {
    /// The libfabric provider.
    fn provider_name(&self) -> Option<&str> {
        None
    }

    /// What faults did.
    fn faults_seen(&self) -> Option<FaultCounters> {
        None
    }
}

impl JobPort for Udp {}

impl JobPort for Libfabric {
    fn provider_name(&self) -> Option<&str> {
        Some(self.provider())
    }
}

impl<P: JobPort> JobPort for Faults<P> {
    fn provider_name(&self) -> Option<&str> {
        self.inner().provider_name()
    }

    fn faults_seen(&self) -> Option<FaultCounters> {
        Some(self.fault_counters())
    }
}

/// What is done with the port, whichever it is.
pub trait PortUser {
    fn run<P: JobPort>(self, port: P) -> Result<(), String>;
}

/// Opens the port of process `rank`, with or without faults, for `user`.
pub fn with_port(job: &JobArgs, rank: u32, user: impl PortUser) -> Result<(), String> {
    if job.port == PortName::Udp {
        let mut config = UdpConfig::default();
        config.bind = job.bind.or(config.bind);
        let port = Udp::open(&config).map_err(|error| error.to_string())?;
        // One of the processes on a host is enough to say it.
        if !job.child {
            port.warnings().iter().for_each(|warning| eprintln!("warning: {warning}"));
        }
        run(job, rank, port, user)
    } else {
        let mut config =
            LibfabricConfig { provider: job.provider.clone(), ..LibfabricConfig::default() };
        config.bind = job.bind.or(config.bind);
        let port = Libfabric::open(&config).map_err(|error| error.to_string())?;
        run(job, rank, port, user)
    }
}

fn run<P: JobPort>(job: &JobArgs, rank: u32, port: P, user: impl PortUser) -> Result<(), String> {
    let Some(faults) = &job.faults else { return user.run(port) };
    user.run(faulty(port, faults, job.seed ^ (u64::from(rank) << 32))?)
}

fn faulty<P: Port>(port: P, faults: &FaultConfig, seed: u64) -> Result<Faults<P>, String> {
    Faults::new(port, *faults, seed).map_err(|error| error.to_string())
}

/// The engine's configuration for process `rank` of a job of `ranks`.
pub fn engine_config(job: &JobArgs, rank: u32, ranks: u32) -> Config {
    let mut config = Config::new(Rank(rank), JobKey(job.key));
    config.peers_max = ranks.max(4);
    config.checksum = job.checksum();
    config.authenticate = key::get().cloned();
    if job.congestion == CongestionName::Fixed {
        config.congestion = Congestion::Fixed;
    }
    config
}
