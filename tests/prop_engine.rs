//! The operation lists of the fuzz targets, drawn by proptest.

use proptest::prelude::*;
use tickwire::simulation::{ChunkOp, ClusterConfig, Op, play, play_chunks};

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn operations_are_safe_and_all_drains(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        ordered: bool,
        first_seq: u32,
    ) {
        let config = ClusterConfig { nodes: 3, ordered, first_seq, ..ClusterConfig::default() };
        play(&config, &Op::list_from_bytes(&bytes)).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn chunks_of_a_mad_peer_are_harmless(
        bytes in proptest::collection::vec(any::<u8>(), 0..2000),
    ) {
        play_chunks(&ChunkOp::list_from_bytes(&bytes)).map_err(TestCaseError::fail)?;
    }
}
