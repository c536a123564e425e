//! Timer wheels against a column of deadlines that is scanned.

use super::Raw;
use tickwire_tables::{Row, TimerWheel};

tickwire_tables::table_ids! {
    pub struct TimerRow;
    pub struct TimerHandle("timer", index_bits = 8);
}

pub const ROWS: usize = 24;

#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Arms a row so many nanoseconds from the present.
    Arm(usize, u64),
    /// Arms a row so many nanoseconds in the past.
    ArmPast(usize, u64),
    Disarm(usize),
    /// Lets so many nanoseconds pass; at most so many rows fire.
    Advance(u64, usize),
    /// Lets time pass up to when the wheel wants to be asked again.
    Sleep,
}

impl From<Raw> for Op {
    fn from(raw: Raw) -> Self {
        let row = raw.row as usize % ROWS;
        match raw.kind % 12 {
            0..=4 => Op::Arm(row, raw.logarithmic()),
            5 => Op::ArmPast(row, raw.logarithmic()),
            6 => Op::Disarm(row),
            7 => Op::Sleep,
            8 => Op::Advance(raw.logarithmic(), raw.row as usize % 4),
            // Mostly moderate times, or the end of time would soon be reached.
            _ => Op::Advance(raw.logarithmic() >> 24, usize::MAX),
        }
    }
}

struct World {
    wheel: TimerWheel<TimerRow>,
    deadlines: Vec<Option<u64>>,
    tick_ns: u64,
    now_ns: u64,
}

impl World {
    fn arm(&mut self, row: usize, deadline_ns: u64) {
        self.wheel.arm(TimerRow::from_index(row), deadline_ns);
        self.deadlines[row] = Some(deadline_ns);
    }

    /// The tick at which a row is to fire.
    fn due(&self, deadline_ns: u64) -> u64 {
        deadline_ns.div_ceil(self.tick_ns)
    }

    fn advance(&mut self, to_ns: u64, max: usize) -> usize {
        let before = self.now_ns / self.tick_ns;
        self.now_ns = to_ns;
        let mut fired = Vec::new();
        self.wheel.advance(to_ns, max, &mut |row| fired.push(row));
        assert!(fired.len() <= max);
        let mut last = 0;
        for row in &fired {
            let deadline_ns = self.deadlines[row.index()].take().expect("only armed rows fire");
            assert!(deadline_ns <= to_ns, "{row} fires early");
            let due = self.due(deadline_ns).max(before);
            assert!(due >= last, "{row} fires after a later one");
            last = due;
        }
        if fired.len() < max {
            let now = to_ns / self.tick_ns;
            let late = |&&deadline_ns: &&u64| self.due(deadline_ns) <= now;
            assert_eq!(self.deadlines.iter().flatten().find(late), None, "overdue");
        }
        fired.len()
    }

    fn check(&self) {
        for (index, &deadline_ns) in self.deadlines.iter().enumerate() {
            let row = TimerRow::from_index(index);
            assert_eq!(self.wheel.deadline(row), deadline_ns);
            assert_eq!(self.wheel.is_armed(row), deadline_ns.is_some());
        }
        let armed = self.deadlines.iter().flatten().count();
        assert_eq!((self.wheel.len(), self.wheel.is_empty()), (armed, armed == 0));
        let first = self.deadlines.iter().flatten().map(|&deadline_ns| self.due(deadline_ns)).min();
        let next_ns = self.wheel.next_deadline();
        assert_eq!(next_ns.is_some(), first.is_some());
        if let (Some(next_ns), Some(first)) = (next_ns, first) {
            // An overdue row fires on the next call, which is no earlier than now.
            let first_ns = first.saturating_mul(self.tick_ns).max(self.now_ns);
            assert!(next_ns <= first_ns, "{next_ns} > {first_ns}");
        }
    }
}

pub fn run(tick_ns: u64, start_ns: u64, ops: &[Op]) {
    let mut world = World {
        wheel: TimerWheel::new(ROWS, tick_ns, start_ns),
        deadlines: vec![None; ROWS],
        tick_ns,
        now_ns: start_ns,
    };
    for &op in ops {
        let now_ns = world.now_ns;
        match op {
            Op::Arm(row, ahead_ns) => world.arm(row, now_ns.saturating_add(ahead_ns)),
            Op::ArmPast(row, ago_ns) => world.arm(row, now_ns.saturating_sub(ago_ns)),
            Op::Disarm(row) => {
                let was_armed = world.deadlines[row].take().is_some();
                assert_eq!(world.wheel.disarm(TimerRow::from_index(row)), was_armed);
            }
            Op::Advance(by_ns, max) => {
                world.advance(now_ns.saturating_add(by_ns), max);
            }
            Op::Sleep => {
                if let Some(next_ns) = world.wheel.next_deadline() {
                    let fired = world.advance(next_ns.max(now_ns), usize::MAX);
                    // Either something came of waking up, or the next sleep is longer. Only
                    // past the last whole tick of 64 bits there is nothing to wait for.
                    let later = world.wheel.next_deadline().is_some_and(|again| again > next_ns);
                    assert!(fired > 0 || later || next_ns == u64::MAX);
                }
            }
        }
        world.check();
    }
}
