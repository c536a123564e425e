//! Putting segments on the wire: shared by the short way, `send` and `resend`.
//!
//! A transmission is collected in the rail's batch; [`flush`] hands the batch to the port in one
//! call. What the port does not take goes to the front of its endpoint's lost list, number and
//! all, and is tried again next tick.

use crate::context::Context;
use crate::finish;
use crate::ids::{EndpointRow, SegmentRow};
use crate::integrity;
use crate::liveness;
use crate::ports::{Channel, Gather, Port, SendOp};
use crate::state::endpoints::flag as ep_flag;
use crate::state::fragments::Buffer;
use crate::state::segments::flag;
use crate::time::{MILLIS, Nanos, coarse_elapsed_ns};
use crate::window;
use crate::wire::{self, AckDelay, HEADER_BYTES, Header, Integrity, Kind};
use tickwire_tables::handle::Row;
use tickwire_tables::ring::RingId;

/// A peer that nothing was sent to for this long starts with a small congestion window again.
const IDLE_NS: Nanos = 100 * MILLIS;

/// The flight that a new segment of `ep` may join now. Takes one for the endpoint if it has none;
/// what was lost goes first.
#[inline]
pub(crate) fn open_flight<P: Port>(c: &mut Context<P>, ep: EndpointRow) -> Option<RingId> {
    let e = &mut c.endpoints;
    let flight = e.tx_ring[ep];
    let in_flight = match flight {
        Some(flight) if !e.flights.lost[flight].is_empty() => return None,
        Some(flight) => e.flights.flight[flight].len() as u32,
        None => 0,
    };
    let open = e.has(ep, ep_flag::READY)
        && window::may_send(e.next_seq[ep], e.acked[ep], e.send_limit[ep], c.limits.window)
        && e.congestion[ep].allows(in_flight, c.now)
        && c.rail.room(Channel::Data) > 0;
    if !open {
        return None;
    }
    if flight.is_none() {
        e.tx_ring[ep] = e.flights.take(e.next_seq[ep]);
        return e.tx_ring[ep];
    }
    flight
}

/// Sends a packed segment for the first time, in the flight that [`open_flight`] gave: it gets the
/// next number.
#[inline]
pub(crate) fn first<P: Port>(c: &mut Context<P>, ep: EndpointRow, flight: RingId, seg: SegmentRow) {
    let seq = c.endpoints.take_next_seq(ep);
    c.segments.seq[seg] = seq;
    c.endpoints.flights.rings.set(flight, seq.get(), seg.index() as u32);
    put(c, ep, flight, seg);
}

/// Sends a segment that has its number, for the first time or again.
#[inline]
pub(crate) fn put<P: Port>(c: &mut Context<P>, ep: EndpointRow, flight: RingId, seg: SegmentRow) {
    debug_assert!(!c.segments.is_with_port(seg), "I-06: a posted slot is never sent again");
    c.segments.flags[seg] |= flag::BATCHED;
    c.segments.links.push_back(&mut c.endpoints.flights.flight[flight], seg);
    c.segments.sent_ns[seg] = c.now;
    let transmissions = &mut c.segments.transmissions[seg];
    c.counters.segments_resent += u64::from(*transmissions > 0);
    *transmissions = transmissions.saturating_add(1);
    c.counters.segments_sent += 1;
    let congestion = &mut c.endpoints.congestion[ep];
    if congestion.is_paced() {
        congestion.on_sent(c.now, c.endpoints.rtt[ep].srtt_ns());
    }
    if c.endpoints.flights.deadline_ns[flight] == 0 {
        if liveness::silence_ns(c, ep) > IDLE_NS {
            c.endpoints.congestion[ep].on_idle(c.limits.congestion_initial);
        }
        liveness::begin_silence(c, ep);
        let wait = timeout_ns(c, ep);
        arm_deadline(c, ep, flight, c.now + wait);
    }
    let op = write(c, ep, seg);
    c.rail.data_batch.push(op);
    c.rail.data_batch_segs.push(seg);
    if c.rail.data_batch.is_full() {
        flush(c);
    }
}

