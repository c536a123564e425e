//! Life and death of peers: silence, keep-alive, goodbyes.
//!
//! A peer is silent while it owes an answer (something is outstanding, or the user watches it) and
//! nothing of it arrives; anything that arrives ends the silence. Silences are measured in the
//! time that this process was awake for, so that its own pauses kill nobody. Whoever is condemned
//! here is buried by `reap_av`, which tells the user.

use crate::context::Context;
use crate::event::{Event, Handler};
use crate::ids::EndpointRow;
use crate::ports::Port;
use crate::state::endpoints::{LiveMillis, flag};
use crate::time::{MILLIS, Nanos};
use crate::transmit;
use crate::wire::Header;

/// A send error that has not gone away after this long is taken for final.
const SEND_ERROR_NS: Nanos = 400 * MILLIS;
/// [`crate::state::endpoints::Endpoints::send_error`] of a peer whose rank was given to another.
pub(crate) const REPLACED: i16 = -1;

/// The peer has said something.
#[inline]
pub(crate) fn heard<P: Port>(c: &mut Context<P>, ep: EndpointRow) {
    c.endpoints.silent_since[ep] = LiveMillis::from_ns(c.live_ns);
    c.endpoints.send_error[ep] = 0;
    c.endpoints.flags[ep] |= flag::MET;
}

/// The peer owes an answer from now on.
#[inline]
pub(crate) fn begin_silence<P: Port>(c: &mut Context<P>, ep: EndpointRow) {
    c.endpoints.silent_since[ep] = LiveMillis::from_ns(c.live_now_ns());
    c.endpoints.flags[ep] |= flag::MET;
}

/// For how long the peer has owed an answer.
pub(crate) fn silence_ns<P: Port>(c: &Context<P>, ep: EndpointRow) -> Nanos {
    c.endpoints.silent_since[ep].elapsed_ns(c.live_now_ns())
}

/// The endpoint's timer went off: is the peer dead, is a probe due, a goodbye to be repeated?
/// False: it is condemned.
pub(crate) fn on_timer<P: Port>(c: &mut Context<P>, ep: EndpointRow) -> bool {
    let e = &c.endpoints;
    let outstanding = e.acked[ep] != e.next_seq[ep];
    let says_bye =
        e.flags[ep] & (flag::CLOSING | flag::BYE_HEARD) == flag::CLOSING && e.is_drained(ep);
    let watched = e.has(ep, flag::WATCHED);
    if !e.has(ep, flag::READY) || !(outstanding || watched || says_bye) {
        return true;
    }
    let silence = silence_ns(c, ep);
    let has_error = c.endpoints.send_error[ep] > 0;
    if silence >= c.config.dead_after_ns || (has_error && silence >= SEND_ERROR_NS) {
        condemn(c, ep);
        return false;
    }
    let mut next = c.config.dead_after_ns - silence;
    if says_bye {
        say_bye(c, ep);
    } else if !outstanding {
        let keepalive = c.limits.keepalive_ns;
        if silence >= keepalive {
            c.endpoints.flags[ep] |= flag::PROBE_DUE;
            c.lists.ack_due.push(ep);
        }
        next = next.min(if silence < keepalive { keepalive - silence } else { keepalive });
    }
    // Who sleeps between deadlines must not sleep for longer than counts as being awake. No finer
    // than silences are measured.
    transmit::wake_by(c, ep, c.now + next.min(c.limits.pause_ns).max(MILLIS));
    true
}

/// The peer is dead to us. Its burial follows in the next `reap_av`.
pub(crate) fn condemn<P: Port>(c: &mut Context<P>, ep: EndpointRow) {
    c.endpoints.flags[ep] &= !flag::READY;
    c.endpoints.flags[ep] |= flag::GONE;
    c.lists.dying.push(ep);
}

/// The user wants to hear of the peer's death also while nothing is outstanding, or no longer.
pub(crate) fn watch<P: Port>(c: &mut Context<P>, ep: EndpointRow, on: bool) {
    if !on {
        c.endpoints.flags[ep] &= !flag::WATCHED;
    } else if !c.endpoints.has(ep, flag::WATCHED) {
        c.endpoints.flags[ep] |= flag::WATCHED;
        begin_watch(c, ep);
    }
}

/// A watched peer is probed from now on. Before its addresses are in it cannot be.
pub(crate) fn begin_watch<P: Port>(c: &mut Context<P>, ep: EndpointRow) {
    if c.endpoints.has(ep, flag::READY) && c.endpoints.has(ep, flag::WATCHED) {
        if c.endpoints.acked[ep] == c.endpoints.next_seq[ep] {
            begin_silence(c, ep);
        }
        transmit::wake_by(c, ep, c.now + c.limits.keepalive_ns.min(c.limits.pause_ns));
    }
}

/// No more sends to the peer; the goodbye follows once all is acked.
pub(crate) fn close<P: Port>(c: &mut Context<P>, ep: EndpointRow) {
    if c.endpoints.has(ep, flag::CLOSING | flag::GONE) {
        return;
    }
    c.endpoints.flags[ep] |= flag::CLOSING;
    if c.endpoints.has(ep, flag::MET) && c.endpoints.is_drained(ep) {
        begin_silence(c, ep);
        say_bye(c, ep);
    }
}

/// Everything sent to a closing peer is acked: says goodbye, and again until it is answered.
pub(crate) fn say_bye<P: Port>(c: &mut Context<P>, ep: EndpointRow) {
    c.endpoints.flags[ep] |= flag::BYE_DUE;
    c.lists.ack_due.push(ep);
    let wait = transmit::timeout_ns(c, ep);
    c.endpoints.backoff[ep] = c.endpoints.backoff[ep].saturating_add(1);
    transmit::wake_by(c, ep, c.now + wait);
}

/// The peer says goodbye: everything of it has arrived, and it wants nothing more.
pub(crate) fn on_bye<P: Port>(
    c: &mut Context<P>,
    handler: &mut impl Handler<P>,
    ep: EndpointRow,
    header: &Header,
) {
    let is_news = !c.endpoints.has(ep, flag::BYE_HEARD);
    c.endpoints.flags[ep] |= flag::BYE_HEARD | flag::CLOSING;
    // wire 4.4: one that has not heard ours wants an answer; it gets one when we are done, too.
    if (is_news || header.tag == 0) && c.endpoints.is_drained(ep) {
        c.endpoints.flags[ep] |= flag::BYE_DUE;
        c.lists.ack_due.push(ep);
    }
    if is_news {
        let peer = c.endpoints.slab.handle(ep);
        handler.on_event(c, Event::PeerClosed { peer });
    }
}

/// Whether both sides have said all. Those that never exchanged anything need no goodbyes: there
/// are N^2 pairs in a job, and few of them talk.
pub(crate) fn is_closed<P: Port>(c: &Context<P>, ep: EndpointRow) -> bool {
    let e = &c.endpoints;
    let met = e.has(ep, flag::MET);
    let over = (e.has(ep, flag::BYE_HEARD) || !met) && !e.has(ep, flag::BYE_DUE);
    (over && e.is_drained(ep)) || e.has(ep, flag::GONE)
}
