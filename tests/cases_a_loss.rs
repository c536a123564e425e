//! Faults that others met, section A: loss, acks and retransmission.

mod cases;

use cases::threads::stream;
use cases::{Sim, SimConfig, is_ack, is_data, seq_of, shared, star};
use std::collections::HashSet;
use std::time::{Duration, Instant};
use tickwire::ports::sim::{LinkModel, SimPortConfig, Verdict};
use tickwire::ports::udp::UdpConfig;
use tickwire::time::{MICROS, MILLIS, Nanos, SECONDS};
use tickwire::{Config, Congestion};

/// The timeout before there is a sample: T of the case list.
const T: Nanos = 5 * MILLIS;
/// W of the case list.
const W: usize = 256;
/// User bytes of a chunk on the simulated network.
const CHUNK: usize = 1472 - 48;

fn latency(latency_ns: Nanos) -> LinkModel {
    LinkModel { latency_ns, ..LinkModel::default() }
}

/// One sender, 63 peers that do not tick for 10 T after everything was queued.
fn late_receivers(messages: u64, fragments_max: u32) {
    const PEERS: usize = 63;
    const LEN: usize = 64 << 10;
    let mut sim = Sim::new(&SimConfig {
        nodes: PEERS as u32 + 1,
        model: LinkModel { bytes_per_s: 1_250_000_000, ..latency(5 * MICROS) },
        joined: star,
        tweak: match fragments_max {
            4096 => |_| {},
            _ => |config| config.fragments_max = 1 << 16,
        },
        ..SimConfig::default()
    });
    for _ in 0..messages {
        for peer in 1..=PEERS {
            sim.send(0, peer, LEN).unwrap();
        }
    }
    for peer in 1..=PEERS {
        sim.nodes[peer].paused = true;
    }
    let (mut resent, mut most) = (0, 0);
    let mut watched_step = |sim: &mut Sim| {
        sim.step(20 * MICROS);
        let now = sim.resent(0);
        most = most.max(now - resent);
        resent = now;
    };
    let woken_at = sim.net.now() + 10 * T;
    while sim.net.now() < woken_at {
        watched_step(&mut sim);
    }
    for peer in 1..=PEERS {
        sim.nodes[peer].paused = false;
    }
    let acks = sim.nodes[0].engine.counters().acks_received;
    for _ in 0..200 {
        watched_step(&mut sim);
    }
    assert!(sim.nodes[0].engine.counters().acks_received > acks, "{}", sim.stuck());
    while !sim.is_drained() {
        watched_step(&mut sim);
        assert!(sim.net.now() < woken_at + 60 * SECONDS, "{}", sim.stuck());
    }
    let minimum = PEERS as u64 * messages * (LEN.div_ceil(CHUNK)) as u64;
    let sent = sim.nodes[0].engine.counters().segments_sent;
    println!("{sent} datagrams, minimum {minimum}, at most {most} resends in a tick");
    assert!(sent <= 2 * minimum, "{sent} datagrams for {minimum}");
    assert!(most <= 64, "{most} resends in one tick");
    sim.check_invariants();
}

/// 16 messages to each instead of 256: the fault shows in the first window, and everything queued
/// at once takes a gigabyte otherwise.
#[test]
fn pc_01_receivers_that_start_late_cost_no_storm() {
    late_receivers(16, 4096);
}

#[test]
#[ignore = "full size: a gigabyte of messages"]
fn pc_01_receivers_that_start_late_cost_no_storm_full_size() {
    late_receivers(256, 1 << 16);
}

#[test]
fn pc_02_messages_around_the_window_need_no_timer() {
    const RTT: Nanos = 100 * MICROS;
    for chunks in [W - 1, W, W + 1, 2 * W, 2 * W + 1] {
        let mut sim = Sim::new(&SimConfig { model: latency(RTT / 2), ..SimConfig::default() });
        let (mut slowest, mut sum) = (0, 0);
        for _ in 0..100 {
            let begin = sim.net.now();
            sim.send(0, 1, chunks * CHUNK).unwrap();
            sim.drain(SECONDS, 10 * MICROS);
            slowest = slowest.max(sim.net.now() - begin);
            sum += sim.net.now() - begin;
        }
        let mean = sum / 100;
        println!("{chunks} chunks: mean {mean} ns, slowest {slowest} ns");
        assert_eq!(sim.resent_by_all(), 0, "{chunks} chunks");
        assert!(slowest < T, "{chunks} chunks: slowest {slowest} ns");
        assert!(mean <= 6 * RTT, "{chunks} chunks: mean {mean} ns");
    }
}

