//! The sending half of an engine: everything that a handler may use during a tick.

use crate::config::{Config, Limits};
use crate::error::SendError;
use crate::ids::{EndpointHandle, EndpointRow, Rank, SegmentRow, Tag, Token};
use crate::ports::Port;
use crate::state::buffers::BufferPool;
use crate::state::endpoints::{Endpoints, flag};
use crate::state::fragments::{Buffer, Fragments, Kind};
use crate::state::rail::Rail;
use crate::state::segments::Segments;
use crate::state::worklists::WorkLists;
use crate::stats::Counters;
use crate::time::Nanos;
use crate::wire::HEADER_BYTES;
use crate::{liveness, pack, transmit};
use tickwire_tables::arena::ArenaPart;
use tickwire_tables::handle::Row;
use tickwire_tables::ring::RingId;

/// Messages of this size keep a handler, or whoever made them, busy for as long as a timer runs:
/// they do not wait for the end of a tick to be sent or acked.
pub(crate) const PROMPT_BYTES: u64 = 64 << 10;

/// The sending half of an [`crate::Engine`], which dereferences to it. Handlers get it by `&mut`
/// and may send from inside an event, also to the peer that caused it.
pub struct Context<P> {
    pub(crate) config: Config,
    pub(crate) limits: Limits,
    pub(crate) job_check: u32,
    pub(crate) rail: Rail<P>,
    pub(crate) slots: ArenaPart,
    pub(crate) endpoints: Endpoints,
    pub(crate) segments: Segments,
    pub(crate) fragments: Fragments,
    pub(crate) buffers: BufferPool,
    pub(crate) lists: WorkLists,
    pub(crate) counters: Counters,
    pub(crate) now: Nanos,
    /// Time that this process was awake for: `now` without the long gaps between ticks.
    pub(crate) live_ns: Nanos,
    /// When the last tick began: sends between ticks stamp `now` themselves.
    pub(crate) last_tick_ns: Nanos,
    /// When nothing was left unread for certain: the last tick, or the end of a sleep.
    pub(crate) polled_ns: Nanos,
    /// From then to this tick: what arrives in it may have waited for so long.
    pub(crate) away_ns: Nanos,
    pub(crate) in_tick: bool,
    /// Address insertions that the port has not answered.
    pub(crate) inserts_outstanding: u32,
}

