//! What an engine is opened with, set by name: as parameters of a runtime arrive.

use super::{guard, put_text, text, tw_status, tw_status::*};
use crate::config::Config;
use crate::congestion::Congestion;
use crate::ids::{AuthKey, Incarnation, JobKey, Rank};
use crate::ports::any::AnyPort;
use crate::ports::faults::FaultConfig;
use crate::ports::libfabric::{Libfabric, LibfabricConfig};
use crate::ports::udp::{Udp, UdpConfig};
use std::ffi::c_char;
use std::fmt::Display;
use std::str::FromStr;

/// Which port is opened.
#[derive(Clone, Copy, PartialEq)]
enum PortName {
    Udp,
    Libfabric,
}

/// What an engine is opened with.
pub struct tw_options {
    config: Config,
    port: PortName,
    udp: UdpConfig,
    libfabric: LibfabricConfig,
    faults: Option<FaultConfig>,
    seed: u64,
}

/// Options of process `rank` of the job that `job_key` names, all others at their defaults. Freed
/// with `tw_options_free`.
#[unsafe(no_mangle)]
pub extern "C" fn tw_options_new(rank: u32, job_key: u64) -> *mut tw_options {
    Box::into_raw(Box::new(tw_options {
        config: Config::new(Rank(rank), JobKey(job_key)),
        port: PortName::Udp,
        udp: UdpConfig::default(),
        libfabric: LibfabricConfig::default(),
        faults: None,
        seed: 0,
    }))
}

/// Frees options; null is fine.
///
/// # Safety
/// `options` came from `tw_options_new` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_options_free(options: *mut tw_options) {
    if !options.is_null() {
        // SAFETY: made by `Box::into_raw` in `tw_options_new`, by this function's contract.
        drop(unsafe { Box::from_raw(options) });
    }
}

/// Sets one option from text. Names: `port` (`udp`, `libfabric`), `provider`, `bind` (an IP
/// address), `faults` (`loss=1%,dup=0.5%,reorder=5%,corrupt=0.1%`), `seed`, `name`, `incarnation`,
/// `auth_key` (32 hexadecimal digits), `checksum`, `ordered` (0 or 1), `congestion` (`delay`,
/// `fixed`) and the numbers of `Config` in `docs/c-interface.md`, such as `window_segments`.
/// What was wrong goes to `error` (at most `error_bytes`, terminated), which may be null.
///
/// # Safety
/// `options` came from `tw_options_new`; the texts end in zero bytes; `error` has `error_bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_options_set(
    options: *mut tw_options,
    name: *const c_char,
    value: *const c_char,
    error: *mut c_char,
    error_bytes: usize,
) -> tw_status {
    guard(|| {
        // SAFETY: by this function's contract.
        let (options, name, value) = unsafe { (options.as_mut(), text(name), text(value)) };
        let (Some(options), Some(name), Some(value)) = (options, name, value) else {
            return TW_BAD_ARGUMENT;
        };
        match options.set(name, value) {
            Ok(()) => TW_OK,
            Err(reason) => {
                let reason = format!("{name} = {value}: {reason}");
                // SAFETY: by this function's contract.
                unsafe { put_text(error, error_bytes, &reason) };
                TW_BAD_ARGUMENT
            }
        }
    })
}

/// Reads a value, or says what is wrong with it.
fn read<T: FromStr<Err: Display>>(value: &str, out: &mut T) -> Result<(), String> {
    *out = value.parse().map_err(|error: T::Err| error.to_string())?;
    Ok(())
}

fn switch(value: &str, out: &mut bool) -> Result<(), String> {
    *out = match value {
        "1" | "true" | "yes" | "on" => true,
        "0" | "false" | "no" | "off" => false,
        _ => return Err("expected 0 or 1".into()),
    };
    Ok(())
}

