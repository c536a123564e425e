//! An engine as C sees it: opened, ticked, closed, looked at.

use super::events::{CHandler, tw_handler, tw_stranger};
use super::{guard, put_text, text, tw_options, tw_status, tw_status::*};
use crate::context::Context;
use crate::engine::Engine;
use crate::error::BuildError;
use crate::ports::Port;
use crate::ports::any::AnyPort;
use std::cell::{Cell, UnsafeCell};
use std::ffi::{CString, c_char, c_void};
use std::ptr::null_mut;

/// One process's end of the job. Used by one thread at a time; the caller's lock, if there are
/// several, covers every call with this engine. Functions that send may be called from inside an
/// event handler; those that say so may not.
pub struct tw_engine {
    engine: UnsafeCell<Engine<AnyPort>>,
    /// The context of the event that is being handled, null outside of handlers.
    current: Cell<*mut Context<AnyPort>>,
    handler: Cell<tw_handler>,
    stranger: Cell<tw_stranger>,
    user: Cell<*mut c_void>,
    warnings: CString,
    counter_names: Vec<CString>,
}

impl tw_engine {
    /// The sending half, inside and outside of handlers.
    pub(super) fn with_context<R>(&self, body: impl FnOnce(&mut Context<AnyPort>) -> R) -> R {
        let current = self.current.get();
        if current.is_null() {
            // SAFETY: outside of handlers nobody borrows the engine: calls come one at a time.
            return body(unsafe { &mut *self.engine.get() });
        }
        // SAFETY: it is what the handler was given; the tick that gave it waits for the handler and
        // uses it no more than we do.
        body(unsafe { &mut *current })
    }

    /// The whole engine, which only outside of handlers can be had.
    pub(super) fn with_engine(
        &self,
        body: impl FnOnce(&mut Engine<AnyPort>, &mut CHandler<'_>) -> tw_status,
    ) -> tw_status {
        if !self.current.get().is_null() {
            return TW_BUSY;
        }
        // SAFETY: outside of handlers nobody else borrows the engine, and while `body` runs,
        // handlers reach it only through `current`, which derives from this borrow.
        body(unsafe { &mut *self.engine.get() }, &mut CHandler { api: self })
    }

    /// Calls the handler, with `context` as what its calls work on.
    pub(super) fn handle<R>(
        &self,
        context: *mut Context<AnyPort>,
        call: impl FnOnce(*mut c_void) -> R,
    ) -> R {
        let before = self.current.replace(context);
        let result = call(self.user.get());
        self.current.set(before);
        result
    }

    pub(super) fn handler(&self) -> tw_handler {
        self.handler.get()
    }

    pub(super) fn stranger(&self) -> tw_stranger {
        self.stranger.get()
    }
}

/// Opens an engine. `options` stay the caller's. What was wrong goes to `error`, which may be null.
///
/// # Safety
/// `options` came from `tw_options_new`; `engine` is writable; `error` has `error_bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_open(
    options: *const tw_options,
    engine: *mut *mut tw_engine,
    error: *mut c_char,
    error_bytes: usize,
) -> tw_status {
    guard(|| {
        // SAFETY: by this function's contract.
        let (Some(options), Some(out)) = (unsafe { (options.as_ref(), engine.as_mut()) }) else {
            return TW_BAD_ARGUMENT;
        };
        match open(options) {
            Ok(engine) => {
                *out = Box::into_raw(engine);
                TW_OK
            }
            Err(reason) => {
                // SAFETY: by this function's contract.
                unsafe { put_text(error, error_bytes, &reason.to_string()) };
                tw_status::from(&reason)
            }
        }
    })
}

fn open(options: &tw_options) -> Result<Box<tw_engine>, BuildError> {
    let (port, mut warnings) = options.open_port()?;
    let engine = Engine::new(options.config().clone(), port)?;
    warnings.extend(engine.warnings());
    let names = engine.counters().rows().into_iter().map(|(name, _)| CString::new(name));
    Ok(Box::new(tw_engine {
        counter_names: names.map(Result::unwrap_or_default).collect(),
        engine: UnsafeCell::new(engine),
        current: Cell::new(null_mut()),
        handler: Cell::new(None),
        stranger: Cell::new(None),
        user: Cell::new(null_mut()),
        warnings: CString::new(warnings.join("\n")).unwrap_or_default(),
    }))
}

/// Frees an engine at once, with all that it has not sent: `tw_close` before it waits. Null is
/// fine. Not from inside a handler.
///
/// # Safety
/// `engine` came from `tw_open` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_free(engine: *mut tw_engine) {
    if !engine.is_null() {
        // SAFETY: made by `Box::into_raw` in `tw_open`, by this function's contract.
        drop(unsafe { Box::from_raw(engine) });
    }
}

