//! Chunks of a peer out of its mind, against one engine whose invariants must hold.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tickwire::simulation::{ChunkOp, play_chunks};

fuzz_target!(|bytes: &[u8]| {
    if let Err(failure) = play_chunks(&ChunkOp::list_from_bytes(bytes)) {
        panic!("{failure}");
    }
});
