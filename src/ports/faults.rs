//! A wrapper that makes any port lose, duplicate, reorder and corrupt what it receives.
//!
//! It acts between the inner port and its user, on receives alone, so that both ends of a real
//! network can be tested against loss without privileges. With all faults off it hands every call
//! through.
#![allow(unsafe_code)]

use super::{
    Channel, Completion, CompletionKind, InsertResult, Insertion, LinkEvent, Port, PortCaps,
    PortError, PortPeer, RawAddress, SendOp,
};
use crate::time::{MICROS, Nanos};
use arrayvec::ArrayVec;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use tickwire_tables::arena::DatagramArena;

/// How long a datagram is held back when no others pass it.
const HOLD_NS: Nanos = 200 * MICROS;
/// Most receive slots withheld for copies, per channel.
const SPARES_MAX: usize = 16;
/// Receives that the inner port keeps for each slot withheld.
const RECVS_PER_SPARE: usize = 8;
/// Most datagrams held back at a time, per channel; beyond that, none is.
const HELD_MAX: usize = 64;
/// Completions read from the inner port at once.
const BATCH: usize = 64;

/// Which faults, and how often. Read from text such as `loss=1%,dup=0.5%,reorder=5%,corrupt=0.1%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultConfig {
    /// Probability that a datagram received is lost.
    pub loss: f64,
    /// Probability that it is received twice.
    pub dup: f64,
    /// Probability that it is held back.
    pub reorder: f64,
    /// Probability that one random bit of it is flipped.
    pub corrupt: f64,
    /// A datagram held back goes on after 1 to this many later ones of its channel passed, or
    /// after 200 us. At least 1.
    pub reorder_places_max: u32,
}

impl Default for FaultConfig {
    fn default() -> Self {
        Self { loss: 0.0, dup: 0.0, reorder: 0.0, corrupt: 0.0, reorder_places_max: 8 }
    }
}

/// What is wrong with the text of a [`FaultConfig`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultConfigError {
    /// A part is not of the form `name=value`.
    #[error("fault `{0}`: expected name=value, as in loss=1%")]
    NoValue(String),
    /// There is no such fault.
    #[error(
        "fault `{0}` is not known; there are loss, dup, reorder, corrupt and reorder_places_max"
    )]
    UnknownName(String),
    /// A name comes twice.
    #[error("fault `{0}` is given twice")]
    Repeated(String),
    /// A value is not a number.
    #[error("fault {name}: `{value}` is not a number or percentage")]
    NotANumber {
        /// Which fault.
        name: String,
        /// The text given.
        value: String,
    },
    /// A value is out of range.
    #[error("fault {name}: {value} is not between {range}")]
    OutOfRange {
        /// Which fault.
        name: String,
        /// The text given.
        value: String,
        /// What is allowed.
        range: &'static str,
    },
}

fn parse_probability(name: &str, value: &str) -> Result<f64, FaultConfigError> {
    let (name, text) = (name.to_owned(), value.to_owned());
    let (number, unit) = match value.strip_suffix('%') {
        Some(number) => (number.trim_end(), 100.0),
        None => (value, 1.0),
    };
    let Ok(number) = number.parse::<f64>() else {
        return Err(FaultConfigError::NotANumber { name, value: text });
    };
    let p = number / unit;
    if !(0.0..=1.0).contains(&p) {
        let range = "0 and 1 (0% and 100%)";
        return Err(FaultConfigError::OutOfRange { name, value: text, range });
    }
    Ok(p)
}

fn parse_places(name: &str, value: &str) -> Result<u32, FaultConfigError> {
    let (name, text) = (name.to_owned(), value.to_owned());
    match value.parse() {
        Ok(0) => {
            let range = "1 and 4294967295";
            Err(FaultConfigError::OutOfRange { name, value: text, range })
        }
        Ok(places) => Ok(places),
        Err(_) => Err(FaultConfigError::NotANumber { name, value: text }),
    }
}

impl FromStr for FaultConfig {
    type Err = FaultConfigError;

