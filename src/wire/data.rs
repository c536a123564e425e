//! A whole small message in one datagram: the base header, then the user's bytes (wire 3.1).

use super::{CHECKSUM_BYTES, HEADER_BYTES};

/// User bytes that one datagram of `datagram_bytes` carries.
pub const fn payload_bytes_max(datagram_bytes: usize, checksum: bool) -> usize {
    datagram_bytes - HEADER_BYTES - if checksum { CHECKSUM_BYTES } else { 0 }
}
