//! A small message arrived.

use super::{deliver, early_ring, note_arrival, refuse_place};
use crate::context::Context;
use crate::event::Handler;
use crate::ids::EndpointRow;
use crate::ports::Port;
use crate::state::endpoints::Early;
use crate::window::{self, Place};
use crate::wire::Header;

/// A small message where it lies.
pub(crate) struct Small<'a> {
    pub header: Header,
    pub payload: &'a [u8],
    pub slot: u32,
    /// The slot belongs to the priority channel.
    pub is_priority_slot: bool,
    /// Slots that are held already.
    pub held: u32,
}

/// Delivers it, or keeps it for its turn (true: the slot is held), or refuses it.
#[inline]
pub(crate) fn accept<P: Port>(
    c: &mut Context<P>,
    handler: &mut impl Handler<P>,
    ep: EndpointRow,
    small: &Small<'_>,
) -> bool {
    let expected = c.endpoints.expected[ep];
    match window::place(small.header.seq, expected, c.limits.window) {
        Place::Expected => {
            // The books are right before the handler runs: it may send, and acks ride along.
            c.endpoints.advance_expected(ep);
            c.counters.segments_accepted += 1;
            note_arrival(c, ep, false, false);
            deliver(c, handler, ep, small.header.tag, small.payload);
            false
        }
        Place::Ahead => accept_early(c, handler, ep, small),
        place => {
            refuse_place(c, ep, place);
            false
        }
    }
}

fn accept_early<P: Port>(
    c: &mut Context<P>,
    handler: &mut impl Handler<P>,
    ep: EndpointRow,
    small: &Small<'_>,
) -> bool {
    let must_hold = c.config.ordered;
    if must_hold && (small.held >= c.limits.held_slots_max || small.is_priority_slot) {
        // Slots must be left for what is missing, of this peer or another; and for acks, however
        // often somebody repeats data on their channel.
        c.counters.drops_no_room += 1;
        return false;
    }
    let seq = small.header.seq.get();
    let Some(ring) = early_ring(c, ep, seq) else { return false };
    let early = if must_hold {
        Early::Held { slot: small.slot, len_bytes: small.payload.len() as u32 }
    } else {
        Early::Done
    };
    c.endpoints.rx_rings.set(ring, seq, early);
    c.counters.segments_accepted += 1;
    c.counters.segments_out_of_order += 1;
    note_arrival(c, ep, true, true);
    if !must_hold {
        deliver(c, handler, ep, small.header.tag, small.payload);
    }
    must_hold
}
