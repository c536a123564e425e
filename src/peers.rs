//! Adding and removing peers. Outside the tick; may allocate.

use crate::address::PeerAddress;
use crate::congestion::CongestionWindow;
use crate::context::Context;
use crate::engine::Inbox;
use crate::error::PeerError;
use crate::event::{Death, Event, Handler};
use crate::finish;
use crate::ids::{EndpointHandle, EndpointRow, Tag};
use crate::insertion;
use crate::liveness;
use crate::ports::{Channel, Port, PortPeer};
use crate::receive;
use crate::rto::{ReorderScale, Rtt};
use crate::state::endpoints::{Early, Inserting, LiveMillis, PeerTurns, flag};
use crate::state::fragments::Buffer;
use crate::wire;
use tickwire_tables::seq::Seq;

/// Segments that may be sent before the peer's first ack has told its window.
const FIRST_WINDOW: u32 = 64;

pub(crate) fn add<P: Port>(
    c: &mut Context<P>,
    address: &PeerAddress,
) -> Result<EndpointHandle, PeerError> {
    check(c, address)?;
    c.stamp();
    let Some(ep) = c.endpoints.slab.insert() else {
        return Err(PeerError::Full { peers_max: c.config.peers_max });
    };
    let datagram = c.limits.datagram_bytes.min(address.datagram_bytes_max) as usize;
    let payload = wire::data::payload_bytes_max(datagram, c.limits.integrity) as u16;
    let window = c.limits.congestion_initial;
    if let Some(former) = c.endpoints.by_rank(address.rank.0) {
        replace(c, former);
    }
    let (inwards, outwards) = sessions(c, address);
    let silent_since = LiveMillis::from_ns(c.live_now_ns());
    let e = &mut c.endpoints;
    let first = Seq::new(c.config.first_seq);
    e.next_seq[ep] = first;
    e.acked[ep] = first;
    e.send_limit[ep] = first.add(FIRST_WINDOW);
    e.congestion[ep] = CongestionWindow::new(window);
    e.expected[ep] = Seq::new(address.first_seq);
    e.turns[ep] = PeerTurns::default();
    e.controls[ep] = [0; 2];
    e.flags[ep] = 0;
    e.arrivals_unacked[ep] = 0;
    e.rtt[ep] = Rtt::default();
    e.backoff[ep] = 0;
    e.reorder_scale[ep] = ReorderScale::default();
    e.silent_since[ep] = silent_since;
    e.send_error[ep] = 0;
    e.rank[ep] = address.rank;
    e.session_in[ep] = inwards;
    e.session_out[ep] = outwards;
    e.addresses[ep] = [PortPeer::NONE; 2];
    e.payload_bytes_max[ep] = payload;
    e.message_bytes_max[ep] = address.message_bytes_max;
    e.fragment_id_next[ep] = 0;
    e.name[ep] = address.name.clone().into();
    let raw = address.channels.clone();
    e.inserting.insert(ep, Inserting { raw, started: 0, done: 0, error: None });
    e.directory.set(address.rank, Some(ep));
    c.lists.to_insert.push(ep);
    insertion::start_early(c, ep);
    Ok(c.endpoints.slab.handle(ep))
}

/// The process that had the rank before: whoever adds another says that it is dead.
fn replace<P: Port>(c: &mut Context<P>, former: EndpointRow) {
    if !c.endpoints.has(former, flag::GONE) {
        c.endpoints.send_error[former] = liveness::REPLACED;
        liveness::condemn(c, former);
    }
}

/// The session words of the peer's datagrams and of ours to it.
fn sessions<P: Port>(c: &Context<P>, address: &PeerAddress) -> (u32, u32) {
    let us = (c.config.rank, c.config.incarnation);
    let them = (address.rank, address.incarnation);
    (c.config.job_key.session(them, us), c.config.job_key.session(us, them))
}

