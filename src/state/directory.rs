//! Rank to row, in two levels: ranks of one job are dense, those of a runtime that starts jobs
//! within jobs come in clusters. Looked up once for each datagram.

use crate::ids::{EndpointRow, Rank};

/// Ranks of one page: a page is 256 KiB at most.
const PAGE_BITS: u32 = 16;
const PAGE_RANKS: u32 = 1 << PAGE_BITS;

pub(crate) struct Directory {
    ranks_max: u32,
    /// One more than a page's place in `pages`; 0: no rank of it was ever listed.
    tops: Box<[u32]>,
    pages: Vec<Box<[Option<EndpointRow>]>>,
}

impl Directory {
    /// Room for ranks below `ranks_max`. The first page is taken at once, others with their first
    /// rank.
    pub fn new(ranks_max: u32) -> Self {
        let tops = vec![0; ranks_max.div_ceil(PAGE_RANKS) as usize].into();
        let mut directory = Self { ranks_max, tops, pages: Vec::new() };
        directory.open_page(0);
        directory
    }

    /// Any number may be asked for.
    #[inline]
    pub fn get(&self, rank: u32) -> Option<EndpointRow> {
        let page = *self.tops.get((rank >> PAGE_BITS) as usize)?;
        let page = self.pages.get((page as usize).wrapping_sub(1))?;
        *page.get((rank & (PAGE_RANKS - 1)) as usize)?
    }

    /// Ranks are below this.
    pub fn ranks_max(&self) -> u32 {
        self.ranks_max
    }

    /// Lists a rank below `ranks_max`, or takes it off. May allocate: outside the data path.
    pub fn set(&mut self, rank: Rank, ep: Option<EndpointRow>) {
        let top = (rank.0 >> PAGE_BITS) as usize;
        if self.tops[top] == 0 {
            self.open_page(top);
        }
        let page = &mut self.pages[self.tops[top] as usize - 1];
        page[(rank.0 & (PAGE_RANKS - 1)) as usize] = ep;
    }

    fn open_page(&mut self, top: usize) {
        let first = (top as u32) << PAGE_BITS;
        let ranks = (self.ranks_max - first).min(PAGE_RANKS) as usize;
        self.pages.push(vec![None; ranks].into());
        self.tops[top] = self.pages.len() as u32;
    }

    /// Memory in bytes.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        let pages: usize = self.pages.iter().map(|page| size_of_val(&**page)).sum();
        size_of_val(&*self.tops) + pages
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
