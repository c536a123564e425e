//! What one process of a cluster has sent, must get, and was told, peer by peer.
//!
//! A process is one engine's life: its rank and incarnation. Two processes have one session.

use super::cluster::Failure;
use super::payload;
use crate::event::Death;
use crate::ports::sim::SimPort;
use crate::time::{MILLIS, Nanos};
use crate::{Context, EndpointHandle, Event, Handler, Message, Token};
use std::collections::VecDeque;

/// Silences are measured to about a millisecond at either end.
const SILENCE_ERROR_NS: Nanos = 3 * MILLIS;

/// A process by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub rank: usize,
    pub incarnation: u32,
}

/// One session, as one of its two sides sees it.
pub(super) struct Page {
    pub peer: Name,
    /// Once this side has added the peer, until it is removed.
    pub handle: Option<EndpointHandle>,
    pub was_removed: bool,
    /// Number of the next message to the peer.
    pub next_number: u64,
    /// Sends whose end was not told.
    pub tokens_open: Vec<Token>,
    /// What the peer sent and has not arrived: numbers and lengths.
    pub expected: VecDeque<(u64, usize)>,
    /// All of that must arrive: both sides live and neither has given up the other.
    pub is_owed: bool,
    /// The engine said that the peer is dead.
    pub is_dead: bool,
    /// The engine said that the peer has closed.
    pub is_closed: bool,
    /// A send was refused although nothing was told: the next tick tells.
    pub is_refused: bool,
    /// Its death is already entered on the other side's page.
    pub is_noted: bool,
    pub sends_failed: bool,
    /// Another incarnation of its rank was added.
    pub is_replaced: bool,
    /// When a message of it came last, or since when this page is.
    pub heard_at: Nanos,
    /// How often this side's clock has jumped since then.
    pub skips: u32,
}

/// One process's book.
pub(super) struct Book {
    pub me: Name,
    pub ordered: bool,
    pub dead_after_ns: Nanos,
    pub pages: Vec<Page>,
    /// Ranks to which sends were made to fail.
    pub send_faults: Vec<usize>,
    pub received: u64,
    /// The first thing that went wrong.
    pub failure: Option<Failure>,
    /// The network's time.
    pub now: Nanos,
}

impl Book {
    pub fn new(me: Name, ordered: bool, dead_after_ns: Nanos) -> Self {
        let (pages, send_faults) = (Vec::new(), Vec::new());
        let (received, failure, now) = (0, None, 0);
        Self { me, ordered, dead_after_ns, pages, send_faults, received, failure, now }
    }

    /// The page of a peer; a new one starts with message `first_number`.
    pub fn page_of(&mut self, peer: Name, first_number: impl FnOnce() -> u64) -> &mut Page {
        let at = self.pages.iter().position(|page| page.peer == peer).unwrap_or_else(|| {
            self.pages.push(Page {
                peer,
                handle: None,
                was_removed: false,
                next_number: first_number(),
                tokens_open: Vec::new(),
                expected: VecDeque::new(),
                is_owed: true,
                is_dead: false,
                is_closed: false,
                is_refused: false,
                is_noted: false,
                sends_failed: false,
                is_replaced: false,
                heard_at: self.now,
                skips: 0,
            });
            self.pages.len() - 1
        });
        &mut self.pages[at]
    }

    /// The newest process of a rank that was added and not removed.
    pub fn current(&mut self, rank: usize) -> Option<&mut Page> {
        let pages = self.pages.iter_mut();
        let known = pages.filter(|page| page.peer.rank == rank && page.handle.is_some());
        known.max_by_key(|page| page.peer.incarnation)
    }

    fn by_handle(&mut self, handle: EndpointHandle) -> Option<&mut Page> {
        self.pages.iter_mut().find(|page| page.handle == Some(handle))
    }

    pub fn fail(&mut self, text: &str) {
        let Name { rank, incarnation } = self.me;
        self.failure.get_or_insert(format!("rank {rank} ({incarnation}): {text}"));
    }

