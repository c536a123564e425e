//! Timers, at most one a row, without a heap.

use crate::Row;
use alloc::boxed::Box;

/// Each level divides a bucket of the level above by 64, the bits of an occupancy word.
const LEVEL_BITS: u32 = 6;
const BUCKETS: usize = 1 << LEVEL_BITS;
/// Enough for all of 64 bits, so that no time is out of reach.
const LEVELS: usize = u64::BITS.div_ceil(LEVEL_BITS) as usize;

/// A row's timer. Armed when it has neighbours; the only row of a bucket is its own neighbour.
#[derive(Clone, Copy, Debug)]
struct Timer<R> {
    deadline_ns: u64,
    prev: Option<R>,
    next: Option<R>,
}

/// A hierarchical timer wheel. Deadlines are rounded up to whole ticks, so a row never fires
/// early, and fires at most a tick late.
///
/// The wheel stands at a tick. A row whose tick differs from that is kept on the level of the
/// highest group of six bits in which the two differ, in the bucket named by that group. So all
/// rows of a level are due before those of the levels above, buckets of a level are due in their
/// order, and the next thing to do is found by two bit scans whatever time has passed. A bucket
/// is a ring of rows linked by index; its head is the longest waiting. Where a row is follows from
/// its deadline and where the wheel stands, so it is not stored.
#[derive(Clone, Debug)]
pub struct TimerWheel<R> {
    timers: Box<[Timer<R>]>,
    heads: Box<[[Option<R>; BUCKETS]; LEVELS]>,
    /// For every level the buckets that are not empty.
    occupied: [u64; LEVELS],
    /// The levels that are not empty.
    levels: u32,
    tick_shift: u32,
    /// Where the wheel stands. No armed row is due before this tick; those due at it or overdue
    /// are in its bucket of level 0.
    tick: u64,
    armed: u32,
}

impl<R: Row> TimerWheel<R> {
    /// A wheel for the rows below `capacity` that stands at `now_ns`. Panics unless `tick_ns`,
    /// the resolution, is a power of two.
    pub fn new(capacity: usize, tick_ns: u64, now_ns: u64) -> Self {
        assert!(tick_ns.is_power_of_two(), "a tick of {tick_ns} ns: not a power of two");
        let tick_shift = tick_ns.trailing_zeros();
        Self {
            timers: alloc::vec![Timer { deadline_ns: 0, prev: None, next: None }; capacity].into(),
            heads: Box::new([[None; BUCKETS]; LEVELS]),
            occupied: [0; LEVELS],
            levels: 0,
            tick_shift,
            tick: now_ns >> tick_shift,
            armed: 0,
        }
    }

    /// Level and bucket of a deadline, as seen from where the wheel stands.
    #[inline]
    fn place(&self, deadline_ns: u64) -> (usize, usize) {
        let rest_ns = deadline_ns & ((1 << self.tick_shift) - 1);
        let due = (deadline_ns >> self.tick_shift) + u64::from(rest_ns != 0);
        let due = due.max(self.tick);
        // The lowest bit is set so that a row due now, without a difference, is on level 0.
        let level = (due ^ self.tick | 1).ilog2() / LEVEL_BITS;
        (level as usize, (due >> (level * LEVEL_BITS)) as usize % BUCKETS)
    }

    /// First tick of a bucket, as seen from where the wheel stands.
    #[inline]
    fn start(&self, level: usize, bucket: usize) -> u64 {
        let shift = level as u32 * LEVEL_BITS;
        let above = self.tick >> shift & !(BUCKETS as u64 - 1);
        (above | bucket as u64) << shift
    }

