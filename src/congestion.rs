//! How many segments a peer may have in flight, beyond what its windows allow. Pure arithmetic.
//!
//! The model is Swift (Kumar et al., SIGCOMM 2020): the window grows by one segment a round trip
//! while the delay is below a target, shrinks in proportion to the excess at most once a round
//! trip, and may fall below one segment, which then leave paced. Where this departs from the paper
//! (delay relative to the least seen, a start by doubling, when loss counts):
//! `docs/decisions/0010-congestion.md`.

use crate::time::{MICROS, MILLIS, Nanos, coarse, coarse_elapsed_ns};

/// How the congestion window is governed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// By delay.
    Delay {
        /// Queueing that is aimed at: round trip beyond the least one seen, in nanoseconds. Peers
        /// with small windows aim at up to twice this, so that many share a link fairly.
        target_ns: u32,
    },
    /// Not at all: the window stays at `Config::congestion_window_segments`.
    Fixed,
}

/// Smallest window: one segment in a hundred round trips.
const LEAST: f32 = 0.01;
/// Timeouts alone do not make it smaller than this.
const TIMEOUT_LEAST: f32 = 0.5;
/// Largest part that one decrease takes (Swift: max_mdf).
const CUT_MAX: f32 = 0.5;
/// How strongly the excess of delay cuts (Swift: beta, there 0.8: with a hundred flows in a queue
/// of 128 that left a tenth of the link unused).
const CUT_SCALE: f32 = 0.5;
/// Windows between these scale the target (Swift: fs_min_cwnd, fs_max_cwnd), as 1 / sqrt.
const SCALE_FROM: f32 = 10.0;
const SCALE_TO: f32 = 3.162_277_7;
/// A queue below this part of the target is noise.
const NOISE: f32 = 4.0;
/// In smaller windows than this, half is not many.
const MANY_FROM: f32 = 4.0;
/// So many round trips without a cut, and the window grows by a sixteenth a round trip.
const QUIET_ROUNDS: u64 = 8;
/// No segment is held back for longer.
const PACE_NS_MAX: Nanos = 10 * MILLIS;
/// A least round trip older than this may be one of another route.
const LEAST_RTT_AGE_NS: Nanos = 10_000 * MILLIS;
/// A cut may follow a cut after a round trip, and this at least.
const ROUND_NS_MIN: Nanos = 2 * MICROS;

/// Round trips that a round must have told of: the least of few says little.
pub const SAMPLES_MIN: u16 = 4;

/// What an ack told.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// Least round trip since the present round began, this ack's included; the receiver's delay
    /// taken off. One that is late by chance, or for a receiver that was away, says nothing; a
    /// queue that stands makes all of them late.
    pub least_in_round_ns: u32,
    /// Segments that it covers.
    pub segments: u32,
    /// Segments still in flight.
    pub in_flight: u32,
}

/// The congestion window of one peer. 20 bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CongestionWindow {
    segments: f32,
    /// Least round trip seen lately; 0: none yet.
    least_rtt_ns: u32,
    /// When it was seen, in steps of 2^20 ns.
    least_rtt_at: u32,
    /// When the window was cut last, as coarse time; 0: never, it still doubles.
    cut_at: u32,
    /// When the next segment may leave, as coarse time, while the window is below one.
    pace_at: u32,
}

impl CongestionWindow {
    /// A window of `segments` to start with.
    pub fn new(segments: u32) -> Self {
        Self { segments: segments as f32, least_rtt_ns: 0, least_rtt_at: 0, cut_at: 0, pace_at: 0 }
    }

    /// The window in segments.
    pub fn segments(&self) -> f32 {
        self.segments
    }

    /// Whether one more segment may enter the network when `in_flight` are there.
    #[inline]
    pub fn allows(&self, in_flight: u32, now: Nanos) -> bool {
        if in_flight > 0 {
            return (in_flight as f32) < self.segments;
        }
        self.segments >= 1.0 || self.pace_wait_ns(now) == 0
    }

    /// How long the next segment must wait although none is in flight.
    pub fn pace_wait_ns(&self, now: Nanos) -> Nanos {
        if self.segments >= 1.0 {
            return 0;
        }
        let ahead = u64::from(self.pace_at.wrapping_sub(coarse(now))) << 10;
        // What seems to be further ahead lies behind, in time that wraps.
        if ahead <= PACE_NS_MAX { ahead } else { 0 }
    }

    /// Whether the window is below one segment: then sends keep their distance.
    #[inline]
    pub fn is_paced(&self) -> bool {
        self.segments < 1.0
    }

    /// A segment has left, while [`Self::is_paced`].
    pub fn on_sent(&mut self, now: Nanos, srtt_ns: Nanos) {
        let gap = (srtt_ns as f32 / self.segments) as Nanos;
        self.pace_at = coarse(now + gap.min(PACE_NS_MAX - MILLIS));
    }

