//! Configuration, and the one function that turns it into table capacities.

use crate::congestion::Congestion;
use crate::error::BuildError;
use crate::ids::{AuthKey, Incarnation, JobKey, Rank};
use crate::ports::PortCaps;
use crate::rto::RtoLimits;
use crate::time::{MILLIS, SECONDS};
use crate::wire::{self, Integrity};

/// Everything that can be set. All fields have working defaults but rank and job key, which
/// [`Config::new`] asks for. Memory costs are stated where they matter.
#[derive(Clone, Debug)]
pub struct Config {
    /// This process's number in the job.
    pub rank: Rank,
    /// What all processes of the job share.
    pub job_key: JobKey,
    /// Tells this process from a predecessor of the same rank. Default: random.
    pub incarnation: Incarnation,
    /// First sequence number towards every peer. Default: random.
    pub first_seq: u32,
    /// A name for messages to people. Default: `host:pid`.
    pub name: String,
    /// Most peers at a time; at most 2^20. Memory: about 256 bytes each. Default 1024.
    pub peers_max: u32,
    /// Ranks are below this. Each block of 65536 takes 16 bytes, and 4 bytes a rank once there was
    /// a peer in it. Default 65536.
    pub ranks_max: u32,
    /// Peers with unacked segments or gaps at one time; others wait. Default: `peers_max`, at
    /// most 256. Memory: about 16 bytes times `window_segments` each.
    pub active_peers_max: u32,
    /// Largest window in segments, a power of two from 64 to 4096; equal in the whole job.
    /// Default 256.
    pub window_segments: u16,
    /// What governs how many segments may be in flight to a peer. Default: delay, 100 us.
    pub congestion: Congestion,
    /// Largest congestion window in segments. Default: `window_segments`.
    pub congestion_window_segments: u32,
    /// Congestion window to start with, also after a long idle time. Default 16.
    pub congestion_initial_segments: u32,
    /// Slots for outgoing datagrams. Default 1024.
    pub send_slots: u32,
    /// Slots for standalone acks. Default 64.
    pub ack_slots: u32,
    /// Slots for arriving datagrams on the data channel. Default 1024, cut to the port's depth.
    pub receive_slots: u32,
    /// Large messages (and small ones waiting behind them) in work at one time, sends and
    /// receives together. Default 4096.
    pub fragments_max: u32,
    /// Largest message taken, in bytes. Default 1 GiB.
    pub message_bytes_max: u64,
    /// Memory for half-received messages of all peers, at least twice `message_bytes_max`.
    /// Early messages (behind a gap) may use half of it. Default 4 GiB; taken as it is needed.
    pub half_received_bytes_max: u64,
    /// Half-received messages of one peer; early ones may be half of them. Default: twice the
    /// window in segments, which then is what bounds them.
    pub half_received_per_peer_max: u32,
    /// Buffers kept for reuse, in bytes. Default 64 MiB.
    pub buffers_kept_bytes_max: u64,
    /// Deliver in order per peer. Default true.
    pub ordered: bool,
    /// CRC32C over each datagram; equal in the whole job. Default false.
    pub checksum: bool,
    /// A tag on each datagram, made with this key, that strangers can neither make nor repeat; on
    /// or off in the whole job, and takes the place of the checksum. Default off.
    pub authenticate: Option<AuthKey>,
    /// How long an ack may wait for data to ride on. Default 20 us.
    pub ack_delay_ns: u32,
    /// Segments received before an ack is sent at once. Default: a quarter of the window, at
    /// most 32.
    pub ack_every_segments: u16,
    /// Retransmission timers. Default: floor 400 us, cap 250 ms (but at most a sixteenth of
    /// `dead_after_ns`), first guess 5 ms.
    pub rto: RtoLimits,
    /// Least reordering that is waited for before a segment counts as lost. Default 30 us.
    pub reorder_window_min_ns: u32,
    /// A peer that owes an answer and is silent for this long is dead. Between 1 ms and 10 days;
    /// default 10 s. Pauses of this process do not count.
    pub dead_after_ns: u64,
    /// How often an idle peer that is watched ([`crate::Context::watch`]) is probed; at least four
    /// times within `dead_after_ns`. Default 1 s.
    pub keepalive_ns: u64,
    /// Resends per tick. Default 64.
    pub resends_per_tick_max: u32,
    /// Completions taken per tick and channel. Default 256.
    pub completions_per_tick_max: u32,
    /// Segments posted per peer before the next peer's turn. Default 32.
    pub burst_segments: u32,
    /// Chunks packed ahead per peer. Default 32.
    pub pack_ahead_segments: u32,
}

