//! Endpoints: one row a peer. Hot columns first, cold ones after.

use crate::congestion::CongestionWindow;
use crate::ids::{EndpointHandle, EndpointRow, FragmentRow, Rank, SegmentRow};
use crate::ports::{PortPeer, RawAddress};
use crate::rto::Rtt;
use crate::state::flights::Flights;
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
    /// Rank to row.
    directory: Box<[Option<EndpointRow>]>,
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
    /// Only while addresses are being inserted.
    pub inserting: Column<EndpointRow, Option<Box<Inserting>>>,
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
            directory: vec![None; ranks as usize].into(),
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
            rx_ring: Column::new(n, None),
            flags: Column::new(n, 0),
            arrivals_unacked: Column::new(n, 0),
            receiving: Column::new(n, List::default()),
            arrived: Column::new(n, 0),
            ack_deadline: Column::new(n, 0),
            rtt: Column::new(n, Rtt::default()),
            backoff: Column::new(n, 0),
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
            inserting: Column::from_fn(n, |_| None),
        }
    }

    /// The peer of a rank, if there is one. Any number may be asked for.
    #[inline]
    pub fn by_rank(&self, rank: u32) -> Option<EndpointRow> {
        *self.directory.get(rank as usize)?
    }

    /// Ranks that the directory has room for.
    pub fn ranks_max(&self) -> u32 {
        self.directory.len() as u32
    }

    pub fn list_rank(&mut self, rank: Rank, ep: Option<EndpointRow>) {
        self.directory[rank.0 as usize] = ep;
    }

    #[inline]
    pub fn has(&self, ep: EndpointRow, flag: u16) -> bool {
        self.flags[ep] & flag != 0
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
            rx_ring,
            flags,
            arrivals_unacked,
            receiving,
            arrived,
            ack_deadline,
            rtt,
            backoff,
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
            inserting,
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
            rx_ring.bytes(),
            flags.bytes(),
            arrivals_unacked.bytes(),
            receiving.bytes(),
            arrived.bytes(),
            ack_deadline.bytes(),
            rtt.bytes(),
            backoff.bytes(),
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
            inserting.bytes(),
        ];
        slab.bytes() + size_of_val(&**directory) + columns.iter().sum::<usize>()
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
