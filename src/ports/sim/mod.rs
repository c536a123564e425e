//! A simulated network in virtual time.
//!
//! [`SimNet`] is one network of any number of nodes in one thread; each [`SimPort`] is a node's
//! port. The same seed and the same calls give the same behaviour, always. Time stands still
//! until [`SimNet::advance`] or [`SimPort`]'s `wait` moves it. While nothing delays or harms
//! datagrams, a send writes straight into the receiver's posted slot.
//!
//! ```
//! use tickwire::ports::sim::{LinkModel, SimNet, SimPortConfig};
//! let net = SimNet::new(1, LinkModel { latency_ns: 1_000, loss: 0.01, ..Default::default() });
//! let (a, b) = (net.port(SimPortConfig::default()), net.port(SimPortConfig::default()));
//! assert_eq!((a.node(), b.node(), net.now()), (0, 1, 0));
//! ```

use super::{
    Channel, Completion, InsertResult, Insertion, LinkEvent, Port, PortCaps, PortError, PortPeer,
    RawAddress, SendOp,
};
use crate::time::Nanos;
use arrayvec::ArrayVec;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use tickwire_tables::arena::DatagramArena;

mod model;
mod network;
mod node;
mod pool;
mod ring;

pub use model::{BurstLoss, LinkModel, NodeNumber, SimCounters, Tap, TapFn, Verdict};
use network::{EHOSTUNREACH, Network};
use node::{Node, SentOp};

/// Invalid argument: not an address of a simulated network.
const EINVAL: i32 = 22;
const ADDRESS_MAGIC: [u8; 7] = *b"tw-sim\x01";
const NAME: &str = "sim";

/// What a new node's port is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimPortConfig {
    /// Largest datagram in bytes, at most 65536.
    pub datagram_bytes_max: usize,
    /// Bytes in front of each datagram in its slot.
    pub prefix_bytes: usize,
    /// Sends that may wait for their completions, per channel. Without effect while sends
    /// complete at the post.
    pub send_depth: usize,
    /// Receives that may be posted and not yet polled, per channel.
    pub recv_depth: usize,
    /// Most operations that one call takes.
    pub batch_max: usize,
    /// Whether sends may take their payload from user memory.
    pub gathers: bool,
    /// Whether sends are over when the post returns. Then nothing tells of a send that fails:
    /// it is counted ([`SimCounters::sends_failed`]) and lost. Otherwise completions are polled.
    pub sends_complete_at_post: bool,
    /// How long a polled send completion takes after the post.
    pub send_completion_delay_ns: Nanos,
    /// Whether insertions are answered later, by `reap_inserts`.
    pub async_insert: bool,
    /// Asynchronous insertions that may be outstanding; more are refused with
    /// [`PortError::Again`].
    pub insert_depth: usize,
    /// Datagrams per channel that wait for a receive to be posted; more are dropped.
    pub socket_datagrams: usize,
}

impl Default for SimPortConfig {
    fn default() -> Self {
        Self {
            datagram_bytes_max: 1472,
            prefix_bytes: 0,
            send_depth: 1024,
            recv_depth: 1024,
            batch_max: 1024,
            gathers: true,
            sends_complete_at_post: true,
            send_completion_delay_ns: 0,
            async_insert: false,
            insert_depth: 64,
            socket_datagrams: 4096,
        }
    }
}

impl SimPortConfig {
    fn caps(&self) -> PortCaps {
        PortCaps {
            name: NAME,
            datagram_bytes_max: self.datagram_bytes_max,
            prefix_bytes: self.prefix_bytes,
            gathers: self.gathers,
            send_depth: self.send_depth,
            recv_depth: self.recv_depth,
            sends_complete_at_post: self.sends_complete_at_post,
            // Not the sum: nobody knows how many receives will be kept posted.
            recv_backlog_datagrams: self.socket_datagrams.max(self.recv_depth),
        }
    }

    fn check(&self) {
        let bytes = self.datagram_bytes_max;
        assert!(bytes <= pool::PACKET_BYTES_MAX, "datagrams of {bytes} bytes");
        assert!(self.send_depth > 0 && self.recv_depth > 0 && self.batch_max > 0, "{self:?}");
    }
}

