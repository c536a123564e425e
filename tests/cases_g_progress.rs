//! Faults that others met, section G: threads and progress.

mod cases;

use cases::shim::{Hook, Shim};
use cases::threads::{PATIENCE, engine, pair, stream};
use cases::{JOB, Sim, SimConfig};
use std::cell::{Cell, RefCell};
use std::process::Command;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use tickwire::ports::Port;
use tickwire::ports::faults::Faults;
use tickwire::ports::sim::{LinkModel, SimNet, SimPortConfig};
use tickwire::ports::udp::{Udp, UdpConfig};
use tickwire::simulation::payload;
use tickwire::time::{MICROS, MILLIS, Nanos, SECONDS};
use tickwire::{Config, Context, EndpointHandle, Engine, Event, PeerAddress, Rank, SendError, Tag};

#[path = "common/mod.rs"]
mod common;

const PATIENCE_NS: Nanos = PATIENCE.as_nanos() as Nanos;

/// Ports of usual datagrams, so that large messages have many.
fn ethernet() -> UdpConfig {
    UdpConfig { datagram_bytes_max: Some(1472), ..UdpConfig::default() }
}

/// Waits for what `done` says; what arrives goes to `received`.
fn tick_until<P: Port>(
    engine: &mut Engine<P>,
    mut received: impl FnMut(u32, Tag, &[u8]),
    done: impl FnMut(&mut Context<P>) -> bool,
) {
    let mut handler = |context: &mut Context<P>, event: Event<'_>| match event {
        Event::Received(message) => {
            let source = context.rank(message.from).expect("a source").0;
            received(source, message.tag, message.bytes());
        }
        Event::PeerReady { .. } => {}
        other => panic!("{other:?}"),
    };
    let in_time = engine.tick_until(&mut handler, PATIENCE_NS, done);
    assert!(in_time, "stuck: {:?}", engine.counters());
}

/// Ticks until all sent is acked, and until the `n` others that share `done` say so, too: they may
/// still need an ack.
fn finish<P: Port>(engine: &mut Engine<P>, peer: EndpointHandle, done: &AtomicU32, n: u32) {
    tick_until(engine, |_, _, _| panic!("one too many"), |c| c.is_drained(peer));
    done.fetch_add(1, Ordering::Relaxed);
    tick_until(engine, |_, _, _| panic!("one too many"), |_| done.load(Ordering::Relaxed) == n);
}

/// One side of a ping-pong in rounds of all sizes.
fn rounds<P: Port>(engine: &mut Engine<P>, peer: EndpointHandle, me: u32, rounds: u64) {
    let got = Cell::new(0);
    let mut bytes = Vec::new();
    for number in 0..rounds * 3 {
        bytes.resize([1, 8 << 10, 128 << 10][number as usize % 3], 0);
        payload::fill(&mut bytes, me, number);
        if me == 0 {
            engine.send_copy(peer, Tag(number as u32), &bytes).unwrap();
        }
        let check = |_, tag: Tag, bytes: &[u8]| {
            assert_eq!(u64::from(tag.0), number);
            assert_eq!(payload::first_difference(bytes, 1 - me, number), None);
            got.set(number + 1);
        };
        tick_until(engine, check, |_| got.get() > number);
        if me == 1 {
            engine.send_copy(peer, Tag(number as u32), &bytes).unwrap();
        }
    }
}

fn eight_pairs(count: u64) {
    let faults = "loss=3%".parse().unwrap();
    std::thread::scope(|scope| {
        for pair_number in 0..8 {
            let open = |rank: u32| {
                let seed = pair_number * 2 + u64::from(rank);
                Faults::new(Udp::open(&ethernet()).unwrap(), faults, seed).unwrap()
            };
            let sides = pair(open, |_| {});
            let done = Arc::new(AtomicU32::new(0));
            for (me, (mut engine, peer)) in (0..).zip(sides) {
                let done = done.clone();
                scope.spawn(move || {
                    rounds(&mut engine, peer, me, count);
                    finish(&mut engine, peer, &done, 2);
                });
            }
        }
    });
}

/// 20 rounds of all sizes instead of 100 000: sixteen threads share the cores of a small machine.
#[test]
fn pc_72_eight_pairs_of_threads() {
    eight_pairs(20);
}

#[test]
#[ignore = "full size: 100 000 rounds of eight pairs"]
fn pc_72_eight_pairs_of_threads_full_size() {
    eight_pairs(100_000);
}

/// Few slots: there are hundreds of engines.
fn small(config: &mut Config) {
    config.window_segments = 64;
    config.send_slots = 64;
    config.receive_slots = 64;
    config.ack_slots = 64;
    config.fragments_max = 64;
    config.ranks_max = 200;
    config.peers_max = 128;
}

