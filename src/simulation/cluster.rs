//! Engines, their network, and the books of what was sent and what must arrive.

use super::hostile::{Passed, Record};
use super::payload;
use super::process::{Book, Name};
use crate::congestion::Congestion;
use crate::ports::sim::{LinkModel, SimNet, SimPort, SimPortConfig};
use crate::time::{MICROS, Nanos, SECONDS};
use crate::{
    AuthKey, Config, Engine, Incarnation, JobKey, PeerAddress, Rank, SendError, Tag, Token,
};

/// What went wrong, in words for the one who replays it.
pub type Failure = String;

/// No tick is due.
pub(super) const NEVER: Nanos = Nanos::MAX;
/// How long a tick takes.
const TICK_NS: Nanos = 200;

/// Of the ticks in a row that find nothing to do, one in so many is checked, and the first.
const IDLE_TICKS_PER_CHECK: u32 = 16;

/// How a cluster is built.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// How many engines.
    pub nodes: u32,
    /// Of the network.
    pub seed: u64,
    /// Of every link.
    pub model: LinkModel,
    /// Of every port.
    pub port: SimPortConfig,
    /// First sequence number of every engine.
    pub first_seq: u32,
    /// Deliver in order.
    pub ordered: bool,
    /// CRC32C on every datagram; needed when the network corrupts.
    pub checksum: bool,
    /// [`Config::dead_after_ns`] of every engine.
    pub dead_after_ns: Nanos,
    /// [`Config::congestion`] of every engine.
    pub congestion: Congestion,
    /// A tag on every datagram instead.
    pub authenticate: bool,
    /// Changes the other settings of every engine.
    pub tweak: fn(&mut Config),
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            nodes: 2,
            seed: 0,
            model: LinkModel::default(),
            port: SimPortConfig::default(),
            first_seq: u32::MAX - 10,
            ordered: true,
            checksum: false,
            dead_after_ns: 10 * SECONDS,
            congestion: Congestion::Delay { target_ns: 100_000 },
            authenticate: false,
            tweak: |_| {},
        }
    }
}

pub(super) struct Node {
    /// `None` while no process runs there.
    pub engine: Option<Engine<SimPort>>,
    pub book: Book,
    pub paused: bool,
    /// When its next tick is due.
    pub wake_at: Nanos,
    /// An engine that waits for room looks again after this time.
    pub idle_ns: Nanos,
    /// Ticks since the last one that did something.
    pub idle_ticks: u32,
    /// It is closing, and leaves then at the latest.
    pub leaves_at: Option<Nanos>,
    /// Messages that former processes got.
    pub received_before: u64,
}

impl Node {
    fn due_at(&self) -> Nanos {
        self.leaves_at.unwrap_or(NEVER).min(self.wake_at)
    }
}

/// What happens later, whatever the operations are.
pub(super) enum Act {
    /// A new process starts on a node.
    Open,
    /// The node's process hears of another.
    Introduce(PeerAddress),
}

/// Engines on one simulated network, driven by events: an engine ticks when something arrived for
/// it, when something of it is due, and when it is told to.
pub struct Cluster {
    pub(super) config: ClusterConfig,
    pub(super) net: SimNet,
    pub(super) nodes: Vec<Node>,
    pub(super) agenda: Vec<(Nanos, usize, Act)>,
    /// Sessions that are not of the first processes.
    pub(super) sessions: u64,
    /// How late the others hear of a restart.
    pub(super) late_ns: Nanos,
    pub(super) dice: u64,
    next_token: u64,
    scratch: Vec<u8>,
    touched: Vec<u32>,
    record: Record,
}

impl Cluster {
    /// Shared by all engines of all clusters.
    pub const JOB_KEY: JobKey = JobKey(0x7469_636B);
    /// Likewise, where they authenticate.
    pub const AUTH_KEY: AuthKey = AuthKey::from_bytes(*b"sixteen bytes ok");

    /// The session word of datagrams from one rank of a fresh cluster to another.
    pub fn session(from: u32, to: u32) -> u32 {
        let of = |rank| (Rank(rank), Incarnation(rank + 1));
        Self::JOB_KEY.session(of(from), of(to))
    }

    /// Builds the engines and makes all of them peers of each other.
    pub fn new(config: &ClusterConfig) -> Self {
        let net = SimNet::new(config.seed, config.model);
        let nodes = (0..config.nodes).map(|rank| {
            let me = Name { rank: rank as usize, incarnation: rank + 1 };
            Node {
                engine: None,
                book: Book::new(me, config.ordered, config.dead_after_ns),
                paused: false,
                wake_at: 0,
                idle_ns: 0,
                idle_ticks: 0,
                leaves_at: None,
                received_before: 0,
            }
        });
        let mut cluster = Self {
            config: config.clone(),
            net,
            nodes: nodes.collect(),
            agenda: Vec::new(),
            sessions: 0,
            late_ns: 1,
            dice: config.seed,
            next_token: 0,
            scratch: Vec::new(),
            touched: Vec::new(),
            record: Record::default(),
        };
        for at in 0..cluster.len() {
            let port = cluster.net.port(config.port.clone());
            cluster.nodes[at].engine = Some(cluster.build(at, port));
        }
        let engines = cluster.nodes.iter().flat_map(|node| &node.engine);
        let addresses: Vec<_> = engines.map(Engine::local_address).collect();
        for at in 0..cluster.len() {
            for address in addresses.iter().filter(|address| address.rank.0 as usize != at) {
                cluster.add_peer(at, address, |_| 0).expect("simulated peers fit");
            }
        }
        cluster
    }

