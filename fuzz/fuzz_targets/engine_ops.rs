//! Bytes become operations on a small cluster; then the network is calm and all must drain.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tickwire::simulation::{ClusterConfig, Op, play};

fuzz_target!(|bytes: &[u8]| {
    let config = ClusterConfig { nodes: 3, ..ClusterConfig::default() };
    if let Err(failure) = play(&config, &Op::list_from_bytes(bytes)) {
        panic!("{failure}");
    }
});