/// 1000 new peers, 100 at a time so that sockets suffice: two engines in two threads send the
/// first message to each of them at the same time.
#[test]
fn pc_75_first_contact_of_two_threads_with_the_same_peers() {
    const PEERS: u32 = 100;
    for _ in 0..10 {
        let open = |rank| engine(rank, Udp::open(&UdpConfig::default()).unwrap(), small);
        let mut firsts = [open(0), open(1)];
        let from: Vec<_> = firsts.iter().map(Engine::local_address).collect();
        let mut news: Vec<_> = (0..PEERS).map(|n| open(2 + n)).collect();
        for new in &mut news {
            new.add_peers(&from).into_iter().for_each(|added| assert!(added.is_ok()));
        }
        let to: Vec<_> = news.iter().map(Engine::local_address).collect();
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            let workers = firsts.each_mut().map(|first| {
                let (to, barrier) = (&to, &barrier);
                scope.spawn(move || first_contact(first, to, barrier))
            });
            serve_news(&mut news, || workers.iter().all(|worker| worker.is_finished()));
        });
    }
}

/// Adds all, sends one message to each, and waits until all have it.
fn first_contact(engine: &mut Engine<Udp>, to: &[PeerAddress], barrier: &Barrier) {
    barrier.wait();
    let peers: Vec<_> = engine.add_peers(to).into_iter().map(Result::unwrap).collect();
    for &peer in &peers {
        while engine.send_copy(peer, Tag(1), b"first").is_err() {
            tick_until(engine, |_, _, _| {}, |_| true);
        }
    }
    tick_until(engine, |_, _, _| {}, |c| peers.iter().all(|&peer| c.is_drained(peer)));
    let counters = engine.counters();
    assert_eq!((counters.drops_impossible_ack, counters.drops_unknown_rank), (0, 0));
}

/// Ticks the new ones until `over`; each gets one message from either side and has one session.
fn serve_news(news: &mut [Engine<Udp>], over: impl Fn() -> bool) {
    let mut seen = vec![[0; 2]; news.len()];
    let begin = Instant::now();
    while !over() {
        for (new, seen) in news.iter_mut().zip(&mut seen) {
            new.tick(&mut |context: &mut Context<Udp>, event: Event<'_>| {
                if let Event::Received(message) = event {
                    assert_eq!(message.bytes(), b"first");
                    seen[context.rank(message.from).expect("a source").0 as usize] += 1;
                }
            });
        }
        assert!(begin.elapsed() < PATIENCE, "{seen:?}");
    }
    for (new, seen) in news.iter().zip(seen) {
        assert_eq!(seen, [1, 1], "{:?}", new.counters());
        assert_eq!(new.counters().drops_unknown_rank, 0);
    }
}

#[test]
fn pc_76_both_send_16_mib_on_short_queues() {
    for completions_max in [1, 256] {
        let mut sim = Sim::new(&SimConfig {
            model: LinkModel { latency_ns: 10 * MICROS, ..LinkModel::default() },
            port: SimPortConfig {
                send_depth: 4,
                sends_complete_at_post: false,
                send_completion_delay_ns: MICROS,
                ..SimPortConfig::default()
            },
            tweak: match completions_max {
                1 => |config| config.completions_per_tick_max = 1,
                _ => |_| {},
            },
            ..SimConfig::default()
        });
        for from in [0, 1] {
            sim.send(from, 1 - from, 16 << 20).unwrap();
        }
        sim.drain(60 * SECONDS, MICROS);
        println!("{completions_max} completions a tick: {} ms", sim.net.now() / MILLIS);
        assert_eq!((sim.seen(0, 1), sim.seen(1, 0)), (1, 1));
        sim.check_invariants();
    }
}

fn patient(config: &mut Config) {
    config.dead_after_ns = 30 * SECONDS;
}

#[test]
fn pc_77_a_receiver_that_computes_for_10_s() {
    let mut sim = Sim::new(&SimConfig {
        model: LinkModel {
            latency_ns: 10 * MICROS,
            bytes_per_s: 1_000_000_000,
            ..LinkModel::default()
        },
        tweak: patient,
        ..SimConfig::default()
    });
    sim.send(0, 1, 8).unwrap();
    sim.drain(SECONDS, 10 * MICROS);
    sim.nodes[1].paused = true;
    for _ in 0..100 {
        sim.send(0, 1, 64 << 10).unwrap();
    }
    let mut by_second = Vec::new();
    for _ in 0..10 {
        let before = sim.resent(0);
        sim.run_for(SECONDS, 100 * MICROS);
        by_second.push(sim.resent(0) - before);
    }
    sim.nodes[1].paused = false;
    let woken_at = sim.net.now();
    sim.drain(SECONDS, 10 * MICROS);
    let took = sim.net.now() - woken_at;
    println!("resends {by_second:?}, done {took} ns after the call");
    assert!(by_second.iter().all(|&resent| resent <= 20), "{by_second:?}");
    assert!(took <= 200 * MILLIS, "{took} ns");
    assert_eq!(sim.seen(0, 1), 101);
}

/// The lowest core that this process may use.
fn a_core() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(list.trim().split([',', '-']).next()?.to_owned())
}

