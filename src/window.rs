//! Window arithmetic: which numbers may be sent, which are accepted. Pure.
//!
//! All ranges are half-open. Sender: `[acked, next)` is outstanding, `[next, limit)` may follow.
//! Receiver: `[expected, expected + len)` is accepted.

use tickwire_tables::seq::Seq;

/// Where a received number lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The very next one.
    Expected,
    /// Further on in the window: something before it is missing.
    Ahead,
    /// Delivered already, or so old that it must be.
    Behind,
    /// Beyond the window.
    Above,
}

/// Places `seq` against a receive window that starts at `expected`.
#[inline]
pub fn place(seq: Seq, expected: Seq, window: u32) -> Place {
    match seq.distance_from(expected) {
        0 => Place::Expected,
        d if d < 0 => Place::Behind,
        d if (d as u32) < window => Place::Ahead,
        _ => Place::Above,
    }
}

/// Whether an ack for everything before `ack` can be true: `acked <= ack <= next`.
#[inline]
pub fn is_possible_ack(ack: Seq, acked: Seq, next: Seq) -> bool {
    let outstanding = next.distance_from(acked);
    (0..=outstanding).contains(&ack.distance_from(acked))
}

/// Whether `next` may be sent. One segment may always be outstanding, so that a closed window
/// is probed and never a deadlock.
#[inline]
pub fn may_send(next: Seq, acked: Seq, limit: Seq, window: u32) -> bool {
    let outstanding = next.distance_from(acked);
    outstanding == 0 || ((outstanding as u32) < window && next.is_before(limit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn places_agree_with_wide_integers(
            expected: u32,
            offset in -70_000i64..70_000,
            w in 1u32..4096,
        ) {
            let seq = Seq::new((i64::from(expected) + offset) as u32);
            let want = match offset {
                0 => Place::Expected,
                o if o < 0 => Place::Behind,
                o if o < i64::from(w) => Place::Ahead,
                _ => Place::Above,
            };
            prop_assert_eq!(place(seq, Seq::new(expected), w), want);
        }

        #[test]
        fn acks_agree_with_wide_integers(acked: u32, out in 0u32..4096, offset in -9000i64..9000) {
            let ack = Seq::new((i64::from(acked) + offset) as u32);
            let acked = Seq::new(acked);
            let want = (0..=i64::from(out)).contains(&offset);
            prop_assert_eq!(is_possible_ack(ack, acked, acked.add(out)), want);
        }

        #[test]
        fn one_may_always_go(acked: u32, limit: u32, w in 1u32..4096) {
            let acked = Seq::new(acked);
            prop_assert!(may_send(acked, acked, Seq::new(limit), w));
            prop_assert!(!may_send(acked.add(w), acked, acked.add(8192), w));
        }
    }
}