#[test]
fn pc_03_lost_first_acks_end_in_silence() {
    for lost in [1, 3] {
        let mut sim = Sim::new(&SimConfig { model: latency(10 * MICROS), ..Default::default() });
        let mut acks = 0;
        let (data, data_seen) = shared::<u64>();
        sim.net.set_tap(Box::new(move |tap| {
            data.set(data.get() + u64::from(tap.from == 0));
            acks += u64::from(tap.from == 1 && is_ack(tap.bytes));
            let drop = tap.from == 1 && is_ack(tap.bytes) && acks <= lost;
            if drop { Verdict::Drop } else { Verdict::Deliver }
        }));
        sim.send(0, 1, 8).unwrap();
        sim.drain(SECONDS, 10 * MICROS);
        assert_eq!(sim.seen(0, 1), 1);
        let resent = sim.resent(0);
        assert!((lost..=lost + 1).contains(&resent), "{lost} acks lost: {resent} resends");
        let before = data_seen.get();
        sim.run_for(2 * SECONDS, MILLIS);
        assert_eq!(data_seen.get(), before, "A is silent once it has its ack");
        assert!(sim.is_drained());
    }
}

#[test]
fn pc_06_acks_of_48_peers_on_a_short_queue() {
    const PEERS: usize = 48;
    let mut sim = Sim::new(&SimConfig {
        nodes: PEERS as u32 + 1,
        model: latency(5 * MICROS),
        port: SimPortConfig {
            send_depth: 8,
            sends_complete_at_post: false,
            send_completion_delay_ns: MICROS,
            ..SimPortConfig::default()
        },
        joined: star,
        // A leak of ack slots, which is all the memory that acks have, ends the run at once.
        tweak: |config| config.ack_slots = 8,
    });
    let mut left = [1000; PEERS + 1];
    while !sim.is_drained() || left[1..].iter().any(|&left| left > 0) {
        for (peer, left) in left.iter_mut().enumerate().skip(1) {
            *left -= sim.send_some(peer, 0, 1, (*left).min(16));
        }
        sim.step(5 * MICROS);
        assert!(sim.net.now() < 10 * SECONDS, "{}", sim.stuck());
    }
    assert_eq!(sim.seen_by(0), 48_000);
    // What the port refuses for want of room would be an overrun; it says so for sends that failed.
    assert_eq!(sim.net.counters().sends_failed, 0);
    let resent = sim.resent_by_all();
    println!("{resent} resends");
    assert!(resent < 480, "{resent} resends without a loss");
    sim.check_invariants();
}

#[test]
fn pc_08_heavy_loss_both_ways() {
    heavy_loss(|_| {});
}

#[test]
fn pc_08_heavy_loss_both_ways_with_a_fixed_window() {
    heavy_loss(|config| config.congestion = Congestion::Fixed);
}

#[test]
fn pc_08_heavy_loss_both_ways_with_a_fixed_window_and_room() {
    heavy_loss(|config| {
        config.congestion = Congestion::Fixed;
        // As many messages may be open as a window can hold of two chunks each, early ones too.
        config.half_received_per_peer_max = 256;
    });
}

