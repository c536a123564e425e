//! Peers that come and go, and whose memory messages live in.

use tickwire::ports::sim::{LinkModel, SimNet, SimPort, SimPortConfig};
use tickwire::simulation::payload;
use tickwire::{
    Config, Context, EndpointHandle, Engine, Event, Handler, Incarnation, JobKey, Message, Rank,
    SendError, Tag, Token,
};

type SimEngine = Engine<SimPort>;

fn net() -> SimNet {
    SimNet::new(9, LinkModel { latency_ns: 10_000, loss: 0.05, ..LinkModel::default() })
}

fn open(net: &SimNet, rank: u32, incarnation: u32, slow_sends: bool) -> SimEngine {
    let mut config = Config::new(Rank(rank), JobKey(3));
    config.incarnation = Incarnation(incarnation);
    let port = SimPortConfig {
        sends_complete_at_post: !slow_sends,
        send_completion_delay_ns: if slow_sends { 30_000 } else { 0 },
        async_insert: slow_sends,
        ..SimPortConfig::default()
    };
    Engine::new(config, net.port(port)).unwrap()
}

#[derive(Default)]
struct Ear {
    /// From whom, which number, how long.
    heard: Vec<(EndpointHandle, u32, usize)>,
    done: Vec<Token>,
    failed: Vec<(Token, usize)>,
    ready: Vec<EndpointHandle>,
    /// Memory offered for large messages.
    offer: Option<Vec<u8>>,
    taken: Vec<Vec<u8>>,
}

impl Handler<SimPort> for Ear {
    fn on_event(&mut self, context: &mut Context<SimPort>, event: Event<'_>) {
        match event {
            Event::Received(message) => {
                let source = context.rank(message.from).unwrap().0;
                let (number, len) = (message.tag.0, message.bytes().len());
                let wrong = payload::first_difference(message.bytes(), source, number.into());
                assert_eq!(wrong, None, "message {number} of {source}");
                self.heard.push((message.from, number, len));
                self.keep(message);
            }
            Event::SendDone { token, .. } => self.done.push(token),
            Event::SendFailed { token, buffer, .. } => {
                self.failed.push((token, buffer.map_or(0, |buffer| buffer.len())));
            }
            Event::PeerReady { peer } => self.ready.push(peer),
            other => panic!("{other:?}"),
        }
    }

    fn destination(&mut self, _: EndpointHandle, _: Tag, _: u64) -> Option<Vec<u8>> {
        self.offer.take()
    }
}

impl Ear {
    fn keep(&mut self, message: Message<'_>) {
        self.taken.push(message.take());
    }
}

fn contents(source: u32, number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    payload::fill(&mut bytes, source, number.into());
    bytes
}

/// Ticks all until `done`; the invariants hold at each step.
fn run(
    net: &SimNet,
    engines: &mut [SimEngine],
    ears: &mut [Ear],
    mut done: impl FnMut(&[SimEngine], &[Ear]) -> bool,
) {
    for _ in 0..200_000 {
        for (engine, ear) in engines.iter_mut().zip(ears.iter_mut()) {
            engine.tick(ear);
            engine.check_invariants().unwrap();
        }
        if done(engines, ears) {
            return;
        }
        net.advance(1_000);
    }
    panic!("stuck: {:?}", engines.iter().map(|e| e.counters().rows()).collect::<Vec<_>>());
}

