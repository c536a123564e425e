//! Shared by the tests of the case list: a lean simulation for long runs, and engines in threads.

#![allow(dead_code)] // Each test uses some of it.

pub mod shim;
pub mod threads;

use std::cell::Cell;
use std::rc::Rc;
use tickwire::ports::sim::{LinkModel, SimNet, SimPort, SimPortConfig, Tap};
use tickwire::simulation::payload;
use tickwire::time::Nanos;
use tickwire::wire::Kind;
use tickwire::{
    Config, Context, EndpointHandle, Engine, Event, Handler, Incarnation, JobKey, Rank, SendError,
    Tag, Token,
};

pub const JOB: JobKey = JobKey(0xCA5E);

/// Whether a datagram carries user bytes.
pub fn is_data(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|b| [Kind::Data as u8, Kind::Chunk as u8].contains(&(b & 15)))
}

/// Whether it is a standalone ack.
pub fn is_ack(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|b| b & 15 == Kind::Ack as u8)
}

/// The sequence number of a datagram.
pub fn seq_of(tap: &Tap<'_>) -> u32 {
    u32::from_le_bytes(*tap.bytes[16..].first_chunk().expect("a datagram has a header"))
}

/// A number that a tap and its test share.
pub fn shared<T: Default>() -> (Rc<Cell<T>>, Rc<Cell<T>>) {
    let cell = Rc::new(Cell::new(T::default()));
    (cell.clone(), cell)
}

/// How a [`Sim`] is built.
pub struct SimConfig {
    pub nodes: u32,
    pub model: LinkModel,
    pub port: SimPortConfig,
    /// Which pairs of nodes know each other.
    pub joined: fn(u32, u32) -> bool,
    pub tweak: fn(&mut Config),
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            nodes: 2,
            model: LinkModel::default(),
            port: SimPortConfig::default(),
            joined: |_, _| true,
            tweak: |_| {},
        }
    }
}

/// Node 0 and each of the others.
pub fn star(a: u32, b: u32) -> bool {
    a == 0 || b == 0
}

/// What one node has seen; every message is checked, byte by byte and for its place.
pub struct Book {
    /// Messages received, per source.
    pub seen: Vec<u64>,
    /// When the last one came, per source.
    pub last_at: Vec<Nanos>,
    /// How often each token was reported as done.
    pub done: Vec<u32>,
}

