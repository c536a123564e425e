//! Memory that users lend for longer than a call, by promise in place of a lifetime: handles to it
//! travel through tables and foreign hands, so no borrow can follow them.

#![allow(unsafe_code)]

/// Bytes lent for reading: the source of a send.
#[derive(Clone, Copy, Debug)]
pub struct Lent {
    ptr: *const u8,
    len_bytes: usize,
}

// SAFETY: only bytes are read through it, and whoever made it promised that they stay readable and
// unchanged, by any thread, until they are given back.
unsafe impl Send for Lent {}

impl Lent {
    /// `len_bytes` bytes from `ptr` on.
    ///
    /// # Safety
    /// They stay readable and unchanged until the engine gives them back: with the event that ends
    /// the send, with an error, or with the engine's end.
    pub unsafe fn new(ptr: *const u8, len_bytes: usize) -> Self {
        Self { ptr, len_bytes }
    }

    /// The bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.len_bytes == 0 {
            return &[];
        }
        // SAFETY: the promise of `new`; the engine drops its copies when it gives the memory back.
        unsafe { std::slice::from_raw_parts(self.ptr, self.len_bytes) }
    }

    /// Length in bytes.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }
}
