//! Sizes, offsets and constants of the committed types against the installed headers.

use libfabric_sys as ffi;
use std::fmt::Write as _;
use std::mem::offset_of;
use std::process::Command;

macro_rules! layout {
    ($out:ident: $($name:ident { $($field:ident),* })*) => {$(
        let size = size_of::<ffi::$name>() as u64;
        $out.push((format!("sizeof(struct {})", stringify!($name)), size));
        $(
            let field = stringify!($field).trim_end_matches('_');
            let at = format!("offsetof(struct {}, {field})", stringify!($name));
            $out.push((at, offset_of!(ffi::$name, $field) as u64));
        )*
    )*};
}

macro_rules! constants {
    ($out:ident: $($name:ident)*) => {
        $($out.push((stringify!($name).to_owned(), ffi::$name as u64));)*
    };
}

fn ours() -> Vec<(String, u64)> {
    let mut out = Vec::new();
    layout! { out:
        fid { fclass, context, ops }
        fi_ops { size, close, bind, control }
        fi_info {
            next, caps, mode, addr_format, src_addrlen, dest_addrlen, src_addr, dest_addr,
            tx_attr, rx_attr, ep_attr, domain_attr, fabric_attr
        }
        fi_tx_attr { caps, mode, size, iov_limit }
        fi_rx_attr { caps, mode, size, iov_limit }
        fi_ep_attr { type_, protocol, max_msg_size, msg_prefix_size }
        fi_domain_attr { domain, name, av_type, mr_mode }
        fi_fabric_attr { fabric, name, prov_name, prov_version }
        fi_av_attr { type_, rx_ctx_bits, count, ep_per_node, name, map_addr, flags }
        fi_cq_attr { size, flags, format, wait_obj, signaling_vector, wait_cond, wait_set }
        fi_eq_attr { size, flags, wait_obj, signaling_vector, wait_set }
        fid_fabric { fid, ops }
        fid_domain { fid, ops, mr }
        fid_ep { fid, ops, cm, msg }
        fid_cq { fid, ops }
        fid_eq { fid, ops }
        fid_av { fid, ops }
        fid_mr { fid, mem_desc, key }
        fi_ops_fabric { size, domain, eq_open }
        fi_ops_domain { size, av_open, cq_open, endpoint }
        fi_ops_mr { size, reg }
        fi_ops_cm { size, getname }
        fi_ops_msg { size, recv, send, sendv }
        fi_ops_cq { size, read, readerr }
        fi_ops_eq { size, read, readerr }
        fi_ops_av { size, insert, remove }
        fi_cq_msg_entry { op_context, flags, len }
        fi_cq_err_entry { op_context, flags, len, err, prov_errno }
        fi_eq_entry { fid, context, data }
        fi_eq_err_entry { fid, context, data, err, prov_errno }
        fi_context2 { internal }
    }
    constants! { out:
        FI_MSG FI_SEND FI_RECV FI_TRANSMIT FI_EVENT FI_SOURCE FI_NUMERICHOST FI_CONTEXT FI_CONTEXT2
        FI_MSG_PREFIX FI_MR_LOCAL FI_EAGAIN FI_EAVAIL FI_ENABLE FI_EP_DGRAM FI_AV_MAP FI_AV_TABLE
        FI_CQ_FORMAT_MSG FI_WAIT_NONE
    }
    out
}

fn skip(why: &str) {
    eprintln!("SKIPPED: layout of libfabric's types: {why}");
    if let Some(log) = std::env::var_os("TICKWIRE_SKIP_LOG") {
        use std::io::Write;
        let file = std::fs::OpenOptions::new().append(true).create(true).open(log);
        let written = file.and_then(|mut file| writeln!(file, "libfabric layout: {why}"));
        written.expect("the skip log can be written");
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "must not be skipped on CI: {why}");
}

#[test]
fn types_agree_with_the_installed_headers() {
    let ours = ours();
    let mut source = String::from("#include <stddef.h>\n#include <stdio.h>\n");
    for header in ["fabric", "fi_domain", "fi_endpoint", "fi_eq", "fi_cm", "fi_errno"] {
        writeln!(source, "#include <rdma/{header}.h>").unwrap();
    }
    source += "int main(void) {\n";
    for (expression, _) in &ours {
        writeln!(source, "printf(\"%llu\\n\", (unsigned long long)({expression}));").unwrap();
    }
    source += "return 0; }\n";
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (c, program) = (dir.join("layout.c"), dir.join("layout"));
    std::fs::write(&c, source).unwrap();
    let built = match Command::new("cc").arg(&c).arg("-o").arg(&program).output() {
        Ok(built) => built,
        Err(error) => return skip(&format!("no C compiler ({error}); apt-get install gcc")),
    };
    let words = String::from_utf8_lossy(&built.stderr);
    if words.contains("rdma/fabric.h: No such file") {
        return skip("no headers; apt-get install libfabric-dev");
    }
    assert!(built.status.success(), "{words}");
    let output = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
    let theirs: Vec<u64> = output.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(theirs.len(), ours.len());
    let wrong: Vec<_> = ours.iter().zip(&theirs).filter(|((_, a), b)| a != *b).collect();
    assert!(wrong.is_empty(), "(expression, ours), theirs: {wrong:#?}");
}
