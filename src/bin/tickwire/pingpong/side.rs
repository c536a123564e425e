//! One side's state: what it expects, what it answers, what it saw.

use tickwire::ports::Port;
use tickwire::simulation::payload;
use tickwire::{Context, EndpointHandle, Event, Handler, Message, SendError, Tag, Token};

/// The message that ends the job.
pub const END: Tag = Tag(u32::MAX);

/// The rank that measures.
pub const MEASURER: u32 = 0;

/// The rank that echoes.
pub const ECHOER: u32 = 1;

/// One side. Contents of message `n` are a function of the sender's rank and `n`.
pub struct Side {
    rank: u32,
    echoes: bool,
    /// The next message to send, filled beforehand so that filling is not part of a round trip.
    next: Vec<u8>,
    next_number: u32,
    /// The number that `next` was filled for.
    filled_for: Option<u32>,
    /// Number of the newest message that arrived intact.
    pub newest: Option<u32>,
    /// When it arrived, on the port's clock.
    pub arrived_ns: u64,
    /// Messages that arrived.
    pub arrived: u64,
    /// The other side has said that it is done.
    pub ended: bool,
    /// What went wrong, to be told at once.
    pub failure: Option<String>,
    /// A reply that found no room.
    blocked: Option<EndpointHandle>,
}

impl Side {
    pub fn new(rank: u32) -> Self {
        Self {
            rank,
            echoes: rank != MEASURER,
            next: Vec::new(),
            next_number: 0,
            filled_for: None,
            newest: None,
            arrived_ns: 0,
            arrived: 0,
            ended: false,
            failure: None,
            blocked: None,
        }
    }

    /// Fills the next message to send.
    pub fn prepare(&mut self, len: usize) {
        self.next.resize(len, 0);
        payload::fill(&mut self.next, self.rank, u64::from(self.next_number));
        self.filled_for = Some(self.next_number);
    }

    /// Sends what was prepared; false when there is no room now.
    pub fn send<P: Port>(
        &mut self,
        context: &mut Context<P>,
        to: EndpointHandle,
    ) -> Result<bool, String> {
        let tag = Tag(self.next_number);
        let small = context.small_bytes_max(to).unwrap_or(0);
        let sent = if self.next.len() <= small {
            context.alloc(to, self.next.len()).and_then(|mut message| {
                message.copy_from_slice(&self.next);
                message.send(tag)
            })
        } else {
            let buffer = std::mem::take(&mut self.next);
            context.send_from(to, tag, buffer, Token(0)).map_err(|(error, buffer)| {
                self.next = buffer;
                error
            })
        };
        match sent {
            Ok(()) => {
                self.next_number += 1;
                Ok(true)
            }
            Err(SendError::Again) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Sends a reply that found no room before.
    pub fn retry<P: Port>(&mut self, context: &mut Context<P>) {
        if let Some(to) = self.blocked.take() {
            self.reply(context, to);
        }
    }

    fn reply<P: Port>(&mut self, context: &mut Context<P>, to: EndpointHandle) {
        match self.send(context, to) {
            Ok(true) => {}
            Ok(false) => self.blocked = Some(to),
            Err(error) => self.failure = Some(error),
        }
    }

    fn on_message<P: Port>(&mut self, context: &mut Context<P>, message: Message<'_>) {
        if message.tag == END {
            self.ended = true;
            return;
        }
        let (number, len, from) = (message.tag.0, message.bytes().len(), message.from);
        if self.echoes {
            // A change of size was not foreseen; it costs the first round trip of a size.
            if self.next.len() != len || self.filled_for != Some(number) {
                self.next_number = number;
                self.prepare(len);
            }
            self.reply(context, from);
        }
        self.arrived_ns = context.port().now();
        let source = 1 - self.rank;
        if let Some(at) = payload::first_difference(message.bytes(), source, u64::from(number)) {
            self.failure = Some(format!("message {number} of {len} bytes is wrong at byte {at}"));
        }
        if self.newest.is_some_and(|newest| number != newest + 1) {
            self.failure = Some(format!("message {number} after {:?}", self.newest));
        }
        self.newest = Some(number);
        self.arrived += 1;
        if self.echoes && self.blocked.is_none() && len <= 65_536 {
            self.prepare(len);
        }
    }
}

impl<P: Port> Handler<P> for Side {
    fn on_event(&mut self, context: &mut Context<P>, event: Event<'_>) {
        match event {
            Event::Received(message) => self.on_message(context, message),
            // The buffer comes back to be filled for the next message.
            Event::SendDone { buffer: Some(buffer), .. } if self.next.is_empty() => {
                let len = buffer.len();
                self.next = buffer;
                if self.echoes {
                    self.prepare(len);
                }
            }
            Event::PeerUnreachable { name, reason, .. } => {
                self.failure = Some(format!("{name} cannot be reached: {reason}"));
            }
            _ => {}
        }
    }
}
