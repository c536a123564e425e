//! The state of a simulated network: nodes, links, events in virtual time.

use super::model::{LinkModel, NodeNumber, SimCounters, Tap, TapFn, Verdict};
use super::node::{Arrival, Node, Parts};
use super::pool::PacketPool;
use crate::ports::{Channel, SendOp};
use crate::time::Nanos;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

/// Host unreachable: the peer of a send was not inserted.
pub(super) const EHOSTUNREACH: i32 = 113;
/// Message too long.
pub(super) const EMSGSIZE: i32 = 90;
/// The sender of injected datagrams.
const OUTSIDE: NodeNumber = NodeNumber::MAX;

/// What happens at an event. In this order at one and the same time: what leaves a link makes
/// room for what reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// The packet has passed the receiver's link.
    Arrive,
    /// The packet reaches the receiver's link.
    Reach,
    /// The packet was held back long enough.
    Unhold,
    /// A send completion of a node is due; there is no packet.
    Wake,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at: Nanos,
    stage: Stage,
    order: u64,
    /// The packet; the node of a `Wake`.
    packet: u32,
    serial: u64,
}

/// What an ordered pair of nodes remembers.
#[derive(Default)]
struct Pair {
    in_burst: bool,
    /// Packets held back, per channel, oldest first.
    held: [Vec<u32>; 2],
}

pub(super) struct Network {
    pub(super) now: Nanos,
    pub(super) nodes: Vec<Node>,
    pub(super) counters: SimCounters,
    pub(super) pool: PacketPool,
    /// Nodes whose ports may have got something to poll since this was last asked for, each once.
    pub(super) touched: Vec<NodeNumber>,
    /// No delay, fault, tap or cut anywhere: datagrams go straight into the receiver's slots.
    plain: bool,
    model: LinkModel,
    /// Never iterated in an order that matters: behaviour does not depend on hashing.
    links: HashMap<(NodeNumber, NodeNumber), LinkModel>,
    cuts: HashSet<(NodeNumber, NodeNumber)>,
    nodes_down: u32,
    pairs: HashMap<(NodeNumber, NodeNumber), Pair>,
    held: u32,
    events: BinaryHeap<Reverse<Event>>,
    events_ever: u64,
    tap: Option<TapFn>,
    rng: ChaCha8Rng,
}

