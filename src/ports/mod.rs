//! Ports: how datagrams leave and arrive.
//!
//! A [`Port`] is one local network attachment (a rail) with two channels. It moves datagrams
//! between the slots of the [`DatagramArena`] and the network and knows nothing of tables or
//! protocol. The engine is generic over it, so nothing is dispatched on the hot path. The contract:
//!
//! - A slot handed over by [`Port::post_recvs`] or [`Port::post_sends`] belongs to the port until
//!   it comes back in a [`Completion`] (or at once, see [`PortCaps::sends_complete_at_post`]).
//! - A datagram starts `prefix_bytes` after the start of its slot, for sends and receives alike;
//!   the prefix itself is scratch space of the port's.
//! - No call blocks but [`Port::wait`]. No call after construction allocates on the data path;
//!   the simulated network may, until it has seen its largest load.
//! - Trouble with one datagram or one peer is reported by a completion and never ends the port.

use crate::time::Nanos;
use arrayvec::ArrayVec;
use tickwire_tables::arena::DatagramArena;

pub mod any;
pub mod faults;
mod kernel;
pub mod libfabric;
pub mod memory;
pub mod sim;
pub mod udp;

/// One of the two local endpoints of a rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Channel {
    /// Standalone acks and other tiny control datagrams: never behind bulk data.
    Priority = 0,
    /// Everything else.
    Data = 1,
}

impl Channel {
    /// Both channels, in the order in which they are polled.
    pub const ALL: [Channel; 2] = [Channel::Priority, Channel::Data];
}

/// A provider's name for one remote address on one channel (`fi_addr_t`, or an index).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortPeer(pub u64);

impl PortPeer {
    /// No address: not inserted yet, or the insertion failed.
    pub const NONE: PortPeer = PortPeer(u64::MAX);
}

/// A transport address in the port's own encoding, opaque to everyone else.
/// Length: at most [`RawAddress::BYTES_MAX`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct RawAddress(pub ArrayVec<u8, { RawAddress::BYTES_MAX }>);

impl RawAddress {
    /// Longest address of any provider we know (efa: 32 bytes, sockaddr_in6: 28), with room.
    pub const BYTES_MAX: usize = 64;

    /// Copies `bytes`; `None` when they are longer than [`Self::BYTES_MAX`].
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        ArrayVec::try_from(bytes).ok().map(RawAddress)
    }
}

/// What a port can do. Read once when the engine is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortCaps {
    /// Short name for messages and JSON: `sim`, `udp`, `libfabric`.
    pub name: &'static str,
    /// Largest datagram in bytes, our header included, the prefix not.
    pub datagram_bytes_max: usize,
    /// Bytes in front of each datagram in its slot that belong to the port (`FI_MSG_PREFIX`).
    pub prefix_bytes: usize,
    /// A send may take its payload from user memory ([`SendOp::gather`]).
    pub gathers: bool,
    /// Sends that may be posted and not yet completed, per channel.
    pub send_depth: usize,
    /// Receives that may be posted, per channel.
    pub recv_depth: usize,
    /// The slot of a send is free again when `post_sends` returns: no send completions follow.
    pub sends_complete_at_post: bool,
    /// Datagrams that may wait unread at this port without loss (posted receives, socket buffer),
    /// on the data channel. Bounds the window that the engine advertises.
    pub recv_backlog_datagrams: usize,
}

/// User memory that a send takes its payload from, behind the header in the slot. Readable until
/// the send completes: only the engine, which keeps that promise, makes one of borrowed memory.
#[derive(Clone, Copy, Debug)]
pub struct Gather {
    ptr: *const u8,
    len_bytes: u32,
}

// SAFETY: only bytes are read through it, by whichever thread makes the call that sends them; they
// stay readable until then (see above), as with a `&[u8]`, which may change threads as well.
#[allow(unsafe_code)]
unsafe impl Send for Gather {}

impl Gather {
    /// All of `bytes`, which the caller keeps until the send completes.
    #[inline]
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { ptr: bytes.as_ptr(), len_bytes: bytes.len() as u32 }
    }

    /// All of `bytes`, at most 4 GiB.
    pub fn of_static(bytes: &'static [u8]) -> Self {
        assert!(u32::try_from(bytes.len()).is_ok());
        Self::of(bytes)
    }

    /// First byte.
    #[inline]
    pub fn ptr(&self) -> *const u8 {
        self.ptr
    }

    /// Length in bytes.
    #[inline]
    pub fn len_bytes(&self) -> u32 {
        self.len_bytes
    }
}

