//! Sends: copied, copied from parts, lent.

use super::peers::handle_of;
use super::{guard, slice, tw_engine, tw_peer, tw_status, tw_status::*};
use crate::context::Context;
use crate::error::SendError;
use crate::ids::{EndpointHandle, Tag, Token};
use crate::ports::any::AnyPort;
use crate::ports::memory::Lent;
use arrayvec::ArrayVec;
use std::ffi::c_void;

/// Parts that one message may be made of.
pub const TW_PARTS_MAX: usize = 16;

/// One of the parts that a message is made of.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tw_part {
    /// First byte.
    pub bytes: *const c_void,
    /// Length.
    pub len_bytes: usize,
}

/// Sends a copy of `bytes`. `TW_OK`: it will be delivered, exactly once, unless the peer dies.
///
/// # Safety
/// `bytes` has `len_bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_send(
    engine: &tw_engine,
    peer: tw_peer,
    tag: u32,
    bytes: *const c_void,
    len_bytes: usize,
) -> tw_status {
    let part = tw_part { bytes, len_bytes };
    // SAFETY: by this function's contract.
    unsafe { tw_send_parts(engine, peer, tag, &part, 1) }
}

/// Sends a copy of `parts` (at most `TW_PARTS_MAX`), one behind the other, as one message.
///
/// # Safety
/// `parts` has `count` parts, each with its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_send_parts(
    engine: &tw_engine,
    peer: tw_peer,
    tag: u32,
    parts: *const tw_part,
    count: usize,
) -> tw_status {
    // SAFETY: by this function's contract.
    unsafe {
        with_parts(engine, peer, parts, count, |c, to, parts| c.send_parts(to, Tag(tag), parts))
    }
}

/// `tw_send_parts` that asks for `TW_EVENT_SEND_DONE`, once the peer has it all, or
/// `TW_EVENT_SEND_FAILED`, under `token`. With any other result than `TW_OK` neither comes.
///
/// # Safety
/// `parts` has `count` parts, each with its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_send_parts_with_token(
    engine: &tw_engine,
    peer: tw_peer,
    tag: u32,
    parts: *const tw_part,
    count: usize,
    token: u64,
) -> tw_status {
    let (tag, token) = (Tag(tag), Token(token));
    // SAFETY: by this function's contract.
    unsafe {
        with_parts(engine, peer, parts, count, |c, to, parts| {
            c.send_parts_with_token(to, tag, parts, token)
        })
    }
}

/// `tw_send_parts` for a caller that may stop ticking once its message is sent: the message, of one
/// datagram, goes to the port in this call (from a handler: in this tick), or the result is
/// `TW_AGAIN` and the engine has nothing of it. Longer than `tw_small_bytes_max` is `TW_TOO_LARGE`.
///
/// # Safety
/// `parts` has `count` parts, each with its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_send_parts_at_once(
    engine: &tw_engine,
    peer: tw_peer,
    tag: u32,
    parts: *const tw_part,
    count: usize,
) -> tw_status {
    let tag = Tag(tag);
    // SAFETY: by this function's contract.
    unsafe {
        with_parts(engine, peer, parts, count, |c, to, parts| c.send_parts_at_once(to, tag, parts))
    }
}

/// Hands the peer and the parts to `send`, in Rust's terms.
///
/// # Safety
/// `parts` has `count` parts, each with its bytes.
unsafe fn with_parts(
    engine: &tw_engine,
    peer: tw_peer,
    parts: *const tw_part,
    count: usize,
    send: impl FnOnce(&mut Context<AnyPort>, EndpointHandle, &[&[u8]]) -> Result<(), SendError>,
) -> tw_status {
    guard(|| {
        if count > TW_PARTS_MAX || (parts.is_null() && count > 0) {
            return TW_BAD_ARGUMENT;
        }
        let mut slices = ArrayVec::<&[u8], TW_PARTS_MAX>::new();
        for i in 0..count {
            // SAFETY: by this function's contract.
            let part = unsafe { parts.add(i).read() };
            // SAFETY: the same.
            let Some(bytes) = (unsafe { slice(part.bytes, part.len_bytes) }) else {
                return TW_BAD_ARGUMENT;
            };
            slices.push(bytes);
        }
        match handle_of(peer) {
            Ok(peer) => engine
                .with_context(|c| send(c, peer, &slices))
                .map_or_else(tw_status::from, |()| TW_OK),
            Err(status) => status,
        }
    })
}

/// Sends bytes without copying them where the port gathers. They stay the engine's to read, and
/// unchanged, until `TW_EVENT_SEND_DONE` or `TW_EVENT_SEND_FAILED` under `token`; with any other
/// result than `TW_OK` they were not taken.
///
/// # Safety
/// `bytes` has `len_bytes`, for as long as said above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_send_lent(
    engine: &tw_engine,
    peer: tw_peer,
    tag: u32,
    bytes: *const c_void,
    len_bytes: usize,
    token: u64,
) -> tw_status {
    guard(|| {
        // SAFETY: by this function's contract.
        if unsafe { slice(bytes, len_bytes) }.is_none() {
            return TW_BAD_ARGUMENT;
        }
        // SAFETY: the caller promises what `Lent` asks for.
        let lent = unsafe { Lent::new(bytes.cast(), len_bytes) };
        match handle_of(peer) {
            Ok(peer) => engine
                .with_context(|c| c.send_lent(peer, Tag(tag), lent, Token(token)))
                .map_or_else(tw_status::from, |()| TW_OK),
            Err(status) => status,
        }
    })
}
