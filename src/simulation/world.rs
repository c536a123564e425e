//! Engines of a job in virtual time, driven by events: an engine ticks when something arrived for
//! it, when a timer of its is due, or when it has more to do, and otherwise costs nothing.

use super::book::{Book, Page};
use super::cluster::Failure;
use super::measure::{ItemReport, Report, Series, fairness};
use super::plan::{Fault, FaultAction, Plan};
use super::settings::Settings;
use super::topology::Topology;
use super::traffic::{Role, TrafficState};
use crate::ports::sim::{SimNet, SimPort};
use crate::stats::Counters;
use crate::time::{MICROS, Nanos};
use crate::{Engine, PeerAddress};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An engine that finds nothing to do though something is listed (it waits for room that only an
/// arrival makes) looks again after twice the time, up to this.
const IDLE_TICK_NS_MAX: Nanos = 20 * MICROS;
/// Every so many ticks the invariants of the engine that ticked are checked.
const TICKS_PER_CHECK: u64 = 4096;
const NEVER: Nanos = Nanos::MAX;

struct Node {
    /// `None` while it restarts.
    engine: Option<Engine<SimPort>>,
    /// Nodes it talks to, in order.
    neighbours: Vec<u32>,
    /// Flows that it sends.
    flows: Vec<u32>,
    restarts: u32,
    paused: bool,
    /// Its next tick, if it has one; older entries for it among the wakes mean nothing.
    wake_at: Nanos,
    /// No tick before: the last one takes until then.
    free_at: Nanos,
    idle_ns: Nanos,
}

/// What the scenario does at a time, in this order at one and the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Fault(usize),
    /// A node is back from its restart.
    Back(u32),
    Stop(usize),
    Start(usize),
    /// Messages of a random item are due.
    Arrivals(usize),
}

/// How far a run has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Virtual time.
    pub now: Nanos,
    /// Messages that have arrived.
    pub messages: u64,
}

struct World<'a> {
    plan: &'a Plan,
    settings: Settings,
    net: SimNet,
    topology: Topology,
    /// Bytes a second for each item, as the links are at the start.
    capacities: Vec<Option<u64>>,
    nodes: Vec<Node>,
    book: Book,
    wakes: BinaryHeap<Reverse<(Nanos, u32)>>,
    agenda: BinaryHeap<Reverse<(Nanos, Act)>>,
    rng: ChaCha8Rng,
    touched: Vec<u32>,
    ticks: u64,
    queue: Series,
    /// Of engines that are gone.
    counters: Counters,
}

