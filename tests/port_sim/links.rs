//! Delays, faults and cuts of simulated links.

use crate::host::{
    Host, assert_conserved, assert_near, datagram, host, pair, places_passed, stream,
};
use std::cell::RefCell;
use std::rc::Rc;
use tickwire::ports::sim::{BurstLoss, LinkModel, SimNet, SimPortConfig, Verdict};
use tickwire::ports::{Channel, Gather, LinkEvent, Port, SendOp};

#[test]
fn without_faults_datagrams_arrive_at_once_in_order_and_whole() {
    let net = SimNet::new(1, LinkModel::default());
    let config = SimPortConfig { prefix_bytes: 40, ..Default::default() };
    let (mut a, mut b) = (Host::new(net.port(config.clone()), 8), Host::new(net.port(config), 8));
    for channel in Channel::ALL {
        let peer = a.peer(channel, &b.port);
        let sent: Vec<Vec<u8>> = (0..50u8).map(|i| (0..i * 4).map(|j| j ^ i).collect()).collect();
        sent.iter().for_each(|bytes| a.send(channel, peer, bytes));
        assert_eq!(b.poll(channel, true), sent);
    }
    assert_eq!(net.now(), 0);
    assert_eq!(net.next_event_at(), None);
    assert_conserved(&net);
    assert_eq!(net.in_flight(), 0);
}

#[test]
fn gathered_payload_follows_the_header() {
    for latency_ns in [0, 50] {
        let (net, mut a, mut b, peer) = pair(LinkModel { latency_ns, ..Default::default() });
        let payload: &'static [u8] = &[0xab; 1000];
        a.sends.bytes_mut(0)[..3].copy_from_slice(b"hdr");
        let gather = Some(Gather::of_static(payload));
        let op = SendOp { slot: 0, len_bytes: 3, peer, gather };
        assert_eq!(a.port.post_sends(Channel::Data, &[op]), 1);
        net.advance(latency_ns);
        assert_eq!(b.poll(Channel::Data, true), [[b"hdr".as_slice(), payload].concat()]);
    }
}

#[test]
fn latency_and_bandwidth_add_up_exactly() {
    let model = LinkModel { latency_ns: 700, bytes_per_s: 1_000_000_000, ..Default::default() };
    let (net, mut a, mut b, peer) = pair(model);
    a.send(Channel::Data, peer, &[1; 1000]);
    a.send(Channel::Data, peer, &[2; 500]);
    // Onto the sender's link until 1000, at the receiver's link at 1700, off it at 2700.
    assert_eq!(net.next_event_at(), Some(1700));
    net.advance_to(2699);
    assert!(b.poll(Channel::Data, true).is_empty());
    net.advance_to(2700);
    assert_eq!(b.poll(Channel::Data, true), [vec![1; 1000]]);
    // The second one reaches the receiver's link at 2200, finds it busy, and needs 500 from 2700.
    assert_eq!(net.next_event_at(), Some(3200));
    net.advance_to(3200);
    assert_eq!(b.poll(Channel::Data, true), [vec![2; 500]]);
    assert_eq!(net.next_event_at(), None);
}

#[test]
fn small_datagrams_keep_the_rate_of_a_fast_link() {
    // 40 bytes at 12.5 GB/s are 3.2 ns: the first reaches the receiver's link at 4 ns (whole ns,
    // rounded up). 500 of them have left at 1600 ns, and the last passes the other link behind.
    let (net, mut a, mut b, peer) =
        pair(LinkModel { bytes_per_s: 12_500_000_000, ..Default::default() });
    (0..500).for_each(|_| a.send(Channel::Data, peer, &[0; 40]));
    assert_eq!(net.next_event_at(), Some(4));
    net.advance_to(1603);
    assert_eq!(b.poll(Channel::Data, true).len(), 499);
    net.advance_to(1605);
    assert_eq!(b.poll(Channel::Data, true).len(), 1);
}

