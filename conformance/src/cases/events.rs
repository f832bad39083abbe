//! Events: of completion channels, and asynchronous ones.

use std::time::{Duration, Instant};

use mlx5::cqe::{Completion, ReceiveKind, SendOperation, Status};
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, PollError, ReceiveConfig, ReceiveQueue};
use mlx5::verbs::{AsyncEventKind, CompletionChannel, CompletionQueue, QueuePair};
use mlx5::wqe::{Inline, RdmaWrite, Remote, Sge};

use super::errors::works_again;
use crate::bench::Bench;
use crate::case::Case;
use crate::message::{Door, Kind, Receiving, Rights, Shape};
use crate::side::Side;
use crate::verdict::{Verdict, failed, holds, same};

pub(crate) const CASES: &[Case] = &[
    Case::new(
        "events.completion",
        "An armed CQ raises one event for the next completion.",
        completion,
    ),
    Case::new(
        "events.completion-before",
        "A completion from before the arm raises the event at once.",
        before,
    ),
    Case::new(
        "events.solicited",
        "A CQ that is armed for solicited messages sleeps through others.",
        solicited,
    ),
    Case::new(
        "events.access-error",
        "A wrong rkey raises IBV_EVENT_QP_ACCESS_ERR at the peer.",
        access_error,
    ),
    Case::new(
        "events.request-error",
        "A request without the right raises IBV_EVENT_QP_REQ_ERR at the peer.",
        request_error,
    ),
    Case::new(
        "events.srq-limit",
        "Falling below its limit, a shared receive queue raises IBV_EVENT_SRQ_LIMIT_REACHED.",
        srq_limit,
    ),
    Case::new(
        "events.last-wqe",
        "A queue pair on a shared receive queue that fails raises IBV_EVENT_QP_LAST_WQE_REACHED.",
        last_wqe,
    ),
    Case::new(
        "events.cq-overrun",
        "A CQ that overruns raises IBV_EVENT_CQ_ERR, and polls report it.",
        cq_overrun,
    ),
];

/// Time in which an event that must not come would have come.
const QUIET: Duration = Duration::from_millis(20);

fn connect(bench: &mut Bench) -> Verdict<(Side<Rc>, Door, CompletionChannel)> {
    let shape = Shape::default();
    let channel = CompletionChannel::new(&bench.base.context)?;
    let cq = CompletionQueue::builder(&bench.base.context, shape.cqes).channel(&channel).build()?;
    let mut side = Side::on(&bench.base, &shape, cq)?;
    let door = bench.peer.open(Kind::Rc, &shape)?;
    bench.peer.connect(Door::new(side.mine()))?;
    side.connect(&bench.base, &door.data()?)?;
    Ok((side, door, channel))
}

fn event(bench: &Bench, side: &mut Side<Rc>, channel: &CompletionChannel) -> Verdict {
    match channel.get_event(bench.base.terms.patience)? {
        Some(queue) if queue == side.cq => {
            side.completions.event_taken();
            Ok(())
        }
        Some(_) => Err(failed("an event of another CQ")),
        None => Err(failed("no event")),
    }
}

fn completion(bench: &mut Bench) -> Verdict {
    let (mut side, door, channel) = connect(bench)?;
    // Nobody asked for the first.
    side.post(0, RdmaWrite::new(Inline(b"x"), door.remote(0)).signaled())?;
    side.sent(0, SendOperation::Write)?;
    holds(channel.get_event(QUIET)?.is_none(), "an event that nobody asked for")?;
    // Sequence numbers of arms have two bits: more often than that.
    for id in 1..10 {
        side.completions.arm();
        side.is_quiet()?;
        side.post(id, RdmaWrite::new(Inline(b"y"), door.remote(0)).signaled())?;
        side.post(100 + id, RdmaWrite::new(Inline(b"z"), door.remote(0)).signaled())?;
        event(bench, &mut side, &channel)?;
        side.sent(id, SendOperation::Write)?;
        side.sent(100 + id, SendOperation::Write)?;
        holds(channel.try_event()?.is_none(), "two events of one arm")?;
    }
    bench.peer.has(0, b"z")
}

fn before(bench: &mut Bench) -> Verdict {
    let (mut side, door, channel) = connect(bench)?;
    side.post(1, RdmaWrite::new(Inline(b"x"), door.remote(0)).signaled())?;
    let deadline = Instant::now() + bench.base.terms.patience;
    while side.completions.peek()?.is_none() {
        holds(Instant::now() < deadline, "no completion")?;
        std::thread::yield_now();
    }
    side.completions.arm();
    event(bench, &mut side, &channel)?;
    side.sent(1, SendOperation::Write)?;
    bench.peer.has(0, b"x")
}

fn solicited(bench: &mut Bench) -> Verdict {
    let (mut side, _, channel) = connect(bench)?;
    for id in 0..2 {
        let into = side.sge(64 * id as usize, 64);
        side.receive.post(id, into)?;
    }
    side.completions.arm_solicited();
    bench.peer.write(0, b"not solicited")?;
    bench.peer.send(1, 0, 13)?;
    side.received(0, ReceiveKind::Send, 13)?;
    bench.peer.sent(1)?;
    holds(channel.get_event(QUIET)?.is_none(), "an event of a message that is not solicited")?;
    bench.peer.send_solicited(2, 0, 13)?;
    event(bench, &mut side, &channel)?;
    side.received(1, ReceiveKind::Send, 13)?;
    bench.peer.sent(2)
}

