//! Simulation, by hand: the plain cases first.

use tickwire::ports::sim::LinkModel;
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
