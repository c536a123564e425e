//! What a simulated port does by the port contract.

use crate::host::{Host, SEND_SLOTS, assert_conserved, datagram, host, pair};
use arrayvec::ArrayVec;
use tickwire::ports::sim::{LinkModel, SimCounters, SimNet, SimPortConfig};
use tickwire::ports::{
    Channel, CompletionKind, InsertResult, Insertion, Port, PortError, PortPeer, RawAddress, SendOp,
};
use tickwire_tables::arena::DatagramArena;

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
    a.send(Channel::Data, result.unwrap(), b"hello");
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
#[should_panic(expected = "slots hold prefix and any datagram")]
fn slots_too_small_for_a_datagram_are_a_bug_of_the_caller() {
    let net = SimNet::new(1, LinkModel::default());
    let mut port = net.port(SimPortConfig { prefix_bytes: 40, ..Default::default() });
    let arena = DatagramArena::new(4, 1024).unwrap();
    let _ = port.attach(&arena);
}

#[test]
fn nodes_with_something_to_poll_are_told_once() {
    let (net, mut a, mut b, peer) = pair(LinkModel { latency_ns: 10, ..Default::default() });
    let touched = || {
        let mut nodes = Vec::new();
        net.take_touched(&mut nodes);
        nodes
    };
    assert_eq!(touched(), []);
    a.send(Channel::Data, peer, b"1");
    a.send(Channel::Data, peer, b"2");
    assert_eq!(touched(), [], "nothing has arrived");
    net.advance(10);
    assert_eq!((touched(), touched()), (vec![b.port.node()], vec![]));
    // Not polled, and nothing new: it was told.
    net.advance(10);
    assert_eq!(touched(), []);
    let mut one =
        [tickwire::ports::Completion { kind: CompletionKind::Sent, slot: 0, len_bytes: 0 }];
    assert_eq!(b.port.poll(Channel::Data, &mut one), 1);
    assert_eq!(touched(), [b.port.node()], "a full poll may have left some");
    net.announce_link(a.port.node(), tickwire::ports::LinkEvent::Down);
    assert_eq!(touched(), [a.port.node()]);
}

#[test]
fn late_send_completions_touch_their_sender() {
    let net = SimNet::new(1, LinkModel::default());
    let config = SimPortConfig {
        sends_complete_at_post: false,
        send_completion_delay_ns: 50,
        ..Default::default()
    };
    let (mut a, b) = (Host::new(net.port(config), 4), host(&net));
    let peer = a.peer(Channel::Data, &b.port);
    a.send(Channel::Data, peer, b"1");
    let mut touched = Vec::new();
    net.take_touched(&mut touched);
    assert_eq!(touched, [b.port.node()]);
    net.advance(49);
    net.take_touched(&mut touched);
    assert_eq!(touched.len(), 1, "not yet");
    net.advance(1);
    net.take_touched(&mut touched);
    assert_eq!(touched, [b.port.node(), a.port.node()]);
}
