//! Processes that fork while messages are on their way.

mod common;

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tickwire::ports::Port;
use tickwire::ports::libfabric::{self, Libfabric, LibfabricConfig};
use tickwire::ports::udp::{Udp, UdpConfig};
use tickwire::simulation::payload;
use tickwire::{Config, Context, Engine, Event, JobKey, PeerAddress, Rank, SendError, Tag, Token};

const MESSAGES: u32 = 1024;
const MESSAGE_BYTES: usize = 1 << 20;
const WINDOW: u32 = 4;
/// Longer than any machine that is only slow.
const PATIENCE: Duration = Duration::from_secs(300);

fn open<P: Port>(
    port: P,
    rank: u32,
    ours: &Sender<PeerAddress>,
    theirs: &Receiver<PeerAddress>,
) -> (Engine<P>, tickwire::EndpointHandle) {
    let mut engine = Engine::new(Config::new(Rank(rank), JobKey(61)), port).unwrap();
    ours.send(engine.local_address()).unwrap();
    let peer = engine.add_peer(&theirs.recv().unwrap()).unwrap();
    (engine, peer)
}

fn send_all<P: Port>(engine: &mut Engine<P>, to: tickwire::EndpointHandle) {
    let mut stock = vec![vec![0; MESSAGE_BYTES]; WINDOW as usize];
    let (mut sent, mut done) = (0, 0);
    let until = Instant::now() + PATIENCE;
    while done < MESSAGES {
        while let Some(mut buffer) = stock.pop_if(|_| sent < MESSAGES) {
            payload::fill(&mut buffer, 0, sent.into());
            match engine.send_from(to, Tag(sent), buffer, Token(0)) {
                Ok(()) => sent += 1,
                Err((SendError::Again, buffer)) => {
                    stock.push(buffer);
                    break;
                }
                Err((error, _)) => panic!("{error}"),
            }
        }
        engine.tick(&mut |_: &mut Context<P>, event: Event<'_>| match event {
            Event::SendDone { buffer, .. } => {
                done += 1;
                stock.extend(buffer);
            }
            // The other side may have closed before we look at its last ack.
            Event::PeerReady { .. } | Event::PeerClosed { .. } => {}
            other => panic!("{other:?}"),
        });
        assert!(Instant::now() < until, "{done} of {sent}: {:?}", engine.counters().rows());
    }
    assert!(engine.close(&mut |_: &mut Context<P>, _: Event<'_>| {}, 10_000_000_000));
}

fn receive_all<P: Port>(engine: &mut Engine<P>) {
    let mut number = 0;
    let mut hear = |_: &mut Context<P>, event: Event<'_>| {
        let Event::Received(message) = event else { return };
        assert_eq!((message.tag, message.bytes().len()), (Tag(number), MESSAGE_BYTES));
        assert_eq!(payload::first_difference(message.bytes(), 0, number.into()), None);
        number += 1;
    };
    let until = PATIENCE.as_nanos() as u64;
    let count = MESSAGES.into();
    assert!(engine.tick_until(&mut hear, until, |c| c.counters().messages_received == count));
    assert!(engine.close(&mut hear, 10_000_000_000));
    assert_eq!(number, MESSAGES);
}

/// Starts a process every 50 ms until `done`: by fork and exec where a user is set, else as the
/// standard library likes it best (vfork). Gives their number.
fn fork_until(done: &AtomicBool) -> u32 {
    let user = std::fs::metadata("/proc/self").unwrap().uid();
    let mut count = 0;
    while !done.load(Ordering::Relaxed) {
        let mut command = Command::new("sh");
        command.args(["-c", "exit 0"]).stdin(Stdio::null());
        if count % 2 == 0 {
            command.uid(user);
        }
        assert!(command.status().unwrap().success());
        count += 1;
        std::thread::sleep(Duration::from_millis(50));
    }
    count
}

/// 1 GiB from one engine to another one in this process, which forks all the while.
fn forks_during_a_transfer<P: Port>(open_port: impl Fn() -> P + Sync) {
    let (to_a, from_b) = channel();
    let (to_b, from_a) = channel();
    let (done, forks) = (AtomicBool::new(false), AtomicU32::new(0));
    let open_port = &open_port;
    std::thread::scope(|scope| {
        let (done, forks) = (&done, &forks);
        scope.spawn(move || forks.store(fork_until(done), Ordering::Relaxed));
        let sender = scope.spawn(move || {
            let (mut engine, to) = open(open_port(), 0, &to_b, &from_b);
            send_all(&mut engine, to);
        });
        let receiver = scope.spawn(move || {
            let (mut engine, _) = open(open_port(), 1, &to_a, &from_a);
            receive_all(&mut engine);
        });
        let results = [sender.join(), receiver.join()];
        done.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
    assert!(forks.into_inner() >= 5);
}

#[test]
fn pc_61_forks_during_a_transfer_udp() {
    forks_during_a_transfer(|| Udp::open(&UdpConfig::default()).unwrap());
}

#[test]
fn pc_61_forks_during_a_transfer_libfabric() {
    if let Err(error) = libfabric::providers() {
        return common::skip("forks over libfabric", &error.to_string());
    }
    let config = LibfabricConfig { provider: Some("udp".into()), ..LibfabricConfig::default() };
    forks_during_a_transfer(|| Libfabric::open(&config).unwrap());
}