#[test]
fn incast_queues_at_the_receiver_and_drops_at_the_tail() {
    let model = LinkModel {
        latency_ns: 100,
        bytes_per_s: 1_000_000_000,
        queue_datagrams: 4,
        ..Default::default()
    };
    let net = SimNet::new(1, model);
    let mut to = host(&net);
    let mut senders: Vec<_> = (0..10).map(|_| host(&net)).collect();
    for (i, from) in senders.iter_mut().enumerate() {
        let peer = from.peer(Channel::Data, &to.port);
        from.send(Channel::Data, peer, &[i as u8; 1000]);
    }
    // All ten reach the receiver's link at 1100; four fit, and leave it one by one.
    for i in 0..4 {
        net.advance_to(1100 + 1000 * (i + 1) - 1);
        assert!(to.poll(Channel::Data, true).is_empty());
        net.advance(1);
        assert_eq!(to.poll(Channel::Data, true), [vec![i as u8; 1000]]);
    }
    assert_eq!((net.counters().queue_full, net.in_flight()), (6, 0));
    // What has left the link made room again.
    // All senders have the address; it has the same name with each.
    let peer = senders[0].peer(Channel::Data, &to.port);
    senders[..5].iter_mut().for_each(|from| from.send(Channel::Data, peer, &[9; 1000]));
    net.advance(10_000);
    assert_eq!(to.poll(Channel::Data, true).len(), 4);
    assert_eq!(net.counters().queue_full, 7);
    assert_conserved(&net);
}

#[test]
fn partitions_cut_one_way_and_nodes_go_down_and_up() {
    let (net, mut a, mut b, to_b) = pair(LinkModel::default());
    let to_a = b.peer(Channel::Data, &a.port);
    net.partition(a.port.node(), b.port.node(), true);
    a.send(Channel::Data, to_b, b"cut");
    b.send(Channel::Data, to_a, b"the other way");
    assert!(b.poll(Channel::Data, true).is_empty());
    assert_eq!(a.poll(Channel::Data, true), [b"the other way"]);
    net.partition(a.port.node(), b.port.node(), false);
    a.send(Channel::Data, to_b, b"mended");
    assert_eq!(b.poll(Channel::Data, true), [b"mended"]);

    net.set_node_down(b.port.node(), true);
    a.send(Channel::Data, to_b, b"to");
    b.send(Channel::Data, to_a, b"from");
    assert!(a.poll(Channel::Data, true).is_empty() && b.poll(Channel::Data, true).is_empty());
    net.set_node_down(b.port.node(), false);
    // One that is under way when the node goes down vanishes too.
    net.set_link(0, 1, LinkModel { latency_ns: 100, ..Default::default() });
    a.send(Channel::Data, to_b, b"under way");
    net.set_node_down(b.port.node(), true);
    net.advance(100);
    net.set_node_down(b.port.node(), false);
    assert!(b.poll(Channel::Data, true).is_empty());
    assert_eq!((net.counters().cut, net.counters().delivered), (4, 2));
    assert_conserved(&net);

    net.announce_link(1, LinkEvent::Down);
    assert_eq!(b.port.link_event(), Some(LinkEvent::Down));
    assert_eq!((b.port.link_event(), a.port.link_event()), (None, None));
}

#[test]
fn links_have_models_of_their_own() {
    let (net, mut a, mut b, to_b) = pair(LinkModel { latency_ns: 10, ..Default::default() });
    let to_a = b.peer(Channel::Data, &a.port);
    net.set_link(0, 1, LinkModel { loss: 1.0, ..Default::default() });
    a.send(Channel::Data, to_b, b"lost");
    b.send(Channel::Data, to_a, b"fine");
    net.advance(10);
    assert!(b.poll(Channel::Data, true).is_empty());
    assert_eq!(a.poll(Channel::Data, true), [b"fine"]);
    net.clear_link(0, 1);
    net.set_model(LinkModel::default());
    a.send(Channel::Data, to_b, b"at once");
    assert_eq!(b.poll(Channel::Data, true), [b"at once"]);
}

#[test]
fn faults_of_the_link_come_at_their_rates() {
    let model =
        LinkModel { loss: 0.05, dup: 0.02, corrupt: 0.03, latency_ns: 500, ..Default::default() };
    let (net, mut a, mut b, peer) = pair(model);
    let (mut flipped, sent) = (0, 40_000u32);
    for number in 0..sent {
        a.send(Channel::Data, peer, &datagram(number));
        net.advance(1000);
        for bytes in b.poll(Channel::Data, true) {
            let bits: u32 =
                bytes.iter().zip(datagram(number)).map(|(x, y)| (x ^ y).count_ones()).sum();
            assert!(bits <= 1, "{bits} bits differ");
            flipped += u64::from(bits);
        }
    }
    let c = net.counters();
    assert_near("loss", c.lost, u64::from(sent), 0.05);
    assert_near("corrupt", c.corrupted, c.sent - c.lost, 0.03);
    assert_near("dup", c.duplicated, c.sent - c.lost, 0.02);
    assert!(flipped >= c.corrupted);
    assert_eq!(net.in_flight(), 0);
    assert_conserved(&net);
}

