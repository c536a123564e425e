//! Faults that others met, section B: sequence numbers and windows.

use tickwire::ports::sim::{LinkModel, Verdict};
use tickwire::simulation::{Cluster, ClusterConfig};
use tickwire::time::{MICROS, MILLIS, SECONDS};
use tickwire::wire::Kind;

const LATENCY: u64 = 10 * MICROS;

fn link() -> LinkModel {
    LinkModel { latency_ns: LATENCY, ..LinkModel::default() }
}

fn send(cluster: &mut Cluster, from: usize, to: usize, len: usize) {
    while cluster.send(from, to, len, false).is_err() {
        cluster.run_for(5 * MICROS, MICROS).unwrap();
    }
}

fn drain(cluster: &mut Cluster) {
    cluster.drain(10 * SECONDS, 5 * MICROS).unwrap_or_else(|failure| panic!("{failure}"));
}

/// Whether a datagram carries user bytes.
fn is_data(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|b| b & 15 != Kind::Ack as u8)
}

#[test]
fn pc_19_a_loss_at_the_wrap_costs_one_resend() {
    for lost in 0..64 {
        let config =
            ClusterConfig { model: link(), first_seq: u32::MAX - 10, ..ClusterConfig::default() };
        let mut cluster = Cluster::new(&config);
        let mut seen = 0;
        cluster.net().set_tap(Box::new(move |tap| {
            if tap.from != 0 || !is_data(tap.bytes) {
                return Verdict::Deliver;
            }
            seen += 1;
            if seen == lost + 1 { Verdict::Drop } else { Verdict::Deliver }
        }));
        for _ in 0..64 {
            send(&mut cluster, 0, 1, 100);
            send(&mut cluster, 1, 0, 100);
            cluster.run_for(2 * MICROS, MICROS).unwrap();
        }
        drain(&mut cluster);
        assert_eq!((cluster.received(0), cluster.received(1)), (64, 64));
        for node in [0, 1] {
            let counters = cluster.engine(node).counters();
            assert!(counters.segments_resent <= 2, "run {lost}: {}", counters.segments_resent);
            assert_eq!(counters.drops_above_window, 0);
        }
    }
}

#[test]
fn pc_20_reverse_order_across_the_wrap() {
    for len in [64, 4000] {
        let config =
            ClusterConfig { model: link(), first_seq: u32::MAX - 3, ..ClusterConfig::default() };
        let mut cluster = Cluster::new(&config);
        // The first datagram waits longest: all arrive in reverse order.
        let mut nth = 0;
        cluster.net().set_tap(Box::new(move |tap| {
            if tap.from == 0 && is_data(tap.bytes) && nth < 64 {
                nth += 1;
                return Verdict::DelayBy((64 - nth) * MICROS);
            }
            Verdict::Deliver
        }));
        for _ in 0..16 {
            send(&mut cluster, 0, 1, len);
        }
        drain(&mut cluster);
        assert_eq!(cluster.received(1), 16);
        assert_eq!(cluster.engine(1).counters().drops_above_window, 0);
    }
}

#[test]
fn pc_22_any_first_number_works() {
    let w = 256u32;
    for first_seq in [0, 1, w - 1, w, w + 1, u32::MAX] {
        let model = LinkModel {
            reorder: 0.1,
            reorder_places_max: 16,
            reorder_delay_ns: 50 * MICROS,
            ..link()
        };
        let config = ClusterConfig { model, first_seq, ..ClusterConfig::default() };
        let mut cluster = Cluster::new(&config);
        for i in 0..w as usize + 5 {
            send(&mut cluster, 0, 1, i % 300);
        }
        drain(&mut cluster);
        assert_eq!(cluster.received(1), u64::from(w) + 5);
    }
}

/// A datagram of rank 1 to node 0 with the given number.
fn forged(seq: u32, tag: u32) -> Vec<u8> {
    forged_kind(Kind::Data, seq, tag, 64)
}

