//! A small message arrived.

use super::{deliver, early_ring, note_arrival, refuse_place};
use crate::context::Context;
use crate::event::Handler;
use crate::ids::EndpointRow;
use crate::ports::Port;
use crate::state::endpoints::Early;
use crate::window::{self, Place};
use crate::wire::Header;

/// Delivers it, or keeps it for its turn (true: the slot is held), or refuses it. `held` slots
/// are kept already.
#[inline]
pub(crate) fn accept<P: Port>(
    c: &mut Context<P>,
    handler: &mut impl Handler<P>,
    ep: EndpointRow,
    header: &Header,
    payload: &[u8],
    slot: u32,
    held: u32,
) -> bool {
    let expected = c.endpoints.expected[ep];
    match window::place(header.seq, expected, c.limits.window) {
        Place::Expected => {
            // The books are right before the handler runs: it may send, and acks ride along.
            c.endpoints.expected[ep] = expected.next();
            c.counters.segments_accepted += 1;
            note_arrival(c, ep, false, false);
            deliver(c, handler, ep, header.tag, payload);
            false
        }
        Place::Ahead => accept_early(c, handler, ep, header, payload, slot, held),
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
    header: &Header,
    payload: &[u8],
    slot: u32,
    held: u32,
) -> bool {
    let must_hold = c.config.ordered;
    if must_hold && held >= c.limits.held_slots_max {
        // Slots must be left for what is missing, of this peer or another.
        c.counters.drops_no_room += 1;
        return false;
    }
    let Some(ring) = early_ring(c, ep, header.seq.get()) else { return false };
    let early =
        if must_hold { Early::Held { slot, len_bytes: payload.len() as u32 } } else { Early::Done };
    c.endpoints.rx_rings.set(ring, header.seq.get(), early);
    c.counters.segments_accepted += 1;
    c.counters.segments_out_of_order += 1;
    note_arrival(c, ep, true, true);
    if !must_hold {
        deliver(c, handler, ep, header.tag, payload);
    }
    must_hold
}
