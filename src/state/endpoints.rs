//! Endpoints: one row a peer. Hot columns first, cold ones after.

use crate::congestion::CongestionWindow;
use crate::ids::{EndpointHandle, EndpointRow, FragmentRow, Rank, SegmentRow};
use crate::ports::{PortPeer, RawAddress};
use crate::rto::{ReorderScale, Rtt};
use crate::state::directory::Directory;
use crate::state::flights::Flights;
use crate::window::{self, Place};
use crate::wire::extend;
use std::collections::BTreeMap;
use tickwire_tables::column::Column;
use tickwire_tables::list::List;
use tickwire_tables::ring::{RingId, RingPool};
use tickwire_tables::seq::Seq;
use tickwire_tables::slab::Slab;

pub(crate) mod flag {
    /// Both addresses are usable.
    pub const READY: u16 = 1;
    /// Something arrived that no ack has told of.
    pub const ACK_PENDING: u16 = 2;
    /// The ack must carry the bitmap, or answer a duplicate: it cannot ride on data.
    pub const ACK_ALONE: u16 = 4;
    /// A due ack was left to ride on data once; not again.
    pub const ACK_DEFERRED: u16 = 8;
    /// Dead, unreachable or replaced: sends are refused, what it sends is dropped.
    pub const GONE: u16 = 16;
    /// No new sends; a goodbye follows once everything is acked.
    pub const CLOSING: u16 = 32;
    /// The peer has said goodbye.
    pub const BYE_HEARD: u16 = 64;
    /// The next standalone ack is a goodbye.
    pub const BYE_DUE: u16 = 128;
    /// The next standalone ack asks for one in return.
    pub const PROBE_DUE: u16 = 256;
    /// The user wants to know when it dies, also while nothing is outstanding.
    pub const WATCHED: u16 = 512;
    /// Something was sent to it or has arrived from it.
    pub const MET: u16 = 1024;
    /// What only a standalone ack can say.
    pub const SAYS_ALONE: u16 = ACK_ALONE | BYE_DUE | PROBE_DUE;
    /// What asks for an ack of any kind.
    pub const ACK_WANTED: u16 = ACK_PENDING | BYE_DUE | PROBE_DUE;
}

/// What the receive ring knows of a segment that arrived early.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Early {
    /// Delivered or copied already; nothing to do when its turn comes.
    #[default]
    Done,
    /// A small message, still in its receive slot.
    Held { slot: u32, len_bytes: u32 },
    /// The last chunk of a large message.
    LastChunk(FragmentRow),
}

pub(crate) struct Endpoints {
    pub slab: Slab<EndpointHandle>,
    pub directory: Directory,
    pub flights: Flights,
    pub rx_rings: RingPool<Early>,

    // Sending. `[acked, next_seq)` is outstanding; numbers from `send_limit` on must wait.
    pub next_seq: Column<EndpointRow, Seq>,
    pub acked: Column<EndpointRow, Seq>,
    pub send_limit: Column<EndpointRow, Seq>,
    /// Its row in `flights`, while segments are unacked.
    pub tx_ring: Column<EndpointRow, Option<RingId>>,
    pub congestion: Column<EndpointRow, CongestionWindow>,
    /// Packed, without a number.
    pub ready: Column<EndpointRow, List<SegmentRow>>,
    /// Messages not wholly packed, in order.
    pub pending: Column<EndpointRow, List<FragmentRow>>,

    // Receiving.
    pub expected: Column<EndpointRow, Seq>,
    /// High halves of the numbers of 64 bits that tags cover (wire 5.3).
    pub turns: Column<EndpointRow, PeerTurns>,
    /// Low halves of the newest standalone acks' own numbers (wire 5.4): of ours, of theirs.
    pub controls: Column<EndpointRow, [u32; 2]>,
    pub rx_ring: Column<EndpointRow, Option<RingId>>,
    pub flags: Column<EndpointRow, u16>,
    pub arrivals_unacked: Column<EndpointRow, u16>,
    /// Large messages half received.
    pub receiving: Column<EndpointRow, List<FragmentRow>>,
    /// When the newest arrival came, as [`crate::time::coarse`] time: enough for an ack's delay.
    pub arrived: Column<EndpointRow, u32>,
    /// When a delayed ack is due, as [`crate::time::coarse`] time.
    pub ack_deadline: Column<EndpointRow, u32>,

