//! Every kind of datagram in every wrong place: what is accepted, what is dropped, and under
//! which counter. Datagrams are made by hand and injected into an engine that knows one peer.

use tickwire::ports::Channel;
use tickwire::ports::sim::{LinkModel, SimNet, SimPort, SimPortConfig};
use tickwire::wire::{AckDelay, ChunkHeader, HEADER_BYTES, Header, Integrity, Kind, chunk};
use tickwire::{Config, Context, EndpointHandle, Engine, Event, Incarnation, JobKey, Rank, Tag};
use tickwire_tables::seq::Seq;

const JOB: JobKey = JobKey(42);
const PEER: u32 = 1;
const INCARNATION: u32 = 90;
/// Of both sides; the numbers wrap within the tests.
const FIRST_SEQ: u32 = u32::MAX - 2;
const WINDOW: u16 = 64;
const SMALL_BYTES: usize = 8;

/// An engine of rank 0, and the node that its peer would live at.
struct Rig {
    net: SimNet,
    engine: Engine<SimPort>,
    to_peer: EndpointHandle,
    received: Vec<Vec<u8>>,
    /// Keeps the peer's node open.
    _peer: Engine<SimPort>,
}

fn engine(net: &SimNet, rank: u32, ordered: bool) -> Engine<SimPort> {
    let mut config = Config::new(Rank(rank), JOB);
    config.incarnation = Incarnation(INCARNATION);
    config.first_seq = FIRST_SEQ;
    config.name = format!("node{rank}");
    (config.peers_max, config.ranks_max, config.window_segments) = (4, 4, WINDOW);
    config.ordered = ordered;
    Engine::new(config, net.port(SimPortConfig::default())).unwrap()
}

impl Rig {
    /// The peer has sent three small messages, and was sent two that it has not acked.
    fn new(ordered: bool) -> Self {
        let net = SimNet::new(3, LinkModel::default());
        let mut engine = engine(&net, 0, ordered);
        let peer = self::engine(&net, PEER, ordered);
        let to_peer = engine.add_peer(&peer.local_address()).unwrap();
        let mut rig = Self { net, engine, to_peer, received: Vec::new(), _peer: peer };
        rig.tick();
        for _ in 0..2 {
            rig.engine.send_copy(to_peer, Tag(1), b"outgoing").unwrap();
        }
        for offset in 0..3 {
            rig.inject(&small(offset));
        }
        assert_eq!(rig.received.len(), 3);
        rig
    }

    fn tick(&mut self) {
        let received = &mut self.received;
        self.engine.tick(&mut |_: &mut Context<SimPort>, event: Event<'_>| {
            if let Event::Received(message) = event {
                received.push(message.take());
            }
        });
        self.engine.check_invariants().unwrap();
    }

    /// The datagram arrives, and is taken in.
    fn inject(&mut self, datagram: &Datagram) {
        let channel =
            if datagram.header.kind == Kind::Ack { Channel::Priority } else { Channel::Data };
        self.net.inject(self.engine.port().node(), channel, &datagram.bytes());
        self.tick();
    }

    /// Values of all counters that the arrival of one datagram changes.
    fn counted(&mut self, datagram: &Datagram) -> Vec<(&'static str, u64)> {
        let before = self.engine.counters().rows();
        self.inject(datagram);
        let after = self.engine.counters().rows();
        let deltas = after.iter().zip(before).map(|(&(name, now), (_, then))| (name, now - then));
        deltas.filter(|&(_, delta)| delta > 0).collect()
    }
}

/// A datagram of the peer's, to be spoiled.
#[derive(Clone)]
struct Datagram {
    header: Header,
    chunk: ChunkHeader,
    payload: Vec<u8>,
    cut_bytes: usize,
}

/// The small message with the number `offset` after the first.
fn small(offset: u32) -> Datagram {
    let header = Header {
        kind: Kind::Data,
        ack_delay: AckDelay(0),
        payload_bytes: SMALL_BYTES as u16,
        job_check: JOB.wire_check(),
        rank: PEER,
        session: JOB
            .session((Rank(PEER), Incarnation(INCARNATION)), (Rank(0), Incarnation(INCARNATION))),
        seq: Seq::new(FIRST_SEQ).add(offset),
        ack: Seq::new(FIRST_SEQ),
        tag: 7,
        window: WINDOW,
        fragment: 0,
    };
    let chunk = ChunkHeader { total_bytes: 0, offset_bytes: 0 };
    Datagram { header, chunk, payload: vec![offset as u8; SMALL_BYTES], cut_bytes: 0 }
}

/// As [`small`], of the kind; a chunk is the only one of its message.
fn of_kind(kind: Kind, offset: u32) -> Datagram {
    let mut datagram = small(offset);
    datagram.header.kind = kind;
    datagram.chunk.total_bytes = SMALL_BYTES as u64;
    datagram.header.fragment = offset as u16;
    if kind == Kind::Ack {
        datagram.payload.fill(0);
    }
    datagram
}

