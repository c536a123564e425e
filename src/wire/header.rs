//! The base header that every datagram begins with (wire 2).
//!
//! ```text
//!   0        1        2        4         8       12        16     20     24     28      30     32
//!   | ver|kind| delay | length | job key | rank | session | seq  | ack  | tag  | window | frag |
//! ```

use tickwire_tables::seq::Seq;

/// Length of the base header in bytes.
pub const HEADER_BYTES: usize = 32;
/// The wire version this code speaks.
pub const VERSION: u8 = 1;

const _: () = assert!(at::FRAGMENT + 2 == HEADER_BYTES);

mod at {
    pub const KIND: usize = 0;
    pub const ACK_DELAY: usize = 1;
    pub const PAYLOAD_BYTES: usize = 2;
    pub const JOB_CHECK: usize = 4;
    pub const RANK: usize = 8;
    pub const SESSION: usize = 12;
    pub const SEQ: usize = 16;
    pub const ACK: usize = 20;
    pub const TAG: usize = 24;
    pub const WINDOW: usize = 28;
    pub const FRAGMENT: usize = 30;
}

/// What a datagram carries (wire 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A whole small message.
    Data = 1,
    /// A slice of a large message.
    Chunk = 2,
    /// A standalone ack with a bitmap.
    Ack = 3,
    /// An ack that asks for one in return: is the peer still there?
    Probe = 4,
    /// An ack that says goodbye: the sender has all its acks and sends nothing more (wire 4.4).
    Bye = 5,
}

/// How long the receiver sat on the ack, as a byte: four bits of exponent, four of mantissa,
/// in steps of 64 ns: 0 to about 32 ms within 7 % (wire 2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AckDelay(pub u8);

impl AckDelay {
    /// Rounds down; saturates.
    pub fn from_ns(ns: u64) -> Self {
        let units = ns / 64;
        if units < 16 {
            return Self(units as u8);
        }
        let exponent = units.ilog2() - 3;
        if exponent > 15 {
            return Self(u8::MAX);
        }
        Self(((exponent as u8) << 4) | ((units >> (exponent - 1)) as u8 & 15))
    }

    /// Back to nanoseconds.
    pub fn as_ns(self) -> u64 {
        let (exponent, mantissa) = (self.0 >> 4, u64::from(self.0 & 15));
        if exponent == 0 { mantissa * 64 } else { ((16 + mantissa) << (exponent - 1)) * 64 }
    }
}

/// The base header's fields. Their meaning by kind: `docs/wire-format.md`, section 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the datagram carries.
    pub kind: Kind,
    /// Time between the newest arrival acked here and this datagram.
    pub ack_delay: AckDelay,
    /// User bytes (data, chunk) or bitmap bytes (all others) behind the header.
    pub payload_bytes: u16,
    /// [`crate::JobKey::wire_check`].
    pub job_check: u32,
    /// The sender's rank.
    pub rank: u32,
    /// The session that it belongs to: both sides and the direction (wire 2.7).
    pub session: u32,
    /// Data, chunk: this segment's number. Others: the next one expected, as `ack`; with
    /// `authenticate` their own number (wire 5.4).
    pub seq: Seq,
    /// Everything before this number has arrived.
    pub ack: Seq,
    /// Data, chunk: the message's tag. Bye: 1 when the peer's own goodbye was heard, else 0.
    pub tag: u32,
    /// Segments from `ack` on that the receiver has room for.
    pub window: u16,
    /// Chunk: which message of this sender the slice belongs to.
    pub fragment: u16,
}

/// The job key check of a header, before anything else of it is believed.
#[inline]
pub fn job_check(bytes: &[u8; HEADER_BYTES]) -> u32 {
    get_u32(bytes, at::JOB_CHECK)
}

#[inline]
fn get_u16(bytes: &[u8; HEADER_BYTES], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
fn get_u32(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl Header {
    /// Reads all fields; `None` for an unknown kind. The version is the caller's to check.
    #[inline]
    pub fn read(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let kind = match bytes[at::KIND] & 15 {
            1 => Kind::Data,
            2 => Kind::Chunk,
            3 => Kind::Ack,
            4 => Kind::Probe,
            5 => Kind::Bye,
            _ => return None,
        };
        Some(Self {
            kind,
            ack_delay: AckDelay(bytes[at::ACK_DELAY]),
            payload_bytes: get_u16(bytes, at::PAYLOAD_BYTES),
            job_check: get_u32(bytes, at::JOB_CHECK),
            rank: get_u32(bytes, at::RANK),
            session: get_u32(bytes, at::SESSION),
            seq: Seq::new(get_u32(bytes, at::SEQ)),
            ack: Seq::new(get_u32(bytes, at::ACK)),
            tag: get_u32(bytes, at::TAG),
            window: get_u16(bytes, at::WINDOW),
            fragment: get_u16(bytes, at::FRAGMENT),
        })
    }

    /// Writes all 32 bytes.
    #[inline]
    pub fn write(&self, out: &mut [u8; HEADER_BYTES]) {
        out[at::KIND] = (VERSION << 4) | self.kind as u8;
        out[at::ACK_DELAY] = self.ack_delay.0;
        out[at::PAYLOAD_BYTES..][..2].copy_from_slice(&self.payload_bytes.to_le_bytes());
        out[at::JOB_CHECK..][..4].copy_from_slice(&self.job_check.to_le_bytes());
        out[at::RANK..][..4].copy_from_slice(&self.rank.to_le_bytes());
        out[at::SESSION..][..4].copy_from_slice(&self.session.to_le_bytes());
        out[at::SEQ..][..4].copy_from_slice(&self.seq.get().to_le_bytes());
        out[at::ACK..][..4].copy_from_slice(&self.ack.get().to_le_bytes());
        out[at::TAG..][..4].copy_from_slice(&self.tag.to_le_bytes());
        out[at::WINDOW..][..2].copy_from_slice(&self.window.to_le_bytes());
        out[at::FRAGMENT..][..2].copy_from_slice(&self.fragment.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ack_delay_is_near_and_never_above() {
        for ns in (0..32_000_000u64).step_by(977) {
            let back = AckDelay::from_ns(ns).as_ns();
            assert!(back <= ns && (ns - back) as f64 <= 64.0 + ns as f64 * 0.0626, "{ns} {back}");
        }
        assert_eq!(AckDelay::from_ns(u64::MAX), AckDelay(255));
    }
}
