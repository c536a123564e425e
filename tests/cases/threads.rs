//! Engines over the kernel's sockets, each in a thread of its own.

use super::JOB;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tickwire::ports::Port;
use tickwire::ports::udp::{Udp, UdpConfig};
use tickwire::simulation::payload;
use tickwire::stats::Counters;
use tickwire::{Config, Context, EndpointHandle, Engine, Event, Rank, SendError, Tag};

/// No test of threads takes longer.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Opens engine `rank` on a port.
pub fn engine<P: Port>(rank: u32, port: P, tweak: impl Fn(&mut Config)) -> Engine<P> {
    let mut config = Config::new(Rank(rank), JOB);
    tweak(&mut config);
    Engine::new(config, port).unwrap()
}

/// Opens ranks 0 and 1, each a peer of the other.
pub fn pair<P: Port>(
    mut open: impl FnMut(u32) -> P,
    tweak: impl Fn(&mut Config) + Copy,
) -> [(Engine<P>, EndpointHandle); 2] {
    let mut engines = [0, 1].map(|rank| engine(rank, open(rank), tweak));
    let addresses = engines.each_ref().map(|engine| engine.local_address());
    let peers = [engines[0].add_peer(&addresses[1]), engines[1].add_peer(&addresses[0])];
    let [to_b, to_a] = peers.map(|peer| peer.unwrap());
    let [a, b] = engines;
    [(a, to_b), (b, to_a)]
}

/// What [`stream`] found.
pub struct Streamed {
    /// From the first send to the last message's arrival.
    pub took: Duration,
    pub sender: Counters,
    pub receiver: Counters,
}

/// Sends `count` messages of `len` bytes from one thread to another over UDP. The receiver ticks
/// for as long as there is something to do, then does something else for `pause`.
pub fn stream(
    port: &UdpConfig,
    tweak: fn(&mut Config),
    (count, len): (u64, usize),
    pause: Duration,
) -> Streamed {
    let [(mut a, to), (mut b, _)] = pair(|_| Udp::open(port).unwrap(), tweak);
    let drained = AtomicBool::new(false);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (mut got, mut took) = (0, Duration::ZERO);
            while !drained.load(Ordering::Relaxed) {
                let work = b.tick(&mut |_: &mut Context<_>, event: Event<'_>| {
                    if let Event::Received(message) = event {
                        assert_eq!(payload::first_difference(message.bytes(), 0, got), None);
                        got += 1;
                    }
                });
                if got == count && took.is_zero() {
                    took = begin.elapsed();
                }
                assert!(begin.elapsed() < PATIENCE, "{got} of {count} arrived");
                if work.is_idle() && pause.is_zero() {
                    std::thread::yield_now();
                } else if work.is_idle() {
                    std::thread::sleep(pause);
                }
            }
            (took, b.counters().clone())
        });
        let mut bytes = vec![0; len];
        let mut ignore = |_: &mut Context<_>, _: Event<'_>| {};
        for number in 0..count {
            payload::fill(&mut bytes, 0, number);
            while let Err(error) = a.send_copy(to, Tag(0), &bytes) {
                assert_eq!(error, SendError::Again);
                if a.tick(&mut ignore).is_idle() {
                    std::thread::yield_now();
                }
            }
        }
        let all = a.tick_until(&mut ignore, PATIENCE.as_nanos() as u64, |c| c.is_drained(to));
        drained.store(true, Ordering::Relaxed);
        assert!(all, "not all was acked");
        let (took, receiver) = receiver.join().unwrap();
        Streamed { took, sender: a.counters().clone(), receiver }
    })
}

/// As [`stream`] without a pause, but both engines take turns in this thread: what is measured does
/// not depend on how the system shares its cores among threads that wait for each other.
pub fn stream_by_turns(
    port: &UdpConfig,
    tweak: fn(&mut Config),
    (count, len): (u64, usize),
) -> Streamed {
    let [(mut a, to), (mut b, _)] = pair(|_| Udp::open(port).unwrap(), tweak);
    let (mut sent, mut got) = (0, 0);
    let mut bytes = vec![0; len];
    payload::fill(&mut bytes, 0, sent);
    let begin = Instant::now();
    let mut took = Duration::ZERO;
    while got < count || !a.is_drained(to) {
        while sent < count && a.send_copy(to, Tag(0), &bytes).is_ok() {
            sent += 1;
            payload::fill(&mut bytes, 0, sent);
        }
        a.tick(&mut |_: &mut Context<_>, _: Event<'_>| {});
        b.tick(&mut |_: &mut Context<_>, event: Event<'_>| {
            if let Event::Received(message) = event {
                assert_eq!(payload::first_difference(message.bytes(), 0, got), None);
                got += 1;
            }
        });
        if got == count && took.is_zero() {
            took = begin.elapsed();
        }
        assert!(begin.elapsed() < PATIENCE, "{got} of {count} arrived");
    }
    Streamed { took, sender: a.counters().clone(), receiver: b.counters().clone() }
}
