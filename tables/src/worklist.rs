//! Rows with something to do, each once, in the order they came.

use crate::Row;
use alloc::boxed::Box;

/// The row has an entry in the queue, alive or dead.
const QUEUED: u64 = 1;
/// The row is listed; it then has an entry.
const LISTED: u64 = 2;

/// A first-in first-out queue of rows, each in it at most once.
///
/// Removing a row leaves its entry behind, dead, to be skipped when its turn comes. A row listed
/// again before that gets its old entry, and place, back. So a row never has two entries, and a
/// queue with room for every row cannot overflow.
#[derive(Clone, Debug)]
pub struct WorkList<R> {
    /// A ring of entries with a place for every row.
    queue: Box<[R]>,
    /// Two bits a row.
    state: Box<[u64]>,
    /// Where the first entry is.
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
            queue: alloc::vec![R::from_index(0); capacity].into(),
            state: alloc::vec![0; capacity.div_ceil(32)].into(),
            head: 0,
            entries: 0,
            listed: 0,
        }
    }

    #[inline]
    fn state(&self, row: R) -> u64 {
        debug_assert!(row.index() < self.queue.len(), "{row:?} of {}", self.queue.len());
        self.state[row.index() / 32] >> (row.index() % 32 * 2) & (QUEUED | LISTED)
    }

    #[inline]
    fn set_state(&mut self, row: R, state: u64) {
        let (word, shift) = (&mut self.state[row.index() / 32], row.index() % 32 * 2);
        *word = *word & !((QUEUED | LISTED) << shift) | state << shift;
    }

    /// Drops the first entry.
    #[inline]
    fn advance(&mut self) {
        self.head += 1;
        if self.head as usize == self.queue.len() {
            self.head = 0;
        }
        self.entries -= 1;
    }

    /// Lists `row`; whether it was not listed before. It goes to the tail, unless it was removed
    /// and its dead entry is still queued: then it has its old place again.
    #[inline]
    pub fn push(&mut self, row: R) -> bool {
        let before = self.state(row);
        if before & LISTED != 0 {
            return false;
        }
        self.set_state(row, QUEUED | LISTED);
        self.listed += 1;
        if before & QUEUED == 0 {
            let place = (self.head + self.entries) as usize;
            let len = self.queue.len();
            self.queue[if place < len { place } else { place - len }] = row;
            self.entries += 1;
        }
        true
    }

    /// Takes the first row.
    #[inline]
    pub fn pop(&mut self) -> Option<R> {
        let row = self.front()?;
        self.set_state(row, 0);
        self.advance();
        self.listed -= 1;
        Some(row)
    }

    /// Takes `row` off the list, wherever it is; whether it was listed.
    #[inline]
    pub fn remove(&mut self, row: R) -> bool {
        let state = self.state(row);
        let was_listed = state & LISTED != 0;
        self.set_state(row, state & !LISTED);
        self.listed -= u32::from(was_listed);
        was_listed
    }

    /// Memory taken, in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.queue) + size_of_val(&*self.state)
    }

    /// Whether `row` is listed.
    #[inline]
    pub fn contains(&self, row: R) -> bool {
        self.state(row) & LISTED != 0
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
            let row = self.queue[self.head as usize];
            if self.state(row) & LISTED != 0 {
                return Some(row);
            }
            self.set_state(row, 0);
            self.advance();
        }
        None
    }
}
