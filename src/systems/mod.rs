//! The stages of the tick, one file each, in the order in which they run. None calls another:
//! each leaves rows on a work list for those after it.

pub(crate) mod ack;
pub(crate) mod chunk_pack;
pub(crate) mod poll_cq;
pub(crate) mod reap_av;
pub(crate) mod resend;
pub(crate) mod send;
