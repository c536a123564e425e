//! A rank's messages: what it has on its way, what it expects, what it saw.
//!
//! Message `n` from one rank to another has contents and a length that both know, so every byte
//! can be checked. The last one says how many there were.

use super::Args;
use super::line::Death;
use tickwire::ports::Port;
use tickwire::simulation::payload;
use tickwire::{
    Context, Death as Cause, EndpointHandle, Event, Handler, Message, Rank, SendError, Tag, Token,
};

/// The message that ends a partner's; it holds how many came before.
const END: Tag = Tag(u32::MAX);

/// Another rank that this one sends to, or hears from, or both.
struct Partner {
    rank: u32,
    handle: EndpointHandle,
    sends: bool,
    hears: bool,
    /// Memory of messages that are not on their way.
    stock: Vec<Vec<u8>>,
    /// The next message, filled, when there was no room for it.
    waiting: Option<Vec<u8>>,
    /// Number of the next message to it, and of the next one from it.
    next: u64,
    expected: u64,
    end_sent: bool,
    end_heard: bool,
    dead: bool,
    /// Messages to it that arrived and messages from it, as of now and of the last second.
    moved: u64,
    moved_before: u64,
    /// Seconds without any.
    stuck_s: u32,
}

/// All messages of a rank.
pub struct Traffic<'a> {
    rank: u32,
    sizes: &'a [usize],
    partners: Vec<Partner>,
    /// By rank, where in `partners`.
    places: Vec<usize>,
    /// Only ends are sent from now on.
    ending: bool,
    /// A buffer came back, or there was no room.
    to_pump: bool,
    /// Messages and bytes received and verified.
    pub messages: u64,
    pub bytes: u64,
    /// Peers that died, not yet told.
    pub deaths: Vec<Death>,
    /// What must not happen.
    pub failure: Option<String>,
    started_ns: u64,
}

impl<'a> Traffic<'a> {
    pub fn new(args: &'a Args, rank: u32) -> Self {
        Self {
            rank,
            sizes: &args.sizes,
            partners: Vec::new(),
            places: vec![usize::MAX; args.ranks as usize],
            ending: false,
            to_pump: true,
            messages: 0,
            bytes: 0,
            deaths: Vec::new(),
            failure: None,
            started_ns: 0,
        }
    }

    /// Adds a partner with `window` messages to be on their way.
    pub fn add(&mut self, rank: u32, handle: EndpointHandle, window: Option<u32>, hears: bool) {
        self.places[rank as usize] = self.partners.len();
        self.partners.push(Partner {
            rank,
            handle,
            sends: window.is_some(),
            hears,
            stock: vec![Vec::new(); window.unwrap_or(0) as usize],
            waiting: None,
            next: 0,
            expected: 0,
            end_sent: false,
            end_heard: false,
            dead: false,
            moved: 0,
            moved_before: 0,
            stuck_s: 0,
        });
    }

    /// The time from which deaths are counted.
    pub fn start(&mut self, now_ns: u64) {
        self.started_ns = now_ns;
    }

    /// No more messages from now on; the partners are told.
    pub fn end(&mut self) {
        self.ending = true;
        self.to_pump = true;
    }

    /// Whether nobody is left to talk to.
    pub fn is_alone(&self) -> bool {
        self.partners.iter().all(|partner| partner.dead)
    }

    /// Whether everything sent has arrived and everything expected is here.
    pub fn is_done<P: Port>(&self, context: &Context<P>) -> bool {
        self.partners.iter().all(|it| {
            let sent = !it.sends || (it.end_sent && context.is_drained(it.handle));
            it.dead || (sent && (!it.hears || it.end_heard))
        })
    }

    /// A second is over. A partner that is alive and with whom nothing has moved for `limit_s` of
    /// them is stuck: that must not happen. Seconds that this process slept through are not told.
    pub fn second(&mut self, limit_s: u32) {
        for it in &mut self.partners {
            let idle = it.dead || ((!it.sends || it.end_sent) && (!it.hears || it.end_heard));
            if idle || it.moved != it.moved_before {
                (it.moved_before, it.stuck_s) = (it.moved, 0);
                continue;
            }
            it.stuck_s += 1;
            if it.stuck_s > limit_s {
                let (rank, sent, heard) = (it.rank, it.next, it.expected);
                self.failure = Some(format!(
                    "rank {rank} is not dead, but no message arrived for {limit_s} s; {sent} were \
                     sent to it, {heard} came from it"
                ));
            }
        }
    }

    /// Sends what the windows have room for.
    pub fn pump<P: Port>(&mut self, context: &mut Context<P>) {
        if !std::mem::take(&mut self.to_pump) {
            return;
        }
        for place in 0..self.partners.len() {
            if !self.partners[place].sends || self.partners[place].dead {
                continue;
            }
            match self.pump_one(context, place) {
                Ok(()) => {}
                Err(SendError::Again) => self.to_pump = true,
                // An event tells more, or has already.
                Err(SendError::Closed) => self.partners[place].sends = false,
                Err(error) => {
                    let rank = self.partners[place].rank;
                    self.failure = Some(format!("sending to rank {rank}: {error}"));
                }
            }
        }
    }

