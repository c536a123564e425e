//! Collects what ranks tell, prints it, and judges in the end.

use super::Args;
use super::line::{Death, End, Line, Second};
use crate::process::say;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// More ranks than that are not printed one by one.
const COLUMNS_MAX: usize = 8;
/// How much later than the others a rank may tell of a second before it is printed without.
const LATE: Duration = Duration::from_millis(1500);

/// What is known of one rank.
#[derive(Default)]
pub struct Record {
    rank: u32,
    seconds: Vec<Second>,
    deaths: Vec<Death>,
    pub end: Option<End>,
    pub failed: Option<String>,
    /// How its process ended, if not well.
    pub ended_by: Option<String>,
    /// Its process was killed by this one.
    pub killed: bool,
    /// Nothing more will come.
    pub over: bool,
}

/// All that is known.
pub struct Board {
    pub records: Vec<Record>,
    dead_after: Duration,
    started: Option<Instant>,
    /// Seconds printed.
    printed: usize,
    json: Option<File>,
}

impl Board {
    /// Opens the file for the results first: an unwritable one is no news for the end.
    pub fn new(args: &Args, ranks: Vec<u32>) -> Result<Self, String> {
        let open = |path: &std::path::PathBuf| {
            File::create(path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let records = ranks.into_iter().map(|rank| Record { rank, ..Record::default() }).collect();
        let json = args.json.as_ref().map(open).transpose()?;
        Ok(Self { records, dead_after: args.dead_after, started: None, printed: 0, json })
    }

    /// Whether the job came together.
    pub fn has_started(&self) -> bool {
        self.started.is_some()
    }

    /// The record of `rank`.
    pub fn record(&mut self, rank: u32) -> Option<&mut Record> {
        self.records.iter_mut().find(|record| record.rank == rank)
    }

    /// Whether some rank has said that `rank` is dead.
    pub fn is_said_dead(&self, rank: u32) -> bool {
        self.records.iter().flat_map(|record| &record.deaths).any(|death| death.rank == rank)
    }

    /// Hears one line of `rank`; tells events at once.
    pub fn take(&mut self, rank: u32, line: Line) -> Result<(), String> {
        if matches!(line, Line::Started) && self.started.is_none() {
            self.started = Some(Instant::now());
            return self.head();
        }
        let Some(record) = self.records.iter_mut().find(|record| record.rank == rank) else {
            return Err(format!("rank {rank} is not of this job"));
        };
        match line {
            Line::Started => {}
            Line::Second(second) => record.seconds.push(second),
            Line::Death(death) => {
                let Death { rank: whom, name, cause, at_s, .. } = &death;
                say(format_args!("{at_s:>6.2} rank {rank}: rank {whom} ({name}) died: {cause}"))?;
                record.deaths.push(death);
            }
            Line::End(end) => {
                (record.end, record.over) = (Some(*end), true);
            }
            Line::Failed(why) => {
                say(format_args!("rank {rank} failed: {why}"))?;
                record.failed = Some(why);
            }
        }
        Ok(())
    }

    fn head(&self) -> Result<(), String> {
        let by = if self.records.len() > COLUMNS_MAX {
            "the least, the mean and the most of a rank".to_owned()
        } else {
            let ranks: Vec<_> = self.records.iter().map(|it| it.rank.to_string()).collect();
            format!("rank {}", ranks.join(", "))
        };
        say(format_args!("received and verified: messages/s (MB/s) of {by}; MB = 10^6 bytes"))?;
        say(format_args!("{:>6} {:>8} {:>8}", "s", "resent", "dropped"))
    }

    /// Prints the seconds that are complete, or as complete as they will get.
    pub fn print_due(&mut self) -> Result<(), String> {
        let Some(started) = self.started else { return Ok(()) };
        loop {
            let at = self.printed;
            let some = self.records.iter().any(|it| it.seconds.len() > at);
            let all = self.records.iter().all(|it| it.over || it.seconds.len() > at);
            let late = started.elapsed() > Duration::from_secs(at as u64 + 1) + LATE;
            if !(some && all || late && self.records.iter().any(|it| !it.over)) {
                return Ok(());
            }
            self.print(at)?;
            self.printed += 1;
        }
    }

    fn print(&self, at: usize) -> Result<(), String> {
        let seconds: Vec<_> = self.records.iter().map(|it| it.seconds.get(at)).collect();
        let known = || seconds.iter().copied().flatten();
        let sum = |get: fn(&Second) -> u64| known().map(get).sum::<u64>();
        let mut text = format!("{:>6} {:>8} {:>8}", at + 1, sum(|s| s.resent), sum(|s| s.drops));
        let shown = |messages: u64, bytes: u64| {
            format!("{:>15}", format!("{messages} ({:.1})", bytes as f64 / 1e6))
        };
        if seconds.len() > COLUMNS_MAX {
            let count = known().count().max(1) as u64;
            let least = known().min_by_key(|s| s.messages).copied().unwrap_or_default();
            let most = known().max_by_key(|s| s.messages).copied().unwrap_or_default();
            text += &shown(least.messages, least.bytes);
            text += &shown(sum(|s| s.messages) / count, sum(|s| s.bytes) / count);
            text += &shown(most.messages, most.bytes);
        } else {
            for second in &seconds {
                text += &second.map_or(format!("{:>15}", "-"), |s| shown(s.messages, s.bytes));
            }
        }
        say(format_args!("{text}"))
    }

    /// The dead, by rank: who says so, and why.
    fn dead(&self) -> BTreeMap<u32, String> {
        let mut dead: BTreeMap<u32, String> = BTreeMap::new();
        for record in &self.records {
            if let (Some(how), None, false) = (&record.ended_by, &record.failed, record.killed) {
                let _ = write!(dead.entry(record.rank).or_default(), ": {how}");
            }
        }
        for record in &self.records {
            for death in &record.deaths {
                let text = dead.entry(death.rank).or_default();
                if !text.contains(&death.name) {
                    text.insert_str(0, &format!(" ({})", death.name));
                }
                let _ = write!(text, "; rank {}: {}", record.rank, death.cause);
            }
        }
        dead
    }

    /// Prints the sums, writes the JSON, and says whether all is well.
    pub fn finish(mut self, args: &Args) -> Result<(), String> {
        let dead = self.dead();
        let is_whole = |it: &Record| it.failed.is_none() && it.end.is_some();
        let is_broken = |it: &&Record| !is_whole(it) && !dead.contains_key(&it.rank);
        let failed = self.records.iter().find(|it| it.failed.is_some());
        let broken = failed.or_else(|| self.records.iter().find(is_broken)).map(|it| {
            let why = it.failed.clone().unwrap_or_else(|| "it ended without a word".into());
            format!("rank {} failed: {why}", it.rank)
        });
        let verified = broken.is_none();
        self.print_sums(verified)?;
        self.write_json(args, verified, &dead)?;
        if let Some(broken) = broken {
            return Err(broken);
        }
        let list: Vec<_> = dead.iter().map(|(rank, how)| format!("rank {rank}{how}")).collect();
        match list.is_empty() {
            true => Ok(()),
            false if args.survive => say(format_args!("died, as expected: {}", list.join("\n"))),
            false => Err(format!("died: {}", list.join("\n"))),
        }
    }

    fn print_sums(&self, verified: bool) -> Result<(), String> {
        for it in &self.records {
            let Some(end) = &it.end else { continue };
            let sum = |get: fn(&Second) -> u64| it.seconds.iter().map(get).sum::<u64>();
            let of = |name| end.counters[name].as_u64().unwrap_or(0);
            say(format_args!(
                "rank {}: {} messages, {} bytes, {} of {} segments resent, {} datagrams dropped{}",
                it.rank,
                end.messages,
                end.bytes,
                of("segments_resent"),
                of("segments_sent"),
                sum(|s| s.drops),
                if end.closed { "" } else { ", not all goodbyes heard" }
            ))?;
        }
        if verified { say(format_args!("all messages verified")) } else { Ok(()) }
    }

    fn write_json(
        &mut self,
        args: &Args,
        verified: bool,
        dead: &BTreeMap<u32, String>,
    ) -> Result<(), String> {
        let Some(file) = &mut self.json else { return Ok(()) };
        let ranks: Vec<Value> = self.records.iter().map(Record::json).collect();
        let provider = self.records.iter().find_map(|it| it.end.as_ref()?.provider.clone());
        let json = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "port": args.job.port.as_str(),
            "provider": provider,
            "ranks": args.ranks,
            "seconds": args.seconds,
            "sizes": args.sizes,
            "pattern": args.pattern.as_str(),
            "window": args.window,
            "dead_after_ms": self.dead_after.as_millis() as u64,
            "faults": args.job.faults.as_ref().map(ToString::to_string),
            "seed": args.job.seed,
            "verified": verified,
            "dead": dead.keys().collect::<Vec<_>>(),
            "by_rank": ranks,
        });
        writeln!(file, "{json}").map_err(|error| format!("writing the results: {error}"))
    }
}

impl Record {
    fn json(&self) -> Value {
        let sum = |get: fn(&Second) -> u64| self.seconds.iter().map(get).sum::<u64>();
        let end = self.end.as_ref();
        json!({
            "rank": self.rank,
            "messages": end.map_or_else(|| sum(|s| s.messages), |end| end.messages),
            "bytes": end.map_or_else(|| sum(|s| s.bytes), |end| end.bytes),
            "per_second": self.seconds,
            "deaths": self.deaths,
            "whole": end.is_some(),
            "closed": end.map(|end| end.closed),
            "failed": self.failed,
            "ended_by": self.ended_by,
            "counters": end.map(|end| &end.counters),
            "faults": end.and_then(|end| end.faults.as_ref()),
        })
    }
}
