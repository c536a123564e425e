//! Faults that others met, section F: resources, flow control, floods.

mod cases;

use cases::threads::{self, stream_by_turns};
use cases::{Sim, SimConfig, star};
use tickwire::ports::sim::{LinkModel, SimPortConfig};
use tickwire::ports::udp::{Udp, UdpConfig};
use tickwire::time::{MICROS, MILLIS, Nanos, SECONDS};
use tickwire::{Config, SendError};

/// User bytes of a chunk on the simulated network.
const CHUNK: usize = 1472 - 48;

fn link() -> LinkModel {
    LinkModel { latency_ns: 10 * MICROS, ..LinkModel::default() }
}

#[test]
fn pc_62_a_message_waits_for_slots_and_gets_them() {
    let tweak = |config: &mut Config| config.send_slots = 32;
    let mut sim = Sim::new(&SimConfig { nodes: 3, model: link(), tweak, ..SimConfig::default() });
    sim.nodes[2].paused = true;
    let mut left = 64 - sim.send_some(1, 2, 100, 64);
    assert!(left > 0, "the slots are used up");
    // While nothing of what it sent is acked, rank 1 still acks what it gets.
    sim.send(0, 1, 1 << 20).unwrap();
    let end = sim.net.now() + 2 * SECONDS;
    while sim.net.now() < end {
        left -= sim.send_some(1, 2, 100, left);
        sim.step(100 * MICROS);
    }
    assert_eq!(sim.seen(0, 1), 1, "a megabyte to rank 1 needs none of its slots");
    sim.send(1, 0, 1 << 20).unwrap();
    sim.nodes[2].paused = false;
    let woken_at = sim.net.now();
    while left > 0 || !sim.is_drained() {
        left -= sim.send_some(1, 2, 100, left);
        sim.step(100 * MICROS);
        assert!(sim.net.now() < woken_at + SECONDS, "{}", sim.stuck());
    }
    assert_eq!((sim.seen(1, 2), sim.seen(1, 0)), (64, 1));
    sim.check_invariants();
}

/// Eight senders of `each` messages of `len` bytes to a rank that sleeps for 20 s.
fn flood(each: u64, len: usize, tweak: fn(&mut Config)) {
    const SENDERS: usize = 8;
    let port = SimPortConfig { socket_datagrams: 4096, ..SimPortConfig::default() };
    let mut sim = Sim::new(&SimConfig {
        nodes: SENDERS as u32 + 1,
        model: LinkModel { bytes_per_s: 10_000_000_000, ..link() },
        port: port.clone(),
        joined: star,
        tweak,
    });
    let mut config = Config::new(tickwire::Rank(0), cases::JOB);
    tweak(&mut config);
    // A sender keeps so many messages at most: one a slot, or one a row.
    let kept_max =
        u64::from(if len > CHUNK { config.fragments_max / 2 } else { config.send_slots });
    let mut left = [each; SENDERS + 1];
    let (mut asleep_until, mut in_flight) = (sim.net.now() + 20 * SECONDS, 0);
    sim.nodes[0].paused = true;
    while left[1..].iter().any(|&left| left > 0) || !sim.is_drained() {
        for (sender, left) in left.iter_mut().enumerate().skip(1) {
            *left -= sim.send_some(sender, 0, len, *left);
        }
        let asleep = sim.nodes[0].paused;
        sim.step(if asleep { MILLIS } else { 5 * MICROS });
        in_flight = in_flight.max(sim.net.in_flight());
        if asleep && sim.net.now() >= asleep_until {
            assert!(
                left[1..].iter().all(|&left| left >= each - kept_max),
                "senders wait: {left:?}"
            );
            sim.nodes[0].paused = false;
            asleep_until = Nanos::MAX;
        }
        assert!(sim.net.now() < 200 * SECONDS, "{}", sim.stuck());
    }
    assert_eq!(sim.seen_by(0), SENDERS as u64 * each);
    let drops = sim.net.counters().no_receive_posted;
    let (sent, resent) = (sim.net.counters().sent, sim.resent_by_all());
    println!("{in_flight} in flight at most, {drops} lost of {sent}, {resent} resent");
    // What waits at the port is bounded by the port, what is under way by the windows.
    let window_max = SENDERS * usize::from(config.window_segments);
    assert!(in_flight <= port.socket_datagrams + 2 * window_max, "{in_flight} datagrams");
    sim.check_invariants();
}

/// 5 000 messages each instead of a million: five times more than memory for them, in seconds.
#[test]
fn pc_63_small_messages_to_a_sleeping_rank() {
    flood(5_000, 64, patient);
}

