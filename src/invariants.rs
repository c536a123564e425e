//! Looks through all tables for a broken invariant; numbers are those of `docs/invariants.md`.

use crate::context::Context;
use crate::engine::Inbox;
use crate::ids::{EndpointRow, SegmentRow};
use crate::ports::{Channel, Port};
use crate::state::endpoints::{Early, flag as ep_flag};
use crate::state::fragments::Kind;
use crate::state::segments::flag;
use tickwire_tables::handle::{Handle, Row};

/// A broken invariant: a bug of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its number in `docs/invariants.md`.
    pub number: &'static str,
    /// Where and what.
    pub what: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.number, self.what)
    }
}

impl std::error::Error for Violation {}

fn ensure(
    holds: bool,
    number: &'static str,
    what: impl FnOnce() -> String,
) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation { number, what: what() }) }
}

pub(crate) fn check<P: Port>(c: &Context<P>, inbox: &Inbox) -> Result<(), Violation> {
    let mut listed = vec![false; c.segments.slab.capacity()];
    let mut receiving_bytes = 0;
    let mut held = 0;
    let mut rings = [0; 2];
    for ep in c.endpoints.slab.iter() {
        check_window(c, ep)?;
        check_lists(c, ep, &mut listed)?;
        receiving_bytes += check_receiving(c, ep)?;
        held += check_early(c, ep)?;
        rings[0] += usize::from(c.endpoints.tx_ring[ep].is_some());
        rings[1] += usize::from(c.endpoints.rx_ring[ep].is_some());
        check_attention(c, ep)?;
    }
    check_segments(c, &listed)?;
    ensure(receiving_bytes == c.buffers.in_use_bytes(), "I-08", || {
        format!("{receiving_bytes} bytes half received, {} charged", c.buffers.in_use_bytes())
    })?;
    ensure(held == inbox.held, "I-07", || format!("{held} slots held, {} counted", inbox.held))?;
    let e = &c.endpoints;
    let tx_rings = &e.flights.rings;
    for (pool, used) in [(tx_rings.free(), rings[0]), (e.rx_rings.free(), rings[1])] {
        let all = tx_rings.rings();
        ensure(pool + used == all, "I-04", || format!("{pool} free + {used} used of {all} rings"))?;
    }
    check_slots(c, inbox)
}

/// I-01: windows. I-02: an endpoint without a ring has nothing outstanding.
fn check_window<P: Port>(c: &Context<P>, ep: EndpointRow) -> Result<(), Violation> {
    let e = &c.endpoints;
    let outstanding = e.next_seq[ep].distance_from(e.acked[ep]);
    ensure((0..=c.limits.window as i32).contains(&outstanding), "I-01", || {
        format!("{ep:?}: {outstanding} segments outstanding, window {}", c.limits.window)
    })?;
    ensure(e.tx_ring[ep].is_some() || outstanding == 0, "I-02", || {
        format!("{ep:?}: {outstanding} segments outstanding without a ring")
    })
}

/// I-03: ring slots and numbers agree. I-05: a segment is in exactly one list.
fn check_lists<P: Port>(
    c: &Context<P>,
    ep: EndpointRow,
    listed: &mut [bool],
) -> Result<(), Violation> {
    let (e, s) = (&c.endpoints, &c.segments);
    let flight = e.tx_ring[ep].map(|id| (&e.flights.flight[id], 0, true));
    let lost = e.tx_ring[ep].map(|id| (&e.flights.lost[id], flag::LOST, true));
    let mut numbered = 0;
    for (list, want, has_number) in
        [Some((&e.ready[ep], 0, false)), flight, lost].into_iter().flatten()
    {
        let mut sent_before = 0;
        for seg in s.links.iter(list) {
            let twice = std::mem::replace(&mut listed[seg.index()], true);
            let fits = s.slab.is_live(seg) && s.ep[seg] == ep && s.flags[seg] & flag::LOST == want;
            ensure(!twice && fits, "I-05", || format!("{seg:?} of {ep:?}: in a wrong list"))?;
            if !has_number {
                continue;
            }
            numbered += 1;
            let in_ring =
                e.tx_ring[ep].and_then(|ring| e.flights.rings.get(ring, s.seq[seg].get()));
            ensure(in_ring == Some(seg.index() as u32), "I-03", || {
                format!("{seg:?} of {ep:?}: number {:?} is not in the ring", s.seq[seg])
            })?;
            if want == 0 {
                ensure(s.sent_ns[seg] >= sent_before, "I-10", || {
                    format!("{seg:?} of {ep:?}: flight is not in order of sending")
                })?;
                sent_before = s.sent_ns[seg];
            }
        }
    }
    let occupied = e.tx_ring[ep].map_or(0, |ring| e.flights.rings.occupied(ring));
    ensure(occupied == numbered, "I-03", || {
        format!("{ep:?}: {occupied} ring slots for {numbered} unacked segments")
    })
}