impl<P: Port> Context<P> {
    /// A buffer of `len_bytes` in a datagram slot, to be filled in place and sent to `to`. Small
    /// messages only: up to [`Context::small_bytes_max`]. Dropping it unsent frees it.
    pub fn alloc(
        &mut self,
        to: EndpointHandle,
        len_bytes: usize,
    ) -> Result<SmallMessage<'_, P>, SendError> {
        let ep = self.open_peer(to)?;
        let max = self.endpoints.payload_bytes_max[ep];
        if len_bytes > usize::from(max) {
            return Err(too_large(len_bytes, u64::from(max)));
        }
        let seg = self.take_segment(ep, len_bytes)?;
        Ok(SmallMessage { context: self, seg, len_bytes, sent: false })
    }

    /// Largest message that fits one datagram to `to`, in bytes.
    pub fn small_bytes_max(&self, to: EndpointHandle) -> Option<usize> {
        let ep = self.endpoints.slab.get(to)?;
        Some(usize::from(self.endpoints.payload_bytes_max[ep]))
    }

    /// Whether everything sent to `to` has been acked. A peer that is gone is drained.
    pub fn is_drained(&self, to: EndpointHandle) -> bool {
        self.endpoints.slab.get(to).is_none_or(|ep| self.endpoints.is_drained(ep))
    }

    /// The peer of a rank.
    pub fn peer(&self, rank: Rank) -> Option<EndpointHandle> {
        self.endpoints.by_rank(rank.0).map(|ep| self.endpoints.slab.handle(ep))
    }

    /// The rank of a peer.
    pub fn rank(&self, peer: EndpointHandle) -> Option<Rank> {
        self.endpoints.slab.get(peer).map(|ep| self.endpoints.rank[ep])
    }

    /// Whether the peer's addresses are usable.
    pub fn is_ready(&self, peer: EndpointHandle) -> bool {
        let ep = self.endpoints.slab.get(peer);
        ep.is_some_and(|ep| self.endpoints.has(ep, flag::READY))
    }

    /// Asks to hear of the peer's death also while nothing is outstanding to it: it is probed
    /// every `Config::keepalive_ns`. A layer that waits for a message of the peer does this.
    pub fn watch(&mut self, peer: EndpointHandle, on: bool) -> Result<(), SendError> {
        let ep = self.open_peer(peer)?;
        self.stamp();
        liveness::watch(self, ep, on);
        Ok(())
    }

    /// Says that no more will be sent to `peer`. What was sent still arrives; then both sides say
    /// goodbye. What the peer sends is taken until it closes, too.
    pub fn close_peer(&mut self, peer: EndpointHandle) -> Result<(), SendError> {
        let ep = self.endpoints.slab.get(peer).ok_or(SendError::NoPeer)?;
        self.stamp();
        liveness::close(self, ep);
        Ok(())
    }

    /// Whether everything is said between this side and `peer`, or it is gone.
    pub fn is_closed(&self, peer: EndpointHandle) -> bool {
        self.endpoints.slab.get(peer).is_none_or(|ep| liveness::is_closed(self, ep))
    }

    /// Smoothed round trip to a peer in nanoseconds, once there is one.
    pub fn srtt_ns(&self, peer: EndpointHandle) -> Option<Nanos> {
        let ep = self.endpoints.slab.get(peer)?;
        Some(self.endpoints.rtt[ep].srtt_ns()).filter(|&ns| ns > 0)
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The port's clock at the start of this tick.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The port.
    pub fn port(&self) -> &P {
        &self.rail.port
    }

    /// The one clock stamp of a tick. A gap longer than any caller leaves between ticks was a pause
    /// of this process, not a silence of its peers.
    #[inline]
    pub(crate) fn wake_up(&mut self) {
        let now = self.now.max(self.rail.port.now());
        self.away_ns = now - self.polled_ns.min(now);
        self.polled_ns = now;
        self.live_ns += (now - self.last_tick_ns).min(self.limits.pause_ns);
        self.last_tick_ns = now;
        self.now = now;
    }

    /// Between ticks, what notes the time stamps it first, or a round trip or a silence would be
    /// measured from the last tick, which may be long ago.
    #[inline]
    pub(crate) fn stamp(&mut self) {
        if !self.in_tick {
            self.now = self.now.max(self.rail.port.now());
        }
    }

    /// `live_ns` at `now`: between ticks, what the next one will have counted until then.
    #[inline]
    pub(crate) fn live_now_ns(&self) -> Nanos {
        self.live_ns + (self.now - self.last_tick_ns).min(self.limits.pause_ns)
    }

    pub(crate) fn open_peer(&mut self, to: EndpointHandle) -> Result<EndpointRow, SendError> {
        let ep = self.endpoints.slab.get(to).ok_or(SendError::NoPeer)?;
        if self.endpoints.has(ep, flag::GONE | flag::CLOSING) {
            return Err(SendError::Closed);
        }
        Ok(ep)
    }

    pub(crate) fn again(&mut self) -> SendError {
        self.counters.refused_again += 1;
        SendError::Again
    }

    pub(crate) fn take_segment(
        &mut self,
        ep: EndpointRow,
        len: usize,
    ) -> Result<SegmentRow, SendError> {
        // Each peer leaves as many slots as it holds, so that one that is slow or dead never takes
        // all of them (dynamic thresholds, Choudhury and Hahne 1998). What waits behind a large
        // message counts as well, and the last slot is for the chunks that it waits for.
        let e = &self.endpoints;
        let waiting = e.pending[ep].len() as u32;
        let free = self.segments.slab.free_len() as u32;
        // The bound is cheap, and is enough nearly always.
        if e.slots_held_max(ep) + waiting >= free && e.slots_held(ep) + waiting >= free {
            return Err(self.again());
        }
        match self.segments.take(ep, len as u32) {
            Some(seg) => Ok(seg),
            None => Err(self.again()),
        }
    }

    #[inline]
    pub(crate) fn payload_mut(&mut self, seg: SegmentRow, len: usize) -> &mut [u8] {
        let first = self.limits.prefix_bytes + HEADER_BYTES;
        &mut self.slots.bytes_mut(seg.index() as u32)[first..first + len]
    }

    pub(crate) fn check_large(&self, ep: EndpointRow, len: usize) -> Result<(), SendError> {
        let max = self.endpoints.message_bytes_max[ep];
        if len as u64 > max { Err(too_large(len, max)) } else { Ok(()) }
    }

    /// The short way: a packed segment goes out at once when nothing of its endpoint waits and
    /// window and queue allow; else it waits its turn.
    #[inline]
    pub(crate) fn enqueue_small(
        &mut self,
        seg: SegmentRow,
        tag: Tag,
        token: Option<Token>,
    ) -> Result<(), SendError> {
        let ep = self.segments.ep[seg];
        self.segments.tag[seg] = tag.0;
        let waits = !self.endpoints.pending[ep].is_empty();
        if waits || token.is_some() {
            let peer = self.endpoints.slab.handle(ep);
            let Some(frag) = self.fragments.take(Kind::Small, peer, tag.0, 0) else {
                self.segments.slab.remove(seg);
                return Err(self.again());
            };
            self.fragments.token[frag] = token;
            self.fragments.unacked[frag] = 1;
            self.segments.frag[seg] = Some(frag);
            if waits {
                self.fragments.seg[frag] = Some(seg);
                self.fragments.links.push_back(&mut self.endpoints.pending[ep], frag);
            }
        }
        self.counters.messages_sent += 1;
        if waits {
            self.lists.to_pack.push(ep);
            return Ok(());
        }
        let flight =
            if self.endpoints.ready[ep].is_empty() { self.flight_at_once(ep) } else { None };
        if let Some(flight) = flight {
            self.leave(ep, flight, seg);
        } else {
            self.segments.links.push_back(&mut self.endpoints.ready[ep], seg);
            self.lists.ready.push(ep);
        }
        Ok(())
    }

    /// Sends a packed segment of an endpoint that has nothing waiting.
    #[inline]
    pub(crate) fn leave(&mut self, ep: EndpointRow, flight: RingId, seg: SegmentRow) {
        transmit::first(self, ep, flight, seg);
        if !self.in_tick {
            transmit::flush(self);
        }
    }

    /// The flight that what nothing waits before may join at once.
    #[inline]
    pub(crate) fn flight_at_once(&mut self, ep: EndpointRow) -> Option<RingId> {
        self.stamp();
        transmit::open_flight(self, ep)
    }

    pub(crate) fn enqueue_large(
        &mut self,
        ep: EndpointRow,
        tag: Tag,
        buffer: Buffer,
        len: usize,
        token: Option<Token>,
    ) -> Result<(), (SendError, Buffer)> {
        let peer = self.endpoints.slab.handle(ep);
        let Some(frag) = self.fragments.take(Kind::Large, peer, tag.0, len as u64) else {
            return Err((self.again(), buffer));
        };
        self.fragments.token[frag] = token;
        self.fragments.buffer[frag] = Some(buffer);
        self.fragments.id[frag] = self.endpoints.fragment_id_next[ep];
        self.endpoints.fragment_id_next[ep] = self.fragments.id[frag].wrapping_add(1);
        let nothing_waits =
            self.endpoints.pending[ep].is_empty() && self.endpoints.ready[ep].is_empty();
        self.fragments.links.push_back(&mut self.endpoints.pending[ep], frag);
        self.lists.to_pack.push(ep);
        self.counters.messages_sent += 1;
        // The short way for the first chunk; the rest is packed by the tick. Without a slot for it
        // no ring may be taken, or those who have one might wait for the ring.
        if nothing_waits
            && pack::may_take_slot(self, ep)
            && let Some(flight) = self.flight_at_once(ep)
        {
            let is_prompt = len as u64 >= PROMPT_BYTES;
            if is_prompt {
                self.now = self.now.max(self.rail.port.now());
            }
            if let Some(seg) = pack::next_chunk(self, ep, frag) {
                transmit::first(self, ep, flight, seg);
            }
            if is_prompt || !self.in_tick {
                transmit::flush(self);
            }
        }
        Ok(())
    }
}

