//! Fragments: one row for one message in work on one side.

use crate::ids::{EndpointHandle, EndpointRow, FragmentHandle, FragmentRow, SegmentRow, Token};
use crate::ports::memory::Lent;
use tickwire_tables::column::Column;
use tickwire_tables::handle::{Handle, Row};
use tickwire_tables::list::Links;
use tickwire_tables::seq::Seq;
use tickwire_tables::slab::Slab;

/// What a fragment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A small message already packed in its slot: waiting its turn, or sent with a token.
    Small,
    /// A large message being sent.
    Large,
    /// A large message being reassembled.
    Receive,
}

/// Whose memory a large message lives in.
#[derive(Debug)]
pub(crate) enum Buffer {
    /// From the engine's pool, back to it when done.
    Pooled(Vec<u8>),
    /// The user's, back to the user when done.
    Owned(Vec<u8>),
    /// The user's, only lent; sends alone.
    Lent(Lent),
}

impl Buffer {
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Buffer::Pooled(bytes) | Buffer::Owned(bytes) => bytes,
            Buffer::Lent(lent) => lent.bytes(),
        }
    }

    /// The memory of a receive.
    #[inline]
    pub fn vec_mut(&mut self) -> &mut Vec<u8> {
        match self {
            Buffer::Pooled(bytes) | Buffer::Owned(bytes) => bytes,
            Buffer::Lent(_) => unreachable!("nothing is received into memory lent for reading"),
        }
    }
}

pub(crate) struct Fragments {
    pub slab: Slab<FragmentHandle>,
    /// Live rows that send. Sends may use half of the table and receives the other half: two
    /// sides whose tables are full of sends would wait for each other for ever.
    sends: usize,
    /// One list at a time: the endpoint's pending or receiving one, or the finished one.
    pub links: Links<FragmentRow>,
    pub kind: Column<FragmentRow, Kind>,
    /// The other side; a handle, as a row of a removed peer may outlive it by a completion.
    pub peer: Column<FragmentRow, EndpointHandle>,
    /// Given up: the peer is unreachable or removed.
    pub failed: Column<FragmentRow, bool>,
    pub tag: Column<FragmentRow, u32>,
    /// The message's number among those of its sender; unique among those in the window.
    pub id: Column<FragmentRow, u16>,
    pub total_bytes: Column<FragmentRow, u64>,
    /// Large: bytes packed so far. Receive: bytes arrived so far.
    pub done_bytes: Column<FragmentRow, u64>,
    /// Sends: segments packed and not yet acked.
    pub unacked: Column<FragmentRow, u32>,
    pub token: Column<FragmentRow, Option<Token>>,
    pub buffer: Column<FragmentRow, Option<Buffer>>,
    /// Receive: the number of its first chunk; the others follow it (wire 3.4).
    pub first_seq: Column<FragmentRow, Seq>,
    /// Small: its segment, while it waits behind a large one.
    pub seg: Column<FragmentRow, Option<SegmentRow>>,
}

impl Fragments {
    pub fn new(capacity: u32) -> Self {
        let n = capacity as usize;
        Self {
            slab: Slab::new(n),
            sends: 0,
            links: Links::new(n),
            kind: Column::new(n, Kind::Small),
            peer: Column::new(n, EndpointHandle::new(EndpointRow::from_index(0), 1)),
            failed: Column::new(n, false),
            tag: Column::new(n, 0),
            id: Column::new(n, 0),
            total_bytes: Column::new(n, 0),
            done_bytes: Column::new(n, 0),
            unacked: Column::new(n, 0),
            token: Column::new(n, None),
            buffer: Column::from_fn(n, |_| None),
            first_seq: Column::new(n, Seq::new(0)),
            seg: Column::new(n, None),
        }
    }

    /// A fresh row, or `None` when the half that `kind` may use is in use.
    pub fn take(
        &mut self,
        kind: Kind,
        peer: EndpointHandle,
        tag: u32,
        total: u64,
    ) -> Option<FragmentRow> {
        let is_send = kind != Kind::Receive;
        if is_send && self.sends >= self.slab.capacity() / 2 {
            return None;
        }
        let frag = self.slab.insert()?;
        self.sends += usize::from(is_send);
        self.kind[frag] = kind;
        self.peer[frag] = peer;
        self.failed[frag] = false;
        self.tag[frag] = tag;
        self.id[frag] = 0;
        self.total_bytes[frag] = total;
        self.done_bytes[frag] = 0;
        self.unacked[frag] = 0;
        self.token[frag] = None;
        self.seg[frag] = None;
        debug_assert!(self.buffer[frag].is_none());
        Some(frag)
    }

    /// Frees a row.
    pub fn free(&mut self, frag: FragmentRow) {
        self.sends -= usize::from(self.kind[frag] != Kind::Receive);
        self.slab.remove(frag);
    }

    /// Whether receives may take one more row; early ones leave half of the receives' share, so
    /// that what is in order always finds one.
    pub fn has_room(&self, early: bool) -> bool {
        let receives = self.slab.len() - self.sends;
        receives < self.slab.capacity() / if early { 4 } else { 2 }
    }
}