impl Network {
    pub(super) fn new(seed: u64, model: LinkModel) -> Self {
        model.check();
        Self {
            now: 0,
            nodes: Vec::new(),
            counters: SimCounters::default(),
            pool: PacketPool::new(),
            touched: Vec::new(),
            plain: model.is_plain(),
            model,
            links: HashMap::new(),
            cuts: HashSet::new(),
            nodes_down: 0,
            pairs: HashMap::new(),
            held: 0,
            events: BinaryHeap::new(),
            events_ever: 0,
            tap: None,
            rng: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    // Settings.

    fn settings_changed(&mut self) {
        self.plain = self.model.is_plain()
            && self.links.values().all(LinkModel::is_plain)
            && self.cuts.is_empty()
            && self.nodes_down == 0
            && self.tap.is_none();
    }

    pub(super) fn set_model(&mut self, model: LinkModel) {
        model.check();
        self.model = model;
        self.settings_changed();
    }

    pub(super) fn set_link(&mut self, from: NodeNumber, to: NodeNumber, model: Option<LinkModel>) {
        match model {
            Some(model) => {
                model.check();
                self.links.insert((from, to), model);
            }
            None => {
                self.links.remove(&(from, to));
            }
        }
        self.settings_changed();
    }

    pub(super) fn partition(&mut self, from: NodeNumber, to: NodeNumber, cut: bool) {
        if cut {
            self.cuts.insert((from, to));
        } else {
            self.cuts.remove(&(from, to));
        }
        self.settings_changed();
    }

    pub(super) fn set_node_down(&mut self, node: NodeNumber, down: bool) {
        let was = std::mem::replace(&mut self.nodes[node as usize].down, down);
        self.nodes_down += u32::from(down);
        self.nodes_down -= u32::from(was);
        self.settings_changed();
    }

    pub(super) fn set_tap(&mut self, tap: Option<TapFn>) {
        self.tap = tap;
        self.settings_changed();
    }

    fn model_of(&self, from: NodeNumber, to: NodeNumber) -> LinkModel {
        if self.links.is_empty() {
            return self.model;
        }
        self.links.get(&(from, to)).copied().unwrap_or(self.model)
    }

    // Chance.

    /// True with probability `p`; draws only when the outcome is open.
    fn chance(&mut self, p: f64) -> bool {
        // 53 random bits are what an f64 holds.
        p > 0.0 && ((self.rng.next_u64() >> 11) as f64) < p * (1u64 << 53) as f64
    }

    /// Uniform in `0..n`, by multiplication; the bias of at most n / 2^64 does no harm.
    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.rng.next_u64()) * u128::from(n)) >> 64) as u64
    }

    // Sending.

    /// Sends one datagram of node `from`. Its bytes are read before this returns.
    #[inline]
    pub(super) fn send(
        &mut self,
        from: NodeNumber,
        channel: Channel,
        op: &SendOp,
    ) -> Result<(), i32> {
        let node = &self.nodes[from as usize];
        let parts = node.send_parts(op)?;
        if !node.has_peer(channel, op.peer) {
            return Err(EHOSTUNREACH);
        }
        let to = op.peer.0 as NodeNumber;
        self.counters.sent += 1;
        if self.plain {
            self.arrive_parts(from, to, channel, parts);
        } else {
            let packet = self.pool.take((from, to), channel, parts.len_bytes());
            parts.copy_to(self.pool.bytes_mut(packet));
            self.route(packet);
        }
        Ok(())
    }

    /// A datagram from outside, straight to the node.
    pub(super) fn inject(&mut self, to: NodeNumber, channel: Channel, bytes: &[u8]) {
        assert!((to as usize) < self.nodes.len(), "there is no node {to}");
        self.counters.injected += 1;
        self.arrive_parts(OUTSIDE, to, channel, Parts::of(bytes));
    }

    /// Applies the faults of the link to a packet just sent, and sends what is left on its way.
    fn route(&mut self, packet: u32) {
        let (from, to) = (self.pool.get(packet).from, self.pool.get(packet).to);
        if self.nodes[from as usize].down || self.cuts.contains(&(from, to)) {
            self.counters.cut += 1;
            return self.pool.release(packet);
        }
        let verdict = self.ask_tap(packet);
        let model = self.model_of(from, to);
        if verdict == Verdict::Drop || self.is_lost(from, to, &model) {
            self.counters.lost += 1;
            return self.pool.release(packet);
        }
        if let Verdict::DelayBy(delay_ns) = verdict {
            self.pool.get_mut(packet).delay_ns = delay_ns;
        }
        if self.chance(model.corrupt) {
            self.flip_bit(packet);
        }
        let copies = u32::from(verdict == Verdict::Copy) + u32::from(self.chance(model.dup));
        // Copies are taken first: sending the original may already release it.
        let copies: [Option<u32>; 2] =
            std::array::from_fn(|i| ((i as u32) < copies).then(|| self.pool.copy(packet)));
        self.hold_or_transmit(packet, &model);
        for copy in copies.into_iter().flatten() {
            self.counters.duplicated += 1;
            self.hold_or_transmit(copy, &model);
        }
    }

    fn ask_tap(&mut self, packet: u32) -> Verdict {
        let Some(tap) = self.tap.as_mut() else { return Verdict::Deliver };
        let row = self.pool.get(packet);
        tap(Tap {
            from: row.from,
            to: row.to,
            channel: row.channel,
            bytes: self.pool.bytes(packet),
            number: self.counters.sent - 1,
        })
    }

    fn is_lost(&mut self, from: NodeNumber, to: NodeNumber, model: &LinkModel) -> bool {
        let lost = self.chance(model.loss);
        let burst = model.burst;
        if burst.p_enter == 0.0 {
            return lost;
        }
        let was_in_burst = self.pairs.entry((from, to)).or_default().in_burst;
        let changes = self.chance(if was_in_burst { burst.p_leave } else { burst.p_enter });
        let in_burst = was_in_burst != changes;
        self.pairs.entry((from, to)).or_default().in_burst = in_burst;
        (in_burst && self.chance(burst.loss_in_burst)) || lost
    }

    fn flip_bit(&mut self, packet: u32) {
        let bits = u64::from(self.pool.get(packet).len_bytes) * 8;
        if bits == 0 {
            return;
        }
        let bit = self.below(bits) as usize;
        self.pool.bytes_mut(packet)[bit / 8] ^= 1 << (bit % 8);
        self.counters.corrupted += 1;
    }

    fn hold_or_transmit(&mut self, packet: u32, model: &LinkModel) {
        if !self.chance(model.reorder) {
            return self.transmit_and_pass(packet);
        }
        let places = match model.reorder_places_max {
            0 => u32::MAX,
            max => 1 + self.below(u64::from(max)) as u32,
        };
        let row = self.pool.get_mut(packet);
        row.passes_left = places;
        let (from, to, channel) = (row.from, row.to, row.channel);
        self.pairs.entry((from, to)).or_default().held[channel as usize].push(packet);
        self.held += 1;
        self.counters.reordered += 1;
        self.schedule(
            self.now.saturating_add(model.reorder_delay_ns.max(1)),
            Stage::Unhold,
            packet,
        );
    }

    /// Transmits, then lets go of the packets held back that have now been passed often enough.
    /// A packet counts as passing only those sent before it, so the bound on places is exact.
    fn transmit_and_pass(&mut self, packet: u32) {
        let row = self.pool.get(packet);
        let (pair, channel, mut serial) = ((row.from, row.to), row.channel as usize, row.serial);
        self.transmit(packet);
        while self.held > 0 {
            let Some(held) = self.pairs.get_mut(&pair).map(|pair| &mut pair.held[channel]) else {
                return;
            };
            for &id in held.iter() {
                let row = self.pool.get_mut(id);
                row.passes_left -= u32::from(row.serial < serial && row.passes_left < u32::MAX);
            }
            let due = held.iter().position(|&id| self.pool.get(id).passes_left == 0);
            let Some(due) = due else { return };
            let next = held.remove(due);
            self.held -= 1;
            serial = self.pool.get(next).serial;
            self.transmit(next);
        }
    }

    /// Sends a packet over the sender's link and the way between.
    fn transmit(&mut self, packet: u32) {
        let row = self.pool.get(packet);
        let (from, to, len_bytes, delay_ns) = (row.from, row.to, row.len_bytes, row.delay_ns);
        let model = self.model_of(from, to);
        let mut at = self.now;
        if model.bytes_per_s > 0 {
            let link = &mut self.nodes[from as usize].tx_free_ps;
            *link = (*link).max(to_ps(at)).saturating_add(model.serialisation_ps(len_bytes));
            at = link.div_ceil(1000);
        }
        at = at.saturating_add(model.latency_ns).saturating_add(delay_ns);
        if model.jitter_ns > 0 {
            at = at.saturating_add(self.below(model.jitter_ns.saturating_add(1)));
        }
        if model.delay_spike_ns > 0 && self.chance(model.delay_spike) {
            at = at.saturating_add(model.delay_spike_ns);
        }
        if at == self.now {
            self.reach(packet);
        } else {
            self.schedule(at, Stage::Reach, packet);
        }
    }

    /// A packet reaches the receiver's link.
    fn reach(&mut self, packet: u32) {
        let row = self.pool.get(packet);
        let (from, to, len_bytes) = (row.from, row.to, row.len_bytes);
        let model = self.model_of(from, to);
        if model.bytes_per_s == 0 {
            return self.arrive(packet);
        }
        let node = &mut self.nodes[to as usize];
        if model.queue_datagrams > 0 && node.on_rx_link >= model.queue_datagrams {
            self.counters.queue_full += 1;
            return self.pool.release(packet);
        }
        node.on_rx_link += 1;
        node.rx_free_ps =
            node.rx_free_ps.max(to_ps(self.now)).saturating_add(model.serialisation_ps(len_bytes));
        let at = node.rx_free_ps.div_ceil(1000);
        self.schedule(at, Stage::Arrive, packet);
    }

    /// A packet arrives at its node.
    fn arrive(&mut self, packet: u32) {
        let row = self.pool.get(packet);
        let (to, channel) = (row.to, row.channel);
        self.touch(to);
        let node = &mut self.nodes[to as usize];
        if node.receive(channel, Parts::of(self.pool.bytes(packet)), &mut self.counters)
            == Arrival::Waits
        {
            self.pool.push_back(&mut node.waiting[channel as usize], packet);
        } else {
            self.pool.release(packet);
        }
    }

    /// A datagram that is in no packet yet arrives.
    #[inline]
    fn arrive_parts(&mut self, from: NodeNumber, to: NodeNumber, channel: Channel, parts: Parts) {
        self.touch(to);
        let node = &mut self.nodes[to as usize];
        if node.receive(channel, parts, &mut self.counters) == Arrival::Waits {
            let packet = self.pool.take((from, to), channel, parts.len_bytes());
            parts.copy_to(self.pool.bytes_mut(packet));
            self.pool.push_back(&mut node.waiting[channel as usize], packet);
        }
    }

    /// Moves waiting datagrams into receives that were just posted.
    pub(super) fn drain_waiting(&mut self, of: NodeNumber, channel: Channel) {
        if self.nodes[of as usize].waiting[channel as usize].len() == 0 {
            return;
        }
        self.touch(of);
        let node = &mut self.nodes[of as usize];
        while node.can_receive(channel) {
            let Some(packet) = self.pool.pop_front(&mut node.waiting[channel as usize]) else {
                return;
            };
            node.fill(channel, Parts::of(self.pool.bytes(packet)), &mut self.counters);
            self.pool.release(packet);
        }
    }

    /// The node's port is gone: what waits there goes to nobody.
    pub(super) fn close(&mut self, node: NodeNumber) {
        let node = &mut self.nodes[node as usize];
        node.close();
        for queue in &mut node.waiting {
            while let Some(packet) = self.pool.pop_front(queue) {
                self.counters.to_nobody += 1;
                self.pool.release(packet);
            }
        }
    }

    // Time.

    fn schedule(&mut self, at: Nanos, stage: Stage, packet: u32) {
        let serial = self.pool.get(packet).serial;
        self.events_ever += 1;
        let order = self.events_ever;
        self.events.push(Reverse(Event { at, stage, order, packet, serial }));
    }

    /// Makes `at` an event, so that whoever follows the events looks at the node again then.
    pub(super) fn schedule_wake(&mut self, at: Nanos, node: NodeNumber) {
        self.events_ever += 1;
        let (stage, order) = (Stage::Wake, self.events_ever);
        self.events.push(Reverse(Event { at, stage, order, packet: node, serial: 0 }));
    }

    /// The node's port may have something to poll.
    #[inline]
    pub(super) fn touch(&mut self, node: NodeNumber) {
        let touched = &mut self.nodes[node as usize].touched;
        if !std::mem::replace(touched, true) {
            self.touched.push(node);
        }
    }

    /// Whether a packet that was held back has since gone on: its time-out means nothing then.
    fn is_stale(&self, event: &Event) -> bool {
        event.stage == Stage::Unhold && !self.is_held(event.packet, event.serial)
    }

    fn is_held(&self, packet: u32, serial: u64) -> bool {
        let row = self.pool.get(packet);
        row.serial == serial && row.passes_left > 0
    }

    pub(super) fn next_event_at(&mut self) -> Option<Nanos> {
        while let Some(Reverse(event)) = self.events.peek() {
            if !self.is_stale(event) {
                return Some(event.at);
            }
            self.events.pop();
        }
        None
    }

    /// Runs the next event, when there is one up to `until`.
    fn step(&mut self, until: Nanos) -> bool {
        match self.next_event_at() {
            Some(at) if at <= until => self.now = self.now.max(at),
            _ => return false,
        }
        let Some(Reverse(event)) = self.events.pop() else { return false };
        match event.stage {
            Stage::Arrive => {
                self.nodes[self.pool.get(event.packet).to as usize].on_rx_link -= 1;
                self.arrive(event.packet);
            }
            Stage::Reach => self.reach(event.packet),
            Stage::Unhold => self.unhold(event.packet),
            Stage::Wake => self.touch(event.packet),
        }
        true
    }

    fn unhold(&mut self, packet: u32) {
        let row = self.pool.get(packet);
        let (pair, channel) = ((row.from, row.to), row.channel as usize);
        let pair = self.pairs.get_mut(&pair).expect("a pair with a held packet");
        pair.held[channel].retain(|&id| id != packet);
        self.held -= 1;
        self.transmit_and_pass(packet);
    }

    pub(super) fn advance_to(&mut self, until: Nanos) {
        while self.step(until) {}
        self.now = self.now.max(until);
    }
}

fn to_ps(at: Nanos) -> u64 {
    at.saturating_mul(1000)
}