impl Datagram {
    fn bytes(&self) -> Vec<u8> {
        let mut out = vec![0; HEADER_BYTES];
        self.header.write(out.first_chunk_mut().unwrap());
        if self.header.kind == Kind::Chunk {
            let mut extra = [0; chunk::EXTRA_BYTES];
            self.chunk.write(&mut extra);
            out.extend(extra);
        }
        out.extend(&self.payload);
        out.truncate(out.len() - self.cut_bytes);
        out
    }
}

/// Where and how a datagram arrives. Three were received before it: the next is number 3.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Case {
    Past,
    InOrder,
    Future,
    /// The second copy of one that is early.
    Duplicate,
    LastOfWindow,
    AboveWindow,
    WrongSession,
    WrongJobKey,
    UnknownRank,
    RankBeyondTable,
    CutInHeader,
    CutInPayload,
    AckOfTheUnsent,
    /// Older than any that could still be under way.
    AncientAck,
}

const CASES: [Case; 14] = [
    Case::Past,
    Case::InOrder,
    Case::Future,
    Case::Duplicate,
    Case::LastOfWindow,
    Case::AboveWindow,
    Case::WrongSession,
    Case::WrongJobKey,
    Case::UnknownRank,
    Case::RankBeyondTable,
    Case::CutInHeader,
    Case::CutInPayload,
    Case::AckOfTheUnsent,
    Case::AncientAck,
];

fn datagram(kind: Kind, case: Case) -> Datagram {
    let mut datagram = of_kind(
        kind,
        match case {
            Case::Past => 1,
            Case::Future | Case::Duplicate => 5,
            Case::LastOfWindow => 3 + u32::from(WINDOW) - 1,
            Case::AboveWindow => 3 + u32::from(WINDOW),
            _ => 3,
        },
    );
    let header = &mut datagram.header;
    match case {
        Case::WrongSession => header.session ^= 1,
        Case::WrongJobKey => header.job_check ^= 1 << 31,
        Case::UnknownRank => header.rank = 3,
        Case::RankBeyondTable => header.rank = u32::MAX,
        Case::CutInHeader => datagram.cut_bytes = datagram.bytes().len() - HEADER_BYTES + 1,
        Case::CutInPayload => datagram.cut_bytes = 1,
        // Two were sent.
        Case::AckOfTheUnsent => header.ack = header.ack.add(3),
        Case::AncientAck => header.ack = header.ack.sub(1 << 16),
        _ => {}
    }
    datagram
}

/// The counter of the drop that must follow, or `None`: it is taken in.
fn drop_counter(kind: Kind, case: Case) -> Option<&'static str> {
    let is_ack = kind == Kind::Ack;
    Some(match case {
        Case::WrongSession => "drops_wrong_session",
        Case::WrongJobKey => "drops_wrong_job_key",
        Case::UnknownRank | Case::RankBeyondTable => "drops_unknown_rank",
        Case::CutInHeader => "drops_too_short",
        Case::CutInPayload => "drops_wrong_length",
        Case::AckOfTheUnsent | Case::AncientAck => "drops_impossible_ack",
        // An ack's own number has no place in a window.
        _ if is_ack => return None,
        Case::Past | Case::Duplicate => "drops_duplicate",
        Case::AboveWindow => "drops_above_window",
        Case::InOrder | Case::Future | Case::LastOfWindow => return None,
    })
}

/// What else must be counted.
fn others(kind: Kind, case: Case, ordered: bool) -> Vec<&'static str> {
    let dropped = drop_counter(kind, case);
    let mut names = vec!["datagrams_received"];
    match (kind, dropped) {
        (Kind::Ack, None) => names.push("acks_received"),
        (_, None) => {
            names.push("segments_accepted");
            let in_order = case == Case::InOrder;
            if !in_order {
                names.push("segments_out_of_order");
            }
            if in_order || !ordered {
                names.extend(["messages_received", "bytes_received"]);
            }
            // What is early is acked at once; and so is the end of a large message.
            if !in_order || kind == Kind::Chunk {
                names.push("acks_standalone");
            }
        }
        // Whoever sends what we have, or far too much, has missed an ack.
        (_, Some("drops_duplicate" | "drops_above_window")) => names.push("acks_standalone"),
        _ => {}
    }
    names.extend(dropped);
    names.sort_unstable();
    names
}

