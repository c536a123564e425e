//! Bit sets against an ordered set.

use super::Raw;
use std::collections::BTreeSet;
use tickwire_tables::{BitSet, Row};

tickwire_tables::table_ids! {
    pub struct BitRow;
    pub struct BitHandle("bit", index_bits = 8);
}

#[derive(Clone, Copy, Debug)]
pub enum Op {
    Insert(usize),
    Remove(usize),
}

impl From<Raw> for Op {
    fn from(raw: Raw) -> Self {
        match raw.kind % 3 {
            0 | 1 => Op::Insert(raw.row as usize),
            _ => Op::Remove(raw.row as usize),
        }
    }
}

pub fn run(capacity: usize, ops: &[Op]) {
    let mut set = BitSet::<BitRow>::new(capacity);
    let mut model = BTreeSet::new();
    for &op in ops {
        match op {
            Op::Insert(index) => {
                let row = BitRow::from_index(index % capacity);
                assert_eq!(set.insert(row), model.insert(row));
            }
            Op::Remove(index) => {
                let row = BitRow::from_index(index % capacity);
                assert_eq!(set.remove(row), model.remove(&row));
            }
        }
        assert_eq!(set.count(), model.len());
        assert!(set.iter().eq(model.iter().copied()));
        let rows = (0..capacity).map(BitRow::from_index);
        assert!(rows.into_iter().all(|row| set.contains(row) == model.contains(&row)));
    }
}
