//! Faults that others met, section D: strangers. A genuine datagram is caught on its way, spoilt in
//! one place, and delivered; what must happen is that one counter rises by one, and nothing else.

use std::cell::RefCell;
use std::rc::Rc;
use tickwire::ports::Channel;
use tickwire::ports::sim::{LinkModel, SimNet, SimPort, SimPortConfig, Verdict};
use tickwire::simulation::{Cluster, ClusterConfig};
use tickwire::time::{MICROS, MILLIS, SECONDS};
use tickwire::wire::{self, CHECKSUM_BYTES, HEADER_BYTES, VERSION};
use tickwire::{Config, Context, Engine, Event, Incarnation, JobKey, Rank, Tag};

/// Of the places of a header, those that strangers get wrong (wire 2).
mod at {
    pub const LENGTH: usize = 2;
    pub const JOB_KEY: usize = 4;
    pub const RANK: usize = 8;
    pub const SESSION: usize = 12;
    pub const SEQ: usize = 16;
    pub const ACK: usize = 20;
    pub const TAG: usize = 24;
    pub const TOTAL: usize = super::HEADER_BYTES;
    pub const OFFSET: usize = TOTAL + 8;
}

/// User bytes of a full chunk.
const CHUNK: usize = 1472 - 48 - 4;

type Caught = Rc<RefCell<Vec<Vec<u8>>>>;

/// Node 0 of two, to which nothing comes by itself: what node 1 sends is caught and lost.
struct Rig {
    cluster: Cluster,
    /// What node 1 sent, in order.
    caught: Caught,
    /// Bytes that node 0 sent, whatever they are.
    said: Rc<RefCell<usize>>,
}

impl Rig {
    fn new(checksum: bool) -> Self {
        let mut cluster = Cluster::new(&ClusterConfig { checksum, ..ClusterConfig::default() });
        // Both have heard of each other, and one message is behind them.
        cluster.send(1, 0, 8, false).unwrap();
        cluster.send(0, 1, 8, false).unwrap();
        cluster.drain(SECONDS, MICROS).unwrap();
        let (caught, said) = (Caught::default(), Rc::<RefCell<usize>>::default());
        let (catch, count) = (caught.clone(), said.clone());
        cluster.net().set_tap(Box::new(move |tap| {
            if tap.from == 0 {
                *count.borrow_mut() += tap.bytes.len();
                return Verdict::Deliver;
            }
            catch.borrow_mut().push(tap.bytes.to_vec());
            Verdict::Drop
        }));
        Self { cluster, caught, said }
    }

    /// The first datagrams of a message of `len` bytes from node 1, which goes silent after it.
    fn genuine(&mut self, len: usize) -> Vec<Vec<u8>> {
        self.cluster.send(1, 0, len, false).unwrap();
        for _ in 0..4 {
            self.cluster.tick(1).unwrap();
        }
        self.cluster.pause(1, true);
        self.caught.take()
    }

