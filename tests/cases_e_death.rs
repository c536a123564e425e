//! Faults that others met, section E: death, goodbyes, and what they leave behind. And PC-96.

mod cases;

use cases::life::World;
use cases::{is_data, shared};
use tickwire::ports::sim::{LinkModel, SimPortConfig, Verdict};
use tickwire::simulation::payload;
use tickwire::time::{MICROS, MILLIS, SECONDS};
use tickwire::{Death, Rank, Tag};

fn link() -> LinkModel {
    LinkModel { latency_ns: 20 * MICROS, ..LinkModel::default() }
}

fn lossy() -> LinkModel {
    LinkModel { loss: 0.05, ..link() }
}

fn remove_all(world: &mut World, at: usize) {
    for rank in 0..world.processes.len() as u32 {
        let process = &mut world.processes[at];
        let engine = process.engine.as_mut().expect("the process runs");
        if let Some(peer) = engine.peer(Rank(rank)) {
            engine.remove_peer(peer, &mut process.ear).unwrap();
        }
    }
    world.run_for(MILLIS);
}

/// PC-50: a node of a ring dies. Whoever has to do with it is told within D + 1 s; the others go on
/// at the old rate.
#[test]
fn pc_50_a_node_of_a_ring_dies() {
    const LEN: usize = 8192;
    let model = LinkModel { latency_ns: 200 * MICROS, ..LinkModel::default() };
    let mut world =
        World::joined(4, model, SimPortConfig::default(), |c| c.dead_after_ns = 5 * SECONDS);
    let mut sent = [0u32; 4];
    // One message to the next rank, another one when it is there.
    let mut run = |world: &mut World, seconds: u64| {
        let before = [1, 2].map(|at| world.ear(at).heard.len());
        let end = world.net.now() + seconds * SECONDS;
        while world.net.now() < end {
            for (from, sent) in sent.iter_mut().enumerate() {
                let process = &world.processes[from];
                let over = process.ear.done.len() + process.ear.failed.len();
                let to = (from + 1) % 4;
                let is_alone = to == 3 && !process.ear.dead.is_empty();
                if over as u32 == *sent && process.engine.is_some() && !is_alone {
                    world.send(from, to, *sent, LEN);
                    *sent += 1;
                }
            }
            world.step();
        }
        [1, 2].map(|at| (world.ear(at).heard.len() - before[at - 1]) as u64 / seconds)
    };
    let rates = run(&mut world, 1);
    world.kill(3);
    let killed = world.net.now();
    let later = run(&mut world, 6);
    assert!((0..2).all(|i| later[i] >= rates[i] * 95 / 100), "{rates:?}, then {later:?}");
    let told = world.ear(2).dead.clone();
    assert!(matches!(&told[..], [(name, Death::Silent { .. }, at)]
        if name == "node3" && *at <= killed + 6 * SECONDS));
    assert_eq!(world.ear(2).failed.len(), 1);
    // Rank 0 was owed nothing and has not asked.
    assert!(world.ear(0).dead.is_empty() && world.ear(1).dead.is_empty());
}

/// PC-51: a way that swallows everything, from the start or after 1000 messages.
#[test]
fn pc_51_total_loss_is_told_with_the_name() {
    for before in [0, 1000] {
        let mut world =
            World::joined(2, link(), SimPortConfig::default(), |c| c.dead_after_ns = 5 * SECONDS);
        for number in 0..before {
            world.send(0, 1, number, 100);
        }
        world.until(SECONDS, |world| world.ear(0).done.len() == before as usize);
        world.net.set_link(0, 1, LinkModel { loss: 1.0, ..link() });
        world.run_for(MILLIS);
        let sent = world.net.counters().sent;
        for number in before..before + 10 {
            world.send(0, 1, number, 100);
        }
        let took = world.until(10 * SECONDS, |world| !world.ear(0).dead.is_empty());
        assert!((4 * SECONDS..=6 * SECONDS).contains(&took), "told after {took} ns");
        let datagrams = world.net.counters().sent - sent;
        assert!(datagrams <= 50, "{datagrams} datagrams");
        assert_eq!(world.ear(0).dead[0].0, "node1");
        assert_eq!(world.ear(0).failed.len(), 10);
        // Told once, and nothing is left.
        world.run_for(6 * SECONDS);
        assert_eq!(world.ear(0).dead.len(), 1);
        remove_all(&mut world, 0);
        assert!(world.is_empty(0));
    }
}

