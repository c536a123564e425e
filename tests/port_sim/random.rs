//! Random runs: nothing is unaccounted for, and the same seed gives the same run.

use crate::host::{Host, assert_conserved};
use proptest::prelude::*;
use tickwire::ports::sim::{BurstLoss, LinkModel, SimCounters, SimNet, SimPortConfig};
use tickwire::ports::{Channel, Port, PortPeer};
use tickwire::time::Nanos;

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
