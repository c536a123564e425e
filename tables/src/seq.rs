//! Sequence numbers of 32 bits that wrap around.

/// A sequence number. Numbers are compared by the shorter way around, so an order exists only
/// between numbers less than 2^31 apart, and `<` is left undefined on purpose:
///
/// ```compile_fail,E0369
/// use tickwire_tables::Seq;
/// assert!(Seq::new(1) < Seq::new(2));
/// ```
///
/// ```
/// use tickwire_tables::Seq;
/// assert!(Seq::new(u32::MAX).is_before(Seq::new(2)));
/// assert_eq!(Seq::new(2).distance_from(Seq::new(u32::MAX)), 3);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Seq(u32);

// `add` and `sub` are methods and no operators, so that the wrapping is visible where it happens.
#[allow(clippy::should_implement_trait)]
impl Seq {
    /// The number `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Self(value)
    }

    /// The number as it goes on the wire.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number after this one.
    #[inline]
    pub const fn next(self) -> Self {
        self.add(1)
    }

    /// The number `count` after this one.
    #[inline]
    pub const fn add(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// The number `count` before this one.
    #[inline]
    pub const fn sub(self, count: u32) -> Self {
        Self(self.0.wrapping_sub(count))
    }

    /// How far this number is after `other`, by the shorter way; negative when it is before. Of
    /// two numbers exactly 2^31 apart each is before the other.
    #[inline]
    pub const fn distance_from(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// Whether this number comes before `other`.
    #[inline]
    pub const fn is_before(self, other: Self) -> bool {
        self.distance_from(other) < 0
    }

    /// Whether this number is `other` or comes before it.
    #[inline]
    pub const fn is_at_or_before(self, other: Self) -> bool {
        self.distance_from(other) <= 0
    }

    /// Whether this number comes after `other`.
    #[inline]
    pub const fn is_after(self, other: Self) -> bool {
        self.distance_from(other) > 0
    }

    /// Whether this is one of the `len` numbers from `first` on. Right for every `len`, also
    /// beyond 2^31.
    #[inline]
    pub const fn is_in(self, first: Self, len: u32) -> bool {
        self.0.wrapping_sub(first.0) < len
    }
}

impl core::fmt::Display for Seq {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(&self.0, f)
    }
}

impl core::fmt::Debug for Seq {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "#{}", self.0)
    }
}
