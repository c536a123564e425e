//! What is printed and written.

use super::Args;
use crate::process::say;
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use tickwire::ports::faults::FaultCounters;
use tickwire::stats::Counters;

/// Half round trips in microseconds.
#[derive(Clone, Debug, Serialize)]
struct HalfRtt {
    min: f64,
    p50: f64,
    p99: f64,
}

/// The result for one size.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    size: usize,
    iters: u32,
    half_rtt_us: HalfRtt,
    mb_per_s: f64,
}

impl Row {
    pub fn new(size: usize, iters: u32, half_ns: &Histogram<u64>, total_ns: u64) -> Self {
        let us = |ns: u64| ns as f64 / 1000.0;
        let half_rtt_us = HalfRtt {
            min: us(half_ns.min()),
            p50: us(half_ns.value_at_quantile(0.50)),
            p99: us(half_ns.value_at_quantile(0.99)),
        };
        let bytes = size as f64 * 2.0 * f64::from(iters);
        let mb_per_s = bytes / 1e6 / (total_ns.max(1) as f64 / 1e9);
        Self { size, iters, half_rtt_us, mb_per_s }
    }
}

/// Everything that a run has to tell.
pub struct Report {
    rows: Vec<Row>,
    pub counters: Counters,
    pub peer_counters: Option<Value>,
    pub fault_counters: Option<FaultCounters>,
    /// The libfabric provider that was opened.
    pub provider: Option<String>,
    json: Option<File>,
}

impl Report {
    /// Opens the file for the results first: an unwritable one is no news for the end.
    pub fn new(args: &Args) -> Result<Self, String> {
        let open = |path: &PathBuf| {
            File::create(path).map_err(|error| format!("{}: {error}", path.display()))
        };
        Ok(Self {
            rows: Vec::new(),
            counters: Counters::default(),
            peer_counters: None,
            fault_counters: None,
            provider: None,
            json: args.json.as_ref().map(open).transpose()?,
        })
    }

    /// A progress bar, when somebody is looking.
    pub fn bar(&self, size: usize, iters: u32) -> ProgressBar {
        if !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{msg:>10} [{bar:40}] {pos}/{len}");
        let bar = ProgressBar::new(iters.into()).with_message(format!("{size} B"));
        style.map_or(bar.clone(), |style| bar.with_style(style))
    }

    /// Prints a row as soon as it is known.
    pub fn row(&mut self, row: Row) -> Result<(), String> {
        if self.rows.is_empty() {
            let units =
                "half round trip in us; MB/s = size / mean half round trip, MB = 10^6 bytes";
            say(format_args!("{units}"))?;
            say(format_args!(
                "{:>10} {:>7} {:>10} {:>10} {:>10} {:>10}",
                "size", "iters", "min", "p50", "p99", "MB/s"
            ))?;
        }
        say(format_args!(
            "{:>10} {:>7} {:>10.2} {:>10.2} {:>10.2} {:>10.1}",
            row.size,
            row.iters,
            row.half_rtt_us.min,
            row.half_rtt_us.p50,
            row.half_rtt_us.p99,
            row.mb_per_s
        ))?;
        self.rows.push(row);
        Ok(())
    }

    /// Prints the counters and writes the JSON. Only reached when every byte was verified.
    pub fn finish(&mut self, args: &Args) -> Result<(), String> {
        say(format_args!("all messages verified on both sides"))?;
        let ours = serde_json::to_value(&self.counters).map_err(|error| error.to_string())?;
        print_counters("this side", &ours)?;
        if let Some(theirs) = &self.peer_counters {
            print_counters("other side", theirs)?;
        }
        if let Some(f) = self.fault_counters {
            say(format_args!(
                "faults on what this side got: {} lost, {} doubled, {} reordered, {} corrupted",
                f.lost, f.duplicated, f.reordered, f.corrupted
            ))?;
        }
        let Some(file) = &mut self.json else { return Ok(()) };
        let json = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "port": args.job.port.as_str(),
            "provider": self.provider,
            "verified": true,
            "results": self.rows,
            "counters": ours,
            "peer_counters": self.peer_counters,
            "faults": args.job.faults.as_ref().map(ToString::to_string),
            "seed": args.job.seed,
        });
        let text = serde_json::to_string_pretty(&json).map_err(|error| error.to_string())?;
        writeln!(file, "{text}").map_err(|error| format!("writing the results: {error}"))
    }
}

/// Prints those that people ask for first.
pub fn print_counters(whose: &str, counters: &Value) -> Result<(), String> {
    let Some(counters) = counters.as_object() else { return Ok(()) };
    let shown = counters.iter().filter(|(name, n)| {
        let always = ["segments_sent", "segments_resent"].contains(&name.as_str());
        always || (n.as_u64() != Some(0) && name.starts_with("drops_"))
    });
    let shown: Vec<_> = shown.map(|(name, n)| format!("{name} {n}")).collect();
    say(format_args!("{whose}: {}", shown.join(", ")))
}
