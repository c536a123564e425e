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

/// Timers looked at per tick; the rest fire in the next.
const TIMERS_MAX: usize = 64;

pub(crate) fn run<P: Port>(c: &mut Context<P>) -> Work {
    let mut fired = ArrayVec::<EndpointRow, TIMERS_MAX>::new();
    c.lists.timers.advance(c.now, TIMERS_MAX, &mut |ep| fired.push(ep));
    for ep in fired {
        if liveness::on_timer(c, ep) {
            loss::on_timer(c, ep);
        }
    }
    let mut budget = c.config.resends_per_tick_max;
    for _ in 0..c.lists.resend.len() {
        if budget == 0 || c.rail.room(Channel::Data) == 0 {
            break;
        }
        let Some(ep) = c.lists.resend.pop() else { break };
        budget -= resend_endpoint(c, ep, budget);
        if c.endpoints.lost_len(ep) > 0 {
            c.lists.resend.push(ep);
        } else if !c.endpoints.ready[ep].is_empty() {
            c.lists.ready.push(ep);
        }
    }
    transmit::flush(c);
    Work { posted: c.config.resends_per_tick_max - budget, ..Work::default() }
}

fn resend_endpoint<P: Port>(c: &mut Context<P>, ep: EndpointRow, budget: u32) -> u32 {
    let mut sent = 0;
    let mut looked_at = 0;
    let Some(flight) = c.endpoints.tx_ring[ep] else { return 0 };
    let waiting = c.endpoints.flights.lost[flight].len();
    while sent < budget && looked_at < waiting && c.rail.room(Channel::Data) > 0 {
        let flights = &mut c.endpoints.flights;
        let Some(seg) = flights.lost[flight].front() else { break };
        let is_lowest = c.segments.seq[seg] == c.endpoints.acked[ep];
        let in_flight = flights.flight[flight].len() as u32;
        if !is_lowest && !c.endpoints.congestion[ep].allows(in_flight) {
            break;
        }
        looked_at += 1;
        let lost = &mut c.endpoints.flights.lost[flight];
        c.segments.links.remove(lost, seg);
        if c.segments.is_with_port(seg) {
            // Its last transmission has not even left: look again next tick.
            c.segments.links.push_back(lost, seg);
            continue;
        }
        send_again(c, ep, seg);
        sent += 1;
    }
    sent
}

fn send_again<P: Port>(c: &mut Context<P>, ep: EndpointRow, seg: SegmentRow) {
    c.segments.flags[seg] &= !flag::LOST;
    transmit::put(c, ep, seg);
}
