//! One field of every row of a table.

use crate::Row;
use alloc::boxed::Box;
use core::marker::PhantomData;
use core::ops::{Index, IndexMut};

/// A field of type `T` for each row `R`, dense and of fixed length. Indexed by row; a row out of
/// range panics.
#[derive(Clone, Debug)]
pub struct Column<R, T> {
    values: Box<[T]>,
    _row: PhantomData<fn(R)>,
}

impl<R: Row, T> Column<R, T> {
    /// A column of `capacity` rows that all hold `init`.
    pub fn new(capacity: usize, init: T) -> Self
    where
        T: Clone,
    {
        Self { values: alloc::vec![init; capacity].into(), _row: PhantomData }
    }

    /// A column of `capacity` rows, each computed from its row.
    pub fn from_fn(capacity: usize, mut value: impl FnMut(R) -> T) -> Self {
        let values = (0..capacity).map(|index| value(R::from_index(index))).collect();
        Self { values, _row: PhantomData }
    }

    /// How many rows, live or not.
    #[inline]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether the column has no rows at all.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Every row and its value, in row order. Costs O(capacity): for tests and statistics.
    pub fn iter(&self) -> impl Iterator<Item = (R, &T)> {
        self.values.iter().enumerate().map(|(index, value)| (R::from_index(index), value))
    }

    /// Memory taken by the values, in bytes, without what they own elsewhere.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.values)
    }
}

impl<R: Row, T> Index<R> for Column<R, T> {
    type Output = T;

    #[inline]
    fn index(&self, row: R) -> &T {
        &self.values[row.index()]
    }
}

impl<R: Row, T> IndexMut<R> for Column<R, T> {
    #[inline]
    fn index_mut(&mut self, row: R) -> &mut T {
        &mut self.values[row.index()]
    }
}
