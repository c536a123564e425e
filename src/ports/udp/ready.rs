//! Waiting for several sockets at once, for the parts of the crate that keep to safe code.

#![allow(unsafe_code)]

use std::time::Duration;

/// Sleeps until one of `fds` is ready, at most `timeout`; each one's `revents` tells. May return
/// early with nothing ready.
pub(crate) fn wait_ready(fds: &mut [libc::pollfd], timeout: Duration) {
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos() as libc::c_long,
    };
    fds.iter_mut().for_each(|fd| fd.revents = 0);
    // SAFETY: a slice of poll descriptors with its length, a timeout, and no signal mask. When the
    // call fails (a signal came), nothing is marked ready, and that is an early return.
    unsafe {
        let count = fds.len() as libc::nfds_t;
        libc::ppoll(fds.as_mut_ptr(), count, &raw const timeout, std::ptr::null())
    };
}
