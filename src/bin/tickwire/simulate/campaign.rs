//! The fault campaign: the scenario of each seed of a range, on all cores.

use crate::process::say;
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use tickwire::simulation::{Played, play_seed};

/// Failures that are told in full: those of the lowest seeds.
const TOLD_MAX: usize = 10;

thread_local! {
    /// What this thread's last panic said.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// `17..18`: the seed 17 alone.
pub fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("{text:?} is not a range of seeds such as 0..20000");
    let (first, end) = text.split_once("..").ok_or_else(wrong)?;
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
    let range = number(first)?..number(end)?;
    if range.is_empty() { Err(format!("{text:?} is an empty range")) } else { Ok(range) }
}

/// What all threads have done together.
#[derive(Default)]
struct Tally {
    played: AtomicU64,
    messages: AtomicU64,
    virtual_ns: AtomicU64,
    failures: Mutex<Failures>,
}

#[derive(Default)]
struct Failures {
    count: u64,
    told: BTreeMap<u64, String>,
}

impl Tally {
    fn add(&self, seed: u64, result: Result<Played, String>) {
        self.played.fetch_add(1, Ordering::Relaxed);
        match result {
            Ok(Played { messages, virtual_ns }) => {
                self.messages.fetch_add(messages, Ordering::Relaxed);
                self.virtual_ns.fetch_add(virtual_ns, Ordering::Relaxed);
            }
            Err(failure) => {
                // A panic while it was locked leaves nothing half done.
                let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
                failures.count += 1;
                failures.told.insert(seed, failure);
                if failures.told.len() > TOLD_MAX {
                    failures.told.pop_last();
                }
            }
        }
    }
}

/// Plays all seeds; an error when one failed.
pub fn run(seeds: Range<u64>, threads: Option<usize>) -> Result<(), String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.unwrap_or(cores);
    let (tally, next) = (Tally::default(), AtomicU64::new(seeds.start));
    let bar = bar(seeds.end - seeds.start);
    // The default hook would print each panic as it comes, amid the progress bar.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|info| PANIC.set(info.to_string())));
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let result = std::panic::catch_unwind(|| play_seed(seed));
                    tally.add(seed, result.unwrap_or_else(|_| Err(PANIC.take())));
                    bar.inc(1);
                }
            });
        }
    });
    std::panic::set_hook(hook);
    bar.finish_and_clear();
    tell(&tally, &seeds, begin.elapsed().as_secs_f64(), threads)
}

fn tell(tally: &Tally, seeds: &Range<u64>, wall_s: f64, threads: usize) -> Result<(), String> {
    let failures = tally.failures.lock().unwrap_or_else(PoisonError::into_inner);
    for (seed, failure) in &failures.told {
        say(format_args!("seed {seed}: {failure}"))?;
        let end = seed + 1;
        say(format_args!("replay: tickwire simulate --campaign {seed}..{end}\n"))?;
    }
    let played = tally.played.load(Ordering::Relaxed);
    let messages = tally.messages.load(Ordering::Relaxed);
    let virtual_s = tally.virtual_ns.load(Ordering::Relaxed) as f64 / 1e9;
    let rate = played as f64 / wall_s.max(1e-9);
    say(format_args!(
        "seeds {}..{}: {played} played, {messages} messages, {virtual_s:.1} s virtual, \
         {wall_s:.1} s real on {threads} threads, {rate:.0} seeds/s",
        seeds.start, seeds.end
    ))?;
    match failures.count {
        0 => Ok(()),
        count => Err(format!("{count} of {played} seeds failed")),
    }
}

fn bar(seeds: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(seeds);
    let style = ProgressStyle::with_template("[{bar:40}] {pos}/{len} seeds, {per_sec}, {eta} left");
    style.map_or(bar.clone(), |style| bar.with_style(style))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        assert_eq!(parse_range("0..20000"), Ok(0..20000));
        assert_eq!(parse_range("17..18"), Ok(17..18));
        for text in ["", "17", "..", "3..3", "4..3", "a..b", "-1..3"] {
            assert!(parse_range(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_lowest_failures_are_told_and_all_are_counted() {
        let tally = Tally::default();
        for seed in (0..100).rev() {
            tally.add(seed, Err(format!("no {seed}")));
        }
        let failures = tally.failures.lock().unwrap();
        assert_eq!(failures.count, 100);
        assert!(failures.told.keys().copied().eq(0..TOLD_MAX as u64));
    }
}