    // Timers.
    pub rtt: Column<EndpointRow, Rtt>,
    pub backoff: Column<EndpointRow, u8>,
    pub reorder_scale: Column<EndpointRow, ReorderScale>,
    /// Since when the peer owes a sign of life, in [`LiveMillis`].
    pub silent_since: Column<EndpointRow, LiveMillis>,
    /// What its last failed send was told, an errno-like code; 0 once it has been heard since.
    pub send_error: Column<EndpointRow, i16>,

    // Cold.
    pub rank: Column<EndpointRow, Rank>,
    /// What its datagrams carry, and ours to it (wire 2.7).
    pub session_in: Column<EndpointRow, u32>,
    pub session_out: Column<EndpointRow, u32>,
    pub addresses: Column<EndpointRow, [PortPeer; 2]>,
    pub payload_bytes_max: Column<EndpointRow, u16>,
    pub message_bytes_max: Column<EndpointRow, u64>,
    pub fragment_id_next: Column<EndpointRow, u16>,
    /// For people.
    pub name: Column<EndpointRow, Box<str>>,
    /// Those whose addresses are being inserted; who is idle costs nothing here.
    pub inserting: BTreeMap<EndpointRow, Inserting>,
}

/// Time that this process was awake for, in steps of 2^20 ns (about a millisecond): for silences.
/// A pause of this process is no silence of its peers. Wraps after 52 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveMillis(pub u32);

impl LiveMillis {
    const SHIFT: u32 = 20;

    #[inline]
    pub fn from_ns(live_ns: u64) -> Self {
        Self((live_ns >> Self::SHIFT) as u32)
    }

    /// Nanoseconds from `self` to `live_ns`.
    #[inline]
    pub fn elapsed_ns(self, live_ns: u64) -> u64 {
        u64::from(Self::from_ns(live_ns).0.wrapping_sub(self.0)) << Self::SHIFT
    }
}

/// How often numbers of a peer have wrapped: bits 32 to 47 of numbers of 64 bits. An endpoint has
/// no room for more, and 2^48 segments to one peer take months at full speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PeerTurns {
    pub next_seq: u16,
    pub expected: u16,
    /// Of standalone acks' own numbers: of ours, of theirs.
    pub controls: [u16; 2],
}

/// Places in `controls`.
const OURS: usize = 0;
const THEIRS: usize = 1;

/// The high half of a number of 64 bits, as a tag covers it: turns have 16 bits.
#[inline]
pub(crate) fn turn(number: u64) -> u32 {
    u32::from((number >> 32) as u16)
}

/// The addresses of a peer on their way into the port.
#[derive(Clone, Debug)]
pub(crate) struct Inserting {
    pub raw: [RawAddress; 2],
    pub started: u8,
    pub done: u8,
    /// Why the port refused one of them.
    pub error: Option<Box<str>>,
}

