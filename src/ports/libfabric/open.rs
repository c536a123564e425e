//! Finding a provider and opening its objects.

use super::inserts::{EQ_ENTRIES, Inserts};
use super::objects::{Info, Objects};
use super::{Libfabric, PORT};
use crate::ports::kernel::UDP_DATAGRAM_BYTES_MAX;
use crate::ports::{Channel, PortCaps, PortError, RawAddress};
use libfabric_sys as ffi;
use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_char};
use std::net::{IpAddr, Ipv4Addr};
use std::ptr;
use std::rc::Rc;

/// `FI_ADDR_UNSPEC`: receive from anybody.
pub(super) const ADDR_UNSPEC: u64 = u64::MAX;

/// Datagrams smaller than this are of no use to anybody.
const DATAGRAM_BYTES_MIN: usize = 128;

/// Which provider, where.
#[derive(Clone, Debug)]
pub struct LibfabricConfig {
    /// Core provider, such as `udp` or `verbs`. Default: the first that has datagram endpoints.
    pub provider: Option<String>,
    /// Local IP address for providers that use them. Default: 127.0.0.1.
    pub bind: Option<IpAddr>,
    /// Insert addresses synchronously even where events are possible.
    pub insert_at_once: bool,
}

impl Default for LibfabricConfig {
    fn default() -> Self {
        let bind = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        Self { provider: None, bind, insert_at_once: false }
    }
}

/// A datagram provider as `tickwire info` shows it. Lengths in bytes, sizes in operations.
#[derive(Clone, Debug)]
pub struct ProviderInfo {
    /// Name.
    pub provider: String,
    /// Domain: the interface or device.
    pub domain: String,
    /// Fabric: the network.
    pub fabric: String,
    /// Largest message as reported, prefix included where there is one.
    pub max_msg_size: usize,
    /// Bytes in front of each message.
    pub prefix: usize,
    /// Pieces that a send may be gathered from.
    pub iov_limit: usize,
    /// Sends outstanding at most.
    pub tx_size: usize,
    /// Receives posted at most.
    pub rx_size: usize,
    /// Why tickwire cannot use it, if it cannot.
    pub usable: Result<(), String>,
}

fn load() -> Result<Rc<ffi::Library>, PortError> {
    let library = ffi::Library::load().map_err(|error| PortError::Missing {
        port: PORT,
        what: format!("libfabric ({error})"),
        hint: format!(
            "install it (Debian: apt-get install libfabric1), name it in {}, or use --port udp",
            ffi::LIBRARY_VARIABLE
        ),
    })?;
    Ok(Rc::new(library))
}

/// All datagram providers of this machine.
pub fn providers() -> Result<Vec<ProviderInfo>, PortError> {
    let infos = get_info(&load()?, None, None)?;
    let mut found = Vec::new();
    let mut next = infos.head;
    while !next.is_null() {
        found.push(describe(next));
        // SAFETY: a list that `fi_getinfo` made ends in null.
        next = unsafe { (*next).next };
    }
    Ok(found)
}

fn text(from: *const c_char) -> String {
    if from.is_null() {
        return String::new();
    }
    // SAFETY: names in an info are C strings.
    unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned()
}

fn describe(info: *const ffi::fi_info) -> ProviderInfo {
    // SAFETY: the info came from `fi_getinfo`, with all its attributes.
    let (info, ep, tx, rx, domain, fabric) = unsafe {
        let i = &*info;
        (i, &*i.ep_attr, &*i.tx_attr, &*i.rx_attr, &*i.domain_attr, &*i.fabric_attr)
    };
    let prefix = if info.mode & ffi::FI_MSG_PREFIX != 0 { ep.msg_prefix_size } else { 0 };
    let provider = text(fabric.prov_name);
    let usable = if provider.contains(';') {
        Err("a utility provider: it adds its own reliability, name the core provider".into())
    } else if ep.max_msg_size.saturating_sub(prefix) < DATAGRAM_BYTES_MIN {
        Err(format!("datagrams of {} bytes are too small", ep.max_msg_size))
    } else if info.mode & !(ffi::FI_MSG_PREFIX | ffi::FI_CONTEXT | ffi::FI_CONTEXT2) != 0 {
        Err(format!("wants mode bits {:#x}", info.mode))
    } else {
        Ok(())
    };
    ProviderInfo {
        provider,
        domain: text(domain.name),
        fabric: text(fabric.name),
        max_msg_size: ep.max_msg_size,
        prefix,
        iov_limit: tx.iov_limit,
        tx_size: tx.size,
        rx_size: rx.size,
        usable,
    }
}

