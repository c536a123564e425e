//! The engine: tables, port, and the tick that drives them.

use crate::address::PeerAddress;
use crate::config::{Config, Limits};
use crate::context::Context;
use crate::error::{BuildError, PeerError, SendError};
use crate::event::Handler;
use crate::ids::{EndpointHandle, EndpointRow};
use crate::invariants::{self, Usage, Violation};
use crate::ports::{Channel, Completion, CompletionKind, Port};
use crate::state::buffers::BufferPool;
use crate::state::endpoints::Endpoints;
use crate::state::fragments::Fragments;
use crate::state::rail::{BATCH, Rail};
use crate::state::segments::Segments;
use crate::state::worklists::WorkLists;
use crate::stats::{Counters, Work};
use crate::systems::{ack, chunk_pack, poll_cq, reap_av, resend, send};
use crate::time::{Nanos, coarse_at};
use crate::{liveness, peers};
use tickwire_tables::arena::{ArenaPart, DatagramArena};
use tickwire_tables::handle::Row;

/// One process's end of the job. Everything sent goes through its [`Context`], to which it
/// dereferences; everything received comes from [`Engine::tick`].
pub struct Engine<P> {
    context: Context<P>,
    inbox: Inbox,
}

/// The receiving half: slots for arriving datagrams.
pub(crate) struct Inbox {
    pub slots: ArenaPart,
    /// Slots with the port, per channel.
    pub posted: [u32; 2],
    /// Consumed slots, to be posted again.
    pub freed: FreedSlots,
    /// Slots that hold early small messages.
    pub held: u32,
    /// What one poll reads; kept here, as clearing it anew would be half of an idle tick.
    pub scratch: Box<[Completion; BATCH]>,
}

/// Consumed receive slots, by the channel that their number belongs to.
pub(crate) struct FreedSlots {
    first_data: u32,
    by_channel: [Vec<u32>; 2],
}

impl FreedSlots {
    #[inline]
    pub fn push(&mut self, slot: u32) {
        self.by_channel[usize::from(slot >= self.first_data)].push(slot);
    }

    /// Whether the slot belongs to the priority channel.
    #[inline]
    pub fn is_priority(&self, slot: u32) -> bool {
        slot < self.first_data
    }

    pub fn len(&self, channel: Channel) -> usize {
        self.by_channel[channel as usize].len()
    }
}

impl Inbox {
    fn new(slots: ArenaPart, ack_slots: u32) -> Self {
        let first_data = slots.first() + ack_slots;
        let priority = (slots.first()..first_data).collect();
        let data = (first_data..slots.end()).collect();
        let freed = FreedSlots { first_data, by_channel: [priority, data] };
        let none = Completion { kind: CompletionKind::Sent, slot: 0, len_bytes: 0 };
        Self { slots, posted: [0; 2], freed, held: 0, scratch: Box::new([none; BATCH]) }
    }

    #[inline]
    pub fn free(&mut self, slot: u32) {
        self.freed.push(slot);
    }

    /// Hands consumed slots back to the port in one call; what it does not take waits.
    pub fn repost<P: Port>(&mut self, c: &mut Context<P>, channel: Channel) {
        let freed = &mut self.freed.by_channel[channel as usize];
        if freed.is_empty() {
            return;
        }
        let taken = c.rail.port.post_recvs(channel, freed);
        for slot in freed.drain(..taken) {
            self.slots.lend(slot);
        }
        self.posted[channel as usize] += taken as u32;
    }
}

impl<P: Port> Engine<P> {
    /// Builds an engine on `port`. All memory but message buffers is taken here.
    pub fn new(config: Config, mut port: P) -> Result<Self, BuildError> {
        let limits = config.limits(port.caps())?;
        let sends = config.send_slots + config.ack_slots;
        let receives = limits.receive_slots + limits.receive_ack_slots;
        let bytes = (sends + receives) as usize * limits.slot_bytes;
        let arena = DatagramArena::new((sends + receives) as usize, limits.slot_bytes)
            .map_err(|source| BuildError::Memory { bytes, source })?;
        port.attach(&arena)?;
        let (slots, inbox_slots) = arena.split(sends);
        let now = port.now();
        let peers = config.peers_max;
        let mut context = Context {
            job_check: config.job_key.wire_check(),
            rail: Rail::new(port, limits.send_depth),
            slots,
            endpoints: Endpoints::new(peers, config.ranks_max, limits.rings, limits.window),
            segments: Segments::new(config.send_slots, config.ack_slots),
            fragments: Fragments::new(config.fragments_max),
            buffers: BufferPool::new(config.half_received_bytes_max, config.buffers_kept_bytes_max),
            lists: WorkLists::new(peers as usize, now),
            counters: Counters::default(),
            now,
            live_ns: 0,
            last_tick_ns: now,
            polled_ns: now,
            away_ns: 0,
            in_tick: false,
            inserts_outstanding: 0,
            config,
            limits,
        };
        let mut inbox = Inbox::new(inbox_slots, context.limits.receive_ack_slots);
        for channel in Channel::ALL {
            inbox.repost(&mut context, channel);
        }
        Ok(Self { context, inbox })
    }

