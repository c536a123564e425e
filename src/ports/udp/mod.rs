//! Port over the kernel's UDP sockets: works on any Linux host, with nothing installed.
//!
//! A rail is two non-blocking sockets on one local address, one a channel. Datagrams are as large
//! as the interface carries without fragments, and never fragmented. They are sent from the slots
//! (and user memory) and received into the slots directly, in batches of one system call.
//!
//! A send is over when the system call returns. A datagram that the kernel refuses for good
//! becomes a [`CompletionKind::SendFailed`]; one it has no room for is not taken.

#![allow(unsafe_code)]

mod address;
mod batch;
pub(crate) mod ready;
mod route;
mod socket;

use super::{
    Channel, Completion, CompletionKind, InsertResult, Insertion, Port, PortCaps, PortError,
    PortPeer, RawAddress, SendOp, kernel,
};
use crate::time::Nanos;
use address::AddressTable;
use arrayvec::ArrayVec;
use batch::{BATCH_MAX, RecvBatch, SendBatch};
use socket::{Socket, Wishes};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;
use tickwire_tables::arena::DatagramArena;

pub use route::{Interface, interfaces};

/// The port's name in capabilities and errors.
const NAME: &str = "udp";
/// No table of slots is larger.
const DEPTH_MAX: usize = 1 << 20;
/// How often one call tries again when the kernel reports what became of an earlier datagram
/// (a closed port, say) in place of a result. Each such report is cleared by being read.
const STALE_ERRORS_MAX: usize = 8;

/// What a [`Udp`] port is opened with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// Local address, of either family; it must be one that peers can reach. Default: 127.0.0.1.
    pub bind: Option<IpAddr>,
    /// Local UDP ports of the priority and the data channel; 0 takes any free one.
    pub ports: (u16, u16),
    /// Largest datagram in bytes. Default: what the interface's MTU carries without fragments.
    pub datagram_bytes_max: Option<usize>,
    /// Size in bytes that each socket buffer should have.
    pub socket_buffer_bytes: usize,
    /// [`PortCaps::send_depth`]: also, failed sends that may wait to be polled, per channel.
    pub send_depth: usize,
    /// [`PortCaps::recv_depth`].
    pub recv_depth: usize,
    /// Polls the network card from receive calls (`SO_BUSY_POLL`) in place of its interrupts.
    pub busy_poll: bool,
}

impl Default for UdpConfig {
    fn default() -> Self {
        Self {
            bind: None,
            ports: (0, 0),
            datagram_bytes_max: None,
            socket_buffer_bytes: 4 << 20,
            send_depth: 1024,
            recv_depth: 1024,
            busy_poll: false,
        }
    }
}

/// One channel: its socket and what waits there.
struct Lane {
    socket: Socket,
    /// Posted receives. The last one posted is used first: its memory is the warmest.
    posted: Vec<u32>,
    /// Failed sends (slot, errno) that no poll has fetched yet.
    failed: VecDeque<(u32, i32)>,
    /// Datagrams that the next poll asks for: follows the load, so that a lone datagram costs
    /// no more than a bare `recv`.
    recv_batch: usize,
}

/// A rail over kernel sockets.
pub struct Udp {
    caps: PortCaps,
    interface: Option<Interface>,
    lanes: [Lane; 2],
    addresses: AddressTable,
    arena: Option<DatagramArena>,
    send_batch: SendBatch,
    recv_batch: RecvBatch,
    warnings: Vec<String>,
}

/// What the kernel's refusal of a system call means for the datagram at its front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// No room: later.
    Busy,
    /// Not about this datagram: the same again.
    Stale,
    /// It can never go.
    Final(i32),
}

impl Refusal {
    fn of(error: &io::Error) -> Self {
        match error.raw_os_error().unwrap_or(libc::EIO) {
            libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM => Refusal::Busy,
            libc::EINTR | libc::ECONNREFUSED => Refusal::Stale,
            code => Refusal::Final(code),
        }
    }
}

