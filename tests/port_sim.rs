//! The simulated network and the faults wrapper, through the port interface.

use arrayvec::ArrayVec;
use proptest::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;
use tickwire::ports::faults::{FaultConfig, FaultConfigError, Faults};
use tickwire::ports::sim::{
    BurstLoss, LinkModel, SimCounters, SimNet, SimPort, SimPortConfig, Verdict,
};
use tickwire::ports::{
    Channel, Completion, CompletionKind, Gather, InsertResult, Insertion, LinkEvent, Port,
    PortError, PortPeer, RawAddress, SendOp,
};
use tickwire::time::Nanos;
use tickwire_tables::arena::{ArenaPart, DatagramArena};

const SLOT_BYTES: usize = 2048;
const SEND_SLOTS: u32 = 64;

/// A user of a port who keeps account of every slot.
struct Host<P> {
    port: P,
    sends: ArenaPart,
    free_sends: Vec<u32>,
    recvs: ArenaPart,
    failed: Vec<CompletionKind>,
}

impl<P: Port> Host<P> {
    /// Posts `recvs` receives on each channel.
    fn new(mut port: P, recvs: u32) -> Self {
        let arena = DatagramArena::new((SEND_SLOTS + 2 * recvs) as usize, SLOT_BYTES).unwrap();
        port.attach(&arena).unwrap();
        let (sends, recv_part) = arena.split(SEND_SLOTS);
        let free_sends = (0..SEND_SLOTS).collect();
        let mut host = Self { port, sends, free_sends, recvs: recv_part, failed: Vec::new() };
        for channel in Channel::ALL {
            let first = SEND_SLOTS + channel as u32 * recvs;
            let slots: Vec<u32> = (first..first + recvs).collect();
            assert_eq!(host.post(channel, &slots), slots.len());
        }
        host
    }

    fn post(&mut self, channel: Channel, slots: &[u32]) -> usize {
        let count = self.port.post_recvs(channel, slots);
        slots[..count].iter().for_each(|&slot| self.recvs.lend(slot));
        count
    }

    fn peer(&mut self, channel: Channel, of: &impl Port) -> PortPeer {
        let address = of.local_address(channel);
        match self.port.insert(channel, &address, 0).unwrap() {
            Insertion::Ready(peer) => peer,
            Insertion::Pending => panic!("an asynchronous insertion"),
        }
    }

    fn send(&mut self, channel: Channel, peer: PortPeer, bytes: &[u8]) {
        let slot = self.free_sends.pop().expect("a free send slot");
        let prefix = self.port.caps().prefix_bytes;
        self.sends.bytes_mut(slot)[prefix..prefix + bytes.len()].copy_from_slice(bytes);
        let op = SendOp { slot, len_bytes: bytes.len() as u32, peer, gather: None };
        assert_eq!(self.port.post_sends(channel, &[op]), 1);
        if self.port.caps().sends_complete_at_post {
            self.free_sends.push(slot);
        } else {
            self.sends.lend(slot);
        }
    }

    /// Everything that is there, in order; with `repost`, the receives are posted again.
    fn poll(&mut self, channel: Channel, repost: bool) -> Vec<Vec<u8>> {
        let mut out = [Completion { kind: CompletionKind::Sent, slot: 0, len_bytes: 0 }; 7];
        let prefix = self.port.caps().prefix_bytes;
        let (mut got, mut slots) = (Vec::new(), Vec::new());
        loop {
            let count = self.port.poll(channel, &mut out);
            for &Completion { kind, slot, len_bytes } in &out[..count] {
                match kind {
                    CompletionKind::Received => {
                        self.recvs.give_back(slot);
                        let bytes = &self.recvs.bytes(slot)[prefix..prefix + len_bytes as usize];
                        got.push(bytes.to_vec());
                        slots.push(slot);
                    }
                    CompletionKind::ReceiveFailed(_) => {
                        self.recvs.give_back(slot);
                        slots.push(slot);
                        self.failed.push(kind);
                    }
                    CompletionKind::Sent | CompletionKind::SendFailed(_) => {
                        self.sends.give_back(slot);
                        self.free_sends.push(slot);
                        self.failed.extend((kind != CompletionKind::Sent).then_some(kind));
                    }
                }
            }
            if repost {
                assert_eq!(self.post(channel, &slots), slots.len());
                slots.clear();
            }
            if count == 0 {
                return got;
            }
        }
    }

