//! Buffers for large messages: pooled by size class, with a bound on what is in use.

/// Smallest class: 2^12 bytes.
const CLASS_FIRST: u32 = 12;
/// Buffers above 2^26 bytes are made to measure and never kept.
const CLASS_LAST: u32 = 26;
/// Buffers kept per class at most; the bound in bytes usually bites first.
const KEPT_PER_CLASS: usize = 256;

pub(crate) struct BufferPool {
    classes: Box<[Vec<Vec<u8>>]>,
    kept_bytes: u64,
    kept_bytes_max: u64,
    in_use_bytes: u64,
    in_use_bytes_max: u64,
}

/// The class that serves `len`, or `None` above the largest.
fn class_of(len: u64) -> Option<usize> {
    let bits = len.max(1).next_power_of_two().trailing_zeros().max(CLASS_FIRST);
    (bits <= CLASS_LAST).then_some((bits - CLASS_FIRST) as usize)
}

impl BufferPool {
    pub fn new(in_use_bytes_max: u64, kept_bytes_max: u64) -> Self {
        let classes = (CLASS_FIRST..=CLASS_LAST).map(|_| Vec::with_capacity(KEPT_PER_CLASS));
        Self {
            classes: classes.collect(),
            kept_bytes: 0,
            kept_bytes_max,
            in_use_bytes: 0,
            in_use_bytes_max,
        }
    }

    /// Whether `len` more bytes of half-received messages fit; early ones may use half.
    pub fn has_room(&self, len: u64, early: bool) -> bool {
        let max = if early { self.in_use_bytes_max / 2 } else { self.in_use_bytes_max };
        self.in_use_bytes.saturating_add(len) <= max
    }

    /// A buffer of at least `len` bytes with arbitrary (but never uninitialised) contents. A
    /// kept one where there is one: after warm-up nothing is allocated.
    pub fn take(&mut self, len: u64) -> Vec<u8> {
        match class_of(len) {
            None => vec![0; len as usize],
            Some(class) => match self.classes[class].pop() {
                Some(buffer) => {
                    self.kept_bytes -= buffer.len() as u64;
                    buffer
                }
                None => vec![0; 1 << (class as u32 + CLASS_FIRST)],
            },
        }
    }

    /// Takes a buffer back; keeps it if it is of a class and the bound allows.
    pub fn give(&mut self, buffer: Vec<u8>) {
        let len = buffer.len() as u64;
        let Some(class) = class_of(len) else { return };
        let fits = len == 1 << (class as u32 + CLASS_FIRST)
            && self.kept_bytes + len <= self.kept_bytes_max
            && self.classes[class].len() < KEPT_PER_CLASS;
        if fits {
            self.kept_bytes += len;
            self.classes[class].push(buffer);
        }
    }

    /// Charges a half-received message against the bound.
    pub fn charge(&mut self, len: u64) {
        self.in_use_bytes += len;
    }

    /// Takes the charge back.
    pub fn discharge(&mut self, len: u64) {
        self.in_use_bytes -= len;
    }

    pub fn in_use_bytes(&self) -> u64 {
        self.in_use_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_buffers_are_reused_and_bounded() {
        let mut pool = BufferPool::new(1 << 20, 10_000);
        let (a, b, c) = (pool.take(5000), pool.take(100), pool.take(4096));
        assert_eq!((a.len(), b.len(), c.len()), (8192, 4096, 4096));
        let place = a.as_ptr();
        pool.give(a);
        pool.give(b); // over the bound: dropped
        assert_eq!(pool.kept_bytes, 8192);
        let again = pool.take(8192);
        assert_eq!(again.as_ptr(), place);
        assert_eq!(pool.kept_bytes, 0);
        pool.give(vec![0; 5000]); // of no class: somebody else's
        assert_eq!(pool.kept_bytes, 0);
        assert_eq!(pool.take(1 << 27).len(), 1 << 27);
    }

    #[test]
    fn early_messages_may_use_half() {
        let mut pool = BufferPool::new(1000, 0);
        pool.charge(400);
        assert!(pool.has_room(100, true) && !pool.has_room(101, true));
        assert!(pool.has_room(600, false) && !pool.has_room(601, false));
        assert!(!pool.has_room(u64::MAX, false));
        pool.discharge(400);
        assert_eq!(pool.in_use_bytes(), 0);
    }
}
