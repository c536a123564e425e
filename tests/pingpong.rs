//! The command itself: two real processes.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

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
    let sizes: Vec<_> = results.iter().map(|result| result["size"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [8, 1024, 204_800]);
    for result in results {
        for field in ["min", "p50", "p99"] {
            assert!(result["half_rtt_us"][field].as_f64().unwrap() > 0.0, "{json}");
        }
        assert!(result["mb_per_s"].as_f64().unwrap() > 0.0 && result["iters"].as_u64() > Some(7));
    }
    assert!(json["counters"]["segments_sent"].as_u64() > Some(900));
    let peer_sent = json["peer_counters"]["segments_sent"].as_u64();
    assert!(peer_sent > Some(900) || json["peer_counters"].is_null());
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

/// As between two hosts, both on this one: what the listener prints is what the other side runs.
#[test]
fn listen_and_connect() {
    let json = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("listen.json");
    let mut listener = Command::new(env!("CARGO_BIN_EXE_tickwire"))
        .args(["pingpong", "--listen", "127.0.0.1:0", "--sizes", "8,1K,200K", "--iters", "300"])
        .args(["--checksum", "--key", "77", "--json", json.to_str().unwrap()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(listener.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let (_, command) = line.split_once("tickwire ").expect(&line);
    let args: Vec<_> = command.split(' ').filter(|arg| !arg.contains("ADDRESS_OF")).collect();
    let output = tickwire(&args);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    let rest: Vec<_> = lines.map_while(Result::ok).collect();
    assert!(listener.wait().unwrap().success(), "{rest:?}");
    check(&serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap(), "udp");
}

fn listener(key: Option<&str>, timeout: &str) -> std::process::Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tickwire"));
    let fixed = ["pingpong", "--listen", "127.0.0.1:0", "--sizes", "8", "--iters", "100"];
    command.args(fixed).args(["--timeout", timeout]).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env_remove("TICKWIRE_KEY");
    if let Some(key) = key {
        command.arg("--authenticate").env("TICKWIRE_KEY", key);
    }
    command.spawn().unwrap()
}

/// What a side prints when it joins `listener` as told, but with this key and without that option.
fn join(listener: &mut std::process::Child, key: Option<&str>, without: &str) -> (bool, String) {
    let mut lines = BufReader::new(listener.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    std::thread::spawn(move || lines.count());
    let (_, args) = line.split_once(": tickwire ").expect(&line);
    let is_taken = |arg: &&str| !arg.contains("ADDRESS_OF") && *arg != without;
    let mut command = Command::new(env!("CARGO_BIN_EXE_tickwire"));
    command.args(args.split(' ').filter(is_taken)).env_remove("TICKWIRE_KEY");
    if let Some(key) = key {
        command.env("TICKWIRE_KEY", key);
    }
    let output = command.output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn end(mut listener: std::process::Child) -> (bool, String) {
    let mut text = String::new();
    listener.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    (listener.wait().unwrap().success(), text)
}

#[test]
fn authenticated_with_faults() {
    let args = [&["--authenticate"][..], &FAULTS].concat();
    let json = pingpong("udp_authenticated", &args);
    check(&json, "udp");
    assert!(json["counters"]["drops_bad_tag"].as_u64() > Some(0), "{json}");
    assert_eq!(json["counters"]["drops_bad_checksum"], 0);
    let json = pingpong("sim_authenticated", &[&["--port", "sim"][..], &args].concat());
    check(&json, "sim");
}

#[test]
fn two_hosts_need_the_same_key() {
    let (a, b) = ("00112233445566778899aabbccddeeff", "10112233445566778899aabbccddeeff");
    let mut good = listener(Some(a), "20");
    assert_eq!(join(&mut good, Some(a), ""), (true, String::new()));
    assert_eq!(end(good), (true, String::new()));

    let mut other = listener(Some(a), "5");
    let both = [join(&mut other, Some(b), ""), end(other)];
    for (ok, text) in &both {
        assert!(!ok && text.contains("are the keys of both sides the same?"), "{both:?}");
        assert!(!text.contains(a) && !text.contains(b), "{text}");
    }

    let mut one_sided = listener(Some(a), "5");
    for (ok, text) in [join(&mut one_sided, None, "--authenticate"), end(one_sided)] {
        assert!(!ok && text.contains("an authentication tag"), "{text}");
    }

    for (key, word) in [(None, "TICKWIRE_KEY must hold the key"), (Some("abc"), "not 32 hex")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tickwire"));
        command.args(["pingpong", "--authenticate", "--listen", "127.0.0.1:0"]);
        command.env_remove("TICKWIRE_KEY");
        key.map(|key| command.env("TICKWIRE_KEY", key));
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(word), "{text}");
    }
}

/// Whichever side is killed, the other one ends by itself.
#[test]
fn no_side_outlives_the_other() {
    let start = || {
        Command::new(env!("CARGO_BIN_EXE_tickwire"))
            .args(["pingpong", "--sizes", "8", "--iters", "4000000000"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let child_of = |parent: u32| {
        within(10, || {
            let children = format!("/proc/{parent}/task/{parent}/children");
            let text = std::fs::read_to_string(children).unwrap_or_default();
            text.split_whitespace().next().and_then(|pid| pid.parse::<u32>().ok())
        })
    };
    let is_gone = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        (stat.is_empty() || stat.contains(") Z ")).then_some(())
    };

    let mut parent = start();
    let child = child_of(parent.id()).expect("an echoing process");
    parent.kill().unwrap();
    parent.wait().unwrap();
    within(10, || is_gone(child)).expect("the echoing process ends with the measuring one");

    let mut parent = start();
    let child = child_of(parent.id()).expect("an echoing process");
    std::thread::sleep(Duration::from_millis(300));
    assert!(Command::new("kill").args(["-9", &child.to_string()]).status().unwrap().success());
    let status = within(20, || parent.try_wait().unwrap()).expect("the measuring process ends");
    let mut text = String::new();
    parent.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(!status.success() && text.contains("echoing process"), "{text}");
}

/// What `get` gives within so many seconds.
fn within<T>(seconds: u64, mut get: impl FnMut() -> Option<T>) -> Option<T> {
    let until = Instant::now() + Duration::from_secs(seconds);
    loop {
        match get() {
            None if Instant::now() < until => std::thread::sleep(Duration::from_millis(10)),
            found => return found,
        }
    }
}

#[test]
fn bad_input_gets_a_clear_error() {
    for (args, word) in [
        (&["pingpong", "--sizes", "4X"][..], "4X is not a size"),
        (&["pingpong", "--faults", "loss=200%"], "loss"),
        (&["pingpong", "--bind", "192.0.2.77"], "192.0.2.77"),
        (&["pingpong", "--port", "libfabric", "--provider", "nosuch"], "nosuch"),
        (&["pingpong", "--iters", "0"], "0 is not in"),
        (&["pingpong", "--port", "sim", "--bind", "127.0.0.1"], "--port sim"),
        (&["pingpong", "--provider", "verbs"], "--port libfabric"),
        (&["pingpong", "--connect", "127.0.0.1:9", "--json", "x"], "--json"),
        (&["pingpong", "--json", "/nosuch/dir/x.json"], "/nosuch/dir/x.json"),
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
