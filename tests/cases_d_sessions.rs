//! Faults that others met, section D: sessions that begin, end and begin again.

mod cases;

use cases::life::World;
use cases::shared;
use std::cell::RefCell;
use std::rc::Rc;
use tickwire::Death;
use tickwire::ports::sim::{LinkModel, SimPortConfig, Verdict};
use tickwire::time::{MICROS, MILLIS, SECONDS};

fn link() -> LinkModel {
    LinkModel { latency_ns: 20 * MICROS, ..LinkModel::default() }
}

fn numbers(range: std::ops::Range<u32>) -> Vec<u32> {
    range.collect()
}

/// 0 and 1 exchange the messages of a range; all are acked.
fn exchange(world: &mut World, range: std::ops::Range<u32>, first: usize) {
    let count = |world: &mut World, at: usize| {
        let ear = world.ear(at);
        [ear.heard.len(), ear.done.len()]
    };
    let before = [0, 1].map(|at| count(world, at));
    for number in range.clone() {
        world.send(first, 1 - first, number, 40);
        world.send(1 - first, first, number, 40);
    }
    world.until(SECONDS, |world| {
        [0, 1].iter().all(|&at| count(world, at) == before[at].map(|n| n + range.len()))
    });
}

/// PC-42: a peer restarts on the same address. Run 1: the new one speaks first, run 2: the
/// survivor does, before the new one has heard of it.
#[test]
fn pc_42_a_peer_restarts_on_the_same_address() {
    for survivor_first in [false, true] {
        let mut world = World::joined(2, link(), SimPortConfig::default(), |_| {});
        exchange(&mut world, 0..1000, 0);
        world.kill(1);
        // In flight when the news come: these fail, each once.
        for number in 1000..1010 {
            world.send(0, 1, number, 3000);
        }
        world.run_for(MILLIS);
        world.reopen(1, 2);
        let knows_first = usize::from(!survivor_first);
        let other = 1 - knows_first;
        world.add(knows_first, other);
        for number in 5000..5010 {
            world.send(knows_first, other, number, 3000);
        }
        world.run_for(3 * MILLIS);
        assert!(world.ear(other).messages_of(knows_first as u32).iter().all(|&n| n < 1000));
        world.add(other, knows_first);
        let told = world.until(SECONDS, |world| world.ear(0).dead.len() == 1);
        assert!(told < MILLIS, "told after {told} ns");
        world.until(SECONDS, |world| world.ear(other).heard.last().is_some_and(|m| m.1 == 5009));
        world.run_for(MILLIS);
        exchange(&mut world, 6000..7000, other);

        let ear = world.ear(0);
        assert!(matches!(&ear.dead[..], [(name, Death::Replaced, _)] if name == "node1"));
        let mut failed: Vec<_> = ear.failed.iter().map(|token| token.0).collect();
        failed.sort_unstable();
        assert_eq!(failed, (1000..1010).collect::<Vec<_>>());
        let extra = |at: usize| if at == other { numbers(5000..5010) } else { Vec::new() };
        let old = numbers(0..1000);
        let new = numbers(6000..7000);
        assert_eq!(ear.messages_of(1), [old, extra(0), new.clone()].concat());
        assert_eq!(world.ear(1).messages_of(0), [extra(1), new].concat());
        assert!(world.ear(1).dead.is_empty() && world.ear(1).failed.is_empty());
    }
}

/// PC-42, where nobody tells the survivor: the old session ends by silence, within D.
#[test]
fn pc_42_a_survivor_that_is_not_told_finds_out() {
    let mut world =
        World::joined(2, link(), SimPortConfig::default(), |c| c.dead_after_ns = 500 * MILLIS);
    exchange(&mut world, 0..1000, 0);
    world.kill(1);
    world.reopen(1, 2);
    world.add(1, 0);
    world.send(0, 1, 1000, 40);
    world.send(1, 0, 2000, 40);
    let took = world.until(SECONDS, |world| !world.ear(0).dead.is_empty());
    assert!((400 * MILLIS..600 * MILLIS).contains(&took), "after {took} ns");
    assert!(matches!(world.ear(0).dead[0].1, Death::Silent { .. }));
    assert_eq!(world.ear(0).failed.len(), 1);
    assert!(world.ear(1).heard.is_empty());
}