    fn on_message(&mut self, message: &Message<'_>) {
        self.received += 1;
        let (ordered, now) = (self.ordered, self.now);
        let Some(page) = self.by_handle(message.from) else {
            return self.fail("a message of nobody");
        };
        let source = page.peer;
        (page.heard_at, page.skips) = (now, 0);
        if page.is_dead {
            return self.fail(&format!("a message of {source:?}, who is dead"));
        }
        let queue = &mut page.expected;
        let tag = u64::from(message.tag.0);
        let place = if ordered {
            queue.front().filter(|(number, _)| *number == tag).map(|_| 0)
        } else {
            queue.iter().position(|(number, _)| *number == tag)
        };
        let Some((number, len)) = place.and_then(|place| queue.remove(place)) else {
            let next = queue.front().copied();
            return self.fail(&format!("message {tag} of {source:?}; expected next: {next:?}"));
        };
        let bytes = message.bytes();
        if bytes.len() != len {
            let got = bytes.len();
            self.fail(&format!("message {number} of {source:?}: {got} bytes, not {len}"));
        } else if let Some(at) = payload::first_difference(bytes, source.rank as u32, number) {
            self.fail(&format!("message {number} of {source:?}: wrong at byte {at}"));
        }
    }

    fn on_send_over(&mut self, to: EndpointHandle, token: Token, failed: bool) {
        // The last of a removed peer's sends end when the port has given their slots back.
        let mut pages = self.pages.iter_mut().filter(|page| {
            page.handle == Some(to) || (page.was_removed && page.tokens_open.contains(&token))
        });
        let Some(page) = pages.next() else {
            return self.fail(&format!("{token:?} to nobody is over"));
        };
        page.sends_failed |= failed;
        match page.tokens_open.iter().position(|&open| open == token) {
            Some(at) => {
                page.tokens_open.swap_remove(at);
            }
            None => self.fail(&format!("{token:?} is over twice")),
        }
    }

    fn on_death(&mut self, peer: EndpointHandle, cause: Death) {
        let (now, dead_after) = (self.now, self.dead_after_ns);
        let send_faults = std::mem::take(&mut self.send_faults);
        let Some(page) = self.by_handle(peer) else {
            return self.fail("nobody is dead");
        };
        let name = page.peer;
        // What a jump of the own clock counts for at most.
        let skipped = u64::from(page.skips) * (dead_after / 8);
        let silence = now - page.heard_at + skipped + SILENCE_ERROR_NS;
        let may_be = match cause {
            Death::Silent { silent_ns } => silent_ns >= dead_after && silence >= dead_after,
            Death::Replaced => page.is_replaced,
            Death::SendError { .. } => send_faults.contains(&name.rank),
        };
        let is_dead = std::mem::replace(&mut page.is_dead, true);
        let heard = page.heard_at;
        self.send_faults = send_faults;
        if is_dead {
            self.fail(&format!("{name:?} is dead twice"));
        } else if !may_be {
            self.fail(&format!("{name:?} is dead at {now} ns ({cause}), heard at {heard} ns"));
        }
    }

    /// What must hold after each tick.
    pub fn check(&mut self) -> Result<(), Failure> {
        let failed = |page: &&Page| page.sends_failed && !page.is_dead && !page.was_removed;
        if let Some(page) = self.pages.iter().find(failed) {
            let text = format!("sends to {:?}, who lives, have failed", page.peer);
            self.fail(&text);
        }
        let refused = |page: &&Page| page.is_refused && !page.is_dead && !page.is_closed;
        if let Some(page) = self.pages.iter().find(refused) {
            let text = format!("sends to {:?}, who lives, are refused", page.peer);
            self.fail(&text);
        }
        self.failure.take().map_or(Ok(()), Err)
    }
}

impl Handler<SimPort> for Book {
    fn on_event(&mut self, _: &mut Context<SimPort>, event: Event<'_>) {
        match event {
            Event::Received(message) => self.on_message(&message),
            Event::SendDone { to, token, .. } => self.on_send_over(to, token, false),
            Event::SendFailed { to, token, .. } => self.on_send_over(to, token, true),
            Event::PeerUnreachable { name, reason, .. } => {
                self.fail(&format!("{name} is unreachable ({reason})"));
            }
            Event::PeerDead { peer, cause, .. } => self.on_death(peer, cause),
            Event::PeerClosed { peer } => match self.by_handle(peer) {
                Some(page) if !page.is_closed => {
                    page.is_closed = true;
                    let missing = page.expected.front().filter(|_| page.is_owed);
                    if let Some(front) = missing {
                        let text = format!("{:?} has closed before its {front:?}", page.peer);
                        self.fail(&text);
                    }
                }
                page => {
                    let name = page.map(|page| page.peer);
                    self.fail(&format!("{name:?} has closed twice, or is nobody"));
                }
            },
            _ => {}
        }
    }
}
