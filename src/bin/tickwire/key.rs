//! The key of the job's tags (`--authenticate`): made by the process that starts the others and
//! handed to them in the environment, which only their user can read; never on a command line,
//! which everybody on the host can.

use std::sync::OnceLock;
use tickwire::AuthKey;

/// Where processes find it.
pub const VARIABLE: &str = "TICKWIRE_KEY";

static KEY: OnceLock<AuthKey> = OnceLock::new();

/// Finds the key, or makes it where this process starts all others (`makes_it`).
pub fn set_up(makes_it: bool) -> Result<(), String> {
    let key = match std::env::var(VARIABLE) {
        Ok(text) => AuthKey::from_hex(text.trim())
            .ok_or_else(|| format!("{VARIABLE} is not 32 hexadecimal digits"))?,
        Err(_) if makes_it => {
            AuthKey::generate().map_err(|error| format!("making a key: {error}"))?
        }
        Err(_) => {
            return Err(format!(
                "--authenticate between hosts: {VARIABLE} must hold the key, the same on all (32 \
                 hexadecimal digits, such as from `openssl rand -hex 16`)"
            ));
        }
    };
    KEY.get_or_init(|| key);
    Ok(())
}

/// The key, if the job has one.
pub fn get() -> Option<&'static AuthKey> {
    KEY.get()
}