/// PC-43: all to all at once, with 30 % of the first datagrams lost and 30 % of them twice.
#[test]
fn pc_43_first_contact_of_all_with_all() {
    let model = LinkModel { loss: 0.3, dup: 0.3, ..link() };
    let mut world = World::joined(16, model, SimPortConfig::default(), |_| {});
    for (a, b) in (0..16).flat_map(|a| (0..16).map(move |b| (a, b))).filter(|(a, b)| a != b) {
        world.send(a, b, b as u32, 8);
    }
    let took = world.until(5 * SECONDS, |world| {
        (0..16).all(|at| world.ear(at).heard.len() == 15 && world.ear(at).done.len() == 15)
    });
    world.run_for(SECONDS);
    for at in 0..16u32 {
        let ear = world.ear(at as usize);
        let mut from: Vec<_> = ear.heard.iter().map(|(from, _)| *from).collect();
        from.sort_unstable();
        assert_eq!(from, (0..16).filter(|&from| from != at).collect::<Vec<_>>());
        assert!(ear.dead.is_empty() && ear.failed.is_empty(), "{took} ns");
    }
}

/// PC-44: data arrives before the receiver has added the sender, or before its addresses are in;
/// and first messages cross.
#[test]
fn pc_44_data_overtakes_the_introduction() {
    let slow_inserts = SimPortConfig { async_insert: true, ..SimPortConfig::default() };
    for port in [SimPortConfig::default(), slow_inserts] {
        // Not added yet: nothing but the sender's timer is waited for.
        let mut world = World::new(2, link(), port.clone(), |_| {});
        world.add(0, 1);
        world.send(0, 1, 0, 8);
        world.run_for(MILLIS);
        assert!(world.ear(1).heard.is_empty());
        world.add(1, 0);
        let took = world.until(SECONDS, |world| world.ear(0).done.len() == 1);
        assert!(took < 6 * MILLIS, "{took} ns");
        assert_eq!(world.ear(1).heard, [(0, 0)]);

        // Added, and the datagram is there before the addresses are in.
        let mut world = World::new(2, link(), port.clone(), |_| {});
        world.add(0, 1);
        world.processes[1].paused = true;
        world.send(0, 1, 0, 8);
        world.run_for(MILLIS);
        world.add(1, 0);
        world.processes[1].paused = false;
        let took = world.until(SECONDS, |world| world.ear(0).done.len() == 1);
        assert!(took < 100 * MICROS, "{took} ns");
        assert_eq!((world.ear(1).heard.len(), world.ear(1).dead.len()), (1, 0));

        // Both at once.
        let mut world = World::joined(2, link(), port, |_| {});
        world.send(0, 1, 0, 8);
        world.send(1, 0, 0, 8);
        let all = |world: &mut World| (0..2).all(|at| world.ear(at).done.len() == 1);
        let took = world.until(SECONDS, all);
        assert!(took < 100 * MICROS, "{took} ns");
        assert!((0..2).all(|at| world.ear(at).heard.len() == 1));
        assert!((0..2).all(|at| world.engine(at).counters().segments_resent == 0));
    }
}

/// PC-49: a peer's first datagrams come again, five times, the last after 1000 messages; and once
/// more when it has restarted.
#[test]
fn pc_49_first_datagrams_come_again() {
    let mut world = World::joined(2, link(), SimPortConfig::default(), |_| {});
    let caught = Rc::<RefCell<Vec<_>>>::default();
    let (count, catch) = (shared::<u32>(), caught.clone());
    let seen = count.0.clone();
    world.net.set_tap(Box::new(move |tap| {
        if seen.get() < 6 {
            seen.set(seen.get() + 1);
            catch.borrow_mut().push((tap.to, tap.channel, tap.bytes.to_vec()));
        }
        Verdict::Deliver
    }));
    let again = |world: &mut World| {
        for (to, channel, bytes) in caught.borrow().iter() {
            world.net.inject(*to, *channel, bytes);
        }
        world.run_for(MILLIS);
    };
    exchange(&mut world, 0..3, 0);
    again(&mut world);
    for part in [3..250, 250..500, 500..750, 750..1000] {
        exchange(&mut world, part, 0);
        again(&mut world);
    }
    for at in 0..2 {
        assert_eq!(world.ear(at).messages_of(1 - at as u32), numbers(0..1000));
        assert!(world.ear(at).dead.is_empty());
    }
    world.kill(1);
    world.reopen(1, 2);
    world.add(1, 0);
    world.add(0, 1);
    again(&mut world);
    exchange(&mut world, 2000..3000, 0);
    again(&mut world);
    assert_eq!(world.ear(1).messages_of(0), numbers(2000..3000));
    assert_eq!(world.ear(0).heard.len(), 2000);
}
