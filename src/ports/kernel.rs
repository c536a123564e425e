//! What the ports on a real machine share.

#![allow(unsafe_code)]

use crate::time::{Nanos, SECONDS};

/// The largest payload of a UDP datagram over IPv4, in bytes.
pub(super) const UDP_DATAGRAM_BYTES_MAX: usize = 65_507;

/// The kernel's monotonic clock.
#[inline]
pub(super) fn monotonic_ns() -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a place for the answer.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    assert_eq!(result, 0, "every Linux kernel has a monotonic clock");
    time.tv_sec as u64 * SECONDS + time.tv_nsec as u64
}