impl Config {
    /// Defaults for process `rank` of the job with `job_key`.
    pub fn new(rank: Rank, job_key: JobKey) -> Self {
        Self {
            rank,
            job_key,
            incarnation: Incarnation(random_u32()),
            first_seq: random_u32(),
            name: format!("{}:{}", host_name(), std::process::id()),
            peers_max: 1024,
            ranks_max: 65536,
            active_peers_max: 256,
            window_segments: 256,
            congestion: Congestion::Delay { target_ns: 100_000 },
            congestion_window_segments: u32::MAX,
            congestion_initial_segments: 16,
            send_slots: 1024,
            ack_slots: 64,
            receive_slots: 1024,
            fragments_max: 4096,
            message_bytes_max: 1 << 30,
            half_received_bytes_max: 4 << 30,
            half_received_per_peer_max: u32::MAX,
            buffers_kept_bytes_max: 64 << 20,
            ordered: true,
            checksum: false,
            authenticate: None,
            ack_delay_ns: 20_000,
            ack_every_segments: 0,
            rto: RtoLimits { min_ns: 400_000, max_ns: 250_000_000, initial_ns: 5_000_000 },
            reorder_window_min_ns: 30_000,
            dead_after_ns: 10 * SECONDS,
            keepalive_ns: SECONDS,
            resends_per_tick_max: 64,
            completions_per_tick_max: 256,
            burst_segments: 32,
            pack_ahead_segments: 32,
        }
    }

    /// What datagrams end in.
    pub fn integrity(&self) -> Integrity {
        match (&self.authenticate, self.checksum) {
            (Some(_), _) => Integrity::Tag,
            (None, true) => Integrity::Checksum,
            (None, false) => Integrity::None,
        }
    }

    /// Checks every field and fixes all capacities, given what the port can do.
    pub(crate) fn limits(&self, caps: &PortCaps) -> Result<Limits, BuildError> {
        /// Rows of any table: what handles can name.
        const ROWS_MAX: u64 = 1 << 20;
        /// No pool of buffers is larger: 64 TiB.
        const BYTES_MAX: u64 = 1 << 46;
        let window = u64::from(self.window_segments);
        let half_min = self.message_bytes_max.saturating_mul(2);
        let any = u64::from(u32::MAX);
        for (field, value, min, max) in [
            ("window_segments", window, 64, 4096),
            ("peers_max", self.peers_max.into(), 1, ROWS_MAX),
            ("ranks_max", self.ranks_max.into(), 1, any - 1),
            ("active_peers_max", self.active_peers_max.into(), 1, any),
            ("congestion_window_segments", self.congestion_window_segments.into(), 1, any),
            ("congestion_initial_segments", self.congestion_initial_segments.into(), 1, any),
            ("send_slots", self.send_slots.into(), 2, ROWS_MAX),
            ("ack_slots", self.ack_slots.into(), 1, ROWS_MAX),
            ("receive_slots", self.receive_slots.into(), 4, ROWS_MAX),
            ("fragments_max", self.fragments_max.into(), 8, ROWS_MAX),
            ("half_received_per_peer_max", self.half_received_per_peer_max.into(), 2, any),
            ("message_bytes_max", self.message_bytes_max, 1, BYTES_MAX / 2),
            ("half_received_bytes_max", self.half_received_bytes_max, half_min, BYTES_MAX),
            ("rto.min_ns", self.rto.min_ns.into(), 1, any),
            ("rto.initial_ns", self.rto.initial_ns.into(), 1, any),
            ("rto.max_ns", self.rto.max_ns.into(), self.rto.min_ns.into(), any),
            ("dead_after_ns", self.dead_after_ns, MILLIS, 864_000 * SECONDS),
            ("keepalive_ns", self.keepalive_ns, MILLIS, 864_000 * SECONDS),
            ("resends_per_tick_max", self.resends_per_tick_max.into(), 1, any),
            ("completions_per_tick_max", self.completions_per_tick_max.into(), 1, any),
            ("burst_segments", self.burst_segments.into(), 1, any),
            ("pack_ahead_segments", self.pack_ahead_segments.into(), 1, any),
        ] {
            if !(min..=max).contains(&value) {
                let reason =
                    if max == any { format!("at least {min}") } else { format!("{min} to {max}") };
                return Err(refuse(field, value, reason));
            }
        }
        if !window.is_power_of_two() {
            return Err(refuse("window_segments", window, "must be a power of two".into()));
        }
        self.datagram_limits(caps, window as u32)
    }

    /// Whoever counts as dead soon is asked often enough before.
    fn rto_limits(&self) -> RtoLimits {
        let asks = u32::try_from(self.dead_after_ns / 16).unwrap_or(u32::MAX);
        let RtoLimits { min_ns, max_ns, initial_ns } = self.rto;
        RtoLimits { min_ns, max_ns: max_ns.min(asks).max(min_ns), initial_ns }
    }