    fn poll_numbers(&mut self) -> Vec<u32> {
        let numbers = |bytes: Vec<u8>| u32::from_le_bytes(bytes[..4].try_into().unwrap());
        self.poll(Channel::Data, true).into_iter().map(numbers).collect()
    }
}

fn host(net: &SimNet) -> Host<SimPort> {
    Host::new(net.port(SimPortConfig::default()), 512)
}

/// Two hosts and the second one's data address at the first.
fn pair(model: LinkModel) -> (SimNet, Host<SimPort>, Host<SimPort>, PortPeer) {
    let net = SimNet::new(7, model);
    let (mut a, b) = (host(&net), host(&net));
    let peer = a.peer(Channel::Data, &b.port);
    (net, a, b, peer)
}

fn assert_conserved(net: &SimNet) {
    let c = net.counters();
    let dropped = c.lost + c.cut + c.queue_full + c.no_receive_posted + c.to_nobody + c.truncated;
    let gone = c.delivered + dropped + net.in_flight() as u64;
    assert_eq!(c.sent + c.duplicated + c.injected, gone, "{c:?}");
}

/// Sends `count` numbered datagrams of 64 bytes, one every `gap_ns`, and returns what arrives.
fn stream<P: Port>(
    net: &SimNet,
    a: &mut Host<SimPort>,
    b: &mut Host<P>,
    peer: PortPeer,
    (count, gap_ns): (u32, Nanos),
) -> Vec<u32> {
    let mut got = Vec::new();
    for number in 0..count {
        a.send(Channel::Data, peer, &datagram(number));
        net.advance(gap_ns);
        got.extend(b.poll_numbers());
    }
    net.advance(10_000_000);
    got.extend(b.poll_numbers());
    got
}

/// 64 bytes that follow from the number alone.
fn datagram(number: u32) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    let mut state = number | 1;
    for byte in &mut bytes[4..] {
        state = state.wrapping_mul(0x9e37_79b1).rotate_left(9);
        *byte = state as u8;
    }
    bytes
}

/// How many later ones came before each; the number sent is its place.
fn places_passed(got: &[u32]) -> usize {
    let before = |i: usize| got[..i].iter().filter(|&&number| number > got[i]).count();
    (0..got.len()).map(before).max().unwrap_or(0)
}

fn assert_near(what: &str, count: u64, of: u64, p: f64) {
    let (expected, sigma) = (of as f64 * p, (of as f64 * p * (1.0 - p)).sqrt());
    let off = (count as f64 - expected).abs();
    assert!(off <= 5.0 * sigma + 1.0, "{what}: {count} of {of}, expected {expected:.0}");
}

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
        let payload = vec![0xabu8; 1000];
        a.sends.bytes_mut(0)[..3].copy_from_slice(b"hdr");
        let gather = Some(Gather { ptr: payload.as_ptr(), len_bytes: 1000 });
        let op = SendOp { slot: 0, len_bytes: 3, peer, gather };
        assert_eq!(a.port.post_sends(Channel::Data, &[op]), 1);
        net.advance(latency_ns);
        assert_eq!(b.poll(Channel::Data, true), [[b"hdr".as_slice(), &payload].concat()]);
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
    // 40 bytes at 12.5 GB/s are 3.2 ns; 500 of them leave at 1600 ns, and the last one passes the
    // receiver's link right behind.
    let (net, mut a, mut b, peer) =
        pair(LinkModel { bytes_per_s: 12_500_000_000, ..Default::default() });
    (0..500).for_each(|_| a.send(Channel::Data, peer, &[0; 40]));
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

#[test]
fn datagrams_wait_for_receives_up_to_the_socket_queue() {
    let net = SimNet::new(1, LinkModel::default());
    let config = SimPortConfig { recv_depth: 4, socket_datagrams: 3, ..Default::default() };
    let (mut a, mut b) = (host(&net), Host::new(net.port(config), 4));
    let peer = a.peer(Channel::Data, &b.port);
    for i in 0..10 {
        a.send(Channel::Data, peer, &datagram(i));
    }
    assert_eq!((net.in_flight(), net.counters().no_receive_posted), (3, 3));
    assert_eq!(b.poll_numbers(), (0..7).collect::<Vec<_>>());
    a.send(Channel::Data, peer, &datagram(10));
    assert_eq!(b.poll_numbers(), [10]);
    assert_eq!(b.port.post_recvs(Channel::Data, &[0]), 0, "all receives are posted already");
    assert_conserved(&net);
}

