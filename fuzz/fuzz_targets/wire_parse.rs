//! Any bytes give a packet or an error; what was understood can be written back; a peer's
//! address that was understood reads the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tickwire::{AuthKey, PeerAddress};
use tickwire::wire::{self, ChunkHeader, HEADER_BYTES, Header, Integrity, Packet, Turns, chunk};

/// The first four bytes of the input name the job, so that inputs need not guess it.
const JOB_BYTES: usize = 4;

fn encode(packet: &Packet<'_>, bitmap: &[u8]) -> Vec<u8> {
    let (header, extra, payload): (&Header, Option<&ChunkHeader>, &[u8]) = match packet {
        Packet::Data(header, payload) => (header, None, payload),
        Packet::Chunk(header, extra, payload) => (header, Some(extra), payload),
        Packet::Ack(header, _) => (header, None, bitmap),
    };
    let mut out = vec![0; HEADER_BYTES];
    header.write(out.first_chunk_mut().unwrap());
    if let Some(extra) = extra {
        let mut bytes = [0; chunk::EXTRA_BYTES];
        extra.write(&mut bytes);
        out.extend(bytes);
    }
    out.extend(payload);
    out
}

fn check(bytes: &[u8], job: u32, mode: Integrity) {
    let Ok(packet) = wire::parse(bytes, job, mode) else { return };
    let (header, extra) = match &packet {
        Packet::Data(header, _) | Packet::Ack(header, _) => (header, 0),
        Packet::Chunk(header, ..) => (header, chunk::EXTRA_BYTES),
    };
    let body = HEADER_BYTES + extra..wire::body_end(header);
    let again = encode(&packet, &bytes[body.clone()]);
    assert_eq!(again, bytes[..body.end], "written back, it differs");
    if let Packet::Ack(_, bitmap) = &packet {
        let ones: u32 = bytes[body.clone()].iter().map(|b| b.count_ones()).sum();
        let bits: Vec<u32> = bitmap.iter().collect();
        assert_eq!(bits.len(), ones as usize);
        assert!(bits.is_sorted_by(|a, b| a < b), "{bits:?}");
        assert!(bits.iter().all(|&bit| bit < 4096));
    }
    if let Packet::Chunk(_, chunk, payload) = &packet
        && chunk.is_on_grid(payload.len(), 1424)
    {
        assert!(chunk.offset_bytes + payload.len() as u64 <= chunk.total_bytes);
    }
    if mode == Integrity::Checksum {
        // Any one wrong bit is noticed.
        let mut wrong = bytes.to_vec();
        wrong[body.end / 2] ^= 0x10;
        assert!(wire::parse(&wrong, job, mode).is_err());
    }
}

fuzz_target!(|data: &[u8]| {
    if let Ok(address) = PeerAddress::from_bytes(data) {
        let again = PeerAddress::from_bytes(&address.to_bytes());
        assert_eq!(again.as_ref(), Ok(&address));
    }
    let Some((job, bytes)) = data.split_first_chunk::<JOB_BYTES>() else { return };
    let job = u32::from_le_bytes(*job);
    for mode in [Integrity::None, Integrity::Checksum, Integrity::Tag] {
        check(bytes, job, mode);
    }
    // The same with a checksum that fits, which no fuzzer would guess.
    if let Ok(packet) = wire::parse(bytes, job, Integrity::None) {
        let (Packet::Data(header, _) | Packet::Chunk(header, ..) | Packet::Ack(header, _)) = packet;
        let end = wire::body_end(&header);
        let mut sealed = bytes[..end].to_vec();
        sealed.extend([0; wire::CHECKSUM_BYTES]);
        wire::write_checksum(&mut sealed, end);
        assert!(wire::parse(&sealed, job, Integrity::Checksum).is_ok());
        check(&sealed, job, Integrity::Checksum);
        // Nor a tag; with another bit it no longer fits.
        let (key, turns) = (AuthKey::from_bytes([7; 16]), Turns { seq: job, ack: 1 });
        sealed.resize(end + wire::TAG_BYTES, 0);
        wire::write_tag(&mut sealed, end, &key, turns);
        assert!(wire::parse(&sealed, job, Integrity::Tag).is_ok());
        assert!(wire::tag_fits(&sealed, end, &key, turns));
        sealed[end / 2] ^= 0x10;
        assert!(!wire::tag_fits(&sealed, end, &key, turns));
    }
});
