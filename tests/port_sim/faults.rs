//! The faults wrapper over a simulated port.

use crate::host::{Host, SEND_SLOTS, assert_near, datagram, host, places_passed, stream};
use proptest::prelude::*;
use tickwire::ports::faults::{FaultConfig, FaultConfigError, Faults};
use tickwire::ports::sim::{LinkModel, SimNet, SimPort, SimPortConfig};
use tickwire::ports::{Channel, Port, PortPeer};

fn faulty(config: &str, recvs: u32) -> (SimNet, Host<SimPort>, Host<Faults<SimPort>>, PortPeer) {
    let net = SimNet::new(3, LinkModel::default());
    let config: FaultConfig = config.parse().unwrap();
    let (mut a, port) = (host(&net), net.port(SimPortConfig::default()));
    let b = Host::new(Faults::new(port, config, 5).unwrap(), recvs);
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
fn wrapper_hands_lost_slots_back_however_slowly_they_are_taken() {
    let net = SimNet::new(3, LinkModel::default());
    let config = SimPortConfig { batch_max: 2, socket_datagrams: 0, ..Default::default() };
    let all_lost = FaultConfig { loss: 1.0, ..Default::default() };
    let (mut a, port) = (host(&net), Faults::new(net.port(config), all_lost, 5).unwrap());
    let mut b = Host::new(port, 7);
    let peer = a.peer(Channel::Data, &b.port);
    for _ in 0..100 {
        (0..7).for_each(|number| a.send(Channel::Data, peer, &datagram(number)));
        for _ in 0..4 {
            assert!(b.poll(Channel::Data, true).is_empty());
        }
    }
    assert_eq!((b.port.fault_counters().lost, net.counters().no_receive_posted), (700, 0));
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

proptest! {
    #[test]
    fn wrapper_accounts_for_every_datagram(
        rates in (0.0..0.5f64, 0.0..0.5f64, 0.0..1.0f64),
        reorder_places_max in 1..20u32,
        recvs in 1..40u32,
        steps in proptest::collection::vec((1..20u32, 0..150_000u64, any::<bool>()), 1..60),
    ) {
        let (loss, dup, reorder) = rates;
        let config = FaultConfig { loss, dup, reorder, corrupt: 0.0, reorder_places_max };
        let (net, mut a, mut b, peer) = faulty(&config.to_string(), recvs);
        let (mut sent, mut got) = (0, Vec::new());
        for (count, ns, poll) in steps {
            for number in sent..sent + count {
                a.send(Channel::Data, peer, &datagram(number));
            }
            sent += count;
            net.advance(ns);
            if poll {
                got.extend(b.poll_numbers());
            }
        }
        // Each round brings at least one on: out of the queue, past the faults, or out of hold.
        for _ in 0..sent + 2 {
            net.advance(200_000);
            got.extend(b.poll_numbers());
        }
        prop_assert_eq!((net.in_flight(), b.port.next_release_at()), (0, None));
        prop_assert!(places_passed(&got) <= reorder_places_max as usize);
        let c = b.port.fault_counters();
        prop_assert_eq!(got.len() as u64, u64::from(sent) - c.lost + c.duplicated);
        got.sort_unstable();
        got.dedup();
        prop_assert_eq!(got.len() as u64, u64::from(sent) - c.lost);
    }
}
