//! Rank to row, in two levels: ranks of one job are dense, those of a runtime that starts jobs
//! within jobs come in clusters. Looked up once for each datagram.

use crate::ids::{EndpointRow, Rank};

/// Ranks of one page: a page is 256 KiB at most.
const PAGE_BITS: u32 = 16;
const PAGE_RANKS: u32 = 1 << PAGE_BITS;

pub(crate) struct Directory {
    ranks_max: u32,
    /// Empty where no rank was ever listed.
    pages: Box<[Box<[Option<EndpointRow>]>]>,
}

impl Directory {
    /// Room for ranks below `ranks_max`. The first page is taken at once, others with their first
    /// rank.
    pub fn new(ranks_max: u32) -> Self {
        let pages = vec![Box::default(); ranks_max.div_ceil(PAGE_RANKS) as usize].into();
        let mut directory = Self { ranks_max, pages };
        directory.open_page(0);
        directory
    }

    /// Any number may be asked for.
    #[inline]
    pub fn get(&self, rank: u32) -> Option<EndpointRow> {
        let page = self.pages.get((rank >> PAGE_BITS) as usize)?;
        *page.get((rank & (PAGE_RANKS - 1)) as usize)?
    }

    /// Ranks are below this.
    pub fn ranks_max(&self) -> u32 {
        self.ranks_max
    }

    /// Lists a rank below `ranks_max`, or takes it off. May allocate, when a rank of its page comes
    /// for the first time: peers are added, not messages moved.
    pub fn set(&mut self, rank: Rank, ep: Option<EndpointRow>) {
        let at = (rank.0 >> PAGE_BITS) as usize;
        if self.pages[at].is_empty() {
            self.open_page(at);
        }
        self.pages[at][(rank.0 & (PAGE_RANKS - 1)) as usize] = ep;
    }

    fn open_page(&mut self, at: usize) {
        let first = (at as u32) << PAGE_BITS;
        let ranks = (self.ranks_max - first).min(PAGE_RANKS) as usize;
        self.pages[at] = vec![None; ranks].into();
    }

    /// Memory in bytes.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        let pages: usize = self.pages.iter().map(|page| size_of_val(&**page)).sum();
        size_of_val(&*self.pages) + pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use tickwire_tables::handle::Row;

    proptest! {
        #[test]
        fn is_a_map(
            limit in prop_oneof![1..200u32, 65_530..65_550u32, Just(u32::MAX - 1)],
            steps in proptest::collection::vec((any::<u32>(), 0..40u32, any::<bool>()), 1..60),
        ) {
            let mut directory = Directory::new(limit);
            let mut model = BTreeMap::new();
            for (high, low, on) in steps {
                // Few pages, so that some ranks meet again.
                let rank = ((high & 3) << 16 | low).min(limit - 1);
                let row = on.then(|| EndpointRow::from_index(low as usize));
                directory.set(Rank(rank), row);
                model.insert(rank, row);
                prop_assert_eq!(directory.get(high), model.get(&high).copied().flatten());
            }
            for (rank, row) in model {
                prop_assert_eq!(directory.get(rank), row);
            }
        }
    }
}
