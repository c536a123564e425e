//! The rendezvous server: one thread, all connections non-blocking.
//!
//! A connection is a stranger until its hello is whole; strangers have little time, little memory
//! and no say. Then it is a member. When all are there, ranks are settled and everybody gets the
//! table of blobs; after that the server counts arrivals at barriers until the last member leaves.

use super::frame::{self, Kind};
use super::{BootstrapError, RANKS_MAX};
use crate::ports::udp::ready::wait_ready;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// How long a stranger may take over its hello.
const HELLO_TIME: Duration = Duration::from_secs(5);
/// How long a refused connection is kept so that it can read why.
const LINGER_TIME: Duration = Duration::from_secs(1);
/// Strangers at one time; the oldest makes room for the next. Real members try again.
const STRANGERS_MAX: usize = 512;
/// Bytes read from one connection before the others get their turn.
const READ_BYTES: usize = 16 << 10;

#[derive(Debug)]
struct Member {
    rank: Option<u32>,
    blob: Vec<u8>,
    at_barrier: bool,
}

#[derive(Debug)]
enum State {
    Stranger,
    Member(Member),
    /// Refused: what it still sends is thrown away until it leaves or its time is over.
    Refused,
    Gone,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    from: SocketAddr,
    state: State,
    /// When the state began that has a time limit.
    since: Instant,
    greeted: bool,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Bytes of the table that were sent.
    table_sent: usize,
    /// Whether the table stopped in its middle, where other words would be taken for a part of it.
    mid_table: bool,
}

impl Connection {
    fn new(stream: TcpStream, from: SocketAddr) -> Self {
        Self {
            stream,
            from,
            state: State::Stranger,
            since: Instant::now(),
            greeted: false,
            input: Vec::new(),
            output: Vec::new(),
            table_sent: 0,
            mid_table: false,
        }
    }

    fn member(&self) -> Option<&Member> {
        match &self.state {
            State::Member(member) => Some(member),
            _ => None,
        }
    }

