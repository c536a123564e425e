//! Sets of rows, one bit a row.

use crate::Row;
use alloc::boxed::Box;
use core::marker::PhantomData;

/// A set of rows below a fixed capacity.
#[derive(Clone, Debug)]
pub struct BitSet<R> {
    words: Box<[u64]>,
    capacity: usize,
    count: usize,
    _row: PhantomData<fn(R)>,
}

impl<R: Row> BitSet<R> {
    /// The empty set over the rows below `capacity`.
    pub fn new(capacity: usize) -> Self {
        let words = alloc::vec![0; capacity.div_ceil(64)].into();
        Self { words, capacity, count: 0, _row: PhantomData }
    }

    #[inline]
    fn place(&self, row: R) -> (usize, u64) {
        let index = row.index();
        assert!(index < self.capacity, "{row:?} in a set of {}", self.capacity);
        (index / 64, 1 << (index % 64))
    }

    /// Puts `row` in; whether it was not in before.
    #[inline]
    pub fn insert(&mut self, row: R) -> bool {
        let (at, bit) = self.place(row);
        let newly = self.words[at] & bit == 0;
        self.words[at] |= bit;
        self.count += usize::from(newly);
        newly
    }

    /// Takes `row` out; whether it was in before.
    #[inline]
    pub fn remove(&mut self, row: R) -> bool {
        let (at, bit) = self.place(row);
        let was_in = self.words[at] & bit != 0;
        self.words[at] &= !bit;
        self.count -= usize::from(was_in);
        was_in
    }

    /// Whether `row` is in.
    #[inline]
    pub fn contains(&self, row: R) -> bool {
        let (at, bit) = self.place(row);
        self.words[at] & bit != 0
    }

    /// How many rows are in. O(1).
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The rows in the set, in row order. Costs O(capacity / 64) and the rows.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = R> {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            core::iter::successors(Some(word), |&rest| Some(rest & rest.wrapping_sub(1)))
                .take_while(|&rest| rest != 0)
                .map(move |rest| R::from_index(at * 64 + rest.trailing_zeros() as usize))
        })
    }
}
