//! Faults that others met, section C: fragmentation, reassembly, lengths.

use tickwire::ports::Channel;
use tickwire::ports::sim::{LinkModel, SimNet, SimPortConfig, Verdict};
use tickwire::simulation::{Cluster, ClusterConfig, payload};
use tickwire::time::{MICROS, MILLIS, SECONDS};
use tickwire::wire::{self, AckDelay, ChunkHeader, HEADER_BYTES, Header, Kind};
use tickwire::{BuildError, Config, Context, Engine, Event, JobKey, Rank, Tag, Token};
use tickwire_tables::seq::Seq;

const FIRST: u32 = 1000;
const CHUNK: usize = 1472 - 48;

fn config() -> ClusterConfig {
    let model = LinkModel { latency_ns: 10 * MICROS, ..LinkModel::default() };
    ClusterConfig { model, first_seq: FIRST, ..ClusterConfig::default() }
}

fn drain(cluster: &mut Cluster) {
    cluster.drain(10 * SECONDS, 5 * MICROS).unwrap_or_else(|failure| panic!("{failure}"));
}

fn header(kind: Kind, rank: u32, seq: u32, payload: usize) -> Header {
    Header {
        kind,
        ack_delay: AckDelay::default(),
        payload_bytes: payload as u16,
        job_check: Cluster::JOB_KEY.wire_check(),
        rank,
        session: Cluster::session(rank, 0),
        seq: Seq::new(seq),
        ack: Seq::new(FIRST),
        tag: 0,
        window: 64,
        fragment: 0,
    }
}

fn chunk(rank: u32, seq: u32, fragment: u16, total: u64, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES + wire::chunk::EXTRA_BYTES + len];
    let header = Header { fragment, ..header(Kind::Chunk, rank, seq, len) };
    header.write(bytes.first_chunk_mut().unwrap());
    let extra = bytes[HEADER_BYTES..].first_chunk_mut().unwrap();
    ChunkHeader { total_bytes: total, offset_bytes: offset }.write(extra);
    bytes
}

#[test]
fn pc_27_28_interleaved_messages_of_several_peers_stay_apart() {
    let mut config = config();
    config.nodes = 3;
    config.model.reorder = 0.5;
    config.model.reorder_places_max = 8;
    config.model.reorder_delay_ns = 60 * MICROS;
    let mut cluster = Cluster::new(&config);
    for _ in 0..20 {
        for from in [0, 2] {
            cluster.send(from, 1, 5 * CHUNK + 1, false).unwrap();
            cluster.send(from, 1, 3 * CHUNK, true).unwrap();
        }
        cluster.run_for(5 * MICROS, MICROS).unwrap();
    }
    drain(&mut cluster);
    assert_eq!(cluster.received(1), 80);
}

#[test]
fn pc_30_pieces_off_the_grid_cost_nothing() {
    let mut cluster = Cluster::new(&config());
    cluster.run_for(MILLIS, 10 * MICROS).unwrap();
    for i in 0..100_000u32 {
        let bytes = chunk(1, FIRST + i % 256, 0, 4 << 20, u64::from(i) * 2, 1);
        cluster.net().inject(0, Channel::Data, &bytes);
        if i % 1000 == 999 {
            cluster.run_for(50 * MICROS, 10 * MICROS).unwrap();
        }
    }
    cluster.run_for(10 * MILLIS, 10 * MICROS).unwrap();
    let counters = cluster.engine(0).counters().clone();
    assert_eq!(counters.segments_accepted, 0);
    assert!(counters.drops_off_grid_chunk >= 90_000, "{counters:?}");
}

