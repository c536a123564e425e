//! Which rows of a table are in use, and the generation of each.

use crate::{Handle, Row};
use alloc::boxed::Box;
use core::marker::PhantomData;

/// Hands out the rows of a table and takes them back. Holds no payload: that lives in columns.
///
/// One word a row is enough. A live row holds its own handle, so that checking a handle is one
/// comparison. A free row holds its next generation and, in place of its own index, the index of
/// the next free row, which is never its own: so no handle can match a free row.
#[derive(Clone, Debug)]
pub struct Slab<H: Handle> {
    words: Box<[u32]>,
    /// Head of the free list; means nothing when `free` is 0.
    head: u32,
    free: u32,
    _handle: PhantomData<fn(H)>,
}

impl<H: Handle> Slab<H> {
    const INDEX_MASK: u32 = (1 << H::INDEX_BITS) - 1;
    const ONE_GENERATION: u32 = 1 << H::INDEX_BITS;

    /// A slab of `capacity` free rows, all in generation 1. Panics when the handle type has too
    /// few index bits for so many.
    pub fn new(capacity: usize) -> Self {
        assert!(
            capacity <= 1 << H::INDEX_BITS,
            "{capacity} rows do not fit in {} index bits",
            H::INDEX_BITS
        );
        let mut words: Box<[u32]> =
            (0..capacity as u32).map(|index| Self::ONE_GENERATION | (index + 1)).collect();
        if let Some(last) = words.last_mut() {
            *last = Self::ONE_GENERATION | Self::not(capacity as u32 - 1);
        }
        Self { words, head: 0, free: capacity as u32, _handle: PhantomData }
    }

    /// Some index that is not `index` and fits: ends the free list, and is never followed.
    #[inline]
    fn not(index: u32) -> u32 {
        index ^ 1
    }

    /// Memory taken, in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// Takes the row freed last, or `None` when all are in use.
    #[inline]
    pub fn insert(&mut self) -> Option<H::Row> {
        if self.free == 0 {
            return None;
        }
        let index = self.head;
        let word = &mut self.words[index as usize];
        self.head = *word & Self::INDEX_MASK;
        *word = *word & !Self::INDEX_MASK | index;
        self.free -= 1;
        Some(H::Row::from_index(index as usize))
    }

    /// Frees `row`; its handles are refused from now on (until its generations have all been
    /// used and the first comes again). Panics when the row is free already.
    #[inline]
    pub fn remove(&mut self, row: H::Row) {
        assert!(self.is_live(row), "{row:?} is free already");
        let index = row.index() as u32;
        let next = if self.free == 0 { Self::not(index) } else { self.head };
        let word = &mut self.words[row.index()];
        let mut generation = (*word & !Self::INDEX_MASK).wrapping_add(Self::ONE_GENERATION);
        if generation == 0 {
            // Generation 0 is left out: it would make a handle of all zero bits.
            generation = Self::ONE_GENERATION;
        }
        *word = generation | next;
        self.head = index;
        self.free += 1;
    }

    /// The handle of a live row. Panics when the row is free.
    #[inline]
    pub fn handle(&self, row: H::Row) -> H {
        assert!(self.is_live(row), "{row:?} is free");
        H::from_bits(self.words[row.index()]).expect("the generation of a row is never 0")
    }

    /// The row `handle` names, or `None` when it is not live in that generation or out of range.
    #[inline]
    pub fn get(&self, handle: H) -> Option<H::Row> {
        let row = handle.row();
        (self.words.get(row.index()) == Some(&handle.to_bits())).then_some(row)
    }

    /// Whether `row` is in use.
    #[inline]
    pub fn is_live(&self, row: H::Row) -> bool {
        self.words[row.index()] & Self::INDEX_MASK == row.index() as u32
    }

    /// How many rows are in use.
    #[inline]
    pub fn len(&self) -> usize {
        self.words.len() - self.free as usize
    }

    /// Whether no row is in use.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many rows there are in all.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.words.len()
    }

    /// How many rows are free.
    #[inline]
    pub fn free_len(&self) -> usize {
        self.free as usize
    }

    /// The rows in use, in row order. Costs O(capacity): for tests and statistics.
    pub fn iter(&self) -> impl Iterator<Item = H::Row> {
        (0..self.words.len()).map(H::Row::from_index).filter(|&row| self.is_live(row))
    }
}
