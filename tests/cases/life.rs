//! Processes that come and go on a simulated network, and what each was told.

use super::JOB;
use tickwire::ports::sim::{LinkModel, SimNet, SimPort, SimPortConfig};
use tickwire::simulation::payload;
use tickwire::time::{MICROS, Nanos};
use tickwire::{
    Config, Context, Death, EndpointHandle, Engine, Event, Handler, Incarnation, PeerAddress, Rank,
    SendError, Tag, Token, Usage,
};

/// What one process was told.
#[derive(Default)]
pub struct Ear {
    /// Rank and tag of each message, in order; their bytes are checked as they come.
    pub heard: Vec<(u32, u32)>,
    pub done: Vec<Token>,
    pub failed: Vec<Token>,
    pub closed: usize,
    /// Name, cause and when.
    pub dead: Vec<(String, Death, Nanos)>,
    /// Memory of receives that failed.
    pub receives_failed: Vec<Vec<u8>>,
    /// Offered for the next large message.
    pub offer: Option<Vec<u8>>,
}

impl Ear {
    /// Messages of a rank.
    pub fn messages_of(&self, rank: u32) -> Vec<u32> {
        self.heard.iter().filter(|(from, _)| *from == rank).map(|(_, tag)| *tag).collect()
    }
}

impl Handler<SimPort> for Ear {
    fn on_event(&mut self, context: &mut Context<SimPort>, event: Event<'_>) {
        match event {
            Event::Received(message) => {
                let from = context.rank(message.from).expect("a message has a source").0;
                let tag = message.tag.0;
                let wrong = payload::first_difference(message.bytes(), from, tag.into());
                assert_eq!(wrong, None, "message {tag} of {from}");
                self.heard.push((from, tag));
            }
            Event::SendDone { token, .. } => self.done.push(token),
            Event::SendFailed { token, .. } => self.failed.push(token),
            Event::PeerDead { name, cause, .. } => {
                self.dead.push((name.to_owned(), cause, context.now()));
            }
            Event::PeerClosed { .. } => self.closed += 1,
            Event::ReceiveFailed { buffer, .. } => self.receives_failed.push(buffer),
            Event::PeerReady { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    fn destination(&mut self, _: EndpointHandle, _: Tag, _: u64) -> Option<Vec<u8>> {
        self.offer.take()
    }
}

/// A process: its engine, while it runs, and its ear.
pub struct Process {
    pub engine: Option<Engine<SimPort>>,
    pub ear: Ear,
    /// It does not tick.
    pub paused: bool,
}

/// All of them. Processes have the ranks of their nodes.
pub struct World {
    pub net: SimNet,
    pub processes: Vec<Process>,
    port: SimPortConfig,
    tweak: fn(&mut Config),
}

impl World {
    pub fn new(n: u32, model: LinkModel, port: SimPortConfig, tweak: fn(&mut Config)) -> Self {
        let net = SimNet::new(7, model);
        let mut world = Self { net, processes: Vec::new(), port, tweak };
        for rank in 0..n {
            let port = world.net.port(world.port.clone());
            let engine = Some(world.build(rank, 1, port));
            world.processes.push(Process { engine, ear: Ear::default(), paused: false });
        }
        world
    }

    /// The same, and all know each other.
    pub fn joined(n: u32, model: LinkModel, port: SimPortConfig, tweak: fn(&mut Config)) -> Self {
        let mut world = Self::new(n, model, port, tweak);
        let all: Vec<_> = (0..n as usize).collect();
        for (a, b) in all.iter().flat_map(|&a| all.iter().map(move |&b| (a, b))) {
            if a != b {
                world.add(a, b);
            }
        }
        world
    }

    fn build(&self, rank: u32, incarnation: u32, port: SimPort) -> Engine<SimPort> {
        let mut config = Config::new(Rank(rank), JOB);
        config.incarnation = Incarnation(incarnation);
        config.first_seq = u32::MAX - 3;
        config.name = format!("node{rank}");
        (config.peers_max, config.ranks_max) = (64, 64);
        (self.tweak)(&mut config);
        Engine::new(config, port).expect("a valid configuration")
    }

    pub fn engine(&mut self, at: usize) -> &mut Engine<SimPort> {
        self.processes[at].engine.as_mut().expect("the process runs")
    }

    pub fn ear(&mut self, at: usize) -> &mut Ear {
        &mut self.processes[at].ear
    }

    pub fn address(&self, at: usize) -> PeerAddress {
        self.processes[at].engine.as_ref().expect("the process runs").local_address()
    }

    /// `at` learns of `of`.
    pub fn add(&mut self, at: usize, of: usize) -> EndpointHandle {
        let address = self.address(of);
        self.engine(at).add_peer(&address).expect("it fits")
    }

    pub fn peer(&mut self, at: usize, of: usize) -> EndpointHandle {
        self.engine(at).peer(Rank(of as u32)).expect("it was added")
    }

    /// A process ends without a word.
    pub fn kill(&mut self, at: usize) {
        self.processes[at].engine = None;
    }

    /// Another process at the place of a dead one.
    pub fn reopen(&mut self, at: usize, incarnation: u32) {
        let port = self.net.reopen(at as u32, self.port.clone());
        let engine = Some(self.build(at as u32, incarnation, port));
        self.processes[at] = Process { engine, ear: Ear::default(), paused: false };
    }

    /// Sends message `number`, with the number as its token; `Again` is waited out.
    pub fn send(&mut self, from: usize, to: usize, number: u32, len: usize) {
        let peer = self.peer(from, to);
        let mut bytes = vec![0; len];
        payload::fill(&mut bytes, from as u32, number.into());
        for _ in 0..100_000 {
            let token = Token(number.into());
            match self.engine(from).send_from(peer, Tag(number), bytes, token) {
                Ok(()) => return,
                Err((SendError::Again, back)) => bytes = back,
                Err((error, _)) => panic!("message {number} from {from} to {to}: {error}"),
            }
            self.step();
        }
        panic!("message {number} from {from} to {to} is never taken");
    }

    /// All tick; time goes on to the next arrival, by 20 us at most.
    pub fn step(&mut self) {
        let mut busy = false;
        for Process { engine, ear, .. } in self.processes.iter_mut().filter(|it| !it.paused) {
            busy |= engine.as_mut().is_some_and(|engine| !engine.tick(ear).is_idle());
        }
        let now = self.net.now();
        let latest = now + 20 * MICROS;
        let next = if busy { now } else { self.net.next_event_at().unwrap_or(latest).min(latest) };
        self.net.advance_to(next.max(now + 200));
    }

    /// Runs until `done`; how long that took. Panics after `limit_ns`.
    pub fn until(&mut self, limit_ns: Nanos, mut done: impl FnMut(&mut Self) -> bool) -> Nanos {
        let begin = self.net.now();
        while !done(self) {
            let told = || self.processes.iter().map(|p| (&p.ear.dead, p.ear.heard.len()));
            assert!(
                self.net.now() < begin + limit_ns,
                "not done: {:?}",
                told().collect::<Vec<_>>()
            );
            self.step();
        }
        self.check();
        self.net.now() - begin
    }

    pub fn run_for(&mut self, ns: Nanos) {
        let end = self.net.now() + ns;
        self.until(Nanos::MAX / 2, |world| world.net.now() >= end);
    }

    pub fn check(&self) {
        for engine in self.processes.iter().flat_map(|process| &process.engine) {
            engine.check_invariants().unwrap();
        }
    }

    /// All peers of a process are removed: nothing is left.
    pub fn is_empty(&mut self, at: usize) -> bool {
        self.engine(at).usage() == Usage::default()
    }
}
