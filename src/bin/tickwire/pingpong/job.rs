//! Starting both sides, and the loop of each.

use super::Args;
use super::report::{Report, Row, print_counters};
use super::side::{ECHOER, END, MEASURER, Side};
use crate::key;
use crate::open::{JobPort, PortUser, engine_config, with_port};
use crate::process::{self, Spawned, say};
use hdrhistogram::Histogram;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};
use tickwire::ports::Port;
use tickwire::ports::sim::{LinkModel, SimNet, SimPort, SimPortConfig};
use tickwire::{EndpointHandle, Engine, PeerAddress, bootstrap};

/// How long the echoing process may take to end once it has nothing more to do.
const END_TIME: Duration = Duration::from_secs(10);

/// The echoing process.
struct Peer(Spawned);

impl Peer {
    /// An error when the process has failed. It ends well only after the last message.
    fn check(&mut self) -> Result<(), String> {
        match self.0.0.try_wait() {
            Ok(Some(status)) if !status.success() => {
                Err(format!("the echoing process failed: {status}"))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(format!("watching the echoing process: {error}")),
        }
    }

    /// What the process printed, once it has ended well.
    fn finish(&mut self) -> Result<String, String> {
        let until = Instant::now() + END_TIME;
        let status = loop {
            match self.0.0.try_wait().map_err(|error| error.to_string())? {
                Some(status) => break status,
                None if Instant::now() > until => {
                    return Err(format!("the echoing process does not end within {END_TIME:?}"));
                }
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        if !status.success() {
            return Err(format!("the echoing process failed: {status}"));
        }
        // One line, so it fits the pipe: nothing had to read it before the end.
        let mut text = String::new();
        if let Some(stdout) = self.0.0.stdout.as_mut() {
            stdout.read_to_string(&mut text).map_err(|error| error.to_string())?;
        }
        Ok(text)
    }
}

/// The side that measures: starts the other one, or waits for it.
pub fn measuring(args: &Args) -> Result<(), String> {
    let at = args.listen.unwrap_or((Ipv4Addr::LOCALHOST, 0).into());
    let listener = TcpListener::bind(at).map_err(|error| format!("listening at {at}: {error}"))?;
    let at = listener.local_addr().map_err(|error| error.to_string())?;
    let patience = Duration::from_secs(if args.listen.is_some() { 600 } else { 30 });
    // It serves until both have left; nothing waits for it, so that a host that vanishes after
    // its last message keeps nobody.
    std::thread::spawn(move || bootstrap::serve(listener, 2, patience));
    let mut report = Report::new(args)?;
    let mut peer = None;
    if args.listen.is_some() {
        say(format_args!("on the other host: {}", other_line(args, at)))?;
    } else {
        peer = Some(Peer(process::start(&peer_args(args, at))?));
    }
    let mut calls = 0u32;
    let mut watch_peer = || match &mut peer {
        Some(peer) if calls.is_multiple_of(1 << 16) => {
            calls = 1;
            peer.check()
        }
        _ => {
            calls = calls.wrapping_add(1);
            Ok(())
        }
    };
    let role = Role::Measures(&mut report, &mut watch_peer);
    let measured = with_port(&args.job, MEASURER, Pair { args, at, patience, role });
    if let Some(peer) = &mut peer {
        // What became of the other side says more than that it did not answer.
        if measured.is_err() {
            peer.check()?;
        }
        measured?;
        report.peer_counters = serde_json::from_str(&peer.finish()?).ok();
    } else {
        measured?;
    }
    report.finish(args)
}

/// The side that echoes.
pub fn echoing(args: &Args, rendezvous: SocketAddr) -> Result<(), String> {
    if args.job.child {
        process::end_with_parent();
    }
    let pair = Pair { args, at: rendezvous, patience: Duration::from_secs(30), role: Role::Echoes };
    with_port(&args.job, ECHOER, pair)
}

fn peer_args(args: &Args, at: SocketAddr) -> Vec<String> {
    // An unspecified address is where this side listens, not where the other one finds it.
    let to = match at.ip().is_unspecified() {
        true => format!("ADDRESS_OF_THIS_HOST:{}", at.port()),
        false => at.to_string(),
    };
    let mut out = vec!["pingpong".into(), format!("--connect={to}")];
    out.extend(args.job.arguments());
    out.push(format!("--timeout={}", args.timeout));
    if let (Some(bind), None) = (args.job.bind, args.listen) {
        out.push(format!("--bind={bind}"));
    }
    out
}

fn other_line(args: &Args, at: SocketAddr) -> String {
    format!("tickwire {} --bind=ADDRESS_OF_THAT_HOST", peer_args(args, at).join(" "))
}

/// What this side does.
enum Role<'a> {
    Measures(&'a mut Report, &'a mut dyn FnMut() -> Result<(), String>),
    Echoes,
}

/// One side of the job, which meets the other one at `at`.
struct Pair<'a> {
    args: &'a Args,
    at: SocketAddr,
    patience: Duration,
    role: Role<'a>,
}

impl PortUser for Pair<'_> {
    fn run<P: JobPort>(self, port: P) -> Result<(), String> {
        let Self { args, at, patience, role } = self;
        let rank = if matches!(role, Role::Echoes) { ECHOER } else { MEASURER };
        let mut engine = Engine::new(engine_config(&args.job, rank, 2), port)
            .map_err(|error| error.to_string())?;
        let blob = engine.local_address().to_bytes();
        let joined =
            bootstrap::join(at, Some(rank), &blob, patience).map_err(|error| error.to_string())?;
        let other = PeerAddress::from_bytes(&joined.blobs[1 - rank as usize])
            .map_err(|error| error.to_string())?;
        let peer = engine.add_peer(&other).map_err(|error| error.to_string())?;
        match role {
            Role::Echoes => echo(&mut engine, peer, args),
            Role::Measures(report, pump) => {
                say(format_args!("{}; {}", engine.port().describe(), engine.limits_text()))?;
                report.provider = engine.port().provider_name().map(str::to_owned);
                measure(&mut engine, peer, args, report, pump)?;
                report.fault_counters = engine.port().faults_seen();
                Ok(())
            }
        }
    }
}

