//! Send and receive batches: the arrays that `sendmmsg` and `recvmmsg` want, allocated once.

#![allow(unsafe_code)]

use super::address::KernelAddress;
use crate::ports::Gather;
use std::io;
use std::os::fd::RawFd;
use std::ptr;
use tickwire_tables::arena::DatagramArena;

/// Most datagrams that one system call moves.
pub(super) const BATCH_MAX: usize = 64;

fn empty_headers() -> Box<[libc::mmsghdr]> {
    // SAFETY: all-zero is a valid `mmsghdr`: null pointers with lengths of zero.
    let header: libc::mmsghdr = unsafe { std::mem::zeroed() };
    vec![header; BATCH_MAX].into()
}

const NO_BYTES: libc::iovec = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };

/// Datagrams ready for one `sendmmsg`. Filled anew for every call: the pointers of an earlier
/// call are never followed again.
pub(super) struct SendBatch {
    headers: Box<[libc::mmsghdr]>,
    /// Two pieces a datagram: what lies in the slot, and what is gathered from user memory.
    vectors: Box<[[libc::iovec; 2]]>,
    len: usize,
}

// SAFETY: the pointers are written and followed within one call of the port's and mean nothing
// between calls, so it does not matter which thread makes the next call.
unsafe impl Send for SendBatch {}

impl SendBatch {
    pub(super) fn new() -> Self {
        Self { headers: empty_headers(), vectors: vec![[NO_BYTES; 2]; BATCH_MAX].into(), len: 0 }
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a datagram of `head_bytes` bytes at `head` and the gathered ones behind them.
    #[inline]
    pub(super) fn push(
        &mut self,
        to: &KernelAddress,
        head: *mut u8,
        head_bytes: usize,
        gather: Option<Gather>,
    ) {
        let vectors = &mut self.vectors[self.len];
        vectors[0] = libc::iovec { iov_base: head.cast(), iov_len: head_bytes };
        let mut pieces = 1;
        if let Some(gather) = gather {
            vectors[1] = libc::iovec {
                iov_base: gather.ptr().cast_mut().cast(),
                iov_len: gather.len_bytes() as usize,
            };
            pieces = 2;
        }
        let header = &mut self.headers[self.len].msg_hdr;
        header.msg_name = to.as_ptr().cast_mut().cast();
        header.msg_namelen = to.len_bytes();
        header.msg_iov = vectors.as_mut_ptr();
        header.msg_iovlen = pieces;
        self.len += 1;
    }

    /// Sends from the front; returns how many left. An error is that of the first datagram.
    ///
    /// # Safety
    /// All that was pushed since [`Self::clear`] is readable: slots, gathered memory, addresses.
    #[inline]
    pub(super) unsafe fn send(&mut self, fd: RawFd) -> io::Result<usize> {
        let header = &self.headers[0].msg_hdr;
        let result = if self.len > 1 {
            // SAFETY: the first `len` headers are filled, and what they point to is readable by
            // the caller's promise.
            unsafe { libc::sendmmsg(fd, self.headers.as_mut_ptr(), self.len as libc::c_uint, 0) }
        } else if header.msg_iovlen > 1 {
            // SAFETY: as above.
            let sent = unsafe { libc::sendmsg(fd, header, 0) };
            if sent < 0 { -1 } else { 1 }
        } else {
            let [head, _] = self.vectors[0];
            let (name, len) = (header.msg_name.cast(), header.msg_namelen);
            // SAFETY: as above.
            let sent = unsafe { libc::sendto(fd, head.iov_base, head.iov_len, 0, name, len) };
            if sent < 0 { -1 } else { 1 }
        };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }
}

/// Room for one `recvmmsg`. The sender's address is not asked for: the header names the sender.
pub(super) struct RecvBatch {
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
}

// SAFETY: as for `SendBatch`; the pointers from `headers` into `vectors` are to the heap and stay
// right when the struct moves.
unsafe impl Send for RecvBatch {}

impl RecvBatch {
    pub(super) fn new() -> Self {
        let mut headers = empty_headers();
        let mut vectors: Box<[_]> = vec![NO_BYTES; BATCH_MAX].into();
        for (header, vector) in headers.iter_mut().zip(vectors.iter_mut()) {
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
        }
        Self { headers, vectors }
    }

    /// Receives into `slots`, the last one first, at most `room_bytes` bytes each; returns how
    /// many datagrams came. Lengths are in [`Self::len_bytes`].
    ///
    /// # Safety
    /// The slots belong to the port, and each has `room_bytes` bytes.
    #[inline]
    pub(super) unsafe fn receive(
        &mut self,
        fd: RawFd,
        arena: &DatagramArena,
        slots: &[u32],
        room_bytes: usize,
    ) -> io::Result<usize> {
        // With this flag the kernel reports the length that a datagram had before it was cut.
        const FLAGS: libc::c_int = libc::MSG_TRUNC;
        if let [slot] = *slots {
            let to = arena.slot_ptr(slot).cast();
            // SAFETY: the slot is the port's and has that much room, by the caller's promise.
            let len = unsafe { libc::recv(fd, to, room_bytes, FLAGS) };
            if len < 0 {
                return Err(io::Error::last_os_error());
            }
            self.headers[0].msg_len = len as libc::c_uint;
            return Ok(1);
        }
        for (vector, &slot) in self.vectors.iter_mut().zip(slots.iter().rev()) {
            *vector = libc::iovec { iov_base: arena.slot_ptr(slot).cast(), iov_len: room_bytes };
        }
        let wanted = slots.len().min(BATCH_MAX) as libc::c_uint;
        let headers = self.headers.as_mut_ptr();
        // SAFETY: the first `wanted` headers point to the vectors filled above, whose slots are
        // the port's and have that much room, by the caller's promise. A null timeout means none.
        let result = unsafe { libc::recvmmsg(fd, headers, wanted, FLAGS as _, ptr::null_mut()) };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }

    /// Length of the datagram number `index` of the last call in bytes, as it was sent: more than
    /// the room means that it was cut.
    #[inline]
    pub(super) fn len_bytes(&self, index: usize) -> usize {
        self.headers[index].msg_len as usize
    }
}