/// PC-53: the last message, and both sides close; what the receiver says last is lost three times.
#[test]
fn pc_53_a_peer_leaves_before_its_ack_is_in() {
    let mut world = World::joined(2, link(), SimPortConfig::default(), |_| {});
    let (seen, left) = shared::<u32>();
    left.set(3);
    world.net.set_tap(Box::new(move |tap| {
        if tap.from == 1 && !is_data(tap.bytes) && seen.get() > 0 {
            seen.set(seen.get() - 1);
            return Verdict::Drop;
        }
        Verdict::Deliver
    }));
    world.send(0, 1, 0, 8);
    let peer = world.peer(0, 1);
    world.engine(0).close_peer(peer).unwrap();
    world.until(SECONDS, |world| world.ear(1).heard.len() == 1);
    let back = world.peer(1, 0);
    world.engine(1).close_peer(back).unwrap();
    let took = world.until(SECONDS, |world| {
        let closed = [(0, peer), (1, back)].map(|(at, peer)| world.engine(at).is_closed(peer));
        closed == [true, true]
    });
    assert_eq!(left.get(), 0);
    assert!(took < 100 * MILLIS, "{took} ns");
    assert_eq!((world.ear(0).done.len(), world.ear(1).heard.len()), (1, 1));
    assert!((0..2).all(|at| world.ear(at).dead.is_empty() && world.ear(at).closed == 1));
    for at in 0..2 {
        remove_all(&mut world, at);
        assert!(world.is_empty(at));
    }
}

/// PC-56: a sender dies in mid-message, into memory that was named for it.
#[test]
fn pc_56_a_sender_dies_in_mid_message() {
    let mut world = World::joined(3, link(), SimPortConfig::default(), |c| {
        c.dead_after_ns = 500 * MILLIS;
    });
    let (seen, _) = shared::<u32>();
    world.net.set_tap(Box::new(move |tap| {
        if tap.from == 0 && is_data(tap.bytes) {
            seen.set(seen.get() + 1);
            return if seen.get() > 5 { Verdict::Drop } else { Verdict::Deliver };
        }
        Verdict::Deliver
    }));
    let memory = vec![0; 20_000];
    let place = memory.as_ptr();
    world.ear(1).offer = Some(memory);
    // Whoever waits for a message watches its sender.
    let from = world.peer(1, 0);
    world.engine(1).watch(from, true).unwrap();
    world.send(0, 1, 0, 14_000);
    world.run_for(10 * MILLIS);
    assert!(world.ear(1).offer.is_none() && world.engine(1).usage().fragments == 1);
    world.kill(0);
    world.until(SECONDS, |world| !world.ear(1).dead.is_empty());
    let failed = std::mem::take(&mut world.ear(1).receives_failed);
    assert_eq!(failed.iter().map(|memory| memory.as_ptr()).collect::<Vec<_>>(), [place]);
    // The second receive is as good as ever, for another sender.
    world.ear(1).offer = failed.into_iter().next();
    world.send(2, 1, 7, 14_000);
    world.until(SECONDS, |world| world.ear(1).heard == [(2, 7)]);
    let usage = world.engine(1).usage();
    assert_eq!((usage.fragments, usage.half_received_bytes, usage.held_slots), (0, 0, 0));
    remove_all(&mut world, 1);
    assert!(world.is_empty(1) && world.ear(1).receives_failed.is_empty());
}

/// PC-57: rank 0 sends to all and closes while the others have not started.
#[test]
fn pc_57_a_short_job() {
    let mut world = World::new(16, lossy(), SimPortConfig::default(), |_| {});
    for at in 1..16 {
        world.processes[at].paused = true;
        world.add(0, at);
    }
    for at in 1..16 {
        world.send(0, at, at as u32, 8);
        let peer = world.peer(0, at);
        world.engine(0).close_peer(peer).unwrap();
    }
    let start = |at: usize| at as u64 * 7 % 16 * 200 * MILLIS;
    let took = world.until(20 * SECONDS, |world| {
        let now = world.net.now();
        let mut all_left = true;
        for at in 1..16 {
            if world.processes[at].paused && now >= start(at) {
                world.processes[at].paused = false;
                world.add(at, 0);
            }
            if world.processes[at].paused {
                all_left = false;
                continue;
            }
            let peer = world.peer(at, 0);
            if !world.ear(at).heard.is_empty() {
                world.engine(at).close_peer(peer).unwrap();
            }
            let pair = [(at, peer), (0, world.peer(0, at))];
            all_left &= pair.iter().all(|&(at, peer)| world.engine(at).is_closed(peer));
        }
        all_left
    });
    assert!(took >= 3 * SECONDS);
    assert!((1..16).all(|at| world.ear(at).heard == [(0, at as u32)]));
    assert_eq!(world.ear(0).done.len(), 15);
    assert!((0..16).all(|at| world.ear(at).dead.is_empty()));
}

