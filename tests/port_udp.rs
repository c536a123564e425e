//! The UDP port over the real kernel, on the loopback interface only.

mod common;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use tickwire::ports::udp::{Udp, UdpConfig, interfaces};
use tickwire::ports::{
    Channel, Completion, CompletionKind, Gather, Insertion, Port, PortPeer, RawAddress, SendOp,
};
use tickwire_tables::arena::{ArenaPart, DatagramArena};

const SLOT_BYTES: usize = 65536;
const NOTHING: Completion = Completion { kind: CompletionKind::Sent, slot: 0, len_bytes: 0 };
const EMSGSIZE: i32 = 90;
const EDESTADDRREQ: i32 = 89;

/// Both loopback addresses that this host has.
fn loopbacks() -> Vec<IpAddr> {
    let mut found = vec!["127.0.0.1".parse().unwrap()];
    if UdpSocket::bind("[::1]:0").is_ok() {
        found.push("::1".parse().unwrap());
    } else {
        common::note("the UDP port over IPv6", "this host has no ::1, and no package brings it");
    }
    found
}

/// A port with an arena: the lower half of the slots is for receives, the upper for sends.
struct Rig {
    port: Udp,
    slots: ArenaPart,
    half: u32,
}

impl Rig {
    fn with(config: &UdpConfig, half: u32) -> Self {
        let mut port = Udp::open(config).unwrap();
        let arena = DatagramArena::new(2 * half as usize, SLOT_BYTES).unwrap();
        port.attach(&arena).unwrap();
        let (slots, _) = arena.split(2 * half);
        Self { port, slots, half }
    }

    fn new(ip: IpAddr) -> Self {
        let mut rig = Self::with(&UdpConfig { bind: Some(ip), ..UdpConfig::default() }, 128);
        for channel in Channel::ALL {
            let first = channel as u32 * 64;
            rig.post(channel, &(first..first + 64).collect::<Vec<_>>());
        }
        rig
    }

    fn post(&mut self, channel: Channel, slots: &[u32]) {
        slots.iter().for_each(|&slot| self.slots.lend(slot));
        assert_eq!(self.port.post_recvs(channel, slots), slots.len());
    }

    fn knows(&mut self, channel: Channel, address: &RawAddress) -> PortPeer {
        match self.port.insert(channel, address, 0).unwrap() {
            Insertion::Ready(peer) => peer,
            Insertion::Pending => panic!("insertions of this port are synchronous"),
        }
    }

    fn knows_rig(&mut self, channel: Channel, other: &Rig) -> PortPeer {
        self.knows(channel, &other.port.local_address(channel))
    }

    /// Fills a send slot and makes the operation that sends it.
    fn op(&mut self, index: u32, bytes: &[u8], peer: PortPeer) -> SendOp {
        let slot = self.half + index;
        self.slots.bytes_mut(slot)[..bytes.len()].copy_from_slice(bytes);
        SendOp { slot, len_bytes: bytes.len() as u32, peer, gather: None }
    }

    fn send(&mut self, channel: Channel, bytes: &[u8], peer: PortPeer) {
        let op = self.op(0, bytes, peer);
        assert_eq!(self.port.post_sends(channel, &[op]), 1);
    }

    /// One poll; what came, with the receive slots posted again.
    fn poll(&mut self, channel: Channel) -> Vec<(CompletionKind, Vec<u8>)> {
        let mut out = [NOTHING; 64];
        let got = self.port.poll(channel, &mut out);
        out[..got]
            .iter()
            .map(|completion| {
                if matches!(completion.kind, CompletionKind::SendFailed(_)) {
                    assert!(completion.slot >= self.half);
                    return (completion.kind, Vec::new());
                }
                self.slots.give_back(completion.slot);
                let bytes = &self.slots.bytes(completion.slot)[..completion.len_bytes as usize];
                let bytes = bytes.to_vec();
                self.post(channel, &[completion.slot]);
                (completion.kind, bytes)
            })
            .collect()
    }

