//! Bootstrap: how the processes of a job find one another and exchange their addresses.

mod frame;
pub mod rendezvous;
mod server;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

pub use rendezvous::{Joined, join, serve};

/// Longest blob that a process may give to the others, in bytes.
pub const BLOB_BYTES_MAX: usize = 64 << 10;
/// Most processes in one job.
pub const RANKS_MAX: u32 = 65536;

/// Why a job did not come together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// A blob longer than [`BLOB_BYTES_MAX`].
    #[error("a blob of {len_bytes} bytes is too long: at most {BLOB_BYTES_MAX} are exchanged")]
    BlobTooLong {
        /// Its length in bytes.
        len_bytes: usize,
    },
    /// A job of no ranks, or of more than [`RANKS_MAX`].
    #[error("a job of {ranks} ranks: it has 1 to {RANKS_MAX}")]
    RanksOutOfRange {
        /// How many were asked for.
        ranks: u32,
    },
    /// The server's listening socket does not work.
    #[error("the rendezvous cannot listen: {0}")]
    Listener(#[source] io::Error),
    /// The server's time is over and not everybody came.
    #[error("after {timeout:?} {count} of {ranks} ranks are missing: {who}")]
    Missing {
        /// How long the server waited.
        timeout: Duration,
        /// How many did not come.
        count: u32,
        /// How many there should be.
        ranks: u32,
        /// Their numbers, as far as known.
        who: String,
    },
    /// Nobody who would answer could be reached in time.
    #[error("no rendezvous at {address} within {timeout:?}: {reason}")]
    Unreachable {
        /// Where it should be.
        address: SocketAddr,
        /// How long it was tried.
        timeout: Duration,
        /// What the last attempt ended with.
        reason: String,
    },
    /// The server said no; its words.
    #[error("the rendezvous at {address} refused: {reason}")]
    Refused {
        /// The server.
        address: SocketAddr,
        /// Why.
        reason: String,
    },
    /// Something else than a rendezvous of this version answers there.
    #[error("{address} does not speak as a rendezvous should: {reason}")]
    Protocol {
        /// Who answered.
        address: SocketAddr,
        /// What was wrong with the answer.
        reason: String,
    },
    /// The connection ended in the middle.
    #[error("lost the rendezvous at {address}: {reason}")]
    Lost {
        /// The server.
        address: SocketAddr,
        /// How the connection ended.
        reason: String,
    },
}

/// When `timeout` from now is over; a timeout beyond the clock's range is as good as none.
fn deadline_after(timeout: std::time::Duration) -> std::time::Instant {
    const YEAR: std::time::Duration = std::time::Duration::from_secs(365 * 24 * 3600);
    std::time::Instant::now() + timeout.min(YEAR)
}