#[test]
fn pc_32_half_messages_are_bounded_and_disturb_nobody() {
    let mut config = config();
    config.nodes = 3;
    let mut cluster = Cluster::new(&config);
    cluster.run_for(MILLIS, 10 * MICROS).unwrap();
    for i in 0..10_000u32 {
        // First chunks only, each in order as far as it is accepted.
        let bytes = chunk(1, FIRST + i, i as u16, 1 << 20, 0, CHUNK);
        cluster.net().inject(0, Channel::Data, &bytes);
        if i % 100 == 0 {
            cluster.send(2, 0, 8, false).unwrap();
            cluster.send(0, 2, 8, false).unwrap();
            cluster.run_for(100 * MICROS, 5 * MICROS).unwrap();
        }
    }
    cluster.run_for(50 * MILLIS, 10 * MICROS).unwrap();
    let counters = cluster.engine(0).counters();
    // As many as the bound allows, twice the window of 256, not one more.
    assert_eq!(counters.segments_accepted - cluster.received(0), 512);
    assert_eq!((cluster.received(0), cluster.received(2)), (100, 100));
}

#[test]
fn pc_33_absurd_datagram_sizes_are_refused() {
    for bytes in [0, 1, 32, 33, 64] {
        let net = SimNet::new(1, LinkModel::default());
        let port = net.port(SimPortConfig { datagram_bytes_max: bytes, ..Default::default() });
        match Engine::new(Config::new(Rank(0), JobKey(1)), port) {
            Err(BuildError::Config { field: "datagram_bytes_max", .. }) => {}
            Err(other) => panic!("{bytes}: {other}"),
            Ok(_) => panic!("{bytes} bytes a datagram were accepted"),
        }
    }
    let net = SimNet::new(1, LinkModel::default());
    let mut engine =
        Engine::new(Config::new(Rank(0), JobKey(1)), net.port(SimPortConfig::default())).unwrap();
    let mut address = engine.local_address();
    address.rank = Rank(1);
    address.datagram_bytes_max = 33;
    assert!(engine.add_peer(&address).is_err(), "a peer that takes one byte a datagram");
}

#[test]
fn pc_36_link_padding_is_not_data() {
    let mut cluster = Cluster::new(&config());
    cluster.run_for(MILLIS, 10 * MICROS).unwrap();
    for junk in 1..=46 {
        let mut bytes = vec![0; HEADER_BYTES];
        let mut header = header(Kind::Data, 1, FIRST + junk - 1, 5);
        header.tag = junk;
        header.write(bytes.first_chunk_mut().unwrap());
        bytes.extend([7; 5]);
        bytes.extend(vec![0xEE; junk as usize]);
        cluster.net().inject(0, Channel::Data, &bytes);
    }
    let mut seen = Vec::new();
    for _ in 0..100 {
        cluster.net().advance(MICROS);
        cluster.engine(0).tick(&mut |_: &mut Context<_>, event: Event<'_>| {
            if let Event::Received(message) = event {
                seen.push((message.tag.0, message.bytes().to_vec()));
            }
        });
    }
    let want: Vec<_> = (1..=46).map(|tag| (tag, vec![7; 5])).collect();
    assert_eq!(seen, want);
}

#[test]
fn pc_37_short_and_random_datagrams_disturb_nobody() {
    use rand_core::{RngCore, SeedableRng};
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(37);
    let mut cluster = Cluster::new(&config());
    cluster.run_for(MILLIS, 10 * MICROS).unwrap();
    let mut injected = 0;
    let whole = chunk(1, FIRST, 0, 100, 0, 100);
    for len in 0..HEADER_BYTES + wire::chunk::EXTRA_BYTES + 2 {
        cluster.net().inject(0, Channel::Data, &whole[..len]);
        injected += 1;
    }
    for kind in 0..=255u8 {
        let mut bytes = vec![0; HEADER_BYTES];
        header(Kind::Data, 7, FIRST, 0).write(bytes.first_chunk_mut().unwrap());
        bytes[0] = kind;
        cluster.net().inject(0, Channel::Priority, &bytes);
        injected += 1;
    }
    cluster.run_for(MILLIS, 10 * MICROS).unwrap();
    for round in 0..100 {
        for _ in 0..1000 {
            let mut bytes = vec![0; (rng.next_u32() % 1472) as usize];
            rng.fill_bytes(&mut bytes);
            cluster.net().inject(0, Channel::Data, &bytes);
            injected += 1;
        }
        cluster.send(1, 0, round * 10, false).unwrap();
        cluster.run_for(200 * MICROS, 10 * MICROS).unwrap();
    }
    drain(&mut cluster);
    assert_eq!(cluster.received(0), 100);
    assert_eq!(cluster.engine(0).counters().drops(), injected);
}

