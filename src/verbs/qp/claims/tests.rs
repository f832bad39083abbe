//! Unit tests.

use super::*;

#[test]
fn no_queue_can_be_claimed_during_a_reset() {
    let claims = Claims::default();
    let reserved = claims.reserve().unwrap();
    for queue in [WorkQueue::Send, WorkQueue::Receive] {
        assert!(matches!(claims.claim(queue), Err(Error::QueueInUse { .. })));
    }
    assert!(claims.reserve().is_err());
    reserved.was_reset();
    claims.claim(WorkQueue::Send).unwrap();
    assert!(matches!(claims.reserve(), Err(Error::QueueInUse { queue: "send queue" })));
}

#[test]
fn outstanding_work_is_forgotten_by_a_reset_that_succeeds_alone() {
    let claims = Claims::default();
    claims.claim(WorkQueue::Receive).unwrap();
    claims.release(WorkQueue::Receive, false);
    drop(claims.reserve().unwrap());
    assert!(matches!(claims.claim(WorkQueue::Receive), Err(Error::Queue(_))));
    claims.reserve().unwrap().was_reset();
    claims.claim(WorkQueue::Receive).unwrap();
}