impl Udp {
    /// Opens both sockets. What the kernel did not grant in full is in [`Self::warnings`].
    pub fn open(config: &UdpConfig) -> Result<Udp, PortError> {
        let ip = config.bind.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let refuse = |value: String, reason: &str| PortError::Unusable {
            port: NAME,
            value,
            reason: reason.to_owned(),
        };
        if ip.is_unspecified() || ip.is_multicast() {
            let reason = "peers send to this address, so it must be that of one interface";
            return Err(refuse(format!("local address {ip}"), reason));
        }
        for depth in [config.send_depth, config.recv_depth] {
            if !(1..=DEPTH_MAX).contains(&depth) {
                return Err(refuse(format!("a queue depth of {depth}"), "1 to 2^20 are possible"));
            }
        }
        let interface = route::interface_of(ip)?;
        let bytes_max = route::datagram_bytes(config.datagram_bytes_max, interface.as_ref(), ip)?;
        let scope_id = match &interface {
            Some(interface) if address::is_link_local(ip) => interface.index,
            _ => 0,
        };
        let mut warnings = Vec::new();
        let mut lane = |channel, port| {
            let wishes = Wishes {
                buffer_bytes: config.socket_buffer_bytes,
                busy_poll: config.busy_poll,
                interactive: channel == Channel::Priority,
            };
            Ok::<Lane, PortError>(Lane {
                socket: Socket::open(with_scope(ip, port, scope_id), &wishes, &mut warnings)?,
                posted: Vec::with_capacity(config.recv_depth),
                failed: VecDeque::with_capacity(config.send_depth),
                recv_batch: 1,
            })
        };
        let lanes =
            [lane(Channel::Priority, config.ports.0)?, lane(Channel::Data, config.ports.1)?];
        let granted = lanes[Channel::Data as usize].socket.recv_buffer_bytes;
        let loopback = interface.as_ref().is_some_and(|interface| interface.loopback);
        let caps = PortCaps {
            name: NAME,
            datagram_bytes_max: bytes_max,
            prefix_bytes: 0,
            gathers: true,
            send_depth: config.send_depth,
            recv_depth: config.recv_depth,
            sends_complete_at_post: true,
            recv_backlog_datagrams: socket::backlog_datagrams(granted, bytes_max, loopback),
        };
        Ok(Udp {
            caps,
            interface,
            lanes,
            addresses: AddressTable::default(),
            arena: None,
            send_batch: SendBatch::new(),
            recv_batch: RecvBatch::new(),
            warnings,
        })
    }

    /// What the kernel granted less of than asked for, in words and with both numbers.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The socket address of `channel`, as other programs would name it.
    pub fn socket_address(&self, channel: Channel) -> SocketAddr {
        self.lanes[channel as usize].socket.local
    }

    /// The encoding of `address` that [`Port::insert`] takes.
    pub fn encode_address(address: SocketAddr) -> RawAddress {
        address::encode(address)
    }

    /// Puts as many of `ops` as can go together into the send batch. An error is the errno of the
    /// first of them when it can never go.
    fn fill_send_batch(&mut self, ops: &[SendOp]) -> Result<(), i32> {
        let arena = self.arena.as_ref().expect("a port is attached before anything is posted");
        self.send_batch.clear();
        for op in ops {
            let head_bytes = op.len_bytes as usize;
            assert!(head_bytes <= arena.slot_bytes(), "{op:?} is longer than a slot");
            let len_bytes = head_bytes + op.gather.map_or(0, |gather| gather.len_bytes() as usize);
            let problem = match self.addresses.get(op.peer) {
                None => libc::EDESTADDRREQ,
                Some(_) if len_bytes > self.caps.datagram_bytes_max => libc::EMSGSIZE,
                Some(to) => {
                    let head = arena.slot_ptr(op.slot);
                    self.send_batch.push(to, head, head_bytes, op.gather);
                    continue;
                }
            };
            // One that cannot go ends the batch; when it is at the front, its turn has come.
            return if self.send_batch.len() == 0 { Err(problem) } else { Ok(()) };
        }
        Ok(())
    }

