//! libfabric's objects, and closing them in the right order.

use super::PORT;
use crate::ports::PortError;
use libfabric_sys as ffi;
use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;
use tickwire_tables::arena::DatagramArena;

/// One endpoint with its completion queue.
pub(super) struct ChannelObjects {
    pub ep: *mut ffi::fid_ep,
    pub cq: *mut ffi::fid_cq,
}

/// Everything opened; null where not (yet). Dropping closes what is there, users before used.
pub(super) struct Objects {
    pub library: Rc<ffi::Library>,
    pub info: Info,
    pub fabric: *mut ffi::fid_fabric,
    pub domain: *mut ffi::fid_domain,
    pub eq: *mut ffi::fid_eq,
    pub av: *mut ffi::fid_av,
    pub mr: *mut ffi::fid_mr,
    pub channels: [ChannelObjects; 2],
}

/// An owned list of `fi_info`.
pub(super) struct Info {
    pub library: Rc<ffi::Library>,
    pub head: *mut ffi::fi_info,
}

impl Drop for Info {
    fn drop(&mut self) {
        if !self.head.is_null() {
            // SAFETY: the list came from `fi_getinfo` or `fi_dupinfo` and is freed once.
            unsafe { (self.library.freeinfo)(self.head) };
        }
    }
}

impl Objects {
    pub fn new(library: Rc<ffi::Library>, info: Info) -> Self {
        let none = || ChannelObjects { ep: ptr::null_mut(), cq: ptr::null_mut() };
        Self {
            library,
            info,
            fabric: ptr::null_mut(),
            domain: ptr::null_mut(),
            eq: ptr::null_mut(),
            av: ptr::null_mut(),
            mr: ptr::null_mut(),
            channels: [none(), none()],
        }
    }

    /// Registers the arena when the provider wants local memory registered; gives the descriptor
    /// to pass along, or null.
    pub fn register(&mut self, arena: &DatagramArena) -> Result<*mut c_void, PortError> {
        // SAFETY: the info is one that `fi_getinfo` gave, with all its attributes.
        let mode = unsafe { (*(*self.info.head).domain_attr).mr_mode } as u32;
        if mode & ffi::FI_MR_LOCAL == 0 {
            return Ok(ptr::null_mut());
        }
        let access = u64::from(ffi::FI_SEND | ffi::FI_RECV);
        let (domain, base, len) = (self.domain, arena.base(), arena.len_bytes());
        // SAFETY: the domain is open; the mapping lives as long as the port, which keeps a clone
        // of the arena and closes the registration first.
        let code = unsafe {
            match (*(*domain).mr).reg {
                Some(reg) => reg(
                    &mut (*domain).fid,
                    base.cast(),
                    len,
                    access,
                    0,
                    0,
                    0,
                    &mut self.mr,
                    ptr::null_mut(),
                ),
                None => -libc::ENOSYS,
            }
        };
        self.check(code, "fi_mr_reg", || format!("{len} bytes"))?;
        // SAFETY: registered just now.
        Ok(unsafe { (*self.mr).mem_desc })
    }

    /// Turns a libfabric code into an error that says what failed for what.
    pub fn check(
        &self,
        code: i32,
        call: &'static str,
        subject: impl FnOnce() -> String,
    ) -> Result<(), PortError> {
        if code == 0 {
            return Ok(());
        }
        let reason = self.library.error_text(i64::from(code));
        Err(PortError::Call { port: PORT, call, subject: subject(), reason })
    }
}

fn close(fid: *mut ffi::fid) {
    // SAFETY: called once for each object that was opened, before those it was opened from.
    unsafe {
        if let Some(close) = (*(*fid).ops).close {
            close(fid);
        }
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        // The first member of each object is its `fid`.
        let [a, b] = &self.channels;
        let order: [*mut ffi::fid; 9] = [
            b.ep.cast(),
            a.ep.cast(),
            b.cq.cast(),
            a.cq.cast(),
            self.mr.cast(),
            self.av.cast(),
            self.eq.cast(),
            self.domain.cast(),
            self.fabric.cast(),
        ];
        order.into_iter().filter(|fid| !fid.is_null()).for_each(close);
    }
}
