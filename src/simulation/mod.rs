//! Many engines on one simulated network: the test bed of the whole project.
//!
//! A [`Cluster`] drives real engines in virtual time, sends traffic whose every byte is a
//! function of (source, message number, offset), checks what arrives against what was sent, and
//! the invariants at every step. [`Op`] is the list of things that can happen, shared by
//! simulation tests, property tests and fuzz targets.
//!
//! A [`Plan`] is a scenario from a file: [`run_plan`] plays it with as many engines as memory
//! holds, and measures. `docs/simulate.md` explains the file.

mod book;
mod chunks;
mod cluster;
mod file;
mod hostile;
mod measure;
mod ops;
pub mod payload;
mod plan;
mod scenario;
mod settings;
mod topology;
mod traffic;
mod units;
mod world;

pub use chunks::{ChunkOp, play_chunks};
pub use cluster::{Cluster, ClusterConfig, Failure};
pub use hostile::Passed;
pub use measure::{Bucket, Fairness, ItemReport, Percentiles, Report, Series, fairness};
pub use ops::{Op, apply};
pub use plan::Plan;
pub use scenario::{Played, Scenario, play, play_seed, run_seed};
pub use world::{Progress, run_plan};
