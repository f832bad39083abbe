//! Unit tests.

use mlx5_sys::ifc::{
    Field, create_cq_in, create_eq_in, modify_cq_in, opcode, query_cq_in, query_cq_out,
};

use super::super::Syndrome;
use super::super::test::Queue;
use super::*;
use crate::command::test::{BASE, Command, Rig, SIZE, UNWRITTEN, ring};
use crate::object::State;

#[test]
fn the_owner_bit_turns_with_the_ring() {
    let mut queue = Queue::new();
    for i in 0..40u32 {
        queue.rig.write(queue.record, &i.to_be_bytes());
        queue.rig.card.complete(&queue.sent(i as u16, Ok(())));
        let cqe = queue.cqe(u64::from(i % 16));
        assert_eq!(cqe[63] & 1, (i / 16 % 2) as u8);
        assert_eq!(cqe[61], i as u8);
    }
}

#[test]
fn an_armed_cq_tells_once() {
    let mut queue = Queue::new();
    let word = [0x40u64, 0x48].map(|_| queue.rig.eq << 24);
    queue.rig.card.store(queue.rig.uar, 0x40, &word[0].to_be_bytes());
    queue.rig.card.complete(&queue.sent(0, Ok(())));
    assert_eq!(queue.events(), 0);
    // An existing CQE that was not reported is reported now.
    queue.arm(0, false, 0);
    assert_eq!(queue.events(), 1);
    let eqe: [u8; 64] = queue.rig.read(queue.rig.eq_ring);
    assert_eq!(eqe[1], 0);
    assert_eq!(eqe[0x38..0x3c], queue.cq.to_be_bytes());
    assert_eq!(eqe[0x3f], 0);
    assert_eq!(queue.rig.card.interrupts, [3]);
    // The same sequence number again is the same request.
    queue.arm(0, false, 0);
    queue.rig.card.complete(&queue.sent(1, Ok(())));
    assert_eq!(queue.events(), 1);
    // The completion that came between event and arm is newer than the event.
    queue.arm(1, false, 0);
    assert_eq!(queue.events(), 2);
    // All were reported, though none was polled.
    queue.arm(2, false, 0);
    assert_eq!(queue.events(), 2);
    queue.rig.card.complete(&queue.sent(2, Ok(())));
    assert_eq!(queue.events(), 3);
    // Newer than the last event, but taken already.
    queue.rig.card.complete(&queue.sent(3, Ok(())));
    queue.arm(3, false, 4);
    assert_eq!(queue.events(), 3);
    queue.rig.card.complete(&queue.sent(4, Ok(())));
    assert_eq!(queue.events(), 4);
}

#[test]
fn solicited_arms_wait_for_solicited_completions_and_errors() {
    let mut queue = Queue::new();
    queue.arm(0, true, 0);
    queue.rig.card.complete(&queue.sent(0, Ok(())));
    queue.rig.card.complete(&queue.received(false));
    assert_eq!(queue.events(), 0);
    queue.rig.card.complete(&queue.received(true));
    assert_eq!(queue.events(), 1);
    queue.arm(1, true, 3);
    queue.rig.card.complete(&queue.sent(1, Err(Syndrome::FLUSHED)));
    assert_eq!(queue.events(), 2);
    queue.rig.card.complete(&queue.sent(2, Ok(())));
    queue.arm(2, true, 3);
    assert_eq!(queue.events(), 2);
}

/// A second EQ that listens for CQ and queue pair errors; returns where its ring is.
fn listen(rig: &mut Rig) -> u64 {
    let create = rig.create_eq().set(create_eq_in::EVENT_BITMASK, 1u64 << 4 | 1 << 5 | 1 << 0x10);
    rig.run(&create).unwrap();
    ring(&create)
}

#[test]
fn an_overrun_fails_the_cq_and_its_queue_pairs() {
    let mut queue = Queue::new();
    let events = listen(&mut queue.rig);
    for i in 0..16 {
        queue.rig.card.complete(&queue.sent(i, Ok(())));
    }
    let before = queue.cqe(0);
    queue.rig.card.complete(&queue.sent(16, Ok(())));
    assert_eq!(queue.cqe(0), before);
    assert!(queue.rig.card.objects.cqs.get(queue.cq).unwrap().failed);
    // The state that a ConnectX-4 Lx shows then: evidence F137.
    let query = Command::new(opcode::QUERY_CQ, 0x10).set(query_cq_in::CQN, queue.cq);
    assert_eq!(queue.rig.number(&query, cqc::STATUS.within(query_cq_out::CQ_CONTEXT)), 9);
    assert_eq!(queue.rig.card.objects.qps[&queue.qp].state, State::Error);
    let eqe: [u8; 64] = queue.rig.read(events);
    assert_eq!(eqe[1], 4);
    assert_eq!(eqe[0x20..0x24], queue.cq.to_be_bytes());
    assert_eq!(eqe[0x2b], 1);
    let eqe: [u8; 64] = queue.rig.read(events + 64);
    assert_eq!(eqe[1], 5);
    assert_eq!(eqe[0x34], 0);
    assert_eq!(eqe[0x38..0x3c], queue.qp.to_be_bytes());
    // Taking one now does not help.
    queue.rig.write(queue.record, &16u32.to_be_bytes());
    queue.rig.card.complete(&queue.sent(17, Ok(())));
    assert_eq!(queue.cqe(0), before);
}

