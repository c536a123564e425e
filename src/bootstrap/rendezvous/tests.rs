use super::*;
use std::thread::{JoinHandle, spawn};

const LONG: Duration = Duration::from_secs(20);

type Served = JoinHandle<Result<(), BootstrapError>>;

fn start(ranks: u32, timeout: Duration) -> (SocketAddr, Served) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (address, spawn(move || serve(listener, ranks, timeout)))
}

fn join_in_thread(
    address: SocketAddr,
    rank: Option<u32>,
    blob: Vec<u8>,
    timeout: Duration,
) -> JoinHandle<Result<Joined, BootstrapError>> {
    spawn(move || join(address, rank, &blob, timeout))
}

fn pause() {
    sleep(Duration::from_millis(50));
}

#[test]
fn everybody_gets_everybodys_blob_and_meets_at_barriers() {
    let (address, server) = start(7, LONG);
    let threads: Vec<_> = (0..7u32)
        .map(|rank| {
            spawn(move || {
                let blob = vec![rank as u8; rank as usize * 10_000];
                let mut joined = join(address, Some(rank), &blob, LONG).unwrap();
                assert_eq!((joined.rank, joined.ranks), (rank, 7));
                for (rank, blob) in joined.blobs.iter().enumerate() {
                    assert_eq!(*blob, vec![rank as u8; rank * 10_000]);
                }
                (0..20).for_each(|_| joined.barrier().unwrap());
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    server.join().unwrap().unwrap();
}

#[test]
fn a_barrier_holds_until_the_last_one_comes() {
    let (address, server) = start(2, LONG);
    let other = join_in_thread(address, Some(1), vec![], LONG);
    let mut first = join(address, Some(0), &[], LONG).unwrap();
    let mut second = other.join().unwrap().unwrap();
    let start = Instant::now();
    let late = spawn(move || {
        sleep(Duration::from_millis(200));
        second.barrier().unwrap();
    });
    first.barrier().unwrap();
    assert!(start.elapsed() >= Duration::from_millis(200));
    late.join().unwrap();
    drop(first);
    server.join().unwrap().unwrap();
}

#[test]
fn those_without_a_rank_get_what_is_left() {
    let (address, server) = start(5, LONG);
    let threads: Vec<_> = [Some(3), None, Some(0), None, None]
        .into_iter()
        .map(|rank| (rank, join_in_thread(address, rank, vec![rank.unwrap_or(99) as u8], LONG)))
        .collect();
    let mut ranks = Vec::new();
    for (wish, thread) in threads {
        let joined = thread.join().unwrap().unwrap();
        assert!(wish.is_none_or(|wish| joined.rank == wish));
        assert_eq!(joined.blobs, [vec![0], vec![99], vec![99], vec![3], vec![99]]);
        ranks.push(joined.rank);
    }
    ranks.sort_unstable();
    assert_eq!(ranks, [0, 1, 2, 3, 4]);
    server.join().unwrap().unwrap();
}

#[test]
fn strangers_neither_block_nor_break_the_others() {
    let (address, server) = start(2, LONG);
    // A scanner that hangs up, silent ones, garbage, half a preamble, a hostile length, and one
    // that floods.
    drop(TcpStream::connect(address).unwrap());
    let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut garbage = TcpStream::connect(address).unwrap();
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(&frame::preamble()[..7]).unwrap();
    let mut hostile = TcpStream::connect(address).unwrap();
    hostile.write_all(&frame::preamble()).unwrap();
    hostile.write_all(&[Kind::Hello as u8, 0xff, 0xff, 0xff, 0xff]).unwrap();
    let mut early = TcpStream::connect(address).unwrap();
    early.write_all(&frame::preamble()).unwrap();
    early.write_all(&[Kind::Barrier as u8, 0, 0, 0, 0]).unwrap();
    let flood = spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        let noise = vec![0xa5; 1 << 16];
        while stream.write_all(&noise).is_ok() {}
    });
    let start = Instant::now();
    let other = join_in_thread(address, None, b"b".to_vec(), LONG);
    let mut one = join(address, None, b"b", LONG).unwrap();
    let mut two = other.join().unwrap().unwrap();
    assert!(start.elapsed() < Duration::from_secs(4), "nobody waited for a stranger");
    assert_eq!(one.blobs, [b"b", b"b"]);
    let other = spawn(move || two.barrier());
    one.barrier().unwrap();
    other.join().unwrap().unwrap();
    flood.join().unwrap();
    // Garbage gets no answer, a broken protocol gets one.
    assert!(matches!(garbage.read(&mut [0; 64]), Ok(0) | Err(_)));
    let mut answer = Vec::new();
    let _ = hostile.read_to_end(&mut answer);
    assert!(String::from_utf8_lossy(&answer).contains("Hello frame of 4294967295 bytes"));
    answer.clear();
    let _ = early.read_to_end(&mut answer);
    assert!(String::from_utf8_lossy(&answer).contains("Barrier frame out of turn"));
    drop((one, silent));
    server.join().unwrap().unwrap();
}

#[test]
fn the_server_names_the_missing_ranks_and_tells_those_who_came() {
    let (address, server) = start(5, Duration::from_millis(400));
    let came = [1, 3].map(|rank| join_in_thread(address, Some(rank), vec![], LONG));
    let text = server.join().unwrap().unwrap_err().to_string();
    assert!(text.contains("3 of 5 ranks are missing: ranks 0, 2, 4"), "{text}");
    for thread in came {
        let text = thread.join().unwrap().unwrap_err().to_string();
        assert!(text.contains("ranks 0, 2, 4 did not come"), "{text}");
    }
}

#[test]
fn missing_ranks_are_told_apart_from_unnumbered_ones() {
    let (address, server) = start(4, Duration::from_millis(400));
    let came = [None, Some(2)].map(|rank| join_in_thread(address, rank, vec![], LONG));
    let text = server.join().unwrap().unwrap_err().to_string();
    assert!(text.contains("2 of ranks 0, 1, 3 (1 came without a number)"), "{text}");
    came.into_iter().for_each(|thread| assert!(thread.join().unwrap().is_err()));
}

#[test]
fn a_process_whose_own_time_is_over_learns_who_is_missing() {
    let (address, server) = start(3, LONG);
    let text = join(address, Some(1), &[], Duration::from_millis(200)).unwrap_err().to_string();
    assert!(text.contains("ranks 0, 2 did not come"), "{text}");
    // Its rank is free again for another attempt.
    let threads = [0, 1, 2].map(|rank| join_in_thread(address, Some(rank), vec![], LONG));
    let joined = threads.map(|thread| thread.join().unwrap().unwrap());
    drop(joined);
    server.join().unwrap().unwrap();
}

#[test]
fn barriers_end_with_an_error_that_names_who_is_late_or_left() {
    let (address, server) = start(3, LONG);
    let late = Duration::from_millis(300);
    let threads = [(0, late), (1, LONG), (2, LONG)]
        .map(|(rank, timeout)| join_in_thread(address, Some(rank), vec![], timeout));
    let [mut zero, mut one, two] = threads.map(|thread| thread.join().unwrap().unwrap());
    let text = zero.barrier().unwrap_err().to_string();
    assert!(text.contains("ranks 1, 2 did not come to the barrier"), "{text}");
    let text = one.barrier().unwrap_err().to_string();
    assert!(text.contains("rank 0 left the job"), "{text}");
    assert!(one.barrier().is_err(), "the membership is over");
    drop(two);
    server.join().unwrap().unwrap();
}

#[test]
fn impossible_ranks_are_refused_by_name() {
    let (address, server) = start(2, LONG);
    let zero = join_in_thread(address, Some(0), vec![], LONG);
    pause();
    let text = join(address, Some(0), &[], LONG).unwrap_err().to_string();
    assert!(text.contains("rank 0 is taken already, by 127.0.0.1:"), "{text}");
    let text = join(address, Some(2), &[], LONG).unwrap_err().to_string();
    assert!(text.contains("rank 2 is not in a job of 2 ranks"), "{text}");
    let one = join(address, Some(1), &[], LONG).unwrap();
    let text = join(address, None, &[], LONG).unwrap_err().to_string();
    assert!(text.contains("all 2 ranks are there already"), "{text}");
    drop((one, zero.join().unwrap().unwrap()));
    server.join().unwrap().unwrap();
}

#[test]
fn a_process_that_died_before_the_start_may_be_replaced() {
    let (address, server) = start(2, LONG);
    let mut dead = TcpStream::connect(address).unwrap();
    let mut hello = frame::preamble().to_vec();
    frame::push_hello(&mut hello, Some(0), b"old");
    dead.write_all(&hello).unwrap();
    pause();
    drop(dead);
    pause();
    let zero = join_in_thread(address, Some(0), b"new".to_vec(), LONG);
    let one = join(address, Some(1), b"one", LONG).unwrap();
    assert_eq!(one.blobs, [b"new", b"one"]);
    drop((one, zero.join().unwrap().unwrap()));
    server.join().unwrap().unwrap();
}

#[test]
fn joining_waits_for_a_server_that_comes_later() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap();
    drop(holder);
    let early = join_in_thread(address, None, b"x".to_vec(), LONG);
    sleep(Duration::from_millis(200));
    let listener = TcpListener::bind(address).unwrap();
    let server = spawn(move || serve(listener, 1, LONG));
    assert_eq!(early.join().unwrap().unwrap().blobs, [b"x"]);
    server.join().unwrap().unwrap();
}

#[test]
fn nobody_listening_and_somebody_else_listening_are_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let talker = spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"SSH-").unwrap();
        let _ = stream.read(&mut [0; 256]);
        let (mut stream, _) = listener.accept().unwrap();
        let mut newer = frame::preamble();
        newer[8] = 2;
        stream.write_all(&newer).unwrap();
        let _ = stream.read(&mut [0; 256]);
    });
    let text = join(address, None, &[], LONG).unwrap_err().to_string();
    assert!(text.contains("does not begin as a rendezvous"), "{text}");
    let text = join(address, None, &[], LONG).unwrap_err().to_string();
    assert!(text.contains("speaks version 2, this one version 1"), "{text}");
    talker.join().unwrap();
    let short = Duration::from_millis(100);
    let text = join(address, None, &[], short).unwrap_err().to_string();
    assert!(text.contains("no rendezvous at") && text.contains("refused"), "{text}");
}

#[test]
fn another_version_is_told_ours() {
    let (address, server) = start(1, Duration::from_millis(500));
    let mut newer = frame::preamble();
    newer[8] = 9;
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&newer).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer[..frame::PREAMBLE_BYTES], frame::preamble());
    assert!(String::from_utf8_lossy(&answer).contains("version 9"));
    assert!(server.join().unwrap().is_err());
}

#[test]
fn limits_are_checked_before_anything_is_sent() {
    let nowhere = "127.0.0.1:1".parse().unwrap();
    let blob = vec![0; BLOB_BYTES_MAX + 1];
    let text = join(nowhere, None, &blob, LONG).unwrap_err().to_string();
    assert!(text.contains("65537 bytes is too long"), "{text}");
    for ranks in [0, RANKS_MAX + 1] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = serve(listener, ranks, LONG).unwrap_err();
        assert!(matches!(error, BootstrapError::RanksOutOfRange { .. }));
    }
    let (address, server) = start(1, LONG);
    let blob = vec![7; BLOB_BYTES_MAX];
    assert_eq!(join(address, None, &blob, LONG).unwrap().blobs, [blob]);
    server.join().unwrap().unwrap();
}
