//! Scenarios: those of `docs/scenarios`, what files may say, and the command itself.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tickwire::simulation::{ItemReport, Plan, Report, run_plan};

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/scenarios")
}

fn text_of(name: &str) -> String {
    std::fs::read_to_string(scenarios().join(name)).unwrap()
}

/// Replaces what must be there.
fn with(text: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (old, new)| {
        assert!(text.contains(old), "no {old:?} in the scenario");
        text.replace(old, new)
    })
}

fn play(text: &str) -> Report {
    let plan = Plan::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    run_plan(&plan, &mut |_| {}).unwrap_or_else(|failure| panic!("{failure}\n{text}"))
}

/// Plays it to its end.
fn finished(text: &str) -> Report {
    let report = play(text);
    assert_eq!(report.unfinished, None, "{text}");
    report
}

/// Two peers on a link of 10 us without limits, and some traffic.
fn pair(rest: &str) -> String {
    format!("title = \"pair\"\npeers = 2\n[link]\nlatency = \"10us\"\n{rest}")
}

const STREAM: &str = "[[traffic]]\npattern = \"stream\"\nfrom = \"0\"\nto = \"1\"\n\
                      message = \"10KB\"\nbytes = \"1MB\"\n";

fn link_fraction(item: &ItemReport) -> f64 {
    item.goodput_of_link.expect("the link is limited")
}

#[test]
fn all_scenarios_are_read_and_documented() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/simulate.md");
    let page = std::fs::read_to_string(page).unwrap();
    let entries = std::fs::read_dir(scenarios()).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
    assert!(names.len() >= 6, "{names:?}");
    for name in names {
        Plan::parse(&text_of(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.contains(&name), "docs/simulate.md says nothing of {name}");
    }
}

#[test]
fn one_flow_fills_its_link() {
    let report = finished(&text_of("one_flow.toml"));
    let [bulk, beside] = report.traffic.as_slice() else { panic!("{:?}", report.traffic) };
    assert_eq!((bulk.messages, bulk.bytes, beside.messages), (1024, 64 << 20, 400));
    let fraction = link_fraction(bulk);
    assert!((0.93..1.0).contains(&fraction), "{fraction}");
    let (latency, rounds) = (beside.latency.unwrap(), beside.rounds.unwrap());
    assert!(latency.min_us >= 5.0 && rounds.min_us >= 10.0, "{latency:?} {rounds:?}");
    assert_eq!((rounds.count, report.engines.segments_resent), (200, 0));
    let arrived: u64 = bulk.arrivals.buckets.iter().map(|bucket| bucket.sum).sum();
    assert_eq!(arrived, bulk.bytes);
}

#[test]
fn every_fault_shows_and_nothing_is_lost_but_in_the_restart() {
    let report = finished(&text_of("lossy.toml"));
    let net = &report.network;
    for (name, n) in [
        ("lost", net.lost),
        ("cut", net.cut),
        ("duplicated", net.duplicated),
        ("reordered", net.reordered),
        ("corrupted", net.corrupted),
        ("bad checksums", report.engines.drops_bad_checksum),
        ("resends", report.engines.segments_resent),
    ] {
        assert!(n > 0, "no {name}");
    }
    let [exchange, random] = report.traffic.as_slice() else { panic!("{:?}", report.traffic) };
    assert_eq!(exchange.messages + exchange.messages_lost, 4 * 3 * 100);
    assert_eq!(random.messages + random.messages_lost, 4000);
    assert_eq!(exchange.rounds.unwrap().count, 4 * 100);
    let lost = exchange.messages_lost + random.messages_lost;
    assert!(lost < 100, "{lost} messages lost in one restart");
    assert!(report.resent > 0.0 && report.resent < 0.2, "{}", report.resent);
}

#[test]
fn the_seed_decides_everything() {
    let text = text_of("lossy.toml");
    let with_seed = |seed| {
        let mut plan = Plan::parse(&text).unwrap();
        plan.seed = seed;
        serde_json::to_string(&run_plan(&plan, &mut |_| {}).unwrap()).unwrap()
    };
    assert_eq!(with_seed(5), with_seed(5));
    assert_ne!(with_seed(5), with_seed(6));
}

#[test]
fn an_incast_overruns_the_queue_and_still_arrives() {
    let small = [("512KiB", "64KiB"), ("rounds = 3", "rounds = 2")];
    let report = finished(&with(&text_of("incast100.toml"), &small));
    let gather = &report.traffic[0];
    assert_eq!((gather.flows, gather.messages), (100, 200));
    assert_eq!((gather.bytes, gather.rounds.unwrap().count), (2 * 100 * 65536, 2));
    assert!(gather.goodput_of_link.unwrap() < 1.0);
    let deepest = report.queue.buckets.iter().map(|bucket| bucket.max).max();
    assert!(deepest > Some(100) && deepest <= Some(128), "{deepest:?}");
    assert_eq!(gather.fairness.unwrap().flows, 100);
}