fn heavy_loss(tweak: fn(&mut Config)) {
    const MESSAGES: u64 = 10_000;
    // Short datagrams, so that a run is short; P is what fits them.
    let port = SimPortConfig { datagram_bytes_max: 256, ..SimPortConfig::default() };
    let len = 8 * (256 - 48);
    let model = LinkModel { loss: 0.25, ..latency(20 * MICROS) };
    let mut sim = Sim::new(&SimConfig { model, port, tweak, ..SimConfig::default() });
    let mut left = [MESSAGES; 2];
    let (mut seen, mut since, mut longest) = (0, 0, 0);
    let mut steps = 0;
    while !sim.is_drained() || left != [0, 0] {
        for from in [0, 1] {
            left[from] -= sim.send_some(from, 1 - from, len, left[from].min(16));
        }
        sim.step(10 * MICROS);
        steps += 1;
        if steps % 1000 == 0 {
            sim.check_invariants();
        }
        let (now, all) = (sim.net.now(), sim.seen(0, 1) + sim.seen(1, 0));
        // The row's gaps are open for as long as there is a window full of messages both ways.
        if all != seen || left.contains(&0) {
            (seen, since) = (all, now);
        }
        longest = longest.max(now - since);
        assert!(now < 600 * SECONDS, "{}", sim.stuck());
    }
    let took_ms = sim.net.now() / MILLIS;
    println!("{took_ms} ms, longest pause {longest} ns, resent {}", sim.resent_by_all());
    assert!(longest <= 10 * T, "nothing completed for {longest} ns");
    sim.check_invariants();
}

#[test]
fn pc_09_many_gaps_are_mended_together() {
    const RTT: Nanos = MILLIS;
    let mut sim = Sim::new(&SimConfig { model: latency(RTT / 2), ..SimConfig::default() });
    // A round trip is known before the message.
    sim.send(0, 1, 8).unwrap();
    sim.drain(SECONDS, 50 * MICROS);
    let net = sim.net.clone();
    let (first_pass, first_pass_end) = shared::<Nanos>();
    let mut sent = HashSet::new();
    sim.net.set_tap(Box::new(move |tap| {
        if tap.from != 0 || !is_data(tap.bytes) || !sent.insert(seq_of(&tap)) {
            return Verdict::Deliver;
        }
        first_pass.set(net.now());
        if sent.len() % 10 == 0 { Verdict::Drop } else { Verdict::Deliver }
    }));
    sim.send(0, 1, 1 << 20).unwrap();
    sim.drain(SECONDS, 50 * MICROS);
    let rest = sim.net.now() - first_pass_end.get();
    println!("first pass over at {} ns, done {rest} ns later", first_pass_end.get());
    assert!(rest <= 4 * RTT, "{rest} ns after the first pass");
}

#[test]
fn pc_10_one_gap_is_resent_once() {
    let mut sim = Sim::new(&SimConfig { model: latency(2500 * MICROS), ..Default::default() });
    for _ in 0..20 {
        for _ in 0..200 {
            sim.send(0, 1, 64).unwrap();
        }
        sim.drain(SECONDS, 100 * MICROS);
    }
    assert_eq!(sim.resent(0), 0);
    let mut lost = None;
    let (again, others) = (shared::<u32>(), shared::<u32>());
    let (lost_again, other_again) = (again.1, others.1);
    let mut seen = HashSet::new();
    sim.net.set_tap(Box::new(move |tap| {
        if tap.from != 0 || !is_data(tap.bytes) {
            return Verdict::Deliver;
        }
        let seq = seq_of(&tap);
        let first = seen.insert(seq);
        if lost.is_none() {
            lost = Some(seq);
            return Verdict::Drop;
        }
        if !first {
            let counter = if lost == Some(seq) { &again.0 } else { &others.0 };
            counter.set(counter.get() + 1);
        }
        Verdict::Deliver
    }));
    for _ in 0..201 {
        sim.send(0, 1, 64).unwrap();
        sim.step(5 * MICROS);
    }
    sim.drain(SECONDS, 100 * MICROS);
    sim.run_for(SECONDS, MILLIS);
    println!("resent {} and {}", lost_again.get(), other_again.get());
    assert!((1..=2).contains(&lost_again.get()), "resent {} times", lost_again.get());
    assert_eq!(other_again.get(), 0, "others resent");
}