struct Shared {
    /// The network's time once more, to be read without a borrow.
    now: Cell<Nanos>,
    network: RefCell<Network>,
}

/// A handle of one simulated network; clones are handles of the same one.
#[derive(Clone)]
pub struct SimNet(Rc<Shared>);

impl SimNet {
    /// An empty network at time 0 in which `model` holds between all nodes.
    /// Panics when a probability is not between 0 and 1.
    pub fn new(seed: u64, model: LinkModel) -> Self {
        let network = RefCell::new(Network::new(seed, model));
        Self(Rc::new(Shared { now: Cell::new(0), network }))
    }

    /// A new node. Panics when the configuration is beyond its documented limits.
    pub fn port(&self, config: SimPortConfig) -> SimPort {
        config.check();
        let (caps, batch_max) = (config.caps(), config.batch_max);
        let nodes = &mut self.0.network.borrow_mut().nodes;
        let node = NodeNumber::try_from(nodes.len()).expect("fewer than 2^32 nodes");
        nodes.push(Node::new(config));
        SimPort { shared: self.0.clone(), node, caps, batch_max }
    }

    /// A new port for an old node whose port was dropped: a restarted process with the same
    /// address. Panics when the node does not exist or still has a port.
    pub fn reopen(&self, node: NodeNumber, config: SimPortConfig) -> SimPort {
        config.check();
        let (caps, batch_max) = (config.caps(), config.batch_max);
        self.0.network.borrow_mut().nodes[node as usize].reopen(config);
        SimPort { shared: self.0.clone(), node, caps, batch_max }
    }

    /// The network's time.
    pub fn now(&self) -> Nanos {
        self.0.now.get()
    }

    /// Moves time forward by `dt_ns`, through all events on the way.
    pub fn advance(&self, dt_ns: Nanos) {
        self.advance_to(self.now().saturating_add(dt_ns));
    }

    /// Moves time forward to `at`, through all events on the way; the past is left alone.
    pub fn advance_to(&self, at: Nanos) {
        self.0.advance_to(at);
    }

    /// When the next thing happens: a datagram under way moves on or arrives, or a send completes.
    /// `None` when nothing will happen by itself.
    pub fn next_event_at(&self) -> Option<Nanos> {
        self.0.network.borrow_mut().next_event_at()
    }

    /// Changes the model of all pairs of nodes without one of their own. Datagrams already on
    /// the receiver's link keep their arrival times. Panics as [`SimNet::new`].
    pub fn set_model(&self, model: LinkModel) {
        self.0.network.borrow_mut().set_model(model);
    }

    /// Gives one ordered pair of nodes a model of its own. Panics as [`SimNet::new`].
    pub fn set_link(&self, from: NodeNumber, to: NodeNumber, model: LinkModel) {
        self.0.network.borrow_mut().set_link(from, to, Some(model));
    }

    /// Gives an ordered pair of nodes the network's model back.
    pub fn clear_link(&self, from: NodeNumber, to: NodeNumber) {
        self.0.network.borrow_mut().set_link(from, to, None);
    }

    /// Cuts the way from one node to another, or mends it. What is under way still arrives.
    pub fn partition(&self, from: NodeNumber, to: NodeNumber, cut: bool) {
        self.0.network.borrow_mut().partition(from, to, cut);
    }

    /// Takes a node off the network, silently, or puts it back: datagrams from it and datagrams
    /// that arrive at it vanish. Panics when there is no such node.
    pub fn set_node_down(&self, node: NodeNumber, down: bool) {
        self.0.network.borrow_mut().set_node_down(node, down);
    }

    /// Makes the node's port report a change of its link; changes nothing else.
    /// Panics when there is no such node.
    pub fn announce_link(&self, node: NodeNumber, event: LinkEvent) {
        let mut network = self.0.network.borrow_mut();
        network.nodes[node as usize].link_events.push_back(event);
        network.touch(node);
    }

