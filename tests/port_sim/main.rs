//! The simulated network and the faults wrapper, through the port interface.

mod faults;
mod host;
mod links;
mod ports;
mod random;