fn get_info(
    library: &Rc<ffi::Library>,
    provider: Option<&str>,
    bind: Option<IpAddr>,
) -> Result<Info, PortError> {
    let hints = duplicate(library, ptr::null())?;
    let subject = format!("provider {}", provider.unwrap_or("(any)"));
    let name = CString::new(provider.unwrap_or("")).map_err(|_| PortError::Unusable {
        port: PORT,
        value: subject.clone(),
        reason: "the name has a zero byte".into(),
    })?;
    let node = bind.map(|ip| CString::new(ip.to_string()).expect("addresses have no zero byte"));
    let mut list = Info { library: library.clone(), head: ptr::null_mut() };
    // SAFETY: the hints were just allocated with their attributes; the name is duplicated with
    // malloc, as `fi_freeinfo` frees it with free.
    let code = unsafe {
        let h = &mut *hints.head;
        h.caps = u64::from(ffi::FI_MSG);
        h.mode = ffi::FI_MSG_PREFIX | ffi::FI_CONTEXT | ffi::FI_CONTEXT2;
        (*h.ep_attr).type_ = ffi::FI_EP_DGRAM;
        (*h.domain_attr).mr_mode = ffi::FI_MR_LOCAL as i32;
        if provider.is_some() {
            (*h.fabric_attr).prov_name = libc::strdup(name.as_ptr());
        }
        let (node, flags) = match &node {
            Some(node) => (node.as_ptr(), ffi::FI_SOURCE | ffi::FI_NUMERICHOST),
            None => (ptr::null(), 0),
        };
        (library.getinfo)(ffi::API_VERSION, node, ptr::null(), flags, hints.head, &mut list.head)
    };
    if code == 0 && !list.head.is_null() {
        return Ok(list);
    }
    Err(PortError::Call {
        port: PORT,
        call: "fi_getinfo",
        subject,
        reason: format!(
            "{}; no such provider with datagram endpoints here (fi_info -t FI_EP_DGRAM lists them)",
            library.error_text(i64::from(code))
        ),
    })
}

/// A copy of an info; of null: an empty one with all its attributes (`fi_allocinfo` of the
/// headers).
fn duplicate(library: &Rc<ffi::Library>, of: *const ffi::fi_info) -> Result<Info, PortError> {
    // SAFETY: `of` is null or an entry of a list that lives; the copy is ours.
    let head = unsafe { (library.dupinfo)(of) };
    if head.is_null() {
        return Err(PortError::Call {
            port: PORT,
            call: "fi_dupinfo",
            subject: "an info".into(),
            reason: "no memory".into(),
        });
    }
    Ok(Info { library: library.clone(), head })
}

/// The first usable entry, as a list of its own.
fn choose(library: &Rc<ffi::Library>, list: &Info) -> Result<(Info, ProviderInfo), PortError> {
    let mut reasons = Vec::new();
    let mut next = list.head;
    while !next.is_null() {
        let found = describe(next);
        match &found.usable {
            Ok(()) => {
                return Ok((duplicate(library, next)?, found));
            }
            Err(reason) => {
                reasons.push(format!("{} on {}: {reason}", found.provider, found.domain))
            }
        }
        // SAFETY: a list that `fi_getinfo` made ends in null.
        next = unsafe { (*next).next };
    }
    let reason = reasons.join("; ");
    Err(PortError::Unusable { port: PORT, value: "every provider offered".into(), reason })
}

