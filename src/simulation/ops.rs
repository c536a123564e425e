//! The operations that tests, property tests and fuzz targets draw from.

use super::cluster::{Cluster, Failure};
use super::hostile;
use crate::SendError;
use crate::ports::Channel;
use crate::time::Nanos;

/// One thing that happens to a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A message of `len_bytes` bytes; `owned`: by `send_from`, else by `send_copy`.
    Send {
        /// Sender (modulo the number of nodes).
        from: u8,
        /// Receiver (modulo the others).
        to: u8,
        /// Length in bytes.
        len_bytes: u32,
        /// By `send_from`.
        owned: bool,
    },
    /// One node ticks.
    Tick(u8),
    /// Time passes without a tick.
    Advance(u32),
    /// All tick until this much time has passed.
    Run(u32),
    /// A datagram that no engine of the cluster sent arrives.
    Inject {
        /// Where.
        to: u8,
        /// On the priority channel?
        priority: bool,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// The way from one node to another is cut, or mended.
    Cut(u8, u8, bool),
    /// A node stops ticking, or goes on.
    Pause(u8, bool),
    /// A datagram that passed arrives again, at any node and on either channel.
    Replay {
        /// Which one (modulo their number), the newest being 0.
        index: u8,
        /// Where (modulo the number of nodes).
        to: u8,
        /// How often.
        times: u8,
        /// On the other channel.
        swap: bool,
    },
    /// The front of a datagram that passed arrives.
    Truncate {
        /// Which one.
        index: u8,
        /// Bytes that are left of it (modulo its length).
        len: u16,
    },
    /// The head of one datagram that passed and the tail of another arrive as one.
    Splice {
        /// The head's.
        a: u8,
        /// The tail's.
        b: u8,
        /// Where the tail begins (modulo the length of the head's datagram).
        at: u16,
    },
    /// A datagram that passed arrives with one bit changed.
    Flip {
        /// Which one.
        index: u8,
        /// Place of the byte (modulo its length).
        byte: u16,
        /// Number of the bit (modulo 8).
        bit: u8,
    },
    /// A datagram that passed arrives in a stranger's name.
    Forge {
        /// Which one.
        index: u8,
        /// What of the name is changed (modulo 4): version, job key, rank, session.
        word: u8,
        /// Bits that change in it; none: the lowest.
        xor: u32,
    },
}

impl Op {
    /// Any bytes are a list of operations, at most 200.
    pub fn list_from_bytes(bytes: &[u8]) -> Vec<Self> {
        let mut rest = bytes;
        let mut ops = Vec::new();
        while let Some((&[kind, a, b, c], tail)) = rest.split_first_chunk::<4>() {
            rest = tail;
            let small = u32::from(c) * 7;
            let word = u32::from_le_bytes([b, c, 0, 0]);
            ops.push(match kind % 16 {
                0..=2 => Self::Send { from: a, to: b, len_bytes: small, owned: kind & 128 != 0 },
                3 => Self::Send { from: a, to: b, len_bytes: small * 40, owned: kind & 128 != 0 },
                4 => Self::Tick(a),
                5 => Self::Advance(word * 64),
                6 => Self::Run(word * 16),
                7 => {
                    let (bytes, tail) = rest.split_at(rest.len().min(usize::from(c)));
                    rest = tail;
                    let priority = b & 1 != 0;
                    Self::Inject { to: a, priority, bytes: Self::nearly_ours(bytes, b) }
                }
                8 => Self::Cut(a, b, c & 1 != 0),
                9 => Self::Pause(a, c & 1 != 0),
                kind => Self::hostile(kind, [a, b, c]),
            });
            if ops.len() == 200 {
                break;
            }
        }
        ops
    }

    /// One of the hostile operations, made of any four bytes.
    pub fn hostile(kind: u8, [a, b, c]: [u8; 3]) -> Self {
        let word = u16::from_le_bytes([b, c]);
        match kind % 6 {
            0 | 1 => Self::Replay { index: a, to: b, times: 1 + (c & 7), swap: c & 128 != 0 },
            2 => Self::Truncate { index: a, len: word },
            3 => Self::Splice { a, b, at: u16::from(c) },
            4 => Self::Flip { index: a, byte: word >> 3, bit: b & 7 },
            _ => Self::Forge { index: a, word: b, xor: u32::from(c).rotate_right(u32::from(b)) },
        }
    }

    /// Whether datagrams that passed must have been recorded ([`Cluster::record`]).
    pub fn is_hostile(&self) -> bool {
        use Op::{Flip, Forge, Replay, Splice, Truncate};
        matches!(self, Replay { .. } | Truncate { .. } | Splice { .. } | Flip { .. } | Forge { .. })
    }

    /// Half of the strange datagrams get version and job key right, so that what lies behind those
    /// checks is reached; their rank is nobody's, as a peer's word would have to be believed.
    fn nearly_ours(bytes: &[u8], choice: u8) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        if choice & 2 != 0 && bytes.len() >= 12 {
            bytes[0] = 0x10 | (bytes[0] & 15);
            bytes[4..8].copy_from_slice(&Cluster::JOB_KEY.wire_check().to_le_bytes());
            bytes[8..12].copy_from_slice(&1000u32.to_le_bytes());
        }
        bytes
    }
}

const STEP_NS: Nanos = 10_000;

/// Does `op`. An `Err` is a bug of the engine's.
pub fn apply(cluster: &mut Cluster, op: &Op) -> Result<(), Failure> {
    let n = cluster.len();
    let node = |index: u8| usize::from(index) % n;
    match op {
        &Op::Send { from, to, len_bytes, owned } => {
            let from = node(from);
            let to = (from + 1 + usize::from(to) % (n - 1)) % n;
            match cluster.send(from, to, len_bytes as usize, owned) {
                Ok(()) | Err(SendError::Again) => Ok(()),
                Err(error) => Err(format!("send of {len_bytes} bytes: {error}")),
            }
        }
        &Op::Tick(at) => cluster.tick(node(at)).map(|_| ()),
        &Op::Advance(ns) => {
            cluster.net().advance(Nanos::from(ns));
            Ok(())
        }
        &Op::Run(ns) => cluster.run_for(Nanos::from(ns), STEP_NS),
        Op::Inject { to, priority, bytes } => {
            let channel = if *priority { Channel::Priority } else { Channel::Data };
            let to = cluster.engine(node(*to)).port().node();
            cluster.net().inject(to, channel, bytes);
            Ok(())
        }
        &Op::Cut(a, b, cut) => {
            let (a, b) =
                (cluster.engine(node(a)).port().node(), cluster.engine(node(b)).port().node());
            if a != b {
                cluster.net().partition(a, b, cut);
            }
            Ok(())
        }
        &Op::Pause(at, paused) => {
            cluster.pause(node(at), paused);
            Ok(())
        }
        op => {
            hostile::apply(cluster, op);
            Ok(())
        }
    }
}