    /// Lets a datagram arrive at once at a node, from nowhere, past all faults but `down`.
    /// Panics when there is no such node, or beyond 65536 bytes.
    pub fn inject(&self, to: NodeNumber, channel: Channel, bytes: &[u8]) {
        self.0.network.borrow_mut().inject(to, channel, bytes);
    }

    /// Lets `tap` see each datagram sent and decide on it. The network is busy meanwhile: of all
    /// methods of the network and its ports the tap may call [`SimNet::now`] only.
    pub fn set_tap(&self, tap: TapFn) {
        self.0.network.borrow_mut().set_tap(Some(tap));
    }

    /// Takes the tap away.
    pub fn clear_tap(&self) {
        self.0.network.borrow_mut().set_tap(None);
    }

    /// What became of the datagrams so far.
    pub fn counters(&self) -> SimCounters {
        self.0.network.borrow().counters
    }

    /// Moves to `out` the nodes whose ports may have got something to tell since the last call:
    /// whoever drives many nodes looks at these only. A port's full `poll` counts, as more may be
    /// there.
    pub fn take_touched(&self, out: &mut Vec<NodeNumber>) {
        let mut network = self.0.network.borrow_mut();
        let Network { touched, nodes, .. } = &mut *network;
        touched.iter().for_each(|&node| nodes[node as usize].touched = false);
        out.append(touched);
    }

    /// Datagrams on a node's receiving link and in the queue in front of it.
    /// Panics when there is no such node.
    pub fn queued_datagrams(&self, node: NodeNumber) -> u32 {
        self.0.network.borrow().nodes[node as usize].on_rx_link
    }

    /// Datagrams under way or waiting for a receive to be posted.
    pub fn in_flight(&self) -> usize {
        self.0.network.borrow().pool.live()
    }
}

impl Shared {
    fn advance_to(&self, at: Nanos) {
        let mut network = self.network.borrow_mut();
        network.advance_to(at);
        self.now.set(network.now);
    }
}

/// The port of one node. Dropping it leaves the node without a port: see [`SimNet::reopen`].
pub struct SimPort {
    shared: Rc<Shared>,
    node: NodeNumber,
    caps: PortCaps,
    batch_max: usize,
}

impl SimPort {
    /// The node's number in its network.
    pub fn node(&self) -> NodeNumber {
        self.node
    }
}

impl Drop for SimPort {
    fn drop(&mut self) {
        self.shared.network.borrow_mut().close(self.node);
    }
}

/// The channel is part of the address, so that a mix-up shows.
fn address_of(node: NodeNumber, channel: Channel) -> RawAddress {
    let mut bytes = ArrayVec::new();
    bytes.extend(ADDRESS_MAGIC);
    bytes.push(channel as u8);
    bytes.extend(u64::from(node).to_le_bytes());
    RawAddress(bytes)
}

/// The node of an address, or why there is none.
fn node_of(address: &RawAddress, channel: Channel, nodes: usize) -> Result<NodeNumber, i32> {
    let bytes = address.0.strip_prefix(&ADDRESS_MAGIC).ok_or(EINVAL)?;
    let number = bytes.strip_prefix(&[channel as u8]).ok_or(EINVAL)?;
    let number = u64::from_le_bytes(number.try_into().map_err(|_| EINVAL)?);
    if number >= nodes as u64 {
        return Err(EHOSTUNREACH);
    }
    Ok(number as NodeNumber)
}

impl Port for SimPort {
    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn now(&self) -> Nanos {
        self.shared.now.get()
    }

    fn local_address(&self, channel: Channel) -> RawAddress {
        address_of(self.node, channel)
    }

    fn attach(&mut self, arena: &DatagramArena) -> Result<(), PortError> {
        let need = self.caps.prefix_bytes + self.caps.datagram_bytes_max;
        assert!(arena.slot_bytes() >= need, "slots hold prefix and any datagram");
        self.shared.network.borrow_mut().nodes[self.node as usize].attach(arena);
        Ok(())
    }

