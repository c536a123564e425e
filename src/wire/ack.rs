//! A standalone ack: the base header, then a bitmap of what arrived beyond `ack` (wire 4).

use super::WireError;

/// Words of the longest bitmap: windows go up to this many times 64 segments.
pub const BITMAP_WORDS_MAX: usize = 64;

/// Bit `i` of the bitmap: segment `ack + i` has arrived. Bit 0 is never set.
#[derive(Clone, Copy, Debug)]
pub struct AckBitmap<'a>(&'a [u8]);

impl<'a> AckBitmap<'a> {
    /// An empty bitmap, for acks that ride on data.
    pub const NONE: AckBitmap<'static> = AckBitmap(&[]);

    /// Takes the payload of an ack; its length must be whole words, not too many (wire 4.2).
    pub fn read(bytes: &'a [u8]) -> Result<Self, WireError> {
        if bytes.len().is_multiple_of(8) && bytes.len() <= BITMAP_WORDS_MAX * 8 {
            Ok(Self(bytes))
        } else {
            Err(WireError::WrongLength)
        }
    }

    /// Positions of set bits, ascending.
    pub fn iter(self) -> impl Iterator<Item = u32> + 'a {
        self.0.chunks_exact(8).enumerate().flat_map(|(i, bytes)| {
            let mut word = u64::from_le_bytes(bytes.try_into().expect("chunks of eight"));
            std::iter::from_fn(move || {
                (word != 0).then(|| {
                    let bit = word.trailing_zeros();
                    word &= word - 1;
                    i as u32 * 64 + bit
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_back_in_order() {
        let mut bytes = [0u8; 24];
        for bit in [1usize, 63, 64, 100, 191] {
            bytes[bit / 8] |= 1 << (bit % 8);
        }
        let bits: Vec<_> = AckBitmap::read(&bytes).unwrap().iter().collect();
        assert_eq!(bits, [1, 63, 64, 100, 191]);
        assert!(AckBitmap::read(&bytes[..7]).is_err());
        assert!(AckBitmap::read(&[0; BITMAP_WORDS_MAX * 8 + 8]).is_err());
    }
}
