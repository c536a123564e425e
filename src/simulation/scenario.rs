//! A scenario drawn from a seed: which faults are on, what is sent, what happens when.

use super::cluster::{Cluster, ClusterConfig, Failure};
use super::ops::{Op, apply};
use crate::congestion::Congestion;
use crate::ports::sim::{BurstLoss, LinkModel, SimPortConfig};
use crate::time::{MICROS, MILLIS, Nanos, SECONDS};
use crate::{Config, SendError};
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
            socket_datagrams: dice.pick(&[2, 64, 4096]) as usize,
            send_completion_delay_ns: dice.pick(&[0, 0, 30]) * MICROS,
            ..SimPortConfig::default()
        };
        let ops = dice.below(160);
        let mut cluster = ClusterConfig {
            nodes: 2 + dice.below(4),
            seed: seed ^ 0x5EED,
            checksum: model.corrupt > 0.0 || dice.one_in(4),
            authenticate: false,
            model,
            port,
            first_seq: dice.pick(&[0, 1, u32::MAX, u32::MAX - 10, 0x7FFF_FFFF, 255]),
            ordered: !dice.one_in(3),
            dead_after_ns: dice.pick(&[30, 200, 10_000]) * MILLIS,
            congestion: dice.pick(&[Congestion::Delay { target_ns: 100_000 }, Congestion::Fixed]),
            tweak: draw_tables(&mut dice),
        };
        let (hostile, lives) = (dice.one_in(3), dice.one_in(2));
        let op = |_| match lives && dice.one_in(10) {
            true => draw_life(&mut dice),
            false => draw_op(&mut dice, hostile),
        };
        let ops = (0..40 + ops).map(op).collect();
        // Last, so that it changes nothing else that a seed stands for.
        if hostile && dice.one_in(3) {
            (cluster.authenticate, cluster.checksum) = (true, false);
        }
        Self { cluster, ops }
    }
}

/// Sizes of tables. Small ones fill up, and are quicker to look through at every tick.
fn draw_tables(dice: &mut Dice) -> fn(&mut Config) {
    fn small(c: &mut Config) {
        (c.send_slots, c.ack_slots, c.receive_slots, c.fragments_max) = (128, 16, 128, 128);
    }
    let tables: [fn(&mut Config); 8] = [
        |_| {},
        small,
        small,
        |c| {
            small(c);
            c.keepalive_ns = MILLIS;
        },
        |c| {
            small(c);
            c.window_segments = 64;
        },
        |c| {
            small(c);
            (c.window_segments, c.congestion_initial_segments) = (64, 1);
        },
        |c| {
            small(c);
            (c.send_slots, c.ack_slots, c.receive_slots) = (8, 2, 16);
        },
        |c| {
            small(c);
            (c.active_peers_max, c.fragments_max) = (1, 8);
        },
    ];
    dice.pick(&tables)
}

/// What processes go through, and the long times that it takes to die.
fn draw_life(dice: &mut Dice) -> Op {
    let (a, b) = (dice.below(8) as u8, dice.below(8) as u8);
    match dice.below(16) {
        0 => Op::Kill(a),
        1 | 2 => Op::Restart {
            at: a,
            down_ns: dice.pick(&[0, 1_000, 10_000_000]),
            late_ns: dice.pick(&[1, 100_000, 20_000_000]),
        },
        3 => Op::Close(a, dice.pick(&[1_000, 10_000_000, 1_000_000_000])),
        4 | 5 => Op::SkipClock(a, dice.pick(&[1_000_000, 50_000_000, 4_000_000_000])),
        6 | 7 => Op::FailSends(a, b, dice.pick(&[22, 101, 1, 12, 111]), dice.pick(&[1, 3, 255])),
        8 | 9 => Op::Watch(a, b, !dice.one_in(4)),
        10 | 11 => Op::Cut(a, b, true),
        12 => Op::Pause(a, true),
        13 => Op::Advance(dice.below(300_000_000)),
        _ => Op::Run(dice.below(300_000_000)),
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
    end(&mut cluster)?;
    let messages = (0..cluster.len()).map(|at| cluster.received(at)).sum();
    Ok(Played { messages, virtual_ns: cluster.net().now() })
}

/// Engines tick when they have something to do.
const STEP_NS: Nanos = 10 * MILLIS;

/// The faults are over: all drains; who lives can talk, who is dead is told so; and what is over
/// has left nothing behind.
fn end(cluster: &mut Cluster) -> Result<(), Failure> {
    cluster.drain(60 * SECONDS, STEP_NS)?;
    let pairs = |cluster: &mut Cluster| -> Vec<(usize, usize)> {
        let n = cluster.len();
        let all = (0..n).flat_map(|a| (0..n).map(move |b| (a, b)));
        all.filter(|&(a, b)| a != b && cluster.are_mutual(a, b)).collect()
    };
    let mutual = pairs(cluster);
    for &(a, b) in &mutual {
        let mut tries = 0;
        while let Err(error) = cluster.send(a, b, 100, true) {
            tries += 1;
            if error != SendError::Again || tries == 1000 {
                return Err(format!("the last message from {a} to {b}: {error}"));
            }
            cluster.run_for(100 * MICROS, STEP_NS)?;
        }
    }
    cluster.drain(10 * SECONDS, STEP_NS)?;
    cluster.await_deaths()?;
    if pairs(cluster) != mutual {
        return Err(format!("of the living pairs {mutual:?} some are no longer"));
    }
    cluster.check_emptiness()
}
