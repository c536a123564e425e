//! Reliable messages, at microsecond latency, between the processes of an HPC job, over
//! unreliable datagrams: libfabric `FI_EP_DGRAM` endpoints, kernel UDP sockets, or a simulated
//! network.
//!
//! An [`Engine`] is one process's end of the job. Endpoints, fragments and segments live in dense
//! tables; [`Engine::tick`] runs a fixed pipeline of systems over them: `poll_cq`, `reap_av`,
//! `resend`, `ack`, `send`, `chunk_pack`. Messages arrive exactly once, in order per peer, whole.
//!
//! ```
//! use tickwire::ports::sim::{LinkModel, SimNet, SimPortConfig};
//! use tickwire::{Config, Context, Engine, Event, JobKey, Rank, Tag};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A lossy network in virtual time; `ports::udp::Udp` is a real one.
//! let net = SimNet::new(7, LinkModel { latency_ns: 1_000, loss: 0.1, ..Default::default() });
//! let open = |rank| {
//!     Engine::new(Config::new(Rank(rank), JobKey(0xC0FFEE)), net.port(SimPortConfig::default()))
//! };
//! let (mut a, mut b) = (open(0)?, open(1)?);
//! let to_b = a.add_peer(&b.local_address())?;
//! b.add_peer(&a.local_address())?;
//!
//! a.send_copy(to_b, Tag(1), b"hello")?;
//! let mut heard = Vec::new();
//! while heard.is_empty() || !a.is_drained(to_b) {
//!     a.tick(&mut |_: &mut Context<_>, _: Event<'_>| {});
//!     b.tick(&mut |context: &mut Context<_>, event: Event<'_>| {
//!         if let Event::Received(message) = event {
//!             heard.extend_from_slice(message.bytes());
//!             // Sending from inside an event is fine, also to the same peer.
//!             context.send_copy(message.from, Tag(2), b"welcome").unwrap();
//!         }
//!     });
//!     net.advance(500);
//! }
//! assert_eq!(heard, b"hello");
//! # Ok(())
//! # }
//! ```

pub mod address;
pub mod bootstrap;
pub mod config;
pub mod congestion;
mod context;
mod engine;
pub mod error;
mod event;
pub mod ffi;
mod finish;
mod ids;
mod insertion;
mod integrity;
mod invariants;
mod liveness;
mod loss;
mod pack;
mod peers;
pub mod ports;
mod receive;
pub mod rto;
mod sends;
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
pub use congestion::Congestion;
pub use context::{Context, SmallMessage};
pub use engine::Engine;
pub use error::{BuildError, PeerError, SendError};
pub use event::{Death, Event, Handler, Message};
pub use ids::{AuthKey, EndpointHandle, Incarnation, JobKey, Rank, Tag, Token};
pub use invariants::{Usage, Violation};
