//! A TCP rendezvous: every process joins at one known address, gives a blob (its addresses) and
//! gets its rank and everybody's blobs.
//!
//! Whoever starts the job runs [`serve`], in a thread of its own; the processes call [`join`].
//! There is no authentication: the address should be reachable by the job alone.

use super::frame::{self, Kind};
use super::{BLOB_BYTES_MAX, BootstrapError, RANKS_MAX, server};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Wait before the second attempt to connect; doubled up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_millis(5);
/// Longest wait between attempts to connect.
const RETRY_MAX: Duration = Duration::from_millis(250);
/// Longest single attempt to connect.
const ATTEMPT_MAX: Duration = Duration::from_secs(3);
/// Bytes read from the server at once.
const READ_AHEAD_BYTES: usize = 32 << 10;
/// How long a server may take to say what a process waited for in vain.
const LAST_WORDS_TIME: Duration = Duration::from_secs(1);

/// Brings a job of `ranks` processes together, then serves their barriers. Returns when all of
/// them have left, or with an error that names the missing ranks when `timeout` is over before
/// everybody came. Strangers who connect disturb nobody.
pub fn serve(listener: TcpListener, ranks: u32, timeout: Duration) -> Result<(), BootstrapError> {
    server::serve(&listener, ranks, timeout)
}

/// A process's place in its job. Dropping it leaves the rendezvous.
#[derive(Debug)]
pub struct Joined {
    /// This process's number.
    pub rank: u32,
    /// How many processes there are.
    pub ranks: u32,
    /// Everybody's blob, by rank.
    pub blobs: Vec<Vec<u8>>,
    server: Server,
    timeout: Duration,
}

/// Joins the job whose rendezvous is at `address`, trying again until `timeout` is over. Without a
/// `rank` wished for, those left over are given in order of arrival. `blob`: at most
/// [`BLOB_BYTES_MAX`] bytes.
pub fn join(
    address: SocketAddr,
    rank: Option<u32>,
    blob: &[u8],
    timeout: Duration,
) -> Result<Joined, BootstrapError> {
    if blob.len() > BLOB_BYTES_MAX {
        return Err(BootstrapError::BlobTooLong { len_bytes: blob.len() });
    }
    let mut hello = frame::preamble().to_vec();
    frame::push_hello(&mut hello, rank, blob);
    let deadline = super::deadline_after(timeout);
    let mut pause = RETRY_MIN;
    let mut server = loop {
        let reason = match greet(address, &hello, deadline) {
            Ok(server) => break server,
            Err(Attempt::Final(error)) => return Err(error),
            Err(Attempt::Again(reason)) => reason,
        };
        if Instant::now() + pause >= deadline {
            return Err(BootstrapError::Unreachable { address, timeout, reason });
        }
        sleep(pause);
        pause = (2 * pause).min(RETRY_MAX);
    };
    let welcome = server.expect(Kind::Welcome, deadline)?;
    let (rank, ranks, _) = frame::split_numbers(&welcome);
    if !(1..=RANKS_MAX).contains(&ranks) || rank >= ranks {
        return Err(server.protocol(format!("welcome as rank {rank} of {ranks}")));
    }
    let blobs =
        (0..ranks).map(|_| server.expect(Kind::Blob, deadline)).collect::<Result<_, _>>()?;
    Ok(Joined { rank, ranks, blobs, server, timeout })
}

impl Joined {
    /// Waits until every process of the job is here, at most as long as [`join`] was given. An
    /// error names the ranks that are missing or have left, and ends this process's membership.
    pub fn barrier(&mut self) -> Result<(), BootstrapError> {
        let mut arrival = Vec::new();
        frame::push(&mut arrival, Kind::Barrier, &[]);
        let deadline = super::deadline_after(self.timeout);
        self.server.send(&arrival)?;
        self.server.expect(Kind::Release, deadline).map(drop)
    }
}

/// Why an attempt to connect came to nothing.
enum Attempt {
    /// The server may not be up yet.
    Again(String),
    /// It will not get better.
    Final(BootstrapError),
}