#[test]
fn bad_addresses_and_peers_are_refused() {
    let (net, mut a, b, peer) = pair(LinkModel::default());
    let mut unknown = b.port.local_address(Channel::Data);
    unknown.0[8] = 77;
    let swapped = b.port.local_address(Channel::Priority);
    for bad in
        [RawAddress::default(), RawAddress::from_bytes(b"nonsense").unwrap(), swapped, unknown]
    {
        let result = a.port.insert(Channel::Data, &bad, 0);
        assert!(matches!(result, Err(PortError::Unusable { port: "sim", .. })), "{result:?}");
    }
    a.port.remove(Channel::Data, peer);
    a.send(Channel::Data, peer, b"removed");
    a.send(Channel::Data, PortPeer::NONE, b"nobody");
    a.send(Channel::Data, PortPeer(1), b"removed");
    assert_eq!(net.counters(), SimCounters { sends_failed: 3, ..Default::default() });
    // Inserted twice and removed once, it is still there.
    let (one, two) = (a.peer(Channel::Data, &b.port), a.peer(Channel::Data, &b.port));
    a.port.remove(Channel::Data, one);
    a.send(Channel::Data, two, b"ok");
    assert_eq!(net.counters().delivered, 1);
}

#[test]
fn asynchronous_insertions_are_reaped() {
    let net = SimNet::new(1, LinkModel::default());
    let config = SimPortConfig { async_insert: true, insert_depth: 2, ..Default::default() };
    let mut a = Host::new(net.port(config), 4);
    let mut b = host(&net);
    let good = b.port.local_address(Channel::Data);
    let bad = RawAddress::from_bytes(&[1, 2, 3]).unwrap();
    assert_eq!(a.port.insert(Channel::Data, &bad, 10).unwrap(), Insertion::Pending);
    assert_eq!(a.port.insert(Channel::Data, &good, 11).unwrap(), Insertion::Pending);
    let third = a.port.insert(Channel::Data, &good, 12);
    assert!(matches!(third, Err(PortError::Again { .. })));
    let mut results = ArrayVec::new();
    a.port.reap_inserts(&mut results);
    let [InsertResult { context: 10, result: Err(_) }, InsertResult { context: 11, result }] =
        results.as_slice()
    else {
        panic!("{results:?}");
    };
    a.send(Channel::Data, result.clone().unwrap(), b"hello");
    assert_eq!(b.poll(Channel::Data, true), [b"hello"]);
    assert_eq!(a.port.insert(Channel::Data, &good, 12).unwrap(), Insertion::Pending);
}

#[test]
fn polled_sends_complete_late_and_respect_the_depth() {
    let net = SimNet::new(1, LinkModel::default());
    let config = SimPortConfig {
        sends_complete_at_post: false,
        send_depth: 3,
        send_completion_delay_ns: 100,
        ..Default::default()
    };
    let (mut a, mut b) = (Host::new(net.port(config), 4), host(&net));
    let peer = a.peer(Channel::Data, &b.port);
    a.send(Channel::Data, peer, b"one");
    a.send(Channel::Data, PortPeer::NONE, b"two");
    let op = SendOp { slot: 0, len_bytes: 8, peer, gather: None };
    let long = SendOp { len_bytes: 1473, ..op };
    assert_eq!(a.port.post_sends(Channel::Data, &[long, op]), 1, "the depth is 3");
    a.sends.lend(0);
    a.free_sends.retain(|&slot| slot != 0);
    assert_eq!(b.poll(Channel::Data, true), [b"one"]);
    assert!(a.poll(Channel::Data, true).is_empty());
    assert_eq!(a.free_sends.len(), SEND_SLOTS as usize - 3);
    assert_eq!(net.next_event_at(), Some(100));
    a.port.wait(1000);
    assert_eq!(net.now(), 100);
    a.poll(Channel::Data, true);
    assert_eq!(a.failed, [CompletionKind::SendFailed(113), CompletionKind::SendFailed(90)]);
    assert_eq!(a.free_sends.len(), SEND_SLOTS as usize);
}