    /// Polls until `count` completions came.
    fn collect(&mut self, channel: Channel, count: usize) -> Vec<(CompletionKind, Vec<u8>)> {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut all = Vec::new();
        while all.len() < count {
            assert!(Instant::now() < deadline, "{} of {count} came", all.len());
            self.port.wait(1_000_000);
            all.extend(self.poll(channel));
        }
        all
    }
}

fn received(bytes: &[u8]) -> (CompletionKind, Vec<u8>) {
    (CompletionKind::Received, bytes.to_vec())
}

#[test]
fn both_channels_carry_datagrams_both_ways_and_apart() {
    for ip in loopbacks() {
        let (mut a, mut b) = (Rig::new(ip), Rig::new(ip));
        for channel in Channel::ALL {
            let (to_b, to_a) = (a.knows_rig(channel, &b), b.knows_rig(channel, &a));
            a.send(channel, &[1, channel as u8], to_b);
            b.send(channel, &[2, channel as u8], to_a);
        }
        for channel in Channel::ALL {
            assert_eq!(b.collect(channel, 1), [received(&[1, channel as u8])]);
            assert_eq!(a.collect(channel, 1), [received(&[2, channel as u8])]);
            assert!(a.poll(channel).is_empty() && b.poll(channel).is_empty());
        }
    }
}

/// Content of the datagram number `sequence`: its number, then bytes that follow from it.
fn content(sequence: u32, bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.extend_from_slice(&sequence.to_le_bytes());
    let len = (sequence.wrapping_mul(2_654_435_761) >> 21) as usize;
    bytes.extend((0..len).map(|at| (sequence as usize * 31 + at * 7) as u8));
}

#[test]
fn a_hundred_thousand_datagrams_arrive_intact_while_they_fit_the_backlog() {
    const COUNT: u32 = 100_000;
    for ip in loopbacks() {
        let (mut a, mut b) = (Rig::new(ip), Rig::new(ip));
        let to_b = a.knows_rig(Channel::Data, &b);
        let window = b.port.caps().recv_backlog_datagrams.min(64) as u32;
        let (mut sent, mut arrived) = (0, 0);
        let (mut expected, mut bytes) = (Vec::new(), Vec::new());
        let deadline = Instant::now() + Duration::from_secs(60);
        while arrived < COUNT {
            assert!(Instant::now() < deadline, "{arrived} of {COUNT} arrived");
            let room = (window - (sent - arrived)).min(COUNT - sent);
            let mut ops = Vec::new();
            for index in 0..room {
                content(sent + index, &mut bytes);
                ops.push(a.op(index, &bytes, to_b));
            }
            sent += a.port.post_sends(Channel::Data, &ops) as u32;
            for (kind, bytes) in b.poll(Channel::Data) {
                content(arrived, &mut expected);
                assert_eq!((kind, &bytes), (CompletionKind::Received, &expected));
                arrived += 1;
            }
        }
    }
}

#[test]
fn gathered_payload_follows_the_header_from_the_slot() {
    for ip in loopbacks() {
        let (mut a, mut b) = (Rig::new(ip), Rig::new(ip));
        let to_b = a.knows_rig(Channel::Data, &b);
        let payload: Vec<u8> = (0..9000u32).map(|at| (at % 251) as u8).collect();
        let payload: &'static [u8] = payload.leak();
        // Alone and in a batch: these go through different system calls.
        for count in [1usize, 5] {
            let ops: Vec<_> = (0..count)
                .map(|index| {
                    let mut op = a.op(index as u32, &[index as u8; 24], to_b);
                    let part = &payload[index * 100..];
                    op.gather = Some(Gather::of_static(part));
                    op
                })
                .collect();
            assert_eq!(a.port.post_sends(Channel::Data, &ops), count);
            for (index, (kind, bytes)) in b.collect(Channel::Data, count).iter().enumerate() {
                assert_eq!(*kind, CompletionKind::Received);
                assert_eq!(bytes[..24], [index as u8; 24]);
                assert_eq!(bytes[24..], payload[index * 100..]);
            }
        }
    }
}

