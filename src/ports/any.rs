//! A port chosen at run time: for the C interface, whose engines are all of one type. One
//! predictable branch a call, and calls are made for batches.

use super::faults::{FaultConfig, Faults};
use super::libfabric::Libfabric;
use super::udp::Udp;
use super::{
    Channel, Completion, InsertResult, Insertion, LinkEvent, Port, PortCaps, PortError, PortPeer,
    RawAddress, SendOp,
};
use crate::time::Nanos;
use arrayvec::ArrayVec;
use tickwire_tables::arena::DatagramArena;

/// One of the real ports, with or without faults.
pub enum AnyPort {
    /// Kernel sockets.
    Udp(Box<Udp>),
    /// A libfabric provider.
    Libfabric(Box<Libfabric>),
    /// Kernel sockets that lose and garble what arrives.
    FaultyUdp(Box<Faults<Udp>>),
    /// A libfabric provider that loses and garbles what arrives.
    FaultyLibfabric(Box<Faults<Libfabric>>),
}

impl From<Udp> for AnyPort {
    fn from(port: Udp) -> Self {
        Self::Udp(Box::new(port))
    }
}

impl From<Libfabric> for AnyPort {
    fn from(port: Libfabric) -> Self {
        Self::Libfabric(Box::new(port))
    }
}

impl AnyPort {
    /// The same port with faults, drawn from `seed`.
    pub fn with_faults(self, faults: FaultConfig, seed: u64) -> Result<Self, PortError> {
        Ok(match self {
            Self::Udp(port) => Self::FaultyUdp(Box::new(Faults::new(*port, faults, seed)?)),
            Self::Libfabric(port) => {
                Self::FaultyLibfabric(Box::new(Faults::new(*port, faults, seed)?))
            }
            faulty => faulty,
        })
    }
}

/// The same call on whichever port it is.
macro_rules! each {
    ($any:expr, $port:ident => $call:expr) => {
        match $any {
            AnyPort::Udp($port) => $call,
            AnyPort::Libfabric($port) => $call,
            AnyPort::FaultyUdp($port) => $call,
            AnyPort::FaultyLibfabric($port) => $call,
        }
    };
}

impl Port for AnyPort {
    fn caps(&self) -> &PortCaps {
        each!(self, port => port.caps())
    }

    #[inline]
    fn now(&self) -> Nanos {
        each!(self, port => port.now())
    }

    fn local_address(&self, channel: Channel) -> RawAddress {
        each!(self, port => port.local_address(channel))
    }

    fn attach(&mut self, arena: &DatagramArena) -> Result<(), PortError> {
        each!(self, port => port.attach(arena))
    }

    fn insert(
        &mut self,
        channel: Channel,
        address: &RawAddress,
        context: u64,
    ) -> Result<Insertion, PortError> {
        each!(self, port => port.insert(channel, address, context))
    }

    fn reap_inserts(&mut self, out: &mut ArrayVec<InsertResult, 64>) {
        each!(self, port => port.reap_inserts(out))
    }

    fn remove(&mut self, channel: Channel, peer: PortPeer) {
        each!(self, port => port.remove(channel, peer))
    }

    #[inline]
    fn post_recvs(&mut self, channel: Channel, slots: &[u32]) -> usize {
        each!(self, port => port.post_recvs(channel, slots))
    }

    #[inline]
    fn post_sends(&mut self, channel: Channel, ops: &[SendOp]) -> usize {
        each!(self, port => port.post_sends(channel, ops))
    }

    #[inline]
    fn poll(&mut self, channel: Channel, out: &mut [Completion]) -> usize {
        each!(self, port => port.poll(channel, out))
    }

    fn wait(&mut self, timeout_ns: Nanos) {
        each!(self, port => port.wait(timeout_ns))
    }

    fn link_event(&mut self) -> Option<LinkEvent> {
        each!(self, port => port.link_event())
    }

    fn describe(&self) -> String {
        each!(self, port => port.describe())
    }
}