    /// One turn of the pipeline: takes in what arrived, tells `handler`, sends what is due. Never
    /// blocks; every stage is bounded by `Config`. Call it often: nothing happens between calls.
    pub fn tick(&mut self, handler: &mut impl Handler<P>) -> Work {
        let Self { context: c, inbox } = self;
        c.wake_up();
        c.in_tick = true;
        let mut work = poll_cq::run(c, inbox, handler);
        work += reap_av::run(c, inbox, handler);
        work += resend::run(c);
        work += ack::run(c);
        work += send::run(c);
        work += chunk_pack::run(c);
        c.in_tick = false;
        work
    }

    /// This process's address, for the others to [`Engine::add_peer`].
    pub fn local_address(&self) -> PeerAddress {
        let c = &self.context;
        PeerAddress {
            rank: c.config.rank,
            incarnation: c.config.incarnation,
            job_check: c.job_check,
            first_seq: c.config.first_seq,
            datagram_bytes_max: c.limits.datagram_bytes,
            message_bytes_max: c.config.message_bytes_max,
            window_segments: c.config.window_segments,
            integrity: c.limits.integrity,
            name: c.config.name.clone(),
            channels: Channel::ALL.map(|channel| c.rail.port.local_address(channel)),
        }
    }

    /// Adds a peer. Messages may be sent to it at once; they leave when its addresses are in: with
    /// a port that inserts at once, even before a tick tells ([`crate::Event::PeerReady`], or
    /// [`crate::Event::PeerUnreachable`]). Another incarnation of a rank that is there already
    /// takes its place; the former one is reported as dead. One that was removed cannot come back
    /// in the same incarnation: its numbers have moved on.
    pub fn add_peer(&mut self, address: &PeerAddress) -> Result<EndpointHandle, PeerError> {
        peers::add(&mut self.context, address)
    }

