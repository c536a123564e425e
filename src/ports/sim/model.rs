//! What a simulated link does to datagrams, what a tap may do, and what is counted.

use crate::ports::Channel;
use crate::time::{MICROS, Nanos};
use serde::Serialize;

/// The number of a node in its network: 0, 1, 2 ... in the order of creation.
pub type NodeNumber = u32;

/// Loss in bursts (Gilbert and Elliott): a link is either in a burst or not, and changes its
/// state with the given probabilities once per datagram. Off while `p_enter` is 0.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct BurstLoss {
    /// Probability that a burst begins with a datagram.
    pub p_enter: f64,
    /// Probability that a burst is over before a datagram.
    pub p_leave: f64,
    /// Probability that a datagram in a burst is lost.
    pub loss_in_burst: f64,
}

/// How datagrams fare between an ordered pair of nodes. The default has no delay and no fault.
///
/// The stages, in order: loss, burst loss, corruption, duplication, holding back (reordering),
/// the sender's link, latency with jitter and spikes, the receiver's link with its queue. A
/// datagram of `n` bytes on an idle network thus takes `2 * n / bytes_per_s + latency_ns`. Links
/// are full duplex and shared by all that a node sends, respectively receives, on both channels.
/// Probabilities are fractions from 0 to 1; one that is 0 costs no random draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkModel {
    /// Delay of each datagram between the two links.
    pub latency_ns: Nanos,
    /// Up to this much is added to the latency, uniformly and independently for each datagram:
    /// jitter larger than the distance of two datagrams lets them overtake.
    pub jitter_ns: Nanos,
    /// Speed of the sender's link and again of the receiver's link; 0: unlimited.
    pub bytes_per_s: u64,
    /// Datagrams that fit in front of the receiver's link, the one on it included; more are
    /// dropped at the tail. 0: unlimited. Without effect while `bytes_per_s` is 0.
    pub queue_datagrams: u32,
    /// Probability that a datagram is lost.
    pub loss: f64,
    /// Loss in bursts, in addition.
    pub burst: BurstLoss,
    /// Probability that a datagram arrives twice.
    pub dup: f64,
    /// Probability that a datagram is held back.
    pub reorder: f64,
    /// A datagram held back goes on after 1 to this many later ones of the same pair of nodes
    /// and channel went by; 0: only `reorder_delay_ns` ends it.
    pub reorder_places_max: u32,
    /// A datagram held back goes on after this time at the latest (at least 1 ns).
    pub reorder_delay_ns: Nanos,
    /// Probability that one random bit of a datagram is flipped.
    pub corrupt: f64,
    /// Probability that a datagram takes `delay_spike_ns` longer.
    pub delay_spike: f64,
    /// Length of a delay spike.
    pub delay_spike_ns: Nanos,
}

impl Default for LinkModel {
    fn default() -> Self {
        Self {
            latency_ns: 0,
            jitter_ns: 0,
            bytes_per_s: 0,
            queue_datagrams: 0,
            loss: 0.0,
            burst: BurstLoss::default(),
            dup: 0.0,
            reorder: 0.0,
            reorder_places_max: 8,
            reorder_delay_ns: 100 * MICROS,
            corrupt: 0.0,
            delay_spike: 0.0,
            delay_spike_ns: 0,
        }
    }
}

impl LinkModel {
    /// Whether datagrams pass at once and unharmed.
    pub(super) fn is_plain(&self) -> bool {
        let spikes = self.delay_spike > 0.0 && self.delay_spike_ns > 0;
        let delays = self.latency_ns > 0 || self.jitter_ns > 0 || self.bytes_per_s > 0 || spikes;
        let faults = self.loss + self.burst.p_enter + self.dup + self.reorder + self.corrupt;
        !delays && faults == 0.0
    }

    /// Panics when a probability is not one.
    pub(super) fn check(&self) {
        let BurstLoss { p_enter, p_leave, loss_in_burst } = self.burst;
        for (name, p) in [
            ("loss", self.loss),
            ("burst.p_enter", p_enter),
            ("burst.p_leave", p_leave),
            ("burst.loss_in_burst", loss_in_burst),
            ("dup", self.dup),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
            ("delay_spike", self.delay_spike),
        ] {
            assert!((0.0..=1.0).contains(&p), "{name} is {p}, not a probability");
        }
    }

    /// Picoseconds that `len_bytes` bytes take on a link, rounded up. Picoseconds, because at
    /// 100 Gbit/s rounding to nanoseconds would falsify the rate of small datagrams by percents.
    pub(super) fn serialisation_ps(&self, len_bytes: u32) -> u64 {
        (u64::from(len_bytes) * 1_000_000_000_000).div_ceil(self.bytes_per_s)
    }
}

/// A datagram as the tap sees it: sent, and not yet subject to the link's faults.
#[derive(Clone, Copy, Debug)]
pub struct Tap<'a> {
    /// Who sends it.
    pub from: NodeNumber,
    /// To whom.
    pub to: NodeNumber,
    /// On which channel.
    pub channel: Channel,
    /// All of its bytes, the prefix not included.
    pub bytes: &'a [u8],
    /// How many datagrams were sent in this network before it.
    pub number: u64,
}

/// What the tap wants to happen to a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Deliver,
    /// It is lost.
    Drop,
    /// It goes on twice.
    Copy,
    /// It goes on, and takes this many nanoseconds longer.
    DelayBy(Nanos),
}

/// The closure type of [`super::SimNet::set_tap`].
pub type TapFn = Box<dyn FnMut(Tap<'_>) -> Verdict>;

/// What became of the datagrams of a network. At any time
/// `sent + duplicated + injected` = `delivered + lost + cut + queue_full + no_receive_posted +
/// to_nobody + truncated` + [`super::SimNet::in_flight`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct SimCounters {
    /// Datagrams that ports sent.
    pub sent: u64,
    /// Datagrams put into a posted receive.
    pub delivered: u64,
    /// Lost by chance, in a burst, or by the tap.
    pub lost: u64,
    /// Vanished in a partition, or from or to a node that is down.
    pub cut: u64,
    /// Dropped at the full queue of a receiver's link.
    pub queue_full: u64,
    /// Copies made, by chance or by the tap.
    pub duplicated: u64,
    /// Datagrams held back.
    pub reordered: u64,
    /// Datagrams with a flipped bit.
    pub corrupted: u64,
    /// Arrived when no receive was posted and the socket queue was full.
    pub no_receive_posted: u64,
    /// Arrived at a node whose port is gone.
    pub to_nobody: u64,
    /// Longer than the receiver's largest datagram: reported as a failed receive.
    pub truncated: u64,
    /// Datagrams from [`super::SimNet::inject`].
    pub injected: u64,
    /// Sends refused: peer not inserted, or too long. Not part of `sent`.
    pub sends_failed: u64,
}
