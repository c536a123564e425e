//! A slice of a large message: the base header, total and offset, then the bytes (wire 3.2).

use super::{Integrity, WireError, data};

/// Bytes between the base header and the payload.
pub const EXTRA_BYTES: usize = 16;

/// Size of the whole message and place of this slice in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Length of the whole message in bytes.
    pub total_bytes: u64,
    /// Where this slice starts, a multiple of the pair's chunk size.
    pub offset_bytes: u64,
}

impl ChunkHeader {
    /// Reads the [`EXTRA_BYTES`] bytes behind the base header.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<Self, WireError> {
        let (total, offset) = bytes.split_first_chunk::<8>().ok_or(WireError::WrongLength)?;
        let offset = offset.first_chunk::<8>().ok_or(WireError::WrongLength)?;
        Ok(Self {
            total_bytes: u64::from_le_bytes(*total),
            offset_bytes: u64::from_le_bytes(*offset),
        })
    }

    /// Writes them.
    #[inline]
    pub fn write(&self, out: &mut [u8; EXTRA_BYTES]) {
        out[..8].copy_from_slice(&self.total_bytes.to_le_bytes());
        out[8..].copy_from_slice(&self.offset_bytes.to_le_bytes());
    }

    /// Whether a slice of `len_bytes` fits the message and the grid of `chunk_bytes` (wire 3.3).
    #[inline]
    pub fn is_on_grid(&self, len_bytes: usize, chunk_bytes: u32) -> bool {
        let Some(end) = self.offset_bytes.checked_add(len_bytes as u64) else { return false };
        let is_last = end == self.total_bytes;
        len_bytes > 0
            && end <= self.total_bytes
            && len_bytes <= chunk_bytes as usize
            && self.offset_bytes.is_multiple_of(u64::from(chunk_bytes))
            && (is_last || len_bytes == chunk_bytes as usize)
    }
}

/// User bytes that a chunk datagram of `datagram_bytes` carries.
pub const fn payload_bytes_max(datagram_bytes: usize, integrity: Integrity) -> usize {
    data::payload_bytes_max(datagram_bytes, integrity) - EXTRA_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grid() {
        let at = |total_bytes, offset_bytes| ChunkHeader { total_bytes, offset_bytes };
        assert!(at(250, 0).is_on_grid(100, 100));
        assert!(at(250, 200).is_on_grid(50, 100));
        for (total, offset, len) in [
            (250, 200, 49),
            (250, 200, 51),
            (250, 50, 100),
            (250, 0, 99),
            (250, 0, 0),
            (250, 0, 250),
        ] {
            assert!(!at(total, offset).is_on_grid(len, 100), "{total} {offset} {len}");
        }
        assert!(!at(u64::MAX, u64::MAX - 15).is_on_grid(100, 100));
    }
}
