//! Adding and removing peers. Outside the tick; may allocate.

use crate::address::PeerAddress;
use crate::congestion::CongestionWindow;
use crate::context::Context;
use crate::engine::Inbox;
use crate::error::PeerError;
use crate::finish;
use crate::ids::{EndpointHandle, EndpointRow};
use crate::ports::{Channel, Port, PortPeer};
use crate::receive;
use crate::rto::Rtt;
use crate::state::endpoints::{Early, Inserting};
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
    let Some(ep) = c.endpoints.slab.insert() else {
        return Err(PeerError::Full { peers_max: c.config.peers_max });
    };
    let datagram = c.limits.datagram_bytes.min(address.datagram_bytes_max) as usize;
    let payload = wire::data::payload_bytes_max(datagram, c.config.checksum) as u32;
    let window = c.config.congestion_window_segments.min(c.limits.window);
    let e = &mut c.endpoints;
    let first = Seq::new(c.config.first_seq);
    e.next_seq[ep] = first;
    e.acked[ep] = first;
    e.send_limit[ep] = first.add(FIRST_WINDOW);
    e.congestion[ep] = CongestionWindow::fixed(window);
    e.expected[ep] = Seq::new(address.first_seq);
    e.flags[ep] = 0;
    e.arrivals_unacked[ep] = 0;
    e.rtt[ep] = Rtt::default();
    e.backoff[ep] = 0;
    e.deadline_ns[ep] = 0;
    e.newest_acked_sent_ns[ep] = 0;
    e.newest_acked[ep] = first;
    e.rank[ep] = address.rank;
    e.incarnation[ep] = address.incarnation;
    e.addresses[ep] = [PortPeer::NONE; 2];
    e.payload_bytes_max[ep] = payload;
    e.message_bytes_max[ep] = address.message_bytes_max;
    e.fragment_id_next[ep] = 0;
    e.name[ep] = address.name.clone().into();
    let raw = address.channels.clone();
    e.inserting[ep] = Some(Box::new(Inserting { raw, started: 0, done: 0, error: None }));
    e.list_rank(address.rank, Some(ep));
    c.lists.to_insert.push(ep);
    Ok(c.endpoints.slab.handle(ep))
}

fn check<P: Port>(c: &Context<P>, address: &PeerAddress) -> Result<(), PeerError> {
    let (rank, name) = (address.rank, address.name.clone());
    if address.job_check != c.job_check {
        return Err(PeerError::WrongJob { rank, name });
    }
    if address.checksum != c.config.checksum {
        return Err(PeerError::ChecksumMismatch { rank, name });
    }
    let (theirs, ours) = (address.window_segments, c.config.window_segments);
    if theirs != ours {
        return Err(PeerError::WindowMismatch { rank, name, theirs, ours });
    }
    if address.datagram_bytes_max < c.limits.datagram_bytes_floor {
        return Err(PeerError::BadAddress("its largest datagram is absurdly small"));
    }
    let ranks_max = c.endpoints.ranks_max();
    if rank.0 >= ranks_max {
        return Err(PeerError::RankTooHigh { rank, ranks_max });
    }
    if c.endpoints.by_rank(rank.0).is_some() {
        return Err(PeerError::Duplicate { rank, name });
    }
    Ok(())
}

/// Takes a peer off the books with all that it held. Its sends fail.
pub(crate) fn remove<P: Port>(c: &mut Context<P>, inbox: &mut Inbox, ep: EndpointRow) {
    finish::fail_sends(c, ep);
    while let Some(frag) = c.endpoints.receiving[ep].front() {
        if let Buffer::Pooled(buffer) = receive::release_receive(c, ep, frag) {
            c.buffers.give(buffer);
        }
    }
    drop_early(c, inbox, ep);
    c.lists.ready.remove(ep);
    c.lists.to_pack.remove(ep);
    c.lists.resend.remove(ep);
    c.lists.ack_due.remove(ep);
    c.lists.ack_delayed.remove(ep);
    c.lists.to_insert.remove(ep);
    c.lists.timers.disarm(ep);
    for channel in Channel::ALL {
        let peer = c.endpoints.addresses[ep][channel as usize];
        if peer != PortPeer::NONE {
            c.rail.port.remove(channel, peer);
        }
    }
    c.endpoints.inserting[ep] = None;
    c.endpoints.name[ep] = Box::default();
    let rank = c.endpoints.rank[ep];
    c.endpoints.list_rank(rank, None);
    c.endpoints.slab.remove(ep);
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