#[test]
fn the_largest_datagram_passes_and_one_byte_more_is_refused() {
    for ip in loopbacks() {
        let (mut a, mut b) = (Rig::new(ip), Rig::new(ip));
        let to_b = a.knows_rig(Channel::Data, &b);
        let max = a.port.caps().datagram_bytes_max;
        let bytes: Vec<u8> = (0..=max).map(|at| (at % 253) as u8).collect();
        let ops = [
            a.op(0, &bytes[..max], to_b),
            a.op(1, &bytes, to_b),
            a.op(2, b"behind it", to_b),
            a.op(3, b"to nobody", PortPeer::NONE),
            a.op(4, b"at the end", to_b),
        ];
        assert_eq!(a.port.post_sends(Channel::Data, &ops), ops.len());
        let arrived = b.collect(Channel::Data, 3);
        assert_eq!(arrived[0], received(&bytes[..max]));
        assert_eq!(arrived[1], received(b"behind it"));
        assert_eq!(arrived[2], received(b"at the end"));
        let mut out = [NOTHING; 8];
        assert_eq!(a.port.poll(Channel::Data, &mut out), 2);
        let failures = out[..2].iter().map(|failure| (failure.slot - a.half, failure.kind));
        assert_eq!(
            failures.collect::<Vec<_>>(),
            [
                (1, CompletionKind::SendFailed(EMSGSIZE)),
                (3, CompletionKind::SendFailed(EDESTADDRREQ))
            ]
        );
    }
}

#[test]
fn failures_beyond_the_queue_are_not_taken_until_somebody_polls() {
    let config = UdpConfig { send_depth: 2, ..UdpConfig::default() };
    let mut a = Rig::with(&config, 8);
    let ops: Vec<_> = (0..5).map(|index| a.op(index, b"x", PortPeer::NONE)).collect();
    assert_eq!(a.port.post_sends(Channel::Data, &ops), 2);
    assert_eq!(a.port.post_sends(Channel::Data, &ops[2..]), 0);
    let mut out = [NOTHING; 1];
    assert_eq!(a.port.poll(Channel::Data, &mut out), 1);
    assert_eq!(out[0].slot, ops[0].slot);
    assert_eq!(a.port.post_sends(Channel::Data, &ops[2..]), 1);
    let mut out = [NOTHING; 8];
    assert_eq!(a.port.poll(Channel::Data, &mut out), 2);
    assert_eq!((out[0].slot, out[1].slot), (ops[1].slot, ops[2].slot));
}

#[test]
fn strangers_bytes_are_delivered_as_they_are_and_oversized_ones_fail() {
    for ip in loopbacks() {
        let config =
            UdpConfig { bind: Some(ip), datagram_bytes_max: Some(512), ..UdpConfig::default() };
        let mut b = Rig::with(&config, 16);
        b.post(Channel::Data, &(0..16).collect::<Vec<_>>());
        let stranger = UdpSocket::bind((ip, 0)).unwrap();
        let to = b.port.socket_address(Channel::Data);
        // Twice: the first finds the port receiving singly, the second in batches.
        for _ in 0..2 {
            let garbage: Vec<u8> = (0..512).map(|at| (at * 37 % 256) as u8).collect();
            for bytes in [&[][..], &garbage, &[7; 513], b"", &[9; 4000], b"end"] {
                assert_eq!(stranger.send_to(bytes, to).unwrap(), bytes.len());
            }
            let cut = (CompletionKind::ReceiveFailed(EMSGSIZE), Vec::new());
            let expected = [
                received(b""),
                received(&garbage),
                cut.clone(),
                received(b""),
                cut,
                received(b"end"),
            ];
            assert_eq!(b.collect(Channel::Data, 6), expected);
        }
    }
}

#[test]
fn many_senders_reach_one_port() {
    const SENDERS: u32 = 40;
    let ip: IpAddr = "127.0.0.1".parse().unwrap();
    let mut b = Rig::new(ip);
    let config = UdpConfig { socket_buffer_bytes: 1 << 16, ..UdpConfig::default() };
    let mut senders: Vec<_> = (0..SENDERS).map(|_| Rig::with(&config, 2)).collect();
    let mut seen = BTreeSet::new();
    for round in 0..50u32 {
        for (rank, sender) in senders.iter_mut().enumerate() {
            let to_b = sender.knows_rig(Channel::Data, &b);
            let mut bytes = (rank as u32).to_le_bytes().to_vec();
            bytes.extend(round.to_le_bytes());
            sender.send(Channel::Data, &bytes, to_b);
            sender.port.remove(Channel::Data, to_b);
        }
        for (kind, bytes) in b.collect(Channel::Data, SENDERS as usize) {
            assert_eq!(kind, CompletionKind::Received);
            assert!(seen.insert(bytes), "no datagram comes twice");
        }
    }
    assert_eq!(seen.len(), 50 * SENDERS as usize);
}

