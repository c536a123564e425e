//! The whole job on this host: starts the ranks, hears them, reaps them.

use super::board::Board;
use super::line::Line;
use super::{Args, CHILD_PATIENCE};
use crate::process::{self, Spawned, say};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tickwire::bootstrap;

/// How often processes are looked after.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long ranks that others call dead may go on when nobody else is left.
const DEAD_TIME: Duration = Duration::from_secs(2);
/// How long the end of a job may take on top of what the deaths of peers do.
const END_TIME: Duration = Duration::from_secs(60);

struct Rank {
    process: Spawned,
    /// Its process has ended.
    exited: bool,
    /// Its output has.
    silent: bool,
}

/// Starts all ranks and sees them through.
pub fn run(args: &Args) -> Result<(), String> {
    let mut board = Board::new(args, (0..args.ranks).collect())?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .map_err(|error| format!("listening on loopback: {error}"))?;
    let at = listener.local_addr().map_err(|error| error.to_string())?;
    let count = args.ranks;
    std::thread::spawn(move || bootstrap::serve(listener, count, CHILD_PATIENCE));
    let (to_us, lines) = channel();
    let mut ranks = Vec::new();
    for rank in 0..count {
        let mut process = process::start(&args.child_arguments(rank, at))?;
        listen(rank, &mut process, to_us.clone());
        ranks.push(Rank { process, exited: false, silent: false });
    }
    let pids: Vec<_> = ranks.iter().map(|rank| rank.process.0.id().to_string()).collect();
    say(format_args!("processes of rank 0 to {}: {}", count - 1, pids.join(" ")))?;
    watch(args, &mut board, &mut ranks, &lines)?;
    board.finish(args)
}

/// Reads what a rank prints in a thread of its own; `None` is its end.
fn listen(rank: u32, process: &mut Spawned, to: Sender<(u32, Option<Line>)>) {
    let Some(output) = process.0.stdout.take() else { return };
    std::thread::spawn(move || {
        for text in BufReader::new(output).lines().map_while(Result::ok) {
            // A line that was cut short by the end of its process says nothing.
            if let Ok(line) = serde_json::from_str(&text) {
                let _ = to.send((rank, Some(line)));
            }
        }
        let _ = to.send((rank, None));
    });
}

fn watch(
    args: &Args,
    board: &mut Board,
    ranks: &mut [Rank],
    lines: &Receiver<(u32, Option<Line>)>,
) -> Result<(), String> {
    let limit = CHILD_PATIENCE + Duration::from_secs(args.seconds.into()) + END_TIME;
    let deadline = Instant::now() + limit + args.dead_after * 2;
    let mut only_dead_since = None;
    while !ranks.iter().all(|rank| rank.exited && rank.silent) {
        match lines.recv_timeout(LOOK_EVERY) {
            Ok((rank, Some(line))) => board.take(rank, line)?,
            Ok((rank, None)) => ranks[rank as usize].silent = true,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                look_after(board, ranks)?;
                let living = |(rank, it): (u32, &Rank)| !it.exited && !board.is_said_dead(rank);
                if (0..).zip(ranks.iter()).any(living) {
                    only_dead_since = None;
                } else if only_dead_since.get_or_insert_with(Instant::now).elapsed() > DEAD_TIME {
                    kill(board, ranks);
                }
            }
        }
        board.print_due()?;
        if board.records.iter().any(|record| record.failed.is_some()) {
            kill(board, ranks);
        }
        if Instant::now() > deadline {
            for (rank, it) in (0..).zip(ranks.iter()).filter(|(_, it)| !it.exited) {
                if let Some(record) = board.record(rank) {
                    let pid = it.process.0.id();
                    record.failed = Some(format!("its process {pid} does not end"));
                }
            }
            kill(board, ranks);
        }
    }
    board.print_due()
}

/// Notes who has ended, and how.
fn look_after(board: &mut Board, ranks: &mut [Rank]) -> Result<(), String> {
    let has_started = board.has_started();
    for (rank, it) in (0..).zip(ranks.iter_mut()).filter(|(_, it)| !it.exited) {
        let status = it.process.0.try_wait().map_err(|error| error.to_string())?;
        let (Some(status), Some(record)) = (status, board.record(rank)) else { continue };
        it.exited = true;
        record.over = true;
        if let Some(how) = ended_badly(status) {
            say(format_args!("rank {rank}, process {}: {how}", it.process.0.id()))?;
            // Only a signal kills from outside; whoever ends by itself has failed.
            if (status.signal().is_none() || !has_started) && !record.killed {
                record.failed.get_or_insert_with(|| how.clone());
            }
            record.ended_by = Some(how);
        }
    }
    Ok(())
}

fn ended_badly(status: ExitStatus) -> Option<String> {
    match status.signal() {
        Some(signal) => Some(format!("ended by signal {signal}")),
        None if !status.success() => Some(status.to_string()),
        None => None,
    }
}

fn kill(board: &mut Board, ranks: &mut [Rank]) {
    for (rank, it) in (0..).zip(ranks.iter_mut()).filter(|(_, it)| !it.exited) {
        if let Some(record) = board.record(rank) {
            record.killed = true;
        }
        // It may have ended just now.
        let _ = it.process.0.kill();
    }
}
