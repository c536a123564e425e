//! The operation lists of the fuzz targets, drawn by proptest.

use proptest::prelude::*;
use tickwire::ports::sim::{LinkModel, SimPortConfig};
use tickwire::simulation::{ChunkOp, ClusterConfig, Op, play, play_chunks};
use tickwire::time::MICROS;

fn op() -> impl Strategy<Value = Op> {
    let len = prop_oneof![4 => 0u32..300, 2 => 0u32..5_000, 1 => 0u32..60_000];
    prop_oneof![
        8 => (any::<u8>(), any::<u8>(), len, any::<bool>())
            .prop_map(|(from, to, len_bytes, owned)| Op::Send { from, to, len_bytes, owned }),
        3 => any::<u8>().prop_map(Op::Tick),
        1 => (0u32..2_000_000).prop_map(Op::Advance),
        3 => (0u32..500_000).prop_map(Op::Run),
        1 => (any::<u8>(), any::<bool>(), prop::collection::vec(any::<u8>(), 0..80))
            .prop_map(|(to, priority, bytes)| Op::Inject { to, priority, bytes }),
        1 => (any::<u8>(), any::<u8>(), any::<bool>()).prop_map(|(a, b, cut)| Op::Cut(a, b, cut)),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(at, paused)| Op::Pause(at, paused)),
        2 => (any::<u8>(), any::<[u8; 3]>()).prop_map(|(kind, bytes)| Op::hostile(kind, bytes)),
    ]
}

fn model() -> impl Strategy<Value = LinkModel> {
    (0u64..50, 0.0..0.3, 0.0..0.2, 0.0..0.3).prop_map(|(latency_us, loss, dup, reorder)| {
        LinkModel { latency_ns: latency_us * MICROS, loss, dup, reorder, ..LinkModel::default() }
    })
}

prop_compose! {
    fn config()(
        nodes in 2u32..4,
        seed: u64,
        model in model(),
        gathers: bool,
        sends_complete_at_post: bool,
        async_insert: bool,
        first_seq: u32,
        ordered: bool,
        few in any::<bool>(),
        checksum: bool,
        authenticate: bool,
    ) -> ClusterConfig {
        let port = SimPortConfig {
            datagram_bytes_max: 512,
            send_depth: if few { 4 } else { 256 },
            gathers,
            sends_complete_at_post,
            async_insert,
            ..SimPortConfig::default()
        };
        let tweak: fn(&mut tickwire::Config) = if few {
            |c| {
                (c.send_slots, c.ack_slots, c.receive_slots, c.fragments_max) = (8, 2, 16, 8);
                c.window_segments = 64;
            }
        } else {
            |c| c.window_segments = 64
        };
        let rest = ClusterConfig::default();
        let rest = ClusterConfig { checksum, authenticate, tweak, ..rest };
        ClusterConfig { nodes, seed, model, port, first_seq, ordered, ..rest }
    }
}

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
    fn any_network_and_port_will_do(
        config in config(),
        ops in proptest::collection::vec(op(), 1..60),
    ) {
        play(&config, &ops).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn chunks_of_a_mad_peer_are_harmless(
        bytes in proptest::collection::vec(any::<u8>(), 0..2000),
    ) {
        play_chunks(&ChunkOp::list_from_bytes(&bytes)).map_err(TestCaseError::fail)?;
    }
}
