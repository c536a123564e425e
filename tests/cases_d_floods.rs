//! Faults that others met, section D: floods of strangers' datagrams while a job starts, runs and
//! ends. What the job does must be the same, and every datagram must be counted.

mod common;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tickwire::ports::libfabric::{Libfabric, LibfabricConfig};
use tickwire::ports::sim::{LinkModel, SimNet, SimPort, SimPortConfig};
use tickwire::ports::udp::{Udp, UdpConfig};
use tickwire::ports::{Channel, Port, PortError};
use tickwire::simulation::payload;
use tickwire::wire::{HEADER_BYTES, VERSION};
use tickwire::{Config, Context, EndpointHandle, Engine, Event, JobKey, Rank, SendError, Tag};

const JOB: JobKey = JobKey(0xD47);
const STRANGERS: u32 = 10_000;
/// Delivered between two ticks: few enough for any socket's buffer.
const AT_ONCE: u32 = 8;
/// The same for libfabric's UDP provider, which reads one datagram a poll and channel.
const AT_ONCE_SLOW: u32 = 2;

/// Makes strangers' datagrams.
struct Flood {
    dice: ChaCha8Rng,
    /// Right version and job key; the rank of a peer, or not; a wrong session; the rest random.
    forged: bool,
}

impl Flood {
    fn new(forged: bool) -> Self {
        Self { dice: ChaCha8Rng::seed_from_u64(47), forged }
    }

    fn next(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; (self.dice.next_u32() % 1501) as usize];
        self.dice.fill_bytes(&mut bytes);
        if !self.forged {
            return bytes;
        }
        bytes.resize(bytes.len().max(HEADER_BYTES), 0);
        bytes[0] = VERSION << 4 | (self.dice.next_u32() % 16) as u8;
        if self.dice.next_u32().is_multiple_of(2) {
            // Of a length that fits, so that the name is looked at.
            bytes[2..4].copy_from_slice(&0u16.to_le_bytes());
        }
        bytes[4..8].copy_from_slice(&JOB.wire_check().to_le_bytes());
        let rank = self.dice.next_u32() % 4;
        bytes[8..12].copy_from_slice(&rank.to_le_bytes());
        // Random, so right once in 2^32: these 10 000, which are always the same, are not.
        bytes
    }
}

struct Side<P: Port> {
    engine: Engine<P>,
    peer: Option<EndpointHandle>,
    received: u64,
}

impl<P: Port> Side<P> {
    fn open(rank: u32, port: P) -> Self {
        let mut config = Config::new(Rank(rank), JOB);
        config.incarnation = tickwire::Incarnation(rank + 7);
        config.first_seq = u32::MAX - 40;
        Self { engine: Engine::new(config, port).unwrap(), peer: None, received: 0 }
    }

    fn tick(&mut self) {
        let (source, received) = (1 - self.engine.local_address().rank.0, &mut self.received);
        self.engine.tick(&mut |_: &mut Context<P>, event: Event<'_>| match event {
            Event::Received(message) => {
                assert_eq!(u64::from(message.tag.0), *received);
                assert_eq!(message.bytes().len(), len_of(*received));
                assert_eq!(payload::first_difference(message.bytes(), source, *received), None);
                *received += 1;
            }
            Event::PeerReady { .. } | Event::PeerClosed { .. } => {}
            other => panic!("{other:?}"),
        });
    }

    fn send(&mut self, number: u64) {
        let mut bytes = vec![0; len_of(number)];
        payload::fill(&mut bytes, self.engine.local_address().rank.0, number);
        let sent = self.engine.send_copy(self.peer.unwrap(), Tag(number as u32), &bytes);
        assert!(matches!(sent, Ok(()) | Err(SendError::Again)), "{sent:?}");
        assert!(sent.is_ok(), "message {number} was refused: the test sends too fast");
    }

    /// Datagrams that were counted as nobody's. One of the job's own may come twice; no stranger's
    /// is taken for such a one.
    fn refused(&self) -> u64 {
        let counters = self.engine.counters();
        counters.drops() + counters.receives_failed - counters.drops_duplicate
    }
}

