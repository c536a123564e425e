//! Giving a peer's addresses to the port, and what follows when it has them: shared by `reap_av`
//! and by the adding of peers (decision 0016).

use crate::context::Context;
use crate::ids::EndpointRow;
use crate::liveness;
use crate::ports::{Channel, Insertion, Port, PortError, PortPeer};
use crate::state::endpoints::flag;
use tickwire_tables::handle::Handle;

/// A port that answers at once makes the endpoint ready already where it is added, so that what
/// is sent then leaves even if the process goes to wait for something else and does not tick.
/// `reap_av` tells the handler, and takes what the port does not take now. During a tick it does
/// all of it, as it has the bound; and so it does while some are dead but not buried: for one
/// address inserted twice an address vector may answer with the same entry (fi_av(3)), and the
/// burial of a predecessor would take that out.
pub(crate) fn start_early<P: Port>(c: &mut Context<P>, ep: EndpointRow) {
    if c.in_tick || !c.lists.dying.is_empty() {
        return;
    }
    let _ = start(c, ep);
    if c.endpoints.inserting.get(&ep).is_some_and(|it| it.done == 2 && it.error.is_none()) {
        make_ready(c, ep);
    }
}

/// Gives the port what it has not had yet of a peer's addresses; false: it takes no more now.
pub(crate) fn start<P: Port>(c: &mut Context<P>, ep: EndpointRow) -> bool {
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

/// Notes the port's answer for one of a peer's addresses.
pub(crate) fn on_result<P: Port>(
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

/// The port has both addresses: what waits for the peer may go.
pub(crate) fn make_ready<P: Port>(c: &mut Context<P>, ep: EndpointRow) {
    c.endpoints.flags[ep] |= flag::READY;
    c.lists.ready.push(ep);
    c.lists.to_pack.push(ep);
    if c.endpoints.has(ep, flag::ACK_WANTED) {
        c.lists.ack_due.push(ep);
    }
    liveness::begin_watch(c, ep);
}
