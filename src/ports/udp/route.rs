//! What the host's interfaces and routes say: addresses, MTUs, and datagram sizes from them.

#![allow(unsafe_code)]

use super::NAME;
use crate::ports::PortError;
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

/// Largest UDP payload of an IPv4 packet in bytes; we keep to it for IPv6 too.
pub(super) const DATAGRAM_BYTES_CAP: usize = crate::ports::kernel::UDP_DATAGRAM_BYTES_MAX;
/// Below this a datagram carries too little beside its header to be worth a rail.
pub(super) const DATAGRAM_BYTES_FLOOR: usize = 256;

/// One address of one interface of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name, as `ip address` shows it.
    pub name: String,
    /// The kernel's number for it, which is the scope id of link-local IPv6 addresses.
    pub index: u32,
    /// The address, as `UdpConfig::bind` takes it.
    pub address: IpAddr,
    /// Largest IP packet in bytes.
    pub mtu_bytes: usize,
    /// Whether it is up and has a carrier.
    pub up: bool,
    /// Whether it reaches this host alone.
    pub loopback: bool,
}

/// All IPv4 and IPv6 addresses of this host, in the kernel's order. An interface with several
/// addresses appears several times; one without any does not appear.
pub fn interfaces() -> Result<Vec<Interface>, PortError> {
    let fail = |call: &'static str, subject: &str| PortError::Call {
        port: NAME,
        call,
        subject: subject.to_owned(),
        reason: io::Error::last_os_error().to_string(),
    };
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `list` is a place for the pointer that the call returns.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(fail("getifaddrs", "this host"));
    }
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: the list ends in null and stays valid until it is freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: the address is null or of the family that it names.
        let Some(address) = (unsafe { ip_of(entry.ifa_addr) }) else { continue };
        // SAFETY: the name is a C string that lives as long as the list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        // SAFETY: as above.
        let index = unsafe { libc::if_nametoindex(entry.ifa_name) };
        // An interface may vanish between the two calls; then it is of no use to anybody.
        let Ok(mtu_bytes) = mtu_of(name) else { continue };
        let flags = entry.ifa_flags as libc::c_int;
        let usable = libc::IFF_UP | libc::IFF_RUNNING;
        found.push(Interface {
            name: name.to_string_lossy().into_owned(),
            index,
            address,
            mtu_bytes,
            up: flags & usable == usable,
            loopback: flags & libc::IFF_LOOPBACK != 0,
        });
    }
    // SAFETY: `list` came from `getifaddrs` and nothing of it is used any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// # Safety
/// `address` is null or points to a socket address of the family it names.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: by the caller's promise.
    let family = libc::c_int::from(unsafe { address.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: of this family, by the caller's promise; read without regard to alignment.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::V4(u32::from_be(v4.sin_addr.s_addr).into()))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::V6(v6.sin6_addr.s6_addr.into()))
        }
        _ => None,
    }
}

fn mtu_of(name: &CStr) -> io::Result<usize> {
    let socket = UdpSocket::bind("127.0.0.1:0").or_else(|_| UdpSocket::bind("[::1]:0"))?;
    // SAFETY: all-zero is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let bytes = name.to_bytes();
    assert!(bytes.len() < request.ifr_name.len(), "the kernel's interface names fit its own field");
    for (to, &from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = from as libc::c_char;
    }
    // SAFETY: the request names an interface and is large enough for the answer.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: this request fills this member of the union.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    usize::try_from(mtu).map_err(io::Error::other)
}

/// The interface that carries `ip`. The whole of 127.0.0.0/8 belongs to the loopback interface,
/// though it lists one address only.
pub(super) fn interface_of(ip: IpAddr) -> Result<Option<Interface>, PortError> {
    let all = interfaces()?;
    let matches: Vec<_> = all.iter().filter(|interface| interface.address == ip).collect();
    if let [first, second, ..] = matches[..]
        && first.index != second.index
    {
        return Err(PortError::Unusable {
            port: NAME,
            value: ip.to_string(),
            reason: format!("{} and {} both have this address", first.name, second.name),
        });
    }
    let loopback = || all.iter().find(|interface| interface.loopback && ip.is_loopback());
    Ok(matches.first().copied().or_else(loopback).cloned())
}

/// Bytes of IP and UDP header in front of each datagram of this family.
fn header_bytes(ip: IpAddr) -> usize {
    8 + if ip.is_ipv4() { 20 } else { 40 }
}

/// Largest datagram in bytes that passes `mtu_bytes` unfragmented.
pub(super) fn datagram_bytes_of_mtu(mtu_bytes: usize, ip: IpAddr) -> usize {
    mtu_bytes.saturating_sub(header_bytes(ip)).min(DATAGRAM_BYTES_CAP)
}

