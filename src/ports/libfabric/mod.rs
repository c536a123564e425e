//! Every libfabric provider that has `FI_EP_DGRAM` endpoints.
//!
//! One rail is a domain with two endpoints (priority, data), each with a completion queue of its
//! own, and one address vector. Address insertion is asynchronous (events) where the provider
//! allows it. Limits are read from the provider's info and never assumed. See `fi_endpoint(3)`,
//! `fi_av(3)`, `fi_cq(3)`.

#![allow(unsafe_code)]

mod inserts;
mod objects;
mod open;

pub use open::{LibfabricConfig, ProviderInfo, providers};

use super::{
    Channel, Completion, CompletionKind, InsertResult, Insertion, Port, PortCaps, PortError,
    PortPeer, RawAddress, SendOp, kernel,
};
use crate::time::Nanos;
use arrayvec::ArrayVec;
use inserts::Inserts;
use libfabric_sys as ffi;
use objects::{ChannelObjects, Objects};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr;
use tickwire_tables::arena::DatagramArena;

pub(super) const PORT: &str = "libfabric";

/// Completion queue entries read by one call.
const CQ_BATCH: usize = 64;

/// A libfabric rail.
pub struct Libfabric {
    /// First, as fields are dropped in this order: libfabric may look into all others until its
    /// objects are closed.
    objects: Objects,
    caps: PortCaps,
    description: String,
    provider: String,
    local: [RawAddress; 2],
    inserts: Inserts,
    arena: Option<DatagramArena>,
    /// One per slot, at a fixed place: a slot has one operation outstanding at most, and the
    /// place of its context tells the slot.
    contexts: Box<[ffi::fi_context2]>,
    descriptor: *mut c_void,
    /// Operations that failed in the call, to be reported as completions.
    failed: [VecDeque<(u32, CompletionKind)>; 2],
    /// What a poll reads into; kept, as clearing it anew would cost more than an empty poll.
    entries: Box<[ffi::fi_cq_msg_entry; CQ_BATCH]>,
}

impl Libfabric {
    /// Opens a rail. Every refusal names what to do about it.
    pub fn open(config: &LibfabricConfig) -> Result<Self, PortError> {
        open::open(config)
    }

    /// The provider that was opened.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    fn channel(&self, channel: Channel) -> &ChannelObjects {
        &self.objects.channels[channel as usize]
    }

    fn context(&mut self, slot: u32) -> *mut c_void {
        ptr::from_mut(&mut self.contexts[slot as usize]).cast()
    }

    /// The slot whose context this is; `None` for a context of nobody's.
    fn slot_of(&self, context: *mut c_void) -> Option<u32> {
        let offset = (context as usize).checked_sub(self.contexts.as_ptr() as usize)?;
        let slot = offset / size_of::<ffi::fi_context2>();
        (slot < self.contexts.len()).then_some(slot as u32)
    }

    fn slot_ptr(&self, slot: u32) -> *mut u8 {
        self.arena.as_ref().expect("attached before anything is posted").slot_ptr(slot)
    }

    /// One send; the error is libfabric's negative number.
    fn send(&mut self, channel: Channel, op: &SendOp) -> Result<(), i64> {
        let context = self.context(op.slot);
        let (base, len) = (self.slot_ptr(op.slot), self.caps.prefix_bytes + op.len_bytes as usize);
        let room = self.arena.as_ref().map_or(0, DatagramArena::slot_bytes);
        assert!(len <= room && op.peer != PortPeer::NONE, "{op:?} in slots of {room} bytes");
        let ep = self.channel(channel).ep;
        // One descriptor for each piece; the second is null, as ports that register do not gather.
        let mut desc = [self.descriptor, ptr::null_mut()];
        // SAFETY: the endpoint is open; the slot was lent to this port by the engine and holds
        // `len` initialised bytes that stay until the completion; so does gathered user memory
        // (`Gather`); the context is this slot's own and stays in place.
        let code = unsafe {
            let ops = &*(*ep).msg;
            match op.gather {
                None => match ops.send {
                    Some(send) => send(ep, base.cast(), len, desc[0], op.peer.0, context),
                    None => return Err(-i64::from(libc::ENOSYS)),
                },
                Some(gather) => {
                    let iov = [
                        ffi::iovec { iov_base: base.cast(), iov_len: len },
                        ffi::iovec {
                            iov_base: gather.ptr().cast_mut().cast(),
                            iov_len: gather.len_bytes() as usize,
                        },
                    ];
                    match ops.sendv {
                        Some(sendv) => sendv(
                            ep,
                            iov.as_ptr(),
                            desc.as_mut_ptr(),
                            iov.len(),
                            op.peer.0,
                            context,
                        ),
                        None => return Err(-i64::from(libc::ENOSYS)),
                    }
                }
            }
        };
        if code == 0 { Ok(()) } else { Err(code as i64) }
    }

    /// Reads one entry from the error queue of `channel`.
    fn read_error(&mut self, channel: Channel) -> Option<Completion> {
        let cq = self.channel(channel).cq;
        // SAFETY: all zero is a valid `fi_cq_err_entry` (numbers and null pointers).
        let mut entry: ffi::fi_cq_err_entry = unsafe { std::mem::zeroed() };
        // SAFETY: the queue is open and the entry is ours to write.
        let got = unsafe { (*(*cq).ops).readerr.map(|readerr| readerr(cq, &mut entry, 0)) };
        if got != Some(1) {
            return None;
        }
        let slot = self.slot_of(entry.op_context)?;
        let kind = if entry.flags & u64::from(ffi::FI_RECV) != 0 {
            CompletionKind::ReceiveFailed(entry.err)
        } else {
            CompletionKind::SendFailed(entry.err)
        };
        Some(Completion { kind, slot, len_bytes: 0 })
    }

    fn take_failed(&mut self, channel: Channel, out: &mut [Completion]) -> usize {
        let failed = &mut self.failed[channel as usize];
        let n = failed.len().min(out.len());
        for (place, (slot, kind)) in out.iter_mut().zip(failed.drain(..n)) {
            *place = Completion { kind, slot, len_bytes: 0 };
        }
        n
    }
}