    /// The bucket due next.
    #[inline]
    fn first_bucket(&self) -> Option<(usize, usize)> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        Some((level, self.occupied[level].trailing_zeros() as usize))
    }

    #[inline]
    fn link(&mut self, row: R) {
        let (level, bucket) = self.place(self.timers[row.index()].deadline_ns);
        let (prev, next) = match self.heads[level][bucket] {
            Some(head) => {
                let tail = self.timers[head.index()].prev.expect("an armed row has neighbours");
                self.timers[tail.index()].next = Some(row);
                self.timers[head.index()].prev = Some(row);
                (tail, head)
            }
            None => {
                self.heads[level][bucket] = Some(row);
                self.occupied[level] |= 1 << bucket;
                self.levels |= 1 << level;
                (row, row)
            }
        };
        let timer = &mut self.timers[row.index()];
        timer.prev = Some(prev);
        timer.next = Some(next);
    }

    #[inline]
    fn empty_bucket(&mut self, level: usize, bucket: usize) {
        self.heads[level][bucket] = None;
        self.occupied[level] &= !(1 << bucket);
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
    }

    /// Takes `row` out of its bucket; whether it was in one.
    #[inline]
    fn unlink(&mut self, row: R) -> bool {
        let timer = &mut self.timers[row.index()];
        let (Some(prev), Some(next)) = (timer.prev.take(), timer.next.take()) else {
            return false;
        };
        let (level, bucket) = self.place(self.timers[row.index()].deadline_ns);
        if next == row {
            self.empty_bucket(level, bucket);
        } else {
            self.timers[prev.index()].next = Some(next);
            self.timers[next.index()].prev = Some(prev);
            if self.heads[level][bucket] == Some(row) {
                self.heads[level][bucket] = Some(next);
            }
        }
        true
    }

    /// Arms `row` to fire at `deadline_ns`, or moves it there when it is armed. A deadline in the
    /// past fires on the next call of [`TimerWheel::advance`].
    #[inline]
    pub fn arm(&mut self, row: R, deadline_ns: u64) {
        let was_armed = self.unlink(row);
        self.armed += u32::from(!was_armed);
        self.timers[row.index()].deadline_ns = deadline_ns;
        self.link(row);
    }

    /// Disarms `row`; whether it was armed.
    #[inline]
    pub fn disarm(&mut self, row: R) -> bool {
        let was_armed = self.unlink(row);
        self.armed -= u32::from(was_armed);
        was_armed
    }

    /// Whether `row` is armed.
    #[inline]
    pub fn is_armed(&self, row: R) -> bool {
        self.timers[row.index()].next.is_some()
    }

    /// When `row` is to fire, in nanoseconds, if it is armed.
    #[inline]
    pub fn deadline(&self, row: R) -> Option<u64> {
        let timer = &self.timers[row.index()];
        timer.next.map(|_| timer.deadline_ns)
    }

    /// How many rows are armed.
    #[inline]
    pub fn len(&self) -> usize {
        self.armed as usize
    }

    /// Memory taken, in bytes; all but about 3 KiB is for the rows.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.timers) + size_of_val(&*self.heads)
    }

    /// Whether no row is armed.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.armed == 0
    }

    /// Disarms the rows due at `now_ns` and hands them to `out`, tick by tick in the order of their
    /// deadlines, at most `max` of them; the rest fire on the next calls. A time before that of an
    /// earlier call counts as that one.
    ///
    /// Costs a few nanoseconds when nothing is due. A row armed for far ahead is moved to a lower
    /// level a few times on its way; these moves are not counted against `max`.
    #[inline]
    pub fn advance(&mut self, now_ns: u64, max: usize, out: &mut impl FnMut(R)) {
        let now = (now_ns >> self.tick_shift).max(self.tick);
        let mut left = max;
        while let Some((level, bucket)) = self.first_bucket() {
            let start = self.start(level, bucket);
            if start > now {
                break;
            }
            if level > 0 {
                self.cascade(level, bucket, start);
                continue;
            }
            self.tick = start;
            while let Some(row) = self.heads[0][bucket] {
                if left == 0 {
                    return;
                }
                left -= 1;
                self.disarm(row);
                out(row);
            }
        }
        // Nothing is due up to now, and every row stays in its bucket when seen from there.
        self.tick = now;
    }

    /// Moves the wheel to the start of a bucket and the rows of that to lower levels.
    fn cascade(&mut self, level: usize, bucket: usize, start: u64) {
        let head = self.heads[level][bucket].expect("an occupied bucket has a head");
        self.empty_bucket(level, bucket);
        self.tick = start;
        let mut row = head;
        loop {
            let next = self.timers[row.index()].next.expect("an armed row has neighbours");
            self.link(row);
            if next == head {
                break;
            }
            row = next;
        }
    }

    /// A time, in nanoseconds, before which no row fires; `None` when none is armed. It is exact
    /// for the nearest rows. Whoever sleeps until then and calls [`TimerWheel::advance`] sees a
    /// row fire or a later time, so waiting ends.
    #[inline]
    pub fn next_deadline(&self) -> Option<u64> {
        let (level, bucket) = self.first_bucket()?;
        let start = self.start(level, bucket);
        // Only a deadline in the last tick there is rounds up to past the end of time.
        Some(start.saturating_mul(1 << self.tick_shift))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::table_ids! { @row struct TimedRow("timed"); }

    #[test]
    fn a_timer_takes_16_bytes() {
        assert_eq!(size_of::<Timer<TimedRow>>(), 16);
    }

    #[test]
    fn a_leap_of_hours_costs_one_look_at_each_bucket_in_use() {
        let mut wheel = TimerWheel::<TimedRow>::new(2, 1024, 0);
        wheel.arm(TimedRow::from_index(0), u64::MAX / 2);
        let (levels, occupied) = (wheel.levels, wheel.occupied);
        wheel.advance(1 << 50, 1, &mut |row| panic!("{row} fires"));
        // Nothing was moved: the row is where it was, and only the wheel is elsewhere.
        assert_eq!((wheel.levels, wheel.occupied), (levels, occupied));
        assert_eq!(wheel.tick, 1 << 40);
    }
}
