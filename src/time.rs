//! Time as the engine sees it: nanoseconds since an arbitrary start, handed in by the port.

/// Nanoseconds on a port's own monotonic clock. Only differences mean anything.
pub type Nanos = u64;

/// One microsecond in [`Nanos`].
pub const MICROS: Nanos = 1_000;
/// One millisecond in [`Nanos`].
pub const MILLIS: Nanos = 1_000_000;
/// One second in [`Nanos`].
pub const SECONDS: Nanos = 1_000_000_000;

/// Time in steps of 1024 ns that wraps after 73 minutes: for short waits, in 4 bytes.
#[inline]
pub(crate) fn coarse(ns: u64) -> u32 {
    (ns >> 10) as u32
}

/// Nanoseconds from coarse time `since` to `now`, to 1024 ns.
#[inline]
pub(crate) fn coarse_elapsed_ns(now: u64, since: u32) -> u64 {
    u64::from(coarse(now).wrapping_sub(since)) << 10
}

/// Whether coarse time `at` has come, for waits of less than half an hour.
#[inline]
pub(crate) fn coarse_is_due(now: u64, at: u32) -> bool {
    coarse(now).wrapping_sub(at) as i32 >= 0
}

/// When [`coarse_is_due`] holds for `at` first, seen from `now`; now if it does.
pub(crate) fn coarse_at(now: u64, at: u32) -> u64 {
    match at.wrapping_sub(coarse(now)) as i32 {
        ahead if ahead > 0 => ((now >> 10) + ahead as u64) << 10,
        _ => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coarse_times_come_when_they_are_due() {
        for now in [0, 5_000, (1 << 42) - 1, (1 << 42) + 77] {
            for wait_ns in [0, 1, 1023, 1024, 20_000] {
                let at = coarse(now + wait_ns);
                let due = coarse_at(now, at);
                assert!(coarse_is_due(due, at) && due >= now, "{now} + {wait_ns}: {due}");
                assert!(due == now || !coarse_is_due(due - 1, at), "{now} + {wait_ns}: {due}");
            }
        }
    }
}
