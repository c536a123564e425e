//! The results for people.

use crate::process::say;
use serde::Serialize;
use tickwire::simulation::{ItemReport, Percentiles, Report};

/// Prints everything.
pub fn print(report: &Report, wall_s: f64) -> Result<(), String> {
    let Report { title, peers, seed, .. } = report;
    say(format_args!("{title}: {peers} peers, seed {seed}"))?;
    for item in &report.traffic {
        say(format_args!(""))?;
        print_item(item)?;
    }
    say(format_args!(""))?;
    let engines = &report.engines;
    say(format_args!(
        "resends    {} of {} segments, {:.2} %, {} by time-out",
        engines.segments_resent,
        engines.segments_sent,
        report.resent * 100.0,
        engines.segments_timed_out,
    ))?;
    print_counters("network", &report.network)?;
    print_counters("engines", engines)?;
    let virtual_ms = report.virtual_us / 1000.0;
    let ticks = report.ticks;
    say(format_args!("time       {virtual_ms:.3} ms virtual, {wall_s:.2} s real, {ticks} ticks"))
}

fn print_item(item: &ItemReport) -> Result<(), String> {
    let lost = match item.messages_lost {
        0 => String::new(),
        lost => format!(", {lost} lost in restarts"),
    };
    let (flows, messages, bytes) = (item.flows, item.messages, item.bytes);
    say(format_args!(
        "{}: {flows} flows, {messages} messages, {bytes} B verified{lost}",
        item.name
    ))?;
    let fraction = match item.goodput_of_link {
        Some(fraction) => format!("{:.1} % of the link", fraction * 100.0),
        None => "links unlimited".to_owned(),
    };
    let (rate, elapsed_ms) = (item.goodput_mb_per_s, item.elapsed_us / 1000.0);
    say(format_args!("goodput    {rate:.1} MB/s, {fraction}, over {elapsed_ms:.3} ms"))?;
    print_percentiles("latency", &item.latency)?;
    print_percentiles("round", &item.rounds)?;
    if item.flows > 1 {
        print_percentiles("completion", &item.completion)?;
    }
    if let Some(fairness) = item.fairness {
        let (jain, slowest) = (fairness.jain, fairness.slowest_to_median);
        say(format_args!("fairness   Jain {jain:.4}, slowest/median {slowest:.3}"))?;
    }
    Ok(())
}

fn print_percentiles(what: &str, percentiles: &Option<Percentiles>) -> Result<(), String> {
    let Some(Percentiles { count, min_us, p50_us, p99_us, max_us }) = percentiles else {
        return Ok(());
    };
    say(format_args!(
        "{what:<10} min {min_us:.1}  p50 {p50_us:.1}  p99 {p99_us:.1}  max {max_us:.1} us  \
         ({count})"
    ))
}

/// Those that are not zero.
fn print_counters(whose: &str, counters: &impl Serialize) -> Result<(), String> {
    let counters = serde_json::to_value(counters).map_err(|error| error.to_string())?;
    let rows = counters.as_object().into_iter().flatten();
    let rows: Vec<_> = rows.filter(|(_, n)| n.as_u64() != Some(0)).collect();
    for (i, (name, n)) in rows.into_iter().enumerate() {
        let whose = if i == 0 { whose } else { "" };
        say(format_args!("{whose:<10} {name:<22} {n}"))?;
    }
    Ok(())
}