    /// Nothing was sent for long: what was learned of the network is old.
    pub fn on_idle(&mut self, initial: u32) {
        self.segments = self.segments.min(initial as f32);
    }

    /// The queueing that a window of this size aims at.
    fn target_ns(&self, target_ns: u32) -> f32 {
        // Long ways have long queues, and bursts of large windows fill them for a while.
        let target_ns = target_ns.max(self.least_rtt_ns / 8);
        let scale = (1.0 / self.segments.max(0.1).sqrt() - 1.0 / SCALE_FROM).max(0.0);
        target_ns as f32 * (1.0 + scale / (SCALE_TO - 1.0 / SCALE_FROM))
    }

    fn learn_least_rtt(&mut self, rtt_ns: u32, now: Nanos) {
        let at = (now >> 20) as u32;
        let is_old = u64::from(at.wrapping_sub(self.least_rtt_at)) << 20 > LEAST_RTT_AGE_NS;
        if self.least_rtt_ns == 0 || rtt_ns <= self.least_rtt_ns {
            (self.least_rtt_ns, self.least_rtt_at) = (rtt_ns, at);
        } else if is_old {
            // A standing queue must not pass for the way itself: make it drain, then look.
            (self.least_rtt_ns, self.least_rtt_at) = (rtt_ns, at);
            self.cut(CUT_MAX, now);
        }
    }

    /// Takes in an ack.
    #[inline]
    pub fn on_ack(&mut self, acked: &Acked, max: u32, target_ns: u32, now: Nanos) {
        self.learn_least_rtt(acked.least_in_round_ns.max(1), now);
        let queue = self.queue_ns(acked.least_in_round_ns);
        let target = self.target_ns(target_ns);
        let arrived = acked.segments as f32;
        // A window that is not used tells nothing about a larger one.
        if queue > target || (acked.in_flight as f32 + arrived) * 2.0 < self.segments {
            return;
        }
        let doubles = self.cut_at == 0 && queue * 2.0 < target;
        let part = if doubles { 1.0 } else { self.step(acked.least_in_round_ns, now) };
        self.segments = (self.segments + part * arrived).min(max as f32);
    }

    /// A round trip's worth of segments is acked; the least of their round trips is known.
    #[inline]
    pub fn on_round(&mut self, least_in_round_ns: u32, target_ns: u32, now: Nanos) {
        let (queue, target) = (self.queue_ns(least_in_round_ns), self.target_ns(target_ns));
        if queue > target && self.may_cut(least_in_round_ns, now) {
            self.cut((CUT_SCALE * (queue - target) / queue).min(CUT_MAX), now);
        }
    }

    /// A round trip's worth of segments is acked, but its time was the receiver's, who was away:
    /// nothing is known of the network. Without this a window that timeouts made small would stay
    /// so; it grows to what an idle peer begins with.
    pub fn on_blind_round(&mut self, initial: u32) {
        if self.segments < initial as f32 {
            self.segments = (self.segments * 2.0).min(initial as f32);
        }
    }

    fn queue_ns(&self, rtt_ns: u32) -> f32 {
        rtt_ns.saturating_sub(self.least_rtt_ns) as f32
    }

    /// What one acked segment adds to the window. A round trip adds one segment; to small windows
    /// less, or a hundred of them would overflow a queue of a hundred in one round; to large ones
    /// more when no delay has been seen for long.
    fn step(&self, rtt_ns: u32, now: Nanos) -> f32 {
        if self.segments < 1.0 {
            return self.segments;
        }
        let a_round = (self.segments / 16.0).min(1.0);
        let is_quiet = coarse_elapsed_ns(now, self.cut_at) > QUIET_ROUNDS * u64::from(rtt_ns);
        (a_round / self.segments).max(if is_quiet { 1.0 / 16.0 } else { 0.0 })
    }

    fn may_cut(&self, rtt_ns: u32, now: Nanos) -> bool {
        let round_ns = u64::from(rtt_ns).max(ROUND_NS_MIN);
        self.cut_at == 0 || coarse_elapsed_ns(now, self.cut_at) >= round_ns
    }

    fn cut(&mut self, part: f32, now: Nanos) {
        self.segments = (self.segments * (1.0 - part)).max(LEAST);
        self.cut_at = coarse(now).max(1);
    }

    /// `lost` segments of the present round are known to be lost. What queue there is may have
    /// overflowed: the window gives up its share of it, which costs nothing where the loss was
    /// chance. Half of a window is more than chance takes, and a queue may be too short to show.
    pub fn on_loss(&mut self, lost: u32, rtt_ns: u32, target_ns: u32, now: Nanos) {
        if !self.may_cut(rtt_ns, now) {
            return;
        }
        let queue = self.queue_ns(rtt_ns);
        let is_noise = queue * NOISE < target_ns as f32;
        let share = queue / (queue + self.least_rtt_ns.max(1) as f32);
        let is_many = self.segments >= MANY_FROM && lost as f32 * 2.0 >= self.segments;
        if is_many || !is_noise {
            self.cut(if is_many { CUT_MAX } else { share.min(CUT_MAX) }, now);
        }
    }