#[test]
fn flows_of_a_duration_stop_and_share_the_link() {
    let report = finished(&with(&text_of("flows32.toml"), &[("50ms", "5ms")]));
    let bulk = &report.traffic[0];
    assert_eq!(bulk.flows, 32);
    assert_eq!(bulk.bytes, bulk.messages * 16384);
    let fairness = bulk.fairness.unwrap();
    assert!(fairness.jain > 1.0 / 32.0 && fairness.jain <= 1.0, "{fairness:?}");
    assert!(bulk.elapsed_us > 4_000.0 && link_fraction(bulk) < 1.0, "{bulk:?}");
}

#[test]
fn a_long_way_takes_its_time() {
    let report = finished(&with(&text_of("long_delay.toml"), &[("\"64MiB\"", "\"4MiB\"")]));
    let stream = &report.traffic[0];
    assert!(stream.latency.unwrap().min_us >= 10_000.0, "{:?}", stream.latency);
    assert_eq!(stream.bytes, 4 << 20);
}

#[test]
fn many_peers() {
    let fewer = [("10_000", "600"), ("10000", "600"), ("50_000", "3_000"), ("start = \"5ms\"", "")];
    let report = finished(&with(&text_of("peers10000.toml"), &fewer));
    assert_eq!(report.peers, 600);
    assert_eq!((report.traffic[0].messages, report.traffic[1].messages), (3000, 599));
}

#[test]
fn who_has_nothing_to_do_does_not_tick() {
    let text = pair(STREAM);
    let (few, many) = (finished(&text), finished(&with(&text, &[("peers = 2", "peers = 300")])));
    // Tables are sized by the number of peers, which moves an ack or two.
    assert!(few.ticks.abs_diff(many.ticks) < 10, "{} and {} ticks", few.ticks, many.ticks);
    let waiting = "[[traffic]]\npattern = \"pingpong\"\nfrom = \"0\"\nto = \"1\"\nmessage = 8\n\
                   start = \"900ms\"\n";
    let late = finished(&pair(waiting));
    assert!(late.virtual_us >= 900_020.0 && late.ticks < 50, "{} ticks", late.ticks);
}

#[test]
fn patterns_take_the_time_that_the_links_say() {
    let pingpong = "[[traffic]]\npattern = \"pingpong\"\nfrom = \"0\"\nto = \"1\"\nmessage = 8\n\
                    rounds = 7\n";
    let report = finished(&pair(pingpong));
    let rounds = report.traffic[0].rounds.unwrap();
    // The first may wait for the receiver's tick, which takes 200 ns.
    assert!(rounds.min_us >= 20.0 && rounds.max_us < 21.0, "{rounds:?}");
    assert_eq!((report.traffic[0].messages, rounds.count), (14, 7));

    let alltoall = "title = \"x\"\npeers = 5\n[link]\nlatency = \"10us\"\n[[traffic]]\n\
                    pattern = \"alltoall\"\nnodes = \"0..5\"\nmessage = 100\nrounds = 3\n";
    let report = finished(alltoall);
    assert_eq!(report.traffic[0].messages, 5 * 4 * 3);
    let rounds = report.traffic[0].rounds.unwrap();
    assert!(rounds.max_us >= 10.0 && rounds.max_us < 12.0 && rounds.count == 15, "{rounds:?}");
}

#[test]
fn links_of_their_own_and_faults_reach_only_whom_they_name() {
    let slow = "[[links]]\nfrom = \"0\"\nto = \"1\"\nset = { latency = \"500us\" }\n";
    let report = finished(&pair(&format!("{slow}{STREAM}")));
    assert!(report.traffic[0].latency.unwrap().min_us >= 500.0);
    let back = with(slow, &[("from = \"0\"\nto = \"1\"", "from = \"1\"\nto = \"0\"")]);
    let report = finished(&pair(&format!("{back}{STREAM}")));
    assert!(report.traffic[0].latency.unwrap().min_us < 100.0);

    let pause = "[[faults]]\nat = 0\nwhat = \"pause\"\nnodes = \"1\"\n\
                 [[faults]]\nat = \"3ms\"\nwhat = \"resume\"\nnodes = \"1\"\n";
    let report = finished(&pair(&format!("{pause}{STREAM}")));
    assert!(report.traffic[0].latency.unwrap().min_us >= 2_900.0);

    let cut = "[[faults]]\nat = 0\nwhat = \"cut\"\nfrom = \"1\"\nto = \"0\"\n\
               [[faults]]\nat = \"5ms\"\nwhat = \"mend\"\nfrom = \"1\"\nto = \"0\"\n";
    let report = finished(&pair(&format!("{cut}{STREAM}")));
    // Only acks are cut: what fits the window arrives at once.
    assert!(report.traffic[0].latency.unwrap().min_us < 100.0);
    assert!(report.network.cut > 0 && report.virtual_us > 5_000.0);
}

#[test]
fn a_restarted_process_goes_on() {
    let restart = "[[faults]]\nat = \"100us\"\nwhat = \"restart\"\nnodes = \"1\"\n\
                   outage = \"2ms\"\n";
    let few = with(STREAM, &[("bytes", "outstanding = 4\nbytes")]);
    let report = finished(&pair(&format!("rate = \"1Gbit\"\n{restart}{few}")));
    let stream = &report.traffic[0];
    assert_eq!(stream.messages + stream.messages_lost, 100);
    assert!((1..=4).contains(&stream.messages_lost), "{stream:?}");
    assert!(stream.elapsed_us > 2_100.0);
}