fn len_of(number: u64) -> usize {
    if number % 10 == 9 { 10_000 } else { (number * 7 % 300) as usize }
}

const MESSAGES: u64 = 400;

/// A whole job of two: starts, exchanges messages, ends. `between` is called between ticks with
/// the name of the phase and whether that is over.
fn job<P: Port>(
    sides: &mut [Side<P>; 2],
    mut between: impl FnMut(&mut [Side<P>; 2], &'static str, bool) -> bool,
) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut phase = |sides: &mut [Side<P>; 2],
                     name: &'static str,
                     done: &mut dyn FnMut(&mut [Side<P>; 2]) -> bool| {
        loop {
            sides.iter_mut().for_each(Side::tick);
            let over = done(sides);
            if between(sides, name, over) && over {
                return;
            }
            let counters = sides.each_ref().map(|side| side.engine.counters().rows());
            assert!(Instant::now() < deadline, "stuck in {name}: {counters:?}");
        }
    };
    phase(sides, "before peers are known", &mut |_| true);
    let addresses = sides.each_ref().map(|side| side.engine.local_address());
    for (side, other) in sides.iter_mut().zip([1, 0]) {
        side.peer = Some(side.engine.add_peer(&addresses[other]).unwrap());
    }
    phase(sides, "start", &mut |sides| {
        sides.iter().all(|side| side.engine.is_ready(side.peer.unwrap()))
    });
    let mut sent = 0;
    phase(sides, "run", &mut |sides| {
        if sent < MESSAGES && sides.iter().all(|side| side.received == sent) {
            sides.iter_mut().for_each(|side| side.send(sent));
            sent += 1;
        }
        sides
            .iter()
            .all(|side| side.received == MESSAGES && side.engine.is_drained(side.peer.unwrap()))
    });
    for side in sides.iter_mut() {
        side.engine.close_peer(side.peer.unwrap()).unwrap();
    }
    phase(sides, "finalize", &mut |sides| {
        sides.iter().all(|side| side.engine.is_closed(side.peer.unwrap()))
    });
    phase(sides, "after the end", &mut |_| true);
}

/// A job with a share of the flood in each phase, delivered by `deliver` to one side and channel.
/// How many datagrams each side was sent.
fn flooded_job<P: Port>(
    sides: &mut [Side<P>; 2],
    (forged, at_once): (bool, u32),
    mut deliver: impl FnMut(usize, Channel, &[u8]),
) -> [u64; 2] {
    let mut flood = Flood::new(forged);
    let (mut phase, mut left, mut sent) = ("", 0, [0; 2]);
    job(sides, |_, name, _| {
        if phase != name {
            (phase, left) = (name, STRANGERS);
        }
        for _ in 0..at_once.min(left) {
            let bytes = flood.next();
            let turn = sent[0] + sent[1];
            let (side, channel) = ((turn % 2) as usize, Channel::ALL[(turn / 2 % 2) as usize]);
            deliver(side, channel, &bytes);
            sent[side] += 1;
            left -= 1;
        }
        left == 0
    });
    sent
}

const FIVE_PHASES: u64 = 5 * STRANGERS as u64;

fn sim_sides() -> (SimNet, [Side<SimPort>; 2]) {
    let net = SimNet::new(47, LinkModel { latency_ns: 5_000, ..LinkModel::default() });
    let config = || SimPortConfig { async_insert: true, ..SimPortConfig::default() };
    let sides = [0, 1].map(|rank| Side::open(rank, net.port(config())));
    (net, sides)
}