/// Ticks and looks after progress: an error of a side, or silence for too long, ends the job.
struct Watch {
    last: [u64; 3],
    since: Instant,
    limit: Duration,
    ticks: u32,
    idle: u32,
}

impl Watch {
    fn new(args: &Args) -> Self {
        let limit = Duration::from_secs(args.timeout.into());
        Self { last: [0; 3], since: Instant::now(), limit, ticks: 0, idle: 0 }
    }

    fn tick<P: Port>(&mut self, engine: &mut Engine<P>, side: &mut Side) -> Result<(), String> {
        let work = engine.tick(side);
        side.retry(engine);
        if let Some(failure) = side.failure.take() {
            return Err(failure);
        }
        self.idle = if work.is_idle() { self.idle + 1 } else { 0 };
        if self.idle > 4096 {
            // With fewer cores than processes the other side needs this one.
            std::thread::yield_now();
        }
        self.ticks = self.ticks.wrapping_add(1);
        // Whatever keeps the tick busy, strangers too: only progress counts.
        if self.ticks.is_multiple_of(4096) { self.check_progress(engine, side) } else { Ok(()) }
    }

    fn check_progress<P: Port>(&mut self, engine: &Engine<P>, side: &Side) -> Result<(), String> {
        let counters = engine.counters();
        let progress = [side.arrived, counters.segments_accepted, counters.acks_received];
        if progress != self.last {
            (self.last, self.since) = (progress, Instant::now());
        } else if self.since.elapsed() > self.limit {
            let rows: Vec<_> = counters.rows().into_iter().filter(|(_, n)| *n > 0).collect();
            let limit = self.limit;
            // Who has the wrong key answers nothing: one side counts wrong tags, one hears nothing.
            let silent = key::get().is_some() && counters.datagrams_received == 0;
            let hint = match counters.drops_bad_tag > 0 || silent {
                true => "are the keys of both sides the same? ",
                false => "",
            };
            return Err(format!(
                "nothing arrived for {limit:?} (see --timeout); {hint}counters: {rows:?}"
            ));
        }
        Ok(())
    }
}

