//! The names of things: rows and handles of the tables, and numbers that people choose.

use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::io::Read;

tickwire_tables::table_ids! {
    /// A row of the endpoint table: one peer.
    pub struct EndpointRow;
    /// A peer, as users name it. Goes stale when the peer is removed.
    pub struct EndpointHandle("ep", index_bits = 20);
}

tickwire_tables::table_ids! {
    /// A row of the fragment table: one message on one side.
    pub struct FragmentRow;
    /// A fragment with its generation.
    pub struct FragmentHandle("frag", index_bits = 20);
}

tickwire_tables::table_ids! {
    /// A row of the segment table; its index is the datagram's slot in the arena.
    pub struct SegmentRow;
    /// A segment with its generation.
    pub struct SegmentHandle("seg", index_bits = 20);
}

/// A process's number in the job: stable and dense, chosen by whoever starts the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rank(pub u32);

/// Tells a restarted process from its predecessor of the same rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Incarnation(pub u32);

/// What all processes of one job share; datagrams without it are dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct JobKey(pub u64);

impl JobKey {
    /// The 32 bits of the key that travel in each header.
    pub fn wire_check(self) -> u32 {
        (self.0 ^ (self.0 >> 32)) as u32
    }

    /// The word that datagrams from one process to another carry (wire 2.7). It differs for every
    /// restart of either side and for each direction, so what was meant for a predecessor, or sent
    /// by one, is never taken for the present process's; and who does not know the job key and
    /// both incarnations cannot tell it.
    pub fn session(self, from: (Rank, Incarnation), to: (Rank, Incarnation)) -> u32 {
        let mut hasher = SipHasher13::new_with_keys(self.0, 0);
        for word in [from.0.0, from.1.0, to.0.0, to.1.0] {
            hasher.write_u32(word.to_le());
        }
        hasher.finish() as u32
    }
}

// The key keeps strangers out, so it does not belong in logs.
impl std::fmt::Debug for JobKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JobKey(..)")
    }
}

/// The secret of one job: 128 bits with which its processes tag their datagrams, so that nobody
/// else can make, change or repeat one ([`crate::Config::authenticate`]). Make one for each job and
/// hand it over in private.
#[derive(Clone)]
pub struct AuthKey([u8; 16]);

impl AuthKey {
    /// The key of these bytes. They should be random.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The key that [`AuthKey::to_hex`] gave; anything but 32 hexadecimal digits is none.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits: &[u8; 32] = text.as_bytes().try_into().ok()?;
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |i: usize| char::from(pair[i]).to_digit(16);
            *byte = (digit(0)? << 4 | digit(1)?) as u8;
        }
        Some(Self(bytes))
    }

    /// A random key, from the system.
    pub fn generate() -> std::io::Result<Self> {
        let mut bytes = [0; 16];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// The whole key as text, to be handed over to the other processes of the job, in private.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl std::fmt::Debug for AuthKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuthKey(..)")
    }
}

/// The sender's label on a message, handed to the receiver with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tag(pub u32);

/// The sender's own name for a message, given back when it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Token(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_back_and_never_shown() {
        let key = AuthKey::generate().unwrap();
        let text = key.to_hex();
        assert_eq!(AuthKey::from_hex(&text).unwrap().bytes(), key.bytes());
        assert_ne!(AuthKey::generate().unwrap().bytes(), key.bytes());
        assert_eq!(format!("{key:?}"), "AuthKey(..)");
        let with_sign = text.replacen(|_| true, "+", 1);
        for wrong in ["", &text[1..], &format!("{text}0"), &with_sign, &"é".repeat(16)] {
            assert!(AuthKey::from_hex(wrong).is_none(), "{wrong}");
        }
    }
}
