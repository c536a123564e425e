//! What a run measures, and the report that comes of it.

use crate::ports::sim::SimCounters;
use crate::stats::Counters;
use crate::time::Nanos;
use hdrhistogram::Histogram;
use serde::Serialize;

/// Buckets of a [`Series`].
const BUCKETS_MAX: usize = 512;

/// Samples over time, in at most 512 buckets: when time goes on, buckets get wider.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Width of each bucket; the first begins at time 0.
    pub bucket_ns: Nanos,
    /// The buckets, up to the last with a sample.
    pub buckets: Vec<Bucket>,
}

/// Some of the samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// The largest one.
    pub max: u64,
}

impl Bucket {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }
}

impl Default for Series {
    fn default() -> Self {
        Self { bucket_ns: crate::time::MICROS, buckets: Vec::new() }
    }
}

impl Series {
    /// Takes in a sample.
    pub fn add(&mut self, at: Nanos, value: u64) {
        while at / self.bucket_ns >= BUCKETS_MAX as u64 {
            self.widen();
        }
        let place = (at / self.bucket_ns) as usize;
        if place >= self.buckets.len() {
            self.buckets.resize(place + 1, Bucket::default());
        }
        self.buckets[place].add(Bucket { count: 1, sum: value, max: value });
    }

    fn widen(&mut self) {
        self.bucket_ns *= 2;
        for place in 0..self.buckets.len().div_ceil(2) {
            let mut both = self.buckets[2 * place];
            if let Some(second) = self.buckets.get(2 * place + 1) {
                both.add(*second);
            }
            self.buckets[place] = both;
        }
        self.buckets.truncate(self.buckets.len().div_ceil(2));
    }
}

/// Of many durations, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// How many.
    pub count: u64,
    /// The shortest.
    pub min_us: f64,
    /// Half are no longer than this.
    pub p50_us: f64,
    /// Of a hundred one is longer than this.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// Durations in nanoseconds, kept to three digits.
#[derive(Clone, Debug)]
pub(super) struct Durations(Histogram<u64>);

impl Default for Durations {
    fn default() -> Self {
        let mut histogram = Histogram::new(3).expect("three digits are possible");
        histogram.auto(true);
        Self(histogram)
    }
}

impl Durations {
    pub fn add(&mut self, ns: Nanos) {
        self.0.record(ns).expect("a histogram that resizes takes anything");
    }

    /// `None` when there are none.
    pub fn percentiles(&self) -> Option<Percentiles> {
        if self.0.is_empty() {
            return None;
        }
        let us = |ns: u64| ns as f64 / 1000.0;
        Some(Percentiles {
            count: self.0.len(),
            min_us: us(self.0.min()),
            p50_us: us(self.0.value_at_quantile(0.50)),
            p99_us: us(self.0.value_at_quantile(0.99)),
            max_us: us(self.0.max()),
        })
    }
}

/// How evenly several flows fared.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fairness {
    /// How many flows.
    pub flows: usize,
    /// Jain's index of their goodputs: 1 when all are equal, 1/n when one has everything.
    pub jain: f64,
    /// The slowest one's goodput as a fraction of the median.
    pub slowest_to_median: f64,
}

/// Of goodputs, in any unit; `None` below two.
pub fn fairness(goodputs: &[f64]) -> Option<Fairness> {
    let n = goodputs.len();
    if n < 2 {
        return None;
    }
    let mut sorted = goodputs.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let sum: f64 = sorted.iter().sum();
    let squares: f64 = sorted.iter().map(|x| x * x).sum();
    let (slowest, median) = (sorted[0], sorted[n / 2]);
    // Nothing at all got through: evenly so.
    let jain = if squares > 0.0 { sum * sum / (n as f64 * squares) } else { 1.0 };
    let slowest_to_median = if median > 0.0 { slowest / median } else { 1.0 };
    Some(Fairness { flows: n, jain, slowest_to_median })
}