/// Round-trip times of a ping-pong in which one ping of `every` is lost: of those with a loss and
/// of the others, each sorted.
fn ping_pong(every: Option<u64>) -> (Vec<Nanos>, Vec<Nanos>) {
    let mut sim = Sim::new(&SimConfig { model: latency(15 * MICROS), ..SimConfig::default() });
    let (lost, losses) = shared::<u64>();
    let mut sent = HashSet::new();
    sim.net.set_tap(Box::new(move |tap| {
        let ping = tap.from == 0 && is_data(tap.bytes) && sent.insert(seq_of(&tap));
        let drop = ping && every.is_some_and(|every| (sent.len() as u64).is_multiple_of(every));
        lost.set(lost.get() + u64::from(drop));
        if drop { Verdict::Drop } else { Verdict::Deliver }
    }));
    let (mut hit, mut clean) = (Vec::new(), Vec::new());
    for round in 1..=10_000 {
        let (begin, before) = (sim.net.now(), losses.get());
        sim.send(0, 1, 8).unwrap();
        while sim.seen(0, 1) < round {
            sim.step(MICROS);
        }
        sim.send(1, 0, 8).unwrap();
        while sim.seen(1, 0) < round {
            sim.step(MICROS);
        }
        let times = if losses.get() == before { &mut clean } else { &mut hit };
        times.push(sim.net.now() - begin);
    }
    sim.drain(SECONDS, 10 * MICROS);
    hit.sort_unstable();
    clean.sort_unstable();
    (hit, clean)
}

#[test]
fn pc_11_a_lost_ping_costs_about_a_round_trip() {
    let (_, undisturbed) = ping_pong(None);
    let (hit, clean) = ping_pong(Some(100));
    let median = undisturbed[undisturbed.len() / 2];
    let worst = hit.last().unwrap() - median;
    println!("median {median} ns, lost pings cost up to {worst} ns more");
    assert_eq!(hit.len(), 100);
    assert_eq!(clean[clean.len() / 2], median);
    assert!(worst <= MILLIS, "{worst} ns more");
}

/// A stream of `bytes` over the model: virtual time, and resends, the first 100 ms apart.
fn displaced_stream(model: LinkModel, bytes: usize, tweak: Tweak) -> (Nanos, u64, Sim) {
    const LEN: usize = 1400;
    let mut sim = Sim::new(&SimConfig { model, tweak, ..SimConfig::default() });
    let (mut left, mut early) = ((bytes / LEN) as u64, 0);
    let begin = sim.net.now();
    while left > 0 || !sim.is_drained() {
        left -= sim.send_some(0, 1, LEN, left.min(64));
        sim.step(10 * MICROS);
        if sim.net.now() < 100 * MILLIS {
            early = sim.resent(0);
        }
        assert!(sim.net.now() < 60 * SECONDS, "{}", sim.stuck());
    }
    (sim.net.now() - begin, early, sim)
}

type Tweak = fn(&mut Config);

#[test]
fn pc_13_reordering_is_not_loss() {
    reordering(|_| {});
}

#[test]
fn pc_13_reordering_is_not_loss_with_a_fixed_window() {
    reordering(|config| config.congestion = Congestion::Fixed);
}

fn reordering(tweak: Tweak) {
    const BYTES: usize = 100 << 20;
    // Places are datagrams on the wire: each is late by 0 to 64 of them, one in 1000 by 200.
    const PLACE: Nanos = 1_450;
    let in_order = LinkModel { bytes_per_s: 1_000_000_000, ..latency(50 * MICROS) };
    let displaced = LinkModel {
        jitter_ns: 64 * PLACE,
        delay_spike: 0.001,
        delay_spike_ns: 200 * PLACE,
        ..in_order
    };
    let (plain_ns, _, _) = displaced_stream(in_order, BYTES, tweak);
    let (took_ns, early, mut sim) = displaced_stream(displaced, BYTES, tweak);
    sim.run_for(10 * MILLIS, MILLIS);
    let sent = sim.nodes[0].engine.counters().segments_sent;
    let resent = sim.resent(0);
    let late = resent - early;
    let refused = sim.nodes[1].engine.counters().drops_duplicate;
    println!("{plain_ns} ns, displaced {took_ns} ns; {early} and {late} resends of {sent}");
    // Nothing was lost, so each resend was for nothing, and it or its original came too late.
    assert_eq!(refused, resent);
    assert_eq!(sim.seen(0, 1), (BYTES / 1400) as u64);
    assert!(late * 100 < sent, "{late} spurious resends of {sent}");
    assert!(plain_ns * 10 >= took_ns * 7, "{took_ns} ns, in order {plain_ns} ns");
}

