//! The ways to send a message: copied, copied from pieces, given away, lent.

use crate::context::{Context, too_large};
use crate::error::SendError;
use crate::ids::{EndpointHandle, EndpointRow, SegmentRow, Tag, Token};
use crate::ports::Port;
use crate::ports::memory::Lent;
use crate::state::fragments::Buffer;

impl<P: Port> Context<P> {
    /// Sends a copy of `bytes`. `Ok` means that it will be delivered, exactly once, unless the
    /// peer turns out to be unreachable.
    #[inline]
    pub fn send_copy(
        &mut self,
        to: EndpointHandle,
        tag: Tag,
        bytes: &[u8],
    ) -> Result<(), SendError> {
        self.send_parts(to, tag, &[bytes])
    }

    /// Sends a copy of `parts`, one behind the other, as one message: a layer's header and its
    /// user's data, say.
    #[inline]
    pub fn send_parts(
        &mut self,
        to: EndpointHandle,
        tag: Tag,
        parts: &[&[u8]],
    ) -> Result<(), SendError> {
        self.copy_parts(to, tag, parts, None)
    }

    /// [`Context::send_parts`] that asks for [`crate::Event::SendDone`] under `token` when the peer
    /// has it all.
    pub fn send_parts_with_token(
        &mut self,
        to: EndpointHandle,
        tag: Tag,
        parts: &[&[u8]],
        token: Token,
    ) -> Result<(), SendError> {
        self.copy_parts(to, tag, parts, Some(token))
    }

    /// [`Context::send_parts`] for a caller that may stop ticking once its message is sent: the
    /// message, of one datagram, goes to the port in this call (from a handler: in this tick), or
    /// the result is [`SendError::Again`] and the engine has nothing of it. A message that did not
    /// leave now would wait for acks and a tick. Longer than one datagram is `TooLarge`.
    pub fn send_parts_at_once(
        &mut self,
        to: EndpointHandle,
        tag: Tag,
        parts: &[&[u8]],
    ) -> Result<(), SendError> {
        let ep = self.open_peer(to)?;
        let len = parts.iter().map(|part| part.len()).sum();
        let max = self.endpoints.payload_bytes_max[ep];
        if len > usize::from(max) {
            return Err(too_large(len, max.into()));
        }
        let seg = self.take_segment(ep, len)?;
        let e = &self.endpoints;
        let nothing_waits = e.pending[ep].is_empty() && e.ready[ep].is_empty();
        let Some(flight) = nothing_waits.then(|| self.flight_at_once(ep)).flatten() else {
            self.segments.slab.remove(seg);
            return Err(self.again());
        };
        join(self.payload_mut(seg, len), parts);
        self.segments.tag[seg] = tag.0;
        self.counters.messages_sent += 1;
        self.leave(ep, flight, seg);
        Ok(())
    }

    #[inline]
    fn copy_parts(
        &mut self,
        to: EndpointHandle,
        tag: Tag,
        parts: &[&[u8]],
        token: Option<Token>,
    ) -> Result<(), SendError> {
        let ep = self.open_peer(to)?;
        let len = parts.iter().map(|part| part.len()).sum();
        if len <= usize::from(self.endpoints.payload_bytes_max[ep]) {
            let seg = self.take_segment(ep, len)?;
            join(self.payload_mut(seg, len), parts);
            return self.enqueue_small(seg, tag, token);
        }
        self.check_large(ep, len)?;
        let mut buffer = self.buffers.take(len as u64);
        join(&mut buffer, parts);
        self.enqueue_large(ep, tag, Buffer::Pooled(buffer), len, token).map_err(
            |(error, buffer)| {
                if let Buffer::Pooled(buffer) = buffer {
                    self.buffers.give(buffer);
                }
                error
            },
        )
    }

    /// Sends all of `buffer` without copying it where the port gathers. It comes back with
    /// [`crate::Event::SendDone`] under `token` once the peer has everything, or at once with
    /// the error.
    pub fn send_from(
        &mut self,
        to: EndpointHandle,
        tag: Tag,
        buffer: Vec<u8>,
        token: Token,
    ) -> Result<(), (SendError, Vec<u8>)> {
        self.send_buffer(to, tag, Buffer::Owned(buffer), token).map_err(|(error, buffer)| {
            let Buffer::Owned(buffer) = buffer else { unreachable!("it is what was handed in") };
            (error, buffer)
        })
    }

    /// Sends bytes that the caller only lends: [`Context::send_from`] for memory of another
    /// language. They are given back with [`crate::Event::SendDone`] or
    /// [`crate::Event::SendFailed`] under `token`, or at once with the error.
    pub fn send_lent(
        &mut self,
        to: EndpointHandle,
        tag: Tag,
        bytes: Lent,
        token: Token,
    ) -> Result<(), SendError> {
        self.send_buffer(to, tag, Buffer::Lent(bytes), token).map_err(|(error, _)| error)
    }

    fn send_buffer(
        &mut self,
        to: EndpointHandle,
        tag: Tag,
        buffer: Buffer,
        token: Token,
    ) -> Result<(), (SendError, Buffer)> {
        let ep = match self.open_peer(to) {
            Ok(ep) => ep,
            Err(error) => return Err((error, buffer)),
        };
        let len = buffer.bytes().len();
        if len > usize::from(self.endpoints.payload_bytes_max[ep]) {
            if let Err(error) = self.check_large(ep, len) {
                return Err((error, buffer));
            }
            return self.enqueue_large(ep, tag, buffer, len, Some(token));
        }
        match self.send_small_buffer(ep, tag, &buffer, token) {
            Ok(seg) => {
                // The row was just made; the memory rides along to come back with the event.
                let frag = self.segments.frag[seg].expect("a send with a token has a fragment");
                self.fragments.buffer[frag] = Some(buffer);
                Ok(())
            }
            Err(error) => Err((error, buffer)),
        }
    }

    fn send_small_buffer(
        &mut self,
        ep: EndpointRow,
        tag: Tag,
        buffer: &Buffer,
        token: Token,
    ) -> Result<SegmentRow, SendError> {
        let bytes = buffer.bytes();
        let seg = self.take_segment(ep, bytes.len())?;
        self.payload_mut(seg, bytes.len()).copy_from_slice(bytes);
        self.enqueue_small(seg, tag, Some(token))?;
        Ok(seg)
    }
}

/// Writes `parts` to the front of `out`, one behind the other.
#[inline]
fn join(out: &mut [u8], parts: &[&[u8]]) {
    let mut at = 0;
    for part in parts {
        out[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
}