/// One item of traffic.
#[derive(Clone, Debug, Serialize)]
pub struct ItemReport {
    /// Its name in the file.
    pub name: String,
    /// Flows: ordered pairs of peers that it uses.
    pub flows: usize,
    /// Messages that arrived, each one checked byte by byte.
    pub messages: u64,
    /// Bytes of those; requests of an incast not counted.
    pub bytes: u64,
    /// Messages that a restart swallowed.
    pub messages_lost: u64,
    /// When it began.
    pub start_us: f64,
    /// From the start to the last arrival.
    pub elapsed_us: f64,
    /// Payload that arrived over that time, in 10^6 bytes a second.
    pub goodput_mb_per_s: f64,
    /// The same as a fraction of what its senders' and receivers' links carry together.
    pub goodput_of_link: Option<f64>,
    /// From handing over (random: from being due) to arrival.
    pub latency: Option<Percentiles>,
    /// Whole rounds: round trips, incasts, exchanges.
    pub rounds: Option<Percentiles>,
    /// When each flow's last message arrived, after the start.
    pub completion: Option<Percentiles>,
    /// Over the flows that carry data.
    pub fairness: Option<Fairness>,
    /// Bytes that arrived.
    pub arrivals: Series,
}

/// Everything that a run has to tell. The same plan gives the same report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Of the scenario.
    pub title: String,
    /// With which it was played.
    pub seed: u64,
    /// How many processes.
    pub peers: u32,
    /// Virtual time when nothing was left to do.
    pub virtual_us: f64,
    /// What had not finished when the scenario's limit was reached.
    pub unfinished: Option<String>,
    /// Turns of all engines.
    pub ticks: u64,
    /// In the order of the file.
    pub traffic: Vec<ItemReport>,
    /// What became of the datagrams.
    pub network: SimCounters,
    /// Of all engines together, those that a restart ended too.
    pub engines: Counters,
    /// Resent segments as a fraction of all transmitted ones.
    pub resent: f64,
    /// Latencies of messages, in nanoseconds, by time of arrival.
    pub latency: Series,
    /// Datagrams in the queues of receivers' links, seen whenever one of them takes some in.
    pub queue: Series,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_keep_sums_and_maxima_when_they_widen() {
        let mut series = Series::default();
        let samples = [(0, 5), (1_500, 7), (400_000, 1), (511_999, 2), (70_000_000, 9)];
        for (at, value) in samples {
            series.add(at, value);
        }
        assert!(series.buckets.len() <= BUCKETS_MAX);
        let sum: u64 = series.buckets.iter().map(|bucket| bucket.sum).sum();
        let count: u64 = series.buckets.iter().map(|bucket| bucket.count).sum();
        assert_eq!((sum, count), (24, 5));
        let place = (70_000_000 / series.bucket_ns) as usize;
        assert_eq!((place + 1, series.buckets[place].max), (series.buckets.len(), 9));
        assert_eq!(series.buckets[0], Bucket { count: 2, sum: 12, max: 7 });
    }

    #[test]
    fn durations_keep_three_digits() {
        let mut durations = Durations::default();
        assert_eq!(durations.percentiles(), None);
        (1..=100).for_each(|i| durations.add(i * 1_000_000));
        let Percentiles { count, min_us, p50_us, p99_us, max_us } =
            durations.percentiles().unwrap();
        assert_eq!(count, 100);
        for (got, want_ms) in [(min_us, 1.0), (p50_us, 50.0), (p99_us, 99.0), (max_us, 100.0)] {
            assert!((got / 1e3 / want_ms - 1.0).abs() < 1e-3, "{got} us, not {want_ms} ms");
        }
    }

    #[test]
    fn fairness_of_known_cases() {
        assert_eq!(fairness(&[3.0]), None);
        let even = fairness(&[2.0; 5]).unwrap();
        assert!((even.jain - 1.0).abs() < 1e-12 && even.slowest_to_median == 1.0);
        let one = fairness(&[0.0, 0.0, 0.0, 8.0]).unwrap();
        assert!((one.jain - 0.25).abs() < 1e-12);
        let slow = fairness(&[4.0, 1.0, 4.0]).unwrap();
        assert!((slow.slowest_to_median - 0.25).abs() < 1e-12);
    }
}