/// One datagram to send.
#[derive(Clone, Copy, Debug)]
pub struct SendOp {
    /// Slot in the arena that holds the datagram (or its header, when it gathers).
    pub slot: u32,
    /// Bytes in the slot to send, the prefix not counted.
    pub len_bytes: u32,
    /// To whom.
    pub peer: PortPeer,
    /// The rest of the payload, in user memory. Only when [`PortCaps::gathers`].
    pub gather: Option<Gather>,
}

/// What became of a posted operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionKind {
    /// A send left the slot. Says nothing about delivery.
    Sent,
    /// A datagram arrived: `len_bytes` bytes from behind the prefix.
    Received,
    /// A send failed for good, with an errno-like code.
    SendFailed(i32),
    /// A receive failed (truncation, checksum); the slot holds nothing and may be posted again.
    ReceiveFailed(i32),
}

/// One finished operation; the slot belongs to the engine again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What happened.
    pub kind: CompletionKind,
    /// The slot that was posted.
    pub slot: u32,
    /// For `Received`: datagram length in bytes, the prefix not counted.
    pub len_bytes: u32,
}

/// How an address insertion started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// Done.
    Ready(PortPeer),
    /// The result comes from [`Port::reap_inserts`] under the context given.
    Pending,
}

/// The result of one asynchronous insertion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsertResult {
    /// The context given to [`Port::insert`].
    pub context: u64,
    /// The address, or an errno-like code.
    pub result: Result<PortPeer, i32>,
}

/// A change of the rail's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The link is usable again.
    Up,
    /// The link is gone.
    Down,
}

/// Why a port cannot do what was asked of it as a whole.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// A library or kernel feature is not there.
    #[error("{port} port: {what} is missing: {hint}")]
    Missing {
        /// Which port.
        port: &'static str,
        /// What is missing.
        what: String,
        /// What to do about it.
        hint: String,
    },
    /// A call into the system or provider failed.
    #[error("{port} port: {call} failed for {subject}: {reason}")]
    Call {
        /// Which port.
        port: &'static str,
        /// The call.
        call: &'static str,
        /// For which address, interface or provider.
        subject: String,
        /// The system's or provider's text.
        reason: String,
    },
    /// An address or setting that this port cannot use.
    #[error("{port} port: cannot use {value}: {reason}")]
    Unusable {
        /// Which port.
        port: &'static str,
        /// The value given.
        value: String,
        /// Why not.
        reason: String,
    },
    /// The queue of outstanding address insertions is full: reap, then try again.
    #[error("{port} port: address insertions outstanding, try again")]
    Again {
        /// Which port.
        port: &'static str,
    },
}

/// One rail: a local network attachment with a priority and a data channel.
pub trait Port {
    /// Capabilities and limits; constant over the port's life.
    fn caps(&self) -> &PortCaps;

    /// The port's monotonic clock. The engine reads it once a tick.
    fn now(&self) -> Nanos;

    /// This side's address on `channel`, to be given to peers.
    fn local_address(&self, channel: Channel) -> RawAddress;

    /// Takes note of the memory that all slots live in, and registers it where the provider
    /// needs that. Called once, before any slot is posted, with slots that hold the prefix and
    /// the largest datagram (anything else is a bug of the caller's). The port keeps a clone.
    fn attach(&mut self, arena: &DatagramArena) -> Result<(), PortError>;

    /// Starts to make `address` (a peer's [`Port::local_address`] for `channel`) usable for sends.
    fn insert(
        &mut self,
        channel: Channel,
        address: &RawAddress,
        context: u64,
    ) -> Result<Insertion, PortError>;

    /// Appends finished insertions to `out`, as many as fit. Bounded, never blocks.
    fn reap_inserts(&mut self, out: &mut ArrayVec<InsertResult, 64>);

    /// Forgets an address.
    fn remove(&mut self, channel: Channel, peer: PortPeer);

    /// Hands over receive slots; returns how many of them, from the front, were taken.
    fn post_recvs(&mut self, channel: Channel, slots: &[u32]) -> usize;

    /// Posts datagrams; returns how many of them, from the front, were taken. One that cannot be
    /// sent for good counts as taken and is reported as [`CompletionKind::SendFailed`].
    fn post_sends(&mut self, channel: Channel, ops: &[SendOp]) -> usize;

    /// Fills `out` from the front with finished operations and returns how many. Never blocks.
    fn poll(&mut self, channel: Channel, out: &mut [Completion]) -> usize;

    /// Sleeps until something may have arrived, at most `timeout_ns`. May return early.
    fn wait(&mut self, timeout_ns: Nanos);

    /// The next change of the link, if any.
    fn link_event(&mut self) -> Option<LinkEvent> {
        None
    }

    /// Text for people: interface, address, limits.
    fn describe(&self) -> String;
}
