//! One node of a simulated network: its port's queues and its links.
#![allow(unsafe_code)]

use super::SimPortConfig;
use super::model::SimCounters;
use super::network::EMSGSIZE;
use super::pool::PacketQueue;
use super::ring::{RecvRing, TRUNCATED};
use crate::ports::{
    Channel, Completion, CompletionKind, InsertResult, LinkEvent, PortPeer, SendOp,
};
use crate::time::Nanos;
use std::collections::VecDeque;
use tickwire_tables::arena::DatagramArena;

/// Bytes of one datagram in two pieces: slot or packet, and gathered user memory.
///
/// Whoever makes one vouches that both pieces stay readable while it is in use, which is never
/// longer than the call it was made in.
#[derive(Clone, Copy)]
pub(super) struct Parts {
    head: *const u8,
    head_bytes: usize,
    tail: *const u8,
    tail_bytes: usize,
}

impl Parts {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let head = bytes.as_ptr();
        Self { head, head_bytes: bytes.len(), tail: head, tail_bytes: 0 }
    }

    #[inline]
    pub(super) fn len_bytes(&self) -> usize {
        self.head_bytes + self.tail_bytes
    }

    pub(super) fn copy_to(self, bytes: &mut [u8]) {
        assert_eq!(bytes.len(), self.len_bytes());
        // SAFETY: `bytes` has room for all of it (checked above).
        unsafe { self.write(bytes.as_mut_ptr()) }
    }

    /// # Safety
    /// `to` must be writable for [`Self::len_bytes`] bytes.
    #[inline]
    unsafe fn write(self, to: *mut u8) {
        // SAFETY: the pieces are readable (see the type), `to` is long enough (caller). `copy`
        // allows overlap, so a caller who posts one slot twice gets wrong bytes and no more.
        unsafe {
            std::ptr::copy(self.head, to, self.head_bytes);
            if self.tail_bytes > 0 {
                std::ptr::copy(self.tail, to.add(self.head_bytes), self.tail_bytes);
            }
        }
    }
}

/// What becomes of an arriving datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Delivered or counted as dropped.
    Done,
    /// No receive is posted: it goes to the waiting queue.
    Waits,
}

/// A send whose completion was not polled yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentOp {
    pub slot: u32,
    /// 0: sent; otherwise the errno-like code.
    pub code: i32,
    /// When the completion may be seen.
    pub at: Nanos,
}

pub(super) struct Node {
    pub config: SimPortConfig,
    /// The node's port exists.
    pub open: bool,
    /// Cut off from everybody.
    pub down: bool,
    arena: Option<DatagramArena>,
    /// Of the arena, copied here to spare the way through it.
    base: *mut u8,
    slot_bytes: usize,
    slots: u32,
    recvs: [RecvRing; 2],
    /// Datagrams that arrived when no receive was posted.
    pub waiting: [PacketQueue; 2],
    pub sent: [VecDeque<SentOp>; 2],
    /// How often each node was inserted, per channel; sticks at 255.
    peers: [Vec<u8>; 2],
    pub inserts: VecDeque<InsertResult>,
    pub link_events: VecDeque<LinkEvent>,
    /// When the sending link is free again, in picoseconds.
    pub tx_free_ps: u64,
    /// When the receiving link is free again, in picoseconds.
    pub rx_free_ps: u64,
    /// Datagrams on or in front of the receiving link.
    pub on_rx_link: u32,
    /// Listed in [`super::network::Network::touched`].
    pub touched: bool,
}

impl Node {
    pub(super) fn new(config: SimPortConfig) -> Self {
        Self {
            config,
            open: true,
            down: false,
            arena: None,
            base: std::ptr::null_mut(),
            slot_bytes: 0,
            slots: 0,
            recvs: Default::default(),
            waiting: [PacketQueue::new(), PacketQueue::new()],
            sent: Default::default(),
            peers: Default::default(),
            inserts: VecDeque::new(),
            link_events: VecDeque::new(),
            tx_free_ps: 0,
            rx_free_ps: 0,
            on_rx_link: 0,
            touched: false,
        }
    }

    /// Opens the node again with a new port; its links stay as they are.
    pub(super) fn reopen(&mut self, config: SimPortConfig) {
        assert!(!self.open, "the node's port is still there");
        self.open = true;
        self.config = config;
    }

    /// Forgets all that belonged to the port, its memory first of all.
    pub(super) fn close(&mut self) {
        self.open = false;
        self.arena = None;
        self.base = std::ptr::null_mut();
        self.slots = 0;
        self.recvs = Default::default();
        self.sent = Default::default();
        self.peers = Default::default();
        self.inserts = VecDeque::new();
        self.link_events = VecDeque::new();
    }

    pub(super) fn attach(&mut self, arena: &DatagramArena) {
        assert!(self.arena.is_none(), "an arena is attached already");
        self.base = arena.base();
        self.slot_bytes = arena.slot_bytes();
        self.slots = u32::try_from(arena.slots()).unwrap_or(u32::MAX);
        self.arena = Some(arena.clone());
    }

    // Peers.

    pub(super) fn add_peer(&mut self, channel: Channel, node: u32) -> PortPeer {
        let peers = &mut self.peers[channel as usize];
        if peers.len() <= node as usize {
            peers.resize(node as usize + 1, 0);
        }
        peers[node as usize] = peers[node as usize].saturating_add(1);
        PortPeer(u64::from(node))
    }

