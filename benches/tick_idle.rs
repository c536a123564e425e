//! One tick of an idle engine with 10, 1 000 and 100 000 ready peers.

// The macros of criterion make undocumented functions.
#![allow(missing_docs)]

use criterion::{Criterion, criterion_group, criterion_main};
use tickwire::ports::sim::{LinkModel, SimNet, SimPort, SimPortConfig};
use tickwire::{Config, Context, Engine, Event, Incarnation, JobKey, Rank};

fn engine_with(peers: u32) -> Engine<SimPort> {
    let net = SimNet::new(1, LinkModel::default());
    let open = |rank, peers_max| {
        let mut config = Config::new(Rank(rank), JobKey(1));
        config.peers_max = peers_max;
        config.ranks_max = peers_max + 1;
        Engine::new(config, net.port(SimPortConfig::default())).unwrap()
    };
    let mut engine = open(0, peers);
    let mut address = open(1, 2).local_address();
    for rank in 1..=peers {
        address.rank = Rank(rank);
        address.incarnation = Incarnation(rank);
        engine.add_peer(&address).unwrap();
    }
    let mut ready = 0;
    while ready < peers {
        engine.tick(&mut |_: &mut Context<_>, event: Event<'_>| {
            ready += u32::from(matches!(event, Event::PeerReady { .. }));
        });
    }
    engine
}

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("tick_idle");
    for peers in [10, 1_000, 100_000] {
        let mut engine = engine_with(peers);
        group.bench_function(format!("{peers}_peers"), |bencher| {
            bencher.iter(|| engine.tick(&mut |_: &mut Context<_>, _: Event<'_>| {}));
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
