//! Socket addresses: our encoding for peers, the kernel's for system calls, and the table of both.

#![allow(unsafe_code)]

use crate::ports::{PortError, PortPeer, RawAddress};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Length of an encoded address in bytes: family, version, port, scope id, address.
const ENCODED_BYTES: usize = 24;
/// Version of the encoding, so that a later layout is refused and not misread.
const ENCODING_VERSION: u8 = 1;

/// Encodes `address`: family (4 or 6), version, port (2 bytes, little endian), scope id (4, little
/// endian), then 16 bytes of address of which IPv4 uses the first four and leaves the rest zero.
pub(super) fn encode(address: SocketAddr) -> RawAddress {
    let mut bytes = [0u8; ENCODED_BYTES];
    bytes[1] = ENCODING_VERSION;
    bytes[2..4].copy_from_slice(&address.port().to_le_bytes());
    match address {
        SocketAddr::V4(v4) => {
            bytes[0] = 4;
            bytes[8..12].copy_from_slice(&v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            bytes[0] = 6;
            bytes[4..8].copy_from_slice(&v6.scope_id().to_le_bytes());
            bytes[8..24].copy_from_slice(&v6.ip().octets());
        }
    }
    RawAddress::from_bytes(&bytes).expect("24 bytes fit into every RawAddress")
}

/// Decodes what [`encode`] made. The bytes come from another process and are checked in full.
pub(super) fn decode(raw: &RawAddress) -> Result<SocketAddr, PortError> {
    let refuse = |reason: String| PortError::Unusable {
        port: super::NAME,
        value: format!("peer address {:02x?}", raw.0.as_slice()),
        reason,
    };
    let Ok(bytes) = <[u8; ENCODED_BYTES]>::try_from(raw.0.as_slice()) else {
        return Err(refuse(format!("it has {} bytes, not {ENCODED_BYTES}", raw.0.len())));
    };
    if bytes[1] != ENCODING_VERSION {
        return Err(refuse(format!("its version is {}, not {ENCODING_VERSION}", bytes[1])));
    }
    let port = u16::from_le_bytes([bytes[2], bytes[3]]);
    let scope_id = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    let octets: [u8; 16] = bytes[8..24].try_into().expect("16 bytes");
    match bytes[0] {
        4 if scope_id == 0 && octets[4..].iter().all(|&byte| byte == 0) => {
            let ip = Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]);
            Ok(SocketAddrV4::new(ip, port).into())
        }
        4 => Err(refuse("bytes that IPv4 does not use are not zero".into())),
        6 => Ok(SocketAddrV6::new(Ipv6Addr::from(octets), port, 0, scope_id).into()),
        family => Err(refuse(format!("unknown address family {family}"))),
    }
}

/// Whether `ip` means something only on one link.
pub(super) fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// Refuses a peer that the socket bound to `local` can never send to, whatever the routes say.
pub(super) fn check_peer(peer: SocketAddr, local: SocketAddr) -> Result<(), PortError> {
    let ip = peer.ip();
    let reason = if peer.is_ipv4() != local.is_ipv4() {
        format!("this rail is bound to {}, which is of another address family", local.ip())
    } else if peer.port() == 0 {
        "port 0 is nobody's".to_owned()
    } else if ip.is_unspecified() {
        "the unspecified address is nobody's".to_owned()
    } else if ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) {
        "a peer is one process, not a group".to_owned()
    } else {
        return Ok(());
    };
    Err(PortError::Unusable { port: super::NAME, value: format!("peer address {peer}"), reason })
}

