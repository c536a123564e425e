//! Congestion control in simulation: shares of a link, many to one, lossy and long ways. Both
//! governors run; the numbers are printed (`--nocapture`), the bars of the design are asserted.

use tickwire::ports::sim::{LinkModel, SimNet, SimPort, SimPortConfig};
use tickwire::time::{MICROS, Nanos, SECONDS};
use tickwire::{
    Config, Congestion, Context, EndpointHandle, Engine, Event, JobKey, Rank, Tag, Token,
};

const LINK: LinkModel = LinkModel {
    latency_ns: 5 * MICROS,
    jitter_ns: 0,
    bytes_per_s: 1_250_000_000,
    queue_datagrams: 128,
    loss: 0.0,
    burst: tickwire::ports::sim::BurstLoss { p_enter: 0.0, p_leave: 0.0, loss_in_burst: 0.0 },
    dup: 0.0,
    reorder: 0.0,
    reorder_places_max: 8,
    reorder_delay_ns: 100 * MICROS,
    corrupt: 0.0,
    delay_spike: 0.0,
    delay_spike_ns: 0,
};

/// `senders` engines that each send to the one with rank 0.
struct Many {
    net: SimNet,
    engines: Vec<Engine<SimPort>>,
    to_first: Vec<EndpointHandle>,
    congestion: Congestion,
}

#[derive(Debug)]
struct Outcome {
    /// Of what the receiver's link carries.
    goodput: f64,
    /// Of all segments.
    resent: f64,
    slowest_to_median: f64,
    #[allow(dead_code, reason = "printed")]
    srtt_us: f64,
}

impl Many {
    fn new(senders: usize, link: LinkModel, congestion: Congestion) -> Self {
        let net = SimNet::new(7, link);
        let mut engines: Vec<_> = (0..=senders as u32)
            .map(|rank| {
                let mut config = Config::new(Rank(rank), JobKey(7));
                config.first_seq = u32::MAX - 100;
                config.incarnation = tickwire::Incarnation(rank);
                config.peers_max = senders as u32 + 1;
                config.congestion = congestion;
                config.window_segments = 1024;
                config.send_slots = 4096;
                config.message_bytes_max = 64 << 20;
                let port = SimPortConfig { socket_datagrams: 16384, ..SimPortConfig::default() };
                Engine::new(config, net.port(port)).unwrap()
            })
            .collect();
        let first = engines[0].local_address();
        let others: Vec<_> = engines[1..].iter().map(|engine| engine.local_address()).collect();
        let to_first = engines[1..].iter_mut().map(|e| e.add_peer(&first).unwrap()).collect();
        for added in engines[0].add_peers(&others) {
            added.unwrap();
        }
        Self { net, engines, to_first, congestion }
    }

    /// All senders start one message at the same instant; when all have arrived the round is over.
    fn rounds(&mut self, rounds: usize, bytes: usize) -> Outcome {
        let senders = self.to_first.len();
        let (mut spent, mut worst) = (0, 1.0_f64);
        let before = self.counted();
        for _ in 0..rounds {
            let started = self.net.now();
            for (engine, &to) in self.engines[1..].iter_mut().zip(&self.to_first) {
                engine.send_from(to, Tag(0), vec![7; bytes], Token(0)).unwrap();
            }
            let mut done: Vec<Nanos> = Vec::new();
            while done.len() < senders {
                self.tick(&mut done, started);
            }
            let median = done[done.len() / 2];
            let slowest = *done.last().unwrap();
            worst = worst.max(slowest as f64 / median as f64);
            spent += slowest;
        }
        let after = self.counted();
        let (sent, resent) = (after.0 - before.0, after.1 - before.1);
        let link = LINK.bytes_per_s as f64 * spent as f64 / 1e9;
        let to = self.to_first[0];
        Outcome {
            goodput: (rounds * senders * bytes) as f64 / link,
            resent: resent as f64 / sent as f64,
            slowest_to_median: worst,
            srtt_us: self.engines[1].srtt_ns(to).unwrap_or(0) as f64 / 1e3,
        }
    }

    fn tick(&mut self, done: &mut Vec<Nanos>, started: Nanos) {
        let now = self.net.now();
        for engine in &mut self.engines {
            engine.tick(&mut |_: &mut Context<_>, event: Event<'_>| match event {
                Event::SendDone { .. } => done.push(now - started),
                Event::Received(message) => assert!(message.bytes().iter().all(|&b| b == 7)),
                Event::SendFailed { .. } | Event::PeerDead { .. } => panic!("{event:?}"),
                _ => {}
            });
        }
        self.net.advance(MICROS);
        assert!(now < 1000 * SECONDS, "stuck with {:?}", self.congestion);
    }

    fn counted(&self) -> (u64, u64) {
        let counters = self.engines.iter().map(|engine| engine.counters());
        counters.fold((0, 0), |(s, r), c| (s + c.segments_sent, r + c.segments_resent))
    }
}

const DELAY: Congestion = Congestion::Delay { target_ns: 50_000 };

fn compare(name: &str, senders: usize, link: LinkModel, rounds: usize, bytes: usize) -> Outcome {
    let [delay, fixed] = [DELAY, Congestion::Fixed]
        .map(|congestion| Many::new(senders, link, congestion).rounds(rounds, bytes));
    println!("{name}: delay {delay:?}\n{name}: fixed {fixed:?}");
    delay
}

#[test]
fn one_flow_fills_the_link() {
    let out = compare("one flow", 1, LINK, 4, 16 << 20);
    assert!(out.goodput > 0.9 && out.resent < 0.01, "{out:?}");
}

#[test]
fn thirty_two_flows_share_the_link() {
    let out = compare("32 flows", 32, LINK, 2, 1 << 20);
    assert!(out.goodput > 0.9 && out.resent < 0.05 && out.slowest_to_median < 3.0, "{out:?}");
}

/// Design, section 10. Rounds beyond the first start with what the ones before have learned.
#[test]
fn pc_71_a_hundred_to_one() {
    // The full 20 rounds in release; a debug build takes half a minute for two.
    let rounds = if cfg!(debug_assertions) { 2 } else { 20 };
    let out = compare("100 to one", 100, LINK, rounds, 1 << 20);
    assert!(out.goodput > 0.9 && out.resent < 0.05 && out.slowest_to_median < 3.0, "{out:?}");
}

#[test]
fn chance_loss_is_not_congestion() {
    let clean = compare("clean", 1, LINK, 2, 16 << 20);
    for (loss, keeps) in [(0.01, 0.8), (0.05, 0.5)] {
        let out = compare(&format!("{loss} loss"), 1, LinkModel { loss, ..LINK }, 2, 16 << 20);
        assert!(out.goodput > keeps * clean.goodput, "{loss}: {out:?} {clean:?}");
    }
}

#[test]
fn a_long_way_is_filled() {
    let far = LinkModel { latency_ns: 300 * MICROS, ..LINK };
    let out = compare("long way", 1, far, 2, 32 << 20);
    assert!(out.goodput > 0.8 && out.resent < 0.01, "{out:?}");
}
