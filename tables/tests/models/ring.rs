//! A pool of rings against a map from slots to values for each ring taken.

use super::Raw;
use std::collections::BTreeMap;
use tickwire_tables::{RingId, RingPool};

const RINGS: usize = 3;

#[derive(Clone, Copy, Debug)]
pub enum Op {
    Take,
    /// Empties one of the rings taken and gives it back.
    Give(usize),
    Set(usize, u32, u16),
    Clear(usize, u32),
    /// Compares the occupancy of so many sequence numbers from the first one on.
    Bitmap(usize, u32, u32),
}

impl From<Raw> for Op {
    fn from(raw: Raw) -> Self {
        let (ring, value) = (raw.row as usize, raw.value as u16);
        let seq = (raw.value >> 16) as u32;
        match raw.kind % 12 {
            0 => Op::Take,
            1 => Op::Give(ring),
            2..=7 => Op::Set(ring, seq, value),
            8 | 9 => Op::Clear(ring, seq),
            _ => Op::Bitmap(ring, seq, u32::from(value)),
        }
    }
}

pub fn run(len: usize, ops: &[Op]) {
    let mut pool = RingPool::<u16>::new(RINGS, len);
    let mut taken: Vec<(RingId, BTreeMap<u32, u16>)> = Vec::new();
    let slot = |seq: u32| seq % len as u32;

    for &op in ops {
        match op {
            Op::Take => {
                let id = pool.take();
                assert_eq!(id.is_some(), taken.len() < RINGS);
                if let Some(id) = id {
                    assert!(taken.iter().all(|&(other, _)| other != id));
                    taken.push((id, BTreeMap::new()));
                }
            }
            _ if taken.is_empty() => {}
            Op::Give(ring) => {
                let (id, slots) = taken.swap_remove(ring % taken.len());
                for (seq, value) in slots {
                    assert_eq!(pool.clear(id, seq), Some(value));
                }
                pool.give(id);
                assert_eq!(pool.occupied(id), 0);
            }
            Op::Set(ring, seq, value) => {
                let ring = ring % taken.len();
                let (id, slots) = &mut taken[ring];
                assert_eq!(pool.get(*id, seq), slots.get(&slot(seq)).copied());
                slots.entry(slot(seq)).or_insert_with(|| {
                    pool.set(*id, seq, value);
                    value
                });
                assert_eq!(pool.get(*id, seq), slots.get(&slot(seq)).copied());
            }
            Op::Clear(ring, seq) => {
                let ring = ring % taken.len();
                let (id, slots) = &mut taken[ring];
                assert_eq!(pool.clear(*id, seq), slots.remove(&slot(seq)));
                assert_eq!(pool.get(*id, seq), None);
            }
            Op::Bitmap(ring, first, bits) => {
                let (id, slots) = &taken[ring % taken.len()];
                check_bitmap(&pool, *id, slots, first, bits % (len as u32 + 1));
            }
        }
        for (id, slots) in &taken {
            assert_eq!(pool.occupied(*id) as usize, slots.len());
            assert!(slots.iter().all(|(&seq, &value)| pool.get(*id, seq) == Some(value)));
        }
        assert_eq!((pool.len(), pool.rings()), (len, RINGS));
        assert_eq!(pool.free(), RINGS - taken.len());
    }
}

fn check_bitmap(
    pool: &RingPool<u16>,
    id: RingId,
    slots: &BTreeMap<u32, u16>,
    first: u32,
    bits: u32,
) {
    const UNTOUCHED: u64 = 0x5555_aaaa_5555_aaaa;
    let words = bits.div_ceil(64) as usize;
    let mut out = vec![UNTOUCHED; words + 1];
    pool.bitmap(id, first, bits, &mut out);
    let mut expected = vec![0; words];
    for k in 0..bits {
        if slots.contains_key(&(first.wrapping_add(k) % pool.len() as u32)) {
            expected[k as usize / 64] |= 1u64 << (k % 64);
        }
    }
    expected.push(UNTOUCHED);
    assert_eq!(out, expected, "{bits} bits from {first} on");
}
