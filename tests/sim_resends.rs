//! What is sent again, and what must not be.

use tickwire::ports::sim::{LinkModel, SimNet, SimPort, SimPortConfig};
use tickwire::ports::{
    Channel, Completion, InsertResult, Insertion, Port, PortCaps, PortError, PortPeer, RawAddress,
    SendOp,
};
use tickwire::simulation::{Cluster, ClusterConfig};
use tickwire::time::{MICROS, MILLIS, Nanos};
use tickwire::{Config, Context, Engine, Event, JobKey, Rank, Tag};

fn link() -> LinkModel {
    LinkModel { latency_ns: 20 * MICROS, bytes_per_s: 1_000_000_000, ..LinkModel::default() }
}

/// A receiver that pauses for longer than the timeout costs the probes that the timer sends,
/// not the flight behind them: what was in flight had arrived.
#[test]
fn a_pause_of_the_receiver_costs_its_probes_only() {
    // It takes in little at a time, so that its first acks cover a part of what waits.
    let tweak = |config: &mut Config| config.completions_per_tick_max = 16;
    let config = ClusterConfig { model: link(), tweak, ..ClusterConfig::default() };
    let mut cluster = Cluster::new(&config);
    for round in 0..20 {
        for _ in 0..400 {
            while cluster.send(0, 1, 1000, false).is_err() {
                cluster.run_for(10 * MICROS, MICROS).unwrap();
            }
        }
        cluster.pause(1, true);
        cluster.run_for((2 + round % 3) * MILLIS, 20 * MICROS).unwrap();
        for _ in 0..20 {
            cluster.pause(1, false);
            cluster.tick(1).unwrap();
            cluster.pause(1, true);
            cluster.run_for(60 * MICROS, 5 * MICROS).unwrap();
        }
        cluster.pause(1, false);
        cluster.drain(500 * MILLIS, 10 * MICROS).unwrap_or_else(|failure| panic!("{failure}"));
    }
    let counters = cluster.engine(0).counters();
    assert!(counters.segments_timed_out > 0, "the pauses were too short to show anything");
    assert_eq!(counters.segments_resent, counters.segments_timed_out, "{counters:?}");
}

/// A round trip that never varies leaves no margin of its own; the delay of acks still needs one.
#[test]
fn a_steady_round_trip_times_nothing_out() {
    for latency_ns in [20 * MICROS, 500 * MICROS, 5 * MILLIS] {
        let model = LinkModel { latency_ns, ..LinkModel::default() };
        let mut cluster = Cluster::new(&ClusterConfig { model, ..ClusterConfig::default() });
        for _ in 0..300 {
            cluster.send(0, 1, 8, false).unwrap();
            cluster.drain(500 * MILLIS, 10 * MICROS).unwrap_or_else(|failure| panic!("{failure}"));
        }
        let resent = cluster.engine(0).counters().segments_resent;
        // Beyond the first guess of 5 ms, a few until there is a first sample.
        let max = if latency_ns < 2 * MILLIS { 0 } else { 3 };
        assert!(resent <= max, "{resent} resends at a latency of {latency_ns} ns");
    }
}

/// Acks are lost until a resend calls for another one: how long that took is no round trip.
#[test]
fn the_wait_for_a_lost_ack_is_no_round_trip() {
    let mut cluster = Cluster::new(&ClusterConfig { model: link(), ..ClusterConfig::default() });
    for round in 0..50 {
        let ends = [1, 0].map(|at| cluster.engine(at).port().node());
        cluster.net().partition(ends[0], ends[1], true);
        for _ in 0..5 {
            cluster.send(0, 1, 100, false).unwrap();
        }
        cluster.run_for(300 * MICROS, 5 * MICROS).unwrap();
        cluster.net().partition(ends[0], ends[1], false);
        cluster.drain(500 * MILLIS, 5 * MICROS).unwrap_or_else(|failure| panic!("{failure}"));
        // A message that suffers nothing.
        cluster.send(0, 1, 100, false).unwrap();
        cluster.drain(500 * MILLIS, 5 * MICROS).unwrap_or_else(|failure| panic!("{failure}"));
        let engine = cluster.engine(0);
        let peer = engine.peer(Rank(1)).unwrap();
        let srtt_ns = engine.srtt_ns(peer).unwrap();
        assert!(srtt_ns < 60 * MICROS, "round {round}: {srtt_ns} ns on a way of 40 us");
    }
    assert!(cluster.engine(0).counters().segments_timed_out >= 40);
}

