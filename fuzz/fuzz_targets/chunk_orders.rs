//! Chunks of four messages arrive at one engine in any order, repeated, and some of them wrong.
//! Nothing breaks; and when none was wrong, all messages arrive whole once all chunks have.
#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use tickwire::ports::Channel;
use tickwire::ports::sim::{LinkModel, SimNet, SimPort, SimPortConfig};
use tickwire::simulation::payload;
use tickwire::wire::{AckDelay, ChunkHeader, HEADER_BYTES, Header, Integrity, Kind, chunk};
use tickwire::{
    Config, Context, EndpointHandle, Engine, Event, Handler, Incarnation, JobKey, Rank, Tag,
};
use tickwire_tables::seq::Seq;

const STEPS_MAX: usize = 128;
const DATAGRAM_BYTES: usize = 256;
const CHUNK_BYTES: usize = chunk::payload_bytes_max(DATAGRAM_BYTES, Integrity::None);
/// Lengths of the messages: one chunk, one chunk exactly, one byte more, many chunks.
const LENGTHS: [usize; 4] = [5, CHUNK_BYTES, CHUNK_BYTES + 1, 20 * CHUNK_BYTES + 7];
const FIRST_SEQ: u32 = u32::MAX - 3;
const JOB: JobKey = JobKey(77);
const PEER: u32 = 1;

/// How a chunk differs from the right one.
#[derive(Arbitrary, Debug, Clone, Copy)]
enum Twist {
    Seq(u8),
    Offset(u64),
    Total(u64),
    Tag(u32),
    Fragment(u16),
    Ack(u32),
    Length(u16),
    CutTo(u8),
    Kind(bool),
}

#[derive(Arbitrary, Debug)]
enum Step {
    Right(u8),
    Wrong(u8, Twist),
    Tick,
    Advance(u16),
}

#[derive(Arbitrary, Debug)]
struct Setup {
    ordered: bool,
    own_memory: bool,
    little_memory: bool,
}

fn chunks_of(message: usize) -> usize {
    LENGTHS[message].div_ceil(CHUNK_BYTES)
}

fn chunks_in_all() -> usize {
    (0..LENGTHS.len()).map(chunks_of).sum()
}

/// Chunk `index` of all chunks in order, changed by `twist`.
fn datagram(index: usize, twist: Option<Twist>) -> Vec<u8> {
    let (mut message, mut at) = (0, index);
    while at >= chunks_of(message) {
        at -= chunks_of(message);
        message += 1;
    }
    let mut bytes = vec![0; LENGTHS[message]];
    payload::fill(&mut bytes, PEER, message as u64);
    let offset = at * CHUNK_BYTES;
    let slice = &bytes[offset..(offset + CHUNK_BYTES).min(bytes.len())];
    let mut header = Header {
        kind: Kind::Chunk,
        ack_delay: AckDelay(0),
        payload_bytes: slice.len() as u16,
        job_check: JOB.wire_check(),
        rank: PEER,
        session: JOB.session((Rank(PEER), Incarnation(PEER)), (Rank(0), Incarnation(0))),
        seq: Seq::new(FIRST_SEQ).add(index as u32),
        ack: Seq::new(0),
        tag: message as u32,
        window: 64,
        fragment: message as u16,
    };
    let mut extra = ChunkHeader { total_bytes: bytes.len() as u64, offset_bytes: offset as u64 };
    let mut cut_to = usize::MAX;
    match twist {
        None => {}
        Some(Twist::Seq(by)) => header.seq = header.seq.add(u32::from(by)),
        Some(Twist::Offset(offset)) => extra.offset_bytes = offset,
        Some(Twist::Total(total)) => extra.total_bytes = total,
        Some(Twist::Tag(tag)) => header.tag = tag,
        Some(Twist::Fragment(fragment)) => header.fragment = fragment,
        Some(Twist::Ack(ack)) => header.ack = Seq::new(ack),
        Some(Twist::Length(len)) => header.payload_bytes = len,
        Some(Twist::CutTo(len)) => cut_to = usize::from(len),
        Some(Twist::Kind(ack)) => header.kind = if ack { Kind::Ack } else { Kind::Data },
    }
    let mut out = vec![0; HEADER_BYTES + chunk::EXTRA_BYTES];
    header.write(out.first_chunk_mut().unwrap());
    extra.write(out[HEADER_BYTES..].first_chunk_mut().unwrap());
    out.extend(slice);
    out.truncate(cut_to);
    out
}

