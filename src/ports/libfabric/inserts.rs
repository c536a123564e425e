//! Address insertion, at once or by events.
//!
//! With events, a failed insertion gives an error entry and then a normal one as well (`fi_av(3)`
//! and experience), so only the normal one ends it. No more are outstanding than the event queue
//! holds two entries each for.

use super::PORT;
use super::objects::Objects;
use crate::ports::{InsertResult, Insertion, PortError, PortPeer, RawAddress};
use arrayvec::ArrayVec;
use libfabric_sys as ffi;
use std::ffi::c_void;
use std::ptr;

/// Insertions outstanding at most.
pub(super) const OUTSTANDING_MAX: usize = 64;

/// Entries that the event queue is opened with.
pub(super) const EQ_ENTRIES: usize = OUTSTANDING_MAX * 2;

#[derive(Clone, Copy)]
struct Pending {
    context: u64,
    /// Where the provider writes the result.
    addr: ffi::fi_addr_t,
    error: i32,
    in_use: bool,
}

pub(super) struct Inserts {
    by_event: bool,
    /// On the heap and never moved: the provider writes into it.
    pending: Box<[Pending]>,
    outstanding: usize,
}

impl Inserts {
    pub fn new(by_event: bool) -> Self {
        let free = Pending { context: 0, addr: u64::MAX, error: 0, in_use: false };
        Self { by_event, pending: vec![free; OUTSTANDING_MAX].into(), outstanding: 0 }
    }

    pub fn start(
        &mut self,
        objects: &Objects,
        address: &RawAddress,
        context: u64,
    ) -> Result<Insertion, PortError> {
        // The length is fixed by the address format, so the provider is not told one.
        if address.0.len() != objects_address_bytes(objects) {
            return Err(PortError::Unusable {
                port: PORT,
                value: format!("address of {} bytes", address.0.len()),
                reason: "not an address of this provider's format".into(),
            });
        }
        let Some(place) = self.pending.iter().position(|pending| !pending.in_use) else {
            return Err(PortError::Again { port: PORT });
        };
        let pending = &mut self.pending[place];
        *pending = Pending { context, addr: u64::MAX, error: 0, in_use: true };
        let av = objects.av;
        // SAFETY: the vector is open; the address has the format's length; the place for the
        // result is on the heap and stays until the event. The context is a number that the
        // provider only hands back.
        let code = unsafe {
            match (*(*av).ops).insert {
                Some(insert) => insert(
                    av,
                    address.0.as_ptr().cast(),
                    1,
                    &mut pending.addr,
                    0,
                    place as *mut c_void,
                ),
                None => -libc::ENOSYS,
            }
        };
        if self.by_event && code == 0 {
            self.outstanding += 1;
            return Ok(Insertion::Pending);
        }
        pending.in_use = false;
        if code == 1 && pending.addr != u64::MAX {
            return Ok(Insertion::Ready(PortPeer(pending.addr)));
        }
        let code = if code == 1 || code == 0 { -libc::EADDRNOTAVAIL } else { code };
        objects.check(code, "fi_av_insert", || format!("{:02x?}", address.0.as_slice()))?;
        unreachable!("a code that is not 0 is an error")
    }

    pub fn reap(&mut self, objects: &Objects, out: &mut ArrayVec<InsertResult, 64>) {
        while self.outstanding > 0 && !out.is_full() {
            let eq = objects.eq;
            let mut event = 0u32;
            let mut entry =
                ffi::fi_eq_entry { fid: ptr::null_mut(), context: ptr::null_mut(), data: 0 };
            // SAFETY: the queue is open; `entry` has room for the size passed.
            let got = unsafe {
                let read = (*(*eq).ops).read;
                let size = size_of::<ffi::fi_eq_entry>();
                read.map_or(0, |read| read(eq, &mut event, (&raw mut entry).cast(), size, 0))
            };
            if got == -(ffi::FI_EAVAIL as isize) {
                if !self.note_error(eq) {
                    return;
                }
                continue;
            }
            if got <= 0 {
                return;
            }
            if let Some(result) = self.finish(entry.context as usize) {
                out.push(result);
            }
        }
    }

    fn note_error(&mut self, eq: *mut ffi::fid_eq) -> bool {
        // SAFETY: all zero is a valid `fi_eq_err_entry`.
        let mut entry: ffi::fi_eq_err_entry = unsafe { std::mem::zeroed() };
        // SAFETY: the queue is open and the entry is ours to write.
        let got = unsafe { (*(*eq).ops).readerr.map_or(0, |readerr| readerr(eq, &mut entry, 0)) };
        if got <= 0 {
            return false;
        }
        if let Some(pending) = self.pending.get_mut(entry.context as usize) {
            pending.error = if entry.err == 0 { libc::EADDRNOTAVAIL } else { entry.err };
        }
        true
    }

    fn finish(&mut self, place: usize) -> Option<InsertResult> {
        let pending = self.pending.get_mut(place).filter(|pending| pending.in_use)?;
        pending.in_use = false;
        self.outstanding -= 1;
        let result = match (pending.error, pending.addr) {
            (0, u64::MAX) => Err(libc::EADDRNOTAVAIL),
            (0, addr) => Ok(PortPeer(addr)),
            (error, _) => Err(error),
        };
        Some(InsertResult { context: pending.context, result })
    }
}

fn objects_address_bytes(objects: &Objects) -> usize {
    // SAFETY: the info lives as long as `objects`.
    unsafe { (*objects.info.head).src_addrlen }
}
