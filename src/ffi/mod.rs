//! The C interface, `include/tickwire.h`: opaque handles, status codes with texts, no unwinding.
//!
//! The header is made from this folder by cbindgen (`tests/header.rs` compares and, asked to,
//! writes it). Each function checks what it is given as far as that can be checked; a null or
//! dangling engine cannot, and is the caller's bug, as everywhere in C.

#![allow(unsafe_code, non_camel_case_types)]

mod engine;
mod events;
mod options;
mod peers;
mod sends;

pub use engine::*;
pub use events::*;
pub use options::*;
pub use peers::*;
pub use sends::*;

use crate::error::{BuildError, PeerError, SendError};
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Version of this interface: functions may be added while it stays the same.
pub const TW_API_VERSION: u32 = 1;

/// How a call ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tw_status {
    /// Done.
    TW_OK = 0,
    /// No room now: tick, then try again. Something is outstanding and will come back.
    TW_AGAIN = 1,
    /// The handle names no peer (any more).
    TW_NO_PEER = 2,
    /// The peer is dead or unreachable, or one of the sides has closed.
    TW_CLOSED = 3,
    /// The peer does not take messages of this size.
    TW_TOO_LARGE = 4,
    /// An argument is null, out of range or unknown.
    TW_BAD_ARGUMENT = 5,
    /// The address blob is none, or not one of this job with these settings.
    TW_BAD_ADDRESS = 6,
    /// A table is full.
    TW_FULL = 7,
    /// The port cannot be opened: the error text says why.
    TW_UNUSABLE = 8,
    /// Not from inside an event handler.
    TW_BUSY = 9,
    /// A bug in tickwire; the engine must not be used any more.
    TW_BUG = 10,
}

use tw_status::*;

const TEXTS: [&CStr; 11] = [
    c"done",
    c"no room now: tick, then try again",
    c"no such peer",
    c"the peer is dead, unreachable or closed",
    c"the message is larger than the peer takes",
    c"an argument is null, out of range or unknown",
    c"not an address of a process of this job with these settings",
    c"a table is full",
    c"the port cannot be opened",
    c"not to be called from inside an event handler",
    c"a bug in tickwire: the engine must not be used any more",
];

/// What a status means, in words. Any number may be asked for; the text is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn tw_status_text(status: i32) -> *const c_char {
    let text = usize::try_from(status).ok().and_then(|index| TEXTS.get(index));
    text.copied().unwrap_or(c"unknown status").as_ptr()
}

/// Version of the library, such as `0.1.0`; never freed.
#[unsafe(no_mangle)]
pub extern "C" fn tw_version() -> *const c_char {
    const TEXT: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    TEXT.as_ptr().cast()
}

/// Version of the interface that the library was built with, to be compared with
/// `TW_API_VERSION` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn tw_api_version() -> u32 {
    TW_API_VERSION
}

impl From<SendError> for tw_status {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Again => TW_AGAIN,
            SendError::NoPeer => TW_NO_PEER,
            SendError::Closed => TW_CLOSED,
            SendError::TooLarge { .. } => TW_TOO_LARGE,
        }
    }
}

impl From<&PeerError> for tw_status {
    fn from(error: &PeerError) -> Self {
        match error {
            PeerError::Full { .. } | PeerError::RankTooHigh { .. } => TW_FULL,
            _ => TW_BAD_ADDRESS,
        }
    }
}

impl From<&BuildError> for tw_status {
    fn from(error: &BuildError) -> Self {
        match error {
            BuildError::Config { .. } => TW_BAD_ARGUMENT,
            _ => TW_UNUSABLE,
        }
    }
}

/// Runs `body`; a panic in it is a bug of ours and must not unwind into C.
fn guard(body: impl FnOnce() -> tw_status) -> tw_status {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(TW_BUG)
}

/// Bytes that C hands in; `None` when they are null and not empty.
///
/// # Safety
/// `bytes` points to `len_bytes` readable bytes, or is null.
unsafe fn slice<'a>(bytes: *const c_void, len_bytes: usize) -> Option<&'a [u8]> {
    if len_bytes == 0 {
        return Some(&[]);
    }
    if bytes.is_null() || len_bytes > isize::MAX as usize {
        return None;
    }
    // SAFETY: not null, and readable by this function's contract.
    Some(unsafe { std::slice::from_raw_parts(bytes.cast(), len_bytes) })
}

/// Text that C hands in; `None` when it is null or not UTF-8.
///
/// # Safety
/// `text` is null or ends in a zero byte.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, and terminated by this function's contract.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

/// Where C wants text: as much as fits, always terminated.
///
/// # Safety
/// `out` points to `out_bytes` writable bytes, or is null.
unsafe fn put_text(out: *mut c_char, out_bytes: usize, text: &str) {
    let Some(room) = out_bytes.checked_sub(1) else { return };
    if out.is_null() {
        return;
    }
    let mut len = text.len().min(room);
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    // SAFETY: `len` and one more are within the writable bytes; the text is memory of ours.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), out.cast(), len);
        out.add(len).write(0);
    }
}