/// In the simulation the whole job is the same to the last counter: no datagram is answered, none
/// costs the job a resend.
#[test]
fn pc_47_floods_change_nothing_in_the_simulation() {
    let (net, mut quiet) = sim_sides();
    job(&mut quiet, |_, _, _| {
        net.advance(1_000);
        true
    });
    let quiet_sent = net.counters().sent;
    for forged in [false, true] {
        let (net, mut sides) = sim_sides();
        let sent = flooded_job(&mut sides, (forged, AT_ONCE), |side, channel, bytes| {
            net.inject(side as u32, channel, bytes);
            net.advance(1_000);
        });
        assert_eq!(sent[0] + sent[1], FIVE_PHASES);
        sides.iter_mut().for_each(Side::tick);
        // Two ends that say goodbye for longer say it once or twice more.
        let extra = net.counters().sent.abs_diff(quiet_sent);
        println!(
            "forged {forged}: {quiet_sent} datagrams in peace, {extra} more or less in the flood"
        );
        for (side, quiet) in sides.iter().zip(&quiet) {
            let (got, want) = (side.engine.counters(), quiet.engine.counters());
            assert_eq!(side.refused(), sent[side.engine.local_address().rank.0 as usize]);
            assert_eq!(got.messages_received, want.messages_received);
            assert_eq!(got.bytes_received, want.bytes_received);
            assert_eq!((got.segments_resent, got.peers_died), (0, 0));
            assert_eq!(got.segments_sent, want.segments_sent);
            let forgeries = got.drops_wrong_session.min(got.drops_unknown_rank);
            assert!(!forged || forgeries > 500, "{got:?}");
            side.engine.check_invariants().unwrap();
        }
    }
}

/// The same over sockets; `address` tells where a port's channel listens.
fn sockets<P: Port>(
    at_once: u32,
    open: impl Fn() -> P,
    address: impl Fn(&P, Channel) -> SocketAddr,
) {
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.set_nonblocking(true).unwrap();
    for forged in [false, true] {
        let ports = [open(), open()];
        let to = ports.each_ref().map(|port| Channel::ALL.map(|channel| address(port, channel)));
        let mut rank = 0;
        let mut sides = ports.map(|port| {
            rank += 1;
            Side::open(rank - 1, port)
        });
        let sent = flooded_job(&mut sides, (forged, at_once), |side, channel, bytes| {
            assert_eq!(stranger.send_to(bytes, to[side][channel as usize]).unwrap(), bytes.len());
        });
        assert_eq!(sent[0] + sent[1], FIVE_PHASES);
        let lost = to.map(|of_side| of_side.map(kernel_drops).iter().sum::<u64>());
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until && (0..2).any(|i| sides[i].refused() < sent[i] - lost[i]) {
            sides.iter_mut().for_each(Side::tick);
        }
        println!("forged {forged}: the kernel dropped {lost:?} of {sent:?}");
        for (side, (sent, lost)) in sides.iter().zip(sent.into_iter().zip(lost)) {
            let counters = side.engine.counters();
            let counted = side.refused();
            assert!((sent - lost..=sent).contains(&counted), "{counted} of {sent}: {counters:?}");
            // Sent and read in turns: it has no reason to drop many.
            assert!(lost <= sent / 100, "the kernel dropped {lost} of {sent}");
            assert_eq!((side.received, counters.peers_died), (MESSAGES, 0));
            side.engine.check_invariants().unwrap();
        }
        assert!(stranger.recv_from(&mut [0; 2000]).is_err(), "a stranger was answered");
    }
}

/// Datagrams that the kernel had no room for at the socket of this address.
fn kernel_drops(address: SocketAddr) -> u64 {
    let table = std::fs::read_to_string("/proc/net/udp").unwrap();
    let port = format!(":{:04X}", address.port());
    let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row.get(1).is_some_and(|local| local.ends_with(&port)));
    row.expect("the socket is open").last().unwrap().parse().unwrap()
}

fn udp() -> Udp {
    Udp::open(&UdpConfig::default()).unwrap()
}

#[test]
fn pc_47_floods_over_udp_are_counted_and_change_nothing() {
    sockets(AT_ONCE, udp, Udp::socket_address);
}