    /// An engine for the process that the node's book names.
    pub(super) fn build(&self, at: usize, port: SimPort) -> Engine<SimPort> {
        let (from, n) = (&self.config, self.config.nodes);
        let mut config = Config::new(Rank(at as u32), Self::JOB_KEY);
        config.incarnation = Incarnation(self.nodes[at].book.me.incarnation);
        config.first_seq = from.first_seq;
        config.name = format!("node{at}");
        // Dead ones stay until they are removed.
        config.peers_max = (2 * n).max(4);
        config.active_peers_max = n.max(2);
        config.ranks_max = n;
        config.ordered = from.ordered;
        config.checksum = from.checksum;
        config.authenticate = from.authenticate.then_some(Self::AUTH_KEY);
        config.dead_after_ns = from.dead_after_ns;
        config.congestion = from.congestion;
        (from.tweak)(&mut config);
        Engine::new(config, port).expect("the configuration of a simulation is valid")
    }

    /// Records what passes from now on, for the hostile operations. Takes the network's tap.
    pub fn record(&mut self) {
        self.net.set_tap(self.record.tap());
    }

    /// One of the last datagrams that passed while they were recorded, the newest being 0.
    pub fn passed(&self, index: u8) -> Option<Passed> {
        self.record.get(index)
    }

    /// Whether all datagrams carry a checksum or a tag.
    pub fn has_trailers(&self) -> bool {
        self.config.checksum || self.config.authenticate
    }

    /// The network. Its nodes have the numbers of the cluster's.
    pub fn net(&self) -> &SimNet {
        &self.net
    }

    /// One engine. Panics when no process runs there.
    pub fn engine(&mut self, node: usize) -> &mut Engine<SimPort> {
        self.wake(node);
        self.nodes[node].engine.as_mut().expect("a process runs")
    }

    /// How many nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Messages that the processes of `node` were given.
    pub fn received(&self, node: usize) -> u64 {
        self.nodes[node].received_before + self.nodes[node].book.received
    }

    /// A paused node does not tick until it is woken.
    pub fn pause(&mut self, node: usize, paused: bool) {
        self.nodes[node].paused = paused;
        self.wake(node);
    }

    /// The faults are over: `model` holds everywhere, nothing is cut, nobody is paused, whoever is
    /// to come back comes back now.
    pub fn calm(&mut self, model: LinkModel) {
        self.net.set_model(model);
        for a in 0..self.len() {
            self.pause(a, false);
            for b in (0..self.len()).filter(|&b| b != a) {
                self.net.partition(a as u32, b as u32, false);
                self.net.fail_sends(a as u32, b as u32, 0, 0);
            }
        }
        let now = self.net.now();
        self.agenda.iter_mut().for_each(|(at, ..)| *at = now.min(*at));
    }

    /// The node's next tick is now.
    pub(super) fn wake(&mut self, node: usize) {
        self.nodes[node].wake_at = 0;
    }

    /// Sends a message of `len` checked bytes. `Again` is an answer, not a failure.
    pub fn send(
        &mut self,
        from: usize,
        to: usize,
        len: usize,
        owned: bool,
    ) -> Result<(), SendError> {
        self.wake(from);
        let Node { engine, book, .. } = &mut self.nodes[from];
        let (me, page) = (book.me, book.current(to).ok_or(SendError::NoPeer)?);
        let (Some(engine), Some(handle)) = (engine, page.handle) else {
            return Err(SendError::NoPeer);
        };
        let number = page.next_number;
        self.scratch.resize(len, 0);
        payload::fill(&mut self.scratch, from as u32, number);
        let tag = Tag(number as u32);
        if owned {
            let token = Token(self.next_token);
            let sent = engine.send_from(handle, tag, self.scratch.clone(), token);
            sent.map_err(|(error, _)| error)?;
            self.next_token += 1;
            page.tokens_open.push(token);
        } else {
            engine.send_copy(handle, tag, &self.scratch)?;
        }
        page.next_number += 1;
        let receiver = page.peer;
        // What was meant for another process may end as it will, but never here.
        if receiver == self.nodes[to].book.me && self.nodes[to].engine.is_some() {
            let sessions = &mut self.sessions;
            let page = self.nodes[to].book.page_of(me, || next_session(sessions));
            page.expected.push_back((number, len));
        }
        Ok(())
    }

