//! Work lists against a queue whose entries are marked when they die.

use super::Raw;
use std::collections::VecDeque;
use tickwire_tables::{Row, WorkList};

tickwire_tables::table_ids! {
    pub struct WorkRow;
    pub struct WorkHandle("work", index_bits = 8);
}

#[derive(Clone, Copy, Debug)]
pub enum Op {
    Push(usize),
    Pop,
    Remove(usize),
    Front,
}

impl From<Raw> for Op {
    fn from(raw: Raw) -> Self {
        match raw.kind % 8 {
            0..=2 => Op::Push(raw.row as usize),
            3 => Op::Pop,
            4..=6 => Op::Remove(raw.row as usize),
            _ => Op::Front,
        }
    }
}

/// Rows in the order of their entries, and whether the entry is alive.
#[derive(Default)]
struct Model(VecDeque<(WorkRow, bool)>);

impl Model {
    fn alive(&self, row: WorkRow) -> bool {
        self.0.contains(&(row, true))
    }

    fn front(&mut self) -> Option<WorkRow> {
        while self.0.front().is_some_and(|&(_, alive)| !alive) {
            self.0.pop_front();
        }
        self.0.front().map(|&(row, _)| row)
    }
}

pub fn run(capacity: usize, ops: &[Op]) {
    let mut list = WorkList::<WorkRow>::new(capacity);
    let mut model = Model::default();
    for &op in ops {
        match op {
            Op::Push(index) => {
                let row = WorkRow::from_index(index % capacity);
                assert_eq!(list.push(row), !model.alive(row));
                match model.0.iter_mut().find(|entry| entry.0 == row) {
                    Some(entry) => entry.1 = true,
                    None => model.0.push_back((row, true)),
                }
            }
            Op::Pop => {
                assert_eq!(list.pop(), model.front());
                model.0.pop_front();
            }
            Op::Remove(index) => {
                let row = WorkRow::from_index(index % capacity);
                assert_eq!(list.remove(row), model.alive(row));
                if let Some(entry) = model.0.iter_mut().find(|entry| entry.0 == row) {
                    entry.1 = false;
                }
            }
            Op::Front => assert_eq!(list.front(), model.front()),
        }
        let alive = model.0.iter().filter(|entry| entry.1).count();
        assert_eq!((list.len(), list.is_empty()), (alive, alive == 0));
        let mut rows = (0..capacity).map(WorkRow::from_index);
        assert!(rows.all(|row| list.contains(row) == model.alive(row)));
    }
}