#[test]
fn each_kind_in_each_case() {
    for ordered in [true, false] {
        for kind in [Kind::Data, Kind::Chunk, Kind::Ack] {
            for case in CASES {
                let mut rig = Rig::new(ordered);
                let datagram = datagram(kind, case);
                if case == Case::Duplicate && kind != Kind::Ack {
                    rig.inject(&datagram);
                }
                let messages = rig.received.len();
                let mut got: Vec<_> = rig.counted(&datagram);
                got.sort_unstable();
                let what = format!("{kind:?} {case:?}, ordered: {ordered}");
                let names: Vec<_> = got.iter().map(|&(name, _)| name).collect();
                assert_eq!(names, others(kind, case, ordered), "{what}: {got:?}");
                for &(name, by) in &got {
                    let want = if name == "bytes_received" { SMALL_BYTES as u64 } else { 1 };
                    assert_eq!(by, want, "{what}: {name}");
                }
                let delivered = names.contains(&"messages_received");
                assert_eq!(rig.received.len() - messages, usize::from(delivered), "{what}");
                the_missing_ones_still_come(&mut rig, &what);
            }
        }
    }
}

/// Whatever came before, the stream goes on: all of its messages are delivered once.
fn the_missing_ones_still_come(rig: &mut Rig, what: &str) {
    let end = 3 + u32::from(WINDOW) + 1;
    for offset in 3..end {
        rig.inject(&small(offset));
    }
    assert_eq!(rig.received.len(), end as usize, "{what}");
    assert!(rig.received.iter().all(|bytes| bytes.len() == SMALL_BYTES), "{what}");
}

#[test]
fn a_dropped_datagram_acks_nothing() {
    for case in [Case::WrongSession, Case::WrongJobKey, Case::UnknownRank, Case::CutInPayload] {
        for kind in [Kind::Data, Kind::Chunk, Kind::Ack] {
            let mut rig = Rig::new(true);
            let mut datagram = datagram(kind, case);
            datagram.header.ack = datagram.header.ack.add(2);
            rig.inject(&datagram);
            assert!(!rig.engine.is_drained(rig.to_peer), "{kind:?} {case:?}");
        }
    }
}

#[test]
fn every_kind_carries_the_cumulative_ack() {
    for case in [Case::Past, Case::InOrder, Case::Future, Case::AboveWindow] {
        for kind in [Kind::Data, Kind::Chunk, Kind::Ack] {
            let mut rig = Rig::new(true);
            let mut datagram = datagram(kind, case);
            datagram.header.ack = datagram.header.ack.add(2);
            rig.inject(&datagram);
            assert!(rig.engine.is_drained(rig.to_peer), "{kind:?} {case:?}");
        }
    }
}

#[test]
fn a_chunk_must_fit_its_message() {
    let chunk = |total_bytes, offset_bytes, payload: usize| {
        let mut datagram = of_kind(Kind::Chunk, 3);
        datagram.chunk = ChunkHeader { total_bytes, offset_bytes };
        datagram.payload = vec![1; payload];
        datagram.header.payload_bytes = payload as u16;
        datagram
    };
    let grid = chunk::payload_bytes_max(1472, Integrity::None);
    for (datagram, counter) in [
        (chunk(100, 0, 0), "drops_off_grid_chunk"),
        (chunk(100, 0, 99), "drops_off_grid_chunk"),
        (chunk(100, 1, 99), "drops_off_grid_chunk"),
        (chunk(0, 0, 0), "drops_off_grid_chunk"),
        (chunk(u64::MAX, u64::MAX - 3, 8), "drops_off_grid_chunk"),
        (chunk(10_000, 0, grid - 1), "drops_off_grid_chunk"),
        (chunk(1 << 40, 0, grid), "drops_too_large"),
    ] {
        let mut rig = Rig::new(true);
        let got = rig.counted(&datagram);
        assert!(got.contains(&(counter, 1)), "{:?}: {got:?}", datagram.chunk);
        assert!(!got.iter().any(|(name, _)| *name == "segments_accepted"));
        the_missing_ones_still_come(&mut rig, counter);
    }
    // A second chunk that knows another length, or another tag.
    for spoil in [|d: &mut Datagram| d.chunk.total_bytes += 1, |d: &mut Datagram| d.header.tag = 8]
    {
        let mut rig = Rig::new(true);
        let total = 2 * grid as u64;
        let mut first = chunk(total, 0, grid);
        first.header.fragment = 9;
        rig.inject(&first);
        let mut second = chunk(total + 1, grid as u64, grid);
        second.header.seq = second.header.seq.next();
        second.header.fragment = 9;
        second.chunk.total_bytes = total;
        let mut spoilt = second.clone();
        spoil(&mut spoilt);
        if spoilt.chunk.total_bytes != total {
            // On the grid of the message it claims to be of.
            spoilt.chunk.total_bytes = total + grid as u64;
        }
        assert!(rig.counted(&spoilt).contains(&("drops_chunk_mismatch", 1)));
        assert!(rig.counted(&second).contains(&("messages_received", 1)));
        assert_eq!(rig.received.last().map(Vec::len), Some(total as usize));
    }
}
