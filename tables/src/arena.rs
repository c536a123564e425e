//! The datagram arena: equal power-of-two slots in one anonymous, page-aligned mapping.
//!
//! A slot's number is its place. Huge pages are asked for where one fits. A slot is either *ours*
//! (its bytes may be read and written through the arena) or *lent* to a port, which accesses it by
//! raw pointer ([`DatagramArena::base`]). Clones share the mapping; the lent bits live in the owner
//! only.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use memmap2::{MmapMut, MmapOptions};

/// Of the kinds of huge pages that Linux gives by itself, the smallest.
#[cfg(target_os = "linux")]
const HUGE_PAGE_BYTES: usize = 2 << 20;

#[derive(Debug)]
struct Mapping {
    base: *mut u8,
    slot_bytes: usize,
    slots: usize,
    split: AtomicBool,
    _map: MmapMut,
}

// SAFETY: `base` points into `_map`, which lives as long as `Mapping`; the pointer is only
// dereferenced by the holder of a slot, who is unique (see `ArenaPart` and the port contract).
#[allow(unsafe_code)]
unsafe impl Send for Mapping {}
// SAFETY: as above; the mapping itself has no shared mutable state but the atomic.
#[allow(unsafe_code)]
unsafe impl Sync for Mapping {}

/// The whole mapping: what a port registers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct DatagramArena(Arc<Mapping>);

impl DatagramArena {
    /// Maps `slots` slots of `slot_bytes` bytes, a power of two. Memory: `slots * slot_bytes`,
    /// taken from the system page by page as it is touched. Fails when the system has no room for
    /// that many addresses; panics when `slots` is 0 or more than 2^32 - 1, or `slot_bytes` is no
    /// power of two.
    pub fn new(slots: usize, slot_bytes: usize) -> std::io::Result<Self> {
        assert!(slot_bytes.is_power_of_two() && slots > 0);
        assert!(slots <= u32::MAX as usize, "{slots} slots cannot be numbered in 32 bits");
        let len = slots.checked_mul(slot_bytes).ok_or(std::io::ErrorKind::OutOfMemory)?;
        let mut map = MmapOptions::new().len(len).map_anon()?;
        // A wish, not a need: without huge pages everything works, a little slower. Small mappings
        // have no room for one: the system would join thousands of them (engines of a simulation)
        // and fill huge pages across, used or not.
        #[cfg(target_os = "linux")]
        if len >= HUGE_PAGE_BYTES {
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        let base = map.as_mut_ptr();
        Ok(Self(Arc::new(Mapping {
            base,
            slot_bytes,
            slots,
            split: AtomicBool::new(false),
            _map: map,
        })))
    }

    /// First byte of slot 0; page-aligned.
    pub fn base(&self) -> *mut u8 {
        self.0.base
    }

    /// Length of the whole mapping in bytes.
    pub fn len_bytes(&self) -> usize {
        self.0.slots * self.0.slot_bytes
    }

    /// Bytes from one slot to the next.
    pub fn slot_bytes(&self) -> usize {
        self.0.slot_bytes
    }

    /// How many slots.
    pub fn slots(&self) -> usize {
        self.0.slots
    }

    /// First byte of `slot`. For ports, while the slot is lent to them.
    pub fn slot_ptr(&self, slot: u32) -> *mut u8 {
        assert!((slot as usize) < self.0.slots, "slot {slot} of {}", self.0.slots);
        self.0.base.wrapping_add(slot as usize * self.0.slot_bytes)
    }

    /// Splits the slots into `[0, at)` and `[at, slots)`, each with an owner of its own.
    /// Panics when called twice: two owners of one slot would break exclusive access.
    pub fn split(&self, at: u32) -> (ArenaPart, ArenaPart) {
        assert!(at as usize <= self.0.slots);
        assert!(!self.0.split.swap(true, Ordering::Relaxed), "an arena is split once");
        let slots = self.0.slots as u32;
        (ArenaPart::new(self.clone(), 0, at), ArenaPart::new(self.clone(), at, slots))
    }
}

/// The only owner of a range of slots.
#[derive(Debug)]
pub struct ArenaPart {
    arena: DatagramArena,
    first: u32,
    end: u32,
    lent: Box<[bool]>,
}

impl ArenaPart {
    fn new(arena: DatagramArena, first: u32, end: u32) -> Self {
        Self { arena, first, end, lent: alloc::vec![false; (end - first) as usize].into() }
    }

