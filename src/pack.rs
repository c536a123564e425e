//! Packing one chunk of a large message into a free slot: shared by the short way and
//! `chunk_pack`.

use crate::context::Context;
use crate::ids::{EndpointRow, FragmentRow, SegmentRow};
use crate::ports::Port;
use crate::state::fragments::Buffer;
use crate::state::segments::flag;
use crate::wire::{ChunkHeader, HEADER_BYTES, chunk};
use tickwire_tables::handle::Row;

/// Payload of a full chunk to `ep`: both sides derive the same number from their addresses.
#[inline]
pub(crate) fn chunk_bytes<P: Port>(c: &Context<P>, ep: EndpointRow) -> u32 {
    u32::from(c.endpoints.payload_bytes_max[ep]) - chunk::EXTRA_BYTES as u32
}

/// Whether a chunk may have a slot. As in `Context::take_segment`: each peer leaves as many slots
/// as it holds.
#[inline]
pub(crate) fn may_take_slot<P: Port>(c: &Context<P>, ep: EndpointRow) -> bool {
    c.endpoints.slots_held(ep) < c.segments.slab.free_len() as u32
}

/// Packs the next chunk of `frag`, or only its header where the port gathers. `None`: no slot is
/// free. A fragment that is packed whole leaves its endpoint's pending list.
pub(crate) fn next_chunk<P: Port>(
    c: &mut Context<P>,
    ep: EndpointRow,
    frag: FragmentRow,
) -> Option<SegmentRow> {
    let (total, offset) = (c.fragments.total_bytes[frag], c.fragments.done_bytes[frag]);
    let len = (total - offset).min(u64::from(chunk_bytes(c, ep))) as u32;
    if !may_take_slot(c, ep) {
        return None;
    }
    let seg = c.segments.take(ep, len)?;
    c.segments.tag[seg] = c.fragments.tag[frag];
    c.segments.flags[seg] |= flag::CHUNK;
    c.segments.frag[seg] = Some(frag);
    c.segments.offset_bytes[seg] = offset;
    c.segments.fragment_id[seg] = c.fragments.id[frag];

    let first = c.limits.prefix_bytes + HEADER_BYTES;
    let slot = &mut c.slots.bytes_mut(seg.index() as u32)[first..];
    let (extra, payload) = slot.split_first_chunk_mut().expect("a slot holds a chunk header");
    ChunkHeader { total_bytes: total, offset_bytes: offset }.write(extra);
    if c.limits.gathers {
        c.segments.flags[seg] |= flag::GATHERED;
    } else {
        let buffer = c.fragments.buffer[frag].as_ref().map(Buffer::bytes);
        let from = &buffer.expect("a large send has a buffer")[offset as usize..];
        payload[..len as usize].copy_from_slice(&from[..len as usize]);
    }

    c.counters.chunks_packed += 1;
    c.fragments.unacked[frag] += 1;
    c.fragments.done_bytes[frag] = offset + u64::from(len);
    if offset + u64::from(len) == total {
        c.fragments.links.remove(&mut c.endpoints.pending[ep], frag);
    }
    Some(seg)
}