pub(crate) fn too_large(len: usize, max_bytes: u64) -> SendError {
    SendError::TooLarge { len_bytes: len as u64, max_bytes }
}

/// A small message being built in its datagram slot.
pub struct SmallMessage<'a, P: Port> {
    context: &'a mut Context<P>,
    seg: SegmentRow,
    len_bytes: usize,
    sent: bool,
}

impl<P: Port> SmallMessage<'_, P> {
    /// Sends it.
    #[inline]
    pub fn send(mut self, tag: Tag) -> Result<(), SendError> {
        self.sent = true;
        self.context.enqueue_small(self.seg, tag, None)
    }

    /// Sends it and asks for [`crate::Event::SendDone`] when the peer has it.
    pub fn send_with_token(mut self, tag: Tag, token: Token) -> Result<(), SendError> {
        self.sent = true;
        self.context.enqueue_small(self.seg, tag, Some(token))
    }
}

impl<P: Port> std::ops::Deref for SmallMessage<'_, P> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let first = self.context.limits.prefix_bytes + HEADER_BYTES;
        &self.context.slots.bytes(self.seg.index() as u32)[first..first + self.len_bytes]
    }
}

impl<P: Port> std::ops::DerefMut for SmallMessage<'_, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.context.payload_mut(self.seg, self.len_bytes)
    }
}

impl<P: Port> Drop for SmallMessage<'_, P> {
    fn drop(&mut self) {
        if !self.sent {
            self.context.segments.slab.remove(self.seg);
        }
    }
}
