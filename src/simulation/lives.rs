//! Processes that start, hear of each other, close and die.

use super::cluster::{Act, Cluster, Failure, next_session};
use super::process::{Book, Name};
use crate::time::{MICROS, MILLIS, Nanos};
use crate::{EndpointHandle, PeerAddress, PeerError, SendError, Usage};

impl Cluster {
    /// A process ends without a word.
    pub fn kill(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.engine.take().is_none() {
            return;
        }
        node.leaves_at = None;
        let gone = node.book.me;
        for page in self.nodes.iter_mut().flat_map(|node| &mut node.book.pages) {
            page.is_owed &= page.peer != gone;
        }
        self.agenda.retain(|(_, node, act)| *node != at || matches!(act, Act::Open));
    }

    /// A process ends without a word; another one takes its node and rank after `down_ns`. The
    /// others hear of it, and it of them, each at some time within `late_ns` after that.
    pub fn restart(&mut self, at: usize, down_ns: Nanos, late_ns: Nanos) {
        if self.nodes[at].engine.is_none() {
            return;
        }
        self.kill(at);
        let now = self.net.now();
        self.agenda.push((now + down_ns, at, Act::Open));
        self.late_ns = late_ns.max(1);
    }

    /// Whether a process runs on the node.
    pub fn is_up(&self, at: usize) -> bool {
        self.nodes[at].engine.is_some()
    }

    /// How many nodes have a process that means to stay, or will have one.
    pub fn staying(&self) -> usize {
        let stays = |at: usize| self.is_up(at) && self.nodes[at].leaves_at.is_none();
        (0..self.len()).filter(|&at| stays(at)).count()
    }

    /// A process closes towards all it knows, and leaves when all have said goodbye, or after
    /// `linger_ns`.
    pub fn close(&mut self, at: usize, linger_ns: Nanos) {
        let now = self.net.now();
        let node = &mut self.nodes[at];
        let Some(engine) = node.engine.as_mut().filter(|_| node.leaves_at.is_none()) else {
            return;
        };
        node.leaves_at = Some(now + linger_ns);
        for handle in node.book.pages.iter().filter_map(|page| page.handle) {
            engine.close_peer(handle).expect("it was added and not removed");
        }
        self.agenda.retain(|(_, node, act)| *node != at || matches!(act, Act::Open));
        self.wake(at);
    }

    /// A node's clock jumps ahead.
    pub fn skip_clock(&mut self, at: usize, by_ns: Nanos) {
        self.net.skip_clock(at as u32, by_ns);
        self.nodes[at].book.pages.iter_mut().for_each(|page| page.skips += 1);
        self.wake(at);
    }

    /// The next sends from one node to another fail with a code.
    pub fn fail_sends(&mut self, from: usize, to: usize, code: i32, times: u32) {
        self.net.fail_sends(from as u32, to as u32, code, times);
        self.nodes[from].book.send_faults.push(to);
    }

    /// A process wants to hear of another's death; also of one that owes it nothing.
    pub fn watch(&mut self, at: usize, peer: usize, on: bool) {
        self.wake(at);
        let node = &mut self.nodes[at];
        let (Some(engine), Some(page)) = (&mut node.engine, node.book.current(peer)) else {
            return;
        };
        if let Some(handle) = page.handle {
            // A peer that has closed, or is dead, cannot be watched.
            let _ = engine.watch(handle, on);
        }
    }

    /// Whether a message from one node to another must be taken, or told to wait.
    pub fn is_open(&mut self, from: usize, to: usize) -> bool {
        let node = &mut self.nodes[from];
        let stays = node.engine.is_some() && node.leaves_at.is_none();
        stays && node.book.current(to).is_some_and(|page| !page.is_dead && !page.is_closed)
    }

    /// A send was refused for good: the reason is known, or the next tick tells it.
    pub(super) fn on_refused(&mut self, from: usize, to: usize) {
        let is_open = self.is_open(from, to);
        if let Some(page) = self.nodes[from].book.current(to) {
            page.is_refused = is_open;
        }
    }

    /// Whether two processes that stay know each other, and neither has given up the other.
    pub fn are_mutual(&mut self, a: usize, b: usize) -> bool {
        let names = [a, b].map(|at| self.nodes[at].book.me);
        [(a, b, names[1]), (b, a, names[0])].into_iter().all(|(at, to, name)| {
            let page = self.nodes[at].book.current(to);
            page.is_some_and(|page| page.peer == name) && self.is_open(at, to)
        })
    }

