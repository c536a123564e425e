//! Links between the nodes that talk to each other, as a scenario sets and changes them.

use super::file::LinkKeys;
use super::plan::Scope;
use crate::ports::sim::{LinkModel, SimNet};
use std::collections::HashMap;

/// Ordered pairs of nodes that exchange datagrams, and what holds between them. A model of one's
/// own costs memory, so pairs that never talk get none.
pub(super) struct Topology {
    default: LinkModel,
    /// Looked up, never walked: the order of hashing decides nothing.
    own: HashMap<(u32, u32), LinkModel>,
    /// In order.
    pairs: Vec<(u32, u32)>,
    nodes: usize,
}

impl Topology {
    /// `pairs` are those with traffic; acks go the other way, so both directions count.
    pub fn new(default: LinkModel, nodes: u32, pairs: impl Iterator<Item = (u32, u32)>) -> Self {
        let mut pairs: Vec<_> = pairs.flat_map(|(a, b)| [(a, b), (b, a)]).collect();
        pairs.sort_unstable();
        pairs.dedup();
        Self { default, own: HashMap::new(), pairs, nodes: nodes as usize }
    }

    /// Ordered pairs that exchange datagrams, in order.
    pub fn pairs(&self) -> &[(u32, u32)] {
        &self.pairs
    }

    pub fn model(&self, from: u32, to: u32) -> &LinkModel {
        self.own.get(&(from, to)).unwrap_or(&self.default)
    }

    /// The pairs of a scope that exchange datagrams, in order.
    pub fn pairs_in(&self, scope: &Scope) -> Vec<(u32, u32)> {
        let mut is_in = [vec![false; self.nodes], vec![false; self.nodes]];
        scope.from.iter().for_each(|&node| is_in[0][node as usize] = true);
        scope.to.iter().for_each(|&node| is_in[1][node as usize] = true);
        let is_way = |from: u32, to: u32| is_in[0][from as usize] && is_in[1][to as usize];
        let pairs = self.pairs.iter().copied();
        pairs.filter(|&(a, b)| is_way(a, b) || scope.both_ways && is_way(b, a)).collect()
    }

    /// Changes the links of a scope, or the model of all others.
    pub fn change(
        &mut self,
        net: &SimNet,
        scope: Option<&Scope>,
        set: &LinkKeys,
    ) -> Result<(), String> {
        let refused = |key| format!("{key}: more than 100 %");
        let Some(scope) = scope else {
            set.apply(&mut self.default).map_err(refused)?;
            net.set_model(self.default);
            return Ok(());
        };
        for (from, to) in self.pairs_in(scope) {
            let mut model = *self.model(from, to);
            set.apply(&mut model).map_err(refused)?;
            net.set_link(from, to, model);
            self.own.insert((from, to), model);
        }
        Ok(())
    }

    /// Bytes a second that the links of some flows carry together: the senders' or the receivers',
    /// whichever are slower. `None`: unlimited.
    pub fn capacity(&self, flows: impl Iterator<Item = (u32, u32)>) -> Option<u64> {
        let mut fastest = [HashMap::new(), HashMap::new()];
        for (from, to) in flows {
            let rate = self.model(from, to).bytes_per_s;
            for (side, node) in fastest.iter_mut().zip([from, to]) {
                // 0 is unlimited.
                let best = side.entry(node).or_insert(rate);
                *best = if *best == 0 || rate == 0 { 0 } else { rate.max(*best) };
            }
        }
        let sums = fastest.iter().filter(|side| side.values().all(|&rate| rate > 0));
        sums.map(|side| side.values().sum()).min()
    }
}
