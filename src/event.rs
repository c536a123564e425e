//! What a tick tells its user, and the trait that hears it.

use crate::address::PeerAddress;
use crate::context::Context;
use crate::ids::{EndpointHandle, Rank, Tag, Token};
use crate::ports::{LinkEvent, Port};
use crate::time::{MILLIS, Nanos};

/// Something that happened during a tick.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A message arrived, whole and intact.
    Received(Message<'a>),
    /// The peer has everything of a message that was sent with a token.
    SendDone {
        /// To whom it went.
        to: EndpointHandle,
        /// The sender's name for it.
        token: Token,
        /// The memory given to `send_from`, back in its owner's hands.
        buffer: Option<Vec<u8>>,
    },
    /// A message with a token will never arrive.
    SendFailed {
        /// To whom it should have gone.
        to: EndpointHandle,
        /// The sender's name for it.
        token: Token,
        /// The memory given to `send_from`.
        buffer: Option<Vec<u8>>,
    },
    /// The peer's addresses are usable.
    PeerReady {
        /// Which peer.
        peer: EndpointHandle,
    },
    /// The peer cannot be reached; what was queued for it has failed.
    PeerUnreachable {
        /// Which peer.
        peer: EndpointHandle,
        /// Its rank.
        rank: Rank,
        /// Its name.
        name: &'a str,
        /// Why, in the port's words.
        reason: &'a str,
    },
    /// The peer is dead; what was sent to it and not acked has failed. Told once, and of this
    /// peer alone. Its handle stays until the peer is removed.
    PeerDead {
        /// Which peer.
        peer: EndpointHandle,
        /// Its rank.
        rank: Rank,
        /// Its name.
        name: &'a str,
        /// How that is known.
        cause: Death,
    },
    /// The peer has closed: everything it sent has arrived, and sends to it are refused from now
    /// on.
    PeerClosed {
        /// Which peer.
        peer: EndpointHandle,
    },
    /// A large message for which the handler named a destination will not arrive in full: its
    /// sender is dead or removed.
    ReceiveFailed {
        /// Who sent it.
        from: EndpointHandle,
        /// The sender's label.
        tag: Tag,
        /// The memory named as its destination.
        buffer: Vec<u8>,
    },
    /// The rail's link changed. Only ports that watch it tell: `sim` does, the kernel's sockets
    /// and libfabric do not yet.
    Link(LinkEvent),
}

/// How the death of a peer is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Death {
    /// It owed an answer and nothing of it arrived for this long.
    Silent {
        /// The silence in nanoseconds.
        silent_ns: Nanos,
    },
    /// Another process with its rank was added.
    Replaced,
    /// The port cannot send to it, with this errno-like code.
    SendError {
        /// The code.
        code: i32,
    },
}

impl std::fmt::Display for Death {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Silent { silent_ns } => write!(f, "silent for {} ms", silent_ns / MILLIS),
            Self::Replaced => f.write_str("another process has taken its rank"),
            Self::SendError { code } => {
                write!(f, "sends to it fail: {}", std::io::Error::from_raw_os_error(code))
            }
        }
    }
}

/// A message that arrived. Its bytes are lent for the call; [`Message::take`] keeps them.
#[derive(Debug)]
pub struct Message<'a> {
    /// Who sent it.
    pub from: EndpointHandle,
    /// The sender's label.
    pub tag: Tag,
    pub(crate) body: Body<'a>,
}

#[derive(Debug)]
pub(crate) enum Body<'a> {
    /// Still in the datagram it came in.
    Lent(&'a [u8]),
    /// Reassembled: the first `usize` bytes of a buffer.
    Buffer(&'a mut Vec<u8>, usize),
}

impl Message<'_> {
    /// The message's bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.body {
            Body::Lent(bytes) => bytes,
            Body::Buffer(buffer, len) => &buffer[..*len],
        }
    }

    /// Keeps the bytes. A large message comes with the buffer it was assembled in, without a
    /// copy; a small one is copied.
    pub fn take(self) -> Vec<u8> {
        match self.body {
            Body::Lent(bytes) => bytes.to_owned(),
            Body::Buffer(buffer, len) => {
                let mut buffer = std::mem::take(buffer);
                buffer.truncate(len);
                buffer
            }
        }
    }
}

/// Hears the events of a tick. Closures of the right shape are handlers.
pub trait Handler<P: Port> {
    /// Something happened. Through `context` messages may be sent at once, also to the same peer.
    fn on_event(&mut self, context: &mut Context<P>, event: Event<'_>);

    /// The first chunk of a large message arrived: name its destination, at least `len_bytes`
    /// long, to have it assembled in place. It comes back through [`Message::take`]. `None`: the
    /// engine's own buffers are used.
    fn destination(&mut self, from: EndpointHandle, tag: Tag, len_bytes: u64) -> Option<Vec<u8>> {
        let _ = (from, tag, len_bytes);
        None
    }

    /// A datagram of this job names a rank that was never added: give its address to have it added
    /// now and the datagram taken in, if it proves to be that process's. `None`: it is dropped and
    /// counted, and comes again. For runtimes that add peers when they are first met.
    fn stranger(&mut self, context: &mut Context<P>, rank: Rank) -> Option<PeerAddress> {
        let _ = (context, rank);
        None
    }
}

impl<P: Port, F: FnMut(&mut Context<P>, Event<'_>)> Handler<P> for F {
    // There are many places that tell of something rare; the one that delivers must not pay a call.
    #[inline(always)]
    fn on_event(&mut self, context: &mut Context<P>, event: Event<'_>) {
        self(context, event);
    }
}