impl Port for Libfabric {
    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn now(&self) -> Nanos {
        kernel::monotonic_ns()
    }

    fn local_address(&self, channel: Channel) -> RawAddress {
        self.local[channel as usize].clone()
    }

    fn attach(&mut self, arena: &DatagramArena) -> Result<(), PortError> {
        let need = self.caps.prefix_bytes + self.caps.datagram_bytes_max;
        assert!(arena.slot_bytes() >= need, "slots hold prefix and any datagram");
        assert!(self.arena.is_none(), "a port is attached once");
        self.contexts = (0..arena.slots())
            // SAFETY: all zero is a valid `fi_context2` (pointers only).
            .map(|_| unsafe { std::mem::zeroed() })
            .collect();
        self.descriptor = self.objects.register(arena)?;
        self.arena = Some(arena.clone());
        Ok(())
    }

    fn insert(
        &mut self,
        _channel: Channel,
        address: &RawAddress,
        context: u64,
    ) -> Result<Insertion, PortError> {
        self.inserts.start(&self.objects, address, context)
    }

    fn reap_inserts(&mut self, out: &mut ArrayVec<InsertResult, 64>) {
        self.inserts.reap(&self.objects, out);
    }

    fn remove(&mut self, _channel: Channel, peer: PortPeer) {
        let (av, mut addr) = (self.objects.av, peer.0);
        // SAFETY: the vector is open; the address came from it.
        unsafe {
            if let Some(remove) = (*(*av).ops).remove {
                remove(av, &mut addr, 1, 0);
            }
        }
    }

    fn post_recvs(&mut self, channel: Channel, slots: &[u32]) -> usize {
        let len = self.caps.prefix_bytes + self.caps.datagram_bytes_max;
        for (i, &slot) in slots.iter().enumerate() {
            let (context, base) = (self.context(slot), self.slot_ptr(slot));
            let (ep, desc) = (self.channel(channel).ep, self.descriptor);
            // SAFETY: the endpoint is open; the slot is lent to this port, has room for `len`
            // bytes (checked by `attach`) and stays until its completion.
            let code = unsafe {
                match (*(*ep).msg).recv {
                    Some(recv) => recv(ep, base.cast(), len, desc, open::ADDR_UNSPEC, context),
                    None => return i,
                }
            };
            match i32::try_from(code).unwrap_or(-libc::EIO) {
                0 => {}
                code if code == -(ffi::FI_EAGAIN as i32) => return i,
                code => {
                    let kind = CompletionKind::ReceiveFailed(-code);
                    self.failed[channel as usize].push_back((slot, kind));
                }
            }
        }
        slots.len()
    }

    fn post_sends(&mut self, channel: Channel, ops: &[SendOp]) -> usize {
        for (i, op) in ops.iter().enumerate() {
            match self.send(channel, op) {
                Ok(()) => {}
                Err(code) if code == -i64::from(ffi::FI_EAGAIN) => return i,
                Err(code) => {
                    let code = i32::try_from(-code).unwrap_or(libc::EIO);
                    let kind = CompletionKind::SendFailed(code);
                    self.failed[channel as usize].push_back((op.slot, kind));
                }
            }
        }
        ops.len()
    }

    fn poll(&mut self, channel: Channel, out: &mut [Completion]) -> usize {
        let mut got = self.take_failed(channel, out);
        if got == out.len() {
            return got;
        }
        let cq = self.channel(channel).cq;
        let want = CQ_BATCH.min(out.len() - got);
        // SAFETY: the queue is open, of the format of `fi_cq_msg_entry`, and `entries` has room
        // for `want` of them.
        let read = unsafe {
            match (*(*cq).ops).read {
                Some(read) => read(cq, self.entries.as_mut_ptr().cast(), want),
                None => 0,
            }
        };
        if read == -(ffi::FI_EAVAIL as isize) {
            if let Some(completion) = self.read_error(channel) {
                out[got] = completion;
                got += 1;
            }
            return got;
        }
        for entry in &self.entries[..usize::try_from(read).unwrap_or(0)] {
            let Some(slot) = self.slot_of(entry.op_context) else { continue };
            out[got] = if entry.flags & u64::from(ffi::FI_RECV) != 0 {
                let len_bytes = entry.len.saturating_sub(self.caps.prefix_bytes) as u32;
                Completion { kind: CompletionKind::Received, slot, len_bytes }
            } else {
                Completion { kind: CompletionKind::Sent, slot, len_bytes: 0 }
            };
            got += 1;
        }
        got
    }

    fn wait(&mut self, timeout_ns: Nanos) {
        // Manual progress means that only polling sees arrivals: sleep in short steps.
        std::thread::sleep(std::time::Duration::from_nanos(timeout_ns.min(50_000)));
    }

    fn describe(&self) -> String {
        self.description.clone()
    }
}