    /// Receives up to `out.len()` datagrams with one system call.
    fn receive(&mut self, channel: Channel, out: &mut [Completion]) -> usize {
        let lane = &mut self.lanes[channel as usize];
        let wanted = lane.recv_batch.min(lane.posted.len()).min(out.len());
        if wanted == 0 {
            return 0;
        }
        let arena = self.arena.as_ref().expect("posted receives have an arena");
        let room_bytes = self.caps.datagram_bytes_max;
        let slots = &lane.posted[lane.posted.len() - wanted..];
        let mut tries = 0;
        let got = loop {
            // SAFETY: posted slots are the port's until they come back in a completion, and the
            // room fits a slot (checked by `attach`).
            let result =
                unsafe { self.recv_batch.receive(lane.socket.fd(), arena, slots, room_bytes) };
            match result {
                Ok(got) => break got,
                // Nothing of what a receive may report costs a datagram or a slot: whatever it
                // is, it is read and gone, and there is nothing to hand out.
                Err(error) => {
                    tries += 1;
                    if Refusal::of(&error) == Refusal::Busy || tries > STALE_ERRORS_MAX {
                        break 0;
                    }
                }
            }
        };
        for (index, completion) in out[..got].iter_mut().enumerate() {
            let slot = lane.posted.pop().expect("as many slots as datagrams");
            let len_bytes = self.recv_batch.len_bytes(index);
            *completion = if len_bytes <= room_bytes {
                let len_bytes = len_bytes as u32;
                Completion { kind: CompletionKind::Received, slot, len_bytes }
            } else {
                let kind = CompletionKind::ReceiveFailed(libc::EMSGSIZE);
                Completion { kind, slot, len_bytes: 0 }
            };
        }
        lane.recv_batch = next_recv_batch(lane.recv_batch, wanted, got);
        got
    }
}

/// How many datagrams to ask for after `got` of `wanted` came: twice as many while the batches are
/// full, as many as came when some did, and back towards one while nothing does.
fn next_recv_batch(batch: usize, wanted: usize, got: usize) -> usize {
    if got == wanted {
        // A batch cut short by the caller's room says nothing about the load.
        batch.max(2 * got).min(BATCH_MAX)
    } else if got > 0 {
        got.next_power_of_two()
    } else {
        (batch / 2).max(1)
    }
}

/// Joins the parts of a socket address; IPv4 has no scope.
fn with_scope(ip: IpAddr, port: u16, scope_id: u32) -> SocketAddr {
    match ip {
        IpAddr::V4(_) => SocketAddr::new(ip, port),
        IpAddr::V6(v6) => SocketAddrV6::new(v6, port, 0, scope_id).into(),
    }
}

impl Port for Udp {
    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn now(&self) -> Nanos {
        kernel::monotonic_ns()
    }

    fn local_address(&self, channel: Channel) -> RawAddress {
        address::encode(self.socket_address(channel))
    }

    fn attach(&mut self, arena: &DatagramArena) -> Result<(), PortError> {
        assert!(self.arena.is_none(), "a port is attached once");
        assert!(arena.slot_bytes() >= self.caps.datagram_bytes_max, "slots hold any datagram");
        self.arena = Some(arena.clone());
        Ok(())
    }

    fn insert(
        &mut self,
        channel: Channel,
        address: &RawAddress,
        _context: u64,
    ) -> Result<Insertion, PortError> {
        let mut peer = address::decode(address)?;
        let local = self.socket_address(channel);
        if let SocketAddr::V6(v6) = &mut peer {
            // A scope id numbers the interfaces of the peer's host; here ours counts.
            let ours = self.interface.as_ref().map_or(v6.scope_id(), |interface| interface.index);
            v6.set_scope_id(if v6.ip().is_unicast_link_local() { ours } else { 0 });
        }
        address::check_peer(peer, local)?;
        route::check_route(local, peer, self.caps.datagram_bytes_max)?;
        Ok(Insertion::Ready(self.addresses.insert(peer)))
    }

    fn reap_inserts(&mut self, _out: &mut ArrayVec<InsertResult, 64>) {
        // Insertions are over when `insert` returns: there is never a result outstanding.
    }

    fn remove(&mut self, _channel: Channel, peer: PortPeer) {
        self.addresses.remove(peer);
    }