/// Binds this thread, and with it those that it starts, to one core.
fn bind_to_one_core() -> Result<(), String> {
    let core = a_core().ok_or("the allowed cores are not known")?;
    let thread = std::fs::read_link("/proc/thread-self").map_err(|error| error.to_string())?;
    let id = thread.file_name().and_then(|id| id.to_str()).ok_or("no thread id")?;
    let output = Command::new("taskset").args(["-cp", &core, id]).output();
    let output = output.map_err(|error| format!("taskset: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(text) }
}

/// Passes 8 bytes around `laps` times; rank 0 begins. Idle ranks sleep.
fn ring(me: u32, laps: u64, addresses: &[PeerAddress], mut engine: Engine<Udp>, done: &AtomicU32) {
    let n = addresses.len() as u32;
    let next = engine.add_peer(&addresses[((me + 1) % n) as usize]).unwrap();
    let before = (me + n - 1) % n;
    engine.add_peer(&addresses[before as usize]).unwrap();
    for lap in 0..laps {
        let bytes = lap.to_le_bytes();
        if me == 0 {
            engine.send_copy(next, Tag(0), &bytes).unwrap();
        }
        let got = Cell::new(false);
        let check = |source, _, received: &[u8]| {
            assert_eq!((source, received), (before, &bytes[..]));
            got.set(true);
        };
        tick_until(&mut engine, check, |_| got.get());
        if me != 0 {
            engine.send_copy(next, Tag(0), &bytes).unwrap();
        }
    }
    finish(&mut engine, next, done, n);
}

#[test]
fn pc_78_a_ring_of_four_on_one_core() {
    let bound = std::thread::spawn(|| {
        bind_to_one_core()?;
        let engines =
            [0, 1, 2, 3].map(|rank| engine(rank, Udp::open(&ethernet()).unwrap(), |_| {}));
        let addresses: Vec<_> = engines.iter().map(Engine::local_address).collect();
        let (begin, done) = (Instant::now(), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for (me, engine) in (0..).zip(engines) {
                let (addresses, done) = (&addresses, &done);
                scope.spawn(move || ring(me, 10_000, addresses, engine, done));
            }
        });
        Ok::<Duration, String>(begin.elapsed())
    });
    match bound.join().unwrap() {
        Ok(took) => {
            println!("{took:?}");
            assert!(took < Duration::from_secs(60), "{took:?}");
        }
        Err(reason) => common::skip("a ring on one core", &reason),
    }
}

#[test]
fn pc_79_an_ack_inside_the_send_call() {
    const MESSAGES: u64 = 100_000;
    let net = SimNet::new(1, LinkModel::default());
    let hook = Hook::default();
    let open = |rank, hook| {
        let shim = Shim { inner: net.port(SimPortConfig::default()), hook };
        let mut config = Config::new(Rank(rank), JOB);
        config.ack_every_segments = 1;
        Engine::new(config, shim).unwrap()
    };
    let (mut a, mut b) = (open(0, hook.clone()), open(1, Hook::default()));
    let to = a.add_peer(&b.local_address()).unwrap();
    b.add_peer(&a.local_address()).unwrap();
    let mut ignore = |_: &mut Context<Shim>, _: Event<'_>| {};
    a.tick(&mut ignore);
    b.tick(&mut ignore);
    let b = Rc::new(RefCell::new(b));
    let got = Rc::new(Cell::new(0));
    let (other, seen) = (b.clone(), got.clone());
    // The receiver takes everything in, and its ack waits here before the sender's call returns.
    *hook.borrow_mut() = Some(Box::new(move || {
        other.borrow_mut().tick(&mut |_: &mut Context<Shim>, event: Event<'_>| {
            if let Event::Received(message) = event {
                assert_eq!(message.bytes(), u64::to_le_bytes(seen.get()));
                seen.set(seen.get() + 1);
            }
        });
    }));
    for number in 0..MESSAGES {
        while let Err(error) = a.send_copy(to, Tag(0), &number.to_le_bytes()) {
            assert_eq!(error, SendError::Again);
            a.tick(&mut ignore);
        }
        if number % 64 == 0 {
            a.tick(&mut ignore);
            net.advance(MICROS);
        }
    }
    for _ in 0..100_000 {
        a.tick(&mut ignore);
        net.advance(MICROS);
    }
    assert!(a.is_drained(to));
    assert_eq!(got.get(), MESSAGES);
    for engine in [&a, &*b.borrow()] {
        let counters = engine.counters();
        assert_eq!((counters.segments_resent, counters.drops()), (0, 0));
    }
}

#[test]
fn pc_79_another_thread_drives_progress() {
    let run = stream(&UdpConfig::default(), |_| {}, (100_000, 8), Duration::ZERO);
    assert_eq!((run.sender.drops_impossible_ack, run.receiver.drops_impossible_ack), (0, 0));
    assert_eq!(run.receiver.messages_received, 100_000);
}
