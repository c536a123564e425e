//! Reliable messages over unreliable datagrams.
pub mod bootstrap;
pub mod ports;
pub mod time;
