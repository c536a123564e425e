//! Peers: added, removed, watched, asked about.

use super::{guard, put_text, slice, tw_engine, tw_peer, tw_status, tw_status::*};
use crate::address::PeerAddress;
use crate::ids::{EndpointHandle, Rank};
use crate::{error::PeerError, peers};
use std::ffi::{c_char, c_void};
use tickwire_tables::handle::Handle;

/// The handle in foreign hands, or why it cannot be one.
pub(super) fn handle_of(peer: tw_peer) -> Result<EndpointHandle, tw_status> {
    EndpointHandle::from_bits(peer).ok_or(TW_NO_PEER)
}

/// Adds the peer whose `tw_address` the blob is. Messages may be sent to it at once. Another
/// incarnation of a rank takes the place of the former one, which is reported as dead. What was
/// wrong goes to `error`, which may be null.
///
/// # Safety
/// `address` has `address_bytes`; `peer` is writable or null; `error` has `error_bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_add_peer(
    engine: &tw_engine,
    address: *const c_void,
    address_bytes: usize,
    peer: *mut tw_peer,
    error: *mut c_char,
    error_bytes: usize,
) -> tw_status {
    guard(|| {
        // SAFETY: by this function's contract.
        let Some(blob) = (unsafe { slice(address, address_bytes) }) else { return TW_BAD_ARGUMENT };
        let added = PeerAddress::from_bytes(blob)
            .and_then(|address| engine.with_context(|c| peers::add(c, &address)));
        match added {
            Ok(handle) => {
                // SAFETY: by this function's contract.
                if let Some(peer) = unsafe { peer.as_mut() } {
                    *peer = handle.to_bits();
                }
                TW_OK
            }
            Err(reason) => refuse(&reason, error, error_bytes),
        }
    })
}

fn refuse(reason: &PeerError, error: *mut c_char, error_bytes: usize) -> tw_status {
    // SAFETY: handed through from `tw_add_peer`, by its contract.
    unsafe { put_text(error, error_bytes, &reason.to_string()) };
    tw_status::from(reason)
}

/// Forgets a peer: its sends with a token are reported as failed. Not from inside a handler.
#[unsafe(no_mangle)]
pub extern "C" fn tw_remove_peer(engine: &tw_engine, peer: tw_peer) -> tw_status {
    guard(|| {
        engine.with_engine(|it, handler| match handle_of(peer) {
            Ok(peer) => it.remove_peer(peer, handler).map_or_else(tw_status::from, |()| TW_OK),
            Err(status) => status,
        })
    })
}

/// The peer of a rank, or 0.
#[unsafe(no_mangle)]
pub extern "C" fn tw_peer_of_rank(engine: &tw_engine, rank: u32) -> tw_peer {
    engine.with_context(|c| c.peer(Rank(rank))).map_or(0, Handle::to_bits)
}

/// Asks to hear of the peer's death also while nothing is outstanding to it, or no longer.
#[unsafe(no_mangle)]
pub extern "C" fn tw_watch_peer(engine: &tw_engine, peer: tw_peer, on: bool) -> tw_status {
    guard(|| match handle_of(peer) {
        Ok(peer) => {
            engine.with_context(|c| c.watch(peer, on)).map_or_else(tw_status::from, |()| TW_OK)
        }
        Err(status) => status,
    })
}

/// Whether everything sent to the peer has arrived. A peer that is gone is drained.
#[unsafe(no_mangle)]
pub extern "C" fn tw_is_drained(engine: &tw_engine, peer: tw_peer) -> bool {
    handle_of(peer).map_or(true, |peer| engine.with_context(|c| c.is_drained(peer)))
}

/// Largest message to the peer that goes in one datagram, in bytes; 0 for no peer.
#[unsafe(no_mangle)]
pub extern "C" fn tw_small_bytes_max(engine: &tw_engine, peer: tw_peer) -> usize {
    let peer = handle_of(peer).ok();
    peer.and_then(|peer| engine.with_context(|c| c.small_bytes_max(peer))).unwrap_or(0)
}