impl Endpoints {
    pub fn new(peers: u32, ranks: u32, rings: u32, window: u32) -> Self {
        let n = peers as usize;
        let zero = Seq::new(0);
        Self {
            slab: Slab::new(n),
            directory: Directory::new(ranks),
            flights: Flights::new(rings, window),
            rx_rings: RingPool::new(rings as usize, window as usize),
            next_seq: Column::new(n, zero),
            acked: Column::new(n, zero),
            send_limit: Column::new(n, zero),
            tx_ring: Column::new(n, None),
            congestion: Column::new(n, CongestionWindow::new(0)),
            ready: Column::new(n, List::default()),
            pending: Column::new(n, List::default()),
            expected: Column::new(n, zero),
            turns: Column::new(n, PeerTurns::default()),
            controls: Column::new(n, [0; 2]),
            rx_ring: Column::new(n, None),
            flags: Column::new(n, 0),
            arrivals_unacked: Column::new(n, 0),
            receiving: Column::new(n, List::default()),
            arrived: Column::new(n, 0),
            ack_deadline: Column::new(n, 0),
            rtt: Column::new(n, Rtt::default()),
            backoff: Column::new(n, 0),
            reorder_scale: Column::new(n, ReorderScale::default()),
            silent_since: Column::new(n, LiveMillis(0)),
            send_error: Column::new(n, 0),
            rank: Column::new(n, Rank(0)),
            session_in: Column::new(n, 0),
            session_out: Column::new(n, 0),
            addresses: Column::new(n, [PortPeer::NONE; 2]),
            payload_bytes_max: Column::new(n, 0),
            message_bytes_max: Column::new(n, 0),
            fragment_id_next: Column::new(n, 0),
            name: Column::from_fn(n, |_| Box::default()),
            inserting: BTreeMap::new(),
        }
    }

    /// The peer of a rank, if there is one. Any number may be asked for.
    #[inline]
    pub fn by_rank(&self, rank: u32) -> Option<EndpointRow> {
        self.directory.get(rank)
    }

    #[inline]
    pub fn has(&self, ep: EndpointRow, flag: u16) -> bool {
        self.flags[ep] & flag != 0
    }

    /// The next number to send is taken: moves on to the one after it.
    #[inline]
    pub fn take_next_seq(&mut self, ep: EndpointRow) -> Seq {
        let seq = self.next_seq[ep];
        self.next_seq[ep] = seq.next();
        if seq.get() == u32::MAX {
            self.turns[ep].next_seq = self.turns[ep].next_seq.wrapping_add(1);
        }
        seq
    }

    /// The expected segment has arrived: the one after it is expected.
    #[inline]
    pub fn advance_expected(&mut self, ep: EndpointRow) {
        let expected = self.expected[ep];
        self.expected[ep] = expected.next();
        if expected.get() == u32::MAX {
            self.turns[ep].expected = self.turns[ep].expected.wrapping_add(1);
        }
    }

    /// Next to send, in 64 bits.
    #[inline]
    pub fn next_seq64(&self, ep: EndpointRow) -> u64 {
        u64::from(self.turns[ep].next_seq) << 32 | u64::from(self.next_seq[ep].get())
    }

    /// Next expected, in 64 bits.
    #[inline]
    pub fn expected64(&self, ep: EndpointRow) -> u64 {
        u64::from(self.turns[ep].expected) << 32 | u64::from(self.expected[ep].get())
    }

    fn control64(&self, ep: EndpointRow, whose: usize) -> u64 {
        u64::from(self.turns[ep].controls[whose]) << 32 | u64::from(self.controls[ep][whose])
    }

    fn set_control64(&mut self, ep: EndpointRow, whose: usize, number: u64) {
        self.controls[ep][whose] = number as u32;
        self.turns[ep].controls[whose] = (number >> 32) as u16;
    }

    /// The number of the next standalone ack to the peer (wire 5.4).
    pub fn take_control(&mut self, ep: EndpointRow) -> u64 {
        let number = self.control64(ep, OURS).wrapping_add(1);
        self.set_control64(ep, OURS, number);
        number
    }

    /// The whole number of a standalone ack of the peer's.
    pub fn extend_control(&self, ep: EndpointRow, low: u32) -> u64 {
        extend(low, self.control64(ep, THEIRS))
    }

    /// Takes in the number of a standalone ack that the peer has certainly sent. False: one as
    /// new, or newer, has come before.
    pub fn accept_control(&mut self, ep: EndpointRow, low: u32) -> bool {
        let newest = self.control64(ep, THEIRS);
        let number = extend(low, newest);
        let is_news = number.wrapping_sub(newest) as i64 > 0;
        if is_news {
            self.set_control64(ep, THEIRS, number);
        }
        is_news
    }

