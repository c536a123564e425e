//! Engines, their network, and the book of what was sent and what must arrive.

use super::hostile::{Passed, Record};
use super::payload;
use crate::ports::sim::{LinkModel, SimNet, SimPort, SimPortConfig};
use crate::time::Nanos;
use crate::{
    AuthKey, Config, Context, EndpointHandle, Engine, Event, Handler, Incarnation, JobKey, Message,
    Rank, SendError, Tag, Token,
};
use std::collections::VecDeque;

/// What went wrong, in words for the one who replays it.
pub type Failure = String;

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
            authenticate: false,
            tweak: |_| {},
        }
    }
}

/// What one engine's side expects and has seen.
struct Book {
    rank: u32,
    ordered: bool,
    /// Per source: lengths of messages sent and not yet arrived, with their numbers.
    expected: Vec<VecDeque<(u64, usize)>>,
    tokens_open: Vec<u64>,
    received: u64,
    failure: Option<Failure>,
}

impl Book {
    fn on_message(&mut self, source: u32, message: &Message<'_>) {
        self.received += 1;
        let queue = &mut self.expected[source as usize];
        let tag = u64::from(message.tag.0);
        let place = if self.ordered {
            queue.front().filter(|(number, _)| *number == tag).map(|_| 0)
        } else {
            queue.iter().position(|(number, _)| *number == tag)
        };
        let me = self.rank;
        let Some(place) = place else {
            let next = queue.front().copied();
            self.fail(format!("rank {me}: message {tag} of {source}; expected next: {next:?}"));
            return;
        };
        let Some((number, len)) = queue.remove(place) else { return };
        let bytes = message.bytes();
        if bytes.len() != len {
            let got = bytes.len();
            self.fail(format!("rank {me}: message {number} of {source}: {got} bytes, not {len}"));
        } else if let Some(at) = payload::first_difference(bytes, source, number) {
            self.fail(format!("rank {me}: message {number} of {source}: wrong at byte {at}"));
        }
    }

    fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }
}

impl Handler<SimPort> for Book {
    fn on_event(&mut self, context: &mut Context<SimPort>, event: Event<'_>) {
        match event {
            Event::Received(message) => {
                let Some(source) = context.rank(message.from) else {
                    return self.fail(format!("rank {}: message from nobody", self.rank));
                };
                self.on_message(source.0, &message);
            }
            Event::SendDone { token, .. } => {
                match self.tokens_open.iter().position(|&t| t == token.0) {
                    Some(at) => {
                        self.tokens_open.swap_remove(at);
                    }
                    None => self.fail(format!("rank {}: {token:?} done twice", self.rank)),
                }
            }
            Event::SendFailed { token, .. } => {
                self.fail(format!("rank {}: {token:?} failed", self.rank));
            }
            Event::PeerUnreachable { name, reason, .. } => {
                self.fail(format!("rank {}: {name} unreachable ({reason})", self.rank));
            }
            _ => {}
        }
    }
}

struct Node {
    engine: Engine<SimPort>,
    book: Book,
    /// Number of the next message to each other node.
    numbers: Vec<u64>,
    peers: Vec<Option<EndpointHandle>>,
    paused: bool,
}

/// Engines on one simulated network.
pub struct Cluster {
    net: SimNet,
    nodes: Vec<Node>,
    next_token: u64,
    scratch: Vec<u8>,
    record: Record,
    has_trailers: bool,
}

impl Cluster {
    /// Shared by all engines of all clusters.
    pub const JOB_KEY: JobKey = JobKey(0x7469_636B);
    /// Likewise, where they authenticate.
    pub const AUTH_KEY: AuthKey = AuthKey::from_bytes(*b"sixteen bytes ok");

    /// The session word of datagrams from one rank of a fresh cluster to another.
    pub fn session(from: u32, to: u32) -> u32 {
        let of = |rank| (Rank(rank), Self::incarnation(rank));
        Self::JOB_KEY.session(of(from), of(to))
    }

    fn incarnation(rank: u32) -> Incarnation {
        Incarnation(rank + 1)
    }

    /// Builds the engines and makes all of them peers of each other.
    pub fn new(config: &ClusterConfig) -> Self {
        let net = SimNet::new(config.seed, config.model);
        let n = config.nodes;
        let mut nodes: Vec<Node> = (0..n)
            .map(|rank| {
                let mut engine_config = Config::new(Rank(rank), Self::JOB_KEY);
                engine_config.incarnation = Self::incarnation(rank);
                engine_config.first_seq = config.first_seq;
                engine_config.name = format!("node{rank}");
                engine_config.peers_max = n.max(2);
                engine_config.ranks_max = n;
                engine_config.ordered = config.ordered;
                engine_config.checksum = config.checksum;
                engine_config.authenticate = config.authenticate.then_some(Self::AUTH_KEY);
                (config.tweak)(&mut engine_config);
                let engine = Engine::new(engine_config, net.port(config.port.clone()))
                    .expect("the configuration of a simulation is valid");
                let book = Book {
                    rank,
                    ordered: config.ordered,
                    expected: (0..n).map(|_| VecDeque::new()).collect(),
                    tokens_open: Vec::new(),
                    received: 0,
                    failure: None,
                };
                Node {
                    engine,
                    book,
                    numbers: vec![0; n as usize],
                    peers: vec![None; n as usize],
                    paused: false,
                }
            })
            .collect();
        let addresses: Vec<_> = nodes.iter().map(|node| node.engine.local_address()).collect();
        for (rank, node) in nodes.iter_mut().enumerate() {
            for (other, address) in addresses.iter().enumerate() {
                if other != rank {
                    let peer = node.engine.add_peer(address).expect("simulated peers fit");
                    node.peers[other] = Some(peer);
                }
            }
        }
        let (record, has_trailers) = (Record::default(), config.checksum || config.authenticate);
        Self { net, nodes, next_token: 0, scratch: Vec::new(), record, has_trailers }
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
        self.has_trailers
    }

