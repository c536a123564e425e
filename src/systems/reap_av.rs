//! `reap_av`: starts and collects address insertions; marks endpoints ready or unreachable; buries
//! the dead.
//!
//! Reads and writes: endpoints' addresses and flags. Bound: one reaping of the port, so many new
//! peers, and what the port takes. One bad address never fails the others.

use crate::context::Context;
use crate::engine::Inbox;
use crate::event::{Event, Handler};
use crate::ids::{EndpointHandle, EndpointRow};
use crate::insertion;
use crate::peers;
use crate::ports::{Channel, InsertResult, Port};
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
                insertion::on_result(c, ep, channel, result);
                settle(c, inbox, handler, ep);
            }
            (None, Ok(address)) => c.rail.port.remove(channel, address),
            (None, Err(_)) => {}
        }
    }
    for _ in 0..c.lists.to_insert.len().min(INSERTS_MAX) {
        let Some(ep) = c.lists.to_insert.pop() else { break };
        work.prepared += 1;
        let is_full = !insertion::start(c, ep);
        settle(c, inbox, handler, ep);
        if is_full {
            c.lists.to_insert.push(ep);
            break;
        }
    }
    work
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
            insertion::make_ready(c, ep);
        }
        handler.on_event(c, Event::PeerReady { peer });
        return;
    };
    c.endpoints.flags[ep] |= flag::GONE;
    peers::release(c, inbox, handler, ep);
    let (rank, name) = (c.endpoints.rank[ep], c.endpoints.name[ep].clone());
    handler.on_event(c, Event::PeerUnreachable { peer, rank, name: &name, reason: &reason });
}
