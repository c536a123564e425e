//! The datagram arena: equal power-of-two slots in one anonymous, page-aligned mapping.
//!
//! A slot's number is its place. Huge pages are asked for. A slot is either *ours* (its bytes may
//! be read and written through the arena) or *lent* to a port, which accesses it by raw pointer
//! ([`DatagramArena::base`]). Clones share the mapping; the lent bits live in the owner only.

use core::sync::atomic::{AtomicBool, Ordering};
use memmap2::{MmapMut, MmapOptions};
use std::sync::Arc;

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
    /// taken from the system page by page as it is touched.
    pub fn new(slots: usize, slot_bytes: usize) -> std::io::Result<Self> {
        assert!(slot_bytes.is_power_of_two() && slots > 0);
        let len = slots.checked_mul(slot_bytes).ok_or(std::io::ErrorKind::OutOfMemory)?;
        let mut map = MmapOptions::new().len(len).map_anon()?;
        // A wish, not a need: without huge pages everything works, a little slower.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let base = map.as_mut_ptr();
        Ok(Self(Arc::new(Mapping { base, slot_bytes, slots, split: AtomicBool::new(false), _map: map })))
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
        Self { arena, first, end, lent: vec![false; (end - first) as usize].into() }
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
        let lent = &mut self.lent[(slot - self.first) as usize];
        assert!(!*lent, "slot {slot} is lent already");
        *lent = true;
    }

    /// Notes that the port gave `slot` back. Panics when it was not lent.
    #[inline]
    pub fn give_back(&mut self, slot: u32) {
        let lent = &mut self.lent[(slot - self.first) as usize];
        assert!(*lent, "slot {slot} is not lent");
        *lent = false;
    }

    /// Whether a port holds `slot`.
    #[inline]
    pub fn is_lent(&self, slot: u32) -> bool {
        self.lent[(slot - self.first) as usize]
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