    fn post_recvs(&mut self, channel: Channel, slots: &[u32]) -> usize {
        let arena = self.arena.as_ref().expect("a port is attached before anything is posted");
        let lane = &mut self.lanes[channel as usize];
        let room = self.caps.recv_depth - lane.posted.len();
        let taken = &slots[..slots.len().min(room)];
        assert!(taken.iter().all(|&slot| (slot as usize) < arena.slots()), "slots of the arena");
        lane.posted.extend_from_slice(taken);
        taken.len()
    }

    fn post_sends(&mut self, channel: Channel, ops: &[SendOp]) -> usize {
        let ops = &ops[..ops.len().min(BATCH_MAX)];
        let mut taken = 0;
        let mut stale = 0;
        while taken < ops.len() {
            let filled = self.fill_send_batch(&ops[taken..]);
            let lane = &mut self.lanes[channel as usize];
            let refusal = match filled {
                Err(code) => Refusal::Final(code),
                // SAFETY: slots handed over with a send are the port's to read, gathered memory is
                // readable until the send completes, and the address table is not touched.
                Ok(()) => match unsafe { self.send_batch.send(lane.socket.fd()) } {
                    Ok(sent) => {
                        taken += sent;
                        continue;
                    }
                    Err(error) => Refusal::of(&error),
                },
            };
            match refusal {
                Refusal::Stale if stale < STALE_ERRORS_MAX => stale += 1,
                Refusal::Busy | Refusal::Stale => break,
                Refusal::Final(_) if lane.failed.len() == self.caps.send_depth => break,
                Refusal::Final(code) => {
                    lane.failed.push_back((ops[taken].slot, code));
                    taken += 1;
                }
            }
        }
        taken
    }

    fn poll(&mut self, channel: Channel, out: &mut [Completion]) -> usize {
        let failed = &mut self.lanes[channel as usize].failed;
        let failures = failed.len().min(out.len());
        for (completion, (slot, code)) in out.iter_mut().zip(failed.drain(..failures)) {
            *completion = Completion { kind: CompletionKind::SendFailed(code), slot, len_bytes: 0 };
        }
        failures + self.receive(channel, &mut out[failures..])
    }

    fn wait(&mut self, timeout_ns: Nanos) {
        if self.lanes.iter().any(|lane| !lane.failed.is_empty()) {
            return;
        }
        let mut fds = Channel::ALL.map(|channel| libc::pollfd {
            fd: self.lanes[channel as usize].socket.fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        ready::wait_ready(&mut fds, Duration::from_nanos(timeout_ns));
    }

    fn describe(&self) -> String {
        let [priority, data] = &self.lanes;
        let interface = self.interface.as_ref().map_or_else(
            || "no listed interface".to_owned(),
            |interface| format!("{} (MTU {} bytes)", interface.name, interface.mtu_bytes),
        );
        format!(
            "udp on {interface}: priority {}, data {}, datagrams up to {} bytes, buffers \
             {} bytes to receive ({} datagrams), {} bytes to send",
            priority.socket.local,
            data.socket.local,
            self.caps.datagram_bytes_max,
            data.socket.recv_buffer_bytes,
            self.caps.recv_backlog_datagrams,
            data.socket.send_buffer_bytes,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receive_batch_follows_the_load() {
        let mut batch = 1;
        for expected in [2, 4, 8, 16, 32, 64, 64] {
            batch = next_recv_batch(batch, batch, batch);
            assert_eq!(batch, expected);
        }
        assert_eq!(next_recv_batch(64, 64, 5), 8);
        assert_eq!(next_recv_batch(64, 3, 3), 64);
        assert_eq!(next_recv_batch(8, 8, 0), 4);
        assert_eq!(next_recv_batch(1, 1, 0), 1);
    }

    #[test]
    fn refusals_are_blamed_on_the_right_datagram() {
        let of = |code| Refusal::of(&io::Error::from_raw_os_error(code));
        assert_eq!(of(libc::EAGAIN), Refusal::Busy);
        assert_eq!(of(libc::ENOBUFS), Refusal::Busy);
        assert_eq!(of(libc::ECONNREFUSED), Refusal::Stale);
        assert_eq!(of(libc::EINTR), Refusal::Stale);
        assert_eq!(of(libc::ENETUNREACH), Refusal::Final(libc::ENETUNREACH));
        assert_eq!(of(libc::EPERM), Refusal::Final(libc::EPERM));
    }
}
