//! Simulation, by hand: the plain cases first.

use tickwire::Rank;
use tickwire::ports::sim::{LinkModel, SimPortConfig};
use tickwire::simulation::{Cluster, ClusterConfig};
use tickwire::time::{MICROS, MILLIS};

fn run(config: &ClusterConfig, lens: &[usize]) -> Cluster {
    let mut cluster = Cluster::new(config);
    for (i, &len) in lens.iter().enumerate() {
        while cluster.send(i % 2, (i + 1) % 2, len, i % 3 == 0).is_err() {
            cluster.run_for(10 * MICROS, MICROS).unwrap();
        }
    }
    cluster.drain(200 * MILLIS, 10 * MICROS).unwrap_or_else(|failure| panic!("{failure}"));
    cluster
}

#[test]
fn messages_of_all_sizes_arrive_on_a_calm_network() {
    let latency = LinkModel { latency_ns: 5 * MICROS, ..LinkModel::default() };
    for model in [LinkModel::default(), latency] {
        let config = ClusterConfig { model, ..ClusterConfig::default() };
        let lens = [0, 1, 8, 1440, 1441, 5000, 100_000, 1, 1_000_000, 7, 3_000_000, 8, 8];
        let mut cluster = run(&config, &lens);
        assert_eq!(cluster.engine(0).counters().segments_resent, 0);
        assert_eq!(cluster.received(0) + cluster.received(1), lens.len() as u64);
    }
}

#[test]
fn one_percent_loss_is_repaired() {
    let model = LinkModel { latency_ns: 5 * MICROS, loss: 0.01, ..LinkModel::default() };
    let config = ClusterConfig { model, ..ClusterConfig::default() };
    let mut cluster = run(&config, &[200_000; 20]);
    assert!(cluster.engine(0).counters().segments_resent > 0);
}

/// Whoever ticks an engine only when it says so misses nothing.
#[test]
fn an_engine_tells_when_it_has_to_tick_next() {
    let model = LinkModel { latency_ns: 5 * MICROS, ..LinkModel::default() };
    let mut cluster = Cluster::new(&ClusterConfig { model, ..ClusterConfig::default() });
    assert_eq!(cluster.engine(0).next_deadline(), Some(0), "addresses are to be inserted");
    cluster.run_for(10 * MICROS, MICROS).unwrap();
    assert_eq!(cluster.engine(0).next_deadline(), None);

    cluster.send(0, 1, 8, false).unwrap();
    let now = cluster.net().now();
    let timer = cluster.engine(0).next_deadline().expect("a segment is unacked");
    assert!(timer > now + 100 * MICROS, "{timer} at {now}");
    cluster.net().advance(5 * MICROS);
    assert!(cluster.tick(1).unwrap());
    let now = cluster.net().now();
    let ack = cluster.engine(1).next_deadline().expect("an ack is delayed");
    assert!((now + 10 * MICROS..now + 25 * MICROS).contains(&ack), "{ack} at {now}");
    cluster.net().advance_to(ack - 1);
    assert!(!cluster.tick(1).unwrap(), "too early");
    cluster.net().advance_to(ack);
    assert!(cluster.tick(1).unwrap(), "the ack is due");

    cluster.run_for(50 * MILLIS, MILLIS).unwrap();
    assert_eq!([0, 1].map(|at| cluster.engine(at).next_deadline()), [None; 2]);
}

/// Small messages wait behind a large one with their slots taken: one is left for the large one.
#[test]
fn small_messages_never_take_the_slot_that_they_wait_for() {
    let port = SimPortConfig { async_insert: true, ..SimPortConfig::default() };
    for nodes in [2, 3, 5] {
        for active_peers_max in [1, 8] {
            let tweak: fn(&mut tickwire::Config) = if active_peers_max == 1 {
                |c| (c.send_slots, c.active_peers_max) = (8, 1)
            } else {
                |c| c.send_slots = 8
            };
            let config = ClusterConfig { nodes, port: port.clone(), tweak, ..Default::default() };
            let mut cluster = Cluster::new(&config);
            // Nobody's address is in yet: all of it waits.
            for to in 1..nodes as usize {
                cluster.send(0, to, 10_000, false).unwrap();
                for _ in 0..9 {
                    let _ = cluster.send(0, to, 80, false);
                }
            }
            cluster.drain(200 * MILLIS, 10 * MICROS).unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
}

/// A ring is not taken for a large message that gets no slot: those who have the slots wait for it.
#[test]
fn a_large_message_without_a_slot_takes_no_ring() {
    let port = SimPortConfig { async_insert: true, insert_depth: 2, ..SimPortConfig::default() };
    let tweak: fn(&mut tickwire::Config) = |c| (c.send_slots, c.active_peers_max) = (4, 1);
    let config = ClusterConfig { nodes: 6, port, tweak, ..ClusterConfig::default() };
    for ready in 1..6 {
        let mut cluster = Cluster::new(&config);
        let to_ready = cluster.engine(0).peer(Rank(ready)).unwrap();
        while !cluster.engine(0).is_ready(to_ready) {
            cluster.tick(0).unwrap();
        }
        for to in (1..6).filter(|&to| to != ready as usize) {
            while cluster.send(0, to, 8, false).is_ok() {}
        }
        cluster.send(0, ready as usize, 10_000, false).unwrap();
        cluster.drain(200 * MILLIS, 10 * MICROS).unwrap_or_else(|failure| panic!("{failure}"));
    }
}