/// Plays a scenario. An `Err` is a fault of the engine's, or settings that no engine takes; what
/// did not finish within the scenario's limit is told in the report.
pub fn run_plan(plan: &Plan, progress: &mut dyn FnMut(Progress)) -> Result<Report, Failure> {
    let mut world = World::new(plan)?;
    let unfinished = world.run(progress)?;
    world.check_all()?;
    Ok(world.report(unfinished))
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan) -> Result<Self, Failure> {
        let traffic = TrafficState::new(&plan.traffic, plan.peers, plan.seed);
        let ways = traffic.flows.iter().map(|flow| (flow.from, flow.to));
        let mut topology = Topology::new(plan.link, plan.peers, ways);
        let net = SimNet::new(plan.seed, plan.link);
        for (scope, set) in &plan.links {
            topology.change(&net, Some(scope), set)?;
        }
        let capacities = traffic.items.iter().map(|item| {
            let flows = traffic.flows[item.flows()].iter().filter(|flow| flow.is_data());
            topology.capacity(flows.map(|flow| (flow.from, flow.to)))
        });
        let capacities = capacities.collect();
        let mut nodes: Vec<_> = (0..plan.peers).map(|_| Node::new()).collect();
        for &(from, to) in topology.pairs() {
            nodes[from as usize].neighbours.push(to);
        }
        for (at, flow) in (0..).zip(&traffic.flows) {
            nodes[flow.from as usize].flows.push(at);
        }
        let mut world = Self {
            plan,
            settings: Settings::new(&plan.engine, plan.peers)?,
            net,
            topology,
            capacities,
            nodes,
            book: Book::new(traffic, plan.engine.ordered.unwrap_or(true)),
            wakes: BinaryHeap::new(),
            agenda: BinaryHeap::new(),
            rng: ChaCha8Rng::seed_from_u64(!plan.seed),
            touched: Vec::new(),
            ticks: 0,
            queue: Series::default(),
            counters: Counters::default(),
        };
        world.open_all()?;
        world.plan_acts();
        Ok(world)
    }

    fn open_all(&mut self) -> Result<(), Failure> {
        for node in 0..self.plan.peers {
            let port = self.net.port(self.settings.port.clone());
            self.open(node, port)?;
        }
        let engines = self.nodes.iter().flat_map(|node| &node.engine);
        let addresses: Vec<_> = engines.map(Engine::local_address).collect();
        for node in 0..self.plan.peers {
            for peer in self.nodes[node as usize].neighbours.clone() {
                self.introduce(node, peer, &addresses[peer as usize])?;
            }
        }
        Ok(())
    }

    /// A new engine for a node, which knows nobody yet.
    fn open(&mut self, at: u32, port: SimPort) -> Result<(), Failure> {
        let node = &mut self.nodes[at as usize];
        let ranks = node.neighbours.last().map_or(1, |last| last + 1);
        let peers = node.neighbours.len() as u32;
        let config = self.settings.config(at, node.restarts, self.rng.next_u32(), peers, ranks);
        let engine = Engine::new(config, port).map_err(|error| format!("[engine]: {error}"))?;
        node.engine = Some(engine);
        Ok(())
    }

    /// Makes `peer` known to `node`, which may then send to it.
    fn introduce(&mut self, at: u32, peer: u32, address: &PeerAddress) -> Result<(), Failure> {
        let node = &mut self.nodes[at as usize];
        let Some(engine) = &mut node.engine else { return Ok(()) };
        let handle = engine.add_peer(address).map_err(|error| format!("peer {at}: {error}"))?;
        for &flow in &node.flows {
            if self.book.traffic.flows[flow as usize].to == peer {
                self.book.traffic.flows[flow as usize].peer = Some(handle);
                self.book.traffic.list(flow);
            }
        }
        let now = self.net.now();
        self.wake(at, now);
        Ok(())
    }

    fn plan_acts(&mut self) {
        for (i, fault) in self.plan.faults.iter().enumerate() {
            self.agenda.push(Reverse((fault.at, Act::Fault(i))));
        }
        for (i, item) in self.book.traffic.items.iter().enumerate() {
            let start = item.plan.start_ns;
            self.agenda.push(Reverse((start, Act::Start(i))));
            if let Some(duration_ns) = item.plan.duration_ns {
                self.agenda.push(Reverse((start.saturating_add(duration_ns), Act::Stop(i))));
            }
            if let Some(at) = item.next_arrival() {
                self.agenda.push(Reverse((at, Act::Arrivals(i))));
            }
        }
    }

    // Time.

    /// Until nothing is left to do; otherwise says what is not finished at the limit.
    fn run(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<Option<String>, Failure> {
        for turn in 0u64.. {
            let Some(at) = self.next_at() else {
                let over = self.book.traffic.is_over();
                return Ok((!over).then(|| self.unfinished("nothing moves any more")));
            };
            if at > self.plan.limit_ns {
                return Ok(Some(self.unfinished("the limit is reached")));
            }
            self.net.advance_to(at);
            self.book.now = at;
            self.act(at)?;
            self.wake_touched(at);
            while let Some(node) = self.next_due(at) {
                self.tick(node, at)?;
            }
            if turn.is_multiple_of(1 << 14) {
                progress(Progress { now: at, messages: self.book.messages });
            }
        }
        Ok(None)
    }

    /// When the next thing happens. What the scenario still plans is nothing once all is over.
    fn next_at(&mut self) -> Option<Nanos> {
        while let Some(&Reverse((at, node))) = self.wakes.peek() {
            if self.nodes[node as usize].wake_at == at {
                break;
            }
            self.wakes.pop();
        }
        let wake = self.wakes.peek().map(|Reverse((at, _))| *at);
        let next = self.net.next_event_at().into_iter().chain(wake).min();
        if next.is_none() && self.book.traffic.is_over() {
            return None;
        }
        let act = self.agenda.peek().map(|Reverse((at, _))| *at);
        // A scenario's past is the network's present.
        next.into_iter().chain(act).min().map(|at| at.max(self.net.now()))
    }

    fn wake(&mut self, at: u32, when: Nanos) {
        let node = &mut self.nodes[at as usize];
        let when = when.max(node.free_at);
        if when < node.wake_at && node.engine.is_some() && !node.paused {
            node.wake_at = when;
            self.wakes.push(Reverse((when, at)));
        }
    }

    fn wake_touched(&mut self, now: Nanos) {
        let mut touched = std::mem::take(&mut self.touched);
        self.net.take_touched(&mut touched);
        for &node in &touched {
            self.queue.add(now, self.net.queued_datagrams(node).into());
            self.wake(node, now);
        }
        touched.clear();
        self.touched = touched;
    }

    /// The next node whose tick is due.
    fn next_due(&mut self, now: Nanos) -> Option<u32> {
        while let Some(&Reverse((at, node))) = self.wakes.peek() {
            if at > now {
                return None;
            }
            self.wakes.pop();
            let wake_at = &mut self.nodes[node as usize].wake_at;
            if *wake_at == at {
                *wake_at = NEVER;
                return Some(node);
            }
        }
        None
    }

    fn tick(&mut self, at: u32, now: Nanos) -> Result<(), Failure> {
        let tick_ns = self.settings.tick_ns;
        let node = &mut self.nodes[at as usize];
        let Some(engine) = &mut node.engine else { return Ok(()) };
        engine.slept();
        let work = engine.tick(&mut Page { book: &mut self.book, node: at });
        self.book.send_all(at, engine);
        if let Some(failure) = self.book.failure.take() {
            return Err(format!("at {now} ns: {failure}"));
        }
        self.ticks += 1;
        if self.ticks.is_multiple_of(TICKS_PER_CHECK) {
            let broken = |violation| format!("at {now} ns: peer {at}: invariant {violation}");
            engine.check_invariants().map_err(broken)?;
        }
        node.free_at = now + tick_ns;
        node.idle_ns = match work.is_idle() {
            true => (node.idle_ns * 2).clamp(tick_ns, IDLE_TICK_NS_MAX.max(tick_ns)),
            false => tick_ns,
        };
        if let Some(deadline) = engine.next_deadline() {
            let next = if deadline <= now { now + node.idle_ns } else { deadline };
            self.wake(at, next);
        }
        Ok(())
    }

    // What the scenario does.

    fn act(&mut self, now: Nanos) -> Result<(), Failure> {
        while let Some(&Reverse((at, act))) = self.agenda.peek() {
            if at > now {
                break;
            }
            self.agenda.pop();
            match act {
                Act::Fault(i) => self.fault(&self.plan.faults[i], now)?,
                Act::Back(node) => self.come_back(node)?,
                Act::Stop(item) => self.book.traffic.stop(item),
                Act::Start(item) => {
                    self.book.traffic.start(item, now);
                    for flow in self.book.traffic.items[item].flows() {
                        self.wake(self.book.traffic.flows[flow].from, now);
                    }
                }
                Act::Arrivals(item) => {
                    let mut senders = Vec::new();
                    self.book.traffic.random_due(item, now, &mut senders);
                    senders.into_iter().for_each(|node| self.wake(node, now));
                    if let Some(next) = self.book.traffic.items[item].next_arrival() {
                        self.agenda.push(Reverse((next, act)));
                    }
                }
            }
        }
        Ok(())
    }

    fn fault(&mut self, fault: &Fault, now: Nanos) -> Result<(), Failure> {
        match &fault.what {
            FaultAction::Link(scope, set) => {
                self.topology.change(&self.net, scope.as_ref(), set)?;
            }
            FaultAction::Cut(scope, cut) => {
                for (from, to) in self.topology.pairs_in(scope) {
                    self.net.partition(from, to, *cut);
                }
            }
            FaultAction::Down(nodes, down) => {
                nodes.iter().for_each(|&node| self.net.set_node_down(node, *down));
            }
            FaultAction::Pause(nodes, paused) => {
                for &node in nodes {
                    self.nodes[node as usize].paused = *paused;
                    self.nodes[node as usize].wake_at = NEVER;
                    self.wake(node, now);
                }
            }
            FaultAction::Restart(nodes, outage_ns) => {
                for &node in nodes {
                    self.die(node, now);
                    self.agenda.push(Reverse((now + outage_ns, Act::Back(node))));
                }
            }
        }
        Ok(())
    }

    /// A process ends without a word; whoever watches the job tells those it talked to.
    fn die(&mut self, at: u32, now: Nanos) {
        let node = &mut self.nodes[at as usize];
        let Some(engine) = node.engine.take() else { return };
        self.counters += engine.counters();
        drop(engine);
        node.restarts += 1;
        node.wake_at = NEVER;
        for &flow in &node.flows {
            let flow = &mut self.book.traffic.flows[flow as usize];
            (flow.peer, flow.open) = (None, 0);
        }
        for peer in node.neighbours.clone() {
            for (from, to) in [(at, peer), (peer, at)] {
                self.book.lose(from, to);
            }
            let node = &mut self.nodes[peer as usize];
            let handle = node.engine.as_ref().and_then(|engine| engine.peer(crate::Rank(at)));
            if let (Some(engine), Some(handle)) = (&mut node.engine, handle) {
                for &flow in &node.flows {
                    let flow = &mut self.book.traffic.flows[flow as usize];
                    flow.peer = flow.peer.filter(|_| flow.to != at);
                }
                let mut page = Page { book: &mut self.book, node: peer };
                engine.remove_peer(handle, &mut page).expect("a peer that was just found");
            }
            self.wake(peer, now);
        }
    }

    /// The process is there again, with the address and rank of the old one.
    fn come_back(&mut self, at: u32) -> Result<(), Failure> {
        let port = self.net.reopen(at, self.settings.port.clone());
        self.open(at, port)?;
        let address = |node: &Node| node.engine.as_ref().map(Engine::local_address);
        for peer in self.nodes[at as usize].neighbours.clone() {
            let ends = [at, peer].map(|node| address(&self.nodes[node as usize]));
            let [Some(ours), Some(theirs)] = ends else { continue };
            self.introduce(at, peer, &theirs)?;
            self.introduce(peer, at, &ours)?;
        }
        Ok(())
    }

    // The end.

    fn unfinished(&self, why: &str) -> String {
        let traffic = &self.book.traffic;
        let items = traffic.items.iter().filter_map(|item| {
            let left = traffic.flows[item.flows()].iter().filter(|flow| flow.settled < flow.total);
            let (name, count, first) =
                (&item.plan.name, left.clone().count(), left.clone().next()?);
            let (from, to) = (first.from, first.to);
            let (settled, sent, total) = (first.settled, first.sent, first.total);
            Some(format!(
                "{name}: {count} flows are not finished; that from {from} to {to} has sent {sent} \
                 of {total} messages, {settled} have arrived"
            ))
        });
        let items: Vec<_> = items.collect();
        let now = self.net.now() / MICROS;
        match items.is_empty() {
            true => format!("{why} at {now} us, but engines still have something to do"),
            false => format!("{why} at {now} us. {}", items.join(". ")),
        }
    }

    fn check_all(&self) -> Result<(), Failure> {
        for (at, node) in self.nodes.iter().enumerate() {
            let Some(engine) = &node.engine else { continue };
            engine
                .check_invariants()
                .map_err(|violation| format!("at the end: peer {at}: invariant {violation}"))?;
        }
        Ok(())
    }

    fn report(mut self, unfinished: Option<String>) -> Report {
        for engine in self.nodes.iter().flat_map(|node| &node.engine) {
            self.counters += engine.counters();
        }
        let segments = self.counters.segments_sent.max(1) as f64;
        let items = 0..self.book.traffic.items.len();
        Report {
            title: self.plan.title.clone(),
            seed: self.plan.seed,
            peers: self.plan.peers,
            virtual_us: us(self.net.now()),
            unfinished,
            ticks: self.ticks,
            traffic: items.map(|item| self.item_report(item)).collect(),
            network: self.net.counters(),
            resent: self.counters.segments_resent as f64 / segments,
            engines: self.counters,
            latency: self.book.latency,
            queue: self.queue,
        }
    }

    fn item_report(&self, at: usize) -> ItemReport {
        let item = &self.book.traffic.items[at];
        let flows = &self.book.traffic.flows[item.flows()];
        let data = || flows.iter().filter(|flow| flow.is_data());
        let start = item.plan.start_ns;
        let elapsed_s = |ns: Nanos| (ns.saturating_sub(start).max(1)) as f64 / 1e9;
        let last = data().map(|flow| flow.last_ns).max().unwrap_or(start).max(start);
        let bytes = data().map(|flow| flow.bytes).sum::<u64>();
        let goodput = bytes as f64 / elapsed_s(last);
        // Flows that do as they are told by chance or by the other side cannot be unfair.
        let compete = |role| {
            matches!(role, Role::Response | Role::Exchange)
                || role == Role::Plain && item.plan.is_stream()
        };
        let shares: Vec<_> = data()
            .filter(|flow| compete(flow.role))
            .map(|flow| flow.bytes as f64 / elapsed_s(flow.last_ns))
            .collect();
        let mut completion = super::measure::Durations::default();
        data().for_each(|flow| completion.add(flow.last_ns.saturating_sub(start)));
        ItemReport {
            name: item.plan.name.clone(),
            flows: data().count(),
            messages: item.messages,
            bytes,
            messages_lost: flows.iter().map(|flow| flow.lost).sum(),
            start_us: us(start),
            elapsed_us: us(last - start),
            goodput_mb_per_s: goodput / 1e6,
            goodput_of_link: self.capacities[at].map(|capacity| goodput / capacity as f64),
            latency: item.latency.percentiles(),
            rounds: item.rounds.percentiles(),
            completion: completion.percentiles(),
            fairness: fairness(&shares),
            arrivals: item.arrived.clone(),
        }
    }
}

fn us(ns: Nanos) -> f64 {
    ns as f64 / 1000.0
}

impl Node {
    fn new() -> Self {
        Self {
            engine: None,
            neighbours: Vec::new(),
            flows: Vec::new(),
            restarts: 0,
            paused: false,
            wake_at: NEVER,
            free_at: 0,
            idle_ns: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check of payloads is what everything here rests on. No file can ask for this: a flipped
    /// bit that no checksum catches.
    #[test]
    fn a_flipped_bit_is_found() {
        let text = "title = 'x'\npeers = 2\nengine = { checksum = true }\n\
                    link = { latency = '1us', corrupt = '1%' }\n[[traffic]]\n\
                    pattern = 'stream'\nfrom = '0'\nto = '1'\nmessage = 1000\nbytes = '1MB'\n";
        let mut plan = Plan::parse(text).expect("a scenario");
        let report = run_plan(&plan, &mut |_| {}).expect("checksums catch all");
        assert!(report.engines.drops_bad_checksum > 0 && report.unfinished.is_none());
        plan.engine.checksum = Some(false);
        let failure = run_plan(&plan, &mut |_| {}).expect_err("some bits flip in payloads");
        assert!(failure.contains("wrong at byte"), "{failure}");
    }
}