    fn insert(
        &mut self,
        channel: Channel,
        address: &RawAddress,
        context: u64,
    ) -> Result<Insertion, PortError> {
        let mut network = self.shared.network.borrow_mut();
        let found = node_of(address, channel, network.nodes.len());
        let node = &mut network.nodes[self.node as usize];
        if node.config.async_insert && node.inserts.len() >= node.config.insert_depth {
            return Err(PortError::Again { port: NAME });
        }
        let result = found.map(|number| node.add_peer(channel, number));
        if node.config.async_insert {
            node.inserts.push_back(InsertResult { context, result });
            return Ok(Insertion::Pending);
        }
        result.map(Insertion::Ready).map_err(|code| PortError::Unusable {
            port: NAME,
            value: format!("address {:02x?}", address.0.as_slice()),
            reason: match code {
                EHOSTUNREACH => "there is no such node".to_owned(),
                _ => format!("it is not a simulated {channel:?} address"),
            },
        })
    }

    fn reap_inserts(&mut self, out: &mut ArrayVec<InsertResult, 64>) {
        let inserts = &mut self.shared.network.borrow_mut().nodes[self.node as usize].inserts;
        while !out.is_full() {
            let Some(result) = inserts.pop_front() else { return };
            out.push(result);
        }
    }

    fn remove(&mut self, channel: Channel, peer: PortPeer) {
        self.shared.network.borrow_mut().nodes[self.node as usize].remove_peer(channel, peer);
    }

    fn post_recvs(&mut self, channel: Channel, slots: &[u32]) -> usize {
        let slots = &slots[..slots.len().min(self.batch_max)];
        let mut network = self.shared.network.borrow_mut();
        let count = network.nodes[self.node as usize].post_recvs(channel, slots);
        network.drain_waiting(self.node, channel);
        count
    }

    fn post_sends(&mut self, channel: Channel, ops: &[SendOp]) -> usize {
        let mut network = self.shared.network.borrow_mut();
        let room = network.nodes[self.node as usize].send_room(channel);
        let count = ops.len().min(self.batch_max).min(room);
        let polled = !self.caps.sends_complete_at_post;
        for op in &ops[..count] {
            let result = network.send(self.node, channel, op);
            network.counters.sends_failed += u64::from(result.is_err());
            if polled {
                network.note_sent(self.node, channel, op.slot, result);
            }
        }
        count
    }

    #[inline]
    fn poll(&mut self, channel: Channel, out: &mut [Completion]) -> usize {
        let now = self.shared.now.get();
        let mut network = self.shared.network.borrow_mut();
        let count = network.nodes[self.node as usize].poll(channel, out, now);
        if count == out.len() {
            network.touch(self.node);
        }
        count
    }

    /// Moves the network's time: to the next event until there is something to poll, and at
    /// most by `timeout_ns`.
    fn wait(&mut self, timeout_ns: Nanos) {
        let mut network = self.shared.network.borrow_mut();
        let until = network.now.saturating_add(timeout_ns);
        loop {
            let (node, now) = (&network.nodes[self.node as usize], network.now);
            if now >= until || Channel::ALL.iter().any(|&ch| node.has_completion(ch, now)) {
                break;
            }
            let next = network.next_event_at().unwrap_or(until).min(until);
            network.advance_to(next);
        }
        self.shared.now.set(network.now);
    }

    fn link_event(&mut self) -> Option<LinkEvent> {
        self.shared.network.borrow_mut().nodes[self.node as usize].link_events.pop_front()
    }

    fn describe(&self) -> String {
        let bytes = self.caps.datagram_bytes_max;
        format!("sim: node {}, datagrams of up to {bytes} bytes", self.node)
    }
}

impl Network {
    /// Queues the completion of a send.
    fn note_sent(&mut self, of: NodeNumber, channel: Channel, slot: u32, result: Result<(), i32>) {
        let delay_ns = self.nodes[of as usize].config.send_completion_delay_ns;
        let at = self.now.saturating_add(delay_ns);
        let code = result.err().unwrap_or(0);
        self.nodes[of as usize].sent[channel as usize].push_back(SentOp { slot, code, at });
        if delay_ns > 0 {
            self.schedule_wake(at, of);
        } else {
            self.touch(of);
        }
    }
}