    /// Comma-separated `name=value`; probabilities as fractions or with `%`. What is not named
    /// stays at its default; empty text means no faults.
    fn from_str(text: &str) -> Result<Self, FaultConfigError> {
        let mut config = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        for part in text.split(',').map(str::trim).filter(|_| !text.trim().is_empty()) {
            let (name, value) =
                part.split_once('=').ok_or_else(|| FaultConfigError::NoValue(part.to_owned()))?;
            let (name, value) = (name.trim(), value.trim());
            if seen.contains(&name) {
                return Err(FaultConfigError::Repeated(name.to_owned()));
            }
            seen.push(name);
            match name {
                "loss" => config.loss = parse_probability(name, value)?,
                "dup" => config.dup = parse_probability(name, value)?,
                "reorder" => config.reorder = parse_probability(name, value)?,
                "corrupt" => config.corrupt = parse_probability(name, value)?,
                "reorder_places_max" => config.reorder_places_max = parse_places(name, value)?,
                _ => return Err(FaultConfigError::UnknownName(name.to_owned())),
            }
        }
        Ok(config)
    }
}

impl fmt::Display for FaultConfig {
    /// In the form that [`FaultConfig::from_str`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { loss, dup, reorder, corrupt, reorder_places_max } = self;
        write!(f, "loss={loss},dup={dup},reorder={reorder},corrupt={corrupt},")?;
        write!(f, "reorder_places_max={reorder_places_max}")
    }
}

/// How many datagrams each fault met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FaultCounters {
    /// Lost.
    pub lost: u64,
    /// Received twice.
    pub duplicated: u64,
    /// Held back.
    pub reordered: u64,
    /// With a flipped bit.
    pub corrupted: u64,
}

/// A datagram held back.
struct Held {
    completion: Completion,
    /// Its place in the order of arrival.
    arrival: u64,
    /// Later ones that still have to pass.
    passes_left: u32,
    deadline: Nanos,
}

/// The receives of one channel on their way through the faults.
#[derive(Default)]
struct Lane {
    /// To be reported, oldest first.
    ready: VecDeque<Completion>,
    /// In the order of arrival.
    held: Vec<Held>,
    /// Slots withheld from the inner port, for copies.
    spares: Vec<u32>,
    /// Slots of lost datagrams on their way back to the inner port.
    reposts: Vec<u32>,
    /// Receives that the inner port has.
    inner_recvs: usize,
    arrivals: u64,
}

/// A port whose receives suffer faults. What it reports about itself, name and limits, is the
/// inner port's; up to 16 of the receives posted per channel are kept for copies.
pub struct Faults<P> {
    inner: P,
    config: FaultConfig,
    active: bool,
    arena: Option<DatagramArena>,
    lanes: [Lane; 2],
    counters: FaultCounters,
    rng: ChaCha8Rng,
    /// The inner port's clock as of this poll; only read when there is reordering.
    now: Nanos,
    /// What the inner port is polled into.
    batch: Box<[Completion; BATCH]>,
}

impl<P: Port> Faults<P> {
    /// Wraps `inner`. Same seed and same receives give the same faults, but for the time limit on
    /// holding back. Refused when a probability is not between 0 and 1 or `reorder_places_max`
    /// is 0.
    pub fn new(inner: P, config: FaultConfig, seed: u64) -> Result<Self, PortError> {
        let faults = [config.loss, config.dup, config.reorder, config.corrupt];
        if !faults.iter().all(|p| (0.0..=1.0).contains(p)) || config.reorder_places_max == 0 {
            return Err(PortError::Unusable {
                port: "faults",
                value: config.to_string(),
                reason: "probabilities are 0 to 1, and reordering needs places".into(),
            });
        }
        let blank = Completion { kind: CompletionKind::Sent, slot: 0, len_bytes: 0 };
        Ok(Self {
            inner,
            config,
            active: faults.iter().any(|&p| p > 0.0),
            arena: None,
            lanes: Default::default(),
            counters: FaultCounters::default(),
            rng: ChaCha8Rng::seed_from_u64(seed),
            now: 0,
            batch: Box::new([blank; BATCH]),
        })
    }

    /// The port behind the faults.
    pub fn inner(&self) -> &P {
        &self.inner
    }

    /// How many datagrams each fault met so far.
    pub fn fault_counters(&self) -> FaultCounters {
        self.counters
    }

    /// When the next datagram held back goes on by the time limit; a simulation that jumps from
    /// event to event has to stop here too. `None` when none is held back.
    pub fn next_release_at(&self) -> Option<Nanos> {
        self.lanes.iter().flat_map(|lane| &lane.held).map(|held| held.deadline).min()
    }