/// Who hears of events: `handler` for all of them; `stranger`, which may be null, when a process
/// of this job that was never added sends something. `user` is handed to both.
#[unsafe(no_mangle)]
pub extern "C" fn tw_set_handler(
    engine: &tw_engine,
    handler: tw_handler,
    stranger: tw_stranger,
    user: *mut c_void,
) {
    engine.handler.set(handler);
    engine.stranger.set(stranger);
    engine.user.set(user);
}

/// One turn: takes in what arrived, tells the handler, sends what is due. Never blocks. `work`,
/// which may be null, becomes the number of things done: 0 when there was nothing to do. Not from
/// inside a handler.
///
/// # Safety
/// `work` is writable or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_tick(engine: &tw_engine, work: *mut u32) -> tw_status {
    guard(|| {
        engine.with_engine(|it, handler| {
            let done = it.tick(handler);
            // SAFETY: by this function's contract.
            if let Some(work) = unsafe { work.as_mut() } {
                *work = done.completions + done.posted + done.prepared;
            }
            TW_OK
        })
    })
}

/// Sleeps until something may have arrived or is due, at most `timeout_ns`. Not from inside a
/// handler.
#[unsafe(no_mangle)]
pub extern "C" fn tw_wait(engine: &tw_engine, timeout_ns: u64) -> tw_status {
    guard(|| {
        engine.with_engine(|it, _| {
            it.wait(timeout_ns);
            TW_OK
        })
    })
}

/// Closes towards all peers and ticks until everything sent has arrived and all have said goodbye:
/// `TW_OK`; or until `linger_ns` is over: `TW_AGAIN`. Not from inside a handler.
#[unsafe(no_mangle)]
pub extern "C" fn tw_close(engine: &tw_engine, linger_ns: u64) -> tw_status {
    guard(|| {
        engine
            .with_engine(|it, handler| if it.close(handler, linger_ns) { TW_OK } else { TW_AGAIN })
    })
}

/// Copies this process's address, for the others' `tw_add_peer`, to `out` if it has room, and
/// returns its length (at most `TW_ADDRESS_BYTES_MAX`) in any case. Not from inside a handler,
/// where it is 0.
///
/// # Safety
/// `out` has `out_bytes` writable bytes, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_address(
    engine: &tw_engine,
    out: *mut c_void,
    out_bytes: usize,
) -> usize {
    let mut blob = Vec::new();
    guard(|| {
        engine.with_engine(|it, _| {
            blob = it.local_address().to_bytes();
            TW_OK
        })
    });
    if !out.is_null() && blob.len() <= out_bytes {
        // SAFETY: `out` has room, by this function's contract and the comparison.
        unsafe { std::ptr::copy_nonoverlapping(blob.as_ptr(), out.cast(), blob.len()) };
    }
    blob.len()
}

/// The port and its limits in words, to `out` (at most `out_bytes`, terminated).
///
/// # Safety
/// `out` has `out_bytes` writable bytes, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_describe(engine: &tw_engine, out: *mut c_char, out_bytes: usize) {
    guard(|| {
        engine.with_engine(|it, _| {
            let words = format!("{}; {}", it.port().describe(), it.limits_text());
            // SAFETY: by this function's contract.
            unsafe { put_text(out, out_bytes, &words) };
            TW_OK
        })
    });
}

/// What is set and cannot be used in full, in words, a line each; empty if nothing. Lives as long
/// as the engine.
#[unsafe(no_mangle)]
pub extern "C" fn tw_warnings(engine: &tw_engine) -> *const c_char {
    engine.warnings.as_ptr()
}

/// The counter at `index`, from 0 on: its name, which lives as long as the engine, and its value.
/// `TW_BAD_ARGUMENT` behind the last one.
///
/// # Safety
/// `name` and `value` are writable or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_counter_at(
    engine: &tw_engine,
    index: usize,
    name: *mut *const c_char,
    value: *mut u64,
) -> tw_status {
    guard(|| {
        let Some(text) = engine.counter_names.get(index) else { return TW_BAD_ARGUMENT };
        let number = engine.with_context(|c| c.counters().rows()[index].1);
        // SAFETY: by this function's contract.
        unsafe {
            if let Some(name) = name.as_mut() {
                *name = text.as_ptr();
            }
            if let Some(value) = value.as_mut() {
                *value = number;
            }
        }
        TW_OK
    })
}

/// The counter of that name.
///
/// # Safety
/// `name` ends in a zero byte; `value` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_counter(
    engine: &tw_engine,
    name: *const c_char,
    value: *mut u64,
) -> tw_status {
    guard(|| {
        // SAFETY: by this function's contract.
        let (Some(name), Some(value)) = (unsafe { (text(name), value.as_mut()) }) else {
            return TW_BAD_ARGUMENT;
        };
        let rows = engine.with_context(|c| c.counters().rows());
        let Some((_, number)) = rows.into_iter().find(|(it, _)| *it == name) else {
            return TW_BAD_ARGUMENT;
        };
        *value = number;
        TW_OK
    })
}
