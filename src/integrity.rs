//! Trailers of datagrams, with what only the engine knows: the mode, the key, and how often the
//! numbers of a peer have wrapped (wire 5).
//!
//! What is believed of a datagram, and what it proves, is decided here for the mode with tags. A
//! genuine datagram that comes again proves nothing: its sender may be dead, so it is no sign of
//! life, and as a standalone ack it is dropped.

use crate::context::Context;
use crate::ids::EndpointRow;
use crate::ports::Port;
use crate::state::endpoints::turn;
use crate::wire::{self, Header, Integrity, Kind, Turns, extend};

/// Ends the datagram of `len` bytes in `slot` as the job wants it; gives its whole length. `number`
/// is its own in 64 bits; what it acks is all that is expected now.
#[inline]
pub(crate) fn seal<P: Port>(
    c: &mut Context<P>,
    ep: EndpointRow,
    slot: u32,
    len: usize,
    number: u64,
) -> usize {
    let bytes = &mut c.slots.bytes_mut(slot)[c.limits.prefix_bytes..];
    if let Some(key) = &c.config.authenticate {
        let turns = Turns { seq: turn(number), ack: turn(c.endpoints.expected64(ep)) };
        wire::write_tag(bytes, len, key, turns);
    } else if c.limits.integrity == Integrity::Checksum {
        wire::write_checksum(bytes, len);
    }
    len + c.limits.integrity.trailer_bytes()
}

/// Whether the tag is that of a datagram of the peer's; counts it if not.
fn is_genuine<P: Port>(c: &mut Context<P>, ep: EndpointRow, header: &Header, bytes: &[u8]) -> bool {
    let Some(key) = &c.config.authenticate else { return true };
    let e = &c.endpoints;
    let number = match header.kind {
        Kind::Data | Kind::Chunk => extend(header.seq.get(), e.expected64(ep)),
        Kind::Ack | Kind::Probe | Kind::Bye => e.extend_control(ep, header.seq.get()),
    };
    let ack = extend(header.ack.get(), e.next_seq64(ep));
    let turns = Turns { seq: turn(number), ack: turn(ack) };
    let fits = wire::tag_fits(bytes, wire::body_end(header), key, turns);
    if !fits {
        c.counters.drops_bad_tag += 1;
    }
    fits
}

/// What a datagram is worth that is to be believed at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    /// It shows that the peer lives.
    News,
    /// It may be a repetition. Only if it acks something is it a sign of life.
    Old,
}

/// Judges a datagram by its tag and its number. `None`: it is dropped, and counted.
pub(crate) fn worth<P: Port>(
    c: &mut Context<P>,
    ep: EndpointRow,
    header: &Header,
    bytes: &[u8],
) -> Option<Worth> {
    if !is_genuine(c, ep, header, bytes) {
        return None;
    }
    match header.kind {
        Kind::Data | Kind::Chunk => {
            let again = c.endpoints.has_arrived(ep, header.seq, c.limits.window);
            Some(if again { Worth::Old } else { Worth::News })
        }
        Kind::Ack | Kind::Probe | Kind::Bye => {
            if c.endpoints.accept_control(ep, header.seq.get()) {
                return Some(Worth::News);
            }
            c.counters.drops_stale_ack += 1;
            None
        }
    }
}
