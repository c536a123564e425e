//! Flights: what only a peer with unacked segments needs. A row is taken with the peer's send ring
//! and goes back with it, so idle peers do not pay for it.

use crate::ids::SegmentRow;
use tickwire_tables::column::Column;
use tickwire_tables::list::List;
use tickwire_tables::ring::{RingId, RingPool};
use tickwire_tables::seq::Seq;

pub(crate) struct Flights {
    /// Sequence number to segment, one ring a flight.
    pub rings: RingPool<u32>,
    /// Sent and neither acked nor lost, in order of sending.
    pub flight: Column<RingId, List<SegmentRow>>,
    /// To be sent again, oldest first.
    pub lost: Column<RingId, List<SegmentRow>>,
    /// When to send the lowest unacked segment again; 0: nothing is outstanding.
    pub deadline_ns: Column<RingId, u64>,
    /// When the newest segment known to have arrived was sent, and its number (RFC 8985, 6.1).
    pub newest_acked_sent_ns: Column<RingId, u64>,
    pub newest_acked: Column<RingId, Seq>,
    /// The congestion window's present round trip: over when this number is acked.
    pub round_ends: Column<RingId, Seq>,
    /// Segments found to be lost in it.
    pub lost_in_round: Column<RingId, u32>,
}

impl Flights {
    pub fn new(flights: u32, window: u32) -> Self {
        let n = flights as usize;
        Self {
            rings: RingPool::new(n, window as usize),
            flight: Column::new(n, List::default()),
            lost: Column::new(n, List::default()),
            deadline_ns: Column::new(n, 0),
            newest_acked_sent_ns: Column::new(n, 0),
            newest_acked: Column::new(n, Seq::new(0)),
            round_ends: Column::new(n, Seq::new(0)),
            lost_in_round: Column::new(n, 0),
        }
    }

    /// A fresh flight of a peer whose next number is `next`, or `None` when all are in use.
    pub fn take(&mut self, next: Seq) -> Option<RingId> {
        let id = self.rings.take()?;
        self.deadline_ns[id] = 0;
        self.newest_acked_sent_ns[id] = 0;
        self.newest_acked[id] = next;
        self.round_ends[id] = next;
        self.lost_in_round[id] = 0;
        Some(id)
    }

    /// Gives a flight back that has landed.
    pub fn give(&mut self, id: RingId) {
        debug_assert!(
            self.flight[id].is_empty() && self.lost[id].is_empty(),
            "I-02: a flight that has landed has no segments"
        );
        self.rings.give(id);
    }
}
