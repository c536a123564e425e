//! The command `tickwire`.

mod info;
mod key;
mod open;
mod options;
mod pingpong;
mod process;
mod simulate;
mod soak;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Reliable microsecond messages over unreliable datagrams.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure half round trips and bandwidth between two processes, every byte verified
    Pingpong(Box<pingpong::Args>),
    /// Exchange checked messages between many processes for a time, and tell what they see
    Soak(Box<soak::Args>),
    /// Play a scenario file, or a campaign of random faults, on the real engine in virtual time
    Simulate(Box<simulate::Args>),
    /// List ports and libfabric providers with their limits, and why something is unusable
    Info(info::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Pingpong(args) => pingpong::run(&args),
        Command::Soak(args) => soak::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Info(args) => info::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tickwire: {error}");
            ExitCode::FAILURE
        }
    }
}
