//! The book of a run: what is under way between whom, and the check of everything that arrives.

use super::cluster::Failure;
use super::measure::Series;
use super::payload;
use super::traffic::TrafficState;
use crate::ports::sim::SimPort;
use crate::time::Nanos;
use crate::{Context, Event, Handler, Message, SendError, Tag, Token};
use std::collections::{HashMap, VecDeque};

/// The way from one node to another, shared by all flows between the two.
#[derive(Default)]
struct Lane {
    /// Number of the first message in `under_way`.
    first: u64,
    /// Messages handed over, from the oldest that has not arrived; `None`: arrived early.
    under_way: VecDeque<Option<UnderWay>>,
}

#[derive(Clone, Copy)]
struct UnderWay {
    flow: u32,
    len_bytes: usize,
    /// When it was handed over or due.
    since: Nanos,
}

/// What was sent and what must arrive.
pub(super) struct Book {
    pub traffic: TrafficState,
    lanes: Vec<Lane>,
    /// Looked up, never walked.
    lane_of: HashMap<(u32, u32), u32>,
    ordered: bool,
    pub now: Nanos,
    /// The first thing that went wrong.
    pub failure: Option<Failure>,
    /// Memory of large messages that were sent.
    buffers: Vec<Vec<u8>>,
    pub messages: u64,
    pub latency: Series,
}

/// Whether the engine took a message.
enum HandOver {
    Taken,
    NoRoom,
}

impl Book {
    pub fn new(traffic: TrafficState, ordered: bool) -> Self {
        let mut lanes = Vec::new();
        let mut lane_of = HashMap::new();
        for flow in &traffic.flows {
            lane_of.entry((flow.from, flow.to)).or_insert_with(|| {
                lanes.push(Lane::default());
                lanes.len() as u32 - 1
            });
        }
        Self {
            traffic,
            lanes,
            lane_of,
            ordered,
            now: 0,
            failure: None,
            buffers: Vec::new(),
            messages: 0,
            latency: Series::default(),
        }
    }

    fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// Hands over what the flows of a node may send, one message a flow in turn.
    pub fn send_all(&mut self, node: u32, context: &mut Context<SimPort>) {
        while let Some(at) = self.traffic.wants[node as usize].pop_front() {
            self.traffic.flows[at as usize].wants = false;
            if !self.traffic.flows[at as usize].may_send() {
                continue;
            }
            match self.hand_over(at, context) {
                Ok(HandOver::Taken) => self.traffic.list(at),
                Ok(HandOver::NoRoom) => {
                    self.traffic.flows[at as usize].wants = true;
                    self.traffic.wants[node as usize].push_front(at);
                    return;
                }
                Err(error) => {
                    let flow = &self.traffic.flows[at as usize];
                    let text = format!("sending from {} to {}: {error}", flow.from, flow.to);
                    return self.fail(text);
                }
            }
        }
    }

    fn hand_over(
        &mut self,
        at: u32,
        context: &mut Context<SimPort>,
    ) -> Result<HandOver, SendError> {
        let flow = &mut self.traffic.flows[at as usize];
        let lane_number = self.lane_of[&(flow.from, flow.to)];
        let lane = &mut self.lanes[lane_number as usize];
        let number = lane.first + lane.under_way.len() as u64;
        let len_bytes = flow.next_bytes();
        let peer = flow.peer.ok_or(SendError::NoPeer)?;
        let (tag, token) = (Tag(number as u32), Token(at.into()));
        let sent = if len_bytes <= context.small_bytes_max(peer).unwrap_or(0) {
            context.alloc(peer, len_bytes).and_then(|mut message| {
                payload::fill(&mut message, lane_number, number);
                message.send_with_token(tag, token)
            })
        } else {
            let filled = flow.filled.take().filter(|filled| filled.0 == number);
            let buffer = filled.map(|filled| filled.1).unwrap_or_else(|| {
                let mut buffer = self.buffers.pop().unwrap_or_default();
                buffer.resize(len_bytes, 0);
                payload::fill(&mut buffer, lane_number, number);
                buffer
            });
            context.send_from(peer, tag, buffer, token).map_err(|(error, buffer)| {
                flow.filled = Some(Box::new((number, buffer)));
                error
            })
        };
        match sent {
            Ok(()) => {}
            Err(SendError::Again) => return Ok(HandOver::NoRoom),
            Err(error) => return Err(error),
        }
        let since = flow.due.pop_front().unwrap_or(self.now);
        flow.sent += 1;
        flow.open += 1;
        lane.under_way.push_back(Some(UnderWay { flow: at, len_bytes, since }));
        Ok(HandOver::Taken)
    }

