//! Who sends what to whom: flows, and what an arrival lets the receiver send next.
//!
//! All patterns are made of one thing: a flow may send so many messages. At its start an item of
//! traffic lets some flows send some; what arrives lets the receiver send more.

use super::measure::{Durations, Series};
use super::plan::{Pattern, Traffic};
use crate::EndpointHandle;
use crate::time::Nanos;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use std::collections::{HashMap, VecDeque};

/// Bytes of an incast's request.
const REQUEST_BYTES: u32 = 64;

/// What a flow is to its pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Nobody waits for it.
    Plain,
    /// Answered by its partner, a pong.
    Ping,
    /// Lets its partner, a ping, go again.
    Pong,
    /// Answered by its partner, a response.
    Request,
    /// The last of a round lets the requests go again.
    Response,
    /// The last that a node waits for lets its next round begin.
    Exchange,
}

/// Messages from one node to another that belong together.
pub(super) struct Flow {
    pub item: u32,
    pub from: u32,
    pub to: u32,
    pub role: Role,
    partner: u32,
    message_bytes: u32,
    /// Messages of a part; the last one of each has `last_bytes`.
    part: u64,
    last_bytes: u32,
    /// Messages there will be.
    pub total: u64,
    /// Messages that may be sent so far.
    pub allowed: u64,
    pub sent: u64,
    /// Arrived or lost.
    pub settled: u64,
    pub lost: u64,
    /// Sent and not yet reported as done.
    pub open: u32,
    pub open_max: u32,
    /// On its node's list of those that want to send.
    pub wants: bool,
    /// The engine's name for the receiver, while there is one.
    pub peer: Option<EndpointHandle>,
    /// Random: when each message not yet sent was due.
    pub due: VecDeque<Nanos>,
    /// A message filled in vain, as the engine had no room: its number and bytes.
    pub filled: Option<Box<(u64, Vec<u8>)>>,
    began_ns: Nanos,
    pub bytes: u64,
    pub last_ns: Nanos,
}

impl Flow {
    fn new(item: u32, (from, to): (u32, u32), role: Role, message_bytes: u32) -> Self {
        Self {
            item,
            from,
            to,
            role,
            partner: 0,
            message_bytes,
            part: u64::MAX,
            last_bytes: message_bytes,
            total: 0,
            allowed: 0,
            sent: 0,
            settled: 0,
            lost: 0,
            open: 0,
            open_max: 1024,
            wants: false,
            peer: None,
            due: VecDeque::new(),
            filled: None,
            began_ns: 0,
            bytes: 0,
            last_ns: 0,
        }
    }

    /// Parts of `bytes` bytes in messages of the flow's size, the last one as long as it must be.
    fn in_parts_of(mut self, bytes: u64) -> Self {
        let message = u64::from(self.message_bytes);
        self.part = bytes.div_ceil(message);
        self.last_bytes = (bytes - (self.part - 1) * message) as u32;
        self
    }

    fn at_most(mut self, open_max: u32) -> Self {
        self.open_max = open_max;
        self
    }

    /// Length of the next message.
    pub fn next_bytes(&self) -> usize {
        let is_last = self.sent % self.part == self.part - 1;
        (if is_last { self.last_bytes } else { self.message_bytes }) as usize
    }

    pub fn may_send(&self) -> bool {
        self.sent < self.allowed && self.open < self.open_max && self.peer.is_some()
    }

    pub fn is_data(&self) -> bool {
        self.role != Role::Request
    }

    fn is_over(&self) -> bool {
        self.settled >= self.total
    }
}

/// One node's part in an exchange of all with all.
struct Member {
    round: u64,
    /// Messages of this round that have not arrived.
    missing: u32,
    began_ns: Nanos,
}

/// One item of traffic, under way.
pub(super) struct Item {
    pub plan: Traffic,
    flows: std::ops::Range<u32>,
    /// Incast: rounds begun, when the last one was, and what has not arrived of it.
    round: u32,
    began_ns: Nanos,
    left: u64,
    /// All-to-all: in the order of the plan.
    members: Vec<Member>,
    /// Random: when a message of which flow is due, latest first.
    arrivals: Vec<(Nanos, u32)>,
    pub latency: Durations,
    pub rounds: Durations,
    pub arrived: Series,
    pub messages: u64,
}

impl Item {
    pub fn flows(&self) -> std::ops::Range<usize> {
        self.flows.start as usize..self.flows.end as usize
    }

    /// When the next message of a random item is due.
    pub fn next_arrival(&self) -> Option<Nanos> {
        self.arrivals.last().map(|&(at, _)| at)
    }
}

/// All flows, and which of them want to send.
pub(super) struct TrafficState {
    pub items: Vec<Item>,
    pub flows: Vec<Flow>,
    /// Per node: flows that may send a message.
    pub wants: Vec<VecDeque<u32>>,
    flows_over: usize,
}