/// Connects, says hello and hears the server's preamble.
fn greet(address: SocketAddr, hello: &[u8], deadline: Instant) -> Result<Server, Attempt> {
    let again = |error: std::io::Error| Attempt::Again(error.to_string());
    let remaining = deadline.saturating_duration_since(Instant::now());
    let attempt = remaining.clamp(Duration::from_millis(1), ATTEMPT_MAX);
    let stream = TcpStream::connect_timeout(&address, attempt).map_err(again)?;
    // A port nobody listens on may be given to this very connection, which then talks to itself.
    if stream.local_addr().ok() == stream.peer_addr().ok() {
        return Err(Attempt::Again("connected to itself: nobody listens there".into()));
    }
    let _ = stream.set_nodelay(true);
    let mut server =
        Server { stream, address, buffer: vec![0; READ_AHEAD_BYTES].into(), ahead: 0..0 };
    server.stream.set_write_timeout(Some(attempt)).map_err(again)?;
    server.stream.write_all(hello).map_err(again)?;
    let mut preamble = [0; frame::PREAMBLE_BYTES];
    let mut have = 0;
    // Looked at as it comes: something else than a rendezvous may say less than a preamble.
    while have < preamble.len() {
        match server.read(&mut preamble[have..], deadline) {
            Ok(0) => return Err(Attempt::Again("it hung up without a word".into())),
            Ok(len) => have += len,
            Err(error) => return Err(again(error)),
        }
        if let Err(foreign) = frame::check_preamble(&preamble[..have]) {
            return Err(Attempt::Final(server.protocol(foreign.to_string())));
        }
    }
    Ok(server)
}

/// A connection to the server, past the preambles.
#[derive(Debug)]
struct Server {
    stream: TcpStream,
    address: SocketAddr,
    /// Read ahead: the table of a large job is many small frames.
    buffer: Box<[u8]>,
    /// What of `buffer` was read and not yet handed out.
    ahead: Range<usize>,
}

impl Server {
    fn protocol(&self, reason: String) -> BootstrapError {
        BootstrapError::Protocol { address: self.address, reason }
    }

    fn lost(&self, reason: impl ToString) -> BootstrapError {
        BootstrapError::Lost { address: self.address, reason: reason.to_string() }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), BootstrapError> {
        // A refusal may be waiting to be read; it says more than the failure to write.
        match self.stream.write_all(bytes) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(self.lost(error)),
            _ => Ok(()),
        }
    }

    /// Hands out what is there, waiting at most until `deadline`, which shows as `TimedOut`.
    fn read(&mut self, to: &mut [u8], deadline: Instant) -> std::io::Result<usize> {
        while self.ahead.is_empty() {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(remaining))?;
            match self.stream.read(&mut self.buffer) {
                Ok(0) => return Ok(0),
                Ok(len) => self.ahead = 0..len,
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(error) => return Err(error),
            }
        }
        let len = to.len().min(self.ahead.len());
        to[..len].copy_from_slice(&self.buffer[self.ahead.start..][..len]);
        self.ahead.start += len;
        Ok(len)
    }

    /// Reads exactly as much as fits into `to[*have..]`, counting in `have`, so that reading can
    /// go on where a deadline broke it off.
    fn fill(&mut self, to: &mut [u8], have: &mut usize, deadline: Instant) -> std::io::Result<()> {
        while *have < to.len() {
            match self.read(&mut to[*have..], deadline)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                len => *have += len,
            }
        }
        Ok(())
    }

    /// The payload of the next frame, which must be of `kind`. At the deadline the server is asked
    /// what is missing, and its answer is the error.
    fn expect(&mut self, kind: Kind, deadline: Instant) -> Result<Vec<u8>, BootstrapError> {
        let mut header = [0; frame::HEADER_BYTES];
        let mut have = 0;
        let mut result = self.fill(&mut header, &mut have, deadline);
        let mut last_words = deadline;
        let mut gave_up = false;
        if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::TimedOut) {
            let mut give_up = Vec::new();
            frame::push(&mut give_up, Kind::GiveUp, &[]);
            self.send(&give_up)?;
            gave_up = true;
            last_words = Instant::now() + LAST_WORDS_TIME;
            result = self.fill(&mut header, &mut have, last_words);
        }
        result.map_err(|error| self.lost(error))?;
        let (found, len) = frame::parse_header(header).map_err(|wrong| self.protocol(wrong))?;
        let mut payload = vec![0; len];
        self.fill(&mut payload, &mut 0, last_words.max(Instant::now() + LAST_WORDS_TIME))
            .map_err(|error| self.lost(error))?;
        match found {
            Kind::Refused => {
                let reason = String::from_utf8_lossy(&payload).into_owned();
                Err(BootstrapError::Refused { address: self.address, reason })
            }
            // It crossed our giving up: for the server we have left, so it is too late.
            _ if gave_up => Err(BootstrapError::Refused {
                address: self.address,
                reason: "the answer came after the time was over".into(),
            }),
            _ if found == kind => Ok(payload),
            _ => Err(self.protocol(format!("a {found:?} frame in place of {kind:?}"))),
        }
    }
}

#[cfg(test)]
mod tests;
