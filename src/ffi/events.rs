//! Events on their way to C.

use super::tw_engine;
use crate::address::PeerAddress;
use crate::context::Context;
use crate::event::{Event, Handler};
use crate::ids::Rank;
use crate::ports::any::AnyPort;
use std::ffi::{CString, c_char, c_void};
use std::ptr::null;
use tickwire_tables::handle::Handle;

/// A peer; 0 is none. Goes stale when the peer is removed.
pub type tw_peer = u32;

/// What happened.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tw_event_kind {
    /// A message arrived: `peer`, `tag`, `bytes`, `len_bytes`. The bytes are lent for the call.
    TW_EVENT_RECEIVED = 1,
    /// The peer has everything of a message sent under `token`.
    TW_EVENT_SEND_DONE = 2,
    /// The message sent under `token` will never arrive; its memory is the caller's again.
    TW_EVENT_SEND_FAILED = 3,
    /// The peer's addresses are usable.
    TW_EVENT_PEER_READY = 4,
    /// The peer cannot be reached: `rank`, `text`.
    TW_EVENT_PEER_UNREACHABLE = 5,
    /// The peer is dead: `rank`, `text`. Told once.
    TW_EVENT_PEER_DEAD = 6,
    /// The peer has closed: everything it sent has arrived.
    TW_EVENT_PEER_CLOSED = 7,
}

use tw_event_kind::*;

/// One event. Fields that its kind does not name are 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tw_event {
    /// What happened.
    pub kind: tw_event_kind,
    /// Which peer it is about.
    pub peer: tw_peer,
    /// The peer's rank.
    pub rank: u32,
    /// The sender's label on a message.
    pub tag: u32,
    /// The sender's own name for a message.
    pub token: u64,
    /// The message.
    pub bytes: *const c_void,
    /// Its length.
    pub len_bytes: u64,
    /// For people: who, and why. Lent for the call.
    pub text: *const c_char,
}

/// Hears of an event. May call what sends; see `tw_engine`.
pub type tw_handler = Option<unsafe extern "C" fn(user: *mut c_void, event: *const tw_event)>;

/// A process of this job that was never added sends something: copy its address blob to `out` (of
/// `out_bytes`) and return the length, and it is added and heard; 0: it is not known (yet).
pub type tw_stranger = Option<
    unsafe extern "C" fn(user: *mut c_void, rank: u32, out: *mut c_void, out_bytes: usize) -> usize,
>;

/// No address is longer.
pub const TW_ADDRESS_BYTES_MAX: usize = 512;
const _: () = assert!(PeerAddress::BYTES_MAX <= TW_ADDRESS_BYTES_MAX);

pub(super) struct CHandler<'a> {
    pub api: &'a tw_engine,
}

impl CHandler<'_> {
    fn tell(&self, context: &mut Context<AnyPort>, event: &tw_event) {
        let Some(handler) = self.api.handler() else { return };
        self.api.handle(context, |user| {
            // SAFETY: a handler of the type asked for, with the user's own pointer.
            unsafe { handler(user, event) }
        });
    }

    fn tell_of_end(
        &self,
        context: &mut Context<AnyPort>,
        mut event: tw_event,
        name: &str,
        why: &str,
    ) {
        let text = format!("rank {} ({name}): {why}", event.rank).replace('\0', "?");
        let text = CString::new(text).unwrap_or_default();
        event.text = text.as_ptr();
        self.tell(context, &event);
    }
}

impl Handler<AnyPort> for CHandler<'_> {
    #[inline]
    fn on_event(&mut self, context: &mut Context<AnyPort>, event: Event<'_>) {
        let mut it = tw_event {
            kind: TW_EVENT_RECEIVED,
            peer: 0,
            rank: 0,
            tag: 0,
            token: 0,
            bytes: null(),
            len_bytes: 0,
            text: null(),
        };
        match event {
            Event::Received(message) => {
                let bytes = message.bytes();
                it.peer = message.from.to_bits();
                it.tag = message.tag.0;
                (it.bytes, it.len_bytes) = (bytes.as_ptr().cast(), bytes.len() as u64);
                it.rank = context.rank(message.from).map_or(0, |rank| rank.0);
                self.tell(context, &it);
            }
            Event::SendDone { to, token, buffer: _ } => {
                (it.kind, it.peer, it.token) = (TW_EVENT_SEND_DONE, to.to_bits(), token.0);
                self.tell(context, &it);
            }
            Event::SendFailed { to, token, buffer: _ } => {
                (it.kind, it.peer, it.token) = (TW_EVENT_SEND_FAILED, to.to_bits(), token.0);
                self.tell(context, &it);
            }
            Event::PeerReady { peer } => {
                (it.kind, it.peer) = (TW_EVENT_PEER_READY, peer.to_bits());
                self.tell(context, &it);
            }
            Event::PeerClosed { peer } => {
                (it.kind, it.peer) = (TW_EVENT_PEER_CLOSED, peer.to_bits());
                self.tell(context, &it);
            }
            Event::PeerUnreachable { peer, rank, name, reason } => {
                (it.kind, it.peer, it.rank) = (TW_EVENT_PEER_UNREACHABLE, peer.to_bits(), rank.0);
                self.tell_of_end(context, it, name, reason);
            }
            Event::PeerDead { peer, rank, name, cause } => {
                (it.kind, it.peer, it.rank) = (TW_EVENT_PEER_DEAD, peer.to_bits(), rank.0);
                self.tell_of_end(context, it, name, &cause.to_string());
            }
            // No destination is ever named here, and no port of C's watches its link.
            Event::ReceiveFailed { .. } | Event::Link(_) => {}
        }
    }

    fn stranger(&mut self, context: &mut Context<AnyPort>, rank: Rank) -> Option<PeerAddress> {
        let ask = self.api.stranger()?;
        let mut blob = [0u8; TW_ADDRESS_BYTES_MAX];
        let len = self.api.handle(context, |user| {
            // SAFETY: a function of the type asked for; the memory is as long as it is told.
            unsafe { ask(user, rank.0, blob.as_mut_ptr().cast(), blob.len()) }
        });
        PeerAddress::from_bytes(blob.get(..len).filter(|blob| !blob.is_empty())?).ok()
    }
}
