//! Who sends to whom.

/// A pattern of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Pattern {
    /// Every rank to every other.
    All,
    /// Every rank to the next one.
    Ring,
    /// Ranks 0 and 1 to each other, 2 and 3, and so on.
    Pairs,
}

impl Pattern {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Ring => "ring",
            Self::Pairs => "pairs",
        }
    }

    /// Whether `from` sends to `to` in a job of `ranks`.
    pub fn sends(self, from: u32, to: u32, ranks: u32) -> bool {
        from != to
            && match self {
                Self::All => true,
                Self::Ring => (from + 1) % ranks == to,
                Self::Pairs => from ^ 1 == to,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn everybody_sends_and_hears() {
        for (pattern, partners) in [(Pattern::All, 5), (Pattern::Ring, 1), (Pattern::Pairs, 1)] {
            for rank in 0..6 {
                let to = (0..6).filter(|&to| pattern.sends(rank, to, 6)).count();
                let from = (0..6).filter(|&from| pattern.sends(from, rank, 6)).count();
                assert_eq!((to, from), (partners, partners), "{pattern:?} {rank}");
            }
        }
    }
}