fn forged_kind(kind: Kind, seq: u32, tag: u32, window: u16) -> Vec<u8> {
    use tickwire::wire::{AckDelay, HEADER_BYTES, Header};
    let mut bytes = vec![0; HEADER_BYTES];
    Header {
        kind,
        ack_delay: AckDelay::default(),
        payload_bytes: 0,
        job_check: Cluster::JOB_KEY.wire_check(),
        rank: 1,
        session: Cluster::session(1, 0),
        seq: tickwire_tables::seq::Seq::new(seq),
        ack: tickwire_tables::seq::Seq::new(1000),
        tag,
        window,
        fragment: 0,
    }
    .write(bytes.first_chunk_mut().unwrap());
    bytes
}

#[test]
fn pc_24_numbers_outside_the_window_are_dropped_and_counted() {
    let config = ClusterConfig { model: link(), first_seq: 1000, ..ClusterConfig::default() };
    let mut cluster = Cluster::new(&config);
    cluster.run_for(MILLIS, 10 * MICROS).unwrap();
    let w = 256u32;
    for (offset, above, behind) in [
        (w, 1, 0),
        (1 << 30, 2, 0),
        ((1 << 31) - 1, 3, 0),
        (u32::MAX, 3, 1),
        (w.wrapping_neg(), 3, 2),
    ] {
        let bytes = forged(1000u32.wrapping_add(offset), 0);
        cluster.net().inject(0, tickwire::ports::Channel::Data, &bytes);
        cluster.run_for(100 * MICROS, 10 * MICROS).unwrap();
        let counters = cluster.engine(0).counters();
        let got = (counters.drops_above_window, counters.drops_duplicate);
        assert_eq!(got, (above, behind), "offset {offset}");
    }
    for i in 0..1000 {
        send(&mut cluster, 1, 0, i % 100);
    }
    drain(&mut cluster);
    assert_eq!(cluster.received(0), 1000);
}

#[test]
fn pc_24_the_last_number_of_the_window_is_kept() {
    let config = ClusterConfig { model: link(), first_seq: 1000, ..ClusterConfig::default() };
    let mut cluster = Cluster::new(&config);
    cluster.run_for(MILLIS, 10 * MICROS).unwrap();
    cluster.net().inject(0, tickwire::ports::Channel::Data, &forged(1000 + 255, 0));
    cluster.run_for(100 * MICROS, 10 * MICROS).unwrap();
    let counters = cluster.engine(0).counters();
    assert_eq!((counters.segments_out_of_order, counters.drops()), (1, 0));
}

#[test]
fn pc_26_a_window_that_closes_on_segments_in_flight_opens_again() {
    let config = ClusterConfig { model: link(), first_seq: 1000, ..ClusterConfig::default() };
    let mut cluster = Cluster::new(&config);
    cluster.run_for(MILLIS, 10 * MICROS).unwrap();
    let ends = [0, 1].map(|at| cluster.engine(at).port().node());
    cluster.net().partition(ends[1], ends[0], true);
    for _ in 0..40 {
        send(&mut cluster, 0, 1, 100);
    }
    cluster.run_for(50 * MICROS, MICROS).unwrap();
    // Nothing acked, nothing offered: 40 are beyond the window now.
    let closed = forged_kind(Kind::Ack, 1000, 0, 0);
    cluster.net().inject(0, tickwire::ports::Channel::Priority, &closed);
    cluster.run_for(10 * MICROS, MICROS).unwrap();
    let sent = |cluster: &mut Cluster| {
        let counters = cluster.engine(0).counters();
        counters.segments_sent - counters.segments_resent
    };
    let before = sent(&mut cluster);
    for _ in 0..60 {
        send(&mut cluster, 0, 1, 100);
    }
    cluster.run_for(5 * MILLIS, 10 * MICROS).unwrap();
    assert_eq!(sent(&mut cluster), before, "new segments went into a closed window");
    // The way back is mended; every ack so far is gone, and so is what reopened the window.
    cluster.net().partition(ends[1], ends[0], false);
    cluster.drain(30 * MILLIS, 5 * MICROS).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(cluster.received(1), 100);
}