/// A port that takes only some of what it is given.
struct Stingy {
    inner: SimPort,
    calls: u32,
    taken: u64,
}

impl Port for Stingy {
    fn caps(&self) -> &PortCaps {
        self.inner.caps()
    }
    fn now(&self) -> Nanos {
        self.inner.now()
    }
    fn local_address(&self, channel: Channel) -> RawAddress {
        self.inner.local_address(channel)
    }
    fn attach(&mut self, arena: &tickwire_tables::arena::DatagramArena) -> Result<(), PortError> {
        self.inner.attach(arena)
    }
    fn insert(
        &mut self,
        channel: Channel,
        address: &RawAddress,
        context: u64,
    ) -> Result<Insertion, PortError> {
        self.inner.insert(channel, address, context)
    }
    fn reap_inserts(&mut self, out: &mut arrayvec::ArrayVec<InsertResult, 64>) {
        self.inner.reap_inserts(out);
    }
    fn remove(&mut self, channel: Channel, peer: PortPeer) {
        self.inner.remove(channel, peer);
    }
    fn post_recvs(&mut self, channel: Channel, slots: &[u32]) -> usize {
        self.inner.post_recvs(channel, slots)
    }
    fn post_sends(&mut self, channel: Channel, ops: &[SendOp]) -> usize {
        self.calls = self.calls.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let dice = (self.calls >> 24) as usize;
        // All of them half of the time, else any number from none on.
        let some = if dice & 1 == 0 { ops.len() } else { ops.len() * dice / 256 };
        let taken = self.inner.post_sends(channel, &ops[..some]);
        if channel == Channel::Data {
            self.taken += taken as u64;
        }
        taken
    }
    fn poll(&mut self, channel: Channel, out: &mut [Completion]) -> usize {
        self.inner.poll(channel, out)
    }
    fn wait(&mut self, timeout_ns: Nanos) {
        self.inner.wait(timeout_ns);
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
}

/// What the port refuses is sent later; the books agree with the port's, and a refused resend
/// never passes for a first transmission whose round trip is known (Karn's rule).
#[test]
fn a_port_that_refuses_sends_costs_only_time() {
    for sends_complete_at_post in [true, false] {
        let net = SimNet::new(5, LinkModel { loss: 0.1, ..link() });
        let mut engines = [0, 1].map(|rank| {
            let config = SimPortConfig { sends_complete_at_post, ..SimPortConfig::default() };
            let port = Stingy { inner: net.port(config), calls: rank, taken: 0 };
            Engine::new(Config::new(Rank(rank), JobKey(1)), port).unwrap()
        });
        let addresses = engines.each_ref().map(|engine| engine.local_address());
        let peers = [0, 1].map(|at: usize| engines[at].add_peer(&addresses[1 - at]).unwrap());
        let (mut sent, mut got) = (0, 0u32);
        while got < 3000 || !engines[0].is_drained(peers[0]) {
            for _ in 0..16 {
                let bytes = vec![sent as u8; 100 + sent as usize % 5000];
                let fits = sent < 3000;
                sent +=
                    u32::from(fits && engines[0].send_copy(peers[0], Tag(sent), &bytes).is_ok());
            }
            for (at, engine) in engines.iter_mut().enumerate() {
                engine.tick(&mut |_: &mut Context<_>, event: Event<'_>| {
                    if let Event::Received(message) = event {
                        assert_eq!((at, message.tag), (1, Tag(got)));
                        assert!(message.bytes().iter().all(|&b| b == got as u8));
                        got += 1;
                    }
                });
                engine.check_invariants().unwrap();
            }
            if let Some(srtt_ns) = engines[0].srtt_ns(peers[0]) {
                assert!(srtt_ns >= 35 * MICROS, "{srtt_ns} ns on a way of 40 us and more");
            }
            net.advance(2 * MICROS);
            assert!(net.now() < 300 * MILLIS, "stuck at {got}: {:?}", engines[0].counters());
        }
        assert_eq!(engines[0].counters().segments_sent, engines[0].port().taken);
    }
}
