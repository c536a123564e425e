//! Two engines in one process over real sockets and libfabric on loopback.

mod common;

use tickwire::ports::faults::{FaultConfig, Faults};
use tickwire::ports::libfabric::{Libfabric, LibfabricConfig};
use tickwire::ports::udp::{Udp, UdpConfig};
use tickwire::ports::{Port, PortError};
use tickwire::simulation::payload;
use tickwire::{
    AuthKey, Config, Context, EndpointHandle, Engine, Event, JobKey, Rank, SendError, Tag,
};

struct Side<P: Port> {
    engine: Engine<P>,
    peer: EndpointHandle,
    source: u32,
    next: u64,
    lens: Vec<usize>,
    sent: usize,
}

fn pair<P: Port>(tweak: fn(&mut Config), open: impl Fn(u32) -> P) -> [Side<P>; 2] {
    let mut engines: Vec<_> = (0..2)
        .map(|rank| {
            let mut config = Config::new(Rank(rank), JobKey(42));
            tweak(&mut config);
            Engine::new(config, open(rank)).unwrap()
        })
        .collect();
    let addresses = [engines[0].local_address(), engines[1].local_address()];
    let (b, a) = (engines.pop().unwrap(), engines.pop().unwrap());
    let mut other = 2;
    [a, b].map(|mut engine| {
        other -= 1;
        let peer = engine.add_peer(&addresses[other]).unwrap();
        let source = 1 - other as u32;
        Side { engine, peer, source, next: 0, lens: Vec::new(), sent: 0 }
    })
}

/// Sends `lens` both ways at once and checks every byte.
fn exchange<P: Port>(sides: &mut [Side<P>; 2], lens: &[usize]) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    for side in sides.iter_mut() {
        side.lens = lens.to_vec();
    }
    loop {
        for side in sides.iter_mut() {
            while let Some(&len) = side.lens.get(side.sent) {
                let mut bytes = vec![0; len];
                payload::fill(&mut bytes, side.source, side.sent as u64);
                match side.engine.send_copy(side.peer, Tag(side.sent as u32), &bytes) {
                    Ok(()) => side.sent += 1,
                    Err(SendError::Again) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            let (from, next) = (1 - side.source, &mut side.next);
            side.engine.tick(&mut |_: &mut Context<P>, event: Event<'_>| {
                if let Event::Received(message) = event {
                    assert_eq!(u64::from(message.tag.0), *next);
                    assert_eq!(message.bytes().len(), lens[*next as usize]);
                    assert_eq!(payload::first_difference(message.bytes(), from, *next), None);
                    *next += 1;
                }
            });
            side.engine.check_invariants().unwrap();
        }
        let done =
            |side: &Side<P>| side.next == lens.len() as u64 && side.engine.is_drained(side.peer);
        if sides.iter().all(done) {
            return;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "stuck: {:?}",
            sides.each_ref().map(|side| (side.sent, side.next, side.engine.counters().rows()))
        );
    }
}

fn lens() -> Vec<usize> {
    (0..2000).map(|i| i % 700).chain([100_000, 1, 1 << 20, 65_507, 3_000_000, 9]).collect()
}

#[test]
fn udp_carries_all_sizes() {
    let mut sides = pair(|_| {}, |_| Udp::open(&UdpConfig::default()).unwrap());
    exchange(&mut sides, &lens());
}

#[test]
fn udp_with_faults_carries_all_sizes() {
    let faults: FaultConfig = "loss=5%,dup=1%,reorder=5%,corrupt=0.5%".parse().unwrap();
    let open = |rank| {
        let config = UdpConfig { datagram_bytes_max: Some(1472), ..UdpConfig::default() };
        Faults::new(Udp::open(&config).unwrap(), faults, u64::from(rank)).unwrap()
    };
    let mut sides = pair(|config| config.checksum = true, open);
    exchange(&mut sides, &lens());
    let counters = sides[0].engine.counters();
    assert!(counters.segments_resent > 0 && counters.drops_bad_checksum > 0);
}

#[test]
fn udp_with_tags_and_faults_carries_all_sizes() {
    let faults: FaultConfig = "loss=2%,dup=1%,reorder=5%,corrupt=0.5%".parse().unwrap();
    let open = |rank| {
        let config = UdpConfig { datagram_bytes_max: Some(1472), ..UdpConfig::default() };
        Faults::new(Udp::open(&config).unwrap(), faults, u64::from(rank)).unwrap()
    };
    let key = |config: &mut Config| config.authenticate = Some(AuthKey::from_bytes([3; 16]));
    let mut sides = pair(key, open);
    exchange(&mut sides, &lens());
    let counters = sides[0].engine.counters();
    assert!(counters.segments_resent > 0 && counters.drops_bad_tag > 0);
    assert_eq!(counters.drops_bad_checksum, 0);
}