/// Which messages came, each at most once while nothing wrong was sent.
struct Seen {
    own_memory: bool,
    all_right: bool,
    order: Vec<u32>,
}

impl Handler<SimPort> for Seen {
    fn on_event(&mut self, _: &mut Context<SimPort>, event: Event<'_>) {
        let Event::Received(message) = event else { return };
        let number = message.tag.0;
        if self.all_right {
            assert!(!self.order.contains(&number), "message {number} twice");
            assert_eq!(message.bytes().len(), LENGTHS[number as usize]);
            let differs = payload::first_difference(message.bytes(), PEER, u64::from(number));
            assert_eq!(differs, None, "message {number}");
        }
        self.order.push(number);
    }

    fn destination(&mut self, _: EndpointHandle, _: Tag, len_bytes: u64) -> Option<Vec<u8>> {
        self.own_memory.then(|| vec![0; len_bytes as usize])
    }
}

fn engine(net: &SimNet, rank: u32, setup: &Setup) -> Engine<SimPort> {
    let mut config = Config::new(Rank(rank), JOB);
    config.incarnation = Incarnation(rank);
    config.first_seq = if rank == PEER { FIRST_SEQ } else { 0 };
    config.name = "fuzz".into();
    (config.peers_max, config.ranks_max, config.window_segments) = (2, 2, 64);
    (config.send_slots, config.receive_slots, config.fragments_max) = (8, 64, 16);
    config.message_bytes_max = 1 << 16;
    config.half_received_bytes_max = if setup.little_memory { 1 << 17 } else { 1 << 20 };
    config.ordered = setup.ordered;
    let port = SimPortConfig { datagram_bytes_max: DATAGRAM_BYTES, ..SimPortConfig::default() };
    Engine::new(config, net.port(port)).unwrap()
}

fn tick(engine: &mut Engine<SimPort>, seen: &mut Seen) {
    engine.tick(seen);
    engine.check_invariants().unwrap_or_else(|violation| panic!("invariant {violation}"));
}

fuzz_target!(|data: &[u8]| {
    let mut input = Unstructured::new(data);
    let Ok(setup) = Setup::arbitrary(&mut input) else { return };
    let net = SimNet::new(0, LinkModel::default());
    let mut receiver = engine(&net, 0, &setup);
    let sender = engine(&net, PEER, &setup);
    receiver.add_peer(&sender.local_address()).unwrap();
    let mut seen = Seen { own_memory: setup.own_memory, all_right: true, order: Vec::new() };
    tick(&mut receiver, &mut seen);
    let node = receiver.port().node();
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        match Step::arbitrary(&mut input) {
            Ok(Step::Right(index)) => {
                let bytes = datagram(usize::from(index) % chunks_in_all(), None);
                net.inject(node, Channel::Data, &bytes);
            }
            Ok(Step::Wrong(index, twist)) => {
                seen.all_right = false;
                let bytes = datagram(usize::from(index) % chunks_in_all(), Some(twist));
                net.inject(node, Channel::Data, &bytes);
            }
            Ok(Step::Tick) => {}
            Ok(Step::Advance(us)) => net.advance(u64::from(us) * 1_000),
            Err(_) => break,
        }
        tick(&mut receiver, &mut seen);
    }
    for index in 0..chunks_in_all() {
        net.inject(node, Channel::Data, &datagram(index, None));
        tick(&mut receiver, &mut seen);
    }
    if seen.all_right {
        if setup.ordered {
            assert!(seen.order.is_sorted(), "{:?}", seen.order);
        }
        assert_eq!(seen.order.len(), LENGTHS.len(), "{:?}", seen.order);
    }
});
