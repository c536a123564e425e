//! Reliable messages, at microsecond latency, between the processes of an HPC job, over
//! unreliable datagrams.

pub mod address;
pub mod bootstrap;
pub mod config;
mod congestion;
mod context;
mod engine;
pub mod error;
mod event;
mod finish;
mod ids;
mod invariants;
mod loss;
mod pack;
mod peers;
pub mod ports;
mod receive;
pub mod rto;
pub mod simulation;
mod state;
pub mod stats;
mod systems;
pub mod time;
mod transmit;
mod window;
pub mod wire;

pub use address::PeerAddress;
pub use config::Config;
pub use context::{Context, SmallMessage};
pub use engine::Engine;
pub use error::{BuildError, PeerError, SendError};
pub use event::{Event, Handler, Message};
pub use ids::{EndpointHandle, Incarnation, JobKey, Rank, Tag, Token};
pub use invariants::Violation;