    /// Delivers a datagram to node 0. What it counts, and how many bytes it says in return.
    fn deliver(&mut self, bytes: &[u8]) -> (Vec<(&'static str, u64)>, usize) {
        let before = self.cluster.engine(0).counters().rows();
        let said = *self.said.borrow();
        self.cluster.net().inject(0, Channel::Data, bytes);
        // Long enough for any ack that is put off.
        self.cluster.run_for(MILLIS, 10 * MICROS).unwrap();
        let after = self.cluster.engine(0).counters().rows();
        let deltas = after.iter().zip(before).map(|(&(name, now), (_, then))| (name, now - then));
        let mut risen: Vec<_> = deltas.filter(|&(_, delta)| delta > 0).collect();
        risen.sort_unstable();
        (risen, *self.said.borrow() - said)
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn add_u32(bytes: &mut [u8], at: usize, by: u32) {
    let word = u32::from_le_bytes(*bytes[at..].first_chunk().unwrap());
    put(bytes, at, &word.wrapping_add(by).to_le_bytes());
}

type Spoil = fn(&mut Vec<u8>);

/// What strangers get wrong in a small message, and the counter of it.
const SMALL: [(&str, Spoil); 9] = [
    ("drops_too_short", |b| b.truncate(HEADER_BYTES - 1)),
    ("drops_too_short", |b| b.clear()),
    ("drops_wrong_version", |b| b[0] = (VERSION + 1) << 4 | (b[0] & 15)),
    ("drops_wrong_job_key", |b| b[at::JOB_KEY] ^= 1),
    ("drops_unknown_kind", |b| b[0] |= 15),
    ("drops_wrong_length", |b| put(b, at::LENGTH, &u16::MAX.to_le_bytes())),
    ("drops_unknown_rank", |b| put(b, at::RANK, &77u32.to_le_bytes())),
    ("drops_wrong_session", |b| b[at::SESSION] ^= 1),
    ("drops_impossible_ack", |b| add_u32(b, at::ACK, 1)),
];

/// What they get wrong in the first chunk of a large one.
const CHUNKS: [(&str, Spoil); 3] = [
    ("drops_off_grid_chunk", |b| b[at::OFFSET] += 1),
    ("drops_off_grid_chunk", |b| put(b, at::TOTAL, &0u64.to_le_bytes())),
    ("drops_too_large", |b| put(b, at::TOTAL, &(1u64 << 40).to_le_bytes())),
];

/// Makes the checksum right again, so that what is wrong is found behind it.
fn seal(bytes: &mut [u8]) {
    if let Some(at) = bytes.len().checked_sub(CHECKSUM_BYTES).filter(|&at| at >= HEADER_BYTES) {
        wire::write_checksum(bytes, at);
    }
}

#[test]
fn each_stranger_is_counted_and_nothing_else_happens() {
    let small = SMALL.iter().map(|case| (case, 8));
    let chunks = CHUNKS.iter().map(|case| (case, 2 * CHUNK));
    for (&(counter, spoil), len) in small.chain(chunks) {
        for checksum in [false, true] {
            let mut rig = Rig::new(checksum);
            let genuine = rig.genuine(len);
            let mut spoilt = genuine[0].clone();
            spoil(&mut spoilt);
            if checksum && counter != "drops_wrong_length" {
                seal(&mut spoilt);
            }
            only_counts(&mut rig, &spoilt, counter);
            the_genuine_ones_are_taken(&mut rig, &genuine, counter);
        }
    }
}

#[test]
fn a_wrong_checksum_is_counted_and_nothing_else_happens() {
    let mut rig = Rig::new(true);
    let genuine = rig.genuine(8);
    for at in 1..genuine[0].len() {
        let is_judged_before = (0..2).contains(&(at / 4)) && at != 1;
        if is_judged_before {
            continue;
        }
        let mut spoilt = genuine[0].clone();
        spoilt[at] ^= 0x20;
        only_counts(&mut rig, &spoilt, "drops_bad_checksum");
    }
    the_genuine_ones_are_taken(&mut rig, &genuine, "checksum");
}

#[test]
fn a_chunk_that_disagrees_is_counted_and_nothing_else_happens() {
    for spoil in [|b: &mut Vec<u8>| b[at::TAG] ^= 1, |b: &mut Vec<u8>| b[at::TOTAL + 1] ^= 1] {
        for checksum in [false, true] {
            let mut rig = Rig::new(checksum);
            let genuine = rig.genuine(4 * CHUNK);
            rig.deliver(&genuine[0]);
            let mut spoilt = genuine[1].clone();
            spoil(&mut spoilt);
            if checksum {
                seal(&mut spoilt);
            }
            only_counts(&mut rig, &spoilt, "drops_chunk_mismatch");
            the_genuine_ones_are_taken(&mut rig, &genuine[1..], "mismatch");
        }
    }
}

/// Ten of the kind: each is counted once, none is answered, nobody is told.
fn only_counts(rig: &mut Rig, spoilt: &[u8], counter: &'static str) {
    for _ in 0..10 {
        let (risen, said) = rig.deliver(spoilt);
        assert_eq!(risen, [("datagrams_received", 1), (counter, 1)]);
        assert_eq!(said, 0, "{counter}: strangers get no answer");
    }
    assert_eq!(rig.cluster.received(0), 1, "{counter}");
}

/// The window is where it was: what the strangers imitated arrives, once.
fn the_genuine_ones_are_taken(rig: &mut Rig, genuine: &[Vec<u8>], what: &str) {
    for bytes in genuine {
        rig.deliver(bytes);
    }
    assert_eq!(rig.cluster.received(0), 2, "{what}");
}

/// The one datagram that is answered by a larger one: what a known peer (right job key, rank and
/// session) sends twice is acked at once, with a bitmap of what came early. The ack goes to the
/// address that the peer was added with, never to where the datagram came from, and one tick sends
/// one at most; so who forges such datagrams, for which the job key and both incarnations must be
/// known, gains a trickle of acks to the peer.
#[test]
fn only_known_peers_are_answered_and_not_by_much() {
    for checksum in [false, true] {
        let mut rig = Rig::new(checksum);
        let genuine = rig.genuine(0).remove(0);
        let mut early = genuine.clone();
        // The last number of the window: the bitmap is as long as it gets.
        add_u32(&mut early, at::SEQ, 255);
        let mut past = genuine.clone();
        add_u32(&mut past, at::SEQ, u32::MAX);
        let mut above = genuine.clone();
        add_u32(&mut above, at::SEQ, 256);
        if checksum {
            [&mut early, &mut past, &mut above].into_iter().for_each(|bytes| seal(bytes));
        }
        rig.deliver(&early);
        for (refused, counter) in [
            (&past, "drops_duplicate"),
            (&early, "drops_duplicate"),
            (&above, "drops_above_window"),
        ] {
            let (risen, said) = rig.deliver(refused);
            assert_eq!(risen, [("acks_standalone", 1), ("datagrams_received", 1), (counter, 1)]);
            assert_eq!(said, refused.len() + 256 / 8);
        }
        // A thousand of them at once are answered once for each tick.
        let (said, acks) = (*rig.said.borrow(), rig.cluster.engine(0).counters().acks_standalone);
        for _ in 0..1000 {
            rig.cluster.net().inject(0, Channel::Data, &past);
        }
        rig.cluster.run_for(MILLIS, 10 * MICROS).unwrap();
        let acks = rig.cluster.engine(0).counters().acks_standalone - acks;
        assert!((1..=4).contains(&acks), "{acks}");
        assert!(*rig.said.borrow() - said <= 1000 * past.len());
        the_genuine_ones_are_taken(&mut rig, &[genuine], "refused");
    }
}

fn engine(net: &SimNet, job: JobKey, rank: u32) -> Engine<SimPort> {
    let mut config = Config::new(Rank(rank), job);
    // Alike in all jobs: only the key tells them apart.
    (config.incarnation, config.first_seq) = (Incarnation(rank + 1), 0);
    (config.peers_max, config.ranks_max) = (4, 4);
    Engine::new(config, net.port(SimPortConfig::default())).unwrap()
}

fn tick(engine: &mut Engine<SimPort>, received: &mut u32) {
    engine.tick(&mut |_: &mut Context<SimPort>, event: Event<'_>| {
        *received += u32::from(matches!(event, Event::Received(_)));
    });
    engine.check_invariants().unwrap();
}

/// Three jobs of three ranks each on one host. The third job's key has the same check word as the
/// first one's.
#[test]
fn pc_45_datagrams_of_another_job_or_for_another_endpoint_are_dropped_unanswered() {
    const KEY: u64 = 0x0123_4567_89AB_CDEF;
    let net = SimNet::new(45, LinkModel::default());
    let keys = [KEY, KEY + 1, KEY.rotate_left(32)].map(JobKey);
    assert_eq!(keys[0].wire_check(), keys[2].wire_check());
    let mut jobs = keys.map(|key| [0, 1, 2].map(|rank| engine(&net, key, rank)));
    let mut received = 0;
    for job in &mut jobs {
        let addresses = job.each_ref().map(|engine| engine.local_address());
        for (rank, engine) in job.iter_mut().enumerate() {
            let others = addresses.iter().filter(|other| other.rank.0 as usize != rank);
            assert!(engine.add_peers(others).iter().all(Result::is_ok));
            tick(engine, &mut received);
        }
    }
    let caught = Caught::default();
    let catch = caught.clone();
    net.set_tap(Box::new(move |tap| {
        catch.borrow_mut().push(tap.bytes.to_vec());
        Verdict::Drop
    }));
    // Rank 1 of each job sends rank 0 the same, small and large; nothing arrives by itself.
    let sent = jobs.each_mut().map(|job| {
        let to = job[1].peer(Rank(0)).unwrap();
        for len in [0, 8, 2_000] {
            job[1].send_copy(to, Tag(1), &vec![5; len]).unwrap();
        }
        (0..3).for_each(|_| tick(&mut job[1], &mut received));
        caught.take()
    });
    assert!(sent.iter().all(|of_job| of_job.len() == 4), "{sent:?}");
    let cases = [(1, 0, "drops_wrong_job_key"), (2, 0, "drops_wrong_session")].into_iter();
    for (job, rank, counter) in cases.chain([(0, 2, "drops_wrong_session")]) {
        // From `job`, meant for its rank 0, to the first job's rank `rank`.
        let victim = &mut jobs[0][rank];
        let before = victim.counters().clone();
        for (i, bytes) in sent[job].iter().enumerate() {
            net.inject(victim.port().node(), Channel::ALL[i % 2], bytes);
        }
        for _ in 0..100 {
            net.advance(10 * MICROS);
            tick(victim, &mut received);
        }
        let rows = victim.counters().rows().into_iter().zip(before.rows());
        let risen: Vec<_> =
            rows.filter(|(a, b)| a.1 > b.1).map(|(a, b)| (a.0, a.1 - b.1)).collect();
        assert_eq!(risen, [("datagrams_received", 4), (counter, 4)], "job {job} to rank {rank}");
        assert!(caught.borrow().is_empty() && received == 0, "an answer or a message");
    }
    // The right ones, at the right place, are taken.
    for bytes in &sent[0] {
        net.inject(jobs[0][0].port().node(), Channel::Data, bytes);
    }
    (0..3).for_each(|_| tick(&mut jobs[0][0], &mut received));
    assert_eq!(received, 3);
}
