//! The tables: one file each. They know each other's rows, no port and no protocol.

pub(crate) mod buffers;
pub(crate) mod directory;
pub(crate) mod endpoints;
pub(crate) mod flights;
pub(crate) mod fragments;
pub(crate) mod rail;
pub(crate) mod segments;
pub(crate) mod worklists;