fn access_error(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    let wrong = Remote { rkey: door.rkey ^ 0x5500, ..door.remote(0) };
    side.post(1, RdmaWrite::new(side.sge(0, 64), wrong).signaled())?;
    side.send_fails(1, Status::RemoteAccess)?;
    same("event", bench.peer.event()?, format!("{:?}", AsyncEventKind::QpAccessError))?;
    works_again(bench, &mut side).map(drop)
}

fn request_error(bench: &mut Bench) -> Verdict {
    let queue_pair = Rights { write: false, ..Rights::ALL };
    let theirs = Shape { queue_pair, ..Shape::default() };
    let (mut side, door) = bench.rc_with(&Shape::default(), &theirs)?;
    side.post(1, RdmaWrite::new(side.sge(0, 64), door.remote(0)).signaled())?;
    side.send_fails(1, Status::RemoteInvalidRequest)?;
    same("event", bench.peer.event()?, format!("{:?}", AsyncEventKind::QpRequestError))?;
    works_again(bench, &mut side).map(drop)
}

fn shared(bench: &mut Bench) -> Verdict<Side<Rc>> {
    let theirs = Shape { receiving: Receiving::Shared, recv_wr: 15, ..Shape::default() };
    Ok(bench.rc_with(&Shape::default(), &theirs)?.0)
}

fn srq_limit(bench: &mut Bench) -> Verdict {
    let mut side = shared(bench)?;
    for id in 0..8 {
        bench.peer.receive(id, 64 * id as u32, 64)?;
    }
    bench.peer.limit(6)?;
    for id in 0..3 {
        side.post(id, mlx5::wqe::SendMessage::new(Inline(b"one less")).signaled())?;
        side.sent(id, SendOperation::Send)?;
    }
    same("event", bench.peer.event()?, format!("{:?}", AsyncEventKind::SrqLimitReached))
}

fn last_wqe(bench: &mut Bench) -> Verdict {
    let side = shared(bench)?;
    bench.peer.receive(1, 0, 64)?;
    bench.peer.fail()?;
    same("event", bench.peer.event()?, format!("{:?}", AsyncEventKind::QpLastWqeReached))?;
    drop(side);
    Ok(())
}

fn cq_overrun(bench: &mut Bench) -> Verdict {
    let shape = Shape { cqes: 3, recv_wr: 1, ..Shape::default() };
    let mut side = Side::<Rc>::new(&bench.base, &shape)?;
    let door = bench.peer.open(Kind::Rc, &Shape::default())?;
    bench.peer.connect(Door::new(side.mine()))?;
    side.connect(&bench.base, &door.data()?)?;
    side.post(1, RdmaWrite::new(Inline(b"before"), door.remote(0)).signaled())?;
    side.sent(1, SendOperation::Write)?;
    // The receives of another queue pair fill the CQ. Another reader has reserved slots for them,
    // so this side's reader takes them for free.
    let capacity = side.completions.capacity();
    let builder = QueuePair::builder(&bench.base.pd, &side.cq).max_recv_wr(capacity);
    let stranger = builder.build()?.init(&bench.base.init(&shape))?;
    // SAFETY: the side does not poll while this reader exists.
    let mut reader = unsafe { CqReader::from_raw(side.cq.as_raw()) }.map_err(mlx5::Error::from)?;
    // SAFETY: the queue pair lives to the end, and nothing else posts to it.
    let receives = unsafe {
        let config = ReceiveConfig { receives: capacity };
        ReceiveQueue::from_raw(stranger.as_raw(), &mut reader, config)
    };
    let mut receives = receives.map_err(mlx5::Error::from)?;
    drop(reader);
    for id in 0..capacity.into() {
        // SAFETY: the receive names no memory.
        unsafe { receives.post(id, Sge::new(0, 0, 0)) }?;
    }
    let stranger = stranger.to_error()?;
    let nowhere = Remote { rkey: !door.rkey, ..door.remote(0) };
    side.post(0, RdmaWrite::new(Inline(b"x"), nowhere).signaled())?;
    let deadline = Instant::now() + bench.base.terms.patience;
    loop {
        if let Some(event) = bench.base.context.async_event(Duration::from_millis(50))? {
            if event.kind() == AsyncEventKind::CqError && event.is_of(&side.cq) {
                break;
            }
        }
        holds(Instant::now() < deadline, "no IBV_EVENT_CQ_ERR")?;
    }
    side.completions.overrun();
    // What the CQ took is still there.
    for _ in 0..capacity {
        let completion = side.next()?;
        let unknown = matches!(completion, Completion::UnexpectedCqe(_));
        holds(unknown, format!("instead of another queue's: {completion:?}"))?;
    }
    drop((receives, stranger));
    match side.poll() {
        Err(PollError::Overrun) => Ok(()),
        Ok(Some(Completion::Failed(failure))) => Err(failed(format!("beyond the CQ: {failure}"))),
        other => Err(failed(format!("the poll behind the overrun: {other:?}"))),
    }
}