/// The part of the row that any window fulfils, with few messages: it completes, and the counters
/// tell of every loss.
#[test]
#[ignore = "takes a minute with the window by delay: 5 ms between polls pass for congestion"]
fn pc_16_a_receiver_that_polls_every_5_ms_gets_everything() {
    slow_polls(5_000, |_| {});
}

#[test]
fn pc_16_a_receiver_that_polls_every_5_ms_gets_everything_with_a_fixed_window() {
    slow_polls(2_000, |config| config.congestion = Congestion::Fixed);
}

#[test]
#[ignore = "needs a receiver window in bytes: 4 datagrams of up to 64 KiB are offered"]
fn pc_16_a_receiver_that_polls_every_5_ms_keeps_a_third() {
    let ratio = slow_polls(1_000_000, |_| {});
    assert!(ratio >= 0.3, "goodput at {ratio:.2} of constant polling");
}

/// Goodput with a poll every 5 ms over goodput with constant polling.
fn slow_polls(count: u64, tweak: Tweak) -> f64 {
    let port = UdpConfig { socket_buffer_bytes: 212_992, ..UdpConfig::default() };
    let constant = stream(&port, tweak, (count, 64), Duration::ZERO);
    let slow = stream(&port, tweak, (count, 64), Duration::from_millis(5));
    for (what, run) in [("constant", &constant), ("slow", &slow)] {
        let resent = run.sender.segments_resent;
        println!("{what}: {:?}, {resent} resent", run.took);
        assert_eq!(run.sender.segments_sent - resent, count, "losses show as resends");
        assert_eq!(run.receiver.messages_received, count);
        let refused = run.receiver.drops_duplicate + run.receiver.drops_above_window;
        assert!(refused <= resent, "{refused} refused of {resent} resent");
    }
    let ratio = constant.took.as_secs_f64() / slow.took.as_secs_f64();
    println!("ratio {ratio:.2}");
    ratio
}

fn patient(config: &mut Config) {
    config.dead_after_ns = 90 * SECONDS;
}

#[test]
fn pc_18_a_receiver_that_sleeps_a_minute() {
    let mut sim =
        Sim::new(&SimConfig { model: latency(10 * MICROS), tweak: patient, ..Default::default() });
    sim.send(0, 1, 8).unwrap();
    sim.drain(SECONDS, 10 * MICROS);
    for _ in 0..1000 {
        sim.send(0, 1, 3 * CHUNK).unwrap();
    }
    sim.nodes[1].paused = true;
    let (mut ticks_us, mut by_10_s) = (Vec::new(), Vec::new());
    for _ in 0..6 {
        let before = sim.resent(0);
        for _ in 0..10_000 {
            let begin = Instant::now();
            sim.tick_all();
            ticks_us.push(begin.elapsed().as_micros());
            sim.net.advance(MILLIS);
        }
        by_10_s.push(sim.resent(0) - before);
    }
    ticks_us.sort_unstable();
    // A busy machine takes the core away now and then; a tick that lists everything again would
    // do so in all of them.
    let slow = ticks_us[ticks_us.len() * 999 / 1000];
    println!("ticks up to {slow} us (1 in 1000 more), resends {by_10_s:?} in 10 s each");
    assert!(slow < 1000, "ticks of {slow} us");
    assert!(by_10_s[0] <= 100 && by_10_s[5] <= 50, "resends {by_10_s:?}");
    assert_eq!(sim.seen(0, 1), 1);
    sim.nodes[1].paused = false;
    sim.drain(SECONDS, 10 * MICROS);
    assert_eq!(sim.seen(0, 1), 1001);
    sim.check_invariants();
}