/// Fills in the header and describes the datagram to the port.
#[inline]
fn write<P: Port>(c: &mut Context<P>, ep: EndpointRow, seg: SegmentRow) -> SendOp {
    let flags = c.segments.flags[seg];
    let is_chunk = flags & flag::CHUNK != 0;
    let payload = c.segments.payload_bytes[seg];
    let mut header = base_header(c, ep);
    header.kind = Kind::Data;
    if is_chunk {
        header.kind = Kind::Chunk;
        header.fragment = c.segments.fragment_id[seg];
    }
    header.payload_bytes = payload as u16;
    header.seq = c.segments.seq[seg];
    header.tag = c.segments.tag[seg];
    take_ack_along(c, ep);

    let slot = seg.index() as u32;
    let prefix = c.limits.prefix_bytes;
    let bytes = &mut c.slots.bytes_mut(slot)[prefix..];
    header.write(bytes.first_chunk_mut().expect("a slot holds a header"));
    let head = HEADER_BYTES + if is_chunk { wire::chunk::EXTRA_BYTES } else { 0 };
    let mut op = SendOp {
        slot,
        len_bytes: head as u32,
        peer: c.endpoints.addresses[ep][Channel::Data as usize],
        gather: None,
    };
    if flags & flag::GATHERED != 0 {
        let frag = c.segments.frag[seg].expect("a gathered segment has a fragment");
        let buffer = c.fragments.buffer[frag].as_ref().map(Buffer::bytes).expect("with a buffer");
        let from = c.segments.offset_bytes[seg] as usize;
        let slice = &buffer[from..from + payload as usize];
        op.gather = Some(Gather::of(slice));
        return op;
    }
    op.len_bytes += payload;
    if c.limits.integrity != Integrity::None {
        let number = wire::extend(header.seq.get(), c.endpoints.next_seq64(ep));
        op.len_bytes = integrity::seal(c, ep, slot, op.len_bytes as usize, number) as u32;
    }
    op
}

/// The fields that every datagram to `ep` carries now.
#[inline]
pub(crate) fn base_header<P: Port>(c: &Context<P>, ep: EndpointRow) -> Header {
    let e = &c.endpoints;
    let delay =
        if e.has(ep, ep_flag::ACK_PENDING) { coarse_elapsed_ns(c.now, e.arrived[ep]) } else { 0 };
    Header {
        kind: Kind::Ack,
        ack_delay: AckDelay::from_ns(delay),
        payload_bytes: 0,
        job_check: c.job_check,
        rank: c.config.rank.0,
        session: e.session_out[ep],
        seq: e.expected[ep],
        ack: e.expected[ep],
        tag: 0,
        window: c.limits.window_ours,
        fragment: 0,
    }
}

/// A data segment carries the cumulative ack; one that needs its bitmap still goes alone.
#[inline]
fn take_ack_along<P: Port>(c: &mut Context<P>, ep: EndpointRow) {
    let flags = c.endpoints.flags[ep];
    if flags & (ep_flag::ACK_PENDING | ep_flag::SAYS_ALONE) == ep_flag::ACK_PENDING {
        c.counters.acks_piggybacked += 1;
        settle_ack(c, ep);
    }
}

/// Notes that an ack for everything received has gone out.
#[inline]
pub(crate) fn settle_ack<P: Port>(c: &mut Context<P>, ep: EndpointRow) {
    c.endpoints.flags[ep] &= !(ep_flag::ACK_PENDING | ep_flag::SAYS_ALONE | ep_flag::ACK_DEFERRED);
    c.endpoints.arrivals_unacked[ep] = 0;
    c.lists.ack_due.remove(ep);
    c.lists.ack_delayed.remove(ep);
}

/// Hands the batch to the port.
pub(crate) fn flush<P: Port>(c: &mut Context<P>) -> u32 {
    if c.rail.data_batch.is_empty() {
        return 0;
    }
    if !c.limits.completes_at_post {
        for op in &c.rail.data_batch {
            c.slots.lend(op.slot);
        }
    }
    let taken = c.rail.port.post_sends(Channel::Data, &c.rail.data_batch);
    if !c.limits.completes_at_post {
        c.rail.posted[Channel::Data as usize] += taken as u32;
        for op in &c.rail.data_batch[taken..] {
            c.slots.give_back(op.slot);
        }
    }
    for i in 0..taken {
        let seg = c.rail.data_batch_segs[i];
        let flags = &mut c.segments.flags[seg];
        *flags &= !flag::BATCHED;
        if !c.limits.completes_at_post {
            *flags |= flag::POSTED;
        } else if *flags & flag::RELEASED != 0 {
            reclaim(c, seg);
        }
    }
    // From the back, so that the oldest ends up in front.
    for i in (taken..c.rail.data_batch_segs.len()).rev() {
        let seg = c.rail.data_batch_segs[i];
        c.segments.flags[seg] &= !flag::BATCHED;
        if c.segments.has(seg, flag::RELEASED) { reclaim(c, seg) } else { untransmit(c, seg) }
    }
    c.rail.data_batch.clear();
    c.rail.data_batch_segs.clear();
    taken as u32
}

