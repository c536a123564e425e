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
    /// Least round trip seen in it; `u32::MAX`: none yet.
    pub least_in_round_ns: Column<RingId, u32>,
    /// Round trips that it told of: of the network; of a receiver that was away.
    pub samples_in_round: Column<RingId, u16>,
    pub blind_in_round: Column<RingId, u16>,
    /// A resend in it was for nothing.
    pub is_round_reordered: Column<RingId, bool>,
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
            least_in_round_ns: Column::new(n, u32::MAX),
            samples_in_round: Column::new(n, 0),
            blind_in_round: Column::new(n, 0),
            is_round_reordered: Column::new(n, false),
            lost_in_round: Column::new(n, 0),
        }
    }

    /// A fresh flight of a peer whose next number is `next`, or `None` when all are in use.
    pub fn take(&mut self, next: Seq) -> Option<RingId> {
        let id = self.rings.take()?;
        self.deadline_ns[id] = 0;
        self.newest_acked_sent_ns[id] = 0;
        self.newest_acked[id] = next;
        self.begin_round(id, next);
        Some(id)
    }

    /// The congestion window's next round begins; it is over when all before `next` are acked.
    #[inline]
    pub fn begin_round(&mut self, id: RingId, next: Seq) {
        self.round_ends[id] = next;
        self.least_in_round_ns[id] = u32::MAX;
        self.samples_in_round[id] = 0;
        self.blind_in_round[id] = 0;
        self.is_round_reordered[id] = false;
        self.lost_in_round[id] = 0;
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
