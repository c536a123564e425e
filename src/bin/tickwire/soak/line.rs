//! What a rank tells: one line of JSON each on its way to the parent.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Something a rank has to tell.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// All ranks are there; messages are sent from now on.
    Started,
    Second(Second),
    Death(Death),
    End(Box<End>),
    /// The rank gives up, and why.
    Failed(String),
}

/// What happened in one second of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Second {
    /// Messages received and verified.
    pub messages: u64,
    pub bytes: u64,
    /// Segments sent again.
    pub resent: u64,
    /// Datagrams dropped for any reason.
    pub drops: u64,
}

/// A peer that died.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Death {
    pub rank: u32,
    /// Its host and process.
    pub name: String,
    /// How that is known, in words.
    pub cause: String,
    /// Seconds since the first message.
    pub at_s: f64,
    /// How long it was silent, when that was the cause.
    pub silent_ms: Option<u64>,
}

/// How a rank ended that did all it should.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct End {
    pub messages: u64,
    pub bytes: u64,
    /// Whether all peers said goodbye in time.
    pub closed: bool,
    /// The libfabric provider.
    pub provider: Option<String>,
    pub counters: Value,
    /// What `--faults` did.
    pub faults: Option<Value>,
}
