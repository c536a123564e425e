//! Which segments are lost: by time and order in the manner of RACK (RFC 8985), by the timer for
//! the rest.
//!
//! A segment is suspect when one sent later is known to have arrived. It is lost when it has
//! been out for a round trip and a reordering window. When nothing arrives at all, the timer
//! sends the lowest unacked segment again; the ack of that one tells of the others.

use crate::congestion::Congestion;
use crate::context::Context;
use crate::ids::{EndpointRow, SegmentRow};
use crate::ports::Port;
use crate::state::segments::flag;
use crate::transmit::{self, ListEnd};
use tickwire_tables::handle::Row;
use tickwire_tables::ring::RingId;

/// Looks through the segments in flight from the oldest on; stops at the first beyond suspicion.
pub(crate) fn detect<P: Port>(c: &mut Context<P>, ep: EndpointRow) {
    let rtt = c.endpoints.rtt[ep];
    let scale = c.endpoints.reorder_scale[ep];
    let wait = rtt.srtt_ns() + rtt.reorder_window_ns(c.config.reorder_window_min_ns, scale);
    let Some(flight) = c.endpoints.tx_ring[ep] else { return };
    let mut lost = 0;
    while let Some(seg) = c.endpoints.flights.flight[flight].front() {
        if !is_suspect(c, flight, seg) {
            break;
        }
        let lost_at = c.segments.sent_ns[seg] + wait;
        if c.now < lost_at {
            transmit::wake_by(c, ep, lost_at);
            break;
        }
        transmit::mark_lost(c, ep, seg, ListEnd::Back);
        lost += 1;
    }
    if lost > 0 {
        slow_down(c, ep, flight, lost);
    }
}

/// Tells the congestion window of losses.
fn slow_down<P: Port>(c: &mut Context<P>, ep: EndpointRow, flight: RingId, lost: u32) {
    c.endpoints.flights.lost_in_round[flight] += lost;
    if let Congestion::Delay { target_ns } = c.config.congestion {
        let lost = c.endpoints.flights.lost_in_round[flight];
        let rtt_ns = match c.endpoints.flights.least_in_round_ns[flight] {
            u32::MAX => c.endpoints.rtt[ep].srtt_ns() as u32,
            least_ns => least_ns,
        };
        c.endpoints.congestion[ep].on_loss(lost, rtt_ns, target_ns, c.now);
    }
}

fn is_suspect<P: Port>(c: &Context<P>, flight: RingId, seg: SegmentRow) -> bool {
    let flights = &c.endpoints.flights;
    let (sent, newest) = (c.segments.sent_ns[seg], flights.newest_acked_sent_ns[flight]);
    sent < newest || (sent == newest && c.segments.seq[seg].is_before(flights.newest_acked[flight]))
}

/// The endpoint's timer went off: for the loss detector, for the timeout, or too early because
/// progress was made since it was armed.
pub(crate) fn on_timer<P: Port>(c: &mut Context<P>, ep: EndpointRow) {
    detect(c, ep);
    let Some(flight) = c.endpoints.tx_ring[ep] else { return };
    let deadline = c.endpoints.flights.deadline_ns[flight];
    if deadline == 0 {
        return;
    }
    if c.now < deadline {
        transmit::wake_by(c, ep, deadline);
        return;
    }
    if let Some(seg) = lowest_in_flight(c, ep) {
        // The detector may have sent it again since the timer was set.
        let due = c.segments.sent_ns[seg] + transmit::timeout_ns(c, ep);
        if c.now < due {
            transmit::arm_deadline(c, ep, flight, due);
            return;
        }
        transmit::mark_lost(c, ep, seg, ListEnd::Back);
        c.counters.segments_timed_out += 1;
    }
    c.endpoints.backoff[ep] = c.endpoints.backoff[ep].saturating_add(1);
    // The first is a probe, which tells nothing of the network yet.
    if c.endpoints.backoff[ep] > 1 && c.config.congestion != Congestion::Fixed {
        c.endpoints.congestion[ep].on_timeout(c.now);
    }
    let wait = transmit::timeout_ns(c, ep);
    transmit::arm_deadline(c, ep, flight, c.now + wait);
}

/// The lowest unacked segment, if it is in flight and not waiting to be sent again already.
fn lowest_in_flight<P: Port>(c: &Context<P>, ep: EndpointRow) -> Option<SegmentRow> {
    let e = &c.endpoints;
    let flight = e.tx_ring[ep]?;
    let lowest = e.flights.rings.get(flight, e.acked[ep].get());
    let seg = match lowest {
        Some(index) => SegmentRow::from_index(index as usize),
        // Only a peer that acks out of order and never in order gets here.
        None => e.flights.flight[flight].front()?,
    };
    (!c.segments.has(seg, flag::LOST)).then_some(seg)
}