    /// [`Engine::add_peer`] for many; a bad one does not keep out the others.
    pub fn add_peers<'a>(
        &mut self,
        addresses: impl IntoIterator<Item = &'a PeerAddress>,
    ) -> Vec<Result<EndpointHandle, PeerError>> {
        addresses.into_iter().map(|address| self.add_peer(address)).collect()
    }

    /// Forgets a peer with all that waits for it or is half received from it: its sends with a
    /// token are reported as failed, and so are receives with a named destination.
    pub fn remove_peer(
        &mut self,
        peer: EndpointHandle,
        handler: &mut impl Handler<P>,
    ) -> Result<(), SendError> {
        let ep = self.context.endpoints.slab.get(peer).ok_or(SendError::NoPeer)?;
        peers::remove(&mut self.context, &mut self.inbox, handler, ep);
        Ok(())
    }

    /// Closes towards all peers and ticks until everything sent has arrived and all have said
    /// goodbye, at most `linger_ns`; true in the first case. Messages that still arrive go to
    /// `handler`.
    pub fn close(&mut self, handler: &mut impl Handler<P>, linger_ns: Nanos) -> bool {
        let c = &mut self.context;
        c.now = c.now.max(c.rail.port.now());
        for index in 0..c.endpoints.slab.capacity() {
            let ep = EndpointRow::from_index(index);
            if c.endpoints.slab.is_live(ep) {
                liveness::close(c, ep);
            }
        }
        self.tick_until(handler, linger_ns, |c| {
            c.endpoints.slab.iter().all(|ep| liveness::is_closed(c, ep))
        })
    }

    /// Ticks until `done` says so or `timeout_ns` is over; true in the first case. Sleeps a little
    /// when there is nothing to do: for tools and the end of a job, not for the lowest latency.
    pub fn tick_until(
        &mut self,
        handler: &mut impl Handler<P>,
        timeout_ns: Nanos,
        mut done: impl FnMut(&mut Context<P>) -> bool,
    ) -> bool {
        // Short enough not to be late for anything, long enough not to burn the core.
        const IDLE_NS: Nanos = 20_000;
        let deadline = self.context.rail.port.now().saturating_add(timeout_ns);
        loop {
            let work = self.tick(handler);
            if done(&mut self.context) {
                return true;
            }
            if self.context.now >= deadline {
                return false;
            }
            if work.is_idle() {
                self.wait(IDLE_NS);
            }
        }
    }

    /// Sleeps until something may have arrived or is due, at most `timeout_ns`.
    pub fn wait(&mut self, timeout_ns: Nanos) {
        // A delayed ack is due within microseconds: not worth a sleep.
        if !self.context.lists.ack_delayed.is_empty() {
            return;
        }
        let now = self.context.rail.port.now();
        let next = self.next_deadline();
        let until = next.map_or(timeout_ns, |at| at.saturating_sub(now).min(timeout_ns));
        if until > 0 {
            self.context.rail.port.wait(until);
            self.slept();
        }
    }

    /// Tells that the caller slept until now because nothing had arrived: an event loop that polls
    /// the port's sockets itself, or a simulation. What arrives in the next tick did not wait.
    /// [`Engine::wait`] does this by itself.
    pub fn slept(&mut self) {
        let c = &mut self.context;
        c.polled_ns = c.rail.port.now().max(c.now);
    }

    /// When to tick next if nothing arrives before: the port's time of now (or one that is past)
    /// when something is listed to be done, `None` when there is nothing to wait for. A tick may
    /// find that what is listed cannot go on before something arrives.
    pub fn next_deadline(&mut self) -> Option<Nanos> {
        let Self { context: c, .. } = self;
        let now = c.rail.port.now();
        let busy = !c.lists.ready.is_empty()
            || !c.lists.to_pack.is_empty()
            || !c.lists.resend.is_empty()
            || !c.lists.ack_due.is_empty()
            || !c.lists.to_insert.is_empty()
            || !c.lists.dying.is_empty()
            || c.inserts_outstanding > 0;
        if busy {
            return Some(now);
        }
        let ack =
            c.lists.ack_delayed.front().map(|ep| coarse_at(now, c.endpoints.ack_deadline[ep]));
        let timer = c.lists.timers.next_deadline();
        ack.into_iter().chain(timer).min()
    }

    /// Looks through all tables for a broken invariant of `docs/invariants.md`. Slow: for tests
    /// and simulations.
    pub fn check_invariants(&self) -> Result<(), Violation> {
        invariants::check(&self.context, &self.inbox)
    }

    /// What the tables hold at present. Slow: for tests and simulations.
    pub fn usage(&self) -> Usage {
        invariants::usage(&self.context, &self.inbox)
    }

    /// What is set and cannot be used in full, in words for people.
    pub fn warnings(&self) -> Vec<String> {
        let c = &self.context;
        let (window, datagram) = (c.limits.window, c.limits.datagram_bytes);
        let backlog = c.rail.port.caps().recv_backlog_datagrams;
        if backlog >= window as usize {
            return Vec::new();
        }
        vec![format!(
            "a window of {window} datagrams of up to {datagram} bytes ({} bytes) is more than the \
             port holds unread ({backlog} of them): no more than those are offered; its receive \
             buffer should be larger ({})",
            u64::from(window) * u64::from(datagram),
            c.rail.port.describe(),
        )]
    }

    /// The capacities in force, for people.
    pub fn limits_text(&self) -> String {
        let Limits { datagram_bytes, slot_bytes, window, window_ours, .. } = self.context.limits;
        format!(
            "datagrams {datagram_bytes} B in slots of {slot_bytes} B, window {window} segments, \
             {window_ours} offered"
        )
    }
}

impl<P> std::ops::Deref for Engine<P> {
    type Target = Context<P>;
    fn deref(&self) -> &Context<P> {
        &self.context
    }
}

impl<P> std::ops::DerefMut for Engine<P> {
    fn deref_mut(&mut self) -> &mut Context<P> {
        &mut self.context
    }
}