#[test]
fn waiting_moves_time_to_the_next_arrival_or_the_limit() {
    let (net, mut a, mut b, peer) = pair(LinkModel { latency_ns: 300, ..Default::default() });
    a.send(Channel::Data, peer, b"x");
    b.port.wait(200);
    assert_eq!((net.now(), b.port.now()), (200, 200));
    b.port.wait(200);
    assert_eq!(net.now(), 300);
    b.port.wait(200);
    assert_eq!(net.now(), 300, "something is there already");
    assert_eq!(b.poll(Channel::Data, true), [b"x"]);
    b.port.wait(200);
    assert_eq!(net.now(), 500);
}

#[test]
fn hostile_and_overlong_datagrams_arrive_as_such() {
    let (net, _a, mut b, _) = pair(LinkModel { loss: 1.0, ..Default::default() });
    net.inject(1, Channel::Priority, &[0xff; 3]);
    net.inject(1, Channel::Priority, &[]);
    net.inject(1, Channel::Priority, &[0; 1473]);
    assert_eq!(b.poll(Channel::Priority, true), [vec![0xff; 3], vec![]]);
    assert_eq!(b.failed, [CompletionKind::ReceiveFailed(90)]);
    assert_eq!((net.counters().injected, net.counters().truncated), (3, 1));
    assert_conserved(&net);
}

#[test]
fn a_node_lives_on_when_its_port_is_replaced() {
    let (net, mut a, b, peer) = pair(LinkModel::default());
    let address = b.port.local_address(Channel::Data);
    drop(b);
    a.send(Channel::Data, peer, b"nobody");
    assert_eq!(net.counters().to_nobody, 1);
    let mut b = Host::new(net.reopen(1, SimPortConfig::default()), 4);
    assert_eq!(b.port.local_address(Channel::Data), address);
    a.send(Channel::Data, peer, b"again");
    assert_eq!(b.poll(Channel::Data, true), [b"again"]);
    assert_conserved(&net);
}

#[test]
fn slots_too_small_for_a_datagram_are_refused() {
    let net = SimNet::new(1, LinkModel::default());
    let mut port = net.port(SimPortConfig { prefix_bytes: 40, ..Default::default() });
    let arena = DatagramArena::new(4, 1024).unwrap();
    assert!(matches!(port.attach(&arena), Err(PortError::Unusable { .. })));
}

/// One step of a random run.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send { from: usize, to: usize, len: usize },
    Poll { host: usize, repost: bool },
    Advance { ns: Nanos },
    Down { host: usize, down: bool },
    Cut { from: usize, to: usize, cut: bool },
    Fewer { calm: bool },
}

const HOSTS: usize = 3;

fn any_step() -> impl Strategy<Value = Step> {
    let host = 0..HOSTS;
    prop_oneof![
        8 => (host.clone(), host.clone(), 0..300usize)
            .prop_map(|(from, to, len)| Step::Send { from, to, len }),
        4 => (host.clone(), any::<bool>()).prop_map(|(host, repost)| Step::Poll { host, repost }),
        4 => (0..2000u64).prop_map(|ns| Step::Advance { ns }),
        1 => (host.clone(), any::<bool>()).prop_map(|(host, down)| Step::Down { host, down }),
        1 => (host.clone(), host, any::<bool>())
            .prop_map(|(from, to, cut)| Step::Cut { from, to, cut }),
        1 => any::<bool>().prop_map(|calm| Step::Fewer { calm }),
    ]
}

fn any_model() -> impl Strategy<Value = LinkModel> {
    let p = prop_oneof![Just(0.0), 0.0..0.5f64];
    let faults = (p.clone(), p.clone(), p.clone(), p.clone(), p.clone(), p);
    let delays = (0..500u64, 0..300u64, 0..5u64, 0..4u32, 0..5u32, 0..2000u64);
    (faults, delays).prop_map(|((loss, dup, reorder, corrupt, delay_spike, p_enter), delays)| {
        let (latency_ns, jitter_ns, gbytes, queue_datagrams, reorder_places_max, ns) = delays;
        LinkModel {
            latency_ns,
            jitter_ns,
            bytes_per_s: gbytes * 333_333_333,
            queue_datagrams,
            loss,
            burst: BurstLoss { p_enter, p_leave: 0.3, loss_in_burst: 0.7 },
            dup,
            reorder,
            reorder_places_max,
            reorder_delay_ns: ns,
            corrupt,
            delay_spike,
            delay_spike_ns: ns,
        }
    })
}

