//! After warm-up the data path allocates nothing, loss or no loss.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use tickwire::ports::sim::{LinkModel, SimNet, SimPortConfig};
use tickwire::{Config, Context, Engine, Event, JobKey, Rank, Tag, Token};

struct Counting;

thread_local! {
    /// Of this thread: tests run side by side.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is left to the system's allocator; counting has no influence on it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Sends `messages` small ones and a large one for every hundred, and waits for all.
fn exchange(
    net: &SimNet,
    engines: &mut [Engine<tickwire::ports::sim::SimPort>; 2],
    spare: &mut Option<Vec<u8>>,
    messages: u64,
) {
    let to = engines[0].peer(Rank(1)).unwrap();
    let (mut sent, mut got, mut large) = (0, 0, 0);
    while got < messages + large || !engines[0].is_drained(to) || spare.is_none() {
        for _ in 0..32 {
            if sent < messages && engines[0].send_copy(to, Tag(1), &[9; 200]).is_ok() {
                sent += 1;
            }
        }
        if sent % 100 == 0
            && sent < messages
            && let Some(buffer) = spare.take()
        {
            match engines[0].send_from(to, Tag(2), buffer, Token(1)) {
                Ok(()) => large += 1,
                Err((_, buffer)) => *spare = Some(buffer),
            }
        }
        engines[0].tick(&mut |_: &mut Context<_>, event: Event<'_>| {
            if let Event::SendDone { buffer, .. } = event {
                *spare = buffer;
            }
        });
        engines[1].tick(&mut |_: &mut Context<_>, event: Event<'_>| {
            got += u64::from(matches!(event, Event::Received(_)));
        });
        net.advance(5_000);
        assert!(net.now() < 60_000_000_000, "stuck at {got} of {messages}");
    }
}

#[test]
fn the_data_path_allocates_nothing_after_warm_up() {
    for loss in [0.0, 0.03] {
        let model = LinkModel { latency_ns: 10_000, loss, ..LinkModel::default() };
        let net = SimNet::new(3, model);
        let mut engines = [0, 1].map(|rank| {
            let config = Config::new(Rank(rank), JobKey(1));
            Engine::new(config, net.port(SimPortConfig::default())).unwrap()
        });
        let addresses = engines.each_ref().map(|engine| engine.local_address());
        engines[0].add_peer(&addresses[1]).unwrap();
        engines[1].add_peer(&addresses[0]).unwrap();
        let mut spare = Some(vec![3; 100_000]);
        // The warm-up also lets the simulated network reach its largest size.
        exchange(&net, &mut engines, &mut spare, 20_000);
        let before = ALLOCATIONS.get();
        exchange(&net, &mut engines, &mut spare, 10_000);
        let during = ALLOCATIONS.get() - before;
        assert_eq!(during, 0, "allocations in 10 000 messages at loss {loss}");
    }
}

/// Strangers cost no memory: random datagrams, and ones with the right job key.
#[test]
fn strangers_cost_no_memory() {
    use rand_core::{RngCore, SeedableRng};
    use tickwire::ports::Channel;
    use tickwire::wire::VERSION;
    let mut dice = rand_chacha::ChaCha8Rng::seed_from_u64(47);
    let net = SimNet::new(47, LinkModel::default());
    let mut engine =
        Engine::new(Config::new(Rank(0), JobKey(1)), net.port(SimPortConfig::default())).unwrap();
    let mut address = engine.local_address();
    address.rank = Rank(1);
    engine.add_peer(&address).unwrap();
    engine.tick(&mut |_: &mut Context<_>, _: Event<'_>| {});
    let mut bytes = [0; 1472];
    let mut before = 0;
    for i in 0..20_000u32 {
        if i == 1_000 {
            before = ALLOCATIONS.get();
        }
        dice.fill_bytes(&mut bytes);
        if i % 2 == 0 {
            bytes[0] = VERSION << 4 | (bytes[0] & 7);
            bytes[2..4].fill(0);
            bytes[4..8].copy_from_slice(&JobKey(1).wire_check().to_le_bytes());
            bytes[8..12].copy_from_slice(&(i / 2 % 3).to_le_bytes());
        }
        net.inject(0, Channel::ALL[(i % 2) as usize], &bytes[..(i % 1473) as usize]);
        engine.tick(&mut |_: &mut Context<_>, event: Event<'_>| panic!("{event:?}"));
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert_eq!(engine.counters().drops(), 20_000);
    assert_eq!((net.counters().sent, net.in_flight()), (0, 0));
}
