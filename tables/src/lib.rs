//! Dense tables of fixed capacity, addressed by typed integers.
//!
//! Everything is allocated when a table is built and nothing grows afterwards, so the operations
//! cost the same in the first second and in the last, and a full table is an ordinary answer
//! (`None`) instead of an abort. No table hashes, locks, or scans in order to find a row.
//!
//! | you need | use | cost of an operation | memory |
//! |---|---|---|---|
//! | numbers for rows that cannot be mixed up between tables | [`table_ids!`] | none | 4 bytes, `Option` too |
//! | rows that come and go, names that do not outlive them | [`Slab`] | O(1) | 4 bytes a row |
//! | one field of every row | [`Column`] | O(1) | the field |
//! | ordered lists of rows, removal from the middle | [`Links`] and [`List`] | O(1) | 8 bytes a row, 12 a list |
//! | a set of rows, asked often, walked in row order | [`BitSet`] | O(1), a walk O(capacity / 64) | 1 bit a row |
//! | rows with something to do, each once, first come first served | [`WorkList`] | O(1) amortised | 5 to 9 bytes a row |
//! | something per sequence number of a sliding window | [`RingPool`] | O(1), bitmaps by the word | the slots and 1 bit a slot |
//! | rows to wake at a time | [`TimerWheel`] | O(1) amortised | 16 bytes a row, 3 KiB |
//! | numbers that wrap around | [`Seq`] | none | 4 bytes |
//! | equal slots of bytes lent to hardware | `arena` (feature `arena`) | O(1) | the slots and 1 byte a slot |
//!
//! Two kinds of numbers name a row. A *row* ([`Row`]) is trusted: it comes from the table itself and
//! is used as an index, and one out of range panics. A *handle* ([`Handle`]) also carries the
//! generation of the row; whoever gets numbers from outside keeps to handles and turns each into a
//! row with [`Slab::get`], which refuses the handles of rows removed since.
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
