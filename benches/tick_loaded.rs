//! Messages per second through two engines on `sim` without delays: send + receive + ack, one core.

// The macros of criterion make undocumented functions.
#![allow(missing_docs)]

mod common;

use common::pair;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tickwire::{Context, Event, Tag};

const MESSAGES: u64 = 4096;

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("tick_loaded");
    for len in [8usize, 1024] {
        let (net, mut a, mut b, to_b) = pair();
        group.throughput(Throughput::Elements(MESSAGES));
        group.bench_function(format!("{len}B"), |bencher| {
            bencher.iter(|| {
                let (mut sent, mut got) = (0, 0);
                while got < MESSAGES {
                    for _ in 0..64.min(MESSAGES - sent) {
                        let Ok(mut message) = a.alloc(to_b, len) else { break };
                        message[0] = 1;
                        sent += u64::from(message.send(Tag(1)).is_ok());
                    }
                    a.tick(&mut |_: &mut Context<_>, _: Event<'_>| {});
                    b.tick(&mut |_: &mut Context<_>, event: Event<'_>| {
                        if let Event::Received(message) = event {
                            assert_eq!(message.bytes().len(), len);
                            got += 1;
                        }
                    });
                    net.advance(1000);
                }
            });
        });
        assert_eq!(a.counters().segments_resent, 0);
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
