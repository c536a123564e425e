//! How many segments a peer may have in flight, beyond what its windows allow. Pure arithmetic.
//!
//! This version knows the fixed window only; a delay-based window takes its place behind the same
//! two functions.

/// The congestion window of one peer, in segments. 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CongestionWindow {
    segments: u32,
}

impl CongestionWindow {
    /// A window of fixed size.
    pub fn fixed(segments: u32) -> Self {
        Self { segments }
    }

    /// Whether one more segment may enter the network when `in_flight` are there.
    #[inline]
    pub fn allows(&self, in_flight: u32) -> bool {
        in_flight < self.segments
    }
}