    /// What is due on the agenda.
    pub(super) fn act(&mut self, now: Nanos) -> Result<(), Failure> {
        let mut i = 0;
        while i < self.agenda.len() {
            if self.agenda[i].0 > now {
                i += 1;
                continue;
            }
            let (_, at, act) = self.agenda.remove(i);
            match act {
                Act::Open => self.open(at),
                Act::Introduce(address) => self.introduce(at, address)?,
            }
        }
        Ok(())
    }

    /// A new process on the node of an old one.
    fn open(&mut self, at: usize) {
        let (now, n) = (self.net.now(), self.config.nodes);
        let node = &mut self.nodes[at];
        let (rank, incarnation) = (at, node.book.me.incarnation + n);
        node.received_before += node.book.received;
        let me = Name { rank, incarnation };
        let former = Book::new(me, self.config.ordered, self.config.dead_after_ns);
        let former = std::mem::replace(&mut node.book, former);
        (node.book.now, node.book.send_faults) = (now, former.send_faults);
        node.paused = false;
        let port = self.net.reopen(at as u32, self.config.port.clone());
        let engine = self.build(at, port);
        let ours = engine.local_address();
        self.nodes[at].engine = Some(engine);
        self.wake(at);
        for other in (0..self.len()).filter(|&other| other != at) {
            let Some(engine) = &self.nodes[other].engine else { continue };
            let theirs = engine.local_address();
            for (node, address) in [(at, theirs), (other, ours.clone())] {
                let delay = self.some_ns();
                self.agenda.push((now + delay, node, Act::Introduce(address)));
            }
        }
    }

    /// Some time below `late_ns`; short ones are likelier.
    fn some_ns(&mut self) -> Nanos {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let late_ns = if self.dice >> 63 == 0 { 50 * MICROS } else { self.late_ns };
        (self.dice >> 33) % late_ns
    }

    /// The node's process hears of another; old news are no news.
    fn introduce(&mut self, at: usize, address: PeerAddress) -> Result<(), Failure> {
        let node = &mut self.nodes[at];
        let rank = address.rank.0 as usize;
        let knows = node.book.pages.iter().any(|page| {
            let is_added = page.handle.is_some() || page.was_removed;
            page.peer.rank == rank && is_added && page.peer.incarnation >= address.incarnation.0
        });
        if node.engine.is_none() || node.leaves_at.is_some() || knows {
            return Ok(());
        }
        match self.add_peer(at, &address, next_session) {
            Ok(_) => Ok(()),
            Err(PeerError::Full { .. }) => {
                let dead: Vec<_> = self.dead_of(at);
                let later = self.net.now() + if dead.is_empty() { MILLIS } else { 0 };
                for handle in dead {
                    self.remove_peer(at, handle)?;
                }
                self.agenda.push((later, at, Act::Introduce(address)));
                Ok(())
            }
            Err(error) => Err(format!("rank {at}: {error}")),
        }
    }

    pub(super) fn add_peer(
        &mut self,
        at: usize,
        address: &PeerAddress,
        first_number: fn(&mut u64) -> u64,
    ) -> Result<EndpointHandle, PeerError> {
        let (rank, incarnation) = (address.rank.0 as usize, address.incarnation.0);
        let name = Name { rank, incarnation };
        let lives = self.nodes[rank].book.me == name && self.nodes[rank].engine.is_some();
        let (now, sessions, node) = (self.net.now(), &mut self.sessions, &mut self.nodes[at]);
        let engine = node.engine.as_mut().expect("a process runs");
        let handle = engine.add_peer(address)?;
        node.wake_at = 0;
        node.book.now = now;
        for page in node.book.pages.iter_mut().filter(|page| page.peer.rank == rank) {
            page.is_replaced = true;
        }
        let page = node.book.page_of(name, || first_number(sessions));
        (page.handle, page.is_replaced, page.heard_at) = (Some(handle), false, now);
        page.is_owed &= lives;
        Ok(handle)
    }

    fn dead_of(&self, at: usize) -> Vec<EndpointHandle> {
        let pages = self.nodes[at].book.pages.iter().filter(|page| page.is_dead);
        pages.filter_map(|page| page.handle).collect()
    }

    /// Takes a peer off a process's books. Its tokens must be over, or be with the port.
    pub(super) fn remove_peer(&mut self, at: usize, handle: EndpointHandle) -> Result<(), Failure> {
        let node = &mut self.nodes[at];
        let Some(engine) = &mut node.engine else { return Ok(()) };
        for page in node.book.pages.iter_mut().filter(|page| page.handle == Some(handle)) {
            page.was_removed = true;
        }
        let removed = engine.remove_peer(handle, &mut node.book);
        for page in node.book.pages.iter_mut().filter(|page| page.handle == Some(handle)) {
            page.handle = None;
        }
        node.wake_at = 0;
        node.book.check()?;
        let broken = |v| format!("rank {at}, a peer removed: invariant {v}");
        engine.check_invariants().map_err(broken)?;
        match removed {
            Ok(()) => Ok(()),
            Err(SendError::NoPeer) => Err(format!("rank {at}: {handle:?} went by itself")),
            Err(error) => Err(format!("rank {at}: removing {handle:?}: {error}")),
        }
    }