    /// Says why and hangs up, in such a way that the words arrive.
    fn refuse(&mut self, reason: &str) {
        if self.mid_table {
            self.state = State::Gone;
            return;
        }
        if !self.greeted {
            self.output.extend_from_slice(&frame::preamble());
            self.greeted = true;
        }
        frame::push_refusal(&mut self.output, reason);
        self.state = State::Refused;
        self.since = Instant::now();
        self.input = Vec::new();
        self.write(&[]);
        // Failure means that the other side is gone already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Sends what waits: first the output, then the rest of the table.
    fn write(&mut self, table: &[u8]) {
        let result = write_some(&mut self.stream, &self.output).and_then(|sent| {
            self.output.drain(..sent);
            if self.output.is_empty() && self.table_sent < table.len() {
                self.table_sent += write_some(&mut self.stream, &table[self.table_sent..])?;
                self.mid_table = self.table_sent > 0 && self.table_sent < table.len();
            }
            Ok(())
        });
        if result.is_err() {
            self.state = State::Gone;
        }
    }

    /// Reads what is there, within bounds, behind what was read before.
    fn read(&mut self) {
        let mut room = [0u8; READ_BYTES];
        match self.stream.read(&mut room) {
            Ok(0) => self.state = State::Gone,
            Ok(_) if matches!(self.state, State::Refused) => {}
            Ok(len) => self.input.extend_from_slice(&room[..len]),
            Err(error) if is_transient(&error) => {}
            Err(_) => self.state = State::Gone,
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn write_some(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(len) => sent += len,
            Err(error) if is_transient(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

/// See [`super::rendezvous::serve`].
pub(super) fn serve(
    listener: &TcpListener,
    ranks: u32,
    timeout: Duration,
) -> Result<(), BootstrapError> {
    if !(1..=RANKS_MAX).contains(&ranks) {
        return Err(BootstrapError::RanksOutOfRange { ranks });
    }
    listener.set_nonblocking(true).map_err(BootstrapError::Listener)?;
    let deadline = super::deadline_after(timeout);
    let mut server =
        Server { ranks, connections: Vec::new(), table: Vec::new(), complete: false, left: vec![] };
    let mut fds = Vec::new();
    loop {
        if server.complete && server.members().next().is_none() {
            // Those who were refused have had the words put into their socket buffers.
            return Ok(());
        }
        if !server.complete && Instant::now() >= deadline {
            let who = server.missing();
            let here = server.members().count() as u32;
            server.refuse_members(&format!("the time is over, {who} did not come"));
            return Err(BootstrapError::Missing { timeout, count: ranks - here, ranks, who });
        }
        server.wait(listener, &mut fds, (!server.complete).then_some(deadline));
        if fds[0].revents != 0 {
            server.accept(listener)?;
        }
        for (index, fd) in fds[1..].iter().enumerate().filter(|(_, fd)| fd.revents != 0) {
            server.serve_one(index, fd.revents);
        }
        server.clear_away();
        server.settle();
    }
}

struct Server {
    ranks: u32,
    /// In order of arrival.
    connections: Vec<Connection>,
    /// The blobs of all ranks as frames, once everybody is there.
    table: Vec<u8>,
    complete: bool,
    /// Ranks that left after the job was complete.
    left: Vec<u32>,
}

impl Server {
    fn members(&self) -> impl Iterator<Item = &Member> {
        self.connections.iter().filter_map(Connection::member)
    }

    /// Who has not come, in words.
    fn missing(&self) -> String {
        let unnumbered = self.members().filter(|member| member.rank.is_none()).count();
        let mut here = vec![false; self.ranks as usize];
        self.members().filter_map(|member| member.rank).for_each(|rank| here[rank as usize] = true);
        let open: Vec<u32> = (0..self.ranks).filter(|&rank| !here[rank as usize]).collect();
        match unnumbered {
            0 => frame::list(&open),
            _ => format!(
                "{} of {} ({unnumbered} came without a number)",
                open.len() - unnumbered,
                frame::list(&open)
            ),
        }
    }

    fn refuse_members(&mut self, reason: &str) {
        for connection in &mut self.connections {
            if connection.member().is_some() {
                connection.refuse(reason);
            }
        }
    }

    /// Sleeps until a socket is ready or a time limit is over.
    fn wait(
        &mut self,
        listener: &TcpListener,
        fds: &mut Vec<libc::pollfd>,
        deadline: Option<Instant>,
    ) {
        let now = Instant::now();
        let mut until = deadline.unwrap_or(now + Duration::from_secs(3600));
        fds.clear();
        fds.push(libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 });
        for connection in &self.connections {
            match connection.state {
                State::Stranger => until = until.min(connection.since + HELLO_TIME),
                State::Refused => until = until.min(connection.since + LINGER_TIME),
                State::Member(_) | State::Gone => {}
            }
            let more = connection.member().is_some() && connection.table_sent < self.table.len();
            let waiting = more || !connection.output.is_empty();
            let events = libc::POLLIN | if waiting { libc::POLLOUT } else { 0 };
            fds.push(libc::pollfd { fd: connection.stream.as_raw_fd(), events, revents: 0 });
        }
        wait_ready(fds, until.saturating_duration_since(now) + Duration::from_millis(1));
    }

    fn accept(&mut self, listener: &TcpListener) -> Result<(), BootstrapError> {
        // No more than that at once, so that those accepted are heard before they have to make
        // room for others.
        for _ in 0..STRANGERS_MAX / 2 {
            match listener.accept() {
                Ok((stream, from)) => {
                    let is_stranger = |one: &&Connection| matches!(one.state, State::Stranger);
                    if self.connections.iter().filter(is_stranger).count() >= STRANGERS_MAX {
                        self.make_room();
                    }
                    if stream.set_nonblocking(true).is_ok() {
                        let _ = stream.set_nodelay(true);
                        self.connections.push(Connection::new(stream, from));
                    }
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EMFILE | libc::ENFILE) => {
                        self.make_room();
                        return Ok(());
                    }
                    Some(libc::EBADF | libc::EINVAL | libc::ENOTSOCK | libc::EOPNOTSUPP) => {
                        return Err(BootstrapError::Listener(error));
                    }
                    // Nobody is waiting, or it is about one connection that is gone already.
                    _ => return Ok(()),
                },
            }
        }
        Ok(())
    }

    /// Hangs up on the oldest connection that is not a member's. Without one all that helps is
    /// to wait until somebody leaves.
    fn make_room(&mut self) {
        let mut all = self.connections.iter_mut();
        match all.find(|one| matches!(one.state, State::Stranger | State::Refused)) {
            Some(oldest) => oldest.state = State::Gone,
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }

    /// Does what connection `index` is ready for, and notes when a member of a complete job left.
    fn serve_one(&mut self, index: usize, ready: libc::c_short) {
        let rank = self.connections[index].member().and_then(|member| member.rank);
        self.step(index, ready);
        if let (true, Some(rank)) = (self.complete, rank)
            && self.connections[index].member().is_none()
        {
            self.left.push(rank);
        }
    }

    fn step(&mut self, index: usize, ready: libc::c_short) {
        let connection = &mut self.connections[index];
        if ready & libc::POLLOUT != 0 {
            let is_member = connection.member().is_some();
            connection.write(if is_member { &self.table } else { &[] });
        }
        if ready & !libc::POLLOUT == 0 || matches!(connection.state, State::Gone) {
            return;
        }
        connection.read();
        if matches!(connection.state, State::Stranger) && !connection.greeted {
            match frame::check_preamble(&connection.input) {
                Ok(false) => return,
                Ok(true) => {
                    connection.input.drain(..frame::PREAMBLE_BYTES);
                    connection.output.extend_from_slice(&frame::preamble());
                    connection.greeted = true;
                }
                Err(frame::Foreign::Stranger) => {
                    connection.state = State::Gone;
                    return;
                }
                Err(other) => return connection.refuse(&other.to_string()),
            }
        }
        while matches!(self.connections[index].state, State::Stranger | State::Member(_)) {
            match frame::take(&mut self.connections[index].input) {
                Ok(None) => break,
                Ok(Some((kind, payload))) => self.handle(index, kind, &payload),
                Err(wrong) => self.connections[index].refuse(&wrong),
            }
        }
    }

    fn handle(&mut self, index: usize, kind: Kind, payload: &[u8]) {
        let is_member = self.connections[index].member().is_some();
        let everything_sent = self.connections[index].table_sent == self.table.len();
        match kind {
            Kind::Hello if !is_member => self.admit(index, payload),
            Kind::GiveUp if is_member => {
                let reason = self.what_is_missing();
                self.connections[index].refuse(&reason);
            }
            Kind::Barrier if is_member && self.complete && everything_sent => {
                if let State::Member(member) = &mut self.connections[index].state {
                    member.at_barrier = true;
                }
            }
            _ => self.connections[index].refuse(&format!("a {kind:?} frame out of turn")),
        }
    }

    /// Makes a member of the stranger `index`, if its hello is acceptable.
    fn admit(&mut self, index: usize, payload: &[u8]) {
        let (wishes, rank, blob) = frame::split_numbers(payload);
        let ranks = self.ranks;
        let holder = self.connections.iter().find(|other| {
            wishes == 1 && other.member().is_some_and(|member| member.rank == Some(rank))
        });
        let problem = if wishes > 1 {
            Some("a damaged hello".to_owned())
        } else if wishes == 1 && rank >= ranks {
            Some(format!("rank {rank} is not in a job of {ranks} ranks"))
        } else if let Some(holder) = holder {
            Some(format!("rank {rank} is taken already, by {}", holder.from))
        } else if self.complete || self.members().count() as u32 == ranks {
            Some(format!("all {ranks} ranks are there already"))
        } else {
            None
        };
        let connection = &mut self.connections[index];
        match problem {
            Some(reason) => connection.refuse(&reason),
            None => {
                let rank = (wishes == 1).then_some(rank);
                connection.state =
                    State::Member(Member { rank, blob: blob.to_vec(), at_barrier: false });
            }
        }
    }

    /// Who keeps the others waiting, in words.
    fn what_is_missing(&self) -> String {
        if !self.complete {
            return format!("{} did not come", self.missing());
        }
        let late = self.members().filter(|member| !member.at_barrier);
        let mut late: Vec<u32> = late.filter_map(|member| member.rank).collect();
        // Connections are in order of arrival; people look ranks up by number.
        late.sort_unstable();
        format!("{} did not come to the barrier", frame::list(&late))
    }

    /// Drops connections that are over, and those whose time is.
    fn clear_away(&mut self) {
        self.connections.retain(|connection| match connection.state {
            State::Stranger => connection.since.elapsed() < HELLO_TIME,
            State::Refused => connection.since.elapsed() < LINGER_TIME,
            State::Member(_) => true,
            State::Gone => false,
        });
    }

    /// Goes on with the job when everybody is there: to the table, then over each barrier.
    fn settle(&mut self) {
        let members = self.members().count() as u32;
        if !self.complete {
            if members == self.ranks {
                self.start();
            }
            return;
        }
        let waiting = self.members().filter(|member| member.at_barrier).count() as u32;
        if waiting == self.ranks {
            for connection in &mut self.connections {
                if let State::Member(member) = &mut connection.state {
                    member.at_barrier = false;
                    frame::push(&mut connection.output, Kind::Release, &[]);
                }
            }
        } else if waiting > 0 && !self.left.is_empty() {
            self.left.sort_unstable();
            let reason = format!("{} left the job", frame::list(&self.left));
            for connection in &mut self.connections {
                if connection.member().is_some_and(|member| member.at_barrier) {
                    connection.refuse(&reason);
                }
            }
        }
    }

    /// Numbers those who came without a rank, in order of arrival, and starts to send the table.
    fn start(&mut self) {
        let mut places: Vec<Option<usize>> = vec![None; self.ranks as usize];
        let mut unnumbered = Vec::new();
        for (index, connection) in self.connections.iter().enumerate() {
            match connection.member().map(|member| member.rank) {
                Some(Some(rank)) => places[rank as usize] = Some(index),
                Some(None) => unnumbered.push(index),
                None => {}
            }
        }
        let mut unnumbered = unnumbered.into_iter();
        for (rank, place) in places.iter_mut().enumerate() {
            let index = place.or_else(|| unnumbered.next()).expect("as many members as ranks");
            let connection = &mut self.connections[index];
            let State::Member(member) = &mut connection.state else { unreachable!("a member") };
            member.rank = Some(rank as u32);
            frame::push(&mut self.table, Kind::Blob, &[&std::mem::take(&mut member.blob)]);
            let numbers = [(rank as u32).to_le_bytes(), self.ranks.to_le_bytes()];
            frame::push(&mut connection.output, Kind::Welcome, &[&numbers[0], &numbers[1]]);
        }
        self.complete = true;
    }
}
