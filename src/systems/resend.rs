//! `resend`: retransmits what the loss detector or a timer put on the list, oldest first.
//!
//! Reads and writes: timers, endpoints' flight and lost lists, segments, the rail. Bound: so many
//! timers and so many resends a tick. The lowest unacked segment may always go; others only
//! within the congestion window. A slot that the port still holds is never sent again.

use crate::context::Context;
use crate::ids::{EndpointRow, SegmentRow};
use crate::liveness;
use crate::loss;
use crate::ports::{Channel, Port};
use crate::state::segments::flag;
use crate::stats::Work;
use crate::transmit;
use arrayvec::ArrayVec;
use tickwire_tables::handle::Row;
use tickwire_tables::ring::RingId;

/// Timers looked at per tick; the rest fire in the next.
const TIMERS_MAX: usize = 64;

#[inline]
pub(crate) fn run<P: Port>(c: &mut Context<P>) -> Work {
    let mut fired = ArrayVec::<EndpointRow, TIMERS_MAX>::new();
    c.lists.timers.advance(c.now, TIMERS_MAX, &mut |ep| fired.push(ep));
    for ep in fired {
        on_timer(c, ep);
    }
    // An idle tick goes no further: what follows costs it as much as all the rest.
    if c.lists.resend.is_empty() { Work::default() } else { resend(c) }
}

#[inline(never)]
fn on_timer<P: Port>(c: &mut Context<P>, ep: EndpointRow) {
    if liveness::on_timer(c, ep) {
        loss::on_timer(c, ep);
        relist(c, ep);
    }
}

#[inline(never)]
fn resend<P: Port>(c: &mut Context<P>) -> Work {
    let mut budget = c.config.resends_per_tick_max;
    for _ in 0..c.lists.resend.len() {
        if budget == 0 || c.rail.room(Channel::Data) == 0 {
            break;
        }
        let Some(ep) = c.lists.resend.pop() else { break };
        budget -= resend_endpoint(c, ep, budget);
        if c.endpoints.lost_len(ep) == 0 || may_resend_more(c, ep) {
            relist(c, ep);
        }
    }
    transmit::flush(c);
    Work { posted: c.config.resends_per_tick_max - budget, ..Work::default() }
}

/// Lists the endpoint where its next segment waits: what was lost goes before what is new.
pub(crate) fn relist<P: Port>(c: &mut Context<P>, ep: EndpointRow) {
    if c.endpoints.lost_len(ep) > 0 {
        c.lists.resend.push(ep);
    } else if !c.endpoints.ready[ep].is_empty() {
        c.lists.ready.push(ep);
    }
}

/// Whether what is left is worth a look next tick. A full congestion window is listed again by the
/// ack that opens it, a paced one by its timer.
fn may_resend_more<P: Port>(c: &mut Context<P>, ep: EndpointRow) -> bool {
    let congestion = &c.endpoints.congestion[ep];
    if congestion.allows(c.endpoints.in_flight(ep), c.now) {
        return true;
    }
    let wait_ns = congestion.pace_wait_ns(c.now);
    if wait_ns > 0 {
        transmit::wake_by(c, ep, c.now + wait_ns);
    }
    false
}

fn resend_endpoint<P: Port>(c: &mut Context<P>, ep: EndpointRow, budget: u32) -> u32 {
    let Some(flight) = c.endpoints.tx_ring[ep] else { return 0 };
    let mut sent = 0;
    if let Some(lowest) = lowest_if_lost(c, ep, flight) {
        send_again(c, ep, flight, lowest);
        sent += 1;
    }
    let mut looked_at = 0;
    let waiting = c.endpoints.flights.lost[flight].len();
    while sent < budget && looked_at < waiting && c.rail.room(Channel::Data) > 0 {
        let Some(seg) = c.endpoints.flights.lost[flight].front() else { break };
        if !c.endpoints.congestion[ep].allows(c.endpoints.in_flight(ep), c.now) {
            break;
        }
        looked_at += 1;
        if c.segments.is_with_port(seg) {
            // Its last transmission has not even left: look again next tick.
            let lost = &mut c.endpoints.flights.lost[flight];
            c.segments.links.remove(lost, seg);
            c.segments.links.push_back(lost, seg);
            continue;
        }
        send_again(c, ep, flight, seg);
        sent += 1;
    }
    sent
}

/// The lowest unacked segment, when it is lost and can be sent: no window holds it back.
fn lowest_if_lost<P: Port>(c: &Context<P>, ep: EndpointRow, flight: RingId) -> Option<SegmentRow> {
    let index = c.endpoints.flights.rings.get(flight, c.endpoints.acked[ep].get())?;
    let seg = SegmentRow::from_index(index as usize);
    (c.segments.has(seg, flag::LOST) && !c.segments.is_with_port(seg)).then_some(seg)
}

fn send_again<P: Port>(c: &mut Context<P>, ep: EndpointRow, flight: RingId, seg: SegmentRow) {
    c.segments.links.remove(&mut c.endpoints.flights.lost[flight], seg);
    c.segments.flags[seg] &= !flag::LOST;
    let flight = c.endpoints.flight_of(ep);
    transmit::put(c, ep, flight, seg);
}
