//! Many engines on one simulated network: the test bed of the whole project.
//!
//! A [`Cluster`] drives real engines in virtual time, sends traffic whose every byte is a
//! function of (source, message number, offset), checks what arrives against what was sent, and
//! the invariants at every step. [`Op`] is the list of things that can happen, shared by
//! simulation tests, property tests and fuzz targets.

mod chunks;
mod cluster;
mod hostile;
mod ops;
pub mod payload;
mod scenario;

pub use chunks::{ChunkOp, play_chunks};
pub use cluster::{Cluster, ClusterConfig, Failure};
pub use hostile::Passed;
pub use ops::{Op, apply};
pub use scenario::{Scenario, play, run_seed};
