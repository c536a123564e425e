//! After warm-up the data path allocates nothing, loss or no loss.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use tickwire::ports::sim::{LinkModel, SimNet, SimPortConfig};
use tickwire::{Config, Context, Engine, Event, JobKey, Rank, Tag, Token};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is left to the system's allocator; counting has no influence on it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
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
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        exchange(&net, &mut engines, &mut spare, 10_000);
        let during = ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert_eq!(during, 0, "allocations in 10 000 messages at loss {loss}");
    }
}