fn untransmit<P: Port>(c: &mut Context<P>, seg: SegmentRow) {
    let ep = c.segments.ep[seg];
    c.counters.segments_sent -= 1;
    if c.segments.transmissions[seg] > 1 {
        // Stays a resend, so that Karn's rule holds: `sent_ns` is no longer the original's.
        c.counters.segments_resent -= 1;
    } else {
        c.segments.transmissions[seg] = 0;
    }
    mark_lost(c, ep, seg, ListEnd::Front);
}

/// Done with a segment that is in no list: frees its row, or leaves that to the port's completion.
#[inline]
pub(crate) fn retire<P: Port>(c: &mut Context<P>, seg: SegmentRow) {
    if c.segments.is_with_port(seg) {
        c.segments.flags[seg] |= flag::RELEASED;
    } else {
        reclaim(c, seg);
    }
}

/// Frees a segment's row; its fragment, if it has one, has one segment less to wait for. User
/// memory goes back with the fragment, so that happens only when the port no longer reads it.
#[inline]
pub(crate) fn reclaim<P: Port>(c: &mut Context<P>, seg: SegmentRow) {
    if let Some(frag) = c.segments.frag[seg] {
        c.fragments.unacked[frag] -= 1;
        let packed = c.fragments.done_bytes[frag] == c.fragments.total_bytes[frag];
        if c.fragments.unacked[frag] == 0 && packed {
            finish::send(c, frag);
        }
    }
    c.segments.slab.remove(seg);
}

/// Moves a segment in flight to the list of those to be sent again, at its end or its front.
pub(crate) fn mark_lost<P: Port>(
    c: &mut Context<P>,
    ep: EndpointRow,
    seg: SegmentRow,
    at: ListEnd,
) {
    debug_assert!(!c.segments.has(seg, flag::LOST), "I-05: a segment is in one list");
    let flight = c.endpoints.flight_of(ep);
    let flights = &mut c.endpoints.flights;
    c.segments.links.remove(&mut flights.flight[flight], seg);
    c.segments.flags[seg] |= flag::LOST;
    match at {
        ListEnd::Front => c.segments.links.push_front(&mut flights.lost[flight], seg),
        ListEnd::Back => c.segments.links.push_back(&mut flights.lost[flight], seg),
    }
    c.lists.resend.push(ep);
}

/// Where a segment enters the list of the lost.
#[derive(Clone, Copy)]
pub(crate) enum ListEnd {
    /// Before all others: the lowest unacked one, which may always go.
    Front,
    /// Behind those found lost before it.
    Back,
}

/// The wait before the lowest unacked segment is sent again.
#[inline]
pub(crate) fn timeout_ns<P: Port>(c: &Context<P>, ep: EndpointRow) -> Nanos {
    let e = &c.endpoints;
    e.rtt[ep].timeout_ns(e.backoff[ep], c.config.ack_delay_ns, &c.limits.rto)
}

/// Sets the endpoint's deadline; the wheel only moves when it would fire too late.
#[inline]
pub(crate) fn arm_deadline<P: Port>(
    c: &mut Context<P>,
    ep: EndpointRow,
    flight: RingId,
    deadline_ns: Nanos,
) {
    c.endpoints.flights.deadline_ns[flight] = deadline_ns;
    // The peer owes an answer: whoever sleeps until then would not count as awake for longer.
    wake_by(c, ep, deadline_ns.min(c.now + c.limits.pause_ns));
}

/// Makes sure that `resend` looks at the endpoint no later than `at_ns`.
#[inline]
pub(crate) fn wake_by<P: Port>(c: &mut Context<P>, ep: EndpointRow, at_ns: Nanos) {
    if c.lists.timers.deadline(ep).is_none_or(|d| d > at_ns) {
        c.lists.timers.arm(ep, at_ns);
    }
}
