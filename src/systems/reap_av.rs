//! `reap_av`: starts and collects address insertions; marks endpoints ready or unreachable; buries
//! the dead.
//!
//! Reads and writes: endpoints' addresses and flags. Bound: one reaping of the port, so many new
//! peers, and what the port takes. One bad address never fails the others.

use crate::context::Context;
use crate::engine::Inbox;
use crate::event::{Event, Handler};
use crate::ids::{EndpointHandle, EndpointRow};
use crate::liveness;
use crate::peers;
use crate::ports::{Channel, InsertResult, Insertion, Port, PortError, PortPeer};
use crate::state::endpoints::flag;
use crate::stats::Work;
use arrayvec::ArrayVec;
use tickwire_tables::handle::Handle;

/// Peers whose insertion is started per tick: each may cost the port some system calls.
const INSERTS_MAX: usize = 64;

#[inline]
pub(crate) fn run<P: Port>(
    c: &mut Context<P>,
    inbox: &mut Inbox,
    handler: &mut impl Handler<P>,
) -> Work {
    if !c.lists.dying.is_empty() {
        bury(c, inbox, handler);
    }
    if c.lists.to_insert.is_empty() && c.inserts_outstanding == 0 {
        return Work::default();
    }
    insert(c, inbox, handler)
}

#[inline(never)]
fn bury<P: Port>(c: &mut Context<P>, inbox: &mut Inbox, handler: &mut impl Handler<P>) {
    while let Some(ep) = c.lists.dying.pop() {
        peers::bury(c, inbox, handler, ep);
    }
}

#[inline(never)]
fn insert<P: Port>(c: &mut Context<P>, inbox: &mut Inbox, handler: &mut impl Handler<P>) -> Work {
    let mut results = ArrayVec::<InsertResult, 64>::new();
    c.rail.port.reap_inserts(&mut results);
    let mut work = Work { prepared: results.len() as u32, ..Work::default() };
    for InsertResult { context, result } in results {
        c.inserts_outstanding -= 1;
        // The peer may have been removed meanwhile; its handle tells.
        let peer = EndpointHandle::from_bits((context >> 1) as u32);
        let channel = Channel::ALL[(context & 1) as usize];
        match (peer.and_then(|peer| c.endpoints.slab.get(peer)), result) {
            (Some(ep), result) => {
                let result =
                    result.map_err(|code| std::io::Error::from_raw_os_error(code).to_string());
                on_result(c, ep, channel, result);
                settle(c, inbox, handler, ep);
            }
            (None, Ok(address)) => c.rail.port.remove(channel, address),
            (None, Err(_)) => {}
        }
    }
    for _ in 0..c.lists.to_insert.len().min(INSERTS_MAX) {
        let Some(ep) = c.lists.to_insert.pop() else { break };
        work.prepared += 1;
        let is_full = !start(c, ep);
        settle(c, inbox, handler, ep);
        if is_full {
            c.lists.to_insert.push(ep);
            break;
        }
    }
    work
}

/// Gives the port what it has not had yet of a peer's addresses; false: it takes no more now.
fn start<P: Port>(c: &mut Context<P>, ep: EndpointRow) -> bool {
    let handle = c.endpoints.slab.handle(ep);
    while let Some(inserting) = c.endpoints.inserting.get_mut(&ep) {
        let index = usize::from(inserting.started);
        let Some(raw) = inserting.raw.get(index) else { break };
        let context = (u64::from(handle.to_bits()) << 1) | index as u64;
        let channel = Channel::ALL[index];
        let started = c.rail.port.insert(channel, raw, context);
        if matches!(started, Err(PortError::Again { .. })) {
            return false;
        }
        inserting.started += 1;
        match started {
            Ok(Insertion::Pending) => c.inserts_outstanding += 1,
            Ok(Insertion::Ready(peer)) => on_result(c, ep, channel, Ok(peer)),
            Err(error) => on_result(c, ep, channel, Err(error.to_string())),
        }
    }
    true
}

fn on_result<P: Port>(
    c: &mut Context<P>,
    ep: EndpointRow,
    channel: Channel,
    result: Result<PortPeer, String>,
) {
    let Some(inserting) = c.endpoints.inserting.get_mut(&ep) else { return };
    inserting.done += 1;
    match result {
        Ok(peer) => c.endpoints.addresses[ep][channel as usize] = peer,
        Err(reason) => inserting.error = Some(reason.into()),
    }
}

/// A port that answers at once makes the endpoint ready already where it is added, so that what is
/// sent then leaves even if the process goes to wait for something else and does not tick. The tick
/// tells the handler, and takes what the port does not take now. The dead are buried first: one
/// that restarted may have the address that its burial removes from the port.
pub(crate) fn start_early<P: Port>(c: &mut Context<P>, ep: EndpointRow) {
    if !c.lists.dying.is_empty() {
        return;
    }
    let _ = start(c, ep);
    if c.endpoints.inserting.get(&ep).is_some_and(|it| it.done == 2 && it.error.is_none()) {
        make_ready(c, ep);
    }
}

fn make_ready<P: Port>(c: &mut Context<P>, ep: EndpointRow) {
    c.endpoints.flags[ep] |= flag::READY;
    c.lists.ready.push(ep);
    c.lists.to_pack.push(ep);
    if c.endpoints.has(ep, flag::ACK_WANTED) {
        c.lists.ack_due.push(ep);
    }
    liveness::begin_watch(c, ep);
}

/// When both addresses are decided: the endpoint is ready, or unreachable.
fn settle<P: Port>(
    c: &mut Context<P>,
    inbox: &mut Inbox,
    handler: &mut impl Handler<P>,
    ep: EndpointRow,
) {
    if c.endpoints.inserting.get(&ep).is_none_or(|it| it.done < 2) {
        return;
    }
    let Some(inserting) = c.endpoints.inserting.remove(&ep) else { return };
    let peer = c.endpoints.slab.handle(ep);
    let Some(reason) = inserting.error else {
        if !c.endpoints.has(ep, flag::READY) {
            make_ready(c, ep);
        }
        handler.on_event(c, Event::PeerReady { peer });
        return;
    };
    c.endpoints.flags[ep] |= flag::GONE;
    peers::release(c, inbox, handler, ep);
    let (rank, name) = (c.endpoints.rank[ep], c.endpoints.name[ep].clone());
    handler.on_event(c, Event::PeerUnreachable { peer, rank, name: &name, reason: &reason });
}
