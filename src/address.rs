//! A process's address: the opaque blob that a bootstrap carries from each process to the others.

use crate::error::PeerError;
use crate::ids::{Incarnation, Rank};
use crate::ports::RawAddress;
use crate::wire::Integrity;

const MAGIC: [u8; 4] = *b"twA1";
const NAME_BYTES_MAX: usize = 64;

/// Everything that a peer must know to talk to this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// Rank in the job.
    pub rank: Rank,
    /// Which run of that rank.
    pub incarnation: Incarnation,
    /// [`crate::JobKey::wire_check`] of its job.
    pub job_check: u32,
    /// First sequence number it sends.
    pub first_seq: u32,
    /// Largest datagram it takes, in bytes.
    pub datagram_bytes_max: u32,
    /// Largest message it takes, in bytes.
    pub message_bytes_max: u64,
    /// Its largest window in segments.
    pub window_segments: u16,
    /// What its datagrams end in. The key of a tag is in no address.
    pub integrity: Integrity,
    /// For people, such as `host:pid`; at most 64 bytes.
    pub name: String,
    /// Transport addresses: priority channel, data channel.
    pub channels: [RawAddress; 2],
}

impl PeerAddress {
    /// No blob is longer: magic, numbers, three lengths and what they count.
    pub const BYTES_MAX: usize = 4 + 31 + 3 + NAME_BYTES_MAX + 2 * RawAddress::BYTES_MAX;

    /// The blob.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        for word in [self.rank.0, self.incarnation.0, self.job_check, self.first_seq] {
            out.extend(word.to_le_bytes());
        }
        out.extend(self.datagram_bytes_max.to_le_bytes());
        out.extend(self.message_bytes_max.to_le_bytes());
        out.extend(self.window_segments.to_le_bytes());
        out.push(self.integrity as u8);
        let mut name_bytes = self.name.len().min(NAME_BYTES_MAX);
        while !self.name.is_char_boundary(name_bytes) {
            name_bytes -= 1;
        }
        for part in [&self.name.as_bytes()[..name_bytes], &self.channels[0].0, &self.channels[1].0]
        {
            out.push(part.len() as u8);
            out.extend(part);
        }
        out
    }

    /// Reads a blob; any bytes give an address or an error.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PeerError> {
        let mut rest = Reader(bytes);
        if rest.array()? != MAGIC {
            return Err(PeerError::BadAddress("wrong magic or version"));
        }
        let address = Self {
            rank: Rank(rest.u32()?),
            incarnation: Incarnation(rest.u32()?),
            job_check: rest.u32()?,
            first_seq: rest.u32()?,
            datagram_bytes_max: rest.u32()?,
            message_bytes_max: u64::from_le_bytes(rest.array()?),
            window_segments: u16::from_le_bytes(rest.array()?),
            integrity: Integrity::from_byte(rest.array::<1>()?[0])
                .ok_or(PeerError::BadAddress("its integrity mode is unknown"))?,
            name: std::str::from_utf8(rest.part(NAME_BYTES_MAX)?)
                .map_err(|_| PeerError::BadAddress("the name is not UTF-8"))?
                .to_owned(),
            channels: [rest.raw()?, rest.raw()?],
        };
        if rest.0.is_empty() { Ok(address) } else { Err(PeerError::BadAddress("too long")) }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], PeerError> {
        let (head, rest) =
            self.0.split_first_chunk::<N>().ok_or(PeerError::BadAddress("too short"))?;
        self.0 = rest;
        Ok(*head)
    }

    fn u32(&mut self) -> Result<u32, PeerError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn part(&mut self, bytes_max: usize) -> Result<&'a [u8], PeerError> {
        let len = usize::from(self.array::<1>()?[0]);
        if len > bytes_max || len > self.0.len() {
            return Err(PeerError::BadAddress("a part is too long"));
        }
        let (part, rest) = self.0.split_at(len);
        self.0 = rest;
        Ok(part)
    }

    fn raw(&mut self) -> Result<RawAddress, PeerError> {
        let part = self.part(RawAddress::BYTES_MAX)?;
        RawAddress::from_bytes(part).ok_or(PeerError::BadAddress("a part is too long"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_every_cut_refused() {
        let address = PeerAddress {
            rank: Rank(7),
            incarnation: Incarnation(1),
            job_check: 2,
            first_seq: 3,
            datagram_bytes_max: 1472,
            message_bytes_max: 1 << 40,
            window_segments: 256,
            integrity: Integrity::Tag,
            name: "node7:99".into(),
            channels: [
                RawAddress::from_bytes(&[1, 2]).unwrap(),
                RawAddress::from_bytes(&[3; 16]).unwrap(),
            ],
        };
        let bytes = address.to_bytes();
        assert_eq!(PeerAddress::from_bytes(&bytes), Ok(address));
        for len in 0..bytes.len() {
            assert!(PeerAddress::from_bytes(&bytes[..len]).is_err());
        }
        assert!(PeerAddress::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
    }
}
