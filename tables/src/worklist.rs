//! Rows with something to do, each once, in the order they came.

use crate::Row;
use alloc::boxed::Box;

/// The row has an entry in the queue, alive or dead.
const QUEUED: u8 = 1;
/// The row is listed; it then has an entry.
const LISTED: u8 = 2;

/// A first-in first-out queue of rows, each in it at most once.
///
/// Removing a row leaves its entry behind, dead, to be skipped when its turn comes. A row listed
/// again before that gets its old entry, and place, back. So a row never has two entries, and a
/// queue with room for every row cannot overflow.
#[derive(Clone, Debug)]
pub struct WorkList<R> {
    /// A ring of entries; its length is a power of two.
    queue: Box<[R]>,
    state: Box<[u8]>,
    /// Entries ever taken from the queue; the first one left is at this, by the ring's length.
    head: u32,
    /// Entries in the queue, dead ones too.
    entries: u32,
    listed: u32,
}

impl<R: Row> WorkList<R> {
    /// An empty list for the rows below `capacity`.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity <= 1 << 31, "{capacity} rows do not fit in the queue");
        Self {
            queue: alloc::vec![R::from_index(0); capacity.next_power_of_two()].into(),
            state: alloc::vec![0; capacity].into(),
            head: 0,
            entries: 0,
            listed: 0,
        }
    }

    #[inline]
    fn slot(&self, entry: u32) -> usize {
        entry as usize & (self.queue.len() - 1)
    }

    /// Lists `row`; whether it was not listed before. It goes to the tail, unless it was removed
    /// and its dead entry is still queued: then it has its old place again.
    #[inline]
    pub fn push(&mut self, row: R) -> bool {
        let state = &mut self.state[row.index()];
        let before = core::mem::replace(state, QUEUED | LISTED);
        if before & LISTED != 0 {
            return false;
        }
        self.listed += 1;
        if before & QUEUED == 0 {
            let slot = self.slot(self.head.wrapping_add(self.entries));
            self.queue[slot] = row;
            self.entries += 1;
        }
        true
    }

    /// Takes the first row.
    #[inline]
    pub fn pop(&mut self) -> Option<R> {
        let row = self.front()?;
        self.state[row.index()] = 0;
        self.head = self.head.wrapping_add(1);
        self.entries -= 1;
        self.listed -= 1;
        Some(row)
    }

    /// Takes `row` off the list, wherever it is; whether it was listed.
    #[inline]
    pub fn remove(&mut self, row: R) -> bool {
        let state = &mut self.state[row.index()];
        let was_listed = *state & LISTED != 0;
        *state &= !LISTED;
        self.listed -= u32::from(was_listed);
        was_listed
    }

    /// Whether `row` is listed.
    #[inline]
    pub fn contains(&self, row: R) -> bool {
        self.state[row.index()] & LISTED != 0
    }

    /// How many rows are listed.
    #[inline]
    pub fn len(&self) -> usize {
        self.listed as usize
    }

    /// Whether no row is listed.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.listed == 0
    }

    /// The first row, left where it is. Drops the dead entries before it.
    #[inline]
    pub fn front(&mut self) -> Option<R> {
        while self.entries > 0 {
            let row = self.queue[self.slot(self.head)];
            let state = &mut self.state[row.index()];
            if *state & LISTED != 0 {
                return Some(row);
            }
            *state = 0;
            self.head = self.head.wrapping_add(1);
            self.entries -= 1;
        }
        None
    }
}
