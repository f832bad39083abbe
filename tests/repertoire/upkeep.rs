//! Maintenance of queues: recovery after an error, taking back, draining.

use std::time::Duration;

use mlx5::cqe::{Completion, Status};
use mlx5::ib::{Rc, Recoverable, Uc};
use mlx5::ring::{DrainError, PostError, QueueError, SendQueue};
use mlx5::verbs::attr::QpState;
use mlx5::wqe::{Inline, Nop, PostOn, RdmaWrite, SendMessage, Sge};

use rig::{PATIENCE, Rig};
use rig::{QKEY, Side};

fn failures<T: mlx5::ib::Transport>(side: &mut Side<T>, count: usize) -> Vec<(u64, Status)> {
    let mut next = || match side.wait() {
        Completion::Failed(failure) => (failure.id, failure.status),
        other => panic!("{other:?}"),
    };
    (0..count).map(|_| next()).collect()
}

/// Fails the send queue by `bad`, with `good` requests around it, and goes on; several times, so
/// that the ring wraps.
fn stop_and_go<T: Recoverable, G: PostOn<T> + Clone, B: PostOn<T> + Clone>(
    a: &mut Side<T>,
    b: &mut Side<T>,
    (good, bad): (G, B),
    receive: impl Fn(&mut Side<T>),
    arrived: impl Fn(&mut Side<T>),
) where
    Nop: PostOn<T>,
{
    for round in 0..60 {
        receive(b);
        // SAFETY: memory lives to the end, and is accessed only after the requests complete.
        unsafe {
            a.send.post(round, good.clone()).unwrap();
            a.send.post(1000, bad.clone()).unwrap();
            a.send.post(1001, good.clone()).unwrap();
        }
        let mut seen = failures(a, 1);
        // The card may have stopped before the third was posted, or not; it comes back anyway.
        assert_eq!(seen, [(1000, Status::LocalProtection)], "round {round}");
        assert_eq!(a.qp.query().unwrap().state, QpState::SqError);
        // SAFETY: memory lives to the end, and is accessed only after the requests complete.
        unsafe { assert_eq!(a.send.post(5, Nop::new()), Err(PostError::WrongState)) };
        if !a.send.is_idle() {
            let early = a.send.recover().unwrap_err();
            assert!(matches!(early, mlx5::Error::Queue(QueueError::NotIdle)), "{early}");
        }
        seen = failures(a, 1);
        assert_eq!(seen, [(1001, Status::Flushed)]);
        arrived(b);
        a.send.recover().unwrap();
        assert_eq!(a.qp.query().unwrap().state, QpState::Rts);
        let again = a.send.recover().unwrap_err();
        assert!(
            matches!(again, mlx5::Error::Queue(QueueError::WrongState { needed: "SQE", .. })),
            "{again}"
        );
    }
    // SAFETY: memory lives to the end, and is accessed only after the requests complete.
    unsafe { a.send.post(7, Nop::new().signaled()).unwrap() };
    assert_eq!(a.sent().0, 7);
}

#[test]
fn a_datagram_queue_goes_on_after_an_error() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let (mut a, mut b) = (rig.datagrams(), rig.datagrams());
    let to = rig.address(&b.qp, QKEY);
    let good = SendMessage::new(a.sge(0, 10)).to(to);
    let bad = SendMessage::new(Sge::new(8, 8, 0x7777_7700)).to(to);
    // The receive queue of the failed side works meanwhile.
    let back = rig.address(&a.qp, QKEY);
    stop_and_go(
        &mut a,
        &mut b,
        (good, bad),
        // SAFETY: memory lives to the end, and is accessed only after the request completes.
        |b| unsafe { b.receive.post(3, b.sge(0, 100)).unwrap() },
        |b| assert_eq!(b.received().byte_len, 50),
    );
    // SAFETY: memory lives to the end, and is accessed only after the requests complete.
    unsafe {
        a.send.post(1, SendMessage::new(Sge::new(8, 8, 0x7777_7700)).to(to)).unwrap();
        assert_eq!(failures(&mut a, 1), [(1, Status::LocalProtection)]);
        a.receive.post(2, a.sge(0, 100)).unwrap();
        b.send.post(3, SendMessage::new(Inline(b"still there?")).signaled().to(back)).unwrap();
    }
    assert_eq!((b.sent().0, a.received().id), (3, 2));
    a.send.recover().unwrap();
}

