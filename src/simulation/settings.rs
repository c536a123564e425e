//! The configuration of every engine of a job, derived from the scenario.

use super::cluster::Cluster;
use super::file::EngineKeys;
use crate::ports::sim::SimPortConfig;
use crate::time::Nanos;
use crate::{Config, Incarnation, Rank};

/// What all engines share.
pub(super) struct Settings {
    keys: EngineKeys,
    pub port: SimPortConfig,
    /// How long one turn of an engine takes.
    pub tick_ns: Nanos,
    /// Slots of an engine with few peers.
    slots: u32,
}

impl Settings {
    pub fn new(keys: &EngineKeys, peers: u32) -> Result<Self, String> {
        let tick_ns = keys.tick.map_or(200, |tick| tick.0);
        if tick_ns == 0 {
            return Err("engine.tick: an engine that takes no time would never let any pass".into());
        }
        let datagram = keys.datagram.map_or(1472, |size| size.0);
        if datagram > 1 << 16 {
            return Err(format!("engine.datagram = {datagram}: at most 65536"));
        }
        // A job of 128 has the engine's own default; many small engines must fit in memory.
        let slots = (128 * 1024 / peers).next_power_of_two().clamp(64, 1024);
        let port = SimPortConfig {
            datagram_bytes_max: datagram as usize,
            recv_depth: 1 << 16,
            ..SimPortConfig::default()
        };
        Ok(Self { keys: keys.clone(), port, tick_ns, slots })
    }

    /// For process `rank`, after so many restarts, with so many peers of ranks below `ranks`.
    pub fn config(
        &self,
        rank: u32,
        restarts: u32,
        first_seq: u32,
        peers: u32,
        ranks: u32,
    ) -> Config {
        let keys = &self.keys;
        let mut config = Config::new(Rank(rank), Cluster::JOB_KEY);
        config.name = format!("peer{rank}");
        config.incarnation = Incarnation(1 + restarts);
        config.first_seq = first_seq;
        config.peers_max = peers.max(1);
        config.ranks_max = ranks;
        let slots = keys.slots.unwrap_or(self.slots.max(peers.saturating_mul(2).min(1024)));
        config.send_slots = slots;
        config.receive_slots = slots;
        config.ack_slots = (slots / 16).max(4);
        config.fragments_max = slots.saturating_mul(4);
        fn set<T>(field: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *field = value;
            }
        }
        // What is beyond 32 bits is refused by the engine, whose limits are lower.
        let ns = |time: super::units::Time| u32::try_from(time.0).unwrap_or(u32::MAX);
        set(&mut config.window_segments, keys.window);
        set(&mut config.congestion_window_segments, keys.congestion.window);
        set(&mut config.ordered, keys.ordered);
        set(&mut config.checksum, keys.checksum);
        set(&mut config.ack_delay_ns, keys.ack_delay.map(ns));
        set(&mut config.ack_every_segments, keys.ack_every);
        set(&mut config.rto.min_ns, keys.rto_min.map(ns));
        set(&mut config.rto.max_ns, keys.rto_max.map(ns));
        set(&mut config.rto.initial_ns, keys.rto_initial.map(ns));
        config
    }
}
