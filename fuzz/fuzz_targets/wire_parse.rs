//! Any bytes are a datagram or a counted error, never a panic; so are address blobs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tickwire::PeerAddress;
use tickwire::wire::{self, HEADER_BYTES, Packet};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(address) = PeerAddress::from_bytes(bytes) {
        let again = PeerAddress::from_bytes(&address.to_bytes()).expect("what was read is written");
        assert_eq!(again, address);
    }
    // The key in the datagram, so that the checks behind it are reached.
    let key = bytes.get(4..8).map_or(0, |key| u32::from_le_bytes(key.try_into().unwrap()));
    for checksum in [false, true] {
        let Ok(packet) = wire::parse(bytes, key, checksum) else { continue };
        let header = match &packet {
            Packet::Data(header, payload) => {
                assert_eq!(payload.len(), usize::from(header.payload_bytes));
                header
            }
            Packet::Chunk(header, chunk, payload) => {
                assert_eq!(payload.len(), usize::from(header.payload_bytes));
                if chunk.is_on_grid(payload.len(), 1424) {
                    assert!(chunk.offset_bytes + payload.len() as u64 <= chunk.total_bytes);
                }
                header
            }
            Packet::Ack(header, bitmap) => {
                assert!(bitmap.iter().all(|bit| bit < 4096));
                header
            }
        };
        let mut written = [0; HEADER_BYTES];
        header.write(&mut written);
        assert_eq!(written, bytes[..HEADER_BYTES]);
    }
});
