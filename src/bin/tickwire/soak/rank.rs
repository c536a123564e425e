//! One rank of the job: meets the others, sends and checks for its time, ends in order.

use super::Args;
use super::board::Board;
use super::line::{End, Line, Second};
use super::traffic::Traffic;
use crate::open::{JobPort, PortUser, engine_config};
use crate::process::say;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tickwire::ports::Port;
use tickwire::{Engine, PeerAddress, bootstrap};

const SECOND_NS: u64 = 1_000_000_000;
/// Idle ticks before this process sleeps: with fewer cores than processes the others need it.
const IDLE_TICKS: u32 = 64;
/// And for how long at most.
const SLEEP_NS: u64 = 1_000_000;
/// How much longer than a death takes a live partner may let nothing happen.
const STUCK: Duration = Duration::from_secs(20);
/// Longest wait for goodbyes; everything has arrived by then.
const LINGER_MAX: Duration = Duration::from_secs(2);

/// Who hears what a rank tells.
pub enum Teller {
    /// The process that started this one.
    Parent,
    /// A person.
    Board(Box<Board>),
}

impl Teller {
    pub fn tell(&mut self, rank: u32, line: Line) -> Result<(), String> {
        match self {
            Self::Parent => {
                let text = serde_json::to_string(&line).map_err(|error| error.to_string())?;
                say(format_args!("{text}"))
            }
            Self::Board(board) => {
                board.take(rank, line)?;
                board.print_due()
            }
        }
    }
}

/// One rank, which meets the others at `at`.
pub struct RankJob<'a> {
    pub args: &'a Args,
    pub rank: u32,
    pub at: SocketAddr,
    pub patience: Duration,
    pub teller: &'a mut Teller,
}

impl PortUser for RankJob<'_> {
    fn run<P: JobPort>(self, port: P) -> Result<(), String> {
        let Self { args, rank, .. } = self;
        let dead_after_ns = args.dead_after.as_nanos().try_into().unwrap_or(u64::MAX);
        let mut config = engine_config(&args.job, rank, args.ranks);
        config.dead_after_ns = dead_after_ns;
        config.keepalive_ns = config.keepalive_ns.min((dead_after_ns / 4).max(SLEEP_NS));
        let mut engine = Engine::new(config, port).map_err(|error| error.to_string())?;
        if matches!(self.teller, Teller::Board(_)) {
            say(format_args!("{}; {}", engine.port().describe(), engine.limits_text()))?;
        }
        let mut traffic = Traffic::new(args, rank);
        let blob = engine.local_address().to_bytes();
        let mut joined = bootstrap::join(self.at, Some(rank), &blob, self.patience)
            .map_err(|error| error.to_string())?;
        if joined.ranks != args.ranks {
            return Err(format!("--ranks is {}, but the job has {}", args.ranks, joined.ranks));
        }
        add_partners(&mut engine, &mut traffic, args, rank, &joined.blobs)?;
        // Nobody is written to before everybody is ready to read.
        joined.barrier().map_err(|error| error.to_string())?;
        drop(joined);
        let told = self.teller.tell(rank, Line::Started);
        let run = told.and_then(|()| Run::new(self, &mut engine, traffic).all());
        run.map_err(|error| format!("{error}; counters: {}", counters_text(&engine)))
    }
}

fn add_partners<P: Port>(
    engine: &mut Engine<P>,
    traffic: &mut Traffic<'_>,
    args: &Args,
    rank: u32,
    blobs: &[Vec<u8>],
) -> Result<(), String> {
    for (other, blob) in (0..).zip(blobs) {
        let sends = args.pattern.sends(rank, other, args.ranks);
        let hears = args.pattern.sends(other, rank, args.ranks);
        if sends || hears {
            let address = PeerAddress::from_bytes(blob).map_err(|error| error.to_string())?;
            let peer = engine.add_peer(&address).map_err(|error| error.to_string())?;
            traffic.add(other, peer, sends.then_some(args.window), hears);
        }
    }
    Ok(())
}

