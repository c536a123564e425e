//! The trailer of a datagram: nothing, a CRC32C, or a tag made with a key (wire 5).

use super::WireError;
use crate::ids::AuthKey;
use siphasher::sip::SipHasher24;
use std::hash::Hasher;

/// Length of the CRC32C behind the payload (wire 5.1).
pub const CHECKSUM_BYTES: usize = 4;
/// Length of the tag behind the payload (wire 5.2).
pub const TAG_BYTES: usize = 8;

/// What every datagram of a job ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Integrity {
    /// Nothing: the network is trusted to deliver what was sent.
    #[default]
    None = 0,
    /// A CRC32C, against accidents.
    Checksum = 1,
    /// A tag that only those who have the key can make, against enemies.
    Tag = 2,
}

impl Integrity {
    /// Length of the trailer.
    pub const fn trailer_bytes(self) -> usize {
        match self {
            Self::None => 0,
            Self::Checksum => CHECKSUM_BYTES,
            Self::Tag => TAG_BYTES,
        }
    }

    /// As it stands in an address (wire 6).
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        [Self::None, Self::Checksum, Self::Tag].into_iter().find(|&it| it as u8 == byte)
    }
}

impl std::fmt::Display for Integrity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "nothing",
            Self::Checksum => "a checksum",
            Self::Tag => "an authentication tag",
        })
    }
}

/// What the tag covers besides the datagram: the high halves of two numbers of 64 bits, of which
/// the header has the low ones (wire 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Turns {
    /// Of the sequence number, or of a standalone ack's own number.
    pub seq: u32,
    /// Of the ack.
    pub ack: u32,
}

/// The number of 64 bits nearest to `near` whose low half is `low` (wire 5.3).
#[inline]
pub fn extend(low: u32, near: u64) -> u64 {
    near.wrapping_add_signed(i64::from(low.wrapping_sub(near as u32) as i32))
}

/// The tag of a datagram (wire 5.2, 5.3).
#[inline]
pub fn tag(key: &AuthKey, datagram: &[u8], turns: Turns) -> u64 {
    let mut hasher = SipHasher24::new_with_key(key.bytes());
    let turns = u64::from(turns.seq) | u64::from(turns.ack) << 32;
    hasher.write(&turns.to_le_bytes());
    hasher.write(datagram);
    hasher.finish()
}

/// Writes the tag of `bytes[..at]` at `at`.
#[inline]
pub fn write_tag(bytes: &mut [u8], at: usize, key: &AuthKey, turns: Turns) {
    let tag = tag(key, &bytes[..at], turns);
    bytes[at..at + TAG_BYTES].copy_from_slice(&tag.to_le_bytes());
}

/// Whether the tag at `at` is that of `bytes[..at]`.
#[inline]
pub fn tag_fits(bytes: &[u8], at: usize, key: &AuthKey, turns: Turns) -> bool {
    let Some(found) = bytes.get(at..).and_then(|rest| rest.first_chunk()) else { return false };
    // One comparison of whole words: how long it takes does not tell which bytes fit.
    tag(key, &bytes[..at], turns) ^ u64::from_le_bytes(*found) == 0
}

/// Writes the checksum of `bytes[..at]` at `at`.
pub fn write_checksum(bytes: &mut [u8], at: usize) {
    let sum = crc32c::crc32c(&bytes[..at]);
    bytes[at..at + CHECKSUM_BYTES].copy_from_slice(&sum.to_le_bytes());
}

pub(super) fn check_checksum(bytes: &[u8], at: usize) -> Result<(), WireError> {
    let trailer = bytes.get(at..at + CHECKSUM_BYTES).ok_or(WireError::WrongLength)?;
    if crc32c::crc32c(&bytes[..at]).to_le_bytes() == trailer {
        Ok(())
    } else {
        Err(WireError::BadChecksum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> AuthKey {
        AuthKey::from_hex("000102030405060708090a0b0c0d0e0f").unwrap()
    }

    /// The test vectors of the authors of SipHash (`vectors_sip64`): bytes 0, 1, 2, ... under the
    /// key 0 to 15. The turns are the first eight bytes of what is hashed.
    #[test]
    fn tags_are_those_of_siphash_2_4() {
        let message: Vec<u8> = (0..63).collect();
        let turns = Turns { seq: 0x0302_0100, ack: 0x0706_0504 };
        for (len, want) in [
            (8, [0x62, 0x24, 0x93, 0x9a, 0x79, 0xf5, 0xf5, 0x93]),
            (15, [0xe5, 0x45, 0xbe, 0x49, 0x61, 0xca, 0x29, 0xa1]),
            (63, [0x72, 0x45, 0x06, 0xeb, 0x4c, 0x32, 0x8a, 0x95]),
        ] {
            let got = tag(&key(), &message[8..len], turns).to_le_bytes();
            assert_eq!(got, want, "{len} bytes");
        }
    }

    #[test]
    fn the_turns_are_covered_and_a_cut_tag_is_no_tag() {
        let mut bytes = vec![7; 40 + TAG_BYTES];
        let turns = Turns { seq: 1, ack: 2 };
        write_tag(&mut bytes, 40, &key(), turns);
        assert!(tag_fits(&bytes, 40, &key(), turns));
        for (seq, ack) in [(0, 2), (2, 2), (1, 1), (1, 3), (2, 1), (1 | 1 << 31, 2)] {
            assert!(!tag_fits(&bytes, 40, &key(), Turns { seq, ack }));
        }
        for len in 0..bytes.len() {
            assert!(!tag_fits(&bytes[..len], len.min(40), &key(), turns));
        }
    }

    proptest! {
        #[test]
        fn a_number_is_found_again_from_anywhere_near(
            number in 1u64 << 33..u64::MAX - (1 << 33),
            off in -(1i64 << 31) + 1..1 << 31,
        ) {
            prop_assert_eq!(extend(number as u32, number.wrapping_add_signed(off)), number);
        }

        #[test]
        fn any_changed_bit_is_refused(
            datagram in proptest::collection::vec(any::<u8>(), 0..1500),
            bit: proptest::sample::Index,
            seq: u32,
            ack: u32,
        ) {
            let (at, turns) = (datagram.len(), Turns { seq, ack });
            let mut bytes = datagram;
            bytes.extend([0; TAG_BYTES]);
            write_tag(&mut bytes, at, &key(), turns);
            prop_assert!(tag_fits(&bytes, at, &key(), turns));
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!tag_fits(&bytes, at, &key(), turns));
        }
    }

    #[test]
    fn extending_wraps_both_ways() {
        for (low, near, want) in [
            (5, 0xFFFF_FFFEu64, 1 << 32 | 5),
            (u32::MAX, 1 << 32, 0xFFFF_FFFF),
            (u32::MAX, 0, u64::MAX),
            (0, u64::MAX, 0),
            (7, 7, 7),
        ] {
            assert_eq!(extend(low, near), want, "{low} near {near}");
        }
    }
}