    /// True with probability `p`; draws only when that is not 0.
    fn chance(&mut self, p: f64) -> bool {
        // 53 random bits are what an f64 holds.
        p > 0.0 && ((self.rng.next_u64() >> 11) as f64) < p * (1u64 << 53) as f64
    }

    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.rng.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Where the bytes of a datagram in `slot` begin. Panics when `len_bytes` bytes do not fit.
    fn datagram(&self, slot: u32, len_bytes: u32) -> *mut u8 {
        let arena = self.arena.as_ref().expect("receives come after attach");
        let prefix_bytes = self.inner.caps().prefix_bytes;
        assert!(prefix_bytes + len_bytes as usize <= arena.slot_bytes(), "{len_bytes} in a slot");
        arena.slot_ptr(slot).wrapping_add(prefix_bytes)
    }

    /// Applies the faults to one datagram that the inner port received.
    fn receive(&mut self, channel: Channel, completion: Completion) {
        if self.chance(self.config.loss) {
            self.counters.lost += 1;
            self.lanes[channel as usize].reposts.push(completion.slot);
            return;
        }
        if self.chance(self.config.corrupt) {
            self.flip_bit(completion);
        }
        let copied = self.chance(self.config.dup);
        let copy = if copied { self.copy(channel, completion) } else { None };
        self.hold_or_report(channel, completion);
        if let Some(copy) = copy {
            self.hold_or_report(channel, copy);
        }
    }

    fn flip_bit(&mut self, completion: Completion) {
        let bits = u64::from(completion.len_bytes) * 8;
        if bits == 0 {
            return;
        }
        let bit = self.below(bits) as usize;
        let byte = self.datagram(completion.slot, completion.len_bytes).wrapping_add(bit / 8);
        // SAFETY: the byte lies in the slot (checked by `datagram`), and the slot is this port's
        // alone: the inner port gave it back and the user does not have it yet.
        unsafe { *byte ^= 1 << (bit % 8) };
        self.counters.corrupted += 1;
    }

    /// The same datagram in a spare slot, when there is one.
    fn copy(&mut self, channel: Channel, completion: Completion) -> Option<Completion> {
        let slot = self.lanes[channel as usize].spares.pop()?;
        let from = self.datagram(completion.slot, completion.len_bytes);
        let to = self.datagram(slot, completion.len_bytes);
        // SAFETY: both slots have that many bytes (checked by `datagram`) and are this port's
        // alone: one was given back by the inner port, the other never handed to it.
        unsafe { std::ptr::copy(from, to, completion.len_bytes as usize) };
        self.counters.duplicated += 1;
        Some(Completion { slot, ..completion })
    }

    fn hold_or_report(&mut self, channel: Channel, completion: Completion) {
        let lane = &mut self.lanes[channel as usize];
        let arrival = lane.arrivals;
        lane.arrivals += 1;
        if lane.held.len() < HELD_MAX && self.chance(self.config.reorder) {
            let passes_left = 1 + self.below(u64::from(self.config.reorder_places_max)) as u32;
            let deadline = self.now.saturating_add(HOLD_NS);
            let held = Held { completion, arrival, passes_left, deadline };
            self.lanes[channel as usize].held.push(held);
            self.counters.reordered += 1;
        } else {
            self.lanes[channel as usize].report(completion, arrival);
        }
    }

    fn release_overdue(&mut self, channel: Channel) {
        let lane = &mut self.lanes[channel as usize];
        if lane.held.is_empty() {
            return;
        }
        let now = self.now;
        while let Some(overdue) = lane.held.iter().position(|held| held.deadline <= now) {
            let held = lane.held.remove(overdue);
            lane.report(held.completion, held.arrival);
        }
    }

    /// Gives the slots of lost datagrams back to the inner port.
    fn repost(&mut self, channel: Channel) {
        let lane = &mut self.lanes[channel as usize];
        if !lane.reposts.is_empty() {
            let taken = self.inner.post_recvs(channel, &lane.reposts);
            lane.reposts.drain(..taken);
            lane.inner_recvs += taken;
        }
    }
}

impl Lane {
    /// Queues a datagram, and after it those held back that it and its like have passed.
    /// A datagram counts as passing only those that arrived before it: the bound is exact.
    fn report(&mut self, completion: Completion, arrival: u64) {
        let mut arrival = arrival;
        self.ready.push_back(completion);
        loop {
            for held in self.held.iter_mut().filter(|held| held.arrival < arrival) {
                held.passes_left -= 1;
            }
            let due = self.held.iter().position(|held| held.passes_left == 0);
            let Some(due) = due else { return };
            let held = self.held.remove(due);
            arrival = held.arrival;
            self.ready.push_back(held.completion);
        }
    }