fn counters_text<P: Port>(engine: &Engine<P>) -> String {
    let rows = engine.counters().rows();
    let rows: Vec<_> =
        rows.iter().filter(|row| row.1 > 0).map(|(name, n)| format!("{name} {n}")).collect();
    rows.join(", ")
}

/// A rank between its first message and its last.
struct Run<'a, 'e, P> {
    args: &'a Args,
    rank: u32,
    teller: &'a mut Teller,
    engine: &'e mut Engine<P>,
    traffic: Traffic<'a>,
    start_ns: u64,
    seconds: u64,
    /// Sums up to the last full second.
    told: Second,
    idle: u32,
}

impl<'a, 'e, P: JobPort> Run<'a, 'e, P> {
    fn new(job: RankJob<'a>, engine: &'e mut Engine<P>, mut traffic: Traffic<'a>) -> Self {
        let RankJob { args, rank, teller, .. } = job;
        let start_ns = engine.port().now();
        traffic.start(start_ns);
        let told = Second::default();
        Self { args, rank, teller, engine, traffic, start_ns, seconds: 0, told, idle: 0 }
    }

    fn all(mut self) -> Result<(), String> {
        let end_ns = self.start_ns + u64::from(self.args.seconds) * SECOND_NS;
        while self.engine.now() < end_ns && !self.traffic.is_alone() {
            self.step()?;
        }
        self.traffic.end();
        while !self.traffic.is_done(self.engine) {
            self.step()?;
        }
        // The last second is a part of one.
        let rest = self.since_told();
        if rest.messages > 0 {
            self.tell(Line::Second(rest))?;
        }
        let linger = self.args.dead_after.min(LINGER_MAX).as_nanos() as u64;
        let closed = self.engine.close(&mut self.traffic, linger);
        self.traffic.failure.take().map_or(Ok(()), Err)?;
        let faults = self.engine.port().faults_seen().map(|f| {
            json!({ "lost": f.lost, "duplicated": f.duplicated, "reordered": f.reordered,
                    "corrupted": f.corrupted })
        });
        let end = End {
            messages: self.traffic.messages,
            bytes: self.traffic.bytes,
            closed,
            provider: self.engine.port().provider_name().map(str::to_owned),
            counters: serde_json::to_value(self.engine.counters()).unwrap_or(Value::Null),
            faults,
        };
        self.tell(Line::End(Box::new(end)))
    }

    fn tell(&mut self, line: Line) -> Result<(), String> {
        self.teller.tell(self.rank, line)
    }

    fn step(&mut self) -> Result<(), String> {
        let work = self.engine.tick(&mut self.traffic);
        self.traffic.pump(self.engine);
        self.traffic.failure.take().map_or(Ok(()), Err)?;
        while let Some(death) = self.traffic.deaths.pop() {
            self.tell(Line::Death(death))?;
        }
        self.idle = if work.is_idle() { self.idle + 1 } else { 0 };
        if self.idle > IDLE_TICKS {
            self.engine.wait(SLEEP_NS);
        }
        let now = self.engine.now();
        if now >= self.start_ns + (self.seconds + 1) * SECOND_NS {
            let stuck = self.args.dead_after + STUCK;
            self.traffic.second(stuck.as_secs().try_into().unwrap_or(u32::MAX));
        }
        while now >= self.start_ns + (self.seconds + 1) * SECOND_NS {
            // After a pause of this process the seconds that it missed are empty ones.
            let second = self.since_told();
            self.tell(Line::Second(second))?;
            self.seconds += 1;
        }
        Ok(())
    }

    /// What happened since this was last asked.
    fn since_told(&mut self) -> Second {
        let counters = self.engine.counters();
        let sums = Second {
            messages: self.traffic.messages,
            bytes: self.traffic.bytes,
            resent: counters.segments_resent,
            drops: counters.drops(),
        };
        let before = std::mem::replace(&mut self.told, sums);
        Second {
            messages: sums.messages - before.messages,
            bytes: sums.bytes - before.bytes,
            resent: sums.resent - before.resent,
            drops: sums.drops - before.drops,
        }
    }
}
