//! The end of a send: done or failed, reported or just put away.

use crate::context::Context;
use crate::event::{Event, Handler};
use crate::ids::{EndpointRow, FragmentRow};
use crate::ports::Port;
use crate::state::fragments::{Buffer, Kind};
use crate::transmit;

/// All segments of a send are acked (or given up): it goes on the list to be reported, or away.
pub(crate) fn send<P: Port>(c: &mut Context<P>, frag: FragmentRow) {
    if c.fragments.token[frag].is_some() {
        c.fragments.links.push_back(&mut c.lists.finished, frag);
        return;
    }
    if let Some(Buffer::Pooled(buffer)) = c.fragments.buffer[frag].take() {
        c.buffers.give(buffer);
    }
    c.fragments.free(frag);
}

/// Reports sends that are over, and puts them away.
#[inline]
pub(crate) fn report<P: Port>(c: &mut Context<P>, handler: &mut impl Handler<P>) {
    while let Some(frag) = c.fragments.links.pop_front(&mut c.lists.finished) {
        let to = c.fragments.peer[frag];
        let token = c.fragments.token[frag].take().expect("only sends with a token are listed");
        let buffer = match c.fragments.buffer[frag].take() {
            Some(Buffer::Owned(buffer)) => Some(buffer),
            Some(Buffer::Pooled(buffer)) => {
                c.buffers.give(buffer);
                None
            }
            Some(Buffer::Lent(_)) | None => None,
        };
        let failed = c.fragments.failed[frag];
        c.fragments.free(frag);
        let event = if failed {
            Event::SendFailed { to, token, buffer }
        } else {
            Event::SendDone { to, token, buffer }
        };
        handler.on_event(c, event);
    }
}

/// Gives up everything that waits or is in flight to `ep`. Slots and user memory that the port
/// still reads follow with its completions.
pub(crate) fn fail_sends<P: Port>(c: &mut Context<P>, ep: EndpointRow) {
    while let Some(frag) = c.fragments.links.pop_front(&mut c.endpoints.pending[ep]) {
        c.fragments.failed[frag] = true;
        c.fragments.done_bytes[frag] = c.fragments.total_bytes[frag];
        match c.fragments.kind[frag] {
            Kind::Small => {
                let seg = c.fragments.seg[frag].take().expect("a waiting small message is packed");
                transmit::retire(c, seg);
            }
            _ if c.fragments.unacked[frag] == 0 => send(c, frag),
            _ => {}
        }
    }
    loop {
        let e = &mut c.endpoints;
        let seg = c.segments.links.pop_front(&mut e.ready[ep]);
        let lists = e.tx_ring[ep].map(|id| (&mut e.flights.lost[id], &mut e.flights.flight[id]));
        let seg = seg.or_else(|| {
            let (lost, flight) = lists?;
            let seg = c.segments.links.pop_front(lost);
            seg.or_else(|| c.segments.links.pop_front(flight))
        });
        let Some(seg) = seg else { break };
        if let Some(frag) = c.segments.frag[seg] {
            c.fragments.failed[frag] = true;
            c.fragments.done_bytes[frag] = c.fragments.total_bytes[frag];
        }
        transmit::retire(c, seg);
    }
    let e = &mut c.endpoints;
    if let Some(ring) = e.tx_ring[ep].take() {
        let mut seq = e.acked[ep];
        while seq != e.next_seq[ep] {
            e.flights.rings.clear(ring, seq.get());
            seq = seq.next();
        }
        e.flights.give(ring);
    }
    e.acked[ep] = e.next_seq[ep];
}
