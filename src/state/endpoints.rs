//! Endpoints: one row a peer. Hot columns first, cold ones after.

use crate::congestion::CongestionWindow;
use crate::ids::{EndpointHandle, EndpointRow, FragmentRow, Incarnation, Rank, SegmentRow};
use crate::ports::{PortPeer, RawAddress};
use crate::rto::Rtt;
use tickwire_tables::column::Column;
use tickwire_tables::list::List;
use tickwire_tables::ring::{RingId, RingPool};
use tickwire_tables::seq::Seq;
use tickwire_tables::slab::Slab;

pub(crate) mod flag {
    /// Both addresses are usable.
    pub const READY: u8 = 1;
    /// Something arrived that no ack has told of.
    pub const ACK_PENDING: u8 = 2;
    /// The ack must carry the bitmap, or answer a duplicate: it cannot ride on data.
    pub const ACK_ALONE: u8 = 4;
    /// A due ack was left to ride on data once; not again.
    pub const ACK_DEFERRED: u8 = 8;
    /// The peer cannot be reached: sends are refused.
    pub const UNREACHABLE: u8 = 16;
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
    pub tx_rings: RingPool<u32>,
    pub rx_rings: RingPool<Early>,

    // Sending. `[acked, next_seq)` is outstanding; numbers from `send_limit` on must wait.
    pub next_seq: Column<EndpointRow, Seq>,
    pub acked: Column<EndpointRow, Seq>,
    pub send_limit: Column<EndpointRow, Seq>,
    pub tx_ring: Column<EndpointRow, Option<RingId>>,
    pub congestion: Column<EndpointRow, CongestionWindow>,
    /// Packed, without a number.
    pub ready: Column<EndpointRow, List<SegmentRow>>,
    /// Sent and neither acked nor lost, in order of sending.
    pub flight: Column<EndpointRow, List<SegmentRow>>,
    /// To be sent again, oldest first.
    pub lost: Column<EndpointRow, List<SegmentRow>>,
    /// Messages not wholly packed, in order.
    pub pending: Column<EndpointRow, List<FragmentRow>>,

    // Receiving.
    pub expected: Column<EndpointRow, Seq>,
    pub rx_ring: Column<EndpointRow, Option<RingId>>,
    pub flags: Column<EndpointRow, u8>,
    pub arrivals_unacked: Column<EndpointRow, u16>,
    /// Large messages half received.
    pub receiving: Column<EndpointRow, List<FragmentRow>>,
    /// When the newest arrival came, as [`coarse`] time: 4 bytes are enough for an ack's delay.
    pub arrived: Column<EndpointRow, u32>,
    /// When a delayed ack is due, as [`coarse`] time.
    pub ack_deadline: Column<EndpointRow, u32>,

    // Timers.
    pub rtt: Column<EndpointRow, Rtt>,
    pub backoff: Column<EndpointRow, u8>,
    /// When to send the lowest unacked segment again; 0: nothing is outstanding.
    pub deadline_ns: Column<EndpointRow, u64>,
    /// When the newest segment known to have arrived was sent, and its number (RFC 8985, 6.1).
    pub newest_acked_sent_ns: Column<EndpointRow, u64>,
    pub newest_acked: Column<EndpointRow, Seq>,

    // Cold.
    pub rank: Column<EndpointRow, Rank>,
    pub incarnation: Column<EndpointRow, Incarnation>,
    pub addresses: Column<EndpointRow, [PortPeer; 2]>,
    pub payload_bytes_max: Column<EndpointRow, u32>,
    pub message_bytes_max: Column<EndpointRow, u64>,
    pub fragment_id_next: Column<EndpointRow, u16>,
    /// For people.
    pub name: Column<EndpointRow, Box<str>>,
    /// Only while addresses are being inserted.
    pub inserting: Column<EndpointRow, Option<Box<Inserting>>>,
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

/// Time in steps of 1024 ns that wraps after 73 minutes: for short waits, in 4 bytes.
#[inline]
pub(crate) fn coarse(ns: u64) -> u32 {
    (ns >> 10) as u32
}

/// Nanoseconds from coarse time `since` to `now`, to 1024 ns.
#[inline]
pub(crate) fn coarse_elapsed_ns(now: u64, since: u32) -> u64 {
    u64::from(coarse(now).wrapping_sub(since)) << 10
}

/// Whether coarse time `at` has come, for waits of less than half an hour.
#[inline]
pub(crate) fn coarse_is_due(now: u64, at: u32) -> bool {
    coarse(now).wrapping_sub(at) as i32 >= 0
}

/// When [`coarse_is_due`] holds for `at` first, seen from `now`; now if it does.
pub(crate) fn coarse_at(now: u64, at: u32) -> u64 {
    match at.wrapping_sub(coarse(now)) as i32 {
        ahead if ahead > 0 => ((now >> 10) + ahead as u64) << 10,
        _ => now,
    }
}

impl Endpoints {
    pub fn new(peers: u32, ranks: u32, rings: u32, window: u32) -> Self {
        let n = peers as usize;
        let zero = Seq::new(0);
        Self {
            slab: Slab::new(n),
            directory: vec![None; ranks as usize].into(),
            tx_rings: RingPool::new(rings as usize, window as usize),
            rx_rings: RingPool::new(rings as usize, window as usize),
            next_seq: Column::new(n, zero),
            acked: Column::new(n, zero),
            send_limit: Column::new(n, zero),
            tx_ring: Column::new(n, None),
            congestion: Column::new(n, CongestionWindow::fixed(0)),
            ready: Column::new(n, List::default()),
            flight: Column::new(n, List::default()),
            lost: Column::new(n, List::default()),
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
            deadline_ns: Column::new(n, 0),
            newest_acked_sent_ns: Column::new(n, 0),
            newest_acked: Column::new(n, zero),
            rank: Column::new(n, Rank(0)),
            incarnation: Column::new(n, Incarnation(0)),
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
    pub fn has(&self, ep: EndpointRow, flag: u8) -> bool {
        self.flags[ep] & flag != 0
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
            tx_rings: _,
            rx_rings: _,
            next_seq,
            acked,
            send_limit,
            tx_ring,
            congestion,
            ready,
            flight,
            lost,
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
            deadline_ns,
            newest_acked_sent_ns,
            newest_acked,
            rank,
            incarnation,
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
            flight.bytes(),
            lost.bytes(),
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
            deadline_ns.bytes(),
            newest_acked_sent_ns.bytes(),
            newest_acked.bytes(),
            rank.bytes(),
            incarnation.bytes(),
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

    #[test]
    fn coarse_times_come_when_they_are_due() {
        for now in [0, 5_000, (1 << 42) - 1, (1 << 42) + 77] {
            for wait_ns in [0, 1, 1023, 1024, 20_000] {
                let at = coarse(now + wait_ns);
                let due = coarse_at(now, at);
                assert!(coarse_is_due(due, at) && due >= now, "{now} + {wait_ns}: {due}");
                assert!(due == now || !coarse_is_due(due - 1, at), "{now} + {wait_ns}: {due}");
            }
        }
    }

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