fn check<P: Port>(c: &Context<P>, address: &PeerAddress) -> Result<(), PeerError> {
    let (rank, name) = (address.rank, address.name.clone());
    if address.job_check != c.job_check {
        return Err(PeerError::WrongJob { rank, name });
    }
    let (theirs, ours) = (address.integrity, c.limits.integrity);
    if theirs != ours {
        return Err(PeerError::IntegrityMismatch { rank, name, theirs, ours });
    }
    let (theirs, ours) = (address.window_segments, c.config.window_segments);
    if theirs != ours {
        return Err(PeerError::WindowMismatch { rank, name, theirs, ours });
    }
    if address.datagram_bytes_max < c.limits.datagram_bytes_floor {
        return Err(PeerError::BadAddress("its largest datagram is absurdly small"));
    }
    let ranks_max = c.endpoints.directory.ranks_max();
    if rank.0 >= ranks_max {
        return Err(PeerError::RankTooHigh { rank, ranks_max });
    }
    let former = c.endpoints.by_rank(rank.0);
    if former.is_some_and(|ep| c.endpoints.session_in[ep] == sessions(c, address).0) {
        return Err(PeerError::Duplicate { rank, name });
    }
    Ok(())
}

/// Buries a condemned peer: tells the user, and gives back everything that it held but its row.
pub(crate) fn bury<P: Port>(
    c: &mut Context<P>,
    inbox: &mut Inbox,
    handler: &mut impl Handler<P>,
    ep: EndpointRow,
) {
    let cause = match c.endpoints.send_error[ep] {
        liveness::REPLACED => Death::Replaced,
        0 => Death::Silent { silent_ns: liveness::silence_ns(c, ep) },
        code => Death::SendError { code: code.into() },
    };
    release(c, inbox, handler, ep);
    let peer = c.endpoints.slab.handle(ep);
    let (rank, name) = (c.endpoints.rank[ep], c.endpoints.name[ep].clone());
    c.counters.peers_died += 1;
    handler.on_event(c, Event::PeerDead { peer, rank, name: &name, cause });
}

/// Takes a peer off the books with all that it held. Its sends fail.
pub(crate) fn remove<P: Port>(
    c: &mut Context<P>,
    inbox: &mut Inbox,
    handler: &mut impl Handler<P>,
    ep: EndpointRow,
) {
    // Handlers must not send to it while it is being taken apart.
    c.endpoints.flags[ep] |= flag::GONE;
    release(c, inbox, handler, ep);
    c.endpoints.name[ep] = Box::default();
    let rank = c.endpoints.rank[ep];
    if c.endpoints.by_rank(rank.0) == Some(ep) {
        c.endpoints.directory.set(rank, None);
    }
    c.endpoints.slab.remove(ep);
}

/// Gives back everything that a peer holds but its row; fails its sends and receives.
pub(crate) fn release<P: Port>(
    c: &mut Context<P>,
    inbox: &mut Inbox,
    handler: &mut impl Handler<P>,
    ep: EndpointRow,
) {
    finish::fail_sends(c, ep);
    while let Some(frag) = c.endpoints.receiving[ep].front() {
        let tag = Tag(c.fragments.tag[frag]);
        match receive::release_receive(c, ep, frag) {
            Buffer::Pooled(buffer) => c.buffers.give(buffer),
            Buffer::Owned(buffer) => {
                let from = c.endpoints.slab.handle(ep);
                handler.on_event(c, Event::ReceiveFailed { from, tag, buffer });
            }
            Buffer::Lent(_) => {}
        }
    }
    drop_early(c, inbox, ep);
    c.endpoints.flags[ep] &= flag::GONE;
    for list in c.lists.of_endpoints() {
        list.remove(ep);
    }
    c.lists.timers.disarm(ep);
    for channel in Channel::ALL {
        let address = &mut c.endpoints.addresses[ep][channel as usize];
        let peer = std::mem::replace(address, PortPeer::NONE);
        if peer != PortPeer::NONE {
            c.rail.port.remove(channel, peer);
        }
    }
    c.endpoints.inserting.remove(&ep);
    finish::report(c, handler);
}

fn drop_early<P: Port>(c: &mut Context<P>, inbox: &mut Inbox, ep: EndpointRow) {
    let Some(ring) = c.endpoints.rx_ring[ep].take() else { return };
    let first = c.endpoints.expected[ep].get();
    for offset in 0..c.limits.window {
        let early = c.endpoints.rx_rings.clear(ring, first.wrapping_add(offset));
        if let Some(Early::Held { slot, .. }) = early {
            inbox.held -= 1;
            inbox.free(slot);
        }
    }
    c.endpoints.rx_rings.give(ring);
}