impl TrafficState {
    pub fn new(plans: &[Traffic], peers: u32, seed: u64) -> Self {
        let mut flows = Vec::new();
        let items = (0u32..).zip(plans);
        let items = items.map(|(number, plan)| new_item(number, plan, seed, &mut flows)).collect();
        let wants = (0..peers).map(|_| VecDeque::new()).collect();
        Self { items, flows, wants, flows_over: 0 }
    }

    /// Every message of every flow has arrived or is lost for good.
    pub fn is_over(&self) -> bool {
        self.flows_over == self.flows.len()
    }

    /// Begins an item.
    pub fn start(&mut self, item: usize, now: Nanos) {
        match self.items[item].plan.pattern {
            Pattern::Stream { .. } => {
                for flow in self.items[item].flows() {
                    self.allow(flow as u32, self.flows[flow].total);
                }
            }
            Pattern::PingPong { .. } => {
                for ping in self.items[item].flows().step_by(2) {
                    self.flows[ping].began_ns = now;
                    self.allow(ping as u32, 1);
                }
            }
            Pattern::Incast { .. } => self.start_incast(item, now),
            Pattern::AllToAll { .. } => {
                for member in 0..self.items[item].members.len() {
                    self.start_exchange(item, member, now);
                }
            }
            Pattern::Random { .. } => {}
        }
    }

    /// No more messages of an item from now on.
    pub fn stop(&mut self, item: usize) {
        for at in self.items[item].flows() {
            let flow = &mut self.flows[at];
            if !flow.is_over() {
                flow.total = flow.total.min(flow.sent);
                flow.allowed = flow.total;
                self.flows_over += usize::from(flow.is_over());
            }
        }
    }

    /// The messages of a random item that are due; gives the nodes that send them.
    pub fn random_due(&mut self, item: usize, now: Nanos, senders: &mut Vec<u32>) {
        while let Some((at, flow)) = self.items[item].arrivals.pop_if(|(at, _)| *at <= now) {
            self.flows[flow as usize].due.push_back(at);
            senders.push(self.flows[flow as usize].from);
            self.allow(flow, 1);
        }
    }

    /// Lets a flow send more.
    fn allow(&mut self, flow: u32, messages: u64) {
        self.flows[flow as usize].allowed += messages;
        self.list(flow);
    }

    /// Lists a flow if it may send.
    pub fn list(&mut self, at: u32) {
        let flow = &mut self.flows[at as usize];
        if flow.may_send() && !flow.wants {
            flow.wants = true;
            self.wants[flow.from as usize].push_back(at);
        }
    }

    /// A message has arrived, or is lost for good: for the pattern that is the same, or one loss
    /// would stop it. Everything that follows is the receiver's doing.
    pub fn settled(&mut self, at: u32, now: Nanos) {
        let flow = &mut self.flows[at as usize];
        flow.settled += 1;
        self.flows_over += usize::from(flow.settled == flow.total);
        let (partner, item) = (flow.partner, flow.item as usize);
        match flow.role {
            Role::Plain => {}
            Role::Ping => self.allow(partner, 1),
            Role::Pong => {
                let ping = &mut self.flows[partner as usize];
                self.items[item].rounds.add(now - ping.began_ns);
                if ping.allowed < ping.total {
                    ping.began_ns = now;
                    self.allow(partner, 1);
                }
            }
            Role::Request => self.allow(partner, self.flows[partner as usize].part),
            Role::Response => {
                let state = &mut self.items[item];
                state.left -= 1;
                if state.left == 0 {
                    state.rounds.add(now - state.began_ns);
                    self.start_incast(item, now);
                }
            }
            Role::Exchange => self.exchanged(at, now),
        }
    }

    fn start_incast(&mut self, item: usize, now: Nanos) {
        let state = &mut self.items[item];
        let Pattern::Incast { rounds, .. } = state.plan.pattern else { return };
        if state.round == rounds {
            return;
        }
        state.round += 1;
        state.began_ns = now;
        let flows = state.flows();
        let each = self.flows[flows.start + 1].part;
        let requests = flows.step_by(2);
        self.items[item].left = each * requests.len() as u64;
        for request in requests {
            self.allow(request as u32, 1);
        }
    }

    fn exchanged(&mut self, at: u32, now: Nanos) {
        let flow = &self.flows[at as usize];
        let item = flow.item as usize;
        // Flows are in the order of senders, receivers within; a sender has none to itself.
        let others = self.items[item].members.len() - 1;
        let place = at as usize - self.items[item].flows().start;
        let (sender, receiver) = (place / others, place % others);
        let receiver = receiver + usize::from(receiver >= sender);
        let member = &mut self.items[item].members[receiver];
        if flow.settled != member.round {
            return; // Of the next round, whose turn comes.
        }
        member.missing -= 1;
        if member.missing == 0 {
            let began_ns = member.began_ns;
            self.items[item].rounds.add(now - began_ns);
            self.start_exchange(item, receiver, now);
        }
    }