/// The kernel's form of an address of either family.
#[repr(C)]
#[derive(Clone, Copy)]
union Sockaddr {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

/// One row of the address table: an address ready for system calls, or free (`len_bytes` 0).
#[derive(Clone, Copy)]
pub(super) struct KernelAddress {
    sockaddr: Sockaddr,
    len_bytes: libc::socklen_t,
}

impl KernelAddress {
    pub(super) fn new(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => {
                let v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
                    sin_zero: [0; 8],
                };
                let len_bytes = size_of::<libc::sockaddr_in>() as libc::socklen_t;
                Self { sockaddr: Sockaddr { v4 }, len_bytes }
            }
            SocketAddr::V6(address) => {
                let v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                };
                let len_bytes = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
                Self { sockaddr: Sockaddr { v6 }, len_bytes }
            }
        }
    }

    /// For the `name` fields of system calls; valid while `self` stays where it is.
    #[inline]
    pub(super) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.sockaddr).cast()
    }

    #[inline]
    pub(super) fn len_bytes(&self) -> libc::socklen_t {
        self.len_bytes
    }
}

/// Peers by [`PortPeer`], which is the row's number. Rows are reused, last freed first.
#[derive(Default)]
pub(super) struct AddressTable {
    rows: Vec<KernelAddress>,
    free: Vec<u32>,
}

impl AddressTable {
    pub(super) fn insert(&mut self, address: SocketAddr) -> PortPeer {
        let row = KernelAddress::new(address);
        if let Some(index) = self.free.pop() {
            self.rows[index as usize] = row;
            return PortPeer(u64::from(index));
        }
        self.rows.push(row);
        PortPeer(self.rows.len() as u64 - 1)
    }

    /// Panics when `peer` is not in the table: its row may already be somebody else's.
    pub(super) fn remove(&mut self, peer: PortPeer) {
        assert!(self.get(peer).is_some(), "{peer:?} is not in the address table");
        self.rows[peer.0 as usize].len_bytes = 0;
        self.free.push(peer.0 as u32);
    }

    #[inline]
    pub(super) fn get(&self, peer: PortPeer) -> Option<&KernelAddress> {
        self.rows.get(usize::try_from(peer.0).ok()?).filter(|row| row.len_bytes != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_survive_the_encoding() {
        let v6 = SocketAddrV6::new("fe80::1:2".parse().unwrap(), 65535, 0, 7);
        for address in ["10.1.2.3:4711".parse().unwrap(), SocketAddr::from(v6)] {
            assert_eq!(decode(&encode(address)).unwrap(), address);
        }
    }

    #[test]
    fn damaged_encodings_are_refused_with_the_reason() {
        let good = encode("10.1.2.3:4711".parse().unwrap());
        let damaged = |at: usize, to: u8| {
            let mut bytes = good.clone();
            bytes.0[at] = to;
            decode(&bytes).unwrap_err().to_string()
        };
        assert!(damaged(0, 5).contains("family 5"));
        assert!(damaged(1, 2).contains("version is 2"));
        assert!(damaged(20, 1).contains("not zero"));
        let short = RawAddress::from_bytes(&good.0[..23]).unwrap();
        assert!(decode(&short).unwrap_err().to_string().contains("23 bytes"));
        assert!(decode(&RawAddress::default()).is_err());
    }

    #[test]
    fn peers_that_are_nobody_are_refused() {
        let local = "10.0.0.1:1".parse().unwrap();
        let reason = |peer: &str| check_peer(peer.parse().unwrap(), local).unwrap_err().to_string();
        assert!(reason("10.0.0.2:0").contains("port 0"));
        assert!(reason("0.0.0.0:9").contains("unspecified"));
        assert!(reason("224.0.0.1:9").contains("group"));
        assert!(reason("255.255.255.255:9").contains("group"));
        assert!(reason("[::1]:9").contains("family"));
        assert!(check_peer("10.0.0.2:9".parse().unwrap(), local).is_ok());
    }

    #[test]
    fn rows_are_reused_and_freed_rows_hold_nobody() {
        let mut table = AddressTable::default();
        let first = table.insert("10.0.0.1:1".parse().unwrap());
        let second = table.insert("[::1]:2".parse().unwrap());
        table.remove(first);
        assert!(table.get(first).is_none() && table.get(PortPeer::NONE).is_none());
        assert_eq!(table.get(second).unwrap().len_bytes(), 28);
        assert_eq!(table.insert("10.0.0.3:3".parse().unwrap()), first);
        assert_eq!(table.get(first).unwrap().len_bytes(), 16);
    }
}
