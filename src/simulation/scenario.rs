//! A scenario drawn from a seed: which faults are on, what is sent, what happens when.

use super::cluster::{Cluster, ClusterConfig, Failure};
use super::ops::{Op, apply};
use crate::ports::sim::{BurstLoss, LinkModel, SimPortConfig};
use crate::time::{MICROS, Nanos, SECONDS};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// Everything that a seed decides.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The engines and their network.
    pub cluster: ClusterConfig,
    /// What happens, in order.
    pub ops: Vec<Op>,
}

struct Dice(ChaCha8Rng);

impl Dice {
    fn below(&mut self, n: u32) -> u32 {
        self.0.next_u32() % n.max(1)
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize]
    }
}

impl Scenario {
    /// Draws a scenario. The same seed gives the same one.
    pub fn draw(seed: u64) -> Self {
        let mut dice = Dice(ChaCha8Rng::seed_from_u64(seed));
        let model = draw_model(&mut dice);
        let port = SimPortConfig {
            datagram_bytes_max: dice.pick(&[256, 1472, 4096]),
            prefix_bytes: dice.pick(&[0, 0, 64]),
            send_depth: dice.pick(&[4, 64, 1024]) as usize,
            recv_depth: dice.pick(&[16, 1024]) as usize,
            gathers: dice.one_in(2),
            sends_complete_at_post: dice.one_in(2),
            async_insert: dice.one_in(2),
            ..SimPortConfig::default()
        };
        let tweaks: [fn(&mut crate::Config); 4] = [
            |_| {},
            |c| c.window_segments = 64,
            |c| {
                c.send_slots = 8;
                c.ack_slots = 2;
            },
            |c| {
                c.active_peers_max = 1;
                c.fragments_max = 8;
            },
        ];
        let mut cluster = ClusterConfig {
            nodes: 2 + dice.below(4),
            seed: seed ^ 0x5EED,
            checksum: model.corrupt > 0.0 || dice.one_in(4),
            authenticate: false,
            model,
            port,
            first_seq: dice.pick(&[0, 1, u32::MAX, u32::MAX - 10, 0x7FFF_FFFF, 255]),
            ordered: !dice.one_in(3),
            tweak: dice.pick(&tweaks),
        };
        let hostile = dice.one_in(3);
        let ops = (0..40 + dice.below(160)).map(|_| draw_op(&mut dice, hostile)).collect();
        // Last, so that it changes nothing else that a seed stands for.
        if hostile && dice.one_in(3) {
            (cluster.authenticate, cluster.checksum) = (true, false);
        }
        Self { cluster, ops }
    }
}

fn draw_model(dice: &mut Dice) -> LinkModel {
    let mut model = LinkModel {
        latency_ns: dice.pick(&[0, 1, 20, 500]) * MICROS,
        jitter_ns: dice.pick(&[0, 0, 5]) * MICROS,
        bytes_per_s: dice.pick(&[0, 0, 100_000_000, 1_000_000_000]),
        ..LinkModel::default()
    };
    if dice.one_in(2) {
        model.loss = dice.pick(&[0.01, 0.1, 0.3]);
    }
    if dice.one_in(4) {
        model.burst = BurstLoss { p_enter: 0.02, p_leave: 0.2, loss_in_burst: 0.8 };
    }
    if dice.one_in(3) {
        model.dup = dice.pick(&[0.01, 0.2]);
    }
    if dice.one_in(3) {
        model.reorder = dice.pick(&[0.05, 0.5]);
        model.reorder_places_max = 16;
        model.reorder_delay_ns = 100 * MICROS;
    }
    if dice.one_in(4) {
        model.corrupt = 0.05;
    }
    if dice.one_in(5) {
        model.delay_spike = 0.01;
        model.delay_spike_ns = 5_000 * MICROS;
    }
    if dice.one_in(5) {
        model.queue_datagrams = 8;
        model.bytes_per_s = 1_000_000_000;
    }
    model
}

fn draw_op(dice: &mut Dice, hostile: bool) -> Op {
    let (a, b) = (dice.below(8) as u8, dice.below(8) as u8);
    if hostile && dice.one_in(8) {
        let [kind, bytes @ ..] = dice.0.next_u32().to_le_bytes();
        return Op::hostile(kind, bytes);
    }
    match dice.below(20) {
        0..=8 => Op::Send {
            from: a,
            to: b,
            len_bytes: match dice.below(8) {
                0 => 0,
                1..=4 => dice.below(200),
                5 | 6 => dice.below(20_000),
                _ => dice.below(300_000),
            },
            owned: dice.one_in(2),
        },
        9..=11 => Op::Tick(a),
        12..=14 => Op::Run(dice.below(2_000_000)),
        15 => Op::Advance(dice.below(3_000_000)),
        16 => Op::Cut(a, b, !dice.one_in(2)),
        17 => Op::Pause(a, dice.one_in(2)),
        _ => {
            let len = dice.below(80) as usize;
            let mut bytes = vec![0; len];
            dice.0.fill_bytes(&mut bytes);
            Op::Inject { to: a, priority: dice.one_in(2), bytes }
        }
    }
}

/// What playing a scenario came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Played {
    /// Messages delivered.
    pub messages: u64,
    /// Virtual time that passed.
    pub virtual_ns: Nanos,
}

/// Plays the scenario of a seed. Returns the number of messages delivered.
pub fn run_seed(seed: u64) -> Result<u64, Failure> {
    play_seed(seed).map(|played| played.messages)
}

/// [`run_seed`], with more to tell.
pub fn play_seed(seed: u64) -> Result<Played, Failure> {
    let scenario = Scenario::draw(seed);
    play_timed(&scenario.cluster, &scenario.ops)
}

/// Plays operations: safety while the faults last, then the faults stop and all must drain.
/// Returns the number of messages delivered.
pub fn play(config: &ClusterConfig, ops: &[Op]) -> Result<u64, Failure> {
    play_timed(config, ops).map(|played| played.messages)
}

fn play_timed(config: &ClusterConfig, ops: &[Op]) -> Result<Played, Failure> {
    let mut cluster = Cluster::new(config);
    // Only then: a network that is watched takes no short ways.
    if ops.iter().any(Op::is_hostile) {
        cluster.record();
    }
    for op in ops {
        apply(&mut cluster, op)?;
    }
    cluster.calm(LinkModel {
        latency_ns: config.model.latency_ns,
        bytes_per_s: config.model.bytes_per_s,
        ..LinkModel::default()
    });
    cluster.drain(60 * SECONDS, 50 * MICROS)?;
    let messages = (0..cluster.len()).map(|at| cluster.received(at)).sum();
    Ok(Played { messages, virtual_ns: cluster.net().now() })
}
