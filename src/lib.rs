//! Reliable messages over unreliable datagrams.
pub mod ports;
pub mod time;