/// PC-58: two children come, exchange ten messages, close and go; twenty times.
#[test]
fn pc_58_children_come_and_go() {
    let mut world = World::new(3, lossy(), SimPortConfig::default(), |_| {});
    for cycle in 0..20 {
        for child in 1..3 {
            world.add(0, child);
            world.add(child, 0);
            for number in 0..10 {
                world.send(0, child, number, 2000);
                world.send(child, 0, number, 2000);
            }
        }
        let pairs: Vec<_> = (1..3).flat_map(|child| [(0, child), (child, 0)]).collect();
        for &(at, of) in &pairs {
            let peer = world.peer(at, of);
            world.engine(at).close_peer(peer).unwrap();
        }
        world.until(5 * SECONDS, |world| {
            pairs.iter().all(|&(at, of)| {
                let peer = world.peer(at, of);
                world.engine(at).is_closed(peer)
            })
        });
        assert!((1..3).all(|child| world.ear(child).messages_of(0).len() == 10));
        assert_eq!(world.ear(0).heard.len(), 20 * (cycle + 1));
        for at in 0..3 {
            remove_all(&mut world, at);
            assert!(world.is_empty(at), "cycle {cycle}: {:?}", world.engine(at).usage());
        }
        for child in 1..3 {
            world.kill(child);
            world.reopen(child, 2 + cycle as u32);
        }
    }
    assert!((0..3).all(|at| world.ear(at).dead.is_empty()));
}

/// PC-60: a process of eight is gone in the middle of 1000 sends.
#[test]
fn pc_60_a_process_is_gone_in_the_middle_of_everything() {
    let mut world = World::joined(8, lossy(), SimPortConfig::default(), |c| {
        c.dead_after_ns = SECONDS;
    });
    for number in 0..150 {
        for other in (0..8).filter(|&other| other != 1) {
            world.send(1, other, number, 10_000);
            world.send(other, 1, number, 10_000);
            let next = if other == 0 { 2 } else { (other + 1) % 8 };
            world.send(other, next, number, 100);
        }
    }
    world.kill(1);
    for other in (0..8).filter(|&other| other != 1) {
        let peer = world.peer(other, 1);
        world.engine(other).watch(peer, true).unwrap();
    }
    let others: Vec<_> = (0..8).filter(|&other| other != 1).collect();
    world.until(2 * SECONDS, |world| {
        others.iter().all(|&at| {
            let ear = world.ear(at);
            ear.dead.len() == 1 && ear.done.len() + ear.failed.len() == 300
        })
    });
    for &at in &others {
        remove_all(&mut world, at);
        assert!(world.is_empty(at));
        assert_eq!(world.ear(at).dead.len(), 1);
    }
}

const EPERM: i32 = 1;
const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const ENETUNREACH: i32 = 101;
const ECONNREFUSED: i32 = 111;

/// PC-96: sends that fail, for good or once.
#[test]
fn pc_96_failed_sends_name_the_peer_and_the_code() {
    for sends_complete_at_post in [false, true] {
        let port = SimPortConfig { sends_complete_at_post, ..SimPortConfig::default() };
        for (code, times) in [
            (EINVAL, u32::MAX),
            (ENETUNREACH, u32::MAX),
            (EPERM, u32::MAX),
            (ENOMEM, 1),
            (ENETUNREACH, 1),
            (ECONNREFUSED, 1),
        ] {
            let mut world = World::joined(6, link(), port.clone(), |_| {});
            for peer in 1..6 {
                world.send(0, peer, 0, 8);
            }
            world.until(SECONDS, |world| world.ear(0).done.len() == 5);
            world.net.fail_sends(0, 5, code, times);
            for (peer, number) in (1..6).flat_map(|peer| (1..11).map(move |number| (peer, number)))
            {
                world.send(0, peer, number, 3000);
            }
            // The others notice nothing.
            let took =
                world.until(SECONDS, |world| (1..5).all(|at| world.ear(at).heard.len() == 11));
            assert!(took < 10 * MILLIS, "{code}: {took} ns");
            if times == 1 {
                world.until(SECONDS, |world| world.ear(0).done.len() == 55);
                assert!(world.ear(0).dead.is_empty() && world.ear(0).failed.is_empty());
                assert_eq!(world.ear(5).heard.len(), 11);
                continue;
            }
            let took = world.until(SECONDS, |world| !world.ear(0).dead.is_empty());
            assert!(took < SECONDS);
            let (name, cause, _) = &world.ear(0).dead[0];
            assert_eq!((name.as_str(), *cause), ("node5", Death::SendError { code }));
            world.run_for(MILLIS);
            assert_eq!((world.ear(0).failed.len(), world.ear(0).dead.len()), (10, 1));
        }
    }
}

