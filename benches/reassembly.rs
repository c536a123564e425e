//! Large messages between two engines on `sim`: chunking, reassembly, delivery.

// The macros of criterion make undocumented functions.
#![allow(missing_docs)]

mod common;

use common::pair;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tickwire::{Context, Event, Tag, Token};

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("reassembly");
    for len in [64usize << 10, 1 << 20] {
        let (net, mut a, mut b, to_b) = pair();
        let mut spare = Some(vec![7u8; len]);
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(format!("{len}B"), |bencher| {
            bencher.iter(|| {
                let buffer = spare.take().unwrap();
                a.send_from(to_b, Tag(1), buffer, Token(1)).unwrap();
                let mut got = false;
                while !got || spare.is_none() {
                    a.tick(&mut |_: &mut Context<_>, event: Event<'_>| {
                        if let Event::SendDone { buffer, .. } = event {
                            spare = buffer;
                        }
                    });
                    b.tick(&mut |_: &mut Context<_>, event: Event<'_>| {
                        if let Event::Received(message) = event {
                            assert_eq!(message.bytes().len(), len);
                            got = true;
                        }
                    });
                    net.advance(1000);
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
