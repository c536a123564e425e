//! Operation lists for the tables, each run against a table and a trivial model of it at once.
//!
//! The lists know nothing of where they come from, so that unit tests, property tests and fuzz
//! targets share them: an operation is decoded from three numbers, any three.

pub mod bits;
pub mod list;
pub mod ring;
pub mod slab;
pub mod wheel;
pub mod worklist;

/// Three numbers that make an operation.
#[derive(Clone, Copy, Debug)]
pub struct Raw {
    /// Chooses the kind of the operation.
    pub kind: u8,
    /// Chooses the row.
    pub row: u8,
    /// Whatever else the operation needs.
    pub value: u64,
}

impl Raw {
    /// A number from 0 to 2^63 - 1 with an evenly distributed logarithm: small ones are common,
    /// and huge ones no rarity.
    pub fn logarithmic(self) -> u64 {
        self.value >> 1 >> (self.value & 63)
    }
}
