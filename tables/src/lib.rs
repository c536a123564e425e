//! Dense tables of fixed capacity, addressed by typed integers.
//!
//! Everything is allocated when a table is built and nothing grows afterwards, so the operations
//! cost the same in the first second and in the last, and a full table is an ordinary answer
//! (`None`) instead of an abort. No table hashes, locks, or scans in order to find a row.
//!
//! | you need | use | an operation | memory |
//! |---|---|---|---|
//! | row numbers no other table takes | [`table_ids!`] | free | 4 bytes, as `Option` too |
//! | rows that come and go, and names for them | [`Slab`] | O(1) | 4 bytes a row |
//! | one field of every row | [`Column`] | O(1) | the field |
//! | ordered rows, removal from the middle | [`Links`], [`List`] | O(1) | 8 a row, 12 a list |
//! | a set of rows, walked in row order | [`BitSet`] | O(1), a walk O(rows / 64) | 1 bit a row |
//! | rows with work to do, each once, in turn | [`WorkList`] | amortised O(1) | 5 to 9 a row |
//! | values by sequence number, in a window | [`RingPool`] | O(1) | value and 1 bit a slot |
//! | rows to wake at a time | [`TimerWheel`] | amortised O(1) | 16 a row, 3 KiB |
//! | numbers that wrap around | [`Seq`] | free | 4 bytes |
//! | equal slots of bytes lent to ports | `DatagramArena` | O(1) | slot and 1 byte |
//!
//! A [`WorkList`] answers "who is next", a [`BitSet`] "who, in order of rows"; a [`List`] is for
//! when there are many queues over the same rows. The arena needs the feature `arena`.
//!
//! Two kinds of numbers name a row. A *row* ([`Row`]) is trusted: it comes from the table itself
//! and is used as an index, and one out of range panics. A *handle* ([`Handle`]) also carries the
//! generation of the row; whoever gets numbers from outside keeps to handles and turns each into
//! a row with [`Slab::get`], which refuses the handles of rows removed since.
#![no_std]

extern crate alloc;
#[cfg(feature = "arena")]
extern crate std;

#[cfg(feature = "arena")]
pub mod arena;
pub mod bits;
pub mod column;
pub mod handle;
pub mod list;
pub mod ring;
pub mod seq;
pub mod slab;
pub mod wheel;
pub mod worklist;

#[cfg(feature = "arena")]
pub use arena::{ArenaPart, DatagramArena};
pub use bits::BitSet;
pub use column::Column;
pub use handle::{Handle, Row};
pub use list::{Links, List};
pub use ring::{RingId, RingPool};
pub use seq::Seq;
pub use slab::Slab;
pub use wheel::TimerWheel;
pub use worklist::WorkList;
