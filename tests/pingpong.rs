//! The command itself: two real processes.

mod common;

use std::process::{Command, Output};

fn tickwire(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tickwire")).args(args).output().unwrap()
}

/// Runs `pingpong` with `args`; gives its JSON.
fn pingpong(name: &str, args: &[&str]) -> serde_json::Value {
    let json = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.json"));
    let fixed = ["pingpong", "--sizes", "8,1K,200K", "--iters", "300", "--json"];
    let all = [&fixed[..], &[json.to_str().unwrap()], args].concat();
    let output = tickwire(&all);
    let (out, err) = (&output.stdout, &output.stderr);
    let text = format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err));
    assert!(output.status.success(), "{text}");
    serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap()
}

const FAULTS: [&str; 4] = ["--faults", "loss=5%,dup=1%,reorder=5%,corrupt=0.5%", "--seed", "7"];

fn check(json: &serde_json::Value, port: &str) {
    assert_eq!(json["port"], port);
    assert_eq!(json["verified"], true);
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    let results = json["results"].as_array().unwrap();
    assert_eq!(results.len(), 3);
    for result in results {
        for field in ["min", "p50", "p99"] {
            assert!(result["half_rtt_us"][field].as_f64().unwrap() > 0.0, "{json}");
        }
        assert!(result["mb_per_s"].as_f64().unwrap() > 0.0 && result["iters"].as_u64() > Some(7));
    }
    assert!(json["counters"]["segments_sent"].as_u64() > Some(900));
    assert!(json["peer_counters"]["segments_sent"].as_u64() > Some(900));
}

#[test]
fn udp() {
    check(&pingpong("udp", &[]), "udp");
}

#[test]
fn udp_with_faults_counts_resends() {
    let json = pingpong("udp_faults", &FAULTS);
    check(&json, "udp");
    assert!(json["counters"]["segments_resent"].as_u64() > Some(0), "{json}");
}

#[test]
fn sim_with_faults_counts_resends() {
    let json = pingpong("sim_faults", &[&["--port", "sim"][..], &FAULTS].concat());
    check(&json, "sim");
    assert!(json["counters"]["segments_resent"].as_u64() > Some(0), "{json}");
}

#[test]
fn libfabric_with_and_without_faults() {
    let libfabric = ["--port", "libfabric", "--provider", "udp"];
    if let Err(error) = tickwire::ports::libfabric::providers() {
        return common::skip("pingpong over libfabric", &error.to_string());
    }
    let json = pingpong("libfabric", &libfabric);
    check(&json, "libfabric");
    assert_eq!(json["provider"], "udp");
    let json = pingpong("libfabric_faults", &[&libfabric[..], &FAULTS].concat());
    check(&json, "libfabric");
    assert!(json["counters"]["segments_resent"].as_u64() > Some(0), "{json}");
}

#[test]
fn bad_input_gets_a_clear_error() {
    for (args, word) in [
        (&["pingpong", "--sizes", "4X"][..], "4X is not a size"),
        (&["pingpong", "--faults", "loss=200%"], "loss"),
        (&["pingpong", "--bind", "192.0.2.77"], "192.0.2.77"),
        (&["pingpong", "--port", "libfabric", "--provider", "nosuch"], "nosuch"),
        (&["pingpong", "--iters", "0"], "0 is not in"),
    ] {
        let output = tickwire(args);
        let text = String::from_utf8_lossy(&output.stderr);
        let missing = text.contains("libfabric1") && args.contains(&"libfabric");
        assert!(!output.status.success() && (text.contains(word) || missing), "{args:?}: {text}");
    }
}

#[test]
fn a_missing_library_is_named_with_what_to_install() {
    let output = Command::new(env!("CARGO_BIN_EXE_tickwire"))
        .args(["pingpong", "--port", "libfabric"])
        .env("TICKWIRE_LIBFABRIC", "libnosuch.so.9")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("libnosuch.so.9") && text.contains("libfabric1"), "{text}");
}

#[test]
fn info_lists_all_ports() {
    let output = tickwire(&["info"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    for word in ["sim", "udp", "libfabric", "MTU"] {
        assert!(text.contains(word), "{text}");
    }
}
