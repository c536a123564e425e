//! Any list of operations on two or three engines: safety at every step, and once the faults are
//! over all that was accepted arrives.
#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use tickwire::ports::sim::{LinkModel, SimPortConfig};
use tickwire::simulation::{self, Cluster, ClusterConfig, Op};
use tickwire::time::{MICROS, SECONDS};

const OPS_MAX: usize = 64;
const BYTES_MAX: u32 = 40_000;
const RUN_NS_MAX: u32 = 500_000;
const TIMES_MAX: u8 = 16;

#[derive(Arbitrary, Debug)]
enum Step {
    Send { from: u8, to: u8, len_bytes: u16, owned: bool },
    Small { from: u8, to: u8, len_bytes: u8 },
    Tick(u8),
    Advance(u32),
    Run(u32),
    Inject { to: u8, priority: bool, bytes: Vec<u8> },
    Cut(u8, u8, bool),
    Pause(u8, bool),
    Replay { index: u8, to: u8, times: u8, swap: bool },
    Truncate { index: u8, len: u16 },
    Splice { a: u8, b: u8, at: u16 },
    Flip { index: u8, byte: u16, bit: u8 },
    Forge { index: u8, word: u8, xor: u32 },
}

#[derive(Arbitrary, Debug)]
struct Setup {
    three: bool,
    ordered: bool,
    gathers: bool,
    polled_sends: bool,
    async_insert: bool,
    small_datagrams: bool,
    few_slots: bool,
    checksum: bool,
    latency_us: u8,
    loss: u8,
    dup: u8,
    reorder: u8,
    first_seq: u32,
    seed: u64,
    authenticate: bool,
}

impl Setup {
    fn config(&self) -> ClusterConfig {
        let at_most = |n: u8, max: f64| f64::from(n) / 255.0 * max;
        ClusterConfig {
            nodes: if self.three { 3 } else { 2 },
            seed: self.seed,
            model: LinkModel {
                latency_ns: u64::from(self.latency_us) * MICROS,
                loss: at_most(self.loss, 0.4),
                dup: at_most(self.dup, 0.3),
                reorder: at_most(self.reorder, 0.5),
                ..LinkModel::default()
            },
            port: SimPortConfig {
                datagram_bytes_max: if self.small_datagrams { 256 } else { 1472 },
                send_depth: if self.few_slots { 4 } else { 256 },
                gathers: self.gathers,
                sends_complete_at_post: !self.polled_sends,
                async_insert: self.async_insert,
                ..SimPortConfig::default()
            },
            first_seq: self.first_seq,
            ordered: self.ordered,
            checksum: self.checksum,
            authenticate: self.authenticate,
            // Small tables: they fill up sooner, and are quicker to build.
            tweak: if self.few_slots {
                |c| {
                    c.send_slots = 8;
                    c.ack_slots = 2;
                    c.receive_slots = 16;
                    c.fragments_max = 8;
                    c.window_segments = 64;
                }
            } else {
                |c| {
                    c.send_slots = 128;
                    c.receive_slots = 128;
                    c.fragments_max = 64;
                    c.window_segments = 64;
                }
            },
            ..ClusterConfig::default()
        }
    }
}

fn op(step: Step) -> Op {
    match step {
        Step::Send { from, to, len_bytes, owned } => {
            Op::Send { from, to, len_bytes: u32::from(len_bytes) % BYTES_MAX, owned }
        }
        Step::Small { from, to, len_bytes } => {
            Op::Send { from, to, len_bytes: u32::from(len_bytes), owned: false }
        }
        Step::Tick(at) => Op::Tick(at),
        Step::Advance(ns) => Op::Advance(ns % (4 * RUN_NS_MAX)),
        Step::Run(ns) => Op::Run(ns % RUN_NS_MAX),
        Step::Inject { to, priority, mut bytes } => {
            // A datagram with the job's key and a peer's name could say anything, also that
            // messages were delivered which were not: only strangers are let in here.
            bytes.truncate(1400);
            if bytes.get(4..8) == Some(&Cluster::JOB_KEY.wire_check().to_le_bytes()) {
                bytes[4] ^= 1;
            }
            Op::Inject { to, priority, bytes }
        }
        Step::Cut(a, b, cut) => Op::Cut(a, b, cut),
        Step::Pause(at, paused) => Op::Pause(at, paused),
        Step::Replay { index, to, times, swap } => {
            Op::Replay { index, to, times: times % TIMES_MAX, swap }
        }
        Step::Truncate { index, len } => Op::Truncate { index, len },
        Step::Splice { a, b, at } => Op::Splice { a, b, at },
        Step::Flip { index, byte, bit } => Op::Flip { index, byte, bit },
        Step::Forge { index, word, xor } => Op::Forge { index, word, xor },
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Unstructured::new(data);
    let Ok(setup) = Setup::arbitrary(&mut input) else { return };
    let mut cluster = Cluster::new(&setup.config());
    cluster.record();
    for _ in 0..OPS_MAX {
        if input.is_empty() {
            break;
        }
        let Ok(step) = Step::arbitrary(&mut input) else { break };
        let op = op(step);
        if let Err(failure) = simulation::apply(&mut cluster, &op) {
            panic!("{op:?}: {failure}\n{setup:?}");
        }
    }
    cluster.calm(LinkModel { latency_ns: MICROS, ..LinkModel::default() });
    if let Err(failure) = cluster.drain(60 * SECONDS, 50 * MICROS) {
        panic!("{failure}\n{setup:?}");
    }
});
