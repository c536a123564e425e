//! What can go wrong for the caller. Trouble on the wire is counted (`stats`), never returned.

use crate::ids::Rank;
use crate::ports::PortError;
use crate::wire::Integrity;

/// Why an engine cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A value in the configuration is out of range.
    #[error("configuration: {field} = {value}: {reason}")]
    Config {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The memory for the datagram arena is not to be had.
    #[error("cannot map {bytes} bytes for datagrams: {source}")]
    Memory {
        /// How much was asked for.
        bytes: usize,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The port refused.
    #[error(transparent)]
    Port(#[from] PortError),
}

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// No slot or row is free. Tick, and try again: something is outstanding and will come back.
    #[error("no room for the message now: tick, then try again")]
    Again,
    /// The handle names no peer (any more).
    #[error("no such peer")]
    NoPeer,
    /// The peer is dead or unreachable, or one of the sides has closed.
    #[error("the peer is gone or closed")]
    Closed,
    /// The peer does not take messages of this size.
    #[error("message of {len_bytes} bytes: the peer takes at most {max_bytes}")]
    TooLarge {
        /// Length of the message.
        len_bytes: u64,
        /// The limit.
        max_bytes: u64,
    },
}

/// Why a peer cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// The address blob is not one of ours.
    #[error("not a tickwire address: {0}")]
    BadAddress(&'static str),
    /// The peer speaks for another job.
    #[error("rank {} ({name}) belongs to another job", rank.0)]
    WrongJob {
        /// Its rank.
        rank: Rank,
        /// Its name.
        name: String,
    },
    /// Both sides must use the same integrity mode.
    #[error("rank {} ({name}): its datagrams end in {theirs}, ours in {ours}", rank.0)]
    IntegrityMismatch {
        /// Its rank.
        rank: Rank,
        /// Its name.
        name: String,
        /// What its datagrams end in.
        theirs: Integrity,
        /// What ours end in.
        ours: Integrity,
    },
    /// Both sides must use the same largest window.
    #[error("rank {} ({name}): its window is {theirs} segments, ours {ours}", rank.0)]
    WindowMismatch {
        /// Its rank.
        rank: Rank,
        /// Its name.
        name: String,
        /// Its window.
        theirs: u16,
        /// Our window.
        ours: u16,
    },
    /// The rank is beyond `Config::ranks_max`.
    #[error("rank {} is beyond the limit of {ranks_max} ranks", rank.0)]
    RankTooHigh {
        /// Its rank.
        rank: Rank,
        /// The limit.
        ranks_max: u32,
    },
    /// A peer of that rank is there already.
    #[error("rank {} ({name}) was added before", rank.0)]
    Duplicate {
        /// Its rank.
        rank: Rank,
        /// Its name.
        name: String,
    },
    /// The endpoint table is full.
    #[error("the endpoint table is full ({peers_max} peers)")]
    Full {
        /// Its capacity.
        peers_max: u32,
    },
}
