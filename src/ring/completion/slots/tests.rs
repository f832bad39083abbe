use super::*;

#[test]
fn slots_are_reserved_once_and_released() {
    let slots = CqSlots::new(8);
    let first = slots.reserve(Demand::up_to(5)).unwrap();
    let second = slots.reserve(Demand::up_to(5)).unwrap();
    assert_eq!((first.entries(), second.entries()), (5, 3));
    let full = |needed| QueueError::CqFull { cqes: 8, free: 0, needed };
    assert_eq!(slots.reserve(Demand::up_to(1)).unwrap_err(), full(1));
    assert_eq!(slots.reserve(Demand::exactly(6)).unwrap_err(), full(6));
    drop(first);
    assert_eq!(slots.reserve(Demand::up_to(9)).unwrap().entries(), 5);
}

#[test]
fn what_is_stated_is_reserved_exactly_or_refused() {
    let slots = CqSlots::new(8);
    assert_eq!(slots.reserve(Demand::of(5, 64, 64)).unwrap().entries(), 5);
    assert_eq!(slots.reserve(Demand::of(70, 6, 64)).unwrap().entries(), 6, "more than its size");
    assert_eq!(slots.reserve(Demand::of(0, 64, 64)).unwrap().entries(), 1);
    let refused = slots.reserve(Demand::of(9, 64, 64)).unwrap_err();
    assert_eq!(refused, QueueError::CqFull { cqes: 8, free: 8, needed: 9 });
}

/// Whatever the sizes of both queues, the first leaves room for the second, and takes no less
/// than half for that.
#[test]
fn the_first_queue_of_a_pair_leaves_room_for_the_second() {
    for (entries, size, partner) in (1..40).flat_map(|entries| {
        (1..50).flat_map(move |size| (0..50).map(move |partner| (entries, size, partner)))
    }) {
        let slots = CqSlots::new(entries);
        let first = slots.reserve(Demand::of(u32::MAX, size, partner)).unwrap().entries();
        let rest = entries - first;
        assert!(first == size || first >= entries.div_ceil(2), "{entries} {size} {partner}");
        assert!(first == size || rest <= partner, "no more than the other wants");
        assert!(rest >= partner.min(entries / 2), "{entries} {size} {partner}");
    }
}

#[test]
fn slots_of_a_queue_dropped_with_work_outstanding_stay_reserved() {
    let slots = CqSlots::new(8);
    let destroyed = Arc::new(AtomicBool::new(false));
    let mut reservation = slots.reserve(Demand::up_to(8)).unwrap();
    reservation.keep(5, QueueKind::Send, Arc::clone(&destroyed));
    drop(reservation);
    assert!(slots.has_dropped(5, QueueKind::Send) && !slots.has_dropped(5, QueueKind::Receive));
    assert!(slots.reserve(Demand::up_to(1)).is_err() && slots.find_destroyed().is_none());
    destroyed.store(true, Ordering::Release);
    let found = slots.find_destroyed().map(|(queue, _)| queue);
    assert_eq!(found, Some(DroppedQueue::Queue(5, QueueKind::Send)));
    slots.release(&DroppedQueue::Queue(5, QueueKind::Receive));
    assert!(slots.reserve(Demand::up_to(1)).is_err());
    slots.release(&DroppedQueue::Queue(5, QueueKind::Send));
    assert!(slots.is_unreserved() && !slots.has_dropped(5, QueueKind::Send));
}
