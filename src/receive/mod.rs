//! Taking in one datagram: judge it, apply its ack, accept its segment, deliver.
//!
//! Bytes from the wire are checked, counted and dropped; nothing here asserts them.

mod on_ack;
mod on_chunk;
mod on_data;

use crate::context::{Context, PROMPT_BYTES};
use crate::engine::Inbox;
use crate::event::{Body, Event, Handler, Message};
use crate::ids::{EndpointRow, FragmentRow, Rank, Tag};
use crate::integrity::{self, Worth};
use crate::liveness;
use crate::peers;
use crate::ports::Port;
use crate::state::endpoints::{Early, flag};
use crate::state::fragments::{Buffer, Kind};
use crate::systems::ack;
use crate::time::coarse;
use crate::window::Place;
use crate::wire::{self, AckBitmap, HEADER_BYTES, Header, Integrity, Packet};
use tickwire_tables::ring::RingId;

/// Takes in the datagram of `len` bytes in `slot`. The slot is freed, or held until its turn.
#[inline]
pub(crate) fn on_datagram<P: Port>(
    c: &mut Context<P>,
    inbox: &mut Inbox,
    handler: &mut impl Handler<P>,
    slot: u32,
    len: u32,
) {
    c.counters.datagrams_received += 1;
    let Inbox { slots, freed, held, .. } = inbox;
    let bytes = &slots.bytes(slot)[c.limits.prefix_bytes..][..len as usize];
    let packet = match wire::parse(bytes, c.job_check, c.limits.integrity) {
        Ok(packet) => packet,
        Err(error) => {
            c.counters.count_wire_error(error);
            freed.push(slot);
            return;
        }
    };
    let (header, bitmap) = match packet {
        Packet::Data(header, _) | Packet::Chunk(header, ..) => (header, AckBitmap::NONE),
        Packet::Ack(header, bitmap) => (header, bitmap),
    };
    let Some((ep, worth)) = identify(c, handler, &header, bytes) else {
        freed.push(slot);
        return;
    };
    let is_possible = match worth {
        Worth::News => on_ack::apply(c, ep, &header, bitmap),
        Worth::Old => apply_old(c, ep, &header, bitmap),
    };
    if !is_possible {
        c.counters.drops_impossible_ack += 1;
        freed.push(slot);
        return;
    }
    let is_held = match packet {
        Packet::Data(header, payload) => {
            let is_priority_slot = freed.is_priority(slot);
            let small = on_data::Small { header, payload, slot, is_priority_slot, held: *held };
            on_data::accept(c, handler, ep, &small)
        }
        Packet::Chunk(_, chunk, payload) => {
            on_chunk::accept(c, handler, ep, &header, &chunk, payload);
            false
        }
        Packet::Ack(..) => {
            c.counters.acks_received += 1;
            match header.kind {
                wire::Kind::Bye => liveness::on_bye(c, handler, ep, &header),
                wire::Kind::Probe => note_arrival(c, ep, true, true),
                _ => {}
            }
            false
        }
    };
    if is_held {
        *held += 1;
    } else {
        freed.push(slot);
    }
    if c.endpoints.rx_ring[ep].is_some() {
        drain_early(c, inbox, handler, ep);
    }
}

/// The ack of a datagram that may be a repetition: a sign of life only if it is news.
fn apply_old<P: Port>(
    c: &mut Context<P>,
    ep: EndpointRow,
    header: &Header,
    bitmap: AckBitmap<'_>,
) -> bool {
    let acked = c.endpoints.acked[ep];
    let is_possible = on_ack::apply(c, ep, header, bitmap);
    if c.endpoints.acked[ep] != acked {
        liveness::heard(c, ep);
    }
    is_possible
}

/// Whose datagram it is. Rank and session must be those of a peer that was added and lives, and the
/// tag, if there are tags, one of its making (wire 2.1); until then nothing is believed.
#[inline(always)]
fn identify<P: Port>(
    c: &mut Context<P>,
    handler: &mut impl Handler<P>,
    header: &Header,
    bytes: &[u8],
) -> Option<(EndpointRow, Worth)> {
    let ep = match c.endpoints.by_rank(header.rank) {
        Some(ep) => ep,
        None => meet(c, handler, Rank(header.rank))?,
    };
    if c.endpoints.session_in[ep] != header.session {
        c.counters.drops_wrong_session += 1;
        return None;
    }
    if c.endpoints.has(ep, flag::GONE) {
        c.counters.drops_gone_peer += 1;
        return None;
    }
    // Without tags anybody could have made it, and a repetition is taken for what it most likely
    // is: the peer's own.
    let mut worth = Worth::News;
    if c.limits.integrity == Integrity::Tag {
        worth = integrity::worth(c, ep, header, bytes)?;
    }
    if worth == Worth::News {
        liveness::heard(c, ep);
    }
    Some((ep, worth))
}

/// A rank that is not listed: the handler may know its address. Whether the datagram is really that
/// process's is judged afterwards, as for any other.
#[cold]
fn meet<P: Port>(
    c: &mut Context<P>,
    handler: &mut impl Handler<P>,
    rank: Rank,
) -> Option<EndpointRow> {
    let address = handler.stranger(c, rank).filter(|address| address.rank == rank);
    let peer = address.and_then(|address| peers::add(c, &address).ok());
    let ep = peer.and_then(|peer| c.endpoints.slab.get(peer));
    if ep.is_none() {
        c.counters.drops_unknown_rank += 1;
    }
    ep
}

