//! Memory for datagrams under way: packet rows, and blocks of power-of-two sizes in flat memory.
//! Freed rows and blocks are used again, so that steady traffic allocates nothing.

use super::model::NodeNumber;
use crate::ports::Channel;
use crate::time::Nanos;

/// No packet.
const NO_PACKET: u32 = u32::MAX;
/// Longest datagram that the network carries.
pub(super) const PACKET_BYTES_MAX: usize = 1 << 16;

const BLOCK_BYTES_MIN: usize = 64;
const CLASSES: usize = (PACKET_BYTES_MAX / BLOCK_BYTES_MIN).trailing_zeros() as usize + 1;

/// One datagram under way.
#[derive(Debug)]
pub(super) struct Packet {
    /// Grows with each packet taken, never repeats: tells packets in the same row apart.
    pub serial: u64,
    /// Added to the latency, by the tap.
    pub delay_ns: Nanos,
    pub from: NodeNumber,
    pub to: NodeNumber,
    pub len_bytes: u32,
    /// While held back: later ones that still have to pass.
    pub passes_left: u32,
    pub channel: Channel,
    class: u8,
    block: u32,
    next: u32,
}

/// Packets waiting in line, linked through their rows.
#[derive(Debug)]
pub(super) struct PacketQueue {
    head: u32,
    tail: u32,
    len: u32,
}

impl PacketQueue {
    pub(super) fn new() -> Self {
        Self { head: NO_PACKET, tail: NO_PACKET, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len as usize
    }
}

#[derive(Default)]
struct Class {
    bytes: Vec<u8>,
    free: Vec<u32>,
}

/// All packets under way in one network.
pub(super) struct PacketPool {
    packets: Vec<Packet>,
    free: u32,
    live: usize,
    serial: u64,
    classes: [Class; CLASSES],
}

impl PacketPool {
    pub(super) fn new() -> Self {
        let classes = std::array::from_fn(|_| Class::default());
        Self { packets: Vec::new(), free: NO_PACKET, live: 0, serial: 0, classes }
    }

    /// Packets taken and not yet released.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// A new packet with room for `len_bytes` bytes, whose contents are left over.
    pub(super) fn take(
        &mut self,
        (from, to): (NodeNumber, NodeNumber),
        channel: Channel,
        len_bytes: usize,
    ) -> u32 {
        assert!(len_bytes <= PACKET_BYTES_MAX);
        let size = len_bytes.next_power_of_two().max(BLOCK_BYTES_MIN);
        let class = (size / BLOCK_BYTES_MIN).trailing_zeros() as usize;
        let packet = Packet {
            serial: self.serial,
            delay_ns: 0,
            from,
            to,
            len_bytes: len_bytes as u32,
            passes_left: 0,
            channel,
            class: class as u8,
            block: self.classes[class].take(class),
            next: NO_PACKET,
        };
        self.serial += 1;
        self.live += 1;
        if self.free == NO_PACKET {
            self.packets.push(packet);
            return (self.packets.len() - 1) as u32;
        }
        let id = self.free;
        let row = &mut self.packets[id as usize];
        self.free = row.next;
        *row = packet;
        id
    }

    /// Gives a packet's memory back.
    pub(super) fn release(&mut self, id: u32) {
        let free = self.free;
        let packet = &mut self.packets[id as usize];
        self.classes[packet.class as usize].free.push(packet.block);
        // No event can refer to a serial of this value, so that stale events find no match.
        packet.serial = u64::MAX;
        packet.next = free;
        self.free = id;
        self.live -= 1;
    }

    pub(super) fn get(&self, id: u32) -> &Packet {
        &self.packets[id as usize]
    }

    pub(super) fn get_mut(&mut self, id: u32) -> &mut Packet {
        &mut self.packets[id as usize]
    }

    pub(super) fn bytes(&self, id: u32) -> &[u8] {
        let packet = &self.packets[id as usize];
        let start = packet.block_start();
        &self.classes[packet.class as usize].bytes[start..start + packet.len_bytes as usize]
    }