#[test]
fn a_closed_destination_disturbs_nobody_else() {
    for ip in loopbacks() {
        let (mut a, mut b) = (Rig::new(ip), Rig::new(ip));
        let closed = UdpSocket::bind((ip, 0)).unwrap().local_addr().unwrap();
        let to_closed = a.knows(Channel::Data, &Udp::encode_address(closed));
        let to_b = a.knows_rig(Channel::Data, &b);
        for round in 0..100u8 {
            let ops = [
                a.op(0, b"lost", to_closed),
                a.op(1, &[round, 1], to_b),
                a.op(2, b"lost", to_closed),
                a.op(3, &[round, 2], to_b),
            ];
            assert_eq!(a.port.post_sends(Channel::Data, &ops), 4);
            a.send(Channel::Data, b"lost", to_closed);
            a.send(Channel::Data, &[round, 3], to_b);
            let expected = [1, 2, 3].map(|which| received(&[round, which]));
            assert_eq!(b.collect(Channel::Data, 3), expected);
            assert!(a.poll(Channel::Data).is_empty(), "nobody is blamed");
        }
    }
}

/// Counts what is there without reading it for real: everything that a poll returns.
fn drain(rig: &mut Rig, at_most: usize) -> usize {
    let mut drained = 0;
    let mut out = [NOTHING; 16];
    while drained < at_most {
        let room = out.len().min(at_most - drained);
        let got = rig.port.poll(Channel::Data, &mut out[..room]);
        if got == 0 {
            break;
        }
        let slots: Vec<_> = out[..got].iter().map(|completion| completion.slot).collect();
        assert_eq!(rig.port.post_recvs(Channel::Data, &slots), got);
        drained += got;
    }
    drained
}

#[test]
fn the_backlog_that_a_port_claims_really_fits() {
    for (size, buffer_bytes) in
        [(256, 1 << 18), (1472, 1 << 20), (8972, 4 << 20), (15900, 4 << 20), (16000, 4 << 20)]
            .into_iter()
            .chain([(40000, 4 << 20), (65507, 1 << 20), (65507, 4 << 20)])
    {
        let config = UdpConfig {
            datagram_bytes_max: Some(size),
            socket_buffer_bytes: buffer_bytes,
            ..UdpConfig::default()
        };
        let mut b = Rig::with(&config, 32);
        b.post(Channel::Data, &(0..32).collect::<Vec<_>>());
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = b.port.socket_address(Channel::Data);
        let claim = b.port.caps().recv_backlog_datagrams;
        let bytes = vec![5u8; size];
        let send = |count: usize| {
            (0..count).for_each(|_| assert_eq!(stranger.send_to(&bytes, to).unwrap(), size));
        };
        // The whole claim at once, then topped up again and again while the queue never empties:
        // the kernel gives back late what was read.
        send(claim);
        let part = claim.div_ceil(7).min(claim - 1).max(1);
        for _ in 0..50 {
            assert_eq!(drain(&mut b, part), part, "size {size}, claim {claim}");
            send(part);
        }
        assert_eq!(drain(&mut b, usize::MAX), claim, "size {size}, buffer {buffer_bytes}");
        // The claim is not absurdly small either: four times as much does not fit.
        send(4 * claim);
        let fitted = drain(&mut b, usize::MAX);
        assert!(fitted < 4 * claim, "size {size}: all of {} fit", 4 * claim);
        eprintln!("size {size} buffer {buffer_bytes}: claims {claim}, held {fitted}");
    }
}

