//! An ack arrived, alone or on data: what it covers leaves the window.

use crate::congestion::{Acked, Congestion, SAMPLES_MIN};
use crate::context::Context;
use crate::ids::{EndpointRow, SegmentRow};
use crate::liveness;
use crate::loss;
use crate::ports::Port;
use crate::state::endpoints::flag as ep_flag;
use crate::state::segments::flag;
use crate::systems::resend;
use crate::time::Nanos;
use crate::transmit;
use crate::window;
use crate::wire::{AckBitmap, Header};
use tickwire_tables::handle::Row;
use tickwire_tables::ring::RingId;
use tickwire_tables::seq::Seq;

/// The newest of the segments that one ack covers, by time of sending.
#[derive(Default)]
struct Newest {
    /// Among those sent only once: their round trip is known (Karn's rule).
    once: Option<(Nanos, Seq)>,
    /// Among those sent again. Whether it is the resend that arrived is a guess.
    again: Option<(Nanos, Seq)>,
    /// How many they are.
    segments: u32,
}

impl Newest {
    /// What is known to have arrived. A resend counts only when nothing sent once came with it:
    /// when something did, the resend was for nothing and the ack is the original's. To believe
    /// it then would declare the whole flight behind the original lost.
    fn arrived(&self) -> Option<(Nanos, Seq)> {
        self.once.or(self.again)
    }

    /// When the segment was sent whose arrival the ack answers, if that is certain. A resend after
    /// it may be what the ack answers, and the ack that was due before is lost: the wait for the
    /// resend would pass for a round trip.
    fn timed(&self) -> Option<Nanos> {
        let (once_ns, _) = self.once?;
        self.again.is_none_or(|(again_ns, _)| again_ns < once_ns).then_some(once_ns)
    }
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
    let flight = c.endpoints.flight_of(ep);
    let mut newest = Newest::default();
    let mut seq = acked;
    while seq != header.ack {
        release(c, flight, seq, &mut newest);
        seq = seq.next();
    }
    c.endpoints.acked[ep] = header.ack;
    for bit in bitmap.iter() {
        let seq = header.ack.add(bit);
        if bit > 0 && seq.is_before(next) {
            release(c, flight, seq, &mut newest);
        }
    }
    if let Some(arrived) = newest.arrived() {
        on_progress(c, ep, header, &newest, arrived);
    }
    if c.endpoints.in_flight(ep) > 0 {
        loss::detect(c, ep);
    }
    if c.endpoints.acked[ep] == next {
        give_ring_back(c, ep);
    }
    resend::relist(c, ep);
    true
}

/// One segment has arrived over there.
#[inline]
fn release<P: Port>(c: &mut Context<P>, flight: RingId, seq: Seq, newest: &mut Newest) {
    // Vacant: acked by a bitmap before.
    let flights = &mut c.endpoints.flights;
    let Some(index) = flights.rings.clear(flight, seq.get()) else { return };
    let seg = SegmentRow::from_index(index as usize);
    debug_assert_eq!(c.segments.seq[seg], seq, "I-03: the ring maps numbers to their segments");
    let sent_ns = c.segments.sent_ns[seg];
    newest.segments += 1;
    let newest =
        if c.segments.transmissions[seg] == 1 { &mut newest.once } else { &mut newest.again };
    if newest.is_none_or(|(before, _)| sent_ns >= before) {
        *newest = Some((sent_ns, seq));
    }
    let list = if c.segments.has(seg, flag::LOST) {
        &mut c.endpoints.flights.lost[flight]
    } else {
        &mut c.endpoints.flights.flight[flight]
    };
    c.segments.links.remove(list, seg);
    transmit::retire(c, seg);
}

