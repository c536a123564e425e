//! `poll_cq`: reads completions, priority channel first, in batches; frees sent slots; takes in
//! datagrams (`receive`); reposts consumed receive slots in one batch at the end.
//!
//! Writes: nearly everything, through `receive`. Bound: so many completions per channel.

use crate::context::Context;
use crate::engine::Inbox;
use crate::event::Handler;
use crate::finish;
use crate::ids::SegmentRow;
use crate::ports::{Channel, Completion, CompletionKind, Port};
use crate::receive;
use crate::state::rail::BATCH;
use crate::state::segments::flag;
use crate::stats::Work;
use crate::transmit;
use tickwire_tables::handle::Row;

pub(crate) fn run<P: Port>(
    c: &mut Context<P>,
    inbox: &mut Inbox,
    handler: &mut impl Handler<P>,
) -> Work {
    let mut work = Work::default();
    for channel in Channel::ALL {
        let mut budget = c.config.completions_per_tick_max as usize;
        while budget > 0 {
            let want = BATCH.min(budget);
            let got = c.rail.port.poll(channel, &mut inbox.scratch[..want]);
            for i in 0..got {
                let completion = inbox.scratch[i];
                on_completion(c, inbox, handler, channel, &completion);
            }
            finish::report(c, handler);
            // What handlers sent leaves before the next batch is looked at.
            work.posted += transmit::flush(c);
            work.completions += got as u32;
            budget -= got;
            if got < want {
                break;
            }
        }
        inbox.repost(c, channel);
    }
    while let Some(event) = c.rail.port.link_event() {
        handler.on_event(c, crate::event::Event::Link(event));
    }
    work
}

#[inline]
fn on_completion<P: Port>(
    c: &mut Context<P>,
    inbox: &mut Inbox,
    handler: &mut impl Handler<P>,
    channel: Channel,
    completion: &Completion,
) {
    let slot = completion.slot;
    match completion.kind {
        CompletionKind::Received => {
            inbox.slots.give_back(slot);
            inbox.posted[channel as usize] -= 1;
            receive::on_datagram(c, inbox, handler, slot, completion.len_bytes);
        }
        CompletionKind::ReceiveFailed(_) => {
            c.counters.receives_failed += 1;
            inbox.slots.give_back(slot);
            inbox.posted[channel as usize] -= 1;
            inbox.free(slot);
        }
        CompletionKind::Sent => on_sent(c, channel, slot),
        CompletionKind::SendFailed(code) => {
            // The segment stays unacked: its timer sends it again.
            c.counters.sends_failed += 1;
            blame(c, slot, code);
            if !c.limits.completes_at_post {
                on_sent(c, channel, slot);
            }
        }
    }
}

/// Notes to whom a datagram could not be sent; if it lasts, the peer counts as dead. A slot whose
/// segment is acked by now, or that carried an ack, accuses nobody.
fn blame<P: Port>(c: &mut Context<P>, slot: u32, code: i32) {
    let seg = SegmentRow::from_index(slot as usize);
    if !c.segments.is_ack_slot(slot)
        && c.segments.slab.is_live(seg)
        && !c.segments.has(seg, flag::RELEASED)
    {
        let ep = c.segments.ep[seg];
        c.endpoints.send_error[ep] = i16::try_from(code).unwrap_or(i16::MAX).max(1);
    }
}

#[inline]
fn on_sent<P: Port>(c: &mut Context<P>, channel: Channel, slot: u32) {
    c.rail.posted[channel as usize] -= 1;
    c.slots.give_back(slot);
    if c.segments.is_ack_slot(slot) {
        c.segments.ack_slots_free.push(slot);
        return;
    }
    let seg = SegmentRow::from_index(slot as usize);
    c.segments.flags[seg] &= !flag::POSTED;
    if c.segments.has(seg, flag::RELEASED) {
        transmit::reclaim(c, seg);
    }
}