#[test]
fn bursts_have_their_length_and_share() {
    let burst = BurstLoss { p_enter: 0.01, p_leave: 0.2, loss_in_burst: 1.0 };
    let (net, mut a, mut b, peer) = pair(LinkModel { burst, ..Default::default() });
    let got = stream(&net, &mut a, &mut b, peer, (100_000, 0));
    let gaps: Vec<u32> = got.windows(2).map(|w| w[1] - w[0] - 1).filter(|&gap| gap > 0).collect();
    let lost = net.counters().lost as f64;
    // Bursts last 1 / p_leave = 5 datagrams and begin every 1 / p_enter + 5.
    let length = lost / gaps.len() as f64;
    assert!((length - 5.0).abs() < 0.5, "mean burst of {length}");
    assert!((lost / 100_000.0 - 5.0 / 105.0).abs() < 0.006, "{lost} lost");
}

#[test]
fn reordering_is_bounded_by_places_and_by_time() {
    let model =
        LinkModel { reorder: 0.2, reorder_places_max: 3, latency_ns: 100, ..Default::default() };
    let (net, mut a, mut b, peer) = pair(model);
    let mut got = stream(&net, &mut a, &mut b, peer, (3000, 10));
    assert!((1..=3).contains(&places_passed(&got)), "{}", places_passed(&got));
    assert_near("reorder", net.counters().reordered, 3000, 0.2);
    got.sort_unstable();
    assert!(got.iter().copied().eq(0..3000), "each arrives once");

    // Nothing follows the last one: time lets it go.
    let model = LinkModel { reorder: 1.0, reorder_delay_ns: 5000, ..model };
    net.set_model(model);
    let start = net.now();
    a.send(Channel::Data, peer, &datagram(0));
    assert_eq!(net.next_event_at(), Some(start + 5000));
    net.advance(5100);
    assert_eq!(b.poll_numbers(), [0]);
}

#[test]
fn jitter_and_spikes_stay_in_their_range() {
    let model = LinkModel {
        latency_ns: 100,
        jitter_ns: 50,
        delay_spike: 0.5,
        delay_spike_ns: 1000,
        ..Default::default()
    };
    let (net, mut a, mut b, peer) = pair(model);
    let mut spikes = 0;
    for _ in 0..1000 {
        a.send(Channel::Data, peer, b"x");
        let delay_ns = net.next_event_at().unwrap() - net.now();
        assert!((100..=150).contains(&(delay_ns % 1000)), "{delay_ns}");
        spikes += delay_ns / 1000;
        net.advance(delay_ns);
        assert_eq!(b.poll(Channel::Data, true).len(), 1);
    }
    assert_near("spikes", spikes, 1000, 0.5);
}

#[test]
fn the_tap_sees_and_decides() {
    let (net, mut a, mut b, peer) = pair(LinkModel::default());
    let seen = Rc::new(RefCell::new(Vec::new()));
    let log = seen.clone();
    net.set_tap(Box::new(move |tap| {
        log.borrow_mut().push((tap.from, tap.to, tap.channel, tap.bytes.to_vec(), tap.number));
        match tap.bytes {
            b"drop" => Verdict::Drop,
            b"copy" => Verdict::Copy,
            b"late" => Verdict::DelayBy(500),
            _ => Verdict::Deliver,
        }
    }));
    for text in [b"fine", b"drop", b"late", b"copy"] {
        a.send(Channel::Data, peer, text);
    }
    assert_eq!(b.poll(Channel::Data, true), [b"fine", b"copy", b"copy"]);
    assert_eq!(net.next_event_at(), Some(500));
    net.advance(500);
    assert_eq!(b.poll(Channel::Data, true), [b"late"]);
    assert_eq!(seen.borrow()[2], (0, 1, Channel::Data, b"late".to_vec(), 2));
    net.clear_tap();
    a.send(Channel::Data, peer, b"drop");
    assert_eq!(b.poll(Channel::Data, true), [b"drop"]);
    assert_conserved(&net);
}
