//! Segments: one row per slot for outgoing datagrams. A row's index is its slot in the arena.
//!
//! A row is free, ready (packed, no number yet), in flight, lost (to be sent again), or acked and
//! waiting for the port to let go of the slot. Ready, flight and lost are lists of the endpoint;
//! one `Links` column serves them, so a row is in at most one.

use crate::ids::{EndpointRow, FragmentRow, SegmentHandle, SegmentRow};
use tickwire_tables::column::Column;
use tickwire_tables::handle::Row;
use tickwire_tables::list::Links;
use tickwire_tables::seq::Seq;
use tickwire_tables::slab::Slab;

pub(crate) mod flag {
    /// The port holds the slot.
    pub const POSTED: u8 = 1;
    /// In the endpoint's lost list.
    pub const LOST: u8 = 2;
    /// Acked or abandoned while posted: free it when the port gives it back.
    pub const RELEASED: u8 = 4;
    /// Carries a slice of a large message.
    pub const CHUNK: u8 = 8;
    /// The payload is gathered from the fragment's buffer; the slot holds headers only.
    pub const GATHERED: u8 = 16;
    /// In the batch that is about to be posted.
    pub const BATCHED: u8 = 32;
}

pub(crate) struct Segments {
    pub slab: Slab<SegmentHandle>,
    pub links: Links<SegmentRow>,
    pub flags: Column<SegmentRow, u8>,
    pub transmissions: Column<SegmentRow, u8>,
    pub seq: Column<SegmentRow, Seq>,
    pub ep: Column<SegmentRow, EndpointRow>,
    pub frag: Column<SegmentRow, Option<FragmentRow>>,
    pub tag: Column<SegmentRow, u32>,
    pub payload_bytes: Column<SegmentRow, u32>,
    /// Chunk: where the slice starts in its message.
    pub offset_bytes: Column<SegmentRow, u64>,
    /// Chunk: the message's number among those of this sender.
    pub fragment_id: Column<SegmentRow, u16>,
    pub sent_ns: Column<SegmentRow, u64>,
    /// Slots for standalone acks that are not with the port.
    pub ack_slots_free: Vec<u32>,
    ack_slots: u32,
}

impl Segments {
    pub fn new(send_slots: u32, ack_slots: u32) -> Self {
        let n = send_slots as usize;
        let nobody = EndpointRow::from_index(0);
        Self {
            slab: Slab::new(n),
            links: Links::new(n),
            flags: Column::new(n, 0),
            transmissions: Column::new(n, 0),
            seq: Column::new(n, Seq::new(0)),
            ep: Column::new(n, nobody),
            frag: Column::new(n, None),
            tag: Column::new(n, 0),
            payload_bytes: Column::new(n, 0),
            offset_bytes: Column::new(n, 0),
            fragment_id: Column::new(n, 0),
            sent_ns: Column::new(n, 0),
            ack_slots_free: (send_slots..send_slots + ack_slots).rev().collect(),
            ack_slots,
        }
    }

    /// A fresh row for `ep`, or `None` when all slots are in use. Its tag, and what chunks have,
    /// are the caller's to set.
    #[inline]
    pub fn take(&mut self, ep: EndpointRow, payload_bytes: u32) -> Option<SegmentRow> {
        let seg = self.slab.insert()?;
        self.flags[seg] = 0;
        self.transmissions[seg] = 0;
        self.ep[seg] = ep;
        self.frag[seg] = None;
        self.payload_bytes[seg] = payload_bytes;
        Some(seg)
    }

    /// Whether the port reads the slot, or is about to.
    #[inline]
    pub fn is_with_port(&self, seg: SegmentRow) -> bool {
        self.flags[seg] & (flag::POSTED | flag::BATCHED) != 0
    }

    #[inline]
    pub fn has(&self, seg: SegmentRow, flag: u8) -> bool {
        self.flags[seg] & flag != 0
    }

    /// Whether `slot` is one of the ack slots.
    #[inline]
    pub fn is_ack_slot(&self, slot: u32) -> bool {
        let first = self.slab.capacity() as u32;
        (first..first + self.ack_slots).contains(&slot)
    }
}