    /// One tick of one engine, then all checks on it.
    pub fn tick(&mut self, at: usize) -> Result<bool, Failure> {
        let now = self.net.now();
        let node = &mut self.nodes[at];
        let Some(engine) = node.engine.as_mut().filter(|_| !node.paused) else { return Ok(false) };
        node.book.now = now;
        let work = engine.tick(&mut node.book);
        node.book.check()?;
        let busy = !work.is_idle();
        node.idle_ticks = if busy { 0 } else { node.idle_ticks + 1 };
        // Looking through all tables costs far more than a tick that finds nothing to do.
        if node.idle_ticks % IDLE_TICKS_PER_CHECK <= 1 {
            engine.check_invariants().map_err(|v| format!("rank {at}: invariant {v}"))?;
        }
        if busy {
            (node.wake_at, node.idle_ns) = (now, TICK_NS);
        } else {
            let ahead = self.net.clock_ahead_ns(at as u32);
            node.wake_at = match engine.next_deadline().map(|at| at.saturating_sub(ahead)) {
                None => NEVER,
                Some(due) if due > now => due,
                // Something is listed that cannot go on before something arrives.
                Some(_) => {
                    node.idle_ns = (2 * node.idle_ns).clamp(TICK_NS, 20 * MICROS);
                    now + node.idle_ns
                }
            };
        }
        self.after_tick(at)?;
        Ok(busy)
    }

    /// One tick of every engine; true if any did something.
    pub fn tick_all(&mut self) -> Result<bool, Failure> {
        let mut busy = false;
        for at in 0..self.nodes.len() {
            busy |= self.tick(at)?;
        }
        Ok(busy)
    }

    /// Ticks whoever has something to do, for `dt_ns` of virtual time, looking up at least every
    /// `step_ns`.
    pub fn run_for(&mut self, dt_ns: Nanos, step_ns: Nanos) -> Result<(), Failure> {
        let end = self.net.now() + dt_ns;
        while self.net.now() < end {
            self.step(end, step_ns)?;
        }
        Ok(())
    }

    /// A round of ticks of those that have something to do; time goes on by a little, or to when
    /// the next one has.
    pub(super) fn step(&mut self, end: Nanos, step_ns: Nanos) -> Result<(), Failure> {
        let now = self.net.now();
        self.act(now)?;
        self.net.take_touched(&mut self.touched);
        for node in self.touched.drain(..) {
            self.nodes[node as usize].wake_at = now;
        }
        for at in 0..self.nodes.len() {
            if self.nodes[at].due_at() <= now {
                if let Some(engine) = &mut self.nodes[at].engine {
                    engine.slept();
                }
                self.tick(at)?;
            }
        }
        let wakes = self.nodes.iter().filter(|node| node.engine.is_some() && !node.paused);
        let wakes = wakes.map(Node::due_at);
        let acts = self.agenda.iter().map(|(at, ..)| *at);
        let next = wakes.chain(acts).chain(self.net.next_event_at()).min().unwrap_or(end);
        self.net.advance_to(next.min(now + step_ns).min(end).max(now + TICK_NS));
        Ok(())
    }

    /// Runs until everything sent has arrived and is acked, at most `limit_ns` of virtual time.
    pub fn drain(&mut self, limit_ns: Nanos, step_ns: Nanos) -> Result<(), Failure> {
        let end = self.net.now() + limit_ns;
        while !self.is_drained() {
            if self.net.now() >= end {
                return Err(self.stuck());
            }
            self.step(end, step_ns)?;
        }
        Ok(())
    }

    /// Whether everything that must arrive has arrived, is acked and reported.
    pub fn is_drained(&self) -> bool {
        self.agenda.is_empty()
            && self.nodes.iter().all(|node| {
                let Some(engine) = &node.engine else { return true };
                node.leaves_at.is_none()
                    && node.book.pages.iter().all(|page| {
                        (page.expected.is_empty() || !page.is_owed)
                            && page.tokens_open.is_empty()
                            && page.handle.is_none_or(|handle| engine.is_drained(handle))
                    })
            })
    }

    pub(super) fn stuck(&self) -> Failure {
        let mut text = format!("not drained at {} ns:", self.net.now());
        for node in &self.nodes {
            let Some(engine) = &node.engine else { continue };
            let me = node.book.me;
            for page in &node.book.pages {
                let (peer, waiting) = (page.peer, page.expected.len());
                if let Some(front) = page.expected.front().filter(|_| page.is_owed) {
                    text += &format!(" {waiting} from {peer:?} to {me:?}, first {front:?};");
                }
                if !page.tokens_open.is_empty() {
                    text += &format!(" {me:?} to {peer:?}: {:?};", page.tokens_open);
                }
                if page.handle.is_some_and(|handle| !engine.is_drained(handle)) {
                    text += &format!(" {me:?} has not sent all to {peer:?};");
                }
            }
            let counters = engine.counters().rows().into_iter().filter(|(_, n)| *n > 0);
            text += &format!(" {:?};", counters.collect::<Vec<_>>());
        }
        text
    }
}

/// First message number of another session. Numbers of sessions are apart, so that none of one is
/// ever taken for one of another.
pub(super) fn next_session(sessions: &mut u64) -> u64 {
    *sessions += 1;
    *sessions << 18
}
