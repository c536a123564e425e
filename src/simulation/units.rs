//! Quantities with units, as scenario files write them: `"10us"`, `"10Gbit"`, `"1MiB"`, `"1%"`.

use crate::time::{MICROS, MILLIS, Nanos, SECONDS};
use serde::Deserialize;

/// What a value of a file may be.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a number, or text with a unit")]
enum Scalar {
    Number(f64),
    Text(String),
}

/// Names of units and what each is worth.
type Units = &'static [(&'static str, f64)];

const TIMES: Units =
    &[("ns", 1.0), ("us", MICROS as f64), ("ms", MILLIS as f64), ("s", SECONDS as f64)];
const SIZES: Units = &[
    ("B", 1.0),
    ("kB", 1e3),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
];
const RATES: Units = &[
    ("bit", 0.125),
    ("kbit", 125.0),
    ("Kbit", 125.0),
    ("Mbit", 125e3),
    ("Gbit", 125e6),
    ("Tbit", 125e9),
    ("B/s", 1.0),
    ("kB/s", 1e3),
    ("KB/s", 1e3),
    ("MB/s", 1e6),
    ("GB/s", 1e9),
];
const CHANCES: Units = &[("%", 0.01)];

/// `plain` is what a number without a unit counts in; `None`: only 0 needs no unit.
fn quantity(
    scalar: Scalar,
    units: Units,
    plain: Option<f64>,
    example: &str,
) -> Result<f64, String> {
    let wrong = |text: &str| format!("{text:?} is not {example}");
    let (number, unit) = match &scalar {
        Scalar::Number(number) => (*number, ""),
        Scalar::Text(text) => {
            let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
            let number = text[..end].parse().map_err(|_| wrong(text))?;
            (number, text[end..].trim())
        }
    };
    let worth = match units.iter().find(|(name, _)| *name == unit) {
        Some((_, worth)) => *worth,
        None if unit.is_empty() && number == 0.0 => 0.0,
        None if unit.is_empty() => {
            plain.ok_or_else(|| format!("{number} needs a unit: {example}"))?
        }
        None => return Err(wrong(&format!("{number}{unit}"))),
    };
    let value = number * worth;
    // Beyond 2^53 an f64 would round; nothing sensible is so large.
    match value.is_finite() && (0.0..=9e15).contains(&value) {
        true => Ok(value),
        false => Err(format!("{number}{unit} is out of range")),
    }
}

macro_rules! quantities {
    ($(
        $(#[$doc:meta])*
        $name:ident($inner:ty) = $units:ident, $plain:expr, $example:literal;
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
            #[serde(try_from = "Scalar")]
            pub(super) struct $name(pub $inner);

            impl TryFrom<Scalar> for $name {
                type Error = String;
                fn try_from(scalar: Scalar) -> Result<Self, String> {
                    quantity(scalar, $units, $plain, $example).map($name::from_value)
                }
            }
        )*
    };
}

quantities! {
    /// A length of time.
    Time(Nanos) = TIMES, None, "a time such as \"10us\"";
    /// A number of bytes.
    Size(u64) = SIZES, Some(1.0), "a size such as 4096 or \"1MiB\"";
    /// Bytes a second.
    Rate(u64) = RATES, None, "a rate such as \"10Gbit\" or \"100MB/s\"";
    /// A probability.
    Chance(f64) = CHANCES, Some(1.0), "a probability such as 0.01 or \"1%\"";
}

impl Time {
    fn from_value(value: f64) -> Self {
        Self(value.round() as Nanos)
    }
}

impl Size {
    fn from_value(value: f64) -> Self {
        Self(value.round() as u64)
    }
}

impl Rate {
    fn from_value(value: f64) -> Self {
        Self(value.round() as u64)
    }
}

impl Chance {
    fn from_value(value: f64) -> Self {
        Self(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Scalar {
        Scalar::Text(text.to_owned())
    }

    #[test]
    fn units_are_what_they_say() {
        for (from, want) in [("10us", 10_000), ("1.5 ms", 1_500_000), ("2s", 2_000_000_000)] {
            assert_eq!(Time::try_from(text(from)), Ok(Time(want)), "{from}");
        }
        for (from, want) in [("1MiB", 1 << 20), ("64 KiB", 65536), ("3MB", 3_000_000), ("7B", 7)] {
            assert_eq!(Size::try_from(text(from)), Ok(Size(want)), "{from}");
        }
        for (from, want) in [("10Gbit", 1_250_000_000), ("100MB/s", 100_000_000), ("0", 0)] {
            assert_eq!(Rate::try_from(text(from)), Ok(Rate(want)), "{from}");
        }
        assert_eq!(Size::try_from(Scalar::Number(4096.0)), Ok(Size(4096)));
        assert_eq!(Time::try_from(Scalar::Number(0.0)), Ok(Time(0)));
        assert_eq!(Chance::try_from(text("25%")), Ok(Chance(0.25)));
        assert_eq!(Chance::try_from(Scalar::Number(0.25)), Ok(Chance(0.25)));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for from in ["", "us", "10", "10 parsecs", "-1us", "1e3us", "99999999999s", "1..5us"] {
            assert!(Time::try_from(text(from)).is_err(), "{from}");
        }
        assert!(Time::try_from(Scalar::Number(10.0)).is_err());
        assert!(Rate::try_from(text("10GiB")).is_err());
        assert!(Size::try_from(Scalar::Number(-1.0)).is_err());
        assert!(Size::try_from(Scalar::Number(f64::NAN)).is_err());
    }
}