    /// Whether a segment has arrived before.
    pub fn has_arrived(&self, ep: EndpointRow, seq: Seq, window: u32) -> bool {
        match window::place(seq, self.expected[ep], window) {
            Place::Expected | Place::Above => false,
            Place::Behind => true,
            Place::Ahead => {
                let ring = self.rx_ring[ep];
                ring.is_some_and(|ring| self.rx_rings.get(ring, seq.get()).is_some())
            }
        }
    }

    /// Segments sent and neither acked nor lost.
    #[inline]
    pub fn in_flight(&self, ep: EndpointRow) -> u32 {
        self.tx_ring[ep].map_or(0, |id| self.flights.flight[id].len() as u32)
    }

    /// Segments waiting to be sent again.
    #[inline]
    pub fn lost_len(&self, ep: EndpointRow) -> u32 {
        self.tx_ring[ep].map_or(0, |id| self.flights.lost[id].len() as u32)
    }

    /// Slots that the peer's outgoing segments take up.
    #[inline]
    pub fn slots_held(&self, ep: EndpointRow) -> u32 {
        self.ready[ep].len() as u32 + self.in_flight(ep) + self.lost_len(ep)
    }

    /// No less than [`Self::slots_held`], from what a send looks at anyway.
    #[inline]
    pub fn slots_held_max(&self, ep: EndpointRow) -> u32 {
        self.ready[ep].len() as u32 + self.next_seq[ep].distance_from(self.acked[ep]) as u32
    }

    /// The flight of a peer that has segments outstanding.
    #[inline]
    pub fn flight_of(&self, ep: EndpointRow) -> RingId {
        self.tx_ring[ep].expect("I-02: what is outstanding has a ring")
    }

    /// Nothing waits and nothing is unacked.
    pub fn is_drained(&self, ep: EndpointRow) -> bool {
        self.acked[ep] == self.next_seq[ep]
            && self.ready[ep].is_empty()
            && self.pending[ep].is_empty()
    }

    /// Memory taken for rows, in bytes, rings (which only active ones have) left out. The pattern
    /// names every column, so none can be forgotten.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        let Self {
            slab,
            directory,
            flights: _,
            rx_rings: _,
            next_seq,
            acked,
            send_limit,
            tx_ring,
            congestion,
            ready,
            pending,
            expected,
            turns,
            controls,
            rx_ring,
            flags,
            arrivals_unacked,
            receiving,
            arrived,
            ack_deadline,
            rtt,
            backoff,
            reorder_scale,
            silent_since,
            send_error,
            rank,
            session_in,
            session_out,
            addresses,
            payload_bytes_max,
            message_bytes_max,
            fragment_id_next,
            name,
            inserting: _,
        } = self;
        let columns = [
            next_seq.bytes(),
            acked.bytes(),
            send_limit.bytes(),
            tx_ring.bytes(),
            congestion.bytes(),
            ready.bytes(),
            pending.bytes(),
            expected.bytes(),
            turns.bytes(),
            controls.bytes(),
            rx_ring.bytes(),
            flags.bytes(),
            arrivals_unacked.bytes(),
            receiving.bytes(),
            arrived.bytes(),
            ack_deadline.bytes(),
            rtt.bytes(),
            backoff.bytes(),
            reorder_scale.bytes(),
            silent_since.bytes(),
            send_error.bytes(),
            rank.bytes(),
            session_in.bytes(),
            session_out.bytes(),
            addresses.bytes(),
            payload_bytes_max.bytes(),
            message_bytes_max.bytes(),
            fragment_id_next.bytes(),
            name.bytes(),
        ];
        slab.bytes() + directory.bytes() + columns.iter().sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::worklists::WorkLists;

    /// Design, section 3: an idle endpoint costs at most 256 bytes all in all, its name of 16
    /// bytes included.
    #[test]
    fn an_idle_endpoint_costs_at_most_256_bytes() {
        const PEERS: usize = 100_000;
        let endpoints = Endpoints::new(PEERS as u32, PEERS as u32, 1, 64);
        let all = endpoints.bytes() + WorkLists::new(PEERS, 0).bytes();
        let each = all.div_ceil(PEERS) + 16;
        assert!(each <= 256, "{each} bytes");
    }
}
