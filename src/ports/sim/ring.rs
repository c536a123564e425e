//! The receives of one channel in the order of posting: filled ones in front, empty ones behind.

/// Length that marks a receive as failed.
pub(super) const TRUNCATED: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, Default)]
struct Posted {
    slot: u32,
    len_bytes: u32,
}

/// Grows with what is posted, and keeps its memory.
#[derive(Debug, Default)]
pub(super) struct RecvRing {
    /// Length: 0 or a power of two.
    posted: Vec<Posted>,
    /// Positions count up and wrap; `head..filled` are filled, `filled..tail` are empty.
    head: u32,
    filled: u32,
    tail: u32,
}

impl RecvRing {
    /// Receives posted and not yet popped, filled or not.
    pub(super) fn len(&self) -> usize {
        self.tail.wrapping_sub(self.head) as usize
    }

    /// Whether a filled receive waits.
    pub(super) fn has_filled(&self) -> bool {
        self.head != self.filled
    }

    #[inline]
    fn at(&self, position: u32) -> usize {
        position as usize & (self.posted.len() - 1)
    }

    /// Posts an empty receive.
    pub(super) fn push(&mut self, slot: u32) {
        if self.len() == self.posted.len() {
            self.grow();
        }
        let at = self.at(self.tail);
        self.posted[at] = Posted { slot, len_bytes: 0 };
        self.tail = self.tail.wrapping_add(1);
    }

    #[cold]
    fn grow(&mut self) {
        let old = self.posted.len();
        let len = (old * 2).max(8);
        let mut posted = vec![Posted::default(); len];
        for offset in 0..old as u32 {
            let position = self.head.wrapping_add(offset);
            posted[position as usize & (len - 1)] = self.posted[self.at(position)];
        }
        self.posted = posted;
    }

    /// The slot that the next datagram goes to.
    #[inline]
    pub(super) fn next_empty(&self) -> Option<u32> {
        (self.filled != self.tail).then(|| self.posted[self.at(self.filled)].slot)
    }

    /// Notes that the slot of [`Self::next_empty`] now holds `len_bytes` bytes.
    #[inline]
    pub(super) fn fill(&mut self, len_bytes: u32) {
        debug_assert!(self.filled != self.tail);
        let at = self.at(self.filled);
        self.posted[at].len_bytes = len_bytes;
        self.filled = self.filled.wrapping_add(1);
    }

    /// The oldest filled receive: slot and length.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(u32, u32)> {
        if self.head == self.filled {
            return None;
        }
        let Posted { slot, len_bytes } = self.posted[self.at(self.head)];
        self.head = self.head.wrapping_add(1);
        Some((slot, len_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn behaves_as_two_queues(ops in proptest::collection::vec(0u8..3, 0..400)) {
            // Positions start short of the wrap, so that it happens.
            let start = u32::MAX - 20;
            let mut ring = RecvRing { posted: Vec::new(), head: start, filled: start, tail: start };
            let (mut empty, mut filled) = (VecDeque::new(), VecDeque::new());
            for (i, op) in ops.into_iter().enumerate() {
                let i = i as u32;
                match op {
                    0 => { ring.push(i); empty.push_back(i); }
                    1 => {
                        prop_assert_eq!(ring.next_empty(), empty.front().copied());
                        if let Some(slot) = empty.pop_front() {
                            ring.fill(i);
                            filled.push_back((slot, i));
                        }
                    }
                    _ => prop_assert_eq!(ring.pop(), filled.pop_front()),
                }
                prop_assert_eq!(ring.len(), empty.len() + filled.len());
                prop_assert_eq!(ring.has_filled(), !filled.is_empty());
            }
        }
    }
}