/// Runs the steps and returns all that anybody could see.
fn run(seed: u64, model: LinkModel, steps: &[Step]) -> (Vec<(usize, Nanos, Vec<u8>)>, SimCounters) {
    let net = SimNet::new(seed, model);
    let config = SimPortConfig { socket_datagrams: 8, ..Default::default() };
    let mut hosts: Vec<_> = (0..HOSTS).map(|_| Host::new(net.port(config.clone()), 6)).collect();
    for from in 0..HOSTS {
        for to in 0..HOSTS {
            let address = hosts[to].port.local_address(Channel::Data);
            hosts[from].port.insert(Channel::Data, &address, 0).unwrap();
        }
    }
    let mut seen = Vec::new();
    for (i, &step) in steps.iter().enumerate() {
        match step {
            Step::Send { from, to, len } => {
                hosts[from].send(Channel::Data, PortPeer(to as u64), &vec![i as u8; len]);
            }
            Step::Poll { host, repost } => {
                let got = hosts[host].poll(Channel::Data, repost);
                seen.extend(got.into_iter().map(|bytes| (host, net.now(), bytes)));
            }
            Step::Advance { ns } => net.advance(ns),
            Step::Down { host, down } => net.set_node_down(host as u32, down),
            Step::Cut { from, to, cut } => net.partition(from as u32, to as u32, cut),
            Step::Fewer { calm: true } => net.set_model(LinkModel::default()),
            Step::Fewer { calm: false } => net.set_model(model),
        }
        assert_conserved(&net);
    }
    while let Some(at) = net.next_event_at() {
        assert!(at >= net.now());
        net.advance_to(at);
        assert_conserved(&net);
    }
    for (i, host) in hosts.iter_mut().enumerate() {
        seen.extend(host.poll(Channel::Data, false).into_iter().map(|bytes| (i, 0, bytes)));
    }
    (seen, net.counters())
}

proptest! {
    #[test]
    fn nothing_is_unaccounted_for_and_runs_repeat(
        seed in any::<u64>(),
        model in any_model(),
        steps in proptest::collection::vec(any_step(), 0..200),
    ) {
        prop_assert_eq!(run(seed, model, &steps), run(seed, model, &steps));
    }
}

// The faults wrapper.

fn faulty(config: &str, recvs: u32) -> (SimNet, Host<SimPort>, Host<Faults<SimPort>>, PortPeer) {
    let net = SimNet::new(3, LinkModel::default());
    let config: FaultConfig = config.parse().unwrap();
    let (mut a, port) = (host(&net), net.port(SimPortConfig::default()));
    let b = Host::new(Faults::new(port, config, 5), recvs);
    let peer = a.peer(Channel::Data, &b.port);
    (net, a, b, peer)
}

#[test]
fn wrapper_loses_no_slot_and_keeps_its_rates() {
    let (net, mut a, mut b, peer) = faulty("loss=2%,dup=1%,reorder=5%,corrupt=0.5%", 64);
    let sent = 100_000u32;
    let (mut copies, mut damaged) = (vec![0u8; sent as usize], 0u64);
    let mut take = |got: Vec<Vec<u8>>| {
        for bytes in got {
            let number = u32::from_le_bytes(bytes[..4].try_into().unwrap());
            match copies.get_mut(number as usize) {
                Some(count) if bytes == datagram(number) => *count += 1,
                _ => damaged += 1,
            }
        }
    };
    for number in 0..sent {
        a.send(Channel::Data, peer, &datagram(number));
        net.advance(20);
        if number % 16 == 0 {
            take(b.poll(Channel::Data, true));
        }
    }
    net.advance(200_000);
    take(b.poll(Channel::Data, true));
    let c = b.port.fault_counters();
    let kept = u64::from(sent) - c.lost;
    assert_near("loss", c.lost, u64::from(sent), 0.02);
    assert_near("corrupt", c.corrupted, kept, 0.005);
    assert_near("dup", c.duplicated, kept, 0.01);
    assert_near("reorder", c.reordered, kept + c.duplicated, 0.05);
    // A damaged datagram may have been copied; every other one is whole.
    assert!(damaged >= c.corrupted && damaged < c.corrupted + 50, "{damaged} damaged");
    let intact: u64 = copies.iter().map(|&count| u64::from(count)).sum();
    assert_eq!(intact + damaged, kept + c.duplicated);

    // Every slot comes back when datagrams without faults fill them all, spares excepted.
    let slots = (SEND_SLOTS + 64..SEND_SLOTS + 128).filter(|&slot| b.recvs.is_lent(slot)).count();
    assert_eq!(slots, 64, "the port holds every slot of the channel");
    for number in 0..200 {
        a.send(Channel::Data, peer, &datagram(number));
    }
    while !b.poll(Channel::Data, false).is_empty() {
        net.advance(200_000);
    }
    let withheld = (SEND_SLOTS + 64..SEND_SLOTS + 128).filter(|&s| b.recvs.is_lent(s)).count();
    assert!(withheld <= 8, "{withheld} slots are not given back");
}