#[test]
#[ignore = "full size: eight million messages"]
fn pc_63_small_messages_to_a_sleeping_rank_full_size() {
    flood(1_000_000, 64, patient);
}

fn patient(config: &mut Config) {
    config.dead_after_ns = 60 * SECONDS;
}

/// Rows and memory for few of the messages at a time, at either end.
fn little_memory(config: &mut Config) {
    patient(config);
    config.fragments_max = 64;
    config.message_bytes_max = 64 << 10;
    config.half_received_bytes_max = 512 << 10;
}

/// 100 messages from each instead of 1 250: more than memory for them, in seconds.
#[test]
fn pc_63_large_messages_to_a_sleeping_rank() {
    flood(100, 64 << 10, little_memory);
}

#[test]
#[ignore = "full size: 10 000 messages of 64 KiB"]
fn pc_63_large_messages_to_a_sleeping_rank_full_size() {
    flood(1250, 64 << 10, little_memory);
}

#[test]
fn pc_64_what_is_accepted_is_delivered() {
    for (sends_complete_at_post, send_depth) in [(true, 1024), (false, 1024), (false, 8)] {
        for (window, len) in [(64, 100), (256, 100), (256, 3 * CHUNK)] {
            let port =
                SimPortConfig { sends_complete_at_post, send_depth, ..SimPortConfig::default() };
            let tweak: fn(&mut Config) = match window {
                64 => |config| {
                    config.window_segments = 64;
                    config.send_slots = 200;
                },
                _ => |config| {
                    config.send_slots = 1000;
                    config.fragments_max = 256;
                },
            };
            let mut sim = Sim::new(&SimConfig { model: link(), port, tweak, ..Default::default() });
            let (mut accepted, mut refused) = (0, 0);
            for _ in 0..4 * window {
                match sim.send(0, 1, len) {
                    Ok(()) => accepted += 1,
                    Err(error) => {
                        assert_eq!(error, SendError::Again);
                        refused += 1;
                    }
                }
            }
            assert!(refused > 0, "{accepted} accepted, none refused");
            sim.drain(SECONDS, 10 * MICROS);
            sim.run_for(10 * MILLIS, 100 * MICROS);
            assert_eq!(sim.seen(0, 1), accepted);
            sim.check_invariants();
        }
    }
}

#[test]
fn pc_65_completions_wait_for_a_late_reader() {
    for len in [8, 3 * CHUNK] {
        let mut sim = Sim::new(&SimConfig {
            model: link(),
            port: SimPortConfig {
                send_depth: 16,
                recv_depth: 16,
                socket_datagrams: 16,
                sends_complete_at_post: false,
                ..SimPortConfig::default()
            },
            tweak: |config| config.send_slots = 64,
            ..SimConfig::default()
        });
        let mut left = 1000;
        // Nobody reads for a second; the queue is full, and more is refused.
        while left > 0 && sim.send_with_token(0, 1, len).is_ok() {
            left -= 1;
        }
        sim.net.advance(SECONDS);
        let small = len < CHUNK;
        assert_eq!(left > 0, small, "small messages are refused, large ones have rows enough");
        let end = sim.net.now() + 60 * SECONDS;
        while left > 0 || sim.nodes[0].book.done.contains(&0) {
            while left > 0 && sim.send_with_token(0, 1, len).is_ok() {
                left -= 1;
            }
            sim.step(10 * MICROS);
            assert!(sim.net.now() < end, "{}", sim.stuck());
        }
        assert!(sim.nodes[0].book.done.iter().all(|&n| n == 1), "each completion once");
        assert_eq!((sim.nodes[0].book.done.len(), sim.seen(0, 1)), (1000, 1000));
        sim.check_invariants();
    }
}

#[test]
fn pc_68_a_socket_buffer_smaller_than_the_window() {
    const MESSAGE: usize = 1 << 20;
    // 4096 datagrams of up to 1472 bytes are a window of more than 4 MiB.
    let tweak = |config: &mut Config| config.window_segments = 4096;
    let port = |socket_buffer_bytes| UdpConfig {
        socket_buffer_bytes,
        datagram_bytes_max: Some(1472),
        ..UdpConfig::default()
    };
    let (small, large) = (port(16 << 10), port(16 << 20));
    let engine = threads::engine(0, Udp::open(&small).unwrap(), tweak);
    let warnings = engine.warnings();
    println!("{warnings:?}");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let window_bytes = (4096 * 1472).to_string();
    for number in ["16384 bytes", &window_bytes] {
        assert!(warnings[0].contains(number), "{number} is not in {:?}", warnings[0]);
    }
    let engine = threads::engine(0, Udp::open(&large).unwrap(), tweak);
    assert_eq!(engine.warnings(), [""; 0]);
    let [small, large] = [small, large].map(|port| stream_by_turns(&port, tweak, (100, MESSAGE)));
    let ratio = large.took.as_secs_f64() / small.took.as_secs_f64();
    let resent = small.sender.segments_resent;
    println!("{:?}, large {:?}: {ratio:.2}; {resent} resent", small.took, large.took);
    assert!(ratio >= 0.25, "goodput at {ratio:.2}");
}