    /// How many of `posted` more receives to withhold for copies.
    fn spares_wanted(&self, posted: usize) -> usize {
        let share = (self.inner_recvs + posted) / RECVS_PER_SPARE;
        share.min(SPARES_MAX).saturating_sub(self.spares.len()).min(posted)
    }

    fn pop_into(&mut self, out: &mut [Completion]) -> usize {
        let count = out.len().min(self.ready.len());
        for (to, from) in out.iter_mut().zip(self.ready.drain(..count)) {
            *to = from;
        }
        count
    }
}

impl<P: Port> Port for Faults<P> {
    fn caps(&self) -> &PortCaps {
        self.inner.caps()
    }

    fn now(&self) -> Nanos {
        self.inner.now()
    }

    fn local_address(&self, channel: Channel) -> RawAddress {
        self.inner.local_address(channel)
    }

    fn attach(&mut self, arena: &DatagramArena) -> Result<(), PortError> {
        self.inner.attach(arena)?;
        self.arena = Some(arena.clone());
        // A lane holds at most the receives of its channel: no growth on the data path.
        let recvs = self.inner.caps().recv_depth.min(arena.slots());
        for lane in self.lanes.iter_mut().filter(|_| self.active) {
            lane.ready.reserve(BATCH * 2 + HELD_MAX);
            lane.held.reserve(HELD_MAX);
            lane.spares.reserve(SPARES_MAX);
            lane.reposts.reserve(recvs);
        }
        Ok(())
    }

    fn insert(
        &mut self,
        channel: Channel,
        address: &RawAddress,
        context: u64,
    ) -> Result<Insertion, PortError> {
        self.inner.insert(channel, address, context)
    }

    fn reap_inserts(&mut self, out: &mut ArrayVec<InsertResult, 64>) {
        self.inner.reap_inserts(out);
    }

    fn remove(&mut self, channel: Channel, peer: PortPeer) {
        self.inner.remove(channel, peer);
    }

    fn post_recvs(&mut self, channel: Channel, slots: &[u32]) -> usize {
        self.repost(channel);
        let lane = &mut self.lanes[channel as usize];
        let withheld = if self.config.dup > 0.0 { lane.spares_wanted(slots.len()) } else { 0 };
        lane.spares.extend_from_slice(&slots[..withheld]);
        let taken = self.inner.post_recvs(channel, &slots[withheld..]);
        lane.inner_recvs += taken;
        withheld + taken
    }

    fn post_sends(&mut self, channel: Channel, ops: &[SendOp]) -> usize {
        self.inner.post_sends(channel, ops)
    }

    fn poll(&mut self, channel: Channel, out: &mut [Completion]) -> usize {
        if !self.active {
            return self.inner.poll(channel, out);
        }
        self.repost(channel);
        if self.config.reorder > 0.0 {
            self.now = self.inner.now();
        }
        self.release_overdue(channel);
        let mut count = self.lanes[channel as usize].pop_into(out);
        // However much is lost, one call reads no more from the inner port than `out` could hold.
        let mut budget = out.len();
        while count < out.len() && budget > 0 {
            let want = budget.min(out.len() - count).min(BATCH);
            let read = self.inner.poll(channel, &mut self.batch[..want]);
            if read == 0 {
                break;
            }
            budget -= read;
            for i in 0..read {
                let completion = self.batch[i];
                let lane = &mut self.lanes[channel as usize];
                match completion.kind {
                    CompletionKind::Received => {
                        lane.inner_recvs -= 1;
                        self.receive(channel, completion);
                    }
                    CompletionKind::ReceiveFailed(_) => {
                        lane.inner_recvs -= 1;
                        lane.ready.push_back(completion);
                    }
                    _ => lane.ready.push_back(completion),
                }
            }
            count += self.lanes[channel as usize].pop_into(&mut out[count..]);
        }
        self.repost(channel);
        count
    }

    /// As the inner port's, but a datagram held back is not slept through.
    fn wait(&mut self, timeout_ns: Nanos) {
        if self.lanes.iter().any(|lane| !lane.ready.is_empty()) {
            return;
        }
        let release_in_ns = self.next_release_at().map(|at| at.saturating_sub(self.inner.now()));
        let timeout_ns = release_in_ns.map_or(timeout_ns, |ns| ns.min(timeout_ns));
        if timeout_ns > 0 {
            self.inner.wait(timeout_ns);
        }
    }

    fn link_event(&mut self) -> Option<LinkEvent> {
        self.inner.link_event()
    }

    fn describe(&self) -> String {
        format!("{}, with faults {}", self.inner.describe(), self.config)
    }
}