/// I-08: the charge is the sum of what is being received. I-09: lists hold their kind.
fn check_receiving<P: Port>(c: &Context<P>, ep: EndpointRow) -> Result<u64, Violation> {
    let f = &c.fragments;
    let mut charged = 0;
    for frag in f.links.iter(&c.endpoints.receiving[ep]) {
        ensure(f.kind[frag] == Kind::Receive && f.slab.is_live(frag), "I-09", || {
            format!("{frag:?} of {ep:?} is no receive")
        })?;
        ensure(f.done_bytes[frag] <= f.total_bytes[frag], "I-08", || {
            format!("{frag:?}: {} of {} bytes", f.done_bytes[frag], f.total_bytes[frag])
        })?;
        if let Some(crate::state::fragments::Buffer::Pooled(_)) = f.buffer[frag] {
            charged += f.total_bytes[frag];
        }
    }
    for frag in f.links.iter(&c.endpoints.pending[ep]) {
        ensure(f.kind[frag] != Kind::Receive && f.slab.is_live(frag), "I-09", || {
            format!("{frag:?} of {ep:?} is no send")
        })?;
    }
    Ok(charged)
}

/// I-07: held slots are counted, and the next expected segment is never among the early ones.
fn check_early<P: Port>(c: &Context<P>, ep: EndpointRow) -> Result<u32, Violation> {
    let e = &c.endpoints;
    let Some(ring) = e.rx_ring[ep] else { return Ok(0) };
    let expected = e.expected[ep].get();
    ensure(
        e.rx_rings.get(ring, expected).is_none() && e.rx_rings.occupied(ring) > 0,
        "I-07",
        || format!("{ep:?}: its ring of early segments is stale"),
    )?;
    let early = |offset| e.rx_rings.get(ring, expected.wrapping_add(offset));
    let held = (0..c.limits.window).filter(|&i| matches!(early(i), Some(Early::Held { .. })));
    Ok(held.count() as u32)
}

/// I-11: whoever waits for something is on a list, or armed, or waits for an ack.
fn check_attention<P: Port>(c: &Context<P>, ep: EndpointRow) -> Result<(), Violation> {
    let e = &c.endpoints;
    if !e.has(ep, ep_flag::READY) {
        return Ok(());
    }
    let outstanding = e.next_seq[ep] != e.acked[ep];
    let timed = e.tx_ring[ep].is_some_and(|id| e.flights.deadline_ns[id] > 0);
    ensure(!outstanding || (timed && c.lists.timers.is_armed(ep)), "I-11", || {
        format!("{ep:?}: segments are outstanding and no timer runs")
    })?;
    let paced = c.lists.timers.is_armed(ep) && e.congestion[ep].segments() < 1.0;
    let resends = c.lists.resend.contains(ep) || e.in_flight(ep) > 0 || paced;
    ensure(e.lost_len(ep) == 0 || resends, "I-11", || {
        format!("{ep:?}: lost segments, and nobody will look")
    })?;
    let sends = outstanding || paced || c.lists.ready.contains(ep) || c.lists.to_pack.contains(ep);
    let waits = !e.ready[ep].is_empty() || !e.pending[ep].is_empty();
    ensure(!waits || sends, "I-11", || format!("{ep:?}: work waits and nobody will look"))?;
    let acks = c.lists.ack_due.contains(ep) || c.lists.ack_delayed.contains(ep);
    ensure(!e.has(ep, ep_flag::ACK_WANTED) || acks, "I-11", || {
        format!("{ep:?}: an ack is pending and on no list")
    })
}

/// I-05, from the rows' side: each live row is in a list, with the port, or waits its turn.
fn check_segments<P: Port>(c: &Context<P>, listed: &[bool]) -> Result<(), Violation> {
    let s = &c.segments;
    let mut with_port = vec![0; c.fragments.slab.capacity()];
    for seg in s.slab.iter() {
        let waits = s.frag[seg].is_some_and(|frag| c.fragments.seg[frag] == Some(seg));
        let released = s.has(seg, flag::RELEASED);
        let homes = u32::from(listed[seg.index()]) + u32::from(waits) + u32::from(released);
        ensure(homes == 1, "I-05", || format!("{seg:?}: has {homes} homes"))?;
        ensure(!released || s.has(seg, flag::POSTED), "I-06", || {
            format!("{seg:?}: released, not with the port, not freed")
        })?;
        if let Some(frag) = s.frag[seg].filter(|_| released) {
            with_port[frag.index()] += 1;
        }
    }
    let dead = listed
        .iter()
        .enumerate()
        .find(|&(i, &on)| on && !s.slab.is_live(SegmentRow::from_index(i)));
    ensure(dead.is_none(), "I-05", || format!("dead row {dead:?} in a list"))?;
    for frag in c.fragments.slab.iter() {
        let peer = c.fragments.peer[frag];
        let acked = c.fragments.unacked[frag] == with_port[frag.index()];
        let known = c.endpoints.slab.get(peer).is_some() || c.fragments.failed[frag];
        ensure(known || acked, "I-12", || {
            format!("{frag:?}: of {peer:?} (row {:?}), gone", peer.row())
        })?;
    }
    Ok(())
}

/// I-06: what is lent is what the port has; every receive slot is somewhere.
fn check_slots<P: Port>(c: &Context<P>, inbox: &Inbox) -> Result<(), Violation> {
    let lent =
        (c.slots.first()..c.slots.end()).filter(|&slot| c.slots.is_lent(slot)).count() as u32;
    let posted = c.rail.posted[0] + c.rail.posted[1];
    ensure(lent == posted, "I-06", || format!("{lent} send slots lent, {posted} posted"))?;
    let all = inbox.slots.end() - inbox.slots.first();
    let freed: u32 = Channel::ALL.iter().map(|&channel| inbox.freed.len(channel) as u32).sum();
    let known = inbox.posted[0] + inbox.posted[1] + freed + inbox.held;
    ensure(known == all, "I-06", || format!("{known} of {all} receive slots accounted for"))
}
