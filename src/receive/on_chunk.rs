//! A slice of a large message arrived.

use super::{early_ring, finish_receive, note_arrival, refuse_place};
use crate::context::Context;
use crate::event::Handler;
use crate::ids::{EndpointRow, FragmentRow, Tag};
use crate::pack;
use crate::ports::Port;
use crate::state::endpoints::Early;
use crate::state::fragments::{Buffer, Kind};
use crate::window::{self, Place};
use crate::wire::{ChunkHeader, Header};

/// Copies the slice to its place, or refuses it. Refused for want of memory it is not acked, so
/// it comes again.
pub(crate) fn accept<P: Port>(
    c: &mut Context<P>,
    handler: &mut impl Handler<P>,
    ep: EndpointRow,
    header: &Header,
    chunk: &ChunkHeader,
    payload: &[u8],
) {
    let expected = c.endpoints.expected[ep];
    let place = window::place(header.seq, expected, c.limits.window);
    if matches!(place, Place::Behind | Place::Above) {
        return refuse_place(c, ep, place);
    }
    if !chunk.is_on_grid(payload.len(), pack::chunk_bytes(c, ep)) {
        c.counters.drops_off_grid_chunk += 1;
        return;
    }
    let early = place == Place::Ahead;
    let ring = if early {
        let Some(ring) = early_ring(c, ep, header.seq.get()) else { return };
        Some(ring)
    } else {
        None
    };
    let Some(frag) = find_or_open(c, handler, ep, header, chunk, early) else { return };
    let is_last = chunk.offset_bytes + payload.len() as u64 == chunk.total_bytes;
    fill(c, frag, chunk, payload);
    c.counters.segments_accepted += 1;
    let whole = c.fragments.done_bytes[frag] == chunk.total_bytes;
    match ring {
        None => {
            c.endpoints.advance_expected(ep);
            note_arrival(c, ep, is_last, false);
        }
        Some(ring) => {
            let early =
                if is_last && c.config.ordered { Early::LastChunk(frag) } else { Early::Done };
            c.endpoints.rx_rings.set(ring, header.seq.get(), early);
            c.counters.segments_out_of_order += 1;
            note_arrival(c, ep, true, true);
        }
    }
    // In order, the last chunk closes the message, for all before it have arrived.
    let closes = if c.config.ordered { is_last && ring.is_none() } else { whole };
    if closes {
        finish_receive(c, handler, ep, frag);
    }
}

fn find_or_open<P: Port>(
    c: &mut Context<P>,
    handler: &mut impl Handler<P>,
    ep: EndpointRow,
    header: &Header,
    chunk: &ChunkHeader,
    early: bool,
) -> Option<FragmentRow> {
    // wire 3.4: chunks are numbered in a row, so each number has one place in the message and
    // nothing is delivered with a hole.
    let index = chunk.offset_bytes / u64::from(pack::chunk_bytes(c, ep));
    let first_seq = header.seq.sub(index as u32);
    let found = c
        .fragments
        .links
        .iter(&c.endpoints.receiving[ep])
        .find(|&f| c.fragments.id[f] == header.fragment);
    if let Some(frag) = found {
        let agrees = c.fragments.total_bytes[frag] == chunk.total_bytes
            && c.fragments.tag[frag] == header.tag
            && c.fragments.first_seq[frag] == first_seq;
        if !agrees {
            c.counters.drops_chunk_mismatch += 1;
            return None;
        }
        return Some(frag);
    }
    let total = chunk.total_bytes;
    if total > c.config.message_bytes_max {
        c.counters.drops_too_large += 1;
        return None;
    }
    // What is in order may use all; what is early leaves half, so that it cannot keep out what
    // it waits for.
    let of_peer = c.endpoints.receiving[ep].len() as u32;
    let of_peer_max = c.limits.half_received_per_peer / if early { 2 } else { 1 };
    if of_peer >= of_peer_max || !c.fragments.has_room(early) || !c.buffers.has_room(total, early) {
        c.counters.drops_no_memory += 1;
        return None;
    }
    let from = c.endpoints.slab.handle(ep);
    let frag = c.fragments.take(Kind::Receive, from, header.tag, total)?;
    c.fragments.id[frag] = header.fragment;
    c.fragments.first_seq[frag] = first_seq;
    let buffer = match handler.destination(from, Tag(header.tag), total) {
        Some(mut buffer) => {
            if (buffer.len() as u64) < total {
                buffer.resize(total as usize, 0);
            }
            Buffer::Owned(buffer)
        }
        None => {
            c.buffers.charge(total);
            Buffer::Pooled(c.buffers.take(total))
        }
    };
    c.fragments.buffer[frag] = Some(buffer);
    c.fragments.links.push_back(&mut c.endpoints.receiving[ep], frag);
    Some(frag)
}

fn fill<P: Port>(c: &mut Context<P>, frag: FragmentRow, chunk: &ChunkHeader, payload: &[u8]) {
    let buffer = c.fragments.buffer[frag].as_mut().map(Buffer::vec_mut);
    let at = chunk.offset_bytes as usize;
    buffer.expect("a receive has a buffer")[at..at + payload.len()].copy_from_slice(payload);
    c.fragments.done_bytes[frag] += payload.len() as u64;
}