fn measure<P: Port>(
    engine: &mut Engine<P>,
    peer: EndpointHandle,
    args: &Args,
    report: &mut Report,
    pump: &mut dyn FnMut() -> Result<(), String>,
) -> Result<(), String> {
    let mut side = Side::new(MEASURER);
    let mut watch = Watch::new(args);
    let mut number = 0;
    for &size in &args.sizes {
        let iters = args.iters_for(size);
        let warmup = (iters / 10).clamp(1, 200);
        let bar = report.bar(size, iters);
        let mut half_ns = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)
            .map_err(|error| error.to_string())?;
        let mut total_ns = 0;
        for i in 0..iters + warmup {
            side.prepare(size);
            let start = engine.port().now();
            while !side.send(engine, peer)? {
                watch.tick(engine, &mut side)?;
                pump()?;
            }
            while side.newest != Some(number) {
                watch.tick(engine, &mut side)?;
                pump()?;
            }
            number += 1;
            if i >= warmup {
                let rtt_ns = side.arrived_ns.saturating_sub(start);
                total_ns += rtt_ns;
                half_ns.saturating_record(rtt_ns / 2);
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        report.row(Row::new(size, iters, &half_ns, total_ns))?;
    }
    // The end is a message like others: delivered for certain.
    while engine.send_copy(peer, END, &[]).is_err() {
        watch.tick(engine, &mut side)?;
        pump()?;
    }
    while !(side.ended && engine.is_drained(peer)) {
        watch.tick(engine, &mut side)?;
        pump()?;
    }
    linger(engine, &mut side, args, pump)?;
    report.counters = engine.counters().clone();
    Ok(())
}

fn echo<P: Port>(engine: &mut Engine<P>, peer: EndpointHandle, args: &Args) -> Result<(), String> {
    let mut side = Side::new(ECHOER);
    let mut watch = Watch::new(args);
    while !side.ended {
        watch.tick(engine, &mut side)?;
    }
    while engine.send_copy(peer, END, &[]).is_err() {
        watch.tick(engine, &mut side)?;
    }
    // The other side may leave as soon as it has our end, and its last ack may be lost: that is
    // no failure, so this wait is bounded and its outcome does not matter.
    let patience = 500_000_000;
    engine.tick_until(&mut side, patience, |context| context.is_drained(peer));
    let counters = serde_json::to_value(engine.counters()).map_err(|error| error.to_string())?;
    if args.job.child {
        return say(format_args!("{counters}"));
    }
    print_counters("this side", &counters)
}

/// Answers resends of a side whose last acks were lost, for a while.
fn linger<P: Port>(
    engine: &mut Engine<P>,
    side: &mut Side,
    args: &Args,
    pump: &mut dyn FnMut() -> Result<(), String>,
) -> Result<(), String> {
    let lossy = args.job.faults.is_some() || args.listen.is_some();
    let linger_ns = if lossy { 300_000_000 } else { 2_000_000 };
    let end = engine.port().now() + linger_ns;
    while engine.port().now() < end {
        engine.tick(side);
        pump()?;
    }
    Ok(())
}

/// Both sides in this process, on a simulated network.
pub fn simulated(args: &Args) -> Result<(), String> {
    let mut model =
        LinkModel { latency_ns: 1000, bytes_per_s: 10_000_000_000, ..Default::default() };
    if let Some(faults) = &args.job.faults {
        model.loss = faults.loss;
        model.dup = faults.dup;
        model.corrupt = faults.corrupt;
        model.reorder = faults.reorder;
        model.reorder_places_max = faults.reorder_places_max;
        model.reorder_delay_ns = 200_000;
    }
    let net = SimNet::new(args.job.seed, model);
    let open = |rank| {
        let config = engine_config(&args.job, rank, 2);
        Engine::new(config, net.port(SimPortConfig::default())).map_err(|error| error.to_string())
    };
    let (mut a, mut b): (Engine<SimPort>, Engine<SimPort>) = (open(MEASURER)?, open(ECHOER)?);
    let (of_a, of_b) = (a.local_address(), b.local_address());
    let to_b = a.add_peer(&of_b).map_err(|error| error.to_string())?;
    let to_a = b.add_peer(&of_a).map_err(|error| error.to_string())?;
    let mut report = Report::new(args)?;
    say(format_args!(
        "simulated link of 1 us and 10 GB/s, both sides in this process, virtual time"
    ))?;
    let mut side = Side::new(ECHOER);
    let mut end_sent = false;
    let mut pump = || {
        let idle = b.tick(&mut side).is_idle();
        side.retry(&mut b);
        if side.ended && !end_sent {
            end_sent = b.send_copy(to_a, END, &[]).is_ok();
        }
        // Time goes on by a little, or by more when the next arrival is far.
        let now = net.now();
        let next = net.next_event_at().unwrap_or(now + 5_000).min(now + 5_000);
        net.advance_to(if idle { next.max(now + 100) } else { now + 100 });
        side.failure.take().map_or(Ok(()), Err)
    };
    measure(&mut a, to_b, args, &mut report, &mut pump)?;
    report.peer_counters = serde_json::to_value(b.counters()).ok();
    report.finish(args)
}
