//! Unit tests.

use super::*;

const DEVICE: (u8, c_int) = (1, 5);

/// The number and the base of the rings of CQs.
const RINGS: [(u32, u64); 2] = [(9, 0x1000), (10, 0x2000)];

fn enter(queues: &mut Queues, handle: u32, (number, base): (u32, u64)) {
    let context = queues.contexts.entry(DEVICE.1).or_default();
    context.objects.insert(handle, Object::Cq(number, 64));
    let ring = CqRing::new(base, 8, 64, 0x3000).unwrap();
    queues.cqs.insert((DEVICE.0, number), ring);
}

#[test]
fn an_object_with_the_handle_or_number_of_a_destroyed_one_is_kept() {
    for (handle, ring) in [(3, RINGS[1]), (4, (RINGS[0].0, RINGS[1].1)), (3, RINGS[0])] {
        let mut queues = Queues::default();
        enter(&mut queues, 3, RINGS[0]);
        let ticket = queues.leave(DEVICE, 3).unwrap();
        let in_vain = queues.leave(DEVICE, 3).unwrap();
        // Another thread records what the kernel made in the meantime.
        let new = Object::Cq(ring.0, 64);
        assert_eq!(queues.displaced(DEVICE, handle, &new), Some(ticket));
        assert!(matches!(queues.left(ticket), Some(Object::Cq(9, 64))));
        assert!(queues.cqs.is_empty());
        assert_eq!(queues.displaced(DEVICE, handle, &new), None);
        enter(&mut queues, handle, ring);
        // The thread that destroyed the first one gets the lock.
        assert!([ticket, in_vain].iter().all(|ticket| queues.left(*ticket).is_none()));
        assert!(queues.cqs.contains_key(&(DEVICE.0, ring.0)));
        assert!(queues.contexts[&DEVICE.1].objects.contains_key(&handle));
    }
}

#[test]
fn an_object_stays_if_the_kernel_does_not_destroy_it() {
    let mut queues = Queues::default();
    enter(&mut queues, 3, RINGS[0]);
    assert_eq!(queues.leave(DEVICE, 4), None);
    let ticket = queues.leave(DEVICE, 3).unwrap();
    // Objects of another number, kind and device displace nothing.
    for (device, object) in
        [(DEVICE, Object::Cq(10, 64)), (DEVICE, Object::Srq(9)), ((0, 6), Object::Cq(9, 64))]
    {
        assert_eq!(queues.displaced(device, 4, &object), None, "{object:?}");
    }
    queues.stay(ticket);
    assert!(queues.left(ticket).is_none());
    assert_eq!(queues.displaced(DEVICE, 3, &Object::Cq(9, 64)), None);
    assert_eq!((queues.cqs.len(), queues.contexts[&DEVICE.1].objects.len()), (1, 1));
}

#[test]
fn register_pages_are_told_from_other_memory_of_a_device() {
    const FD: c_int = 5;
    let at = |command: off_t, index: off_t| {
        ((index >> 8) << 16 | command << 8 | index & 0xff) * PAGE as off_t
    };
    let mut queues = Queues::default();
    queues.contexts.insert(FD, Context::default());
    // Offsets of the kernel, and of the model, for pages that the program has made.
    let made = [at(10, 0x102), (9 << 16) * PAGE as off_t];
    for (number, offset) in made.into_iter().enumerate() {
        assert_eq!(queues.register_page(FD, offset), None);
        let context = queues.contexts.get_mut(&FD).unwrap();
        context.pages.insert(offset, 7 + number as u32);
        assert_eq!(queues.register_page(FD, offset), Some(7 + number as u32));
        assert_eq!(queues.register_page(FD + 1, offset), None);
    }
    for command in [0, 2, 3, 6] {
        assert_eq!(queues.register_page(FD, at(command, 3)), Some(3));
    }
    assert_eq!(queues.register_page(FD, at(6, 0x123)), Some(0x123));
    // The clock, its parameters, the device's memory, and what the program has not made.
    for command in [1, 4, 5, 7, 8, 9, 10] {
        assert_eq!(queues.register_page(FD, at(command, 0)), None);
    }
    assert_eq!(queues.register_page(FD, -4096), None);
}