/// A peer is removed in the middle of everything, at many moments: what it held comes back, its
/// sends fail, once each; a neighbour notices nothing; a successor of the same rank is new.
#[test]
fn a_removed_peer_takes_nothing_with_it() {
    for moment in 0..40u32 {
        let net = net();
        let slow = moment % 2 == 1;
        let mut engines = [0, 1, 2].map(|rank| open(&net, rank, rank + 1, slow));
        let mut ears: [Ear; 3] = Default::default();
        let addresses = engines.each_ref().map(|engine| engine.local_address());
        for (rank, engine) in engines.iter_mut().enumerate() {
            let others = addresses.iter().filter(|a| a.rank.0 as usize != rank);
            assert!(engine.add_peers(others).iter().all(Result::is_ok));
        }
        let mut sent = 0;
        for number in 0..60 {
            for (from, to) in [(0, 1), (1, 0), (2, 0)] {
                let len = if number % 4 == 0 { 20_000 } else { 300 };
                let peer = engines[from].peer(Rank(to)).unwrap();
                let bytes = contents(from as u32, number, len);
                let token = Token(u64::from(number));
                engines[from].send_from(peer, Tag(number), bytes, token).unwrap();
                sent += usize::from(from == 0);
            }
        }
        let mut ticks = 0;
        run(&net, &mut engines, &mut ears, |_, _| {
            ticks += 1;
            ticks > moment * 6
        });

        let gone = engines[0].peer(Rank(1)).unwrap();
        engines[0].remove_peer(gone, &mut ears[0]).unwrap();
        engines[0].check_invariants().unwrap();
        assert_eq!(engines[0].send_copy(gone, Tag(0), b"x"), Err(SendError::NoPeer));
        assert_eq!(engines[0].remove_peer(gone, &mut ears[0]), Err(SendError::NoPeer));
        assert!(engines[0].is_drained(gone) && !engines[0].is_ready(gone));
        // Rank 2 gets everything through; every send to the removed peer is over, once.
        run(&net, &mut engines, &mut ears, |_, ears| {
            ears[2].done.len() == 60 && ears[0].done.len() + ears[0].failed.len() == sent
        });
        assert!(ears[0].failed.iter().all(|&(_, len)| len == 300 || len == 20_000));

        // The same rank comes back as a new process; its predecessor's datagrams do not count.
        let before = engines[0].counters().clone();
        let mut successor = open(&net, 1, 77, slow);
        let new = engines[0].add_peer(&successor.local_address()).unwrap();
        assert_ne!(new, gone);
        let back = successor.add_peer(&engines[0].local_address()).unwrap();
        successor.alloc(back, 4).unwrap().copy_from_slice(&[0; 4]); // never sent: gives it back
        let mut message = successor.alloc(back, 8).unwrap();
        payload::fill(&mut message, 1, 5);
        message.send_with_token(Tag(5), Token(500)).unwrap();
        let old = std::mem::replace(&mut engines[1], successor);
        drop(std::mem::take(&mut ears[1]));
        run(&net, &mut engines, &mut ears, |_, ears| ears[1].done == [Token(500)]);
        assert_eq!(ears[0].heard.last(), Some(&(new, 5, 8)));
        assert!(engines[0].is_ready(new), "moment {moment}: {before:?}");
        drop(old);
    }
}

#[test]
fn datagrams_of_a_predecessor_are_counted_and_dropped() {
    let net = net();
    let mut engines = [0, 1].map(|rank| open(&net, rank, rank + 1, false));
    let mut ears: [Ear; 2] = Default::default();
    let addresses = engines.each_ref().map(|engine| engine.local_address());
    let old = engines[0].add_peer(&addresses[1]).unwrap();
    let back = engines[1].add_peer(&addresses[0]).unwrap();
    engines[0].remove_peer(old, &mut ears[0]).unwrap();
    let mut address = addresses[1].clone();
    address.incarnation = Incarnation(99);
    engines[0].add_peer(&address).unwrap();
    engines[1].send_copy(back, Tag(0), &contents(1, 0, 10)).unwrap();
    run(&net, &mut engines, &mut ears, |engines, _| engines[0].counters().drops_wrong_session > 2);
    assert!(ears[0].heard.is_empty());
}

/// A large message is assembled in the memory that the handler names, and handed over with it.
#[test]
fn a_large_message_arrives_in_the_memory_named_for_it() {
    let net = net();
    let mut engines = [0, 1].map(|rank| open(&net, rank, rank + 1, false));
    let addresses = engines.each_ref().map(|engine| engine.local_address());
    let to = engines[0].add_peer(&addresses[1]).unwrap();
    engines[1].add_peer(&addresses[0]).unwrap();
    let mut ears: [Ear; 2] = Default::default();
    let offer = vec![0; 60_000];
    let place = offer.as_ptr();
    ears[1].offer = Some(offer);
    for (number, len) in [(0, 50_000), (1, 50_000), (2, 10)] {
        engines[0].send_copy(to, Tag(number), &contents(0, number, len)).unwrap();
    }
    run(&net, &mut engines, &mut ears, |_, ears| ears[1].taken.len() == 3);
    let taken = &ears[1].taken;
    assert_eq!(taken.iter().map(Vec::len).collect::<Vec<_>>(), [50_000, 50_000, 10]);
    assert_eq!(taken[0].as_ptr(), place, "the first one was copied");
    assert!((0..3).all(|n| taken[n as usize] == contents(0, n, taken[n as usize].len())));
}

/// A process restarts on its address: that goes into the port when its predecessor's has gone, as
/// an address vector may hold the two as one. Without a predecessor it goes in at once.
#[test]
fn an_address_goes_in_behind_its_predecessors_burial() {
    let net = net();
    let mut engines = [0, 1].map(|rank| open(&net, rank, rank + 1, false));
    let mut ear = Ear::default();
    let address = engines[1].local_address();
    let old = engines[0].add_peer(&address).unwrap();
    assert!(engines[0].is_ready(old), "at once");
    let mut restarted = address.clone();
    restarted.incarnation = Incarnation(77);
    let new = engines[0].add_peer(&restarted).unwrap();
    assert!(!engines[0].is_ready(new) && !engines[0].is_ready(old));
    engines[0].tick(&mut |c: &mut Context<SimPort>, event: Event<'_>| match event {
        Event::PeerDead { peer, .. } => assert!(peer == old && !c.is_ready(new)),
        event => ear.on_event(c, event),
    });
    assert_eq!(ear.ready, [old, new][1..]);
    assert!(engines[0].is_ready(new));
}