impl Handler<SimPort> for Book {
    fn on_event(&mut self, context: &mut Context<SimPort>, event: Event<'_>) {
        match event {
            Event::Received(message) => {
                let source = context.rank(message.from).expect("a message has a source").0;
                let number = self.seen[source as usize];
                assert_eq!(u64::from(message.tag.0), number, "order of messages from {source}");
                assert_eq!(payload::first_difference(message.bytes(), source, number), None);
                self.seen[source as usize] += 1;
                self.last_at[source as usize] = context.now();
            }
            Event::SendDone { token, .. } => self.done[token.0 as usize] += 1,
            Event::PeerReady { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// One engine, its peers and its book.
pub struct Node {
    pub engine: Engine<SimPort>,
    pub peers: Vec<Option<EndpointHandle>>,
    pub book: Book,
    pub paused: bool,
    sent: Vec<u64>,
}

/// Engines on a simulated network, without the checks after each tick that make
/// [`tickwire::simulation::Cluster`] slow: for long runs.
pub struct Sim {
    pub net: SimNet,
    pub nodes: Vec<Node>,
    scratch: Vec<u8>,
}

impl Sim {
    pub fn new(config: &SimConfig) -> Self {
        let net = SimNet::new(1, config.model);
        let n = config.nodes;
        let mut nodes: Vec<Node> = (0..n)
            .map(|rank| {
                let mut engine = Config::new(Rank(rank), JOB);
                engine.incarnation = Incarnation(rank + 1);
                engine.first_seq = u32::MAX - 10;
                engine.name = format!("node{rank}");
                engine.peers_max = n.max(2);
                engine.ranks_max = n;
                (config.tweak)(&mut engine);
                let engine = Engine::new(engine, net.port(config.port.clone())).unwrap();
                let n = n as usize;
                let (seen, last_at) = (vec![0; n], vec![0; n]);
                let book = Book { seen, last_at, done: Vec::new() };
                Node { engine, peers: vec![None; n], book, paused: false, sent: vec![0; n] }
            })
            .collect();
        let addresses: Vec<_> = nodes.iter().map(|node| node.engine.local_address()).collect();
        for (rank, node) in (0..n).zip(&mut nodes) {
            for (other, address) in (0..n).zip(&addresses) {
                if other != rank && (config.joined)(rank, other) {
                    node.peers[other as usize] = Some(node.engine.add_peer(address).unwrap());
                }
            }
        }
        let mut sim = Self { net, nodes, scratch: Vec::new() };
        // The peers' addresses are in before anything is timed.
        sim.tick_all();
        sim
    }

    /// Sends the next message from one node to another: `len` bytes that the receiver checks.
    pub fn send(&mut self, from: usize, to: usize, len: usize) -> Result<(), SendError> {
        self.fill(from, to, len);
        let node = &mut self.nodes[from];
        let peer = node.peers[to].expect("they know each other");
        node.engine.send_copy(peer, Tag(node.sent[to] as u32), &self.scratch)?;
        node.sent[to] += 1;
        Ok(())
    }

    /// As [`Self::send`], with the next token of the sender.
    pub fn send_with_token(&mut self, from: usize, to: usize, len: usize) -> Result<(), SendError> {
        self.fill(from, to, len);
        let node = &mut self.nodes[from];
        let peer = node.peers[to].expect("they know each other");
        let token = Token(node.book.done.len() as u64);
        let tag = Tag(node.sent[to] as u32);
        let sent = node.engine.send_from(peer, tag, self.scratch.clone(), token);
        sent.map_err(|(error, _)| error)?;
        node.book.done.push(0);
        node.sent[to] += 1;
        Ok(())
    }

    fn fill(&mut self, from: usize, to: usize, len: usize) {
        self.scratch.resize(len, 0);
        payload::fill(&mut self.scratch, from as u32, self.nodes[from].sent[to]);
    }

    /// Sends as many of the `count` messages as are taken at present; returns how many that is.
    pub fn send_some(&mut self, from: usize, to: usize, len: usize, count: u64) -> u64 {
        (0..count).take_while(|_| self.send(from, to, len).is_ok()).count() as u64
    }

    /// Messages from one node that another has got.
    pub fn seen(&self, from: usize, at: usize) -> u64 {
        self.nodes[at].book.seen[from]
    }

    /// Messages of all sources.
    pub fn seen_by(&self, at: usize) -> u64 {
        self.nodes[at].book.seen.iter().sum()
    }

    /// Whether everything that was accepted has arrived and is acked.
    pub fn is_drained(&self) -> bool {
        self.nodes.iter().enumerate().all(|(from, node)| {
            let arrived = |to: usize, sent: u64| self.nodes[to].book.seen[from] == sent;
            node.sent.iter().enumerate().all(|(to, &sent)| arrived(to, sent))
                && node.peers.iter().flatten().all(|&peer| node.engine.is_drained(peer))
        })
    }

    pub fn check_invariants(&self) {
        for node in &self.nodes {
            node.engine.check_invariants().unwrap();
        }
    }

    /// One tick of every node that is not paused; true if any did something.
    pub fn tick_all(&mut self) -> bool {
        let mut busy = false;
        for node in self.nodes.iter_mut().filter(|node| !node.paused) {
            busy |= !node.engine.tick(&mut node.book).is_idle();
        }
        busy
    }

    /// A tick of all; time goes on a little, or to the next arrival (at most `step_ns`) when all
    /// are idle.
    pub fn step(&mut self, step_ns: Nanos) {
        const TICK_NS: Nanos = 200;
        let busy = self.tick_all();
        let now = self.net.now();
        let latest = now + step_ns;
        let next = if busy { now } else { self.net.next_event_at().unwrap_or(latest).min(latest) };
        self.net.advance_to(next.max(now + TICK_NS));
    }

    pub fn run_for(&mut self, dt_ns: Nanos, step_ns: Nanos) {
        let end = self.net.now() + dt_ns;
        while self.net.now() < end {
            self.step(step_ns.min(end - self.net.now()));
        }
    }

    /// Runs until all is drained; panics with the counters when that takes longer than `limit_ns`.
    pub fn drain(&mut self, limit_ns: Nanos, step_ns: Nanos) {
        let end = self.net.now() + limit_ns;
        while !self.is_drained() {
            assert!(self.net.now() < end, "not drained: {}", self.stuck());
            self.step(step_ns);
        }
    }

    /// What the nodes count, for people.
    pub fn stuck(&self) -> String {
        let rows = self.nodes.iter().enumerate().map(|(at, node)| {
            let rows = node.engine.counters().rows();
            let rows: Vec<_> = rows.into_iter().filter(|(_, n)| *n > 0).collect();
            format!("node {at}: sent {:?} seen {:?} {rows:?}\n", node.sent, node.book.seen)
        });
        rows.take(4).collect()
    }

    pub fn resent(&self, at: usize) -> u64 {
        self.nodes[at].engine.counters().segments_resent
    }

    /// Resends of all nodes.
    pub fn resent_by_all(&self) -> u64 {
        (0..self.nodes.len()).map(|at| self.resent(at)).sum()
    }
}
