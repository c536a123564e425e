//! `chunk_pack`: fills free slots with the next chunks, so that `send` finds them ready.
//!
//! Reads and writes: fragments, segments, endpoints' pending and ready lists. Bound: the
//! look-ahead per endpoint, each listed endpoint once a tick, and the free slots.

use crate::context::Context;
use crate::ids::EndpointRow;
use crate::pack;
use crate::ports::Port;
use crate::state::fragments::Kind;
use crate::stats::Work;

pub(crate) fn run<P: Port>(c: &mut Context<P>) -> Work {
    let mut packed = 0;
    for _ in 0..c.lists.to_pack.len() {
        if c.segments.slab.free_len() == 0 && !front_is_packed(c) {
            break;
        }
        let Some(ep) = c.lists.to_pack.pop() else { break };
        packed += pack_endpoint(c, ep);
        if !c.endpoints.ready[ep].is_empty() {
            c.lists.ready.push(ep);
        }
    }
    Work { prepared: packed, ..Work::default() }
}

/// A small message that waits its turn needs no slot: it has one.
fn front_is_packed<P: Port>(c: &mut Context<P>) -> bool {
    let front = c.lists.to_pack.front().and_then(|ep| c.endpoints.pending[ep].front());
    front.is_some_and(|frag| c.fragments.kind[frag] == Kind::Small)
}

fn pack_endpoint<P: Port>(c: &mut Context<P>, ep: EndpointRow) -> u32 {
    let mut packed = 0;
    while let Some(frag) = c.endpoints.pending[ep].front() {
        // `send` lists the endpoint again when it has used some of the look-ahead.
        if c.endpoints.ready[ep].len() as u32 >= c.config.pack_ahead_segments {
            break;
        }
        let seg = match c.fragments.kind[frag] {
            Kind::Small => {
                c.fragments.links.pop_front(&mut c.endpoints.pending[ep]);
                let seg = c.fragments.seg[frag].take().expect("a waiting small message is packed");
                if c.fragments.token[frag].is_none() {
                    c.segments.frag[seg] = None;
                    c.fragments.free(frag);
                }
                seg
            }
            Kind::Large => match pack::next_chunk(c, ep, frag) {
                Some(seg) => seg,
                None => {
                    c.lists.to_pack.push(ep);
                    break;
                }
            },
            Kind::Receive => unreachable!("I-09: pending lists hold sends only"),
        };
        c.segments.links.push_back(&mut c.endpoints.ready[ep], seg);
        packed += 1;
    }
    packed
}