    /// A node's next round; rounds that have wholly arrived before it began are over at once.
    fn start_exchange(&mut self, item: usize, member: usize, now: Nanos) {
        let others = self.items[item].members.len() - 1;
        let first = self.items[item].flows().start;
        loop {
            let round = self.items[item].members[member].round + 1;
            let mine = first + member * others..first + (member + 1) * others;
            if round > self.flows[mine.start].total {
                return;
            }
            mine.for_each(|flow| self.allow(flow as u32, 1));
            let to_me = (0..=others)
                .filter(|&other| other != member)
                .map(|other| first + other * others + member - usize::from(member > other));
            let missing = to_me.filter(|&flow| self.flows[flow].settled < round).count() as u32;
            self.items[item].members[member] = Member { round, missing, began_ns: now };
            if missing > 0 {
                return;
            }
            self.items[item].rounds.add(0);
        }
    }
}

fn new_item(number: u32, plan: &Traffic, seed: u64, flows: &mut Vec<Flow>) -> Item {
    let first = flows.len() as u32;
    let (message, open) = (plan.message_bytes, plan.outstanding);
    let mut members = Vec::new();
    let mut arrivals = Vec::new();
    match &plan.pattern {
        Pattern::Stream { pairs, bytes } => flows.extend(pairs.iter().map(|&pair| {
            let mut flow = Flow::new(number, pair, Role::Plain, message).at_most(open);
            flow.total = u64::MAX;
            if let Some(bytes) = *bytes {
                flow = flow.in_parts_of(bytes);
                flow.total = flow.part;
            }
            flow
        })),
        Pattern::PingPong { pairs, rounds } => {
            for &(a, b) in pairs {
                let ways = [(Role::Ping, (a, b)), (Role::Pong, (b, a))];
                add_partners(flows, ways.map(|(role, way)| Flow::new(number, way, role, message)));
            }
            flows[first as usize..].iter_mut().for_each(|flow| flow.total = (*rounds).into());
        }
        Pattern::Incast { from, to, rounds, bytes } => {
            for &sender in from {
                let size = REQUEST_BYTES;
                let mut request = Flow::new(number, (*to, sender), Role::Request, size);
                let response = Flow::new(number, (sender, *to), Role::Response, message);
                let mut response = response.at_most(open).in_parts_of(*bytes);
                request.total = (*rounds).into();
                response.total = u64::from(*rounds) * response.part;
                add_partners(flows, [request, response]);
            }
        }
        Pattern::AllToAll { nodes, rounds } => {
            for &from in nodes {
                for &to in nodes.iter().filter(|&&to| to != from) {
                    let mut flow = Flow::new(number, (from, to), Role::Exchange, message);
                    flow.total = (*rounds).into();
                    flows.push(flow);
                }
                members.push(Member { round: 0, missing: 0, began_ns: 0 });
            }
        }
        Pattern::Random { nodes, per_second, messages } => {
            let mut rng = ChaCha8Rng::seed_from_u64(seed ^ (u64::from(number) << 32));
            arrivals =
                draw_arrivals(number, plan, (nodes, *per_second, *messages), &mut rng, flows);
        }
    }
    Item {
        plan: plan.clone(),
        flows: first..flows.len() as u32,
        round: 0,
        began_ns: 0,
        left: 0,
        members,
        arrivals,
        latency: Durations::default(),
        rounds: Durations::default(),
        arrived: Series::default(),
        messages: 0,
    }
}

fn add_partners(flows: &mut Vec<Flow>, mut pair: [Flow; 2]) {
    let first = flows.len() as u32;
    pair[0].partner = first + 1;
    pair[1].partner = first;
    flows.extend(pair);
}

/// Independent messages at random times between random pairs, latest first.
fn draw_arrivals(
    number: u32,
    plan: &Traffic,
    (nodes, per_second, messages): (&[u32], f64, u64),
    rng: &mut ChaCha8Rng,
    flows: &mut Vec<Flow>,
) -> Vec<(Nanos, u32)> {
    let mut flow_of = HashMap::new();
    let mut at_s = 0.0;
    let below =
        |n: usize, rng: &mut ChaCha8Rng| ((u128::from(rng.next_u64()) * n as u128) >> 64) as usize;
    let mut arrivals: Vec<_> = (0..messages)
        .map(|_| {
            let from = below(nodes.len(), rng);
            let to = (from + 1 + below(nodes.len() - 1, rng)) % nodes.len();
            let pair = (nodes[from], nodes[to]);
            let flow = *flow_of.entry(pair).or_insert_with(|| {
                flows.push(Flow::new(number, pair, Role::Plain, plan.message_bytes));
                flows.len() as u32 - 1
            });
            flows[flow as usize].total += 1;
            // A number in (0, 1], of 53 bits.
            let uniform = ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
            at_s -= uniform.ln() / per_second;
            (plan.start_ns + (at_s * 1e9) as Nanos, flow)
        })
        .collect();
    arrivals.reverse();
    arrivals
}