fn libfabric(insert_at_once: bool) -> Option<Libfabric> {
    let provider = Some("udp".to_owned());
    match Libfabric::open(&LibfabricConfig { provider, insert_at_once, ..Default::default() }) {
        Ok(port) => Some(port),
        Err(error @ PortError::Missing { .. }) => {
            common::skip("libfabric tests", &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn libfabric_carries_all_sizes() {
    for insert_at_once in [false, true] {
        let Some(_) = libfabric(insert_at_once) else { return };
        let mut sides = pair(|_| {}, |_| libfabric(insert_at_once).unwrap());
        exchange(&mut sides, &lens());
    }
}

#[test]
fn libfabric_with_faults_carries_all_sizes() {
    let Some(_) = libfabric(false) else { return };
    let faults: FaultConfig = "loss=5%,dup=1%,reorder=5%,corrupt=0.5%".parse().unwrap();
    let open = |rank| Faults::new(libfabric(false).unwrap(), faults, u64::from(rank)).unwrap();
    let mut sides = pair(|config| config.checksum = true, open);
    exchange(&mut sides, &lens());
    assert!(sides[0].engine.counters().segments_resent > 0);
}

#[test]
fn libfabric_refuses_a_bad_address_alone() {
    let Some(port) = libfabric(false) else { return };
    let mut engine = Engine::new(Config::new(Rank(0), JobKey(42)), port).unwrap();
    let mut address = engine.local_address();
    address.rank = Rank(1);
    let good = engine.add_peer(&address).unwrap();
    address.rank = Rank(2);
    address.channels[1].0.pop();
    let bad = engine.add_peer(&address).unwrap();
    let (mut ready, mut unreachable) = (Vec::new(), Vec::new());
    engine.tick_until(
        &mut |_: &mut Context<_>, event: Event<'_>| match event {
            Event::PeerReady { peer } => ready.push(peer),
            Event::PeerUnreachable { peer, reason, .. } => {
                assert!(!reason.is_empty());
                unreachable.push(peer);
            }
            _ => {}
        },
        200_000_000,
        |_| false,
    );
    assert_eq!((ready, unreachable), (vec![good], vec![bad]));
    assert_eq!(engine.send_copy(bad, Tag(0), b"x"), Err(SendError::Closed));
}

/// A process sends to a peer that it has just added and goes to wait for something else, as a child
/// of `MPI_Comm_spawn` does: what it sent arrives although it does not tick.
#[test]
fn what_is_sent_right_after_adding_leaves_without_a_tick() {
    let [mut a, mut b] = pair(|_| (), |_| Udp::open(&UdpConfig::default()).unwrap());
    b.engine.tick(&mut |_: &mut Context<Udp>, _: Event<'_>| {});
    a.engine.send_parts_at_once(a.peer, Tag(3), &[b"before ", b"any tick"]).unwrap();

    let mut got = Vec::new();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while got.is_empty() && std::time::Instant::now() < deadline {
        b.engine.tick(&mut |_: &mut Context<Udp>, event: Event<'_>| {
            if let Event::Received(message) = event {
                got.extend_from_slice(message.bytes());
            }
        });
    }
    assert_eq!(got, b"before any tick");

    let mut told = 0;
    a.engine.tick(&mut |_: &mut Context<Udp>, event: Event<'_>| {
        told += u32::from(matches!(event, Event::PeerReady { .. }));
    });
    assert_eq!(told, 1, "the handler hears of the peer, once");
}

/// What would wait in the engine is refused, as who sends may be about to stop ticking.
#[test]
fn a_message_that_would_not_leave_at_once_is_refused() {
    let [mut a, mut b] = pair(|_| (), |_| Udp::open(&UdpConfig::default()).unwrap());
    let text: [&[u8]; 2] = [b"until the window ", b"is full"];
    let mut sent = 0;
    loop {
        let before = a.engine.counters().segments_sent;
        match a.engine.send_parts_at_once(a.peer, Tag(3), &text) {
            Ok(()) => sent += 1,
            Err(error) => break assert_eq!(error, SendError::Again),
        }
        assert_eq!(a.engine.counters().segments_sent, before + 1, "it has left");
    }
    assert!(sent > 0);
    assert_eq!(a.engine.counters().messages_sent, sent, "nothing of the refused one stays");

    // Nor may it overtake what waits.
    a.engine.send_copy(a.peer, Tag(4), b"waits").unwrap();
    assert_eq!(a.engine.send_parts_at_once(a.peer, Tag(5), &text), Err(SendError::Again));
    let mut tags = Vec::new();
    while tags.last() != Some(&Tag(4)) {
        b.engine.tick(&mut |_: &mut Context<Udp>, event: Event<'_>| {
            if let Event::Received(message) = event {
                tags.push(message.tag);
            }
        });
        a.engine.tick(&mut |_: &mut Context<Udp>, _: Event<'_>| {});
    }
    assert_eq!(tags.len() as u64, sent + 1, "each once");
    a.engine.send_parts_at_once(a.peer, Tag(5), &text).unwrap();

    let long = vec![0; a.engine.small_bytes_max(a.peer).unwrap() + 1];
    let error = a.engine.send_parts_at_once(a.peer, Tag(3), &[&long]).unwrap_err();
    assert!(matches!(error, SendError::TooLarge { .. }), "{error}");
    a.engine.remove_peer(a.peer, &mut |_: &mut Context<Udp>, _: Event<'_>| {}).unwrap();
    assert_eq!(a.engine.send_parts_at_once(a.peer, Tag(3), &text), Err(SendError::NoPeer));
}
