//! Slabs against a vector of generations and a stack of free rows.

use super::Raw;
use tickwire_tables::{Handle, Row, Slab};

#[derive(Clone, Copy, Debug)]
pub enum Op {
    Insert,
    /// Removes one of the live rows.
    Remove(usize),
    /// Looks up one of all the handles ever seen.
    Get(usize),
    /// Looks up a handle from outside, of any 32 bits.
    Forge(u32),
}

impl From<Raw> for Op {
    fn from(raw: Raw) -> Self {
        match raw.kind % 5 {
            0 | 1 => Op::Insert,
            2 => Op::Remove(raw.value as usize),
            3 => Op::Get(raw.value as usize),
            _ => Op::Forge(raw.value as u32),
        }
    }
}

pub fn run<H: Handle>(capacity: usize, ops: &[Op]) {
    let mut slab = Slab::<H>::new(capacity);
    let mut generations = vec![1u32; capacity];
    let mut live: Vec<H::Row> = Vec::new();
    let mut free: Vec<usize> = (0..capacity).rev().collect();
    let mut seen: Vec<H> = Vec::new();
    let last_generation = u32::MAX >> H::INDEX_BITS;

    for &op in ops {
        let asked = match op {
            Op::Insert => {
                let row = slab.insert();
                assert_eq!(row.map(Row::index), free.pop());
                if let Some(row) = row {
                    live.push(row);
                    let handle = slab.handle(row);
                    assert_eq!(handle, H::new(row, generations[row.index()]));
                    assert_eq!(H::from_bits(handle.to_bits()), Some(handle));
                    seen.push(handle);
                }
                None
            }
            Op::Remove(which) if !live.is_empty() => {
                let row = live.swap_remove(which % live.len());
                slab.remove(row);
                free.push(row.index());
                let generation = &mut generations[row.index()];
                *generation = if *generation == last_generation { 1 } else { *generation + 1 };
                None
            }
            Op::Get(which) if !seen.is_empty() => Some(seen[which % seen.len()]),
            Op::Remove(_) | Op::Get(_) => None,
            Op::Forge(bits) => H::from_bits(bits),
        };
        if let Some(handle) = asked {
            let row = handle.row();
            let valid = live.contains(&row) && generations[row.index()] == handle.generation();
            assert_eq!(slab.get(handle), valid.then_some(row), "{handle:?}");
        }

        let mut expected = live.clone();
        expected.sort_by_key(|row| row.index());
        assert_eq!(slab.iter().collect::<Vec<_>>(), expected);
        assert_eq!(slab.len(), live.len());
        assert_eq!(slab.is_empty(), live.is_empty());
        assert_eq!(slab.free_len(), free.len());
        assert_eq!(slab.capacity(), capacity);
        assert!(free.iter().all(|&index| !slab.is_live(H::Row::from_index(index))));
    }
}