#[test]
fn ungranted_buffers_are_warned_of_with_both_numbers() {
    let port = Udp::open(&UdpConfig { socket_buffer_bytes: 1 << 31, ..UdpConfig::default() });
    let warnings = port.unwrap().warnings().join("\n");
    assert!(warnings.contains("receive buffer of 2147483648 bytes, the kernel grants "));
    assert!(warnings.contains("net.core.rmem_max") && warnings.contains("net.core.wmem_max"));
    let modest = UdpConfig { socket_buffer_bytes: 1 << 16, ..UdpConfig::default() };
    assert_eq!(Udp::open(&modest).unwrap().warnings(), [""; 0]);
}

#[test]
fn unusable_settings_are_refused_with_the_reason() {
    let text = |config: UdpConfig| Udp::open(&config).err().expect("refused").to_string();
    let base = UdpConfig::default;
    let bind = |ip: &str| UdpConfig { bind: Some(ip.parse().unwrap()), ..base() };
    assert!(text(bind("0.0.0.0")).contains("one interface"));
    assert!(text(bind("198.51.100.77")).contains("no interface of this host"));
    let small = UdpConfig { datagram_bytes_max: Some(100), ..base() };
    assert!(text(small).contains("at least 256"));
    let large = UdpConfig { datagram_bytes_max: Some(65508), ..base() };
    assert!(text(large).contains("carries at most 65507"));
    let holder = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port();
    let taken = text(UdpConfig { ports: (port, 0), ..base() });
    assert!(taken.contains("bind failed") && taken.contains(&port.to_string()), "{taken}");
}

#[test]
fn peers_that_cannot_be_reached_are_refused_with_the_reason() {
    let mut a = Udp::open(&UdpConfig::default()).unwrap();
    let mut text = |peer: &str| {
        let address = Udp::encode_address(peer.parse::<SocketAddr>().unwrap());
        a.insert(Channel::Data, &address, 0).unwrap_err().to_string()
    };
    assert!(text("[::1]:9").contains("another address family"));
    assert!(text("127.0.0.1:0").contains("port 0"));
    assert!(text("0.0.0.0:9").contains("unspecified"));
    assert!(text("198.51.100.77:9").contains("reaches this host alone"));
    assert!(a.insert(Channel::Data, &RawAddress::default(), 0).is_err());
}

#[test]
fn waiting_ends_when_something_arrives_and_otherwise_on_time() {
    let mut b = Rig::new("127.0.0.1".parse().unwrap());
    let start = Instant::now();
    b.port.wait(20_000_000);
    assert!(start.elapsed() >= Duration::from_millis(19));
    for channel in Channel::ALL {
        let to = b.port.socket_address(channel);
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"wake", to).unwrap();
        });
        let start = Instant::now();
        b.port.wait(30_000_000_000);
        assert!(start.elapsed() < Duration::from_secs(10));
        assert_eq!(b.poll(channel), [received(b"wake")]);
        thread.join().unwrap();
    }
    let before = b.port.now();
    std::thread::sleep(Duration::from_millis(5));
    assert!(b.port.now() - before >= 5_000_000);
}

#[test]
fn receives_beyond_the_depth_are_not_taken() {
    let mut b = Rig::with(&UdpConfig { recv_depth: 5, ..UdpConfig::default() }, 8);
    assert_eq!(b.port.post_recvs(Channel::Data, &[0, 1, 2]), 3);
    assert_eq!(b.port.post_recvs(Channel::Data, &[3, 4, 5, 6]), 2);
    assert_eq!(b.port.post_recvs(Channel::Data, &[5]), 0);
    assert_eq!(b.port.post_recvs(Channel::Priority, &[5]), 1);
}

#[test]
fn the_loopback_interface_is_listed_and_described() {
    let all = interfaces().unwrap();
    let loopback = all.iter().find(|one| one.address == IpAddr::from([127, 0, 0, 1])).unwrap();
    assert!(loopback.up && loopback.loopback);
    let port = Udp::open(&UdpConfig::default()).unwrap();
    let text = port.describe();
    assert!(text.contains(&loopback.name) && text.contains("127.0.0.1:"), "{text}");
    assert!(text.contains(&port.caps().datagram_bytes_max.to_string()), "{text}");
}