/// Notes an arrival that wants an ack: now when `urgent` or `ack_every` have arrived, else
/// after the delay, unless data carries it first.
#[inline]
fn note_arrival<P: Port>(c: &mut Context<P>, ep: EndpointRow, urgent: bool, alone: bool) {
    let e = &mut c.endpoints;
    let flags = &mut e.flags[ep];
    let is_first = *flags & flag::ACK_PENDING == 0;
    *flags |= flag::ACK_PENDING | if alone { flag::ACK_ALONE } else { 0 };
    // It may have come right after the last tick: the sender must not take the wait for a queue.
    e.arrived[ep] = coarse(c.now - c.away_ns);
    let unacked = &mut e.arrivals_unacked[ep];
    *unacked = unacked.saturating_add(1);
    if urgent || *unacked >= c.limits.ack_every {
        c.lists.ack_due.push(ep);
    } else if is_first && !c.lists.ack_due.contains(ep) && c.lists.ack_delayed.push(ep) {
        e.ack_deadline[ep] = coarse(c.now + u64::from(c.config.ack_delay_ns));
    }
}

/// A segment outside the window: the sender has missed an ack, so it gets one at once.
fn refuse_place<P: Port>(c: &mut Context<P>, ep: EndpointRow, place: Place) {
    match place {
        Place::Above => c.counters.drops_above_window += 1,
        _ => c.counters.drops_duplicate += 1,
    }
    note_arrival(c, ep, true, true);
}

/// The ring for early segments of `ep`, if `seq` is not in it yet. Counts what it refuses.
fn early_ring<P: Port>(c: &mut Context<P>, ep: EndpointRow, seq: u32) -> Option<RingId> {
    let e = &mut c.endpoints;
    let ring = match e.rx_ring[ep] {
        Some(ring) => ring,
        None => match e.rx_rings.take() {
            Some(ring) => {
                e.rx_ring[ep] = Some(ring);
                ring
            }
            None => {
                c.counters.drops_no_room += 1;
                return None;
            }
        },
    };
    if e.rx_rings.get(ring, seq).is_some() {
        refuse_place(c, ep, Place::Behind);
        return None;
    }
    Some(ring)
}

/// Delivers what waited for the gap that may just have closed; gives the ring back when it is
/// empty (it may also have been taken for a segment that was refused in the end).
fn drain_early<P: Port>(
    c: &mut Context<P>,
    inbox: &mut Inbox,
    handler: &mut impl Handler<P>,
    ep: EndpointRow,
) {
    let Some(ring) = c.endpoints.rx_ring[ep] else { return };
    loop {
        let expected = c.endpoints.expected[ep];
        let Some(early) = c.endpoints.rx_rings.clear(ring, expected.get()) else { break };
        c.endpoints.advance_expected(ep);
        // The gap closed: the sender learns of it at once.
        note_arrival(c, ep, true, false);
        match early {
            Early::Done => {}
            Early::Held { slot, len_bytes } => {
                let first = c.limits.prefix_bytes + HEADER_BYTES;
                let bytes = inbox.slots.bytes(slot);
                let head = bytes[c.limits.prefix_bytes..].first_chunk();
                let header = head.and_then(Header::read).expect("judged when it arrived");
                deliver(c, handler, ep, header.tag, &bytes[first..first + len_bytes as usize]);
                inbox.held -= 1;
                inbox.free(slot);
            }
            Early::LastChunk(frag) => finish_receive(c, handler, ep, frag),
        }
    }
    if c.endpoints.rx_rings.occupied(ring) == 0 {
        c.endpoints.rx_rings.give(ring);
        c.endpoints.rx_ring[ep] = None;
    }
}

#[inline]
fn deliver<P: Port>(
    c: &mut Context<P>,
    handler: &mut impl Handler<P>,
    ep: EndpointRow,
    tag: u32,
    bytes: &[u8],
) {
    c.counters.messages_received += 1;
    c.counters.bytes_received += bytes.len() as u64;
    let from = c.endpoints.slab.handle(ep);
    let message = Message { from, tag: Tag(tag), body: Body::Lent(bytes) };
    handler.on_event(c, Event::Received(message));
}

/// All of a large message before its last chunk has arrived: deliver it and give back what it
/// held. A message whose pieces do not add up (a peer out of its mind) is dropped and counted.
fn finish_receive<P: Port>(
    c: &mut Context<P>,
    handler: &mut impl Handler<P>,
    ep: EndpointRow,
    frag: FragmentRow,
) {
    let (tag, total) = (c.fragments.tag[frag], c.fragments.total_bytes[frag]);
    let whole = c.fragments.done_bytes[frag] == total;
    let mut buffer = release_receive(c, ep, frag);
    if total >= PROMPT_BYTES {
        // The handler may be at work on so much for longer than the sender's timer runs.
        ack::send_at_once(c, ep);
    }
    if !whole {
        c.counters.drops_chunk_mismatch += 1;
    } else {
        c.counters.messages_received += 1;
        c.counters.bytes_received += total;
        let from = c.endpoints.slab.handle(ep);
        let body = Body::Buffer(buffer.vec_mut(), total as usize);
        handler.on_event(c, Event::Received(Message { from, tag: Tag(tag), body }));
    }
    if let Buffer::Pooled(bytes) = buffer {
        c.buffers.give(bytes);
    }
}

/// Takes a half-received message off the books; its buffer is the caller's.
pub(crate) fn release_receive<P: Port>(
    c: &mut Context<P>,
    ep: EndpointRow,
    frag: FragmentRow,
) -> Buffer {
    debug_assert_eq!(c.fragments.kind[frag], Kind::Receive);
    let buffer = c.fragments.buffer[frag].take().expect("a receive has a buffer");
    if let Buffer::Pooled(_) = buffer {
        c.buffers.discharge(c.fragments.total_bytes[frag]);
    }
    c.fragments.links.remove(&mut c.endpoints.receiving[ep], frag);
    c.fragments.free(frag);
    buffer
}