#[test]
fn an_unreliable_connection_goes_on_after_an_error() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let [mut a, mut b] = rig.pair::<Uc>().sides();
    let good = RdmaWrite::new(a.sge(0, 10), b.remote(0));
    let bad = RdmaWrite::new(Sge::new(8, 8, 0x7777_7700), b.remote(0));
    stop_and_go(&mut a, &mut b, (good, bad), |_| {}, |_| {});
}

#[test]
fn what_nothing_reports_is_taken_back() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let [mut a, b] = rig.pair::<Rc>().sides();
    assert_eq!(a.send.reclaim(9), Ok(false));
    let all = a.send.free_blocks();
    // SAFETY: memory lives to the end.
    unsafe {
        a.send.post(1, RdmaWrite::new(a.sge(0, 8), b.remote(0)).signaled()).unwrap();
        a.send.post(2, RdmaWrite::new(a.sge(0, 8), b.remote(0))).unwrap();
        a.send.post(3, RdmaWrite::new(a.sge(0, 8), b.remote(0))).unwrap();
    }
    // The signaled one reports itself, but not those behind it.
    assert_eq!(a.send.reclaim(9), Ok(false));
    assert_eq!(a.sent().0, 1);
    assert!(a.send.is_silent() && !a.send.is_idle());
    a.is_quiet();
    assert_eq!(a.send.reclaim(9), Ok(true));
    assert_eq!(a.send.reclaim(9), Ok(false));
    assert_eq!(a.sent().0, 9);
    assert!(a.send.is_idle());
    assert_eq!(a.send.free_blocks(), all);
    // A queue that is filled with them keeps a block and a CQ slot for the NOP.
    for _ in 0..3 {
        let mut posted = 0;
        let refused = loop {
            // SAFETY: a NOP names no memory.
            match unsafe { a.send.post(4, Nop::new()) } {
                Ok(()) => posted += 1,
                Err(refused) => break refused,
            }
        };
        let most = a.send.request_limit() - 1;
        let silent = PostError::NothingSignaled { outstanding: most };
        assert_eq!((posted, refused), (most, silent));
        assert_eq!(a.send.reclaim(9), Ok(true));
        assert_eq!(a.sent().0, 9);
        assert_eq!(a.send.free_blocks(), all);
    }
}

#[test]
fn queues_are_drained() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let [mut a, mut b] = rig.pair::<Rc>().sides();
    // SAFETY: memory lives to the end, and is accessed only after the requests complete.
    unsafe {
        for id in 0..10 {
            b.receive.post(id, b.sge(0, 64)).unwrap();
        }
        for id in 0..5 {
            a.send.post(id, SendMessage::new(a.sge(0, 64)).fenced()).unwrap();
        }
        a.send.post(5, SendMessage::new(a.sge(0, 64)).signaled()).unwrap();
        a.send.post(6, SendMessage::new(a.sge(0, 64))).unwrap();
    }
    let mut seen = Vec::new();
    let Side { completions, send, receive, .. } = &mut a;
    completions.drain_sends(send, receive, 77, PATIENCE, |done| seen.push(done)).unwrap();
    assert!(send.is_idle());
    assert!(matches!(seen[..], [Completion::Send(done)] if done.id == 5), "{seen:?}");
    // A second time there is nothing to do.
    completions.drain_sends(send, &mut (), 77, Duration::ZERO, |done| panic!("{done:?}")).unwrap();
    // Receives stay until the queue pair fails.
    let Side { completions, receive, send, qp, .. } = b;
    let (mut completions, mut receive, mut send): (_, _, SendQueue) = (completions, receive, send);
    let mut seen = Vec::new();
    let early =
        completions.drain_receives(&mut receive, &mut send, Duration::from_millis(10), |done| {
            seen.push(done)
        });
    assert_eq!(early, Err(DrainError::TimedOut { outstanding: 3 }));
    assert_eq!(seen.len(), 7);
    // SAFETY: memory lives to the end, and is accessed only after the requests complete.
    unsafe { send.post(70, Nop::new()).unwrap() };
    let _qp = qp.to_error().unwrap();
    let mut flushed = Vec::new();
    completions
        .drain_receives(&mut receive, &mut send, PATIENCE, |done| match done {
            Completion::Failed(failure) => flushed.push((failure.id, failure.status)),
            other => panic!("{other:?}"),
        })
        .unwrap();
    for id in 7..10 {
        assert!(flushed.contains(&(id, Status::Flushed)), "{flushed:?}");
    }
    // Flushed or done before it, the send comes back as well.
    completions.drain_sends(&mut send, &mut receive, 71, PATIENCE, |_| {}).unwrap();
    assert!(send.is_idle());
}
