//! An ack arrived, alone or on data: what it covers leaves the window.

use crate::context::Context;
use crate::ids::{EndpointRow, SegmentRow};
use crate::loss;
use crate::ports::Port;
use crate::state::segments::flag;
use crate::time::Nanos;
use crate::transmit;
use crate::window;
use crate::wire::{AckBitmap, Header};
use tickwire_tables::handle::Row;
use tickwire_tables::seq::Seq;

/// The newest of the segments that one ack covers.
#[derive(Default)]
struct Newest {
    sent_ns: Nanos,
    seq: Option<Seq>,
    /// Sent only once, so its round trip is known (Karn's rule).
    sample_sent_ns: Option<Nanos>,
}

/// Applies cumulative number, bitmap and window. False: it acks what was never sent.
#[inline]
pub(crate) fn apply<P: Port>(
    c: &mut Context<P>,
    ep: EndpointRow,
    header: &Header,
    bitmap: AckBitmap<'_>,
) -> bool {
    let (acked, next) = (c.endpoints.acked[ep], c.endpoints.next_seq[ep]);
    if header.ack.is_before(acked) {
        // Overtaken by a newer one: nothing in it is news.
        return acked.distance_from(header.ack) <= i32::from(u16::MAX);
    }
    if !window::is_possible_ack(header.ack, acked, next) {
        return false;
    }
    c.endpoints.send_limit[ep] = header.ack.add(u32::from(header.window).max(1));
    if acked == next {
        return true;
    }
    let mut newest = Newest::default();
    let mut seq = acked;
    while seq != header.ack {
        release(c, ep, seq, &mut newest);
        seq = seq.next();
    }
    c.endpoints.acked[ep] = header.ack;
    for bit in bitmap.iter() {
        let seq = header.ack.add(bit);
        if bit > 0 && seq.is_before(next) {
            release(c, ep, seq, &mut newest);
        }
    }
    if newest.seq.is_some() {
        on_progress(c, ep, header, &newest);
    }
    if !c.endpoints.flight[ep].is_empty() {
        loss::detect(c, ep);
    }
    if c.endpoints.acked[ep] == next {
        give_ring_back(c, ep);
    }
    if !c.endpoints.ready[ep].is_empty() {
        c.lists.ready.push(ep);
    }
    true
}

/// One segment has arrived over there.
#[inline]
fn release<P: Port>(c: &mut Context<P>, ep: EndpointRow, seq: Seq, newest: &mut Newest) {
    let Some(ring) = c.endpoints.tx_ring[ep] else { return };
    // Vacant: acked by a bitmap before.
    let Some(index) = c.endpoints.tx_rings.clear(ring, seq.get()) else { return };
    let seg = SegmentRow::from_index(index as usize);
    debug_assert_eq!(c.segments.seq[seg], seq, "I-03: the ring maps numbers to their segments");
    let sent_ns = c.segments.sent_ns[seg];
    let once = c.segments.transmissions[seg] == 1;
    // RFC 8985, 6.2 step 2: an ack right after a resend is for the original.
    let plausible = once || c.now.saturating_sub(sent_ns) >= c.endpoints.rtt[ep].srtt_ns() / 2;
    if sent_ns >= newest.sent_ns && plausible {
        newest.sent_ns = sent_ns;
        newest.seq = Some(seq);
    } else if newest.seq.is_none() {
        newest.seq = Some(seq);
    }
    if once {
        newest.sample_sent_ns = newest.sample_sent_ns.max(Some(sent_ns));
    }
    let list = if c.segments.has(seg, flag::LOST) {
        &mut c.endpoints.lost[ep]
    } else {
        &mut c.endpoints.flight[ep]
    };
    c.segments.links.remove(list, seg);
    transmit::retire(c, seg);
}

#[inline]
fn on_progress<P: Port>(c: &mut Context<P>, ep: EndpointRow, header: &Header, newest: &Newest) {
    let e = &mut c.endpoints;
    if let Some(sent_ns) = newest.sample_sent_ns {
        let rtt = c.now.saturating_sub(sent_ns).saturating_sub(header.ack_delay.as_ns());
        e.rtt[ep].sample(rtt);
    }
    if newest.sent_ns >= e.newest_acked_sent_ns[ep] {
        e.newest_acked_sent_ns[ep] = newest.sent_ns;
        e.newest_acked[ep] = newest.seq.unwrap_or(header.ack);
    }
    e.backoff[ep] = 0;
    if e.acked[ep] == e.next_seq[ep] {
        e.deadline_ns[ep] = 0;
    } else {
        let wait = transmit::timeout_ns(c, ep);
        transmit::arm_deadline(c, ep, c.now + wait);
    }
}

fn give_ring_back<P: Port>(c: &mut Context<P>, ep: EndpointRow) {
    c.endpoints.deadline_ns[ep] = 0;
    if let Some(ring) = c.endpoints.tx_ring[ep].take() {
        c.endpoints.tx_rings.give(ring);
    }
}
