//! Every table against a trivial model, under random operations.

mod models;

use models::{Raw, bits, list, ring, slab, wheel, worklist};
use proptest::prelude::*;
use tickwire_tables::Seq;

tickwire_tables::table_ids! {
    /// A row with room for many generations.
    pub struct WideRow;
    /// Few index bits.
    pub struct WideHandle("wide", index_bits = 4);
}

tickwire_tables::table_ids! {
    /// A row that soon runs out of generations.
    pub struct NarrowRow;
    /// Three generation bits: the generations run from 1 to 7.
    pub struct NarrowHandle("narrow", index_bits = 29);
}

/// Up to `max` operations of a table.
fn ops<Op: From<Raw> + core::fmt::Debug>(max: usize) -> impl Strategy<Value = Vec<Op>> {
    let op =
        any::<(u8, u8, u64)>().prop_map(|(kind, row, value)| Op::from(Raw { kind, row, value }));
    prop::collection::vec(op, 0..max)
}

proptest! {
    #[test]
    fn a_slab_is_a_stack_of_free_rows(ops in ops::<slab::Op>(300), capacity in 0usize..=16) {
        slab::run::<WideHandle>(capacity, &ops);
    }

    #[test]
    fn a_slab_survives_the_wrap_of_generations(
        ops in ops::<slab::Op>(300), capacity in 0usize..=3,
    ) {
        slab::run::<NarrowHandle>(capacity, &ops);
    }

    #[test]
    fn lists_are_queues(ops in ops::<list::Op>(300)) {
        list::run(&ops);
    }

    #[test]
    fn rings_are_maps_of_slots(ops in ops::<ring::Op>(300), doublings in 0u32..4) {
        ring::run(64 << doublings, &ops);
    }

    #[test]
    fn a_bit_set_is_a_set(ops in ops::<bits::Op>(300), capacity in 1usize..=200) {
        bits::run(capacity, &ops);
    }

    #[test]
    fn a_work_list_is_a_queue(ops in ops::<worklist::Op>(300), capacity in 1usize..=20) {
        worklist::run(capacity, &ops);
    }

    #[test]
    fn a_wheel_fires_what_is_due(
        ops in ops::<wheel::Op>(200), tick_shift in 0u32..=20, start_ns in any::<u64>(),
        start_shift in 0u32..64,
    ) {
        wheel::run(1 << tick_shift, start_ns >> start_shift, &ops);
    }

    #[test]
    fn sequence_numbers_go_around(from in any::<u32>(), by in 1u32..1 << 31, len in any::<u32>()) {
        let (first, second) = (Seq::new(from), Seq::new(from).add(by));
        prop_assert_eq!(second.get(), from.wrapping_add(by));
        prop_assert_eq!(second.sub(by), first);
        prop_assert_eq!(second.distance_from(first), by as i32);
        prop_assert_eq!(first.distance_from(second), -(by as i32));
        prop_assert!(first.is_before(second) && first.is_at_or_before(second));
        prop_assert!(second.is_after(first) && !second.is_at_or_before(first));
        prop_assert!(!first.is_before(first) && !first.is_after(first));
        prop_assert!(first.is_at_or_before(first));
        prop_assert_eq!(first.next().distance_from(first), 1);
        prop_assert_eq!(second.is_in(first, len), by < len);
        prop_assert_eq!(first.is_in(second, len), by.wrapping_neg() < len);
        prop_assert_eq!(first.is_in(first, len), len > 0);
    }
}