#[test]
fn what_cannot_finish_is_told() {
    let cut = "[[faults]]\nat = 0\nwhat = \"cut\"\nfrom = \"0\"\nto = \"1\"\n";
    let text = with(&pair(&format!("{cut}{STREAM}")), &[("peers", "limit = \"80ms\"\npeers")]);
    let unfinished = play(&text).unfinished.expect("nothing can arrive");
    assert!(unfinished.contains("limit") && unfinished.contains("from 0 to 1"), "{unfinished}");

    let file = in_tmp("cut.toml");
    std::fs::write(&file, text).unwrap();
    let output = simulate(&[file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    let replay = format!("replay: tickwire simulate {} --seed 1", file.display());
    assert!(error.contains("from 0 to 1") && error.contains(&replay), "{error}");
}

#[test]
fn errors_name_the_key() {
    let good = format!("{}[engine]\nwindow = 64\n{STREAM}", pair(""));
    finished(&good);
    let fault = "[[faults]]\nat = \"1us\"\nwhat = ";
    for (change, names) in [
        ("latency = \"10us\"|latency = \"10 parsecs\"", "latency"),
        ("latency = \"10us\"|latency = 10", "unit"),
        ("latency = \"10us\"|latencey = \"10us\"", "latencey"),
        ("latency = \"10us\"|loss = \"101%\"", "link.loss"),
        ("latency = \"10us\"|corrupt = \"1%\"", "checksum"),
        ("peers = 2|peers = 1", "peers"),
        ("window = 64|window = 65", "window_segments"),
        ("window = 64|slots = 1", "send_slots"),
        ("window = 64|tick = 0", "engine.tick"),
        ("to = \"1\"|to = \"2\"", "traffic[0].to"),
        ("to = \"1\"|to = \"0\"", "itself"),
        ("to = \"1\"|to = \"nobody\"", "nobody"),
        ("bytes = \"1MB\"|", "`bytes`"),
        ("bytes = \"1MB\"|bytes = 0", "traffic[0].bytes"),
        ("bytes = \"1MB\"|bytes = 5\nrounds = 3", "`rounds`"),
        ("pattern = \"stream\"|pattern = \"steam\"", "steam"),
        ("[engine]|[[links]]\nfrom = \"0\"\nto = \"1,1\"\nset = {}\n[engine]", "links[0].to"),
        (&format!("[engine]|{fault}\"cut\"\nnodes = \"1\"\n[engine]"), "`from`"),
        (&format!("[engine]|{fault}\"pause\"\n[engine]"), "`nodes`"),
        (&format!("[engine]|{fault}\"up\"\nnodes = \"1\"\noutage = 0\n[engine]"), "`outage`"),
    ] {
        let (old, new) = change.split_once('|').unwrap();
        let text = with(&good, &[(old, new)]);
        let error = match Plan::parse(&text) {
            Ok(plan) => run_plan(&plan, &mut |_| {}).expect_err(&text),
            Err(error) => error,
        };
        assert!(error.contains(names), "{change}: {error}");
    }
}

fn in_tmp(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn simulate(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tickwire"));
    command.arg("simulate").args(args).output().unwrap()
}

#[test]
fn the_command_prints_and_writes_the_same() {
    let (json, svg) = (in_tmp("simulate.json"), in_tmp("simulate.svg"));
    let file = scenarios().join("one_flow.toml");
    let [file, json, svg] = [&file, &json, &svg].map(|path| path.to_str().unwrap());
    let output = simulate(&[file, "--seed", "9", "--json", json, "--svg", svg]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let json: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let report = &json["report"];
    assert_eq!((json["verified"].as_bool(), report["seed"].as_u64()), (Some(true), Some(9)));
    let stream = &report["traffic"][0];
    let goodput = stream["goodput_mb_per_s"].as_f64().unwrap();
    assert!(goodput > 1000.0 && text.contains(&format!("goodput    {goodput:.1} MB/s")), "{text}");
    let sent = report["engines"]["segments_sent"].as_u64().unwrap();
    assert!(text.contains(&format!("resends    0 of {sent} segments")), "{text}");
    assert!(text.contains("p99") && text.contains("delivered"), "{text}");

    let svg = std::fs::read_to_string(svg).unwrap();
    for words in
        ["One flow on a clean link", "Goodput", "MB/s", "virtual time in ms", "microseconds"]
    {
        assert!(svg.contains(words), "no {words:?} in the plot");
    }
    let lines = svg.matches("<polyline").count();
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && lines >= 5, "{lines} lines");
}

#[test]
fn a_campaign_plays_each_seed_once() {
    let output = simulate(&["--campaign", "3..15", "--threads", "2"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("seeds 3..15: 12 played") && text.contains("on 2 threads"), "{text}");
    for wrong in [&["--campaign", "5..5"][..], &["--campaign", "1..2", "--seed", "1"], &[]] {
        let output = simulate(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}