/// Who is watched while its addresses are on their way into the port is watched when they are in.
#[test]
fn a_watch_may_begin_before_the_addresses_are_in() {
    let port = SimPortConfig { async_insert: true, ..SimPortConfig::default() };
    let mut world = World::new(2, link(), port, |c| c.dead_after_ns = 50 * MILLIS);
    let peer = world.add(0, 1);
    world.engine(0).watch(peer, true).unwrap();
    world.processes[0].paused = true;
    world.run_for(20 * MILLIS);
    world.processes[0].paused = false;
    world.kill(1);
    world.until(70 * MILLIS, |world| world.ear(0).dead.len() == 1);
}

/// A peer that lives and has nothing to say is not taken for dead, however seldom it is probed.
#[test]
fn a_watched_peer_is_probed_before_it_would_be_dead() {
    let mut world = World::joined(2, link(), SimPortConfig::default(), |c| {
        (c.dead_after_ns, c.keepalive_ns) = (40 * MILLIS, SECONDS);
    });
    let peer = world.peer(0, 1);
    world.engine(0).watch(peer, true).unwrap();
    world.run_for(3 * SECONDS);
    assert!(world.ear(0).dead.is_empty());
}

/// Whoever sleeps from deadline to deadline hears of a death in time.
#[test]
fn a_death_is_told_in_time_to_those_who_sleep() {
    for outstanding in [false, true] {
        let mut world = World::joined(2, link(), SimPortConfig::default(), |c| {
            (c.dead_after_ns, c.keepalive_ns) = (4 * SECONDS, 4 * SECONDS);
            (c.rto.initial_ns, c.rto.max_ns) = (3_000_000_000, 3_000_000_000);
        });
        world.run_for(MILLIS);
        world.kill(1);
        let peer = world.peer(0, 1);
        if outstanding {
            world.engine(0).send_copy(peer, Tag(0), b"x").unwrap();
        } else {
            world.engine(0).watch(peer, true).unwrap();
        }
        let begin = world.net.now();
        while world.ear(0).dead.is_empty() {
            let process = &mut world.processes[0];
            let engine = process.engine.as_mut().unwrap();
            engine.tick(&mut process.ear);
            if let Some(next) = engine.next_deadline() {
                world.net.advance_to(next.max(world.net.now() + 200));
            }
            assert!(world.net.now() - begin < 5 * SECONDS, "outstanding: {outstanding}");
        }
    }
}

/// What begins between ticks, after a long one without any, begins then: the time before it is not
/// counted as the peer's silence. Found by campaign seed 217.
#[test]
fn a_silence_that_begins_between_ticks_begins_then() {
    const DEAD_AFTER: u64 = 4 * SECONDS;
    for what in ["send", "watch", "add", "close"] {
        let mut world =
            World::new(2, link(), SimPortConfig::default(), |c| c.dead_after_ns = DEAD_AFTER);
        if what != "add" {
            world.add(0, 1);
            world.add(1, 0);
            world.send(0, 1, 0, 8);
            world.run_for(MILLIS);
        }
        world.kill(1);
        world.processes[0].paused = true;
        world.run_for(DEAD_AFTER / 10);
        world.processes[0].paused = false;
        if what == "add" {
            world.reopen(1, 2);
            world.add(0, 1);
            world.kill(1);
        }
        let peer = world.peer(0, 1);
        let engine = world.engine(0);
        match what {
            "watch" => engine.watch(peer, true).unwrap(),
            "close" => engine.close_peer(peer).unwrap(),
            _ => engine.send_copy(peer, Tag(1), b"x").unwrap(),
        }
        let took = world.until(2 * DEAD_AFTER, |world| world.ear(0).dead.len() == 1);
        assert!(took >= DEAD_AFTER - 2 * MILLIS, "{what}: dead after {took} ns");
    }
}

/// A side that closes while something of it still waits to be sent says goodbye behind it.
#[test]
fn goodbyes_wait_for_what_waits() {
    let mut world = World::joined(3, link(), SimPortConfig::default(), |c| c.active_peers_max = 1);
    // The one ring is taken for as long as rank 2 is silent.
    world.processes[2].paused = true;
    world.send(0, 1, 0, 8);
    world.until(SECONDS, |world| world.ear(0).done.len() == 1);
    world.send(0, 2, 0, 8);
    let mut bytes = vec![0; 5000];
    payload::fill(&mut bytes, 0, 1);
    let peer = world.peer(0, 1);
    world.engine(0).send_copy(peer, Tag(1), &bytes).unwrap();
    world.engine(0).close_peer(peer).unwrap();
    world.run_for(50 * MILLIS);
    assert_eq!((world.ear(1).heard.len(), world.ear(1).closed), (1, 0));
    world.processes[2].paused = false;
    world.until(SECONDS, |world| world.ear(1).closed == 1);
    assert_eq!(world.ear(1).heard.len(), 2);
}