/// What `Again` asks for: a tick, and another try. Without one nothing changes or is lost.
#[test]
fn pc_69_who_ticks_on_try_again_gets_on() {
    for tweak in [(|_| {}) as fn(&mut Config), |config| {
        config.send_slots = 2;
        config.ack_slots = 1;
        config.fragments_max = 8;
    }] {
        let mut sim = Sim::new(&SimConfig { model: link(), tweak, ..SimConfig::default() });
        let mut left = 100_000;
        left -= sim.send_some(0, 1, 8, left);
        for _ in 0..1000 {
            assert_eq!(sim.send(0, 1, 8), Err(SendError::Again));
        }
        let end = sim.net.now() + 600 * SECONDS;
        while left > 0 {
            // No other call of the sender's than the one that `Again` asks for.
            match sim.send(0, 1, 8) {
                Ok(()) => left -= 1,
                Err(_) => sim.step(5 * MICROS),
            }
            assert!(sim.net.now() < end, "{}", sim.stuck());
        }
        sim.drain(SECONDS, 5 * MICROS);
        assert_eq!(sim.seen(0, 1), 100_000);
        sim.check_invariants();
    }
}

/// The form that a layer above has: everything is asked for at once, then waited for at once.
#[test]
fn pc_69_all_at_once_then_one_wait() {
    let tweak = |config: &mut Config| config.fragments_max = 1 << 18;
    let mut sim = Sim::new(&SimConfig { model: link(), tweak, ..SimConfig::default() });
    let mut waiting = 100_000;
    while waiting > 0 || !sim.is_drained() {
        waiting -= sim.send_some(0, 1, 8, waiting);
        sim.step(5 * MICROS);
        assert!(sim.net.now() < 600 * SECONDS, "{}", sim.stuck());
    }
    assert_eq!(sim.seen(0, 1), 100_000);
}

/// Time of each of `rounds` rounds, and each sender's in it: 100 senders of 1 MiB to one, whose
/// link has room for 128 datagrams.
fn incast(rounds: u64) {
    const SENDERS: usize = 100;
    const LEN: usize = 1 << 20;
    const BYTES_PER_S: u64 = 12_500_000_000;
    let mut sim = Sim::new(&SimConfig {
        nodes: SENDERS as u32 + 1,
        model: LinkModel { bytes_per_s: BYTES_PER_S, queue_datagrams: 128, ..link() },
        port: SimPortConfig { datagram_bytes_max: 4096, ..SimPortConfig::default() },
        joined: star,
        tweak: |_| {},
    });
    let (mut worst_share, mut worst_slowest) = (f64::MAX, 0.0);
    for _ in 0..rounds {
        let begin = sim.net.now();
        for sender in 1..=SENDERS {
            sim.send(sender, 0, LEN).unwrap();
        }
        sim.drain(60 * SECONDS, 2 * MICROS);
        let mut times: Vec<_> =
            sim.nodes[0].book.last_at[1..].iter().map(|at| (at - begin) as f64).collect();
        times.sort_unstable_by(f64::total_cmp);
        let (median, slowest) = (times[SENDERS / 2], times[SENDERS - 1]);
        let ideal = (SENDERS * LEN) as f64 * 1e9 / BYTES_PER_S as f64;
        worst_share = f64::min(worst_share, ideal / slowest);
        worst_slowest = f64::max(worst_slowest, slowest / median);
    }
    let sent: u64 = sim.nodes[1..].iter().map(|node| node.engine.counters().segments_sent).sum();
    let resent = sim.resent_by_all();
    println!(
        "goodput at least {worst_share:.2} of the link, slowest {worst_slowest:.2} medians, \
         {resent} of {sent} resent"
    );
    assert!(worst_share >= 0.5, "goodput at {worst_share:.2} of the link");
    assert!(resent * 10 < sent * 3, "{resent} of {sent} resent");
    assert!(worst_slowest <= 3.0, "the slowest takes {worst_slowest:.2} medians");
}

/// Two rounds of the row's twenty: the first from a cold start, the second from what it taught.
#[test]
fn pc_71_many_to_one() {
    incast(2);
}

#[test]
#[ignore = "full size: 20 rounds"]
fn pc_71_many_to_one_full_size() {
    incast(20);
}
