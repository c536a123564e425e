//! Test contents: any slice of any message can be checked with nothing stored.

/// The word at `index` of message `number` from `source`.
#[inline]
fn word(source: u32, number: u64, index: u64) -> u64 {
    let x = (u64::from(source) << 48) ^ number.rotate_left(20) ^ index;
    x.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29) ^ x
}

/// Writes all of message `number` from `source`.
pub fn fill(out: &mut [u8], source: u32, number: u64) {
    for (index, bytes) in out.chunks_mut(8).enumerate() {
        let word = word(source, number, index as u64).to_le_bytes();
        bytes.copy_from_slice(&word[..bytes.len()]);
    }
}

/// Where `bytes` first differs from message `number` from `source`, if it does.
pub fn first_difference(bytes: &[u8], source: u32, number: u64) -> Option<usize> {
    bytes.chunks(8).enumerate().find_map(|(index, chunk)| {
        let want = word(source, number, index as u64).to_le_bytes();
        if chunk == &want[..chunk.len()] {
            return None;
        }
        chunk.iter().zip(want).position(|(&a, b)| a != b).map(|at| index * 8 + at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_single_wrong_byte_is_found() {
        let mut bytes = vec![0; 37];
        fill(&mut bytes, 3, 9);
        assert_eq!(first_difference(&bytes, 3, 9), None);
        assert!(first_difference(&bytes, 3, 10).is_some());
        assert!(first_difference(&bytes, 4, 9).is_some());
        for at in 0..bytes.len() {
            bytes[at] ^= 0x40;
            assert_eq!(first_difference(&bytes, 3, 9), Some(at));
            bytes[at] ^= 0x40;
        }
    }
}