/// The datagram size for a rail on `ip`: the one wished for if it can pass, else what the MTU of
/// the interface gives.
pub(super) fn datagram_bytes(
    wish_bytes: Option<usize>,
    interface: Option<&Interface>,
    ip: IpAddr,
) -> Result<usize, PortError> {
    let refuse =
        |value: String, reason: String| Err(PortError::Unusable { port: NAME, value, reason });
    let limit = match interface {
        Some(interface) => datagram_bytes_of_mtu(interface.mtu_bytes, ip),
        None if wish_bytes.is_some() => DATAGRAM_BYTES_CAP,
        None => {
            return refuse(
                ip.to_string(),
                "no interface of this host has this address; give the datagram size if it is \
                 right all the same"
                    .into(),
            );
        }
    };
    let where_from = match interface {
        Some(Interface { name, mtu_bytes, .. }) => format!("{name} (MTU {mtu_bytes} bytes)"),
        None => "UDP".to_owned(),
    };
    let bytes = wish_bytes.unwrap_or(limit);
    if bytes > limit {
        return refuse(
            format!("datagram size {bytes} bytes"),
            format!("{where_from} carries at most {limit} bytes without fragments"),
        );
    }
    if bytes < DATAGRAM_BYTES_FLOOR {
        return refuse(
            format!("datagram size {bytes} bytes on {where_from}"),
            format!("at least {DATAGRAM_BYTES_FLOOR} bytes are needed"),
        );
    }
    Ok(bytes)
}

/// Asks the kernel for the route from `local` to `peer` and refuses one that can never carry
/// datagrams of `datagram_bytes`. A route that is merely absent may come later and passes.
pub(super) fn check_route(
    local: SocketAddr,
    peer: SocketAddr,
    datagram_bytes: usize,
) -> Result<(), PortError> {
    let refuse = |reason: String| {
        Err(PortError::Unusable { port: NAME, value: format!("peer address {peer}"), reason })
    };
    let mut from = local;
    from.set_port(0);
    // Without a descriptor or port to spare there is nothing to ask with; sends will tell.
    let Ok(probe) = UdpSocket::bind(from) else { return Ok(()) };
    if let Err(error) = probe.connect(peer) {
        return match error.raw_os_error() {
            Some(libc::EINVAL) if local.ip().is_loopback() => {
                refuse(format!("{} reaches this host alone", local.ip()))
            }
            Some(libc::EACCES) => refuse("it is a broadcast address".into()),
            Some(libc::EINVAL | libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL) => {
                refuse(format!("{} cannot send there: {error}", local.ip()))
            }
            _ => Ok(()),
        };
    }
    let (level, name) = match peer {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let Ok(mtu) = super::socket::get_option(probe.as_raw_fd(), level, name) else { return Ok(()) };
    let limit = datagram_bytes_of_mtu(usize::try_from(mtu).unwrap_or(0), peer.ip());
    if limit < datagram_bytes {
        return refuse(format!(
            "the route there carries datagrams of {limit} bytes (MTU {mtu}), this rail sends \
             {datagram_bytes}: set the datagram size"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(mtu_bytes: usize) -> Interface {
        Interface {
            name: "eth7".into(),
            index: 7,
            address: "10.0.0.1".parse().unwrap(),
            mtu_bytes,
            up: true,
            loopback: false,
        }
    }

    #[test]
    fn sizes_follow_from_any_mtu() {
        let v4 = "10.0.0.1".parse().unwrap();
        let v6 = "fd00::1".parse().unwrap();
        for (mtu, of_v4, of_v6) in [
            (576, 548, 528),
            (1500, 1472, 1452),
            (1501, 1473, 1453),
            (9000, 8972, 8952),
            (65535, 65507, 65487),
            (65536, 65507, 65488),
        ] {
            assert_eq!(datagram_bytes(None, Some(&on(mtu)), v4).unwrap(), of_v4);
            assert_eq!(datagram_bytes(None, Some(&on(mtu)), v6).unwrap(), of_v6);
        }
    }

    #[test]
    fn impossible_sizes_are_refused_and_name_the_numbers() {
        let ip = "10.0.0.1".parse().unwrap();
        let text = |wish, mtu| datagram_bytes(wish, Some(&on(mtu)), ip).unwrap_err().to_string();
        assert!(text(Some(1473), 1500).contains("1473 bytes"));
        assert!(text(Some(1473), 1500).contains("eth7 (MTU 1500 bytes) carries at most 1472"));
        assert!(text(Some(255), 1500).contains("at least 256"));
        assert!(text(None, 283).contains("at least 256"));
        assert_eq!(datagram_bytes(None, Some(&on(284)), ip).unwrap(), 256);
        assert!(datagram_bytes(None, None, ip).unwrap_err().to_string().contains("no interface"));
        assert_eq!(datagram_bytes(Some(1000), None, ip).unwrap(), 1000);
    }

    #[test]
    fn the_loopback_interface_is_listed_and_owns_all_of_its_network() {
        let found = interface_of("127.0.0.1".parse().unwrap()).unwrap().unwrap();
        assert!(found.loopback && found.up && found.mtu_bytes >= 576 && found.index > 0);
        let other = interface_of("127.9.8.7".parse().unwrap()).unwrap().unwrap();
        assert_eq!(other.name, found.name);
        assert_eq!(interface_of("198.51.100.77".parse().unwrap()).unwrap(), None);
    }
}
