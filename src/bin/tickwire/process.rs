//! Processes that a command starts, and what they print.

use crate::key;
use std::io::Write;
use std::process::{Child, Command, Stdio};

/// A process of our own, ended with us in every outcome.
pub struct Spawned(pub Child);

impl Drop for Spawned {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts this program anew with `args`. Its output comes through a pipe, and it ends when we do:
/// see [`end_with_parent`].
pub fn start(args: &[String]) -> Result<Spawned, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let key = key::get().map(|key| (key::VARIABLE, key.to_hex()));
    Command::new(program)
        .envs(key)
        .args(args)
        .arg("--child")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map(Spawned)
        .map_err(|error| format!("starting a process of the job: {error}"))
}

/// The parent holds our standard input: when it closes, nobody needs us any more.
pub fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(3);
    });
}

/// Prints a line; an error, not a panic, when nobody reads any more.
pub fn say(line: std::fmt::Arguments<'_>) -> Result<(), String> {
    writeln!(std::io::stdout(), "{line}").map_err(|error| format!("standard output: {error}"))
}
