//! `tickwire soak`: many processes exchange checked messages for a time and tell what they see.

mod board;
mod line;
mod parent;
mod pattern;
mod rank;
mod traffic;

use crate::open::with_port;
use crate::options::{JobArgs, PortName, parse_duration, parse_size};
use crate::process;
use board::Board;
use line::Line;
use pattern::Pattern;
use rank::{RankJob, Teller};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;
use tickwire::bootstrap;

/// How long the ranks of several hosts may take to come.
const PATIENCE: Duration = Duration::from_secs(600);
/// And those that this process starts.
const CHILD_PATIENCE: Duration = Duration::from_secs(60);

/// Options of `soak`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    job: JobArgs,
    /// Processes of the job
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=4096))]
    ranks: u32,
    /// How long messages are sent
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Message sizes in turn, such as 8,4K,1M
    #[arg(
        long,
        visible_alias = "size",
        value_delimiter = ',',
        value_parser = parse_size,
        default_value = "8KiB"
    )]
    sizes: Vec<usize>,
    /// Who sends to whom
    #[arg(long, value_enum, default_value = "all")]
    pattern: Pattern,
    /// Messages on their way to each partner
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    window: u32,
    /// A peer that is silent for so long is dead
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    dead_after: Duration,
    /// Deaths are expected: no failure if all else is verified
    #[arg(long)]
    survive: bool,
    /// Write what was seen as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Several hosts: run this rank alone; rank 0 waits for the others at --meet
    #[arg(long, requires = "meet")]
    rank: Option<u32>,
    /// Several hosts: where rank 0 is
    #[arg(long, value_name = "HOST:PORT", requires = "rank")]
    meet: Option<String>,
}

impl Args {
    fn refuse_senseless(&self) -> Result<(), String> {
        self.job.set_up(self.meet.is_none())?;
        if self.job.port == PortName::Sim {
            return Err("soak runs real processes: --port udp or libfabric".into());
        }
        if self.pattern == Pattern::Pairs && !self.ranks.is_multiple_of(2) {
            return Err(format!("--pattern pairs with {} ranks: one would be alone", self.ranks));
        }
        if self.rank.is_some_and(|rank| rank >= self.ranks) {
            return Err(format!("--rank is below --ranks, which is {}", self.ranks));
        }
        Ok(())
    }

    /// The options of `rank`, started by this process, which meets the others at `at`.
    fn child_arguments(&self, rank: u32, at: SocketAddr) -> Vec<String> {
        let sizes: Vec<_> = self.sizes.iter().map(ToString::to_string).collect();
        let mut out = vec!["soak".to_owned(), format!("--rank={rank}"), format!("--meet={at}")];
        out.push(format!("--ranks={}", self.ranks));
        out.push(format!("--seconds={}", self.seconds));
        out.push(format!("--sizes={}", sizes.join(",")));
        out.push(format!("--pattern={}", self.pattern.as_str()));
        out.push(format!("--window={}", self.window));
        out.push(format!("--dead-after={}ms", self.dead_after.as_millis()));
        if let Some(bind) = self.job.bind {
            out.push(format!("--bind={bind}"));
        }
        out.extend(self.job.arguments());
        out
    }
}

/// Runs the whole job, or one rank of it.
pub fn run(args: &Args) -> Result<(), String> {
    args.refuse_senseless()?;
    let (Some(rank), Some(meet)) = (args.rank, &args.meet) else { return parent::run(args) };
    if args.job.child {
        process::end_with_parent();
        let at = resolve(meet)?;
        let mut teller = Teller::Parent;
        let result = run_rank(args, rank, at, CHILD_PATIENCE, &mut teller);
        // The parent says it; when nobody reads any more, nobody needs to know.
        return result.or_else(|why| teller.tell(rank, Line::Failed(why)));
    }
    let at = resolve(meet)?;
    let board = Board::new(args, vec![rank])?;
    if rank == 0 {
        let listener =
            TcpListener::bind(at).map_err(|error| format!("listening at {at}: {error}"))?;
        let ranks = args.ranks;
        // It serves until all have left; nothing waits for it.
        std::thread::spawn(move || bootstrap::serve(listener, ranks, PATIENCE));
    }
    let mut teller = Teller::Board(Box::new(board));
    run_rank(args, rank, at, PATIENCE, &mut teller)?;
    match teller {
        Teller::Board(board) => board.finish(args),
        Teller::Parent => Ok(()),
    }
}

fn run_rank(
    args: &Args,
    rank: u32,
    at: SocketAddr,
    patience: Duration,
    teller: &mut Teller,
) -> Result<(), String> {
    with_port(&args.job, rank, RankJob { args, rank, at, patience, teller })
}

fn resolve(meet: &str) -> Result<SocketAddr, String> {
    let mut found = meet.to_socket_addrs().map_err(|error| format!("--meet {meet}: {error}"))?;
    found.next().ok_or_else(|| format!("--meet {meet}: no such host"))
}