fn libfabric() -> Option<Libfabric> {
    let provider = Some("udp".to_owned());
    match Libfabric::open(&LibfabricConfig { provider, ..LibfabricConfig::default() }) {
        Ok(port) => Some(port),
        Err(error @ PortError::Missing { .. }) => {
            common::skip("floods over libfabric", &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn pc_47_floods_over_libfabric_are_counted_and_change_nothing() {
    let Some(_) = libfabric() else { return };
    sockets(
        AT_ONCE_SLOW,
        || libfabric().unwrap(),
        |port, channel| {
            // A `sockaddr_in`: family, port and address, the latter two in network order.
            let raw = port.local_address(channel).0;
            let port = u16::from_be_bytes([raw[2], raw[3]]);
            SocketAddr::from((Ipv4Addr::new(raw[4], raw[5], raw[6], raw[7]), port))
        },
    );
}

/// Half round trips of 8 bytes, in nanoseconds: the median of so many.
fn median_ns<P: Port>(sides: &mut [Side<P>; 2], rounds: usize) -> u64 {
    let peers = sides.each_ref().map(|side| side.peer.unwrap());
    let mut all: Vec<_> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            for from in [0, 1] {
                sides[from].engine.send_copy(peers[from], Tag(0), &[1; 8]).unwrap();
                let mut came = false;
                while !came {
                    sides[1 - from].engine.tick(&mut |_: &mut Context<P>, event: Event<'_>| {
                        came |= matches!(event, Event::Received(_));
                    });
                }
            }
            start.elapsed().as_nanos() as u64 / 2
        })
        .collect();
    all.sort_unstable();
    all[rounds / 2]
}

/// Run alone: `cargo test --release --test cases_d_floods -- --ignored --nocapture`.
#[test]
#[ignore = "measures times"]
fn pc_47_what_a_flood_costs_a_ping_pong() {
    for forged in [false, true] {
        let mut sides = [0, 1].map(|rank| Side::open(rank, udp()));
        let to = sides.each_ref().map(|s| Channel::ALL.map(|c| s.engine.port().socket_address(c)));
        let addresses = sides.each_ref().map(|side| side.engine.local_address());
        for (side, other) in sides.iter_mut().zip([1, 0]) {
            side.peer = Some(side.engine.add_peer(&addresses[other]).unwrap());
        }
        median_ns(&mut sides, 10_000);
        for per_second in [10_000u64, 50_000] {
            let quiet = median_ns(&mut sides, 100_000);
            let before = sides.each_ref().map(Side::refused).iter().sum::<u64>();
            let stop = AtomicBool::new(false);
            let (loud, sent) = std::thread::scope(|scope| {
                let flooding = scope.spawn(|| flood_until(&stop, forged, per_second, &to));
                let loud = median_ns(&mut sides, 100_000);
                stop.store(true, Ordering::Relaxed);
                (loud, flooding.join().unwrap())
            });
            sides.iter_mut().for_each(|side| {
                side.engine.tick(&mut |_: &mut Context<Udp>, _: Event<'_>| {});
            });
            let refused = sides.each_ref().map(Side::refused).iter().sum::<u64>() - before;
            println!(
                "forged {forged}, {per_second}/s: half round trip {quiet} ns in peace, {loud} in \
                 the flood, ratio {:.3}; {sent} sent, {refused} counted",
                loud as f64 / quiet as f64
            );
        }
    }
}

/// Sends strangers' datagrams to all of `to` at the rate, until told to stop. How many.
fn flood_until(stop: &AtomicBool, forged: bool, per_second: u64, to: &[[SocketAddr; 2]; 2]) -> u64 {
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut flood = Flood::new(forged);
    let start = Instant::now();
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        while start.elapsed().as_nanos() as u64 * per_second / 1_000_000_000 > sent {
            let to = to[(sent % 2) as usize][(sent / 2 % 2) as usize];
            stranger.send_to(&flood.next(), to).unwrap();
            sent += 1;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    sent
}