pub(super) fn open(config: &LibfabricConfig) -> Result<Libfabric, PortError> {
    let library = load()?;
    let list = get_info(&library, config.provider.as_deref(), config.bind)?;
    let (info, found) = choose(&library, &list)?;
    let mut objects = Objects::new(library.clone(), info);
    open_domain(&mut objects)?;
    let by_event = !config.insert_at_once && open_event_queue(&mut objects).is_ok();
    let by_event = open_av(&mut objects, by_event)?;
    let cq_entries = found.tx_size + found.rx_size;
    let local =
        [open_channel(&mut objects, 0, cq_entries)?, open_channel(&mut objects, 1, cq_entries)?];
    let datagram = (found.max_msg_size - found.prefix).min(UDP_DATAGRAM_BYTES_MAX);
    let (major, minor) = library.version();
    let description = format!(
        "libfabric {major}.{minor}, provider {}, domain {}, fabric {}: datagrams {datagram} B, \
         queues {} / {}, insertion {}",
        found.provider,
        found.domain,
        found.fabric,
        found.tx_size,
        found.rx_size,
        if by_event { "by events" } else { "at once" },
    );
    let caps = PortCaps {
        name: PORT,
        datagram_bytes_max: datagram,
        prefix_bytes: found.prefix,
        // Gathered user memory is not registered.
        gathers: found.iov_limit >= 2 && !wants_registration(&objects),
        send_depth: found.tx_size,
        recv_depth: found.rx_size,
        sends_complete_at_post: false,
        recv_backlog_datagrams: backlog(&found, datagram),
    };
    let failed = [0, 1].map(|_| VecDeque::with_capacity(cq_entries));
    let empty = ffi::fi_cq_msg_entry { op_context: ptr::null_mut(), flags: 0, len: 0 };
    Ok(Libfabric {
        caps,
        description,
        provider: found.provider,
        local,
        inserts: Inserts::new(by_event),
        arena: None,
        contexts: Box::new([]),
        descriptor: ptr::null_mut(),
        failed,
        entries: Box::new([empty; super::CQ_BATCH]),
        objects,
    })
}

fn wants_registration(objects: &Objects) -> bool {
    // SAFETY: the info lives as long as `objects`, with all its attributes.
    unsafe { (*(*objects.info.head).domain_attr).mr_mode as u32 & ffi::FI_MR_LOCAL != 0 }
}

/// The `udp` provider drains the kernel's socket only when it is polled, so what may wait is what
/// the default socket buffer holds, at the kernel's 2304 bytes for a full Ethernet datagram. The
/// kernel credits what was read up to a quarter of the buffer late.
fn backlog(found: &ProviderInfo, datagram: usize) -> usize {
    if found.provider != "udp" {
        return found.rx_size;
    }
    let buffer = std::fs::read_to_string("/proc/sys/net/core/rmem_default");
    let buffer = buffer.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(212_992);
    (buffer / 4 * 3 / (datagram + 832)).clamp(16, found.rx_size.max(16))
}

fn open_domain(objects: &mut Objects) -> Result<(), PortError> {
    let info = objects.info.head;
    // SAFETY: the info is valid, and the places for the results are ours. Objects opened here are
    // closed by `Objects::drop`.
    unsafe {
        let attr = (*info).fabric_attr;
        let code = (objects.library.fabric)(attr, &mut objects.fabric, ptr::null_mut());
        objects.check(code, "fi_fabric", || text((*attr).name))?;
        let fabric = objects.fabric;
        let code = match (*(*fabric).ops).domain {
            Some(domain) => domain(fabric, info, &mut objects.domain, ptr::null_mut()),
            None => -libc::ENOSYS,
        };
        objects.check(code, "fi_domain", || text((*(*info).domain_attr).name))
    }
}

fn open_event_queue(objects: &mut Objects) -> Result<(), PortError> {
    let mut attr = ffi::fi_eq_attr {
        size: EQ_ENTRIES,
        flags: 0,
        wait_obj: ffi::FI_WAIT_NONE,
        signaling_vector: 0,
        wait_set: ptr::null_mut(),
    };
    let fabric = objects.fabric;
    // SAFETY: the fabric is open, the attributes are complete.
    let code = unsafe {
        match (*(*fabric).ops).eq_open {
            Some(eq_open) => eq_open(fabric, &mut attr, &mut objects.eq, ptr::null_mut()),
            None => -libc::ENOSYS,
        }
    };
    objects.check(code, "fi_eq_open", || format!("{EQ_ENTRIES} entries"))
}

