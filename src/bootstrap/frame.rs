//! What goes over a rendezvous connection.
//!
//! Each side opens with a preamble (magic, version); then come frames: kind (1 byte), length of
//! the payload (4 bytes, little endian), payload. The server stays silent until it has seen the
//! preamble of the other side.

use super::BLOB_BYTES_MAX;

/// First bytes of both directions.
const MAGIC: [u8; 8] = *b"tickwire";
/// Version of all that follows.
const VERSION: u16 = 1;
/// Magic, version, two bytes of zero.
pub(super) const PREAMBLE_BYTES: usize = 12;
/// Kind and length.
pub(super) const HEADER_BYTES: usize = 5;
/// What a hello says before its blob: whether a rank is wished for (4 bytes), and which (4).
const HELLO_HEAD_BYTES: usize = 8;
/// Longest text of a refusal in bytes.
const REASON_BYTES_MAX: usize = 1024;

/// What a frame is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// To the server: I want to join. Rank and blob.
    Hello = 1,
    /// To the server: I am at the barrier.
    Barrier = 2,
    /// To the server: my time is over, tell me what is missing.
    GiveUp = 3,
    /// From the server: your rank, and the number of ranks.
    Welcome = 17,
    /// From the server: the blob of the next rank.
    Blob = 18,
    /// From the server: everybody is at the barrier.
    Release = 19,
    /// From the server: no, and why; nothing follows.
    Refused = 20,
}

impl Kind {
    /// The kind and the shortest and longest payload it may have.
    fn parse(byte: u8) -> Option<(Kind, usize, usize)> {
        Some(match byte {
            1 => (Kind::Hello, HELLO_HEAD_BYTES, HELLO_HEAD_BYTES + BLOB_BYTES_MAX),
            2 => (Kind::Barrier, 0, 0),
            3 => (Kind::GiveUp, 0, 0),
            17 => (Kind::Welcome, 8, 8),
            18 => (Kind::Blob, 0, BLOB_BYTES_MAX),
            19 => (Kind::Release, 0, 0),
            20 => (Kind::Refused, 0, REASON_BYTES_MAX),
            _ => return None,
        })
    }
}

/// The preamble of either side.
pub(super) fn preamble() -> [u8; PREAMBLE_BYTES] {
    let mut bytes = [0; PREAMBLE_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// Why a preamble is not ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Foreign {
    /// Not of this protocol at all.
    Stranger,
    /// Of another version of it.
    Version(u16),
}

/// Checks as much of a preamble as `bytes` holds: `Ok(false)` means that more is needed.
pub(super) fn check_preamble(bytes: &[u8]) -> Result<bool, Foreign> {
    let magic = bytes.len().min(MAGIC.len());
    if bytes[..magic] != MAGIC[..magic] {
        return Err(Foreign::Stranger);
    }
    if bytes.len() < PREAMBLE_BYTES {
        return Ok(false);
    }
    match u16::from_le_bytes([bytes[8], bytes[9]]) {
        VERSION if bytes[10..12] == [0, 0] => Ok(true),
        VERSION => Err(Foreign::Stranger),
        other => Err(Foreign::Version(other)),
    }
}

impl std::fmt::Display for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Foreign::Stranger => write!(f, "it does not begin as a rendezvous of tickwire"),
            Foreign::Version(theirs) => {
                write!(f, "the other side speaks version {theirs}, this one version {VERSION}")
            }
        }
    }
}

/// Checks a frame header: kind and payload length in bytes, or what is wrong with it.
pub(super) fn parse_header(bytes: [u8; HEADER_BYTES]) -> Result<(Kind, usize), String> {
    let len = u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]) as usize;
    match Kind::parse(bytes[0]) {
        None => Err(format!("unknown frame kind {}", bytes[0])),
        Some((kind, least, most)) if !(least..=most).contains(&len) => {
            Err(format!("a {kind:?} frame of {len} bytes: it has {least} to {most}"))
        }
        Some((kind, ..)) => Ok((kind, len)),
    }
}

/// Appends a frame to `out`.
pub(super) fn push(out: &mut Vec<u8>, kind: Kind, payload: &[&[u8]]) {
    let len: usize = payload.iter().map(|part| part.len()).sum();
    let (_, least, most) = Kind::parse(kind as u8).expect("every kind parses");
    assert!((least..=most).contains(&len), "a {kind:?} frame of {len} bytes");
    out.push(kind as u8);
    out.extend_from_slice(&(len as u32).to_le_bytes());
    payload.iter().for_each(|part| out.extend_from_slice(part));
}

/// Appends a refusal to `out`; a long reason is cut.
pub(super) fn push_refusal(out: &mut Vec<u8>, reason: &str) {
    push(out, Kind::Refused, &[&reason.as_bytes()[..reason.len().min(REASON_BYTES_MAX)]]);
}

/// Appends a hello to `out`.
pub(super) fn push_hello(out: &mut Vec<u8>, rank: Option<u32>, blob: &[u8]) {
    let wish = [u32::from(rank.is_some()), rank.unwrap_or(0)];
    push(out, Kind::Hello, &[&wish[0].to_le_bytes(), &wish[1].to_le_bytes(), blob]);
}

/// The two numbers at the front of a payload, and the rest. The length was checked before.
pub(super) fn split_numbers(payload: &[u8]) -> (u32, u32, &[u8]) {
    let number = |at: usize| u32::from_le_bytes(payload[at..at + 4].try_into().expect("4 bytes"));
    (number(0), number(4), &payload[8..])
}

/// Takes the next frame from the front of `input`, or says what is wrong with it.
pub(super) fn take(input: &mut Vec<u8>) -> Result<Option<(Kind, Vec<u8>)>, String> {
    let Some(header) = input.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let (kind, len) = parse_header(*header)?;
    if input.len() < HEADER_BYTES + len {
        return Ok(None);
    }
    let payload = input[HEADER_BYTES..HEADER_BYTES + len].to_vec();
    input.drain(..HEADER_BYTES + len);
    Ok(Some((kind, payload)))
}

/// Rank numbers as text, a long list cut.
pub(super) fn list(ranks: &[u32]) -> String {
    const SHOWN: usize = 16;
    let shown: Vec<_> = ranks.iter().take(SHOWN).map(u32::to_string).collect();
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    match ranks.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => format!("{word} {} and {more} more", shown.join(", ")),
        _ => format!("{word} {}", shown.join(", ")),
    }
}
