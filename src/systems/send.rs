//! `send`: posts what is packed, round robin over ready endpoints.
//!
//! Reads and writes: endpoints' windows and ready lists, segments, the rail. Bound: one burst per
//! listed endpoint, the windows, and the port's queue. Acks ride along.

use crate::context::Context;
use crate::ids::EndpointRow;
use crate::ports::{Channel, Port};
use crate::stats::Work;
use crate::transmit;

pub(crate) fn run<P: Port>(c: &mut Context<P>) -> Work {
    let mut posted = 0;
    for _ in 0..c.lists.ready.len() {
        if c.rail.room(Channel::Data) == 0 {
            break;
        }
        let Some(ep) = c.lists.ready.pop() else { break };
        posted += burst(c, ep);
    }
    transmit::flush(c);
    Work { posted, ..Work::default() }
}

fn burst<P: Port>(c: &mut Context<P>, ep: EndpointRow) -> u32 {
    // What was lost goes first; `resend` lists the endpoint again when that is out.
    if c.endpoints.lost_len(ep) > 0 {
        return 0;
    }
    let mut posted = 0;
    while posted < c.config.burst_segments && !c.endpoints.ready[ep].is_empty() {
        let Some(flight) = transmit::open_flight(c, ep) else { break };
        let Some(seg) = c.segments.links.pop_front(&mut c.endpoints.ready[ep]) else { break };
        transmit::first(c, ep, flight, seg);
        posted += 1;
    }
    if !c.endpoints.pending[ep].is_empty() {
        c.lists.to_pack.push(ep);
    }
    if !c.endpoints.ready[ep].is_empty() {
        wait_for_more(c, ep);
    }
    posted
}

/// Packed segments are left. A closed window is listed again by the ack that opens it, a paced one
/// by its timer; a full queue, a spent burst or a missing ring is looked at again next tick.
fn wait_for_more<P: Port>(c: &mut Context<P>, ep: EndpointRow) {
    if c.endpoints.in_flight(ep) > 0 && !window_is_open(c, ep) {
        return;
    }
    match c.endpoints.congestion[ep].pace_wait_ns(c.now) {
        0 => {
            c.lists.ready.push(ep);
        }
        wait_ns => transmit::wake_by(c, ep, c.now + wait_ns),
    }
}

fn window_is_open<P: Port>(c: &Context<P>, ep: EndpointRow) -> bool {
    let e = &c.endpoints;
    let (next, acked) = (e.next_seq[ep], e.acked[ep]);
    crate::window::may_send(next, acked, e.send_limit[ep], c.limits.window)
        && e.congestion[ep].allows(e.in_flight(ep), c.now)
}