    fn pump_one<P: Port>(
        &mut self,
        context: &mut Context<P>,
        place: usize,
    ) -> Result<(), SendError> {
        let it = &mut self.partners[place];
        while let Some(buffer) = it.waiting.take().or_else(|| {
            if self.ending {
                return None;
            }
            let mut buffer = it.stock.pop()?;
            buffer.resize(size(self.sizes, it.next), 0);
            payload::fill(&mut buffer, self.rank, content(it.rank, it.next));
            Some(buffer)
        }) {
            match context.send_from(it.handle, tag(it.next), buffer, Token(place as u64)) {
                Ok(()) => it.next += 1,
                Err((error, buffer)) => {
                    it.waiting = Some(buffer);
                    return Err(error);
                }
            }
        }
        if self.ending && !it.end_sent {
            context.send_copy(it.handle, END, &it.next.to_le_bytes())?;
            it.end_sent = true;
        }
        Ok(())
    }

    fn partner_of(&mut self, rank: Option<Rank>) -> Option<usize> {
        let place = self.places.get(rank?.0 as usize)?;
        (*place < self.partners.len()).then_some(*place)
    }

    fn on_message<P: Port>(&mut self, context: &Context<P>, message: &Message<'_>) {
        let Some(place) = self.partner_of(context.rank(message.from)) else {
            self.failure = Some("a message from a rank that sends none".into());
            return;
        };
        let it = &mut self.partners[place];
        let bytes = message.bytes();
        if message.tag == END {
            if bytes != it.expected.to_le_bytes() || it.end_heard {
                self.failure = Some(format!(
                    "rank {} says that it sent {bytes:?} messages (bytes of a count), {} arrived",
                    it.rank, it.expected
                ));
            }
            it.end_heard = true;
            return;
        }
        let number = it.expected;
        it.expected += 1;
        it.moved += 1;
        let want = size(self.sizes, number);
        let wrong = payload::first_difference(bytes, it.rank, content(self.rank, number));
        self.failure = match wrong {
            _ if it.end_heard || !it.hears => {
                Some(format!("message {number} of rank {}, which sends no more", it.rank))
            }
            _ if message.tag != tag(number) || bytes.len() != want => Some(format!(
                "rank {} sent a message with tag {} of {} bytes in place of number {number} of \
                 {want} bytes (do all ranks have the same --sizes?)",
                it.rank,
                message.tag.0,
                bytes.len()
            )),
            Some(at) => Some(format!(
                "message {number} of rank {} ({want} bytes) is wrong at byte {at}",
                it.rank
            )),
            None => return self.count(want),
        };
    }

    fn count(&mut self, len: usize) {
        self.messages += 1;
        self.bytes += len as u64;
    }

    fn on_death<P: Port>(
        &mut self,
        context: &Context<P>,
        rank: Rank,
        name: &str,
        cause: String,
        silent_ns: Option<u64>,
    ) {
        if let Some(place) = self.partner_of(Some(rank)) {
            self.partners[place].dead = true;
        }
        self.deaths.push(Death {
            rank: rank.0,
            name: name.to_owned(),
            cause,
            at_s: context.now().saturating_sub(self.started_ns) as f64 / 1e9,
            silent_ms: silent_ns.map(|ns| ns / 1_000_000),
        });
    }
}

/// Length of message `number`.
fn size(sizes: &[usize], number: u64) -> usize {
    sizes[(number % sizes.len() as u64) as usize]
}

/// What [`payload`] makes the contents from: another rank's message of that number differs.
fn content(to: u32, number: u64) -> u64 {
    number | (u64::from(to) << 44)
}

fn tag(number: u64) -> Tag {
    Tag((number % u64::from(END.0)) as u32)
}

impl<P: Port> Handler<P> for Traffic<'_> {
    fn on_event(&mut self, context: &mut Context<P>, event: Event<'_>) {
        match event {
            Event::Received(message) => self.on_message(context, &message),
            Event::SendDone { token, buffer, .. } => {
                let it = &mut self.partners[token.0 as usize];
                it.moved += 1;
                it.stock.extend(buffer);
                self.to_pump = true;
            }
            // Only those that are ready are probed.
            Event::PeerReady { peer } => {
                let _ = context.watch(peer, true);
            }
            Event::PeerDead { rank, name, cause, .. } => {
                let silent_ns = match cause {
                    Cause::Silent { silent_ns } => Some(silent_ns),
                    _ => None,
                };
                self.on_death(context, rank, name, cause.to_string(), silent_ns);
            }
            Event::PeerUnreachable { rank, name, reason, .. } => {
                self.on_death(context, rank, name, format!("cannot be reached: {reason}"), None);
            }
            Event::PeerClosed { peer } => {
                if let Some(place) = self.partner_of(context.rank(peer)) {
                    let it = &self.partners[place];
                    if it.hears && !it.end_heard {
                        self.failure = Some(format!("rank {} closed before its end", it.rank));
                    }
                }
            }
            _ => {}
        }
    }
}
