//! The tables' hot operations.

// The macros of criterion make undocumented functions.
#![allow(missing_docs)]

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use tickwire_tables::handle::Row;
use tickwire_tables::list::{Links, List};
use tickwire_tables::ring::RingPool;
use tickwire_tables::slab::Slab;
use tickwire_tables::wheel::TimerWheel;
use tickwire_tables::worklist::WorkList;

tickwire_tables::table_ids! {
    /// A row of the bench.
    pub struct BenchRow;
    /// Its handle.
    pub struct BenchHandle("bench", index_bits = 20);
}

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("tables");
    let row = BenchRow::from_index(7);
    let mut slab = Slab::<BenchHandle>::new(1024);
    group.bench_function("slab_insert_get_remove", |b| {
        b.iter(|| {
            let row = slab.insert().unwrap();
            assert!(slab.get(slab.handle(row)).is_some());
            slab.remove(row);
        });
    });
    let (mut links, mut list) = (Links::<BenchRow>::new(1024), List::default());
    group.bench_function("list_push_remove", |b| {
        b.iter(|| {
            links.push_back(&mut list, black_box(row));
            links.remove(&mut list, row);
        });
    });
    let mut work = WorkList::<BenchRow>::new(1024);
    group.bench_function("worklist_push_pop", |b| {
        b.iter(|| {
            work.push(black_box(row));
            work.pop()
        });
    });
    let mut rings = RingPool::<u32>::new(4, 256);
    let ring = rings.take().unwrap();
    let mut seq = 0u32;
    group.bench_function("ring_set_clear", |b| {
        b.iter(|| {
            rings.set(ring, seq, 1);
            seq = seq.wrapping_add(1);
            rings.clear(ring, seq.wrapping_sub(1))
        });
    });
    let mut wheel = TimerWheel::<BenchRow>::new(1024, 1 << 14, 0);
    let mut now = 0;
    group.bench_function("wheel_arm_advance", |b| {
        b.iter(|| {
            wheel.arm(row, now + 400_000);
            now += 1000;
            wheel.advance(now, 64, &mut |_| {});
        });
    });
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