#[inline]
fn on_progress<P: Port>(
    c: &mut Context<P>,
    ep: EndpointRow,
    header: &Header,
    newest: &Newest,
    (arrived_sent_ns, arrived): (Nanos, Seq),
) {
    let e = &mut c.endpoints;
    // RFC 8985, 6.2 step 2: an ack right after a resend is for the original.
    let is_guess = newest.once.is_none();
    let since = c.now.saturating_sub(arrived_sent_ns);
    let plausible = !is_guess || since >= e.rtt[ep].srtt_ns() / 2;
    let flight = e.flight_of(ep);
    if let Some(sent_ns) = newest.timed() {
        let (rtt, delay) = (c.now.saturating_sub(sent_ns), header.ack_delay.as_ns());
        let hold = Nanos::from(c.config.ack_delay_ns);
        // The timer has to live with a peer that is often away: only its holding of acks is left
        // out.
        e.rtt[ep].sample(rtt.saturating_sub(delay.min(hold)));
        // A queue shows only when neither side was away for most of the time.
        let count = if delay.max(c.away_ns) <= (rtt / 2).max(2 * hold) {
            let least = &mut e.flights.least_in_round_ns[flight];
            *least = rtt.saturating_sub(delay).max(1).min(u64::from(*least)) as u32;
            &mut e.flights.samples_in_round[flight]
        } else {
            &mut e.flights.blind_in_round[flight]
        };
        *count = count.saturating_add(1);
    }
    if newest.again.is_some_and(|(at, _)| c.now.saturating_sub(at) < e.rtt[ep].srtt_ns() / 2)
        && !std::mem::replace(&mut e.flights.is_round_reordered[flight], true)
    {
        // The original had only been overtaken.
        e.reorder_scale[ep].widen();
    }
    steer(c, ep, newest.segments);
    let e = &mut c.endpoints;
    if e.rtt[ep].srtt_ns() > 0 {
        e.backoff[ep] = 0;
    } // Else the first guess may be what is too short: it stays doubled until there is a sample.
    let flights = &mut e.flights;
    if plausible && arrived_sent_ns >= flights.newest_acked_sent_ns[flight] {
        flights.newest_acked_sent_ns[flight] = arrived_sent_ns;
        flights.newest_acked[flight] = arrived;
    }
    if e.acked[ep] == e.next_seq[ep] {
        e.flights.deadline_ns[flight] = 0;
    } else {
        let wait = transmit::timeout_ns(c, ep);
        transmit::arm_deadline(c, ep, flight, c.now + wait);
    }
}

/// Lets the congestion window know what an ack of `segments` told; ends a round that is over.
#[inline]
fn steer<P: Port>(c: &mut Context<P>, ep: EndpointRow, segments: u32) {
    let e = &mut c.endpoints;
    let flight = e.flight_of(ep);
    let least_in_round_ns = e.flights.least_in_round_ns[flight];
    let samples = e.flights.samples_in_round[flight];
    let blind = e.flights.blind_in_round[flight];
    let is_over = e.flights.round_ends[flight].is_before(e.acked[ep])
        && (samples.max(blind) >= SAMPLES_MIN || e.acked[ep] == e.next_seq[ep]);
    if let Congestion::Delay { target_ns } = c.config.congestion {
        if samples > 0 {
            let acked = Acked { least_in_round_ns, segments, in_flight: e.in_flight(ep) };
            e.congestion[ep].on_ack(&acked, c.limits.congestion_max, target_ns, c.now);
        }
        if is_over && samples >= blind && samples > 0 {
            e.congestion[ep].on_round(least_in_round_ns, target_ns, c.now);
        } else if is_over && blind > 0 {
            e.congestion[ep].on_blind_round(c.limits.congestion_initial);
        }
    }
    if is_over {
        if !e.flights.is_round_reordered[flight] {
            e.reorder_scale[ep].narrow();
        }
        e.flights.begin_round(flight, e.next_seq[ep]);
    }
}

fn give_ring_back<P: Port>(c: &mut Context<P>, ep: EndpointRow) {
    if let Some(ring) = c.endpoints.tx_ring[ep].take() {
        c.endpoints.flights.give(ring);
    }
    if c.endpoints.has(ep, ep_flag::CLOSING) && c.endpoints.is_drained(ep) {
        liveness::say_bye(c, ep);
    }
}