    fn arrived(&mut self, from: u32, to: u32, message: &Message<'_>) {
        let Some(&lane_number) = self.lane_of.get(&(from, to)) else {
            return self.fail(format!("peer {to}: a message of peer {from}, who sends none"));
        };
        let lane = &mut self.lanes[lane_number as usize];
        // Tags are the low half of message numbers.
        let ahead = message.tag.0.wrapping_sub(lane.first as u32) as usize;
        let number = lane.first + ahead as u64;
        let place = lane.under_way.get_mut(ahead).and_then(Option::take);
        let Some(UnderWay { flow, len_bytes, since }) = place else {
            let (tag, want) = (message.tag, lane.first);
            let what = format!("peer {to}: {tag:?} of peer {from} twice, or never sent");
            return self.fail(format!("{what}; message {want} is next"));
        };
        if self.ordered && ahead > 0 {
            let want = lane.first;
            return self.fail(format!("peer {to}: message {number} of peer {from} before {want}"));
        }
        while let Some(None) = lane.under_way.front() {
            lane.under_way.pop_front();
            lane.first += 1;
        }
        let bytes = message.bytes();
        if bytes.len() != len_bytes {
            let got = bytes.len();
            self.fail(format!("peer {to}: message {number} of {from}: {got} B, not {len_bytes}"));
        } else if let Some(at) = payload::first_difference(bytes, lane_number, number) {
            self.fail(format!("peer {to}: message {number} of peer {from}: wrong at byte {at}"));
        }
        self.measure(flow, len_bytes, since);
        self.traffic.settled(flow, self.now);
    }

    fn measure(&mut self, at: u32, len_bytes: usize, since: Nanos) {
        self.messages += 1;
        let flow = &mut self.traffic.flows[at as usize];
        if !flow.is_data() {
            return;
        }
        flow.bytes += len_bytes as u64;
        flow.last_ns = self.now;
        let item = &mut self.traffic.items[flow.item as usize];
        item.messages += 1;
        item.latency.add(self.now - since);
        item.arrived.add(self.now, len_bytes as u64);
        self.latency.add(self.now, self.now - since);
    }

    /// Messages between two nodes that have not arrived never will.
    pub fn lose(&mut self, from: u32, to: u32) {
        let Some(&lane) = self.lane_of.get(&(from, to)) else { return };
        let lane = &mut self.lanes[lane as usize];
        lane.first += lane.under_way.len() as u64;
        for UnderWay { flow, .. } in std::mem::take(&mut lane.under_way).into_iter().flatten() {
            self.traffic.flows[flow as usize].lost += 1;
            self.traffic.settled(flow, self.now);
        }
    }

    fn sent(&mut self, token: Token, buffer: Option<Vec<u8>>) {
        self.buffers.extend(buffer);
        let flow = &mut self.traffic.flows[token.0 as usize];
        match flow.open.checked_sub(1) {
            Some(open) => flow.open = open,
            None => self.fail(format!("{token:?}: more sends are done than there were")),
        }
        self.traffic.list(token.0 as u32);
    }
}

/// The book, open at one node's page.
pub(super) struct Page<'a> {
    pub book: &'a mut Book,
    pub node: u32,
}

impl Handler<SimPort> for Page<'_> {
    fn on_event(&mut self, context: &mut Context<SimPort>, event: Event<'_>) {
        let (book, node) = (&mut *self.book, self.node);
        match event {
            Event::Received(message) => match context.rank(message.from) {
                Some(from) => book.arrived(from.0, node, &message),
                None => book.fail(format!("peer {node}: a message from nobody")),
            },
            // A send fails when its peer restarts; `lose` has settled it then.
            Event::SendDone { token, buffer, .. } | Event::SendFailed { token, buffer, .. } => {
                book.sent(token, buffer);
            }
            Event::PeerUnreachable { name, reason, .. } => {
                book.fail(format!("peer {node}: {name} cannot be reached: {reason}"));
            }
            _ => {}
        }
    }
}
