//! Recovery after errors.

use std::time::Duration;

use mlx5::cqe::{SendOperation, Status};
use mlx5::verbs::attr::QpState;
use mlx5::wqe::{Inline, RdmaWrite, Remote, SendMessage};

use super::errors::works_again;
use crate::bench::Bench;
use crate::case::Case;
use crate::message::{Arrived, Shape};
use crate::verdict::{Verdict, holds, same};

pub(crate) const CASES: &[Case] = &[
    Case::new(
        "recovery.many",
        "A queue pair fails and works again, many times, by its number.",
        many,
    ),
    Case::new(
        "recovery.stale",
        "Completions of before a reset are not taken for later ones.",
        stale,
    ),
    Case::new(
        "recovery.late-receive",
        "A receive that is posted while the sender waits is found.",
        late_receive,
    ),
    Case::new("recovery.drain", "Draining a send queue ends with its last request.", drain),
    Case::new("recovery.reclaim", "Unsignaled requests are taken back behind a NOP.", reclaim),
];

fn many(bench: &mut Bench) -> Verdict {
    let (mut side, mut door) = bench.rc(&Shape::default())?;
    let number = side.number();
    for _ in 0..8 {
        let wrong = Remote { rkey: door.rkey ^ 0x5500, ..door.remote(0) };
        side.post(1, RdmaWrite::new(side.sge(0, 64), wrong).signaled())?;
        side.send_fails(1, Status::RemoteAccess)?;
        door = works_again(bench, &mut side)?;
        same("the number of the queue pair", side.number(), number)?;
        same("the state of the queue pair", side.state()?, QpState::Rts)?;
    }
    Ok(())
}

fn stale(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    // Completions that the case leaves in the CQ: successes, a failure, and flushes.
    for id in 0..5 {
        side.post(id, RdmaWrite::new(Inline(b"old"), door.remote(0)).signaled())?;
    }
    let wrong = Remote { rkey: door.rkey ^ 0x5500, ..door.remote(0) };
    side.post(5, RdmaWrite::new(Inline(b"old"), wrong).signaled())?;
    let deadline = std::time::Instant::now() + bench.base.terms.patience;
    while side.state()? != QpState::Error {
        holds(std::time::Instant::now() < deadline, "a wrong rkey does no harm")?;
        std::thread::yield_now();
    }
    let door = bench.renew(&mut side)?;
    side.post(100, RdmaWrite::new(Inline(b"new"), door.remote(0)).signaled())?;
    side.sent(100, SendOperation::Write)?;
    side.is_quiet()?;
    bench.peer.has(0, b"new")
}

fn late_receive(bench: &mut Bench) -> Verdict {
    let shape = Shape { rnr_micros: 5000, ..Shape::default() };
    let (mut side, _) = bench.rc(&shape)?;
    side.post(1, SendMessage::new(Inline(b"waiting")).signaled())?;
    side.is_quiet()?;
    bench.peer.receive(2, 0, 64)?;
    side.sent(1, SendOperation::Send)?;
    bench.peer.received(2, Arrived::Send, 7)?;
    bench.peer.has(0, b"waiting")
}

fn drain(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    for id in 0..20u64 {
        let payload = id.to_le_bytes();
        side.post(id, RdmaWrite::new(Inline(&payload), door.remote(8 * id as usize)))?;
    }
    let mut send = side.take_send()?;
    let mut seen = Vec::new();
    let patience: Duration = bench.base.terms.patience;
    side.completions.drain_sends(&mut send, &mut (), 99, patience, |done| seen.push(done))?;
    holds(send.is_idle(), "the drained queue has requests outstanding")?;
    for id in 0..20u64 {
        bench.peer.has(8 * id as u32, &id.to_le_bytes())?;
    }
    Ok(())
}

fn reclaim(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    for _ in 0..3 {
        for id in 0..10 {
            side.post(id, RdmaWrite::new(Inline(b"unsignaled"), door.remote(0)))?;
        }
        holds(side.send()?.reclaim(50)?, "there was nothing to take back")?;
        side.sent(50, SendOperation::Nop)?;
        holds(side.send()?.is_idle(), "requests are outstanding behind the NOP")?;
    }
    bench.peer.has(0, b"unsignaled")
}
