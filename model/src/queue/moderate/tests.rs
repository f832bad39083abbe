//! Unit tests.

use mlx5_sys::ifc::create_cq_in;

use super::super::test::Queue;
use super::*;

fn moderated(period: u64, count: u64) -> Queue {
    let field = |f: mlx5_sys::ifc::Field| f.within(create_cq_in::CQ_CONTEXT);
    Queue::with(
        |cq| cq.set(field(cqc::CQ_PERIOD), period).set(field(cqc::CQ_MAX_COUNT), count),
        |qp| qp,
    )
}

#[test]
fn the_event_comes_with_the_count() {
    let mut queue = moderated(50, 3);
    queue.arm(0, false, 0);
    for told in [0, 0, 1, 1] {
        queue.rig.card.complete(&queue.sent(0, Ok(())));
        assert_eq!(queue.events(), told);
    }
    assert_eq!(queue.rig.card.deadline(), None);
}

#[test]
fn or_with_the_period() {
    let mut queue = moderated(50, 3);
    queue.arm(0, false, 0);
    queue.rig.card.clock.advance(7);
    queue.rig.card.complete(&queue.sent(0, Ok(())));
    assert_eq!(queue.rig.card.deadline(), Some(50_007));
    queue.rig.card.clock.advance(49_999);
    queue.rig.card.expire();
    assert_eq!(queue.events(), 0);
    queue.rig.card.clock.advance(1);
    queue.rig.card.expire();
    assert_eq!(queue.events(), 1);
    assert_eq!(queue.rig.card.deadline(), None);
}

#[test]
fn without_one_of_them_it_comes_at_once() {
    for (period, count) in [(0, 3), (50, 0)] {
        let mut queue = moderated(period, count);
        queue.arm(0, false, 0);
        queue.rig.card.complete(&queue.sent(0, Ok(())));
        assert_eq!(queue.events(), 1);
    }
}
