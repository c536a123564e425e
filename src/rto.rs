//! Round-trip estimation and the retransmission timeout: pure arithmetic.
//!
//! RFC 6298 with a floor; samples of retransmitted segments are never fed in (Karn's rule, kept
//! by the caller). The first timeout after progress is a probe as in RACK-TLP (RFC 8985, 7.2):
//! two smoothed round trips, so that a lost tail costs about a round trip.

use crate::time::Nanos;

/// Bounds of the timers, from `Config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtoLimits {
    /// Never time out earlier than this.
    pub min_ns: u32,
    /// Never wait longer than this, back-off included.
    pub max_ns: u32,
    /// Used until there is a sample.
    pub initial_ns: u32,
}

/// What is known of the way to one peer. 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rtt {
    srtt_ns: u32,
    rttvar_ns: u32,
}

impl Rtt {
    /// Takes in one sample.
    #[inline]
    pub fn sample(&mut self, rtt_ns: Nanos) {
        let rtt = rtt_ns.clamp(1, u64::from(u32::MAX / 4)) as u32;
        if self.srtt_ns == 0 {
            *self = Self { srtt_ns: rtt, rttvar_ns: rtt / 2 };
            return;
        }
        // RFC 6298, 2.3: alpha 1/8, beta 1/4.
        let error = self.srtt_ns.abs_diff(rtt);
        self.rttvar_ns = self.rttvar_ns - self.rttvar_ns / 4 + error / 4;
        self.srtt_ns = (self.srtt_ns - self.srtt_ns / 8 + rtt / 8).max(1);
    }

    /// Smoothed round trip in nanoseconds; 0 before the first sample.
    pub fn srtt_ns(&self) -> Nanos {
        u64::from(self.srtt_ns)
    }

    /// The wait before the next resend after `backoff` fruitless ones.
    #[inline]
    pub fn timeout_ns(&self, backoff: u8, ack_delay_ns: u32, limits: &RtoLimits) -> Nanos {
        let base = if self.srtt_ns == 0 {
            u64::from(limits.initial_ns)
        } else {
            // A round trip that never varies still needs a margin: for delayed acks, and for a
            // process that lost its core. RFC 6298, 2.3 calls it the clock's granularity.
            let margin = (4 * u64::from(self.rttvar_ns)).max(u64::from(limits.min_ns));
            let rto = u64::from(self.srtt_ns) + margin;
            let probe = 2 * u64::from(self.srtt_ns) + u64::from(ack_delay_ns);
            if backoff == 0 { rto.min(probe) } else { rto }
        };
        // The exponent is clamped before it is used: 16 doublings of 1 ns pass any cap.
        let backed_off = base.max(u64::from(limits.min_ns)) << backoff.min(16);
        backed_off.min(u64::from(limits.max_ns))
    }

    /// How much later than its successors a segment may be before it counts as lost
    /// (RFC 8985, 6.2: a quarter of the round trip).
    #[inline]
    pub fn reorder_window_ns(&self, floor_ns: u32) -> Nanos {
        u64::from((self.srtt_ns / 4).max(floor_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RtoLimits = RtoLimits { min_ns: 1000, max_ns: 1_000_000, initial_ns: 5000 };

    #[test]
    fn starts_at_the_initial_value_and_doubles_to_the_cap() {
        let rtt = Rtt::default();
        let waits: Vec<_> = (0..=255).map(|n| rtt.timeout_ns(n, 0, &LIMITS)).collect();
        assert_eq!(waits[..3], [5000, 10_000, 20_000]);
        assert!(waits.is_sorted());
        assert_eq!(waits[255], 1_000_000);
    }

    #[test]
    fn follows_the_samples() {
        let mut rtt = Rtt::default();
        for _ in 0..100 {
            rtt.sample(20_000);
        }
        assert!((18_000..=20_000).contains(&rtt.srtt_ns()));
        assert!(rtt.timeout_ns(0, 0, &LIMITS) <= 40_000);
        rtt.sample(u64::MAX);
        assert!(rtt.timeout_ns(3, 0, &LIMITS) <= 1_000_000);
    }

    #[test]
    fn a_steady_round_trip_keeps_a_margin() {
        let mut rtt = Rtt::default();
        for _ in 0..100 {
            rtt.sample(500_000);
        }
        let margin = rtt.timeout_ns(0, 20_000, &LIMITS) - rtt.srtt_ns();
        assert!((1000..=2000).contains(&margin), "{margin}");
    }

    #[test]
    fn floor_holds() {
        let mut rtt = Rtt::default();
        rtt.sample(1);
        assert_eq!(rtt.timeout_ns(0, 0, &LIMITS), 1000);
    }
}
