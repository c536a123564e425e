//! `ack`: sends the standalone acks that are due, on the priority channel.
//!
//! Reads: receive windows and rings. Writes: ack state, the rail. Bound: listed endpoints, free
//! ack slots and the channel's queue. An endpoint to which `send` will carry the ack this tick is
//! left alone once.

use crate::context::Context;
use crate::ids::EndpointRow;
use crate::integrity;
use crate::ports::{Channel, Port, SendOp};
use crate::state::endpoints::flag;
use crate::state::rail::BATCH;
use crate::stats::Work;
use crate::time::coarse_is_due;
use crate::transmit;
use crate::wire::{HEADER_BYTES, Integrity, Kind, ack::BITMAP_WORDS_MAX};
use arrayvec::ArrayVec;
use tickwire_tables::seq::Seq;

#[inline]
pub(crate) fn run<P: Port>(c: &mut Context<P>) -> Work {
    while let Some(ep) = c.lists.ack_delayed.front() {
        if !coarse_is_due(c.now, c.endpoints.ack_deadline[ep]) {
            break;
        }
        c.lists.ack_delayed.pop();
        c.lists.ack_due.push(ep);
    }
    // The batch is large: an idle tick does not even make room for it.
    if c.lists.ack_due.is_empty() { Work::default() } else { send_due(c) }
}

/// Sends what is due with the ack of `ep`, if it owes one, which waits for no data to ride on.
pub(crate) fn send_at_once<P: Port>(c: &mut Context<P>, ep: EndpointRow) {
    if c.endpoints.has(ep, flag::ACK_PENDING) {
        c.endpoints.flags[ep] |= flag::ACK_ALONE;
        c.lists.ack_due.push(ep);
        send_due(c);
    }
}

#[inline(never)]
fn send_due<P: Port>(c: &mut Context<P>) -> Work {
    let mut batch = Batch::default();
    let mut posted = 0;
    for _ in 0..c.lists.ack_due.len() {
        let room = c.rail.room(Channel::Priority).saturating_sub(batch.ops.len() as u32);
        if c.segments.ack_slots_free.is_empty() || room == 0 {
            break;
        }
        let Some(ep) = c.lists.ack_due.pop() else { break };
        if !c.endpoints.has(ep, flag::READY) {
            // Listed again when the peer's address is in.
            continue;
        }
        if send_will_carry(c, ep) {
            c.endpoints.flags[ep] |= flag::ACK_DEFERRED;
            c.lists.ack_due.push(ep);
            continue;
        }
        batch.said.push((ep, c.endpoints.flags[ep] & flag::SAYS_ALONE));
        batch.ops.push(write_ack(c, ep));
        transmit::settle_ack(c, ep);
        if batch.ops.is_full() {
            posted += post(c, &mut batch);
        }
    }
    posted += post(c, &mut batch);
    Work { posted, ..Work::default() }
}

/// Acks about to be posted, and to whom; what each says that only it can say.
#[derive(Default)]
struct Batch {
    ops: ArrayVec<SendOp, BATCH>,
    said: ArrayVec<(EndpointRow, u16), BATCH>,
}

fn send_will_carry<P: Port>(c: &mut Context<P>, ep: EndpointRow) -> bool {
    c.endpoints.flags[ep] & (flag::SAYS_ALONE | flag::ACK_DEFERRED) == 0
        && !c.endpoints.ready[ep].is_empty()
        && transmit::open_flight(c, ep).is_some()
}

fn write_ack<P: Port>(c: &mut Context<P>, ep: EndpointRow) -> SendOp {
    let slot = c.segments.ack_slots_free.pop().expect("checked by the caller");
    let mut bitmap = [0u64; BITMAP_WORDS_MAX];
    let mut words = 0;
    if let Some(ring) = c.endpoints.rx_ring[ep] {
        let first = c.endpoints.expected[ep].get();
        words = c.limits.window as usize / 64;
        c.endpoints.rx_rings.bitmap(ring, first, c.limits.window, &mut bitmap[..words]);
        while words > 0 && bitmap[words - 1] == 0 {
            words -= 1;
        }
    }
    let mut header = transmit::base_header(c, ep);
    let mut number = 0;
    if c.limits.integrity == Integrity::Tag {
        // wire 5.4: acks that anybody may repeat are numbered.
        number = c.endpoints.take_control(ep);
        header.seq = Seq::new(number as u32);
    }
    if c.endpoints.has(ep, flag::BYE_DUE) {
        header.kind = Kind::Bye;
        header.tag = u32::from(c.endpoints.has(ep, flag::BYE_HEARD));
    } else if c.endpoints.has(ep, flag::PROBE_DUE) {
        header.kind = Kind::Probe;
    }
    header.payload_bytes = words as u16 * 8;
    let bytes = &mut c.slots.bytes_mut(slot)[c.limits.prefix_bytes..];
    header.write(bytes.first_chunk_mut().expect("a slot holds a header"));
    let mut len = HEADER_BYTES;
    for word in &bitmap[..words] {
        bytes[len..len + 8].copy_from_slice(&word.to_le_bytes());
        len += 8;
    }
    if c.limits.integrity != Integrity::None {
        len = integrity::seal(c, ep, slot, len, number);
    }
    SendOp {
        slot,
        len_bytes: len as u32,
        peer: c.endpoints.addresses[ep][Channel::Priority as usize],
        gather: None,
    }
}

/// Posts the batch. What the port does not take is due again next tick.
fn post<P: Port>(c: &mut Context<P>, batch: &mut Batch) -> u32 {
    let Batch { ops: batch, said } = batch;
    if batch.is_empty() {
        return 0;
    }
    let completes_at_post = c.limits.completes_at_post;
    if !completes_at_post {
        for op in batch.iter() {
            c.slots.lend(op.slot);
        }
    }
    let taken = c.rail.port.post_sends(Channel::Priority, batch);
    if !completes_at_post {
        c.rail.posted[Channel::Priority as usize] += taken as u32;
        for op in &batch[taken..] {
            c.slots.give_back(op.slot);
        }
    }
    let free_from = if completes_at_post { 0 } else { taken };
    for op in &batch[free_from..] {
        c.segments.ack_slots_free.push(op.slot);
    }
    c.counters.acks_standalone += taken as u64;
    for &(ep, said) in &said[taken..] {
        c.endpoints.flags[ep] |= flag::ACK_PENDING | said;
        c.lists.ack_due.push(ep);
    }
    batch.clear();
    said.clear();
    taken as u32
}