    fn datagram_limits(&self, caps: &PortCaps, window: u32) -> Result<Limits, BuildError> {
        // An ack with a full bitmap and a chunk with something in it must fit.
        let floor = wire::HEADER_BYTES
            + wire::TAG_BYTES
            + (window as usize / 8).max(wire::chunk::EXTRA_BYTES + 16);
        let datagram = caps.datagram_bytes_max;
        // Payload lengths travel in 16 bits.
        let datagram = datagram.min(wire::HEADER_BYTES + usize::from(u16::MAX));
        if datagram < floor {
            let reason = format!("datagrams of at least {floor} bytes are needed");
            return Err(refuse("datagram_bytes_max", datagram as u64, reason));
        }
        let window_ours = window.min(caps.recv_backlog_datagrams.max(1) as u32) as u16;
        let receive_slots = (self.receive_slots as usize).min(caps.recv_depth.max(1)) as u32;
        let ack_every = match self.ack_every_segments {
            0 => (window_ours / 4).clamp(1, 32),
            n => n,
        };
        let congestion_max = self.congestion_window_segments.min(window);
        Ok(Limits {
            slot_bytes: (caps.prefix_bytes + caps.datagram_bytes_max).next_power_of_two(),
            datagram_bytes: datagram as u32,
            datagram_bytes_floor: floor as u32,
            prefix_bytes: caps.prefix_bytes,
            window,
            window_ours,
            receive_slots,
            receive_ack_slots: (self.ack_slots * 2).min(caps.recv_depth.max(1) as u32),
            rings: self.active_peers_max.min(self.peers_max),
            held_slots_max: receive_slots / 2,
            send_depth: caps.send_depth as u32,
            ack_every,
            integrity: self.integrity(),
            gathers: caps.gathers && self.integrity() == Integrity::None,
            completes_at_post: caps.sends_complete_at_post,
            pause_ns: self.dead_after_ns / 8,
            rto: self.rto_limits(),
            keepalive_ns: self.keepalive_ns.min(self.dead_after_ns / 4),
            half_received_per_peer: self.half_received_per_peer_max.min(2 * window),
            congestion_max,
            congestion_initial: match self.congestion {
                Congestion::Delay { .. } => self.congestion_initial_segments.min(congestion_max),
                Congestion::Fixed => congestion_max,
            },
        })
    }
}

fn refuse(field: &'static str, value: u64, reason: String) -> BuildError {
    BuildError::Config { field, value, reason }
}

/// Capacities, fixed for the life of an engine.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub slot_bytes: usize,
    pub datagram_bytes: u32,
    /// No peer's datagrams may be smaller than this: acks must fit.
    pub datagram_bytes_floor: u32,
    pub prefix_bytes: usize,
    /// The job's largest window: the length of rings.
    pub window: u32,
    /// What we advertise: no more than the port can have waiting.
    pub window_ours: u16,
    pub receive_slots: u32,
    pub receive_ack_slots: u32,
    pub rings: u32,
    pub held_slots_max: u32,
    pub send_depth: u32,
    pub ack_every: u16,
    pub integrity: Integrity,
    /// Only where nothing has to be computed over the payload.
    pub gathers: bool,
    pub completes_at_post: bool,
    /// A gap between two ticks counts as at most this much silence of the peers.
    pub pause_ns: u64,
    /// How often an idle peer that is watched is probed: before it would count as dead, too.
    pub keepalive_ns: u64,
    pub half_received_per_peer: u32,
    pub rto: RtoLimits,
    /// Largest congestion window, and the one to start with.
    pub congestion_max: u32,
    pub congestion_initial: u32,
}

/// Hash keys of the standard library are random per process and per call.
fn random_u32() -> u32 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish() as u32
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .unwrap_or_else(|_| "host".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Engine;
    use crate::error::BuildError;
    use crate::ports::sim::{LinkModel, SimNet, SimPortConfig};

    /// Every number at its extremes either works or is refused by name; nothing overflows, and
    /// nothing is allocated from an absurd value.
    #[test]
    fn absurd_numbers_are_refused_by_name() {
        type Set = fn(&mut Config, u32);
        let fields: [(&str, Set); 12] = [
            ("window_segments", |c, n| c.window_segments = n as u16),
            ("peers_max", |c, n| c.peers_max = n),
            ("ranks_max", |c, n| c.ranks_max = n),
            ("send_slots", |c, n| c.send_slots = n),
            ("ack_slots", |c, n| c.ack_slots = n),
            ("receive_slots", |c, n| c.receive_slots = n),
            ("fragments_max", |c, n| c.fragments_max = n),
            ("message_bytes_max", |c, n| c.message_bytes_max = u64::from(n) << 32),
            ("half_received_bytes_max", |c, n| c.half_received_bytes_max = u64::from(n) << 32),
            ("rto.max_ns", |c, n| c.rto.max_ns = if n == 0 { 0 } else { c.rto.min_ns - 1 }),
            ("burst_segments", |c, _| c.burst_segments = 0),
            ("rto.min_ns", |c, _| c.rto.min_ns = 0),
        ];
        for (name, set) in fields {
            for value in [0, u32::MAX] {
                let net = SimNet::new(1, LinkModel::default());
                let mut config = Config::new(Rank(0), JobKey(1));
                set(&mut config, value);
                match Engine::new(config, net.port(SimPortConfig::default())) {
                    Err(BuildError::Config { field, .. }) => assert_eq!(field, name),
                    Err(error) => panic!("{name} = {value}: {error}"),
                    Ok(_) => panic!("{name} = {value} was accepted"),
                }
            }
        }
    }
}
