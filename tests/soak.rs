//! `tickwire soak`: real processes that are killed, stopped and orphaned.

mod common;

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const UDP: &[&str] = &["--port", "udp"];
const LIBFABRIC: &[&str] = &["--port", "libfabric", "--provider", "udp"];

/// One job at a time: each keeps all cores busy, and rates are compared.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn has_libfabric(what: &str) -> bool {
    match tickwire::ports::libfabric::providers() {
        Ok(_) => true,
        Err(error) => {
            common::skip(what, &error.to_string());
            false
        }
    }
}

/// A running job.
struct Soak {
    parent: Child,
    json: PathBuf,
    lines: Arc<Mutex<Vec<(Instant, String)>>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Soak {
    fn drop(&mut self) {
        let _ = self.parent.kill();
        let _ = self.parent.wait();
    }
}

impl Soak {
    fn start(name: &str, args: &[&str]) -> Self {
        let json = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("soak_{name}.json"));
        let mut parent = Command::new(env!("CARGO_BIN_EXE_tickwire"))
            .args(["soak", "--json", json.to_str().unwrap()])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (output, to) = (parent.stdout.take().unwrap(), lines.clone());
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                to.lock().unwrap().push((Instant::now(), line));
            }
        });
        Self { parent, json, lines, reader: Some(reader) }
    }

    /// When the first line came that holds `part`, and the line.
    fn find(&self, part: &str) -> Option<(Instant, String)> {
        self.lines.lock().unwrap().iter().find(|(_, line)| line.contains(part)).cloned()
    }

    /// The processes of the ranks, once messages are under way.
    fn pids(&self) -> Vec<u32> {
        within(60, || self.find("received and verified")).expect("the job starts");
        let (_, line) = self.find("processes of rank").unwrap();
        let (_, pids) = line.split_once(": ").unwrap();
        pids.split(' ').map(|pid| pid.parse().unwrap()).collect()
    }

    fn text(&self) -> String {
        let lines = self.lines.lock().unwrap();
        lines.iter().map(|(_, line)| format!("{line}\n")).collect()
    }

    /// How it ended, what it printed, and its JSON.
    fn finish(mut self) -> (ExitStatus, String, Value) {
        let status = within(150, || self.parent.try_wait().unwrap()).expect("the job ends");
        self.reader.take().unwrap().join().unwrap();
        let mut text = self.text();
        self.parent.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        let json = std::fs::read_to_string(&self.json).unwrap();
        (status, text.clone(), serde_json::from_str(&json).expect(&text))
    }
}

fn signal(name: &str, pid: u32) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(status.unwrap().success());
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

