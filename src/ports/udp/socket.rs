//! One kernel socket: creation, options, and how many datagrams its buffer really holds.

#![allow(unsafe_code)]

use super::NAME;
use crate::ports::PortError;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};

/// How long one receive call may poll the network card when busy polling is wished for.
const BUSY_POLL_US: libc::c_int = 50;
/// `SO_PRIORITY` of the priority channel: the highest that needs no privilege. Queueing
/// disciplines with bands (`pfifo_fast`) then send its datagrams before bulk data.
const INTERACTIVE: libc::c_int = 6;

/// What a socket is to be like.
pub(super) struct Wishes {
    pub(super) buffer_bytes: usize,
    pub(super) busy_poll: bool,
    pub(super) interactive: bool,
}

/// A bound, non-blocking, close-on-exec UDP socket that never fragments.
pub(super) struct Socket {
    socket: UdpSocket,
    pub(super) local: SocketAddr,
    /// Receive buffer as granted, in the bytes of `setsockopt`; the kernel accounts twice that.
    pub(super) recv_buffer_bytes: usize,
    /// Send buffer as granted, likewise.
    pub(super) send_buffer_bytes: usize,
}

impl Socket {
    /// Opens and binds; appends to `warnings` what the kernel did not grant.
    pub(super) fn open(
        bind: SocketAddr,
        wishes: &Wishes,
        warnings: &mut Vec<String>,
    ) -> Result<Self, PortError> {
        let fail = |call: &'static str| {
            move |error: io::Error| PortError::Call {
                port: NAME,
                call,
                subject: bind.to_string(),
                reason: error.to_string(),
            }
        };
        let socket = UdpSocket::bind(bind).map_err(fail("bind"))?;
        socket.set_nonblocking(true).map_err(fail("ioctl(FIONBIO)"))?;
        let local = socket.local_addr().map_err(fail("getsockname"))?;
        let fd = socket.as_raw_fd();
        let (level, name, value) = match bind {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO),
            SocketAddr::V6(_) => {
                (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)
            }
        };
        set_option(fd, level, name, value).map_err(fail("setsockopt(MTU_DISCOVER)"))?;
        if wishes.interactive {
            set_option(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, INTERACTIVE)
                .map_err(fail("setsockopt(SO_PRIORITY)"))?;
        }
        if wishes.busy_poll
            && let Err(error) = set_option(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, BUSY_POLL_US)
        {
            warnings.push(format!(
                "udp port {local}: busy polling ({BUSY_POLL_US} us) refused: {error}; \
                 it needs CAP_NET_ADMIN or net.core.busy_read"
            ));
        }
        let mut size = |what, force, plain, sysctl| {
            let granted = size_buffer(fd, wishes.buffer_bytes, force, plain)
                .map_err(fail("setsockopt(SO_RCVBUF, SO_SNDBUF)"))?;
            if granted < wishes.buffer_bytes {
                warnings.push(format!(
                    "udp port {local}: asked for a {what} buffer of {} bytes, the kernel grants \
                     {granted}; raise {sysctl}",
                    wishes.buffer_bytes
                ));
            }
            Ok::<usize, PortError>(granted)
        };
        let recv_buffer_bytes =
            size("receive", libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, "net.core.rmem_max")?;
        let send_buffer_bytes =
            size("send", libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, "net.core.wmem_max")?;
        Ok(Self { socket, local, recv_buffer_bytes, send_buffer_bytes })
    }

    #[inline]
    pub(super) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Asks for `bytes` past the system-wide limit where that is permitted, else up to the limit.
/// Returns what was granted, in the same unit (the kernel doubles it for its own bookkeeping).
fn size_buffer(
    fd: RawFd,
    bytes: usize,
    force: libc::c_int,
    plain: libc::c_int,
) -> io::Result<usize> {
    // The kernel keeps twice the value in a C int.
    let wish = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX).min(libc::c_int::MAX / 2);
    if set_option(fd, libc::SOL_SOCKET, force, wish).is_err() {
        set_option(fd, libc::SOL_SOCKET, plain, wish)?;
    }
    let kept = get_option(fd, libc::SOL_SOCKET, plain)?;
    Ok(usize::try_from(kept).unwrap_or(0) / 2)
}

fn set_option(
    fd: RawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the value is a C int and lives through the call.
    let result = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option whose value is a C int.
pub(super) fn get_option(
    fd: RawFd,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the place is a C int, its length is given, and both live through the call.
    let result =
        unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Datagrams of up to `datagram_bytes` that a receive buffer of `granted_bytes` holds for certain.
///
/// The kernel charges a datagram with all memory it occupies, against twice the value granted:
/// buffer with headers and trailer rounded up to a power of two (above 16 KiB: pages, to the byte),
/// and the descriptor. Network cards deliver even small datagrams in a page. What a reader has
/// taken is credited back late, up to a quarter of the buffer, as long as the queue is not empty;
/// so only three quarters may be counted on.
pub(super) fn backlog_datagrams(
    granted_bytes: usize,
    datagram_bytes: usize,
    loopback: bool,
) -> usize {
    const HEADERS_AND_TRAILER: usize = 128 + 320;
    const DESCRIPTOR: usize = 768;
    const PAGE: usize = 4096;
    const LINEAR_MAX: usize = 16384;
    let buffer = datagram_bytes + HEADERS_AND_TRAILER;
    let charged = match buffer {
        ..=LINEAR_MAX => buffer.next_power_of_two().max(if loopback { 0 } else { PAGE }),
        _ => buffer.next_multiple_of(PAGE),
    };
    (2 * granted_bytes / 4 * 3 / (charged + DESCRIPTOR)).max(1)
}
