//! Doubly linked lists of rows, linked by index.

use crate::Row;
use alloc::boxed::Box;

/// The two neighbours of a row. A row in no list has itself for a neighbour, on both sides: that
/// tells it from the only row of a list, which has none.
#[derive(Clone, Copy, Debug)]
struct Link<R> {
    prev: Option<R>,
    next: Option<R>,
}

/// The links of any number of lists over the same rows. A row is in at most one list of a `Links`
/// at a time; a row that is to be in two lists at once needs two `Links`.
#[derive(Clone, Debug)]
pub struct Links<R> {
    links: Box<[Link<R>]>,
}

/// Both ends of a list and its length. Its links are in a [`Links`], the same one for all its
/// life. A clone is a copy of the ends: once one of the two changes, the other is void.
#[derive(Clone, Debug)]
pub struct List<R> {
    head: Option<R>,
    tail: Option<R>,
    len: u32,
}

impl<R> Default for List<R> {
    fn default() -> Self {
        Self { head: None, tail: None, len: 0 }
    }
}

impl<R: Row> List<R> {
    /// Whether the list has no rows.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many rows the list has.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// The first row.
    #[inline]
    pub fn front(&self) -> Option<R> {
        self.head
    }

    /// The last row.
    #[inline]
    pub fn back(&self) -> Option<R> {
        self.tail
    }
}

impl<R: Row> Links<R> {
    /// Links for `capacity` rows, none of them in a list.
    pub fn new(capacity: usize) -> Self {
        Self { links: (0..capacity).map(|index| Self::unlinked(R::from_index(index))).collect() }
    }

    #[inline]
    fn unlinked(row: R) -> Link<R> {
        Link { prev: Some(row), next: Some(row) }
    }

    /// Appends `row`, which must be in no list.
    #[inline]
    pub fn push_back(&mut self, list: &mut List<R>, row: R) {
        debug_assert!(!self.is_linked(row), "{row:?} is in a list already");
        self.links[row.index()] = Link { prev: list.tail, next: None };
        match list.tail {
            Some(tail) => self.links[tail.index()].next = Some(row),
            None => list.head = Some(row),
        }
        list.tail = Some(row);
        list.len += 1;
    }

    /// Puts `row`, which must be in no list, before all others.
    #[inline]
    pub fn push_front(&mut self, list: &mut List<R>, row: R) {
        debug_assert!(!self.is_linked(row), "{row:?} is in a list already");
        self.links[row.index()] = Link { prev: None, next: list.head };
        match list.head {
            Some(head) => self.links[head.index()].prev = Some(row),
            None => list.tail = Some(row),
        }
        list.head = Some(row);
        list.len += 1;
    }

    /// Takes the first row out.
    #[inline]
    pub fn pop_front(&mut self, list: &mut List<R>) -> Option<R> {
        let row = list.head?;
        self.remove(list, row);
        Some(row)
    }

    /// Takes `row` out of `list`. Panics when it is in no list; the caller must name the right
    /// one, which is checked in debug builds as far as it can be.
    #[inline]
    pub fn remove(&mut self, list: &mut List<R>, row: R) {
        let Link { prev, next } = self.links[row.index()];
        assert!(prev != Some(row), "{row:?} is in no list");
        debug_assert!(prev.is_some() || list.head == Some(row), "{row:?} is in another list");
        debug_assert!(next.is_some() || list.tail == Some(row), "{row:?} is in another list");
        match prev {
            Some(prev) => self.links[prev.index()].next = next,
            None => list.head = next,
        }
        match next {
            Some(next) => self.links[next.index()].prev = prev,
            None => list.tail = prev,
        }
        self.links[row.index()] = Self::unlinked(row);
        list.len -= 1;
    }

    /// The row after `row` in its list; `None` for the last row and for a row in no list.
    #[inline]
    pub fn next(&self, row: R) -> Option<R> {
        self.links[row.index()].next.filter(|&next| next != row)
    }

    /// The row before `row` in its list; `None` for the first row and for a row in no list.
    #[inline]
    pub fn prev(&self, row: R) -> Option<R> {
        self.links[row.index()].prev.filter(|&prev| prev != row)
    }

    /// The rows of `list` from front to back.
    #[inline]
    pub fn iter(&self, list: &List<R>) -> impl Iterator<Item = R> {
        core::iter::successors(list.head, |&row| self.next(row))
    }

    /// Whether `row` is in some list.
    #[inline]
    pub fn is_linked(&self, row: R) -> bool {
        self.links[row.index()].prev != Some(row)
    }
}
