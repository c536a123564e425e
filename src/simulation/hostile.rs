//! Datagrams that an enemy makes out of real ones.
//!
//! What passed is recorded; the operations repeat it, spoil it or put a stranger's name on it.
//! Repeated whole it must be harmless always. Spoilt in a peer's name it could say anything, also
//! that messages were delivered which were not; so only a checksum or a tag tells it from genuine,
//! and in clusters without it the name is spoilt as well.

use super::cluster::Cluster;
use super::ops::Op;
use crate::ports::Channel;
use crate::ports::sim::{NodeNumber, Tap, TapFn, Verdict};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// So many of the last datagrams are kept.
const KEPT: usize = 64;

/// A datagram that passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Whom it was for.
    pub to: NodeNumber,
    /// On which channel.
    pub channel: Channel,
    /// All of its bytes.
    pub bytes: Vec<u8>,
}

/// The last datagrams that passed; clones are the same record.
#[derive(Clone, Default)]
pub(super) struct Record(Rc<RefCell<VecDeque<Passed>>>);

impl Record {
    /// The tap that writes the record.
    pub fn tap(&self) -> TapFn {
        let record = self.0.clone();
        Box::new(move |tap: Tap<'_>| {
            let mut record = record.borrow_mut();
            if record.len() == KEPT {
                record.pop_front();
            }
            let bytes = tap.bytes.to_vec();
            record.push_back(Passed { to: tap.to, channel: tap.channel, bytes });
            Verdict::Deliver
        })
    }

    /// One of them (modulo their number), the newest being 0.
    pub fn get(&self, index: u8) -> Option<Passed> {
        let record = self.0.borrow();
        let back = usize::from(index).checked_rem(record.len())?;
        record.get(record.len() - 1 - back).cloned()
    }
}

/// Does one of the hostile operations. Nothing happens while nothing has passed.
pub(super) fn apply(cluster: &mut Cluster, op: &Op) {
    match *op {
        Op::Replay { index, to, times, swap } => {
            let Some(mut passed) = cluster.passed(index) else { return };
            let to = usize::from(to) % cluster.len();
            passed.to = to as u32;
            if swap {
                passed.channel = match passed.channel {
                    Channel::Priority => Channel::Data,
                    Channel::Data => Channel::Priority,
                };
            }
            for _ in 0..times {
                cluster.net().inject(passed.to, passed.channel, &passed.bytes);
            }
        }
        Op::Truncate { index, len } => {
            let Some(mut passed) = cluster.passed(index) else { return };
            passed.bytes.truncate(usize::from(len) % passed.bytes.len().max(1));
            inject_spoilt(cluster, passed);
        }
        Op::Splice { a, b, at } => {
            let (Some(mut head), Some(tail)) = (cluster.passed(a), cluster.passed(b)) else {
                return;
            };
            let at = usize::from(at) % head.bytes.len().max(1);
            head.bytes.truncate(at);
            head.bytes.extend_from_slice(tail.bytes.get(at..).unwrap_or_default());
            inject_spoilt(cluster, head);
        }
        Op::Flip { index, byte, bit } => {
            let Some(mut passed) = cluster.passed(index) else { return };
            let at = usize::from(byte) % passed.bytes.len().max(1);
            if let Some(byte) = passed.bytes.get_mut(at) {
                *byte ^= 1 << (bit % 8);
            }
            inject_spoilt(cluster, passed);
        }
        Op::Forge { index, word, xor } => {
            let Some(mut passed) = cluster.passed(index) else { return };
            rename(&mut passed.bytes, word, xor);
            cluster.net().inject(passed.to, passed.channel, &passed.bytes);
        }
        _ => unreachable!("{op:?} is not hostile"),
    }
}

fn inject_spoilt(cluster: &mut Cluster, mut passed: Passed) {
    if !cluster.has_trailers() {
        rename(&mut passed.bytes, Word::JobKey as u8, 1);
    }
    cluster.net().inject(passed.to, passed.channel, &passed.bytes);
}

/// The words of a header that tell whose it is.
#[derive(Clone, Copy)]
enum Word {
    Version = 0,
    JobKey = 4,
    Rank = 8,
    Session = 12,
}

/// Makes one of those words another one.
fn rename(bytes: &mut [u8], word: u8, xor: u32) {
    let word = [Word::Version, Word::JobKey, Word::Rank, Word::Session][usize::from(word) % 4];
    let xor = match word {
        Word::Version => [(xor as u8).max(16) & 0xF0, 0, 0, 0],
        _ => xor.max(1).to_le_bytes(),
    };
    let at = word as usize;
    for (byte, xor) in bytes.iter_mut().skip(at).zip(xor) {
        *byte ^= xor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::{ClusterConfig, apply};
    use crate::time::MICROS;

    /// A pair that has exchanged something, and its record.
    fn pair((checksum, authenticate): (bool, bool)) -> Cluster {
        let config = ClusterConfig { checksum, authenticate, ..ClusterConfig::default() };
        let mut cluster = Cluster::new(&config);
        cluster.record();
        for len in [8, 5_000] {
            cluster.send(0, 1, len, false).unwrap();
            cluster.run_for(200 * MICROS, MICROS).unwrap();
        }
        cluster
    }

    /// Drops that all engines counted.
    fn drops(cluster: &mut Cluster) -> u64 {
        (0..cluster.len()).map(|at| cluster.engine(at).counters().drops()).sum()
    }

    #[test]
    fn what_is_spoilt_is_dropped_and_what_is_repeated_is_harmless() {
        for trailer in [(false, false), (true, false), (false, true)] {
            for index in 0..8 {
                for op in [
                    Op::Truncate { index, len: 100 },
                    Op::Truncate { index, len: 20 },
                    Op::Splice { a: index, b: index + 1, at: 18 },
                    Op::Flip { index, byte: 17, bit: 3 },
                    Op::Forge { index, word: 0, xor: 0 },
                    Op::Forge { index, word: 1, xor: 0 },
                    Op::Forge { index, word: 2, xor: 99 },
                    Op::Forge { index, word: 3, xor: u32::MAX },
                ] {
                    let mut cluster = pair(trailer);
                    let before = drops(&mut cluster);
                    apply(&mut cluster, &op).unwrap();
                    cluster.run_for(200 * MICROS, MICROS).unwrap();
                    let dropped = drops(&mut cluster) - before;
                    assert_eq!(dropped, 1, "{op:?}, checksum, tag: {trailer:?}");
                }
                for (to, swap) in [(0, false), (1, false), (1, true)] {
                    let mut cluster = pair(trailer);
                    apply(&mut cluster, &Op::Replay { index, to, times: 3, swap }).unwrap();
                    cluster.run_for(200 * MICROS, MICROS).unwrap();
                    assert_eq!((cluster.received(0), cluster.received(1)), (0, 2));
                }
            }
        }
    }

    #[test]
    fn nothing_happens_before_anything_has_passed() {
        let mut cluster = Cluster::new(&ClusterConfig::default());
        for record in [false, true] {
            if record {
                cluster.record();
            }
            apply(&mut cluster, &Op::Flip { index: 0, byte: 0, bit: 0 }).unwrap();
            apply(&mut cluster, &Op::Replay { index: 9, to: 0, times: 9, swap: true }).unwrap();
        }
        assert_eq!(cluster.net().counters().injected, 0);
    }
}