fn is_gone(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

fn ranks(json: &Value) -> &Vec<Value> {
    json["by_rank"].as_array().unwrap()
}

fn messages(second: &Value) -> u64 {
    second["messages"].as_u64().unwrap()
}

fn median(mut rates: Vec<u64>) -> u64 {
    rates.sort_unstable();
    rates[rates.len() / 2]
}

/// Everything verified, nobody reported dead, all goodbyes said.
fn assert_clean((status, text, json): (ExitStatus, String, Value), count: usize) -> Value {
    assert!(status.success(), "{text}");
    assert_eq!((&json["verified"], &json["dead"]), (&true.into(), &serde_json::json!([])));
    assert_eq!(ranks(&json).len(), count);
    let mut received = 0;
    for rank in ranks(&json) {
        assert!(rank["messages"].as_u64() > Some(20), "{text}");
        assert_eq!(rank["deaths"], serde_json::json!([]), "{text}");
        assert_eq!((&rank["whole"], &rank["closed"]), (&true.into(), &true.into()), "{text}");
        let per_second = rank["per_second"].as_array().unwrap();
        let sum: u64 = per_second.iter().map(messages).sum();
        assert_eq!(rank["messages"].as_u64(), Some(sum), "{text}");
        received += sum;
    }
    // Each sender has one message more to each peer, which tells their count.
    let of = |name: &str| -> u64 {
        ranks(&json).iter().map(|rank| rank["counters"][name].as_u64().unwrap()).sum()
    };
    assert_eq!(of("messages_sent"), of("messages_received"), "{text}");
    assert!(of("messages_received") > received, "{text}");
    json
}

#[test]
fn a_clean_run() {
    let _alone = alone();
    let soak = Soak::start("clean", &[UDP, &["--seconds", "2"]].concat());
    let pids = soak.pids();
    let json = assert_clean(soak.finish(), 4);
    assert_eq!((&json["port"], &json["pattern"]), (&"udp".into(), &"all".into()));
    assert!(pids.into_iter().all(is_gone));
    if has_libfabric("soak over libfabric") {
        let args = ["--seconds", "2", "--sizes", "8,8K,200K", "--pattern", "ring"];
        let json = assert_clean(Soak::start("clean_lf", &[LIBFABRIC, &args].concat()).finish(), 4);
        assert_eq!(json["provider"], "udp");
    }
}

#[test]
fn faults_are_mended() {
    let _alone = alone();
    let faults = ["--faults", "loss=2%,dup=1%,reorder=3%,corrupt=0.2%", "--seed", "5"];
    let args = ["--seconds", "2", "--sizes", "8,8K,300K", "--pattern", "pairs"];
    let json = assert_clean(Soak::start("faults", &[UDP, &args, &faults].concat()).finish(), 4);
    for rank in ranks(&json) {
        assert!(rank["counters"]["segments_resent"].as_u64() > Some(0), "{rank}");
        assert!(rank["faults"]["lost"].as_u64() > Some(0), "{rank}");
    }
}

/// One of four is killed; the three others say so, of that one only, and go on.
fn kill_one_of_four(name: &str, args: &[&str]) {
    let _alone = alone();
    // A window governed by delay follows what else the machine does: rates would tell of that.
    let more = ["--seconds", "10", "--dead-after", "2s", "--congestion", "fixed"];
    let soak = Soak::start(name, &[args, &more].concat());
    let pids = soak.pids();
    std::thread::sleep(Duration::from_millis(3500));
    signal("KILL", pids[3]);
    let killed = Instant::now();
    let victim = format!(":{}) died", pids[3]);
    for rank in 0..3 {
        let part = format!("rank {rank}: rank 3 (");
        let (told, line) = within(20, || soak.find(&part)).unwrap_or_else(|| panic!("{part}"));
        assert!(line.contains(&victim), "{line}");
        assert!(told - killed < Duration::from_secs(3), "{:?}: {line}", told - killed);
    }
    let (status, text, json) = soak.finish();
    assert_eq!(status.code(), Some(1), "{text}");
    assert!(text.contains("tickwire: died: rank 3 ("), "{text}");
    assert_eq!((&json["verified"], &json["dead"]), (&true.into(), &serde_json::json!([3])));
    for rank in &ranks(&json)[..3] {
        assert_eq!(rank["deaths"].as_array().unwrap().len(), 1, "{text}");
        assert_eq!(rank["deaths"][0]["rank"], 3, "{text}");
        assert_eq!(rank["whole"], true, "{text}");
        let rates: Vec<u64> = rank["per_second"].as_array().unwrap().iter().map(messages).collect();
        let (before, after) = (median(rates[..3].to_vec()), median(rates[6..10].to_vec()));
        assert!(after * 2 >= before, "{before}/s before, {after}/s after: {rates:?}");
    }
    assert!(pids.into_iter().all(is_gone));
}

#[test]
fn pc_50_a_process_dies_udp() {
    kill_one_of_four("pc_50_udp", UDP);
}

#[test]
fn pc_50_a_process_dies_libfabric() {
    if has_libfabric("PC-50 over libfabric") {
        kill_one_of_four("pc_50_lf", &[LIBFABRIC, &["--sizes", "8,8K,200K"]].concat());
    }
}

/// A pause below the limit: nobody is reported, everything arrives.
fn stop_and_continue(name: &str, args: &[&str]) {
    let _alone = alone();
    let soak = Soak::start(name, &[args, &["--seconds", "5", "--dead-after", "4s"]].concat());
    let pids = soak.pids();
    std::thread::sleep(Duration::from_millis(1000));
    signal("STOP", pids[2]);
    std::thread::sleep(Duration::from_millis(2000));
    signal("CONT", pids[2]);
    let json = assert_clean(soak.finish(), 4);
    // It was stopped in truth, and went on.
    let seconds = ranks(&json)[2]["per_second"].as_array().unwrap();
    assert!(seconds.iter().any(|second| messages(second) == 0), "{seconds:?}");
    assert!(messages(&seconds[4]) > 0, "{seconds:?}");
}

#[test]
fn a_pause_below_the_limit_is_no_death_udp() {
    stop_and_continue("pause_udp", UDP);
}

#[test]
fn a_pause_below_the_limit_is_no_death_libfabric() {
    if has_libfabric("a pause over libfabric") {
        stop_and_continue("pause_lf", &[LIBFABRIC, &["--sizes", "8,8K,200K"]].concat());
    }
}

/// Nothing comes back any more: told in time and by name, with few datagrams spent. The process is
/// stopped, so nothing tells that it is gone but its silence.
fn total_silence(name: &str, args: &[&str]) {
    const LIMIT_MS: u64 = 3000;
    let _alone = alone();
    let more = ["--ranks", "2", "--seconds", "30", "--dead-after", "3000ms", "--survive"];
    let soak = Soak::start(name, &[args, &more].concat());
    let pids = soak.pids();
    std::thread::sleep(Duration::from_millis(1500));
    signal("STOP", pids[1]);
    let stopped = Instant::now();
    let (told, line) = within(20, || soak.find("rank 0: rank 1 (")).expect("its death");
    let took = (told - stopped).as_millis() as u64;
    assert!((LIMIT_MS * 8 / 10..=LIMIT_MS * 12 / 10).contains(&took), "after {took} ms: {line}");
    assert!(line.contains(&format!(":{}) died: silent for", pids[1])), "{line}");
    // Nobody is left to talk to: the job ends early, and the stopped process is reaped.
    let (status, text, json) = soak.finish();
    assert!(status.success() && text.contains("died, as expected: rank 1 ("), "{text}");
    let deaths = ranks(&json)[0]["deaths"].as_array().unwrap();
    let silent_ms = deaths[0]["silent_ms"].as_u64().unwrap();
    assert!((LIMIT_MS..LIMIT_MS * 12 / 10).contains(&silent_ms), "{deaths:?}");
    assert_eq!((deaths.len(), &ranks(&json)[1]["whole"]), (1, &false.into()), "{text}");
    let seconds = ranks(&json)[0]["per_second"].as_array().unwrap();
    // The second of the stop is left out: it has resends of busy cores, too.
    let resent: u64 = seconds[2..].iter().map(|second| second["resent"].as_u64().unwrap()).sum();
    assert!((1..=50).contains(&resent), "{resent} resends: {seconds:?}");
    assert!(pids.into_iter().all(is_gone));
}

#[test]
fn pc_51_total_silence_udp() {
    total_silence("pc_51_udp", UDP);
}

#[test]
fn pc_51_total_silence_libfabric() {
    if has_libfabric("PC-51 over libfabric") {
        total_silence("pc_51_lf", LIBFABRIC);
    }
}

#[test]
fn no_process_outlives_the_parent() {
    let _alone = alone();
    let mut soak = Soak::start("orphans", &["--seconds", "600"]);
    let pids = soak.pids();
    soak.parent.kill().unwrap();
    soak.parent.wait().unwrap();
    for pid in pids {
        within(10, || is_gone(pid).then_some(())).unwrap_or_else(|| panic!("{pid} lives"));
    }
}

/// As on two hosts, both on this one: each rank a command of its own.
#[test]
fn ranks_of_several_hosts() {
    let _alone = alone();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let meet = free.local_addr().unwrap().to_string();
    drop(free);
    let start = |rank: &str| {
        let place = ["--rank", rank, "--ranks", "2", "--meet", &meet, "--seconds", "2"];
        Soak::start(&format!("host_{rank}"), &place)
    };
    let (one, zero) = (start("1"), start("0"));
    for soak in [zero, one] {
        let (status, text, json) = soak.finish();
        assert!(status.success(), "{text}");
        assert!(text.contains("all messages verified"), "{text}");
        assert_eq!((&json["verified"], ranks(&json).len()), (&true.into(), 1));
    }
}

#[test]
fn bad_input_gets_a_clear_error() {
    for (args, word) in [
        (&["--sizes", "4X"][..], "4X is not a size"),
        (&["--dead-after", "soon"], "soon is not a time"),
        (&["--dead-after", "0"], "dead_after_ns"),
        (&["--ranks", "1"], "1 is not in"),
        (&["--ranks", "3", "--pattern", "pairs"], "alone"),
        (&["--rank", "1"], "--meet"),
        (&["--rank", "4", "--meet", "127.0.0.1:9"], "below --ranks"),
        (&["--rank", "1", "--meet", "nonsense"], "nonsense"),
        (&["--port", "sim"], "real processes"),
        (&["--provider", "verbs"], "--port libfabric"),
        (&["--bind", "192.0.2.77"], "192.0.2.77"),
        (&["--json", "/nosuch/dir/x.json"], "/nosuch/dir/x.json"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tickwire"));
        let output = command.arg("soak").args(args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(word), "{args:?}: {text}");
    }
}
