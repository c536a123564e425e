//! Rings indexed by sequence number, lent from a pool while a window is open.

use crate::Row;
use alloc::boxed::Box;
use alloc::vec::Vec;

crate::table_ids! { @row
    /// The number of a ring of a [`RingPool`].
    pub struct RingId("ring");
}

/// What `occupied` holds for a ring nobody has taken.
const FREE: u32 = u32::MAX;

/// A pool of equal rings. The slot of a sequence number is its remainder by the length, so two
/// numbers may be in a ring at once as long as they are less than the length apart. Which slots
/// are occupied is kept as one bit each, so that a stretch of it can be copied by the word.
#[derive(Clone, Debug)]
pub struct RingPool<T> {
    slots: Box<[T]>,
    words: Box<[u64]>,
    occupied: Box<[u32]>,
    /// The rings not taken; the last one is taken first. Never longer than at the start.
    free: Vec<RingId>,
    len: usize,
}

impl<T: Copy + Default> RingPool<T> {
    /// A pool of `rings` rings of `len` slots. Panics unless `len` is a power of two and at
    /// least 64.
    pub fn new(rings: usize, len: usize) -> Self {
        assert!(len.is_power_of_two() && len >= 64, "{len} slots: not a power of two from 64 on");
        assert!(len <= 1 << 31, "{len} slots: sequence numbers could not be told apart");
        Self {
            slots: alloc::vec![T::default(); rings * len].into(),
            words: alloc::vec![0; rings * (len / 64)].into(),
            occupied: alloc::vec![FREE; rings].into(),
            free: (0..rings).rev().map(RingId::from_index).collect(),
            len,
        }
    }

    /// Takes a ring, all slots vacant, or `None` when all are taken.
    #[inline]
    pub fn take(&mut self) -> Option<RingId> {
        let id = self.free.pop()?;
        self.occupied[id.index()] = 0;
        Some(id)
    }

    /// Gives `id` back. Panics when it is not taken. Its slots should all be vacant (checked in
    /// debug builds); those that are not are made so.
    #[inline]
    pub fn give(&mut self, id: RingId) {
        let occupied = core::mem::replace(&mut self.occupied[id.index()], FREE);
        assert!(occupied != FREE, "{id} is given back twice");
        debug_assert!(occupied == 0, "{id} is given back with {occupied} slots occupied");
        if occupied != 0 {
            let words = self.len / 64;
            self.words[id.index() * words..][..words].fill(0);
        }
        self.free.push(id);
    }

    #[inline]
    fn slot(&self, id: RingId, seq: u32) -> usize {
        id.index() * self.len + (seq as usize & (self.len - 1))
    }

    /// What is at `seq`.
    #[inline]
    pub fn get(&self, id: RingId, seq: u32) -> Option<T> {
        let slot = self.slot(id, seq);
        (self.words[slot / 64] >> (slot % 64) & 1 != 0).then(|| self.slots[slot])
    }

    /// Puts `value` at `seq`, whose slot must be vacant.
    #[inline]
    pub fn set(&mut self, id: RingId, seq: u32, value: T) {
        debug_assert!(self.occupied[id.index()] != FREE, "{id} is not taken");
        let slot = self.slot(id, seq);
        let bit = 1 << (slot % 64);
        let word = &mut self.words[slot / 64];
        debug_assert!(*word & bit == 0, "{id} has something at {seq} already");
        self.occupied[id.index()] += u32::from(*word & bit == 0);
        *word |= bit;
        self.slots[slot] = value;
    }

    /// Takes out what is at `seq`.
    #[inline]
    pub fn clear(&mut self, id: RingId, seq: u32) -> Option<T> {
        let slot = self.slot(id, seq);
        let bit = 1 << (slot % 64);
        let word = &mut self.words[slot / 64];
        if *word & bit == 0 {
            return None;
        }
        *word &= !bit;
        self.occupied[id.index()] -= 1;
        Some(self.slots[slot])
    }

    /// How many slots of `id` are occupied; 0 for a ring that is not taken.
    #[inline]
    pub fn occupied(&self, id: RingId) -> u32 {
        match self.occupied[id.index()] {
            FREE => 0,
            occupied => occupied,
        }
    }

    /// Writes which of the `bits` sequence numbers from `first_seq` on are occupied: number
    /// `first_seq + k` in bit `k % 64`, counted from the lowest, of `out[k / 64]`. The bits of
    /// the last word past `bits` are 0; words after it are left alone. Panics when `bits`
    /// exceeds the length of a ring or `out` is too short.
    #[inline]
    pub fn bitmap(&self, id: RingId, first_seq: u32, bits: u32, out: &mut [u64]) {
        assert!(bits as usize <= self.len, "{bits} bits of a ring of {}", self.len);
        let ring_words = self.len / 64;
        let ring = &self.words[id.index() * ring_words..][..ring_words];
        let start = first_seq as usize & (self.len - 1);
        let (mut at, shift) = (start / 64, start % 64);
        for word in &mut out[..bits.div_ceil(64) as usize] {
            let next = (at + 1) & (ring_words - 1);
            // Shifted in two steps, as a shift by all 64 bits is not defined.
            *word = ring[at] >> shift | ring[next] << 1 << (63 - shift);
            at = next;
        }
        if !bits.is_multiple_of(64) {
            out[bits as usize / 64] &= (1 << (bits % 64)) - 1;
        }
    }

    /// Slots of a ring.
    // A ring has 64 slots or more, so there is nothing for `is_empty` to say.
    #[allow(clippy::len_without_is_empty)]
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// How many rings there are in all.
    #[inline]
    pub fn rings(&self) -> usize {
        self.occupied.len()
    }

    /// How many rings are not taken.
    #[inline]
    pub fn free(&self) -> usize {
        self.free.len()
    }
}