    pub(super) fn bytes_mut(&mut self, id: u32) -> &mut [u8] {
        let packet = &self.packets[id as usize];
        let start = packet.block_start();
        &mut self.classes[packet.class as usize].bytes[start..start + packet.len_bytes as usize]
    }

    /// A second packet with the same contents.
    pub(super) fn copy(&mut self, id: u32) -> u32 {
        let packet = &self.packets[id as usize];
        let (pair, channel, len) = ((packet.from, packet.to), packet.channel, packet.len_bytes);
        let (start, delay_ns) = (packet.block_start(), packet.delay_ns);
        let copy = self.take(pair, channel, len as usize);
        let row = &mut self.packets[copy as usize];
        row.delay_ns = delay_ns;
        let to = row.block_start();
        self.classes[row.class as usize].bytes.copy_within(start..start + len as usize, to);
        copy
    }

    pub(super) fn push_back(&mut self, queue: &mut PacketQueue, id: u32) {
        self.packets[id as usize].next = NO_PACKET;
        if queue.tail == NO_PACKET {
            queue.head = id;
        } else {
            self.packets[queue.tail as usize].next = id;
        }
        queue.tail = id;
        queue.len += 1;
    }

    pub(super) fn pop_front(&mut self, queue: &mut PacketQueue) -> Option<u32> {
        let id = queue.head;
        if id == NO_PACKET {
            return None;
        }
        queue.head = self.packets[id as usize].next;
        if queue.head == NO_PACKET {
            queue.tail = NO_PACKET;
        }
        queue.len -= 1;
        Some(id)
    }
}

impl Packet {
    fn block_start(&self) -> usize {
        self.block as usize * (BLOCK_BYTES_MIN << self.class)
    }
}

impl Class {
    fn take(&mut self, class: usize) -> u32 {
        if let Some(block) = self.free.pop() {
            return block;
        }
        let block_bytes = BLOCK_BYTES_MIN << class;
        let old = self.bytes.len() / block_bytes;
        let more = old.max(16);
        self.bytes.resize((old + more) * block_bytes, 0);
        // Room for all blocks, so that releasing never allocates.
        self.free.reserve_exact(old + more);
        self.free.extend((old as u32..(old + more) as u32).rev());
        self.free.pop().expect("blocks were just added")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_keep_their_bytes_and_memory_is_used_again() {
        let mut pool = PacketPool::new();
        let sizes = [0usize, 1, 64, 65, 1472, 9000, PACKET_BYTES_MAX];
        for _round in 0..3 {
            let ids: Vec<u32> = sizes
                .iter()
                .map(|&len| {
                    let id = pool.take((0, 1), Channel::Data, len);
                    pool.bytes_mut(id).fill(len as u8 ^ 0x5a);
                    id
                })
                .collect();
            let copies: Vec<u32> = ids.iter().map(|&id| pool.copy(id)).collect();
            for (&id, &len) in ids.iter().chain(&copies).zip(sizes.iter().chain(&sizes)) {
                assert_eq!(pool.bytes(id), vec![len as u8 ^ 0x5a; len]);
            }
            assert_eq!(pool.live(), 2 * sizes.len());
            ids.into_iter().chain(copies).for_each(|id| pool.release(id));
        }
        assert_eq!(pool.live(), 0);
        assert_eq!(pool.packets.len(), 2 * sizes.len());
    }

    #[test]
    fn queues_are_first_in_first_out() {
        let mut pool = PacketPool::new();
        let mut queue = PacketQueue::new();
        let ids: Vec<u32> = (0..5).map(|_| pool.take((0, 1), Channel::Data, 8)).collect();
        ids.iter().for_each(|&id| pool.push_back(&mut queue, id));
        assert_eq!(queue.len(), 5);
        let out: Vec<u32> = std::iter::from_fn(|| pool.pop_front(&mut queue)).collect();
        assert_eq!(out, ids);
        pool.push_back(&mut queue, ids[3]);
        assert_eq!(pool.pop_front(&mut queue), Some(ids[3]));
        assert_eq!(pool.pop_front(&mut queue), None);
    }
}
