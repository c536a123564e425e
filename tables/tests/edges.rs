//! Sizes, limits, and what must panic.

use tickwire_tables::*;

table_ids! {
    /// A row of the tables here.
    pub struct EndpointRow;
    /// A handle of the tables here.
    pub struct EndpointHandle("ep", index_bits = 20);
}

table_ids! {
    /// A row of a table of two.
    pub struct PairRow;
    /// One index bit.
    pub struct PairHandle("pair", index_bits = 1);
}

fn row(index: usize) -> EndpointRow {
    EndpointRow::from_index(index)
}

#[test]
fn sizes() {
    assert_eq!(size_of::<EndpointRow>(), 4);
    assert_eq!(size_of::<Option<EndpointRow>>(), 4);
    assert_eq!(size_of::<EndpointHandle>(), 4);
    assert_eq!(size_of::<Option<EndpointHandle>>(), 4);
    assert_eq!(size_of::<Option<RingId>>(), 4);
    assert_eq!(size_of::<List<EndpointRow>>(), 12);
    assert_eq!(size_of::<Seq>(), 4);
    assert_eq!(Column::<EndpointRow, u16>::new(10, 0).bytes(), 20);
}

#[test]
fn names() {
    let handle = EndpointHandle::new(row(7), 3);
    assert_eq!(format!("{} {:?}", row(7), row(7)), "ep7 ep7");
    assert_eq!(format!("{handle} {handle:?}"), "ep7v3 ep7v3");
    assert_eq!(format!("{} {:?}", Seq::new(5), Seq::new(5)), "5 #5");
}

#[test]
fn handles_at_the_limits() {
    let last = EndpointHandle::new(row((1 << 20) - 1), (1 << 12) - 1);
    assert_eq!(last.to_bits(), u32::MAX);
    assert_eq!((last.row(), last.generation()), (row((1 << 20) - 1), (1 << 12) - 1));
    assert_eq!(EndpointHandle::from_bits(0), None);
    assert_eq!(EndpointHandle::from_bits((1 << 20) - 1), None);
    assert_eq!(EndpointHandle::from_bits(1 << 20), Some(EndpointHandle::new(row(0), 1)));
    assert_eq!(row(u32::MAX as usize - 1).index(), u32::MAX as usize - 1);
}

#[test]
#[should_panic(expected = "does not fit in 32 bits")]
fn a_row_beyond_32_bits() {
    row(u32::MAX as usize);
}

#[test]
#[should_panic(expected = "does not fit in 20 bits")]
fn a_handle_of_too_high_a_row() {
    EndpointHandle::new(row(1 << 20), 1);
}

#[test]
#[should_panic(expected = "0 or too large")]
fn a_handle_without_generation() {
    EndpointHandle::new(row(0), 0);
}

#[test]
#[should_panic(expected = "0 or too large")]
fn a_handle_of_too_high_a_generation() {
    EndpointHandle::new(row(0), 1 << 12);
}

#[test]
fn a_slab_may_use_every_index() {
    let mut slab = Slab::<PairHandle>::new(2);
    for _ in 0..5 {
        let (first, second) = (slab.insert().unwrap(), slab.insert().unwrap());
        assert_ne!(first, second);
        assert_eq!(slab.insert(), None);
        slab.remove(first);
        slab.remove(second);
    }
    assert_eq!(Slab::<PairHandle>::new(0).insert(), None);
}

#[test]
#[should_panic(expected = "3 rows do not fit")]
fn a_slab_beyond_its_handles() {
    Slab::<PairHandle>::new(3);
}

#[test]
#[should_panic(expected = "free already")]
fn a_row_freed_twice() {
    let mut slab = Slab::<EndpointHandle>::new(4);
    let row = slab.insert().unwrap();
    slab.remove(row);
    slab.remove(row);
}

#[test]
#[should_panic(expected = "is free")]
fn the_handle_of_a_free_row() {
    Slab::<EndpointHandle>::new(4).handle(row(1));
}

#[test]
fn columns() {
    let mut column = Column::from_fn(3, |row: EndpointRow| row.index() * 10);
    column[row(1)] += 5;
    assert!(column.iter().eq([(row(0), &0), (row(1), &15), (row(2), &20)]));
    assert_eq!((column.len(), column.is_empty(), column[row(2)]), (3, false, 20));
    assert!(Column::<EndpointRow, u8>::new(0, 0).is_empty());
}

#[test]
#[should_panic(expected = "out of bounds")]
fn a_row_beyond_its_column() {
    let column = Column::<EndpointRow, u8>::new(3, 0);
    let _ = column[row(3)];
}

#[test]
#[should_panic(expected = "in no list")]
fn a_row_unlinked_twice() {
    let (mut links, mut list) = (Links::new(3), List::default());
    links.push_back(&mut list, row(1));
    links.push_back(&mut list, row(2));
    links.remove(&mut list, row(1));
    links.remove(&mut list, row(1));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "in a list already")]