#[test]
fn wrapper_reorders_within_bounds() {
    let (net, mut a, mut b, peer) = faulty("reorder=30%,reorder_places_max=4", 64);
    let mut got = stream(&net, &mut a, &mut b, peer, (3000, 1));
    assert!((1..=4).contains(&places_passed(&got)), "{}", places_passed(&got));
    got.sort_unstable();
    assert!(got.iter().copied().eq(0..3000));
}

#[test]
fn wrapper_lets_the_last_one_go_after_a_while() {
    let (net, mut a, mut b, peer) = faulty("reorder=1", 4);
    a.send(Channel::Data, peer, &datagram(9));
    assert!(b.poll_numbers().is_empty());
    assert_eq!(b.port.next_release_at(), Some(200_000));
    b.port.wait(1_000_000_000);
    assert_eq!(net.now(), 200_000);
    assert_eq!(b.poll_numbers(), [9]);
    assert_eq!(b.port.next_release_at(), None);
}

#[test]
fn wrapper_works_with_a_single_receive() {
    let (net, mut a, mut b, peer) = faulty("loss=20%,dup=50%,reorder=50%,corrupt=0", 1);
    let got = stream(&net, &mut a, &mut b, peer, (500, 1_000_000));
    let c = b.port.fault_counters();
    assert_eq!(c.duplicated, 0, "there is no slot to spare");
    assert_eq!(got.len() as u64 + c.lost, 500);
}

#[test]
fn wrapper_without_faults_changes_nothing() {
    let (net, mut a, mut b, peer) = faulty("", 16);
    let got = stream(&net, &mut a, &mut b, peer, (100, 0));
    assert!(got.into_iter().eq(0..100));
    assert_eq!(b.port.fault_counters(), Default::default());
    assert_eq!(b.port.caps(), b.port.inner().caps());
}

#[test]
fn fault_text_is_read_and_written() {
    let config: FaultConfig = "loss=1%, dup = 0.5 %,reorder=0.05,corrupt=0.1%".parse().unwrap();
    let expected = FaultConfig {
        loss: 0.01,
        dup: 0.005,
        reorder: 0.05,
        corrupt: 0.001,
        reorder_places_max: 8,
    };
    assert_eq!(config, expected);
    assert_eq!(config.to_string().parse(), Ok(config));
    assert_eq!("".parse(), Ok(FaultConfig::default()));
    let error = |text: &str| text.parse::<FaultConfig>().unwrap_err();
    assert_eq!(error("loss"), FaultConfigError::NoValue("loss".into()));
    assert_eq!(error("loss=1%,"), FaultConfigError::NoValue("".into()));
    assert_eq!(error("los=1%"), FaultConfigError::UnknownName("los".into()));
    assert_eq!(error("dup=0,dup=1"), FaultConfigError::Repeated("dup".into()));
    for text in ["loss=", "loss=much", "loss=%", "reorder_places_max=1%"] {
        assert!(matches!(error(text), FaultConfigError::NotANumber { .. }), "{text}");
    }
    for text in ["loss=101%", "dup=-0.1", "corrupt=nan", "loss=inf", "reorder_places_max=0"] {
        assert!(matches!(error(text), FaultConfigError::OutOfRange { .. }), "{text}");
    }
    assert_eq!(error("loss=2").to_string(), "fault loss: 2 is not between 0 and 1 (0% and 100%)");
}
