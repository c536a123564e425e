//! Wire format, version 1. `docs/wire-format.md` has the numbered clauses cited here.
//!
//! [`parse`] is total: any bytes give a [`Packet`] or a [`WireError`], never a panic.

pub mod ack;
pub mod chunk;
pub mod data;
pub mod header;
mod integrity;

pub use ack::AckBitmap;
pub use chunk::ChunkHeader;
pub use header::{AckDelay, HEADER_BYTES, Header, Kind, VERSION};
pub use integrity::{
    CHECKSUM_BYTES, Integrity, TAG_BYTES, Turns, extend, tag, tag_fits, write_checksum, write_tag,
};

/// One well-formed datagram.
#[derive(Debug)]
pub enum Packet<'a> {
    /// A whole small message.
    Data(Header, &'a [u8]),
    /// A slice of a large message.
    Chunk(Header, ChunkHeader, &'a [u8]),
    /// A standalone ack, probe or bye.
    Ack(Header, AckBitmap<'a>),
}

/// Why bytes are not a datagram of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Shorter than a header.
    TooShort,
    /// Another wire version.
    WrongVersion,
    /// Another job, or a stranger.
    WrongJobKey,
    /// A kind that version 1 does not know.
    UnknownKind,
    /// The lengths in the header do not fit the datagram or the kind.
    WrongLength,
    /// The checksum does not match.
    BadChecksum,
}

/// Takes a datagram apart. `job_check` is [`crate::JobKey::wire_check`]. The trailer must be there;
/// a checksum must match, while a tag is the caller's to check, who knows the peer and so the turns
/// ([`tag_fits`] at [`body_end`]). Bytes behind the trailer are link padding.
#[inline]
pub fn parse(bytes: &[u8], job_check: u32, mode: Integrity) -> Result<Packet<'_>, WireError> {
    let (head, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(WireError::TooShort)?;
    // wire 2.1: version, then job key, before anything else is believed.
    if head[0] >> 4 != VERSION {
        return Err(WireError::WrongVersion);
    }
    if header::job_check(head) != job_check {
        return Err(WireError::WrongJobKey);
    }
    let header = Header::read(head).ok_or(WireError::UnknownKind)?;
    let end = body_end(&header);
    if bytes.len() < end + mode.trailer_bytes() {
        return Err(WireError::WrongLength);
    }
    if mode == Integrity::Checksum {
        integrity::check_checksum(bytes, end)?;
    }
    let extra = if header.kind == Kind::Chunk { chunk::EXTRA_BYTES } else { 0 };
    let (extra, payload) = rest[..end - HEADER_BYTES].split_at(extra);
    Ok(match header.kind {
        Kind::Data => Packet::Data(header, payload),
        Kind::Chunk => Packet::Chunk(header, ChunkHeader::read(extra)?, payload),
        Kind::Ack | Kind::Probe | Kind::Bye => Packet::Ack(header, AckBitmap::read(payload)?),
    })
}

/// Where the payload ends and the trailer begins.
#[inline]
pub fn body_end(header: &Header) -> usize {
    let extra = if header.kind == Kind::Chunk { chunk::EXTRA_BYTES } else { 0 };
    HEADER_BYTES + extra + header.payload_bytes as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use tickwire_tables::seq::Seq;

    const JOB: u32 = 0x1122_3344;

    fn sample(kind: Kind, payload: usize) -> Vec<u8> {
        let header = Header {
            kind,
            ack_delay: AckDelay::from_ns(1000),
            payload_bytes: payload as u16,
            job_check: JOB,
            rank: 3,
            session: 9,
            seq: Seq::new(u32::MAX),
            ack: Seq::new(7),
            tag: 0xAABB_CCDD,
            window: 64,
            fragment: 5,
        };
        let mut out = vec![0; HEADER_BYTES];
        header.write(out.first_chunk_mut().unwrap());
        if kind == Kind::Chunk {
            let mut extra = [0; chunk::EXTRA_BYTES];
            ChunkHeader { total_bytes: 1 << 33, offset_bytes: 1 << 32 }.write(&mut extra);
            out.extend(extra);
        }
        out.extend((0..payload).map(|i| i as u8));
        out
    }

    #[test]
    fn encoded_sample_is_stable() {
        let bytes = sample(Kind::Data, 0);
        let expect: [u8; 32] = [
            0x11, 0x0F, 0, 0, 0x44, 0x33, 0x22, 0x11, 3, 0, 0, 0, 9, 0, 0, 0, 255, 255, 255, 255,
            7, 0, 0, 0, 0xDD, 0xCC, 0xBB, 0xAA, 64, 0, 5, 0,
        ];
        assert_eq!(bytes, expect);
    }

    #[test]
    fn padding_is_not_payload() {
        for payload in [0, 1, 5, 17] {
            for junk in 1..=46 {
                let mut bytes = sample(Kind::Data, payload);
                bytes.extend(std::iter::repeat_n(0xEE, junk));
                let Ok(Packet::Data(_, got)) = parse(&bytes, JOB, Integrity::None) else {
                    panic!()
                };
                assert_eq!(got.len(), payload);
            }
        }
    }

    #[test]
    fn pc_37_every_short_length_is_refused() {
        for kind in [Kind::Data, Kind::Chunk, Kind::Ack] {
            let whole = sample(kind, 8);
            for len in 0..whole.len() {
                assert!(
                    parse(&whole[..len], JOB, Integrity::None).is_err(),
                    "{kind:?} cut to {len}"
                );
            }
            assert!(parse(&whole, JOB, Integrity::None).is_ok());
        }
    }

    #[test]
    fn every_type_byte_is_judged() {
        let mut bytes = sample(Kind::Data, 8);
        let good = (0..=255u8)
            .filter(|&b| {
                bytes[0] = b;
                parse(&bytes, JOB, Integrity::None).is_ok()
            })
            .collect::<Vec<_>>();
        // An ack of 8 payload bytes is one bitmap word; a chunk of 8 lacks its extra header.
        assert_eq!(good, [0x11, 0x13, 0x14, 0x15]);
    }

    #[test]
    fn one_flipped_bit_fails_the_checksum() {
        let mut bytes = sample(Kind::Chunk, 40);
        let at = bytes.len();
        bytes.extend([0; CHECKSUM_BYTES]);
        write_checksum(&mut bytes, at);
        assert!(parse(&bytes, JOB, Integrity::Checksum).is_ok());
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&bytes, JOB, Integrity::Checksum).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
