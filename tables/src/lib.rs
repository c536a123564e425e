//! Dense tables.
#[cfg(feature = "arena")]
pub mod arena;