#[test]
fn a_cq_told_to_ignore_overruns_writes_on() {
    let mut queue =
        Queue::with(|cq| cq.set(cqc::OI.within(create_cq_in::CQ_CONTEXT), 1u64), |qp| qp);
    for i in 0..17 {
        queue.rig.card.complete(&queue.sent(i, Ok(())));
    }
    assert_eq!(queue.cqe(0)[60..64], [0, 16, 0, 1]);
}

#[test]
fn cqes_that_say_something_before_they_are_written_are_a_mistake_of_software_once() {
    let mut queue = Queue::new();
    queue.rig.card.complete(&queue.sent(0, Ok(())));
    assert_eq!(queue.rig.card.complaints.valid_cqes, 0);
    queue.rig.write(queue.ring + 64, &[0; 128]);
    for index in 1..3 {
        queue.rig.card.complete(&queue.sent(index, Ok(())));
        assert_eq!(queue.rig.card.complaints.valid_cqes, 1);
    }
    // The second lap finds the CQEs of the first.
    let mut queue = Queue::new();
    for index in 0..40u16 {
        queue.rig.write(queue.record, &u32::from(index).to_be_bytes());
        queue.rig.card.complete(&queue.sent(index, Ok(())));
    }
    assert_eq!(queue.rig.card.complaints.valid_cqes, 0);
}

#[test]
fn a_collapsed_cq_has_the_last_cqe_only() {
    let mut queue =
        Queue::with(|cq| cq.set(cqc::CC.within(create_cq_in::CQ_CONTEXT), 1u64), |qp| qp);
    // More CQEs than the ring holds, none of them polled.
    for i in 0..40u16 {
        queue.rig.card.complete(&queue.sent(i, Ok(())));
        let cqe = queue.cqe(0);
        assert_eq!(cqe[60..62], i.to_be_bytes());
        assert_eq!(cqe[63] & !1, 0);
    }
    assert_eq!(queue.cqe(1)[63], UNWRITTEN);
    queue.rig.card.complete(&queue.sent(40, Err(Syndrome::RemoteAccess)));
    let last = queue.cqe(0);
    assert_eq!((&last[60..62], last[63]), (&[0, 40][..], 0xd2));
}

#[test]
fn a_ring_that_is_not_there_fails_the_cq() {
    let gone = BASE + SIZE as u64;
    let mut queue = Queue::with(|cq| cq.set(Field::new(0x110, 31, 64), gone), |qp| qp);
    queue.rig.card.complete(&queue.sent(0, Ok(())));
    assert!(queue.rig.card.objects.cqs.get(queue.cq).unwrap().failed);
    assert!(queue.rig.card.complaints.unmapped_queues > 0);
}

#[test]
fn a_resize_marks_the_old_ring_and_goes_on_in_the_new() {
    let mut queue = Queue::new();
    for i in 0..3 {
        queue.rig.card.complete(&queue.sent(i, Ok(())));
    }
    let page = queue.rig.page();
    let log_size = cqc::LOG_CQ_SIZE.within(modify_cq_in::CQ_CONTEXT);
    let mut resize = Command::new(opcode::MODIFY_CQ, 0x110)
        .set(Field::new(4, 15, 16), 1u64)
        .set(modify_cq_in::CQN, queue.cq)
        .set(log_size, 5u64);
    resize.0.extend_from_slice(&page.to_be_bytes());
    queue.rig.run(&resize).unwrap();
    assert_eq!(queue.cqe(3)[63], 0x50);
    queue.rig.card.complete(&queue.sent(9, Ok(())));
    let cqe: [u8; 64] = queue.rig.read(page + 4 * 64);
    assert_eq!(cqe[60..64], [0, 9, 0, 0]);
    assert_eq!(queue.events(), 0);
}
