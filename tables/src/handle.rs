//! Typed numbers: rows, and handles that notice when their row was given to somebody else.

/// The number of a row of one table. Trusted: used as an index without further questions.
pub trait Row: Copy + Eq + core::fmt::Debug {
    /// The row at `index`. Panics when `index` is `u32::MAX` or more.
    fn from_index(index: usize) -> Self;

    /// The place of the row in its table's columns, from 0.
    fn index(self) -> usize;
}

/// A row and its generation in 32 bits, never 0: the index in the low [`Handle::INDEX_BITS`] bits,
/// the generation, from 1, in the rest.
pub trait Handle: Copy + Eq + core::fmt::Debug {
    /// The row type of the same table.
    type Row: Row;

    /// How many bits the index takes, from 1 to 31.
    const INDEX_BITS: u32;

    /// The handle of `row` in `generation`. Panics when either does not fit or `generation` is 0.
    fn new(row: Self::Row, generation: u32) -> Self;

    /// The row, whether or not the handle is still valid.
    fn row(self) -> Self::Row;

    /// The generation, from 1.
    fn generation(self) -> u32;

    /// The handle as a plain number, to pass through foreign hands.
    fn to_bits(self) -> u32;

    /// The handle with these bits, or `None` when the generation in them is 0. Any other number
    /// is a well-formed handle; whether it names a live row is for [`crate::Slab::get`] to say.
    fn from_bits(bits: u32) -> Option<Self>;
}

/// Defines the row type and the handle type of a table.
///
/// ```
/// use tickwire_tables::{Handle, Row};
///
/// tickwire_tables::table_ids! {
///     /// A row of the endpoint table.
///     pub struct EndpointRow;
///     /// A handle of an endpoint.
///     pub struct EndpointHandle("ep", index_bits = 20);
/// }
///
/// let row = EndpointRow::from_index(7);
/// assert_eq!(row.to_string(), "ep7");
/// assert_eq!(EndpointHandle::new(row, 3).to_string(), "ep7v3");
/// assert_eq!(size_of::<Option<EndpointRow>>(), 4);
/// ```
#[macro_export]
macro_rules! table_ids {
    (@row $(#[$doc:meta])* $vis:vis struct $row:ident($prefix:literal);) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(transparent)]
        $vis struct $row(::core::num::NonZeroU32);

        impl $crate::Row for $row {
            #[inline]
            fn from_index(index: usize) -> Self {
                assert!(index < u32::MAX as usize, "row {index} does not fit in 32 bits");
                // The number kept is one more than the index, so that `Option` needs no room.
                Self(::core::num::NonZeroU32::MIN.saturating_add(index as u32))
            }

            #[inline]
            fn index(self) -> usize {
                (self.0.get() - 1) as usize
            }
        }

        impl ::core::fmt::Display for $row {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::write!(f, "{}{}", $prefix, self.0.get() - 1)
            }
        }

        impl ::core::fmt::Debug for $row {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Display::fmt(self, f)
            }
        }
    };
    (
        $(#[$row_doc:meta])* $row_vis:vis struct $row:ident;
        $(#[$doc:meta])* $vis:vis struct $handle:ident($prefix:literal, index_bits = $bits:literal);
    ) => {
        $crate::table_ids! { @row $(#[$row_doc])* $row_vis struct $row($prefix); }

        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(transparent)]
        $vis struct $handle(::core::num::NonZeroU32);

        const _: () = ::core::assert!(0 < $bits && $bits < 32, "index_bits is from 1 to 31");

        impl $crate::Handle for $handle {
            type Row = $row;
            const INDEX_BITS: u32 = $bits;

            #[inline]
            fn new(row: $row, generation: u32) -> Self {
                let index = $crate::Row::index(row);
                assert!(index < 1 << $bits, "row {index} does not fit in {} bits", $bits);
                let last = u32::MAX >> $bits;
                assert!(
                    (1..=last).contains(&generation),
                    "generation {generation} is 0 or too large"
                );
                let bits = generation << $bits | index as u32;
                Self(::core::num::NonZeroU32::new(bits).expect("a generation is not 0"))
            }

            #[inline]
            fn row(self) -> $row {
                $crate::Row::from_index((self.0.get() & ((1 << $bits) - 1)) as usize)
            }

            #[inline]
            fn generation(self) -> u32 {
                self.0.get() >> $bits
            }

            #[inline]
            fn to_bits(self) -> u32 {
                self.0.get()
            }

            #[inline]
            fn from_bits(bits: u32) -> ::core::option::Option<Self> {
                if bits >> $bits == 0 {
                    return ::core::option::Option::None;
                }
                ::core::num::NonZeroU32::new(bits).map(Self)
            }
        }

        impl ::core::fmt::Display for $handle {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                let bits = self.0.get();
                ::core::write!(f, "{}{}v{}", $prefix, bits & ((1 << $bits) - 1), bits >> $bits)
            }
        }

        impl ::core::fmt::Debug for $handle {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Display::fmt(self, f)
            }
        }
    };
}