    /// Index of `slot` in `lent`; out of range, in every build, when the slot is not of this part.
    #[inline]
    fn place(&self, slot: u32) -> usize {
        slot.wrapping_sub(self.first) as usize
    }

    /// First slot of this part.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// One past the last slot of this part.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// Notes that `slot` now belongs to a port. Panics when it does already.
    #[inline]
    pub fn lend(&mut self, slot: u32) {
        let place = self.place(slot);
        let lent = &mut self.lent[place];
        assert!(!*lent, "slot {slot} is lent already");
        *lent = true;
    }

    /// Notes that the port gave `slot` back. Panics when it was not lent.
    #[inline]
    pub fn give_back(&mut self, slot: u32) {
        let place = self.place(slot);
        let lent = &mut self.lent[place];
        assert!(*lent, "slot {slot} is not lent");
        *lent = false;
    }

    /// Whether a port holds `slot`.
    #[inline]
    pub fn is_lent(&self, slot: u32) -> bool {
        self.lent[self.place(slot)]
    }

    /// The bytes of `slot`. Panics while it is lent.
    #[inline]
    #[allow(unsafe_code)]
    pub fn bytes(&self, slot: u32) -> &[u8] {
        assert!(!self.is_lent(slot), "slot {slot} is lent to a port");
        // SAFETY: the slot lies in the mapping (index checked by `is_lent`), is initialised (zero
        // pages), belongs to this part alone and is not lent, so nobody else writes it.
        unsafe { core::slice::from_raw_parts(self.arena.slot_ptr(slot), self.arena.slot_bytes()) }
    }