/// Opens the address vector, with events when wanted and possible; says which.
fn open_av(objects: &mut Objects, by_event: bool) -> Result<bool, PortError> {
    // SAFETY: all zero is a valid `fi_av_attr`.
    let mut attr: ffi::fi_av_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the info lives as long as `objects`.
    attr.type_ = unsafe { (*(*objects.info.head).domain_attr).av_type };
    if attr.type_ != ffi::FI_AV_TABLE {
        attr.type_ = ffi::FI_AV_MAP;
    }
    attr.flags = if by_event { u64::from(ffi::FI_EVENT) } else { 0 };
    let domain = objects.domain;
    // SAFETY: the domain is open, the attributes are complete.
    let code = unsafe {
        match (*(*domain).ops).av_open {
            Some(av_open) => av_open(domain, &mut attr, &mut objects.av, ptr::null_mut()),
            None => -libc::ENOSYS,
        }
    };
    if code != 0 && by_event {
        // This provider inserts at once only.
        return open_av(objects, false);
    }
    objects.check(code, "fi_av_open", || "the domain".into())?;
    if by_event {
        let (av, eq) = (objects.av, objects.eq);
        // SAFETY: both are open.
        let code = unsafe { bind(&mut (*av).fid, &mut (*eq).fid, 0) };
        objects.check(code, "fi_av_bind", || "its event queue".into())?;
    }
    Ok(by_event)
}

/// SAFETY: both objects are open.
unsafe fn bind(fid: *mut ffi::fid, to: *mut ffi::fid, flags: u64) -> i32 {
    // SAFETY: by the caller's word.
    unsafe { (*(*fid).ops).bind.map_or(-libc::ENOSYS, |bind| bind(fid, to, flags)) }
}

fn open_channel(objects: &mut Objects, at: usize, entries: usize) -> Result<RawAddress, PortError> {
    let name = || format!("{:?} channel", Channel::ALL[at]);
    // SAFETY: all zero is a valid `fi_cq_attr`.
    let mut attr: ffi::fi_cq_attr = unsafe { std::mem::zeroed() };
    attr.size = entries;
    attr.format = ffi::FI_CQ_FORMAT_MSG;
    attr.wait_obj = ffi::FI_WAIT_NONE;
    let (domain, info) = (objects.domain, objects.info.head);
    // SAFETY: the domain is open and the attributes are complete; everything opened goes into
    // `objects`, which closes it.
    unsafe {
        let code = match (*(*domain).ops).cq_open {
            Some(open) => open(domain, &mut attr, &mut objects.channels[at].cq, ptr::null_mut()),
            None => -libc::ENOSYS,
        };
        objects.check(code, "fi_cq_open", name)?;
        let code = match (*(*domain).ops).endpoint {
            Some(open) => open(domain, info, &mut objects.channels[at].ep, ptr::null_mut()),
            None => -libc::ENOSYS,
        };
        objects.check(code, "fi_endpoint", name)?;
        let (ep, cq, av) = (objects.channels[at].ep, objects.channels[at].cq, objects.av);
        let both = u64::from(ffi::FI_TRANSMIT | ffi::FI_RECV);
        objects.check(bind(&mut (*ep).fid, &mut (*cq).fid, both), "fi_ep_bind (cq)", name)?;
        objects.check(bind(&mut (*ep).fid, &mut (*av).fid, 0), "fi_ep_bind (av)", name)?;
        let control = (*(*ep).fid.ops).control;
        let code = control.map_or(-libc::ENOSYS, |control| {
            control(&mut (*ep).fid, ffi::FI_ENABLE as i32, ptr::null_mut())
        });
        objects.check(code, "fi_enable", name)?;
        let mut bytes = [0u8; RawAddress::BYTES_MAX];
        let mut len = bytes.len();
        let getname = (*(*ep).cm).getname;
        let code = getname.map_or(-libc::ENOSYS, |getname| {
            getname(&mut (*ep).fid, bytes.as_mut_ptr().cast(), &mut len)
        });
        objects.check(code, "fi_getname", name)?;
        RawAddress::from_bytes(&bytes[..len.min(bytes.len())]).ok_or(PortError::Unusable {
            port: PORT,
            value: format!("an address of {len} bytes"),
            reason: "longer than any we know".into(),
        })
    }
}