impl tw_options {
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "port" => {
                self.port = match value {
                    "udp" => PortName::Udp,
                    "libfabric" => PortName::Libfabric,
                    _ => return Err("there are udp and libfabric".into()),
                }
            }
            "provider" => self.libfabric.provider = Some(value.to_owned()),
            "bind" => {
                let address = value.parse().map_err(|_| "expected an IP address".to_owned())?;
                (self.udp.bind, self.libfabric.bind) = (Some(address), Some(address));
            }
            "faults" => {
                let faults = value.parse::<FaultConfig>().map_err(|error| error.to_string())?;
                self.faults = Some(faults);
                // What corrupts can only be borne with a checksum.
                self.config.checksum |= faults.corrupt > 0.0;
            }
            "seed" => read(value, &mut self.seed)?,
            "socket_buffer_bytes" => read(value, &mut self.udp.socket_buffer_bytes)?,
            "datagram_bytes_max" => {
                let mut bytes = 0;
                read(value, &mut bytes)?;
                self.udp.datagram_bytes_max = Some(bytes);
            }
            "auth_key" => {
                let key = AuthKey::from_hex(value).ok_or("expected 32 hexadecimal digits")?;
                self.config.authenticate = Some(key);
            }
            "congestion" => {
                self.config.congestion = match value {
                    "delay" => Congestion::Delay { target_ns: 100_000 },
                    "fixed" => Congestion::Fixed,
                    _ => return Err("there are delay and fixed".into()),
                }
            }
            _ => return self.set_config(name, value),
        }
        Ok(())
    }

    fn set_config(&mut self, name: &str, value: &str) -> Result<(), String> {
        let c = &mut self.config;
        match name {
            "name" => value.clone_into(&mut c.name),
            "incarnation" => {
                let mut number = 0;
                read(value, &mut number)?;
                c.incarnation = Incarnation(number);
            }
            "checksum" => switch(value, &mut c.checksum)?,
            "ordered" => switch(value, &mut c.ordered)?,
            "peers_max" => read(value, &mut c.peers_max)?,
            "ranks_max" => read(value, &mut c.ranks_max)?,
            "active_peers_max" => read(value, &mut c.active_peers_max)?,
            "window_segments" => read(value, &mut c.window_segments)?,
            "send_slots" => read(value, &mut c.send_slots)?,
            "ack_slots" => read(value, &mut c.ack_slots)?,
            "receive_slots" => read(value, &mut c.receive_slots)?,
            "fragments_max" => read(value, &mut c.fragments_max)?,
            "message_bytes_max" => read(value, &mut c.message_bytes_max)?,
            "half_received_bytes_max" => read(value, &mut c.half_received_bytes_max)?,
            "buffers_kept_bytes_max" => read(value, &mut c.buffers_kept_bytes_max)?,
            "ack_delay_ns" => read(value, &mut c.ack_delay_ns)?,
            "rto_min_ns" => read(value, &mut c.rto.min_ns)?,
            "rto_max_ns" => read(value, &mut c.rto.max_ns)?,
            "rto_initial_ns" => read(value, &mut c.rto.initial_ns)?,
            "dead_after_ns" => read(value, &mut c.dead_after_ns)?,
            "keepalive_ns" => read(value, &mut c.keepalive_ns)?,
            "completions_per_tick_max" => read(value, &mut c.completions_per_tick_max)?,
            _ => return Err("there is no such option".into()),
        }
        Ok(())
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Opens the port; the second part is what is to be said about it.
    pub(super) fn open_port(&self) -> Result<(AnyPort, Vec<String>), crate::ports::PortError> {
        let (port, warnings) = match self.port {
            PortName::Udp => {
                let port = Udp::open(&self.udp)?;
                let warnings = port.warnings().to_vec();
                (AnyPort::from(port), warnings)
            }
            PortName::Libfabric => (AnyPort::from(Libfabric::open(&self.libfabric)?), Vec::new()),
        };
        let Some(faults) = self.faults else { return Ok((port, warnings)) };
        let seed = self.seed ^ (u64::from(self.config.rank.0) << 32);
        Ok((port.with_faults(faults, seed)?, warnings))
    }
}