    /// The bytes of `slot`, to be written. Panics while it is lent.
    #[inline]
    #[allow(unsafe_code)]
    pub fn bytes_mut(&mut self, slot: u32) -> &mut [u8] {
        assert!(!self.is_lent(slot), "slot {slot} is lent to a port");
        // SAFETY: as in `bytes`, and `&mut self` makes this the only reference.
        unsafe {
            core::slice::from_raw_parts_mut(self.arena.slot_ptr(slot), self.arena.slot_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const SLOTS: u32 = 24;
    const SPLIT: u32 = 10;
    const SLOT_BYTES: usize = 64;

    fn arena() -> DatagramArena {
        DatagramArena::new(SLOTS as usize, SLOT_BYTES).expect("there is memory for a test")
    }

    /// What a port does to a slot lent to it: fills it and returns what was there first.
    #[allow(unsafe_code)]
    fn port_fills(arena: &DatagramArena, slot: u32, byte: u8) -> u8 {
        // SAFETY: only called between `lend` and `give_back`, while no reference to the slot's
        // bytes exists, and for a slot in the mapping, whose bytes are initialised.
        unsafe {
            let before = arena.slot_ptr(slot).read();
            arena.slot_ptr(slot).write_bytes(byte, SLOT_BYTES);
            before
        }
    }

    #[test]
    fn a_new_arena_is_zero_and_aligned() {
        let arena = arena();
        assert_eq!(arena.base() as usize % 4096, 0);
        assert_eq!((arena.slots(), arena.slot_bytes()), (SLOTS as usize, SLOT_BYTES));
        assert_eq!(arena.len_bytes(), SLOTS as usize * SLOT_BYTES);
        let (low, high) = arena.split(SPLIT);
        assert_eq!((low.first(), low.end(), high.first(), high.end()), (0, SPLIT, SPLIT, SLOTS));
        assert!((0..SPLIT).all(|slot| low.bytes(slot) == [0; SLOT_BYTES]));
        assert!((SPLIT..SLOTS).all(|slot| high.bytes(slot) == [0; SLOT_BYTES]));
    }

    #[test]
    fn slots_lie_one_after_the_other() {
        let arena = arena();
        for slot in 0..SLOTS {
            let offset = arena.slot_ptr(slot) as usize - arena.base() as usize;
            assert_eq!(offset, slot as usize * SLOT_BYTES);
        }
    }

    #[test]
    fn the_parts_outlive_the_arena_and_may_be_empty() {
        let (mut all, none) = {
            let arena = arena();
            arena.split(SLOTS)
        };
        assert_eq!(none.first(), none.end());
        all.bytes_mut(SLOTS - 1).fill(9);
        assert_eq!(all.bytes(SLOTS - 1), [9; SLOT_BYTES]);
    }

    #[test]
    fn more_than_the_address_space_is_an_error() {
        assert!(DatagramArena::new(u32::MAX as usize, 1 << 40).is_err());
        assert!(DatagramArena::new(u32::MAX as usize, 1 << 28).is_err());
    }

    proptest! {
        /// Writes of ours and of a port land in their slot alone, and lending is remembered.
        #[test]
        fn slots_are_apart(ops in prop::collection::vec((0..SLOTS, 0u8..3, any::<u8>()), 0..200)) {
            let arena = arena();
            let (mut low, mut high) = arena.split(SPLIT);
            let mut model = [(0u8, false); SLOTS as usize];
            for (slot, kind, byte) in ops {
                let part = if slot < SPLIT { &mut low } else { &mut high };
                let (expected, lent) = &mut model[slot as usize];
                match (kind, *lent) {
                    (0, false) => {
                        part.bytes_mut(slot).fill(byte);
                        *expected = byte;
                    }
                    (1, false) => {
                        part.lend(slot);
                        *lent = true;
                    }
                    (1, true) => {
                        part.give_back(slot);
                        *lent = false;
                    }
                    (_, true) => {
                        prop_assert_eq!(port_fills(&arena, slot, byte), *expected);
                        *expected = byte;
                    }
                    _ => {}
                }
                for (slot, (expected, lent)) in (0..).zip(&model) {
                    let part = if slot < SPLIT { &low } else { &high };
                    prop_assert_eq!(part.is_lent(slot), *lent);
                    prop_assert!(*lent || part.bytes(slot) == [*expected; SLOT_BYTES]);
                }
            }
        }
    }

    /// Runs `misuse` on the parts of an arena whose slot 3 is lent.
    fn misuse(misuse: impl FnOnce(&DatagramArena, &mut ArenaPart, &mut ArenaPart)) {
        let arena = arena();
        let (mut low, mut high) = arena.split(SPLIT);
        low.lend(3);
        misuse(&arena, &mut low, &mut high);
    }

    #[test]
    #[should_panic(expected = "split once")]
    fn splitting_a_clone_again() {
        misuse(|arena, _, _| drop(arena.clone().split(0)));
    }

    #[test]
    #[should_panic(expected = "slot 3 is lent already")]
    fn lending_twice() {
        misuse(|_, low, _| low.lend(3));
    }

    #[test]
    #[should_panic(expected = "slot 4 is not lent")]
    fn giving_back_what_is_ours() {
        misuse(|_, low, _| low.give_back(4));
    }

    #[test]
    #[should_panic(expected = "slot 3 is lent to a port")]
    fn reading_a_lent_slot() {
        misuse(|_, low, _| drop(Vec::from(low.bytes(3))));
    }

    #[test]
    #[should_panic(expected = "slot 3 is lent to a port")]
    fn writing_a_lent_slot() {
        misuse(|_, low, _| low.bytes_mut(3).fill(1));
    }

    #[test]
    #[should_panic(expected = "out of bounds")]
    fn a_slot_of_the_part_above() {
        misuse(|_, low, _| low.bytes_mut(SPLIT).fill(1));
    }

    #[test]
    #[should_panic(expected = "out of bounds")]
    fn a_slot_of_the_part_below() {
        misuse(|_, _, high| high.bytes_mut(SPLIT - 1).fill(1));
    }

    #[test]
    #[should_panic(expected = "slot 24 of 24")]
    fn a_slot_beyond_the_mapping() {
        misuse(|arena, _, _| assert!(!arena.slot_ptr(SLOTS).is_null()));
    }
}
