//! The rail: the port, what is posted to it, and the batch about to be.

use crate::ids::SegmentRow;
use crate::ports::{Channel, Port, SendOp};
use arrayvec::ArrayVec;

/// Operations collected for one port call.
pub(crate) const BATCH: usize = 64;

pub(crate) struct Rail<P> {
    pub port: P,
    /// Sends that the port has taken and not completed, per channel.
    pub posted: [u32; 2],
    pub depth: u32,
    pub data_batch: ArrayVec<SendOp, BATCH>,
    /// The segment of each operation in `data_batch`.
    pub data_batch_segs: ArrayVec<SegmentRow, BATCH>,
}

impl<P: Port> Rail<P> {
    pub fn new(port: P, depth: u32) -> Self {
        Self {
            port,
            posted: [0; 2],
            depth: depth.max(1),
            data_batch: ArrayVec::new(),
            data_batch_segs: ArrayVec::new(),
        }
    }

    /// How many more sends the port's queue takes.
    #[inline]
    pub fn room(&self, channel: Channel) -> u32 {
        let batched = if channel == Channel::Data { self.data_batch.len() as u32 } else { 0 };
        self.depth.saturating_sub(self.posted[channel as usize] + batched)
    }
}