    /// Not even a probe came back. That may be a peer that sleeps as well as a network that is
    /// full, so it alone does not bring on long waits between segments.
    pub fn on_timeout(&mut self, now: Nanos) {
        if self.segments > TIMEOUT_LEAST {
            self.cut(CUT_MAX, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: u32 = 50_000;

    /// One round with one round trip.
    fn round(window: &mut CongestionWindow, rtt_ns: u32, segments: u32, now: Nanos) {
        let acked = Acked { least_in_round_ns: rtt_ns, segments, in_flight: 1000 };
        window.on_ack(&acked, 4096, TARGET, now);
        window.on_round(rtt_ns, TARGET, now);
    }

    #[test]
    fn doubles_until_the_first_cut_then_adds_one_a_round() {
        let mut window = CongestionWindow::new(16);
        round(&mut window, 20_000, 16, 1_000_000);
        assert_eq!(window.segments(), 32.0);
        round(&mut window, 1_000_000_000, 1, 2_000_000);
        assert!((window.segments() - 16.0).abs() < 0.01, "{window:?}");
        window.segments = 16.0;
        round(&mut window, 20_000, 16, 2_020_000);
        assert_eq!(window.segments(), 17.0);
        // Small windows grow slower.
        let mut small = CongestionWindow { segments: 2.0, cut_at: 1, ..window };
        round(&mut small, 20_000, 2, 2_020_000);
        assert_eq!(small.segments(), 2.125);
    }

    #[test]
    fn cuts_once_a_round_trip_in_proportion_to_the_excess() {
        let mut window = CongestionWindow::new(100);
        window.learn_least_rtt(10_000, 1_000_000);
        // 62.5 us of queueing against 50 us: a fifth above, times 0.5.
        round(&mut window, 72_500, 1, 2_000_000);
        assert!((window.segments() - 90.0).abs() < 0.5, "{window:?}");
        round(&mut window, 72_500, 1, 2_050_000);
        assert!(window.segments() > 89.5, "{window:?}");
        round(&mut window, 72_500, 1, 2_080_000);
        assert!(window.segments() < 82.0, "{window:?}");
    }

    #[test]
    fn below_one_segments_are_paced_and_the_wait_is_bounded() {
        let mut window = CongestionWindow::new(1);
        window.learn_least_rtt(10_000, 1_000_000);
        let mut now = 10_000_000;
        for _ in 0..20 {
            window.on_timeout(now);
            now += 1_000_000;
        }
        assert_eq!(window.segments(), TIMEOUT_LEAST);
        for _ in 0..20 {
            round(&mut window, 900_000, 1, now);
            now += 1_000_000;
        }
        assert_eq!(window.segments(), LEAST);
        window.on_sent(now, 10_000);
        assert!(!window.allows(0, now) && !window.allows(0, now + 990_000));
        assert!(window.allows(0, now + 1_001_000));
        window.on_sent(now, Nanos::MAX / 2);
        assert!(window.pace_wait_ns(now) <= PACE_NS_MAX);
        // Time that wraps is no wait.
        for minutes in [1, 20, 40, 60, 80] {
            assert!(window.allows(0, now + minutes * 60_000 * MILLIS), "{minutes} minutes");
        }
        for _ in 0..10 {
            round(&mut window, 10_000, 1, now);
        }
        assert!(window.allows(0, now) && !window.allows(2, now));
    }

    #[test]
    fn a_loss_costs_the_share_of_the_queue() {
        let mut window = CongestionWindow::new(100);
        window.learn_least_rtt(10_000, 1_000_000);
        // Chance: no queue.
        window.on_loss(25, 10_200, 10_000, 2_000_000);
        assert_eq!(window.segments(), 100.0);
        // A quarter of the round trip is queue.
        window.on_loss(1, 13_333, 10_000, 3_000_000);
        assert!((window.segments() - 75.0).abs() < 0.1, "{window:?}");
        // More than chance takes.
        window.on_loss(50, 10_000, 10_000, 4_000_000);
        assert!((window.segments() - 37.5).abs() < 0.1, "{window:?}");
        let mut small = CongestionWindow { segments: 2.0, ..window };
        small.on_loss(2, 10_000, 10_000, 5_000_000);
        assert_eq!(small.segments(), 2.0);
    }

    #[test]
    fn an_unused_window_does_not_grow() {
        let mut window = CongestionWindow::new(100);
        let acked = Acked { least_in_round_ns: 10_000, segments: 1, in_flight: 10 };
        window.on_ack(&acked, 4096, TARGET, 1_000_000);
        assert_eq!(window.segments(), 100.0);
    }
}