fn a_row_linked_twice() {
    let (mut links, mut list, mut other) = (Links::new(3), List::default(), List::default());
    links.push_back(&mut list, row(1));
    links.push_front(&mut other, row(1));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "in another list")]
fn a_row_unlinked_from_another_list() {
    let (mut links, mut list, mut other) = (Links::new(3), List::default(), List::default());
    links.push_back(&mut list, row(1));
    links.push_back(&mut other, row(2));
    links.remove(&mut other, row(1));
}

#[test]
#[should_panic(expected = "given back twice")]
fn a_ring_given_back_twice() {
    let mut pool = RingPool::<u8>::new(2, 64);
    let id = pool.take().unwrap();
    pool.give(id);
    pool.give(id);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "1 slots occupied")]
fn a_ring_given_back_in_use() {
    let mut pool = RingPool::<u8>::new(2, 64);
    let id = pool.take().unwrap();
    pool.set(id, 7, 1);
    pool.give(id);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "has something at 71 already")]
fn a_slot_set_twice() {
    let mut pool = RingPool::<u8>::new(2, 64);
    let id = pool.take().unwrap();
    pool.set(id, 7, 1);
    pool.set(id, 71, 1);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "is not taken")]
fn a_slot_set_in_a_ring_nobody_took() {
    let mut pool = RingPool::<u8>::new(2, 64);
    let id = pool.take().unwrap();
    pool.give(id);
    pool.set(id, 7, 1);
}

#[test]
#[should_panic(expected = "not a power of two")]
fn a_ring_of_odd_length() {
    RingPool::<u8>::new(1, 96);
}

#[test]
fn the_last_ring_given_back_is_taken_first() {
    let mut pool = RingPool::<u8>::new(3, 64);
    let (first, second) = (pool.take().unwrap(), pool.take().unwrap());
    pool.give(second);
    pool.give(first);
    assert_eq!(pool.take(), Some(first));
}

#[test]
#[should_panic(expected = "ep65 in a set of 65")]
fn a_row_beyond_its_set() {
    // The words have room for it, the set has not.
    BitSet::new(65).insert(row(65));
}

#[test]
fn a_work_list_pushed_and_removed_for_ever() {
    let mut list = WorkList::new(2);
    for _ in 0..1000 {
        assert!(list.push(row(0)));
        assert!(list.push(row(1)));
        assert!(!list.push(row(1)));
        assert!(list.remove(row(0)));
        assert!(!list.remove(row(0)));
        assert!(list.push(row(0)));
        assert_eq!((list.pop(), list.pop(), list.pop()), (Some(row(0)), Some(row(1)), None));
    }
    assert_eq!(WorkList::<EndpointRow>::new(0).pop(), None);
}

fn fired(wheel: &mut TimerWheel<EndpointRow>, now_ns: u64, max: usize) -> Vec<usize> {
    let mut rows = Vec::new();
    wheel.advance(now_ns, max, &mut |row: EndpointRow| rows.push(row.index()));
    rows
}

#[test]
fn a_wheel_rounds_up_to_ticks() {
    let mut wheel = TimerWheel::new(4, 1024, 5000);
    wheel.arm(row(0), 6144);
    wheel.arm(row(1), 6145);
    assert_eq!(wheel.next_deadline(), Some(6144));
    assert_eq!(fired(&mut wheel, 6143, 9), []);
    assert_eq!(fired(&mut wheel, 6144, 9), [0]);
    assert_eq!(wheel.next_deadline(), Some(7168));
    assert_eq!(fired(&mut wheel, 7167, 9), []);
    assert_eq!(fired(&mut wheel, 7168, 9), [1]);
    assert_eq!(wheel.next_deadline(), None);
}

#[test]
fn a_wheel_fires_in_portions_and_first_come_first_served() {
    let mut wheel = TimerWheel::new(4, 1, 0);
    for index in [2, 0, 3] {
        wheel.arm(row(index), 100);
    }
    assert_eq!(fired(&mut wheel, 200, 1), [2]);
    // Overdue, but the others have waited longer.
    wheel.arm(row(2), 50);
    assert_eq!(fired(&mut wheel, 200, 0), []);
    assert_eq!(fired(&mut wheel, 200, 2), [0, 3]);
    assert_eq!(fired(&mut wheel, 200, 2), [2]);
}

#[test]
fn a_wheel_in_the_last_tick_of_time() {
    let mut wheel = TimerWheel::new(2, 1, 0);
    wheel.arm(row(0), u64::MAX);
    assert_eq!(fired(&mut wheel, u64::MAX - 1, 9), []);
    assert_eq!(fired(&mut wheel, u64::MAX, 9), [0]);
    wheel.arm(row(1), 0);
    // Time that seems to run backwards holds nothing up.
    assert_eq!(fired(&mut wheel, 7, 9), [1]);
}

#[test]
#[should_panic(expected = "not a power of two")]
fn a_wheel_of_odd_ticks() {
    TimerWheel::<EndpointRow>::new(1, 1000, 0);
}
