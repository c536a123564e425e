//! `tickwire simulate`: a scenario from a file, or the fault campaign, in virtual time.

mod campaign;
mod plot;
mod text;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;
use tickwire::simulation::{Plan, Progress, Report, run_plan};

/// Options of `simulate`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The scenario: peers, links, faults, traffic; see docs/simulate.md
    #[arg(required_unless_present = "campaign", conflicts_with = "campaign")]
    file: Option<PathBuf>,
    /// Seed of everything drawn by chance, instead of the file's
    #[arg(long, conflicts_with = "campaign")]
    seed: Option<u64>,
    /// Write the results as JSON
    #[arg(long, value_name = "OUT", conflicts_with = "campaign")]
    json: Option<PathBuf>,
    /// Draw goodput, latency and queues over time
    #[arg(long, value_name = "PLOT.svg", conflicts_with = "campaign")]
    svg: Option<PathBuf>,
    /// Play the fault scenarios of these seeds instead of a file, such as 0..20000
    #[arg(long, value_name = "FIRST..END", value_parser = campaign::parse_range)]
    campaign: Option<std::ops::Range<u64>>,
    /// Threads of the campaign (default: one a core)
    #[arg(long, value_name = "N", requires = "campaign",
          value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
}

/// Runs what the options ask for.
pub fn run(args: &Args) -> Result<(), String> {
    match (&args.campaign, &args.file) {
        (Some(seeds), _) => campaign::run(seeds.clone(), args.threads.map(usize::from)),
        (None, Some(file)) => scenario(args, file),
        (None, None) => Err("a scenario file is needed".into()),
    }
}

fn scenario(args: &Args, file: &Path) -> Result<(), String> {
    let about = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| about(&error))?;
    let mut plan = Plan::parse(&text).map_err(|error| about(&error))?;
    plan.seed = args.seed.unwrap_or(plan.seed);
    // An unwritable file is no news for the end.
    let create = |path: &PathBuf| {
        let created = std::fs::File::create(path);
        created.map_err(|error| format!("{}: {error}", path.display()))
    };
    let mut json = args.json.as_ref().map(create).transpose()?;
    let mut svg = args.svg.as_ref().map(create).transpose()?;

    let bar = spinner();
    let begin = Instant::now();
    let report = run_plan(&plan, &mut |Progress { now, messages }| {
        bar.set_message(format!("{:.3} ms of virtual time, {messages} messages", now as f64 / 1e6));
        bar.tick();
    });
    bar.finish_and_clear();
    let replay = |failure| format!("{failure}\nreplay: {}", replay_line(file, plan.seed));
    let report = report.map_err(replay)?;
    let wall_s = begin.elapsed().as_secs_f64();

    text::print(&report, wall_s)?;
    if let Some(out) = &mut json {
        write_json(out, &report, wall_s)?;
    }
    if let Some(out) = &mut svg {
        let svg = plot::draw(&report)?;
        out.write_all(svg.as_bytes()).map_err(|error| format!("writing the plot: {error}"))?;
    }
    match report.unfinished {
        None => Ok(()),
        Some(unfinished) => Err(replay(unfinished)),
    }
}

fn replay_line(file: &Path, seed: u64) -> String {
    format!("tickwire simulate {} --seed {seed}", file.display())
}

fn spinner() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}");
    style.map_or(bar.clone(), |style| bar.with_style(style))
}

fn write_json(out: &mut std::fs::File, report: &Report, wall_s: f64) -> Result<(), String> {
    let json = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "verified": true,
        "wall_s": wall_s,
        "report": report,
    });
    let text = serde_json::to_string_pretty(&json).map_err(|error| error.to_string())?;
    writeln!(out, "{text}").map_err(|error| format!("writing the results: {error}"))
}