    /// What a tick has told is entered in the others' books; who has closed leaves.
    pub(super) fn after_tick(&mut self, at: usize) -> Result<(), Failure> {
        let me = self.nodes[at].book.me;
        let mut i = 0;
        while let Some(page) = self.nodes[at].book.pages.get_mut(i) {
            i += 1;
            if !page.is_dead || std::mem::replace(&mut page.is_noted, true) {
                continue;
            }
            page.is_owed = false;
            let (peer, handle) = (page.peer, page.handle);
            for page in &mut self.nodes[peer.rank].book.pages {
                page.is_owed &= page.peer != me;
            }
            // Half of the users remove the dead at once; the others when they need the room.
            if let Some(handle) = handle.filter(|_| i % 2 == 0) {
                self.remove_peer(at, handle)?;
            }
        }
        match self.nodes[at].leaves_at {
            Some(leaves_at) => self.leave(at, leaves_at),
            None => Ok(()),
        }
    }

    fn leave(&mut self, at: usize, leaves_at: Nanos) -> Result<(), Failure> {
        let node = &self.nodes[at];
        let Some(engine) = &node.engine else { return Ok(()) };
        let handles = || node.book.pages.iter().filter_map(|page| page.handle);
        if handles().all(|handle| engine.is_closed(handle)) {
            self.check_closed(at)?;
        } else if self.net.now() < leaves_at {
            return Ok(());
        }
        self.kill(at);
        Ok(())
    }

    /// Whoever leaves in peace has got all from those that said goodbye, and they all from it.
    fn check_closed(&self, at: usize) -> Result<(), Failure> {
        let book = &self.nodes[at].book;
        for page in book.pages.iter().filter(|page| page.is_closed && page.is_owed) {
            let others = self.nodes[page.peer.rank].book.pages.iter();
            let theirs = others.filter(|theirs| theirs.peer == book.me && theirs.is_owed);
            for (to, page) in [(at, page)].into_iter().chain(theirs.map(|it| (page.peer.rank, it)))
            {
                if let Some(front) = page.expected.front() {
                    let from = page.peer;
                    return Err(format!(
                        "rank {at} has closed; {front:?} of {from:?} is not with rank {to}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// All watch those whose processes are gone, or that have given them up, and hear of their
    /// deaths in time.
    pub(super) fn await_deaths(&mut self) -> Result<(), Failure> {
        let dead_after = self.config.dead_after_ns;
        let mut watched = Vec::new();
        let n = self.len();
        for (at, peer) in (0..n).flat_map(|a| (0..n).map(move |b| (a, b))) {
            if at != peer && self.is_open(at, peer) && !self.are_mutual(at, peer) {
                self.watch(at, peer, true);
                watched.push((at, peer));
            }
        }
        // Timers are as fine as silences are measured; a watch may have begun before this.
        let end = self.net.now() + dead_after + dead_after / 4 + 10 * MILLIS;
        while watched.iter().any(|&(at, peer)| self.is_open(at, peer)) {
            if self.net.now() >= end {
                let alive = watched.iter().find(|&&(at, peer)| self.is_open(at, peer));
                return Err(format!("{alive:?}: not told that the second one is dead"));
            }
            self.step(end, 10 * MILLIS)?;
        }
        Ok(())
    }

    /// With all peers removed, no engine holds anything.
    pub(super) fn check_emptiness(&mut self) -> Result<(), Failure> {
        for at in 0..self.len() {
            let handles: Vec<_> =
                self.nodes[at].book.pages.iter().filter_map(|page| page.handle).collect();
            for handle in handles {
                self.remove_peer(at, handle)?;
            }
        }
        self.run_for(MILLIS, 50 * MICROS)?;
        for (at, node) in self.nodes.iter().enumerate() {
            let Some(engine) = &node.engine else { continue };
            if engine.usage() != Usage::default() {
                return Err(format!("rank {at} has no peers and holds {:?}", engine.usage()));
            }
            if let Some(page) = node.book.pages.iter().find(|page| !page.tokens_open.is_empty()) {
                let (open, peer) = (&page.tokens_open, page.peer);
                return Err(format!("rank {at}: {open:?} to {peer:?} were never over"));
            }
        }
        Ok(())
    }
}