#[test]
fn pc_39_no_datagram_is_longer_than_the_port_takes() {
    for checksum in [false, true] {
        for prefix_bytes in [0, 64] {
            let mut config = config();
            config.checksum = checksum;
            config.port.prefix_bytes = prefix_bytes;
            let max = config.port.datagram_bytes_max;
            let p = max - HEADER_BYTES - if checksum { 4 } else { 0 };
            let mut cluster = Cluster::new(&config);
            cluster.net().set_tap(Box::new(move |tap| {
                assert!(tap.bytes.len() <= max, "{} bytes", tap.bytes.len());
                // wire 2: only chunks name a fragment, also when their slots are used again.
                let is_chunk = tap.bytes[0] & 15 == Kind::Chunk as u8;
                assert!(is_chunk || tap.bytes[30..32] == [0, 0], "{:?}", &tap.bytes[..32]);
                Verdict::Deliver
            }));
            for len in [p - 1, p, p + 1, 2 * p, p - 16, 2 * (p - 16), 9 * (p - 16) + 1, 1, 2, 3] {
                cluster.send(0, 1, len, len % 2 == 0).unwrap();
                cluster.run_for(100 * MICROS, 5 * MICROS).unwrap();
            }
            drain(&mut cluster);
            assert_eq!(cluster.received(1), 10);
        }
    }
}

/// Sends one message of `len` bytes over `sim` and checks all of it. Memory: 2 x `len`.
fn one_huge_message(len: u64) {
    let net = SimNet::new(1, LinkModel::default());
    let port = SimPortConfig { datagram_bytes_max: 60_000, ..SimPortConfig::default() };
    let mut engines = [0, 1].map(|rank| {
        let mut config = Config::new(Rank(rank), JobKey(1));
        config.message_bytes_max = 1 << 33;
        config.half_received_bytes_max = 1 << 34;
        Engine::new(config, net.port(port.clone())).unwrap()
    });
    let addresses = engines.each_ref().map(|engine| engine.local_address());
    let to = engines[0].add_peer(&addresses[1]).unwrap();
    engines[1].add_peer(&addresses[0]).unwrap();
    let mut buffer = vec![0; len as usize];
    payload::fill(&mut buffer, 0, 1);
    engines[0].send_from(to, Tag(1), buffer, Token(5)).unwrap();
    let (mut received, mut done) = (false, false);
    while !(received && done) {
        engines[0].tick(&mut |_: &mut Context<_>, event: Event<'_>| {
            done |= matches!(event, Event::SendDone { token: Token(5), .. });
        });
        engines[1].tick(&mut |_: &mut Context<_>, event: Event<'_>| {
            if let Event::Received(message) = event {
                assert_eq!(message.bytes().len() as u64, len);
                assert_eq!(payload::first_difference(message.bytes(), 0, 1), None);
                received = true;
            }
        });
        net.advance(1000);
        assert!(net.now() < 600_000_000_000, "stuck: {:?}", engines[1].counters());
    }
}

#[test]
fn pc_38_a_message_of_64_mib_and_17() {
    one_huge_message((64 << 20) + 17);
}

#[test]
#[ignore = "needs 9 GiB of memory; run with --ignored in release"]
fn pc_38_messages_around_4_gib() {
    for len in [(1u64 << 31) - 1, 1 << 31, (1 << 31) + 1, (1 << 32) - 1, 1 << 32, (1 << 32) + 17] {
        one_huge_message(len);
    }
}
