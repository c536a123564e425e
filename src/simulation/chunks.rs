//! Chunk datagrams, right and wrong, thrown at one engine: the reassembly model shared by the
//! property test and the fuzz target.

use super::cluster::{Cluster, ClusterConfig, Failure};
use crate::ports::Channel;
use crate::time::MICROS;
use crate::wire::{AckDelay, ChunkHeader, HEADER_BYTES, Header, Integrity, Kind, chunk};
use tickwire_tables::seq::Seq;

/// One chunk datagram of rank 1, right or wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkOp {
    /// Its number, from the first one on.
    pub seq: u8,
    /// Which message.
    pub fragment: u8,
    /// Length of the message in chunks.
    pub total_chunks: u8,
    /// Which chunk of it.
    pub index: u8,
    /// Bytes more or fewer than the grid wants.
    pub skew: i8,
}

/// Bytes of user data in a full chunk of these clusters.
const CHUNK_BYTES: u64 = chunk::payload_bytes_max(DATAGRAM_BYTES, Integrity::None) as u64;
/// Largest datagram of these clusters.
const DATAGRAM_BYTES: usize = 256;

impl ChunkOp {
    /// Any bytes are a list of operations: five bytes each.
    pub fn list_from_bytes(bytes: &[u8]) -> Vec<Self> {
        let ops = bytes.chunks_exact(5).map(|b| Self {
            seq: b[0] % 80,
            fragment: b[1] % 6,
            total_chunks: b[2] % 5,
            index: b[3] % 5,
            skew: if b[4] < 200 { 0 } else { b[4] as i8 },
        });
        ops.collect()
    }

    fn datagram(self, first_seq: u32) -> Vec<u8> {
        let total_bytes = u64::from(self.total_chunks) * CHUNK_BYTES;
        let len = (CHUNK_BYTES as i64 + i64::from(self.skew)).clamp(0, 224) as usize;
        let mut bytes = vec![0; HEADER_BYTES + chunk::EXTRA_BYTES + len];
        let header = Header {
            kind: Kind::Chunk,
            ack_delay: AckDelay::default(),
            payload_bytes: len as u16,
            job_check: Cluster::JOB_KEY.wire_check(),
            rank: 1,
            session: Cluster::session(1, 0),
            seq: Seq::new(first_seq.wrapping_add(u32::from(self.seq))),
            ack: Seq::new(first_seq),
            tag: u32::from(self.fragment),
            window: 64,
            fragment: u16::from(self.fragment),
        };
        let (head, rest) = bytes.split_first_chunk_mut().expect("longer than a header");
        header.write(head);
        let offset_bytes = u64::from(self.index) * CHUNK_BYTES;
        let extra = rest.first_chunk_mut().expect("longer than both headers");
        ChunkHeader { total_bytes, offset_bytes }.write(extra);
        // Each byte tells its place in the message, so that a misplaced slice shows.
        for (i, byte) in rest[chunk::EXTRA_BYTES..].iter_mut().enumerate() {
            *byte = place_byte(offset_bytes + i as u64);
        }
        bytes
    }
}

fn place_byte(at: u64) -> u8 {
    (at % 251) as u8
}

/// Injects the chunks into an engine; what it delivers must be whole and in place, and its
/// invariants must hold after each.
pub fn play_chunks(ops: &[ChunkOp]) -> Result<(), Failure> {
    let mut config = ClusterConfig::default();
    config.port.datagram_bytes_max = DATAGRAM_BYTES;
    let mut cluster = Cluster::new(&config);
    cluster.run_for(50 * MICROS, MICROS)?;
    let node = cluster.engine(0).port().node();
    let net = cluster.net().clone();
    for op in ops {
        net.inject(node, Channel::Data, &op.datagram(config.first_seq));
        let mut failure = None;
        net.advance(MICROS);
        let engine = cluster.engine(0);
        engine.tick(&mut |_: &mut crate::Context<_>, event: crate::Event<'_>| {
            if let crate::Event::Received(message) = event {
                // A message's tag is its fragment, and its length one that was claimed for it.
                let len = message.bytes().len() as u64;
                let claims = |op: &ChunkOp| {
                    u32::from(op.fragment) == message.tag.0
                        && u64::from(op.total_chunks) * CHUNK_BYTES == len
                };
                let claimed = ops.iter().any(claims);
                let wrong = message.bytes().iter().zip(0..).find(|&(&b, at)| b != place_byte(at));
                if len == 0 || !claimed || wrong.is_some() {
                    failure = Some(format!("{op:?}: delivered wrongly: {wrong:?}"));
                }
            }
        });
        if let Some(failure) = failure {
            return Err(failure);
        }
        engine.check_invariants().map_err(|violation| format!("{op:?}: {violation}"))?;
    }
    Ok(())
}
