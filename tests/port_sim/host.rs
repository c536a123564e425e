//! A user of a port who keeps account of every slot, and what the tests share.

use tickwire::ports::sim::{LinkModel, SimNet, SimPort, SimPortConfig};
use tickwire::ports::{Channel, Completion, CompletionKind, Insertion, Port, PortPeer, SendOp};
use tickwire::time::Nanos;
use tickwire_tables::arena::{ArenaPart, DatagramArena};

pub const SLOT_BYTES: usize = 2048;
pub const SEND_SLOTS: u32 = 64;

/// A user of a port who keeps account of every slot.
pub struct Host<P> {
    pub port: P,
    pub sends: ArenaPart,
    pub free_sends: Vec<u32>,
    pub recvs: ArenaPart,
    pub failed: Vec<CompletionKind>,
}

impl<P: Port> Host<P> {
    /// Posts `recvs` receives on each channel.
    pub fn new(mut port: P, recvs: u32) -> Self {
        let arena = DatagramArena::new((SEND_SLOTS + 2 * recvs) as usize, SLOT_BYTES).unwrap();
        port.attach(&arena).unwrap();
        let (sends, recv_part) = arena.split(SEND_SLOTS);
        let free_sends = (0..SEND_SLOTS).collect();
        let mut host = Self { port, sends, free_sends, recvs: recv_part, failed: Vec::new() };
        for channel in Channel::ALL {
            let first = SEND_SLOTS + channel as u32 * recvs;
            let slots: Vec<u32> = (first..first + recvs).collect();
            let mut posted = 0;
            while posted < slots.len() {
                let count = host.post(channel, &slots[posted..]);
                assert!(count > 0, "{posted} of {recvs} receives were taken");
                posted += count;
            }
        }
        host
    }

    pub fn post(&mut self, channel: Channel, slots: &[u32]) -> usize {
        let count = self.port.post_recvs(channel, slots);
        slots[..count].iter().for_each(|&slot| self.recvs.lend(slot));
        count
    }

    pub fn peer(&mut self, channel: Channel, of: &impl Port) -> PortPeer {
        let address = of.local_address(channel);
        match self.port.insert(channel, &address, 0).unwrap() {
            Insertion::Ready(peer) => peer,
            Insertion::Pending => panic!("an asynchronous insertion"),
        }
    }

    pub fn send(&mut self, channel: Channel, peer: PortPeer, bytes: &[u8]) {
        let slot = self.free_sends.pop().expect("a free send slot");
        let prefix = self.port.caps().prefix_bytes;
        self.sends.bytes_mut(slot)[prefix..prefix + bytes.len()].copy_from_slice(bytes);
        let op = SendOp { slot, len_bytes: bytes.len() as u32, peer, gather: None };
        assert_eq!(self.port.post_sends(channel, &[op]), 1);
        if self.port.caps().sends_complete_at_post {
            self.free_sends.push(slot);
        } else {
            self.sends.lend(slot);
        }
    }

    /// Everything that is there, in order; with `repost`, the receives are posted again.
    pub fn poll(&mut self, channel: Channel, repost: bool) -> Vec<Vec<u8>> {
        let mut out = [Completion { kind: CompletionKind::Sent, slot: 0, len_bytes: 0 }; 7];
        let prefix = self.port.caps().prefix_bytes;
        let (mut got, mut slots) = (Vec::new(), Vec::new());
        loop {
            let count = self.port.poll(channel, &mut out);
            for &Completion { kind, slot, len_bytes } in &out[..count] {
                match kind {
                    CompletionKind::Received => {
                        self.recvs.give_back(slot);
                        let bytes = &self.recvs.bytes(slot)[prefix..prefix + len_bytes as usize];
                        got.push(bytes.to_vec());
                        slots.push(slot);
                    }
                    CompletionKind::ReceiveFailed(_) => {
                        self.recvs.give_back(slot);
                        slots.push(slot);
                        self.failed.push(kind);
                    }
                    CompletionKind::Sent | CompletionKind::SendFailed(_) => {
                        self.sends.give_back(slot);
                        self.free_sends.push(slot);
                        self.failed.extend((kind != CompletionKind::Sent).then_some(kind));
                    }
                }
            }
            if repost {
                assert_eq!(self.post(channel, &slots), slots.len());
                slots.clear();
            }
            if count == 0 {
                return got;
            }
        }
    }

    pub fn poll_numbers(&mut self) -> Vec<u32> {
        let numbers = |bytes: Vec<u8>| u32::from_le_bytes(bytes[..4].try_into().unwrap());
        self.poll(Channel::Data, true).into_iter().map(numbers).collect()
    }
}

pub fn host(net: &SimNet) -> Host<SimPort> {
    Host::new(net.port(SimPortConfig::default()), 512)
}

/// Two hosts and the second one's data address at the first.
pub fn pair(model: LinkModel) -> (SimNet, Host<SimPort>, Host<SimPort>, PortPeer) {
    let net = SimNet::new(7, model);
    let (mut a, b) = (host(&net), host(&net));
    let peer = a.peer(Channel::Data, &b.port);
    (net, a, b, peer)
}

pub fn assert_conserved(net: &SimNet) {
    let c = net.counters();
    let dropped = c.lost + c.cut + c.queue_full + c.no_receive_posted + c.to_nobody + c.truncated;
    let gone = c.delivered + dropped + net.in_flight() as u64;
    assert_eq!(c.sent + c.duplicated + c.injected, gone, "{c:?}");
}

/// Sends `count` numbered datagrams of 64 bytes, one every `gap_ns`, and returns what arrives.
pub fn stream<P: Port>(
    net: &SimNet,
    a: &mut Host<SimPort>,
    b: &mut Host<P>,
    peer: PortPeer,
    (count, gap_ns): (u32, Nanos),
) -> Vec<u32> {
    let mut got = Vec::new();
    for number in 0..count {
        a.send(Channel::Data, peer, &datagram(number));
        net.advance(gap_ns);
        got.extend(b.poll_numbers());
    }
    net.advance(10_000_000);
    got.extend(b.poll_numbers());
    got
}

/// 64 bytes that follow from the number alone.
pub fn datagram(number: u32) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    let mut state = number | 1;
    for byte in &mut bytes[4..] {
        state = state.wrapping_mul(0x9e37_79b1).rotate_left(9);
        *byte = state as u8;
    }
    bytes
}

/// How many later ones came before each; the number sent is its place.
pub fn places_passed(got: &[u32]) -> usize {
    let before = |i: usize| got[..i].iter().filter(|&&number| number > got[i]).count();
    (0..got.len()).map(before).max().unwrap_or(0)
}

pub fn assert_near(what: &str, count: u64, of: u64, p: f64) {
    let (expected, sigma) = (of as f64 * p, (of as f64 * p * (1.0 - p)).sqrt());
    let off = (count as f64 - expected).abs();
    assert!(off <= 5.0 * sigma + 1.0, "{what}: {count} of {of}, expected {expected:.0}");
}
