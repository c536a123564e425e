//! Time as the engine sees it: nanoseconds since an arbitrary start, handed in by the port.

/// Nanoseconds on a port's own monotonic clock. Only differences mean anything.
pub type Nanos = u64;

/// One microsecond in [`Nanos`].
pub const MICROS: Nanos = 1_000;
/// One millisecond in [`Nanos`].
pub const MILLIS: Nanos = 1_000_000;
/// One second in [`Nanos`].
pub const SECONDS: Nanos = 1_000_000_000;