    pub(super) fn remove_peer(&mut self, channel: Channel, peer: PortPeer) {
        let count = self.peers[channel as usize].get_mut(peer.0 as usize);
        let count = count.filter(|count| **count > 0);
        let count = count.unwrap_or_else(|| panic!("{peer:?} was not inserted"));
        if *count < u8::MAX {
            *count -= 1;
        }
    }

    #[inline]
    pub(super) fn has_peer(&self, channel: Channel, peer: PortPeer) -> bool {
        let count = self.peers[channel as usize].get(peer.0 as usize);
        count.is_some_and(|&count| count > 0)
    }

    // Sends.

    /// The bytes of a send. Panics when they do not lie in the slot.
    #[inline]
    pub(super) fn send_parts(&self, op: &SendOp) -> Result<Parts, i32> {
        let head_bytes = op.len_bytes as usize;
        let (tail, tail_bytes) = match op.gather {
            Some(gather) => {
                assert!(self.config.gathers, "this port does not gather");
                (gather.ptr(), gather.len_bytes() as usize)
            }
            None => (std::ptr::null(), 0),
        };
        if head_bytes + tail_bytes > self.config.datagram_bytes_max {
            return Err(EMSGSIZE);
        }
        let prefix = self.config.prefix_bytes;
        assert!(op.slot < self.slots, "send slot {} of {}", op.slot, self.slots);
        assert!(prefix + head_bytes <= self.slot_bytes, "{head_bytes} bytes do not fit in a slot");
        let head = self.base.wrapping_add(op.slot as usize * self.slot_bytes + prefix);
        Ok(Parts { head, head_bytes, tail, tail_bytes })
    }

    /// Sends that may still be posted.
    pub(super) fn send_room(&self, channel: Channel) -> usize {
        if self.config.sends_complete_at_post {
            return usize::MAX;
        }
        self.config.send_depth - self.sent[channel as usize].len()
    }

    // Receives.

    /// Posts receives, as many as fit.
    pub(super) fn post_recvs(&mut self, channel: Channel, slots: &[u32]) -> usize {
        let ring = &mut self.recvs[channel as usize];
        let count = slots.len().min(self.config.recv_depth - ring.len());
        for &slot in &slots[..count] {
            assert!(slot < self.slots, "receive slot {slot} of {}", self.slots);
            ring.push(slot);
        }
        count
    }

    pub(super) fn can_receive(&self, channel: Channel) -> bool {
        self.recvs[channel as usize].next_empty().is_some()
    }

    /// A datagram arrives: into a slot, into nothing, or (left to the caller) into the queue.
    #[inline]
    pub(super) fn receive(
        &mut self,
        channel: Channel,
        parts: Parts,
        counters: &mut SimCounters,
    ) -> Arrival {
        if self.down {
            counters.cut += 1;
        } else if self.can_receive(channel) {
            self.fill(channel, parts, counters);
        } else if !self.open {
            counters.to_nobody += 1;
        } else if self.waiting[channel as usize].len() < self.config.socket_datagrams {
            return Arrival::Waits;
        } else {
            counters.no_receive_posted += 1;
        }
        Arrival::Done
    }

    /// Writes a datagram into the next empty receive, which must exist.
    #[inline]
    pub(super) fn fill(&mut self, channel: Channel, parts: Parts, counters: &mut SimCounters) {
        let ring = &mut self.recvs[channel as usize];
        let slot = ring.next_empty().expect("an empty receive");
        let len_bytes = parts.len_bytes();
        if len_bytes > self.config.datagram_bytes_max {
            counters.truncated += 1;
            return ring.fill(TRUNCATED);
        }
        let start = slot as usize * self.slot_bytes + self.config.prefix_bytes;
        // SAFETY: the slot is in the arena (checked when posted), which `self.arena` keeps mapped,
        // and lent to this port, so nobody else touches it; `attach` was refused unless prefix and
        // longest datagram fit in a slot.
        unsafe { parts.write(self.base.add(start)) };
        counters.delivered += 1;
        ring.fill(len_bytes as u32);
    }

    /// Whether `poll` would find something at `now`.
    pub(super) fn has_completion(&self, channel: Channel, now: Nanos) -> bool {
        let sent = self.sent[channel as usize].front();
        self.recvs[channel as usize].has_filled() || sent.is_some_and(|op| op.at <= now)
    }

    #[inline]
    pub(super) fn poll(&mut self, channel: Channel, out: &mut [Completion], now: Nanos) -> usize {
        let mut count = 0;
        let sent = &mut self.sent[channel as usize];
        while count < out.len() {
            let Some(SentOp { slot, code, .. }) = sent.pop_front_if(|op| op.at <= now) else {
                break;
            };
            let kind = match code {
                0 => CompletionKind::Sent,
                code => CompletionKind::SendFailed(code),
            };
            out[count] = Completion { kind, slot, len_bytes: 0 };
            count += 1;
        }
        let ring = &mut self.recvs[channel as usize];
        while count < out.len() {
            let Some((slot, len_bytes)) = ring.pop() else { break };
            out[count] = match len_bytes {
                TRUNCATED => {
                    Completion { kind: CompletionKind::ReceiveFailed(EMSGSIZE), slot, len_bytes: 0 }
                }
                _ => Completion { kind: CompletionKind::Received, slot, len_bytes },
            };
            count += 1;
        }
        count
    }
}
