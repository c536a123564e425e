//! Three linked lists over the same rows against three double-ended queues.

use super::Raw;
use std::collections::VecDeque;
use tickwire_tables::{Links, List, Row};

tickwire_tables::table_ids! {
    pub struct ListRow;
    pub struct ListHandle("list", index_bits = 8);
}

const ROWS: usize = 16;

#[derive(Clone, Copy, Debug)]
pub enum Op {
    PushBack(usize, usize),
    PushFront(usize, usize),
    PopFront(usize),
    Remove(usize),
}

impl From<Raw> for Op {
    fn from(raw: Raw) -> Self {
        let (list, row) = (raw.value as usize % 3, raw.row as usize % ROWS);
        match raw.kind % 6 {
            0 | 1 => Op::PushBack(list, row),
            2 | 3 => Op::PushFront(list, row),
            4 => Op::PopFront(list),
            _ => Op::Remove(row),
        }
    }
}

pub fn run(ops: &[Op]) {
    let mut links = Links::<ListRow>::new(ROWS);
    let mut lists: [List<ListRow>; 3] = Default::default();
    let mut model: [VecDeque<ListRow>; 3] = Default::default();

    for &op in ops {
        match op {
            Op::PushBack(to, row) | Op::PushFront(to, row) => {
                let row = ListRow::from_index(row);
                if links.is_linked(row) {
                    continue;
                }
                if matches!(op, Op::PushBack(..)) {
                    links.push_back(&mut lists[to], row);
                    model[to].push_back(row);
                } else {
                    links.push_front(&mut lists[to], row);
                    model[to].push_front(row);
                }
            }
            Op::PopFront(from) => {
                assert_eq!(links.pop_front(&mut lists[from]), model[from].pop_front());
            }
            Op::Remove(row) => {
                let row = ListRow::from_index(row);
                if let Some(from) = model.iter().position(|rows| rows.contains(&row)) {
                    links.remove(&mut lists[from], row);
                    model[from].retain(|&other| other != row);
                }
            }
        }
        check(&links, &lists, &model);
    }
}

fn check(links: &Links<ListRow>, lists: &[List<ListRow>], model: &[VecDeque<ListRow>]) {
    for (list, rows) in lists.iter().zip(model) {
        assert!(links.iter(list).eq(rows.iter().copied()));
        let backwards = std::iter::successors(list.back(), |&row| links.prev(row));
        assert!(backwards.eq(rows.iter().rev().copied()));
        assert_eq!(list.front(), rows.front().copied());
        assert_eq!(list.back(), rows.back().copied());
        assert_eq!(list.len(), rows.len());
        assert_eq!(list.is_empty(), rows.is_empty());
    }
    for row in (0..ROWS).map(ListRow::from_index) {
        let linked = model.iter().any(|rows| rows.contains(&row));
        assert_eq!(links.is_linked(row), linked);
        assert!(linked || (links.next(row).is_none() && links.prev(row).is_none()));
    }
}