    /// The network.
    pub fn net(&self) -> &SimNet {
        &self.net
    }

    /// One engine.
    pub fn engine(&mut self, node: usize) -> &mut Engine<SimPort> {
        &mut self.nodes[node].engine
    }

    /// How many engines.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Messages that `node` was given.
    pub fn received(&self, node: usize) -> u64 {
        self.nodes[node].book.received
    }

    /// A paused node does not tick until it is woken.
    pub fn pause(&mut self, node: usize, paused: bool) {
        self.nodes[node].paused = paused;
    }

    /// The faults are over: `model` holds everywhere, nothing is cut, nobody is paused.
    pub fn calm(&mut self, model: LinkModel) {
        self.net.set_model(model);
        for a in 0..self.nodes.len() {
            self.nodes[a].paused = false;
            for b in (0..self.nodes.len()).filter(|&b| b != a) {
                let ends = [a, b].map(|at| self.nodes[at].engine.port().node());
                self.net.partition(ends[0], ends[1], false);
            }
        }
    }

    /// Sends a message of `len` checked bytes. `Again` is an answer, not a failure.
    pub fn send(
        &mut self,
        from: usize,
        to: usize,
        len: usize,
        owned: bool,
    ) -> Result<(), SendError> {
        let Some(peer) = self.nodes[from].peers[to] else { return Err(SendError::NoPeer) };
        let number = self.nodes[from].numbers[to];
        self.scratch.resize(len, 0);
        payload::fill(&mut self.scratch, from as u32, number);
        let (engine, tag) = (&mut self.nodes[from].engine, Tag(number as u32));
        if owned {
            let token = Token(self.next_token);
            engine.send_from(peer, tag, self.scratch.clone(), token).map_err(|(error, _)| error)?;
            self.next_token += 1;
            self.nodes[from].book.tokens_open.push(token.0);
        } else {
            engine.send_copy(peer, tag, &self.scratch)?;
        }
        self.nodes[from].numbers[to] += 1;
        self.nodes[to].book.expected[from].push_back((number, len));
        Ok(())
    }

    /// One tick of one engine, then all checks on it.
    pub fn tick(&mut self, at: usize) -> Result<bool, Failure> {
        let node = &mut self.nodes[at];
        if node.paused {
            return Ok(false);
        }
        let work = node.engine.tick(&mut node.book);
        if let Some(failure) = node.book.failure.take() {
            return Err(failure);
        }
        node.engine.check_invariants().map_err(|v| format!("rank {at}: invariant {v}"))?;
        Ok(!work.is_idle())
    }

    /// One tick of every engine; true if any did something.
    pub fn tick_all(&mut self) -> Result<bool, Failure> {
        let mut busy = false;
        for at in 0..self.nodes.len() {
            busy |= self.tick(at)?;
        }
        Ok(busy)
    }

    /// Ticks for `dt_ns` of virtual time, in steps to the next arrival, of at most `step_ns`.
    pub fn run_for(&mut self, dt_ns: Nanos, step_ns: Nanos) -> Result<(), Failure> {
        let end = self.net.now() + dt_ns;
        while self.net.now() < end {
            self.step(end, step_ns)?;
        }
        Ok(())
    }

    /// One round of ticks; time goes on by a little, or to the next arrival when all are idle.
    fn step(&mut self, end: Nanos, step_ns: Nanos) -> Result<(), Failure> {
        const TICK_NS: Nanos = 200;
        let busy = self.tick_all()?;
        let now = self.net.now();
        let arrival = self.net.next_event_at().unwrap_or(end);
        let next = if busy { now } else { arrival.min(now + step_ns).min(end) };
        self.net.advance_to(next.max(now + TICK_NS));
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

    /// Whether everything sent has arrived, is acked and reported.
    pub fn is_drained(&self) -> bool {
        self.nodes.iter().all(|node| {
            node.book.expected.iter().all(VecDeque::is_empty)
                && node.book.tokens_open.is_empty()
                && node.peers.iter().flatten().all(|&peer| node.engine.is_drained(peer))
        })
    }

    fn stuck(&self) -> Failure {
        let mut text = format!("not drained at {} ns:", self.net.now());
        for node in &self.nodes {
            for (source, queue) in node.book.expected.iter().enumerate() {
                if let Some(front) = queue.front() {
                    let (rank, waiting) = (node.book.rank, queue.len());
                    text += &format!(" {waiting} from {source} to {rank}, first {front:?};");
                }
            }
            let counters = node.engine.counters().rows().into_iter().filter(|(_, n)| *n > 0);
            text += &format!(" {:?};", counters.collect::<Vec<_>>());
            if !node.book.tokens_open.is_empty() {
                text += &format!(" rank {}: tokens {:?};", node.book.rank, node.book.tokens_open);
            }
        }
        text
    }
}
