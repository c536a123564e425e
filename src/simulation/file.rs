//! Scenario files as they are written: the keys and nothing else. `plan` makes sense of them;
//! `docs/simulate.md` explains each key.

use super::units::{Chance, Rate, Size, Time};
use crate::ports::sim::LinkModel;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub title: String,
    pub peers: u32,
    #[serde(default = "one")]
    pub seed: u64,
    #[serde(default = "minute")]
    pub limit: Time,
    #[serde(default)]
    pub groups: BTreeMap<String, String>,
    #[serde(default)]
    pub engine: EngineKeys,
    #[serde(default)]
    pub link: LinkKeys,
    #[serde(default)]
    pub links: Vec<PairKeys>,
    #[serde(default)]
    pub faults: Vec<FaultKeys>,
    pub traffic: Vec<TrafficKeys>,
}

fn one() -> u64 {
    1
}

fn minute() -> Time {
    Time(60 * crate::time::SECONDS)
}

/// Settings of every engine.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EngineKeys {
    pub datagram: Option<Size>,
    pub window: Option<u16>,
    pub slots: Option<u32>,
    pub ordered: Option<bool>,
    pub checksum: Option<bool>,
    pub ack_delay: Option<Time>,
    pub ack_every: Option<u16>,
    pub rto_min: Option<Time>,
    pub rto_max: Option<Time>,
    pub rto_initial: Option<Time>,
    pub tick: Option<Time>,
    #[serde(default)]
    pub congestion: CongestionKeys,
}

/// How each engine limits what it has in flight to a peer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CongestionKeys {
    pub window: Option<u32>,
}

/// Changes of a link's model: what is not named stays as it is.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LinkKeys {
    latency: Option<Time>,
    jitter: Option<Time>,
    rate: Option<Rate>,
    queue_datagrams: Option<u32>,
    loss: Option<Chance>,
    burst: Option<BurstKeys>,
    dup: Option<Chance>,
    reorder: Option<Chance>,
    reorder_places: Option<u32>,
    reorder_delay: Option<Time>,
    corrupt: Option<Chance>,
    spike: Option<Chance>,
    spike_delay: Option<Time>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BurstKeys {
    enter: Chance,
    leave: Chance,
    loss: Chance,
}

impl LinkKeys {
    pub fn corrupts(&self) -> bool {
        self.corrupt.is_some_and(|chance| chance.0 > 0.0)
    }

    /// Changes `model`; the name of a key whose value is no probability.
    pub fn apply(&self, model: &mut LinkModel) -> Result<(), &'static str> {
        fn set<T>(field: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *field = value;
            }
        }
        set(&mut model.latency_ns, self.latency.map(|it| it.0));
        set(&mut model.jitter_ns, self.jitter.map(|it| it.0));
        set(&mut model.bytes_per_s, self.rate.map(|it| it.0));
        set(&mut model.queue_datagrams, self.queue_datagrams);
        set(&mut model.reorder_places_max, self.reorder_places);
        set(&mut model.reorder_delay_ns, self.reorder_delay.map(|it| it.0));
        set(&mut model.delay_spike_ns, self.spike_delay.map(|it| it.0));
        if let Some(burst) = self.burst {
            model.burst.p_enter = burst.enter.0;
            model.burst.p_leave = burst.leave.0;
            model.burst.loss_in_burst = burst.loss.0;
        }
        set(&mut model.loss, self.loss.map(|it| it.0));
        set(&mut model.dup, self.dup.map(|it| it.0));
        set(&mut model.reorder, self.reorder.map(|it| it.0));
        set(&mut model.corrupt, self.corrupt.map(|it| it.0));
        set(&mut model.delay_spike, self.spike.map(|it| it.0));
        let burst = &model.burst;
        let chances = [
            ("burst.enter", burst.p_enter),
            ("burst.leave", burst.p_leave),
            ("burst.loss", burst.loss_in_burst),
            ("loss", model.loss),
            ("dup", model.dup),
            ("reorder", model.reorder),
            ("corrupt", model.corrupt),
            ("spike", model.delay_spike),
        ];
        match chances.into_iter().find(|(_, chance)| *chance > 1.0) {
            Some((key, _)) => Err(key),
            None => Ok(()),
        }
    }
}

/// A link of its own for some pairs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PairKeys {
    pub from: String,
    pub to: String,
    #[serde(default)]
    pub both_ways: bool,
    pub set: LinkKeys,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FaultKind {
    Link,
    Cut,
    Mend,
    Down,
    Up,
    Pause,
    Resume,
    Restart,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FaultKeys {
    pub at: Time,
    pub what: FaultKind,
    pub from: Option<String>,
    pub to: Option<String>,
    pub both_ways: Option<bool>,
    pub nodes: Option<String>,
    pub set: Option<LinkKeys>,
    pub outage: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PatternKind {
    Stream,
    Pingpong,
    Incast,
    Alltoall,
    Random,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrafficKeys {
    pub name: Option<String>,
    pub pattern: PatternKind,
    pub from: Option<String>,
    pub to: Option<String>,
    pub nodes: Option<String>,
    pub message: Size,
    pub bytes: Option<Size>,
    pub rounds: Option<u32>,
    pub messages: Option<u64>,
    pub per_second: Option<f64>,
    pub start: Option<Time>,
    pub duration: Option<Time>,
    pub outstanding: Option<u32>,
}
