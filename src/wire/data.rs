//! A whole small message in one datagram: the base header, then the user's bytes (wire 3.1).

use super::{HEADER_BYTES, Integrity};

/// User bytes that one datagram of `datagram_bytes` carries.
pub const fn payload_bytes_max(datagram_bytes: usize, integrity: Integrity) -> usize {
    datagram_bytes - HEADER_BYTES - integrity.trailer_bytes()
}
