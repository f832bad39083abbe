//! Errors of work completions that a program can cause: the status, the side, and which request.

use mlx5::cqe::{Completion, QueueKind, Status};
use mlx5::expert::RawWqe;
use mlx5::ib::{Access, Rc};
use mlx5::ring::PostError;
use mlx5::verbs::attr::QpState;
use mlx5::verbs::{MemoryWindow, ProtectionDomain, Type2};
use mlx5::wqe::{
    CompareSwap, FetchAdd, Inline, LocalInvalidate, Nop, RdmaRead, RdmaWrite, RdmaWriteImm, Remote,
    SendInvalidate, SendMessage, Sge,
};

use super::rc::wqe;
use crate::bench::Bench;
use crate::case::{Case, Need};
use crate::message::{Arrived, Door, Rights, Shape};
use crate::side::Side;
use crate::verdict::{Verdict, failed, holds, same};

pub(crate) const CASES: &[Case] = &[
    Case::new(
        "errors.local-protection.lkey",
        "A wrong lkey is IBV_WC_LOC_PROT_ERR at the requester, and the peer is not concerned.",
        wrong_lkey,
    ),
    Case::new(
        "errors.local-protection.bounds",
        "Local memory beyond its region is IBV_WC_LOC_PROT_ERR.",
        local_bounds,
    ),
    Case::new(
        "errors.local-protection.domain",
        "Memory of another protection domain is IBV_WC_LOC_PROT_ERR.",
        local_domain,
    ),
    Case::new(
        "errors.local-protection.write",
        "A READ into memory without local write access is IBV_WC_LOC_PROT_ERR.",
        read_only,
    ),
    Case::new(
        "errors.local-protection.deregistered",
        "Memory that was deregistered is IBV_WC_LOC_PROT_ERR.",
        deregistered,
    ),
    Case::new(
        "errors.local-protection.receive",
        "A receive with a wrong lkey is IBV_WC_LOC_PROT_ERR there, IBV_WC_REM_OP_ERR at the sender.",
        wrong_receive,
    ),
    Case::new(
        "errors.local-length.request",
        "A message longer than the port carries is IBV_WC_LOC_LEN_ERR.",
        too_long,
    ),
    Case::new(
        "errors.local-length.receive",
        "A receive that is too short is IBV_WC_LOC_LEN_ERR there, IBV_WC_REM_INV_REQ_ERR at the sender.",
        short_receive,
    ),
    Case::new(
        "errors.local-operation",
        "A WQE with an unknown opcode is IBV_WC_LOC_QP_OP_ERR.",
        unknown_opcode,
    ),
    Case::new(
        "errors.window-bind",
        "Invalidating a key of another queue pair's window is IBV_WC_MW_BIND_ERR.",
        window_bind,
    ),
    Case::new(
        "errors.remote-access.rkey",
        "A wrong rkey is IBV_WC_REM_ACCESS_ERR for WRITE, READ and WRITE with immediate.",
        wrong_rkey,
    ),
    Case::new(
        "errors.remote-access.rkey-atomic",
        "A wrong rkey is IBV_WC_REM_ACCESS_ERR for atomics.",
        wrong_rkey_atomic,
    )
    .needs(&[Need::Atomics]),
    Case::new(
        "errors.remote-access.bounds",
        "The peer's memory beyond its region is IBV_WC_REM_ACCESS_ERR; its last byte is reached.",
        remote_bounds,
    ),
    Case::new(
        "errors.remote-access.domain",
        "The peer's memory of another protection domain is IBV_WC_REM_ACCESS_ERR.",
        remote_domain,
    ),
    Case::new(
        "errors.remote-access.rights",
        "Rights that the peer's region lacks are IBV_WC_REM_ACCESS_ERR.",
        region_rights,
    ),
    Case::new(
        "errors.remote-request.rights",
        "Rights that the peer's queue pair lacks are IBV_WC_REM_INV_REQ_ERR.",
        queue_pair_rights,
    ),
    Case::new(
        "errors.remote-request.odd-atomic",
        "An atomic at an odd address is IBV_WC_REM_INV_REQ_ERR or IBV_WC_REM_ACCESS_ERR.",
        odd_atomic,
    )
    .needs(&[Need::Atomics]),
    Case::new(
        "errors.remote-invalidate",
        "A SEND that invalidates a key of no window is refused by the peer.",
        remote_invalidate,
    ),
    Case::new("errors.retries", "A peer in ERROR does not answer: IBV_WC_RETRY_EXC_ERR.", retries),
    Case::new(
        "errors.rnr-retries",
        "A peer without receives is IBV_WC_RNR_RETRY_EXC_ERR, and the peer does not fail.",
        rnr_retries,
    ),
    Case::new(
        "errors.flush",
        "Requests behind a failure are flushed in order: IBV_WC_WR_FLUSH_ERR, signaled or not.",
        flush,
    ),
    Case::new(
        "errors.flush-by-program",
        "Moving to ERROR flushes outstanding sends and receives in order.",
        flush_by_program,
    ),
];

/// The requester's failure, its state, and that the connection works again.
fn fails(bench: &mut Bench, side: &mut Side<Rc>, id: u64, status: Status) -> Verdict<Door> {
    side.send_fails(id, status)?;
    same("the state of the queue pair", side.state()?, QpState::Error)?;
    works_again(bench, side)
}

/// Recovers both sides, and sends a message each way.
pub(crate) fn works_again(bench: &mut Bench, side: &mut Side<Rc>) -> Verdict<Door> {
    let door = bench.renew(side)?;
    bench.peer.receive(7, 4096, 64)?;
    side.post(8, SendMessage::new(Inline(b"works again")).signaled())?;
    side.sent(8, mlx5::cqe::SendOperation::Send)?;
    bench.peer.received(7, Arrived::Send, 11)?;
    bench.peer.has(4096, b"works again")?;
    let into = side.sge(4096, 64);
    side.receive.post(9, into)?;
    bench.peer.send(10, 4096, 11)?;
    side.received(9, mlx5::cqe::ReceiveKind::Send, 11)?;
    bench.peer.sent(10)?;
    Ok(door)
}

fn wrong_lkey(bench: &mut Bench) -> Verdict {
    let (mut side, _) = bench.rc(&Shape::default())?;
    let sge = Sge { lkey: side.memory.lkey() ^ 0x5500, ..side.sge(0, 64) };
    bench.peer.receive(1, 0, 64)?;
    side.post(2, SendMessage::new(sge).signaled())?;
    side.send_fails(2, Status::LocalProtection)?;
    bench.peer.is_in_state(QpState::Rts)?;
    bench.peer.is_quiet()?;
    works_again(bench, &mut side).map(drop)
}

fn local_bounds(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    let end = side.memory.len();
    let sge = Sge { length: 65, ..side.sge(end - 64, 64) };
    side.post(1, RdmaWrite::new(sge, door.remote(0)).signaled())?;
    fails(bench, &mut side, 1, Status::LocalProtection).map(drop)
}

fn local_domain(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    let other = ProtectionDomain::new(&bench.base.context)?;
    let memory = other.allocate(4096, Access::LOCAL_WRITE)?;
    let sge = memory.sge(0, 64)?;
    side.post(1, RdmaWrite::new(sge, door.remote(0)).signaled())?;
    fails(bench, &mut side, 1, Status::LocalProtection).map(drop)
}

fn read_only(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    let only = bench.base.pd.allocate(4096, Access::REMOTE_READ)?;
    let sge = only.source(0, 64)?;
    side.post(1, RdmaRead::new(sge, door.remote(0)).signaled())?;
    fails(bench, &mut side, 1, Status::LocalProtection).map(drop)
}

fn deregistered(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    let memory = bench.base.pd.allocate(4096, Access::LOCAL_WRITE)?;
    let sge = memory.sge(0, 64)?;
    side.post(1, RdmaWrite::new(sge, door.remote(0)).signaled())?;
    side.sent(1, mlx5::cqe::SendOperation::Write)?;
    drop(memory);
    side.post(2, RdmaWrite::new(sge, door.remote(0)).signaled())?;
    fails(bench, &mut side, 2, Status::LocalProtection).map(drop)
}

fn wrong_receive(bench: &mut Bench) -> Verdict {
    let (mut side, _) = bench.rc(&Shape::default())?;
    bench.peer.receive_wrongly(1, 0, 256)?;
    side.post(2, SendMessage::new(side.sge(0, 256)).signaled())?;
    side.send_fails(2, Status::RemoteOperation)?;
    bench.peer.receive_fails(1, Status::LocalProtection)?;
    bench.peer.is_in_state(QpState::Error)?;
    works_again(bench, &mut side).map(drop)
}

fn too_long(bench: &mut Bench) -> Verdict {
    let (mut side, _) = bench.rc(&Shape::default())?;
    bench.peer.receive(1, 0, 64)?;
    // Three times a GiB is more than the largest message of any port, 2 GiB.
    let gigabyte = Sge { length: 1 << 30, ..side.sge(0, 0) };
    side.post(2, SendMessage::new([gigabyte; 3]).signaled())?;
    fails(bench, &mut side, 2, Status::LocalLength).map(drop)
}

fn short_receive(bench: &mut Bench) -> Verdict {
    let (mut side, _) = bench.rc(&Shape::default())?;
    for length in [65, 5000] {
        bench.peer.receive(1, 0, length - 1)?;
        bench.peer.receive(2, 8000, 64)?;
        side.post(3, SendMessage::new(side.sge(0, length as usize)).signaled())?;
        side.send_fails(3, Status::RemoteInvalidRequest)?;
        bench.peer.receive_fails(1, Status::LocalLength)?;
        bench.peer.receive_fails(2, Status::Flushed)?;
        works_again(bench, &mut side)?;
    }
    Ok(())
}

fn unknown_opcode(bench: &mut Bench) -> Verdict {
    let (mut side, _) = bench.rc(&Shape::default())?;
    let bytes = wqe(0x3e, 0, &[]);
    // SAFETY: the bytes name no memory.
    side.post(1, unsafe { RawWqe::new(&bytes) }?)?;
    fails(bench, &mut side, 1, Status::LocalQpOperation).map(drop)
}

fn window_bind(bench: &mut Bench) -> Verdict {
    let shape = Shape { region: Rights::BIND, ..Shape::default() };
    let (mut side, _) = bench.rc(&shape)?;
    let mut other = Side::<Rc>::new(&bench.base, &shape)?;
    let mut window = MemoryWindow::<Type2>::new(&bench.base.pd)?;
    let number = side.number();
    let request = window.bind(number, 7, &side.memory, 0, 128, Access::REMOTE_READ)?;
    // SAFETY: no code holds a reference to the side's memory.
    let rkey = unsafe { side.send()?.bind(1, &mut window, request.signaled()) }?;
    side.sent(1, mlx5::cqe::SendOperation::Umr)?;
    // Connected to itself: it only invalidates.
    let own = other.mine().clone();
    other.connect(&bench.base, &own)?;
    other.post(2, LocalInvalidate::new(rkey).signaled())?;
    other.send_fails(2, Status::MemoryWindowBind)?;
    // The queue pair that bound it invalidates it, once.
    side.send()?.unbind(3, &mut window)?;
    side.sent(3, mlx5::cqe::SendOperation::Umr)?;
    side.post(4, window.invalidate().signaled())?;
    fails(bench, &mut side, 4, Status::MemoryWindowBind).map(drop)
}

fn wrong_rkey(bench: &mut Bench) -> Verdict {
    let (mut side, mut door) = bench.rc(&Shape::default())?;
    for kind in 0..3 {
        let remote = Remote { rkey: door.rkey ^ 0x5500, ..door.remote(0) };
        let sge = side.sge(0, 64);
        match kind {
            0 => side.post(1, RdmaWrite::new(sge, remote).signaled())?,
            1 => side.post(1, RdmaRead::new(sge, remote).signaled())?,
            _ => {
                bench.peer.receive(9, 0, 64)?;
                side.post(1, RdmaWriteImm::new(sge, remote, 7).signaled())?;
            }
        }
        side.send_fails(1, Status::RemoteAccess)?;
        bench.peer.is_in_state(QpState::Error)?;
        if kind == 2 {
            bench.peer.receive_fails(9, Status::Flushed)?;
        }
        door = works_again(bench, &mut side)?;
    }
    Ok(())
}

fn wrong_rkey_atomic(bench: &mut Bench) -> Verdict {
    let (mut side, mut door) = bench.rc(&Shape::default())?;
    for kind in 0..2 {
        let remote = Remote { rkey: door.rkey ^ 0x5500, ..door.remote(0) };
        let word = side.word(0);
        match kind {
            0 => side.post(1, CompareSwap::new(word, remote, 0, 1).signaled())?,
            _ => side.post(1, FetchAdd::new(word, remote, 1).signaled())?,
        }
        door = fails(bench, &mut side, 1, Status::RemoteAccess)?;
    }
    Ok(())
}

fn remote_bounds(bench: &mut Bench) -> Verdict {
    let (mut side, mut door) = bench.rc(&Shape::default())?;
    let end = door.length;
    for (offset, length) in [(end - 63, 64), (end, 1), (u64::MAX, 64)] {
        let remote = Remote::new(door.address.wrapping_add(offset), door.rkey);
        side.post(1, RdmaWrite::new(side.sge(0, length), remote).signaled())?;
        side.send_fails(1, Status::RemoteAccess)?;
        works_again(bench, &mut side)?;
        side.post(2, RdmaRead::new(side.sge(0, length), remote).signaled())?;
        door = fails(bench, &mut side, 2, Status::RemoteAccess)?;
    }
    side.memory.write(0, &[0x77; 64]);
    side.post(3, RdmaWrite::new(side.sge(0, 64), door.remote(end as usize - 64)).signaled())?;
    side.sent(3, mlx5::cqe::SendOperation::Write)?;
    bench.peer.has(end as u32 - 64, &[0x77; 64])
}

fn remote_domain(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    let remote = Remote { rkey: door.foreign, ..door.remote(0) };
    side.post(1, RdmaWrite::new(side.sge(0, 64), remote).signaled())?;
    fails(bench, &mut side, 1, Status::RemoteAccess).map(drop)
}

/// Posts the operation that needs the missing right.
fn needing(side: &mut Side<Rc>, door: &Door, missing: Rights) -> Verdict {
    let (sge, remote) = (side.sge(0, 8), door.remote(0));
    match missing {
        Rights { write: false, .. } => side.post(1, RdmaWrite::new(sge, remote).signaled()),
        Rights { read: false, .. } => side.post(1, RdmaRead::new(sge, remote).signaled()),
        _ => side.post(1, FetchAdd::new(side.word(0), remote, 1).signaled()),
    }
}

/// All rights but one; atomics only where the device has them.
fn all_but_one(bench: &Bench) -> Vec<Rights> {
    let mut lists =
        vec![Rights { write: false, ..Rights::ALL }, Rights { read: false, ..Rights::ALL }];
    if bench.base.atomics {
        lists.push(Rights { atomic: false, ..Rights::ALL });
    }
    lists
}

fn region_rights(bench: &mut Bench) -> Verdict {
    for region in all_but_one(bench) {
        let (mut side, door) = bench.rc(&Shape { region, ..Shape::default() })?;
        needing(&mut side, &door, region)?;
        fails(bench, &mut side, 1, Status::RemoteAccess)?;
    }
    Ok(())
}

fn queue_pair_rights(bench: &mut Bench) -> Verdict {
    for queue_pair in all_but_one(bench) {
        let theirs = Shape { queue_pair, ..Shape::default() };
        let (mut side, door) = bench.rc_with(&Shape::default(), &theirs)?;
        needing(&mut side, &door, queue_pair)?;
        side.send_fails(1, Status::RemoteInvalidRequest)?;
        bench.peer.is_in_state(QpState::Error)?;
        // Recovering gives every right.
        let door = works_again(bench, &mut side)?;
        needing(&mut side, &door, queue_pair)?;
        match side.next()? {
            Completion::Send(done) if done.id == 1 => {}
            other => return Err(failed(format!("with the right: {other:?}"))),
        }
    }
    Ok(())
}

fn odd_atomic(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    side.post(1, FetchAdd::new(side.word(0), door.remote(4), 1).signaled())?;
    // Devices of different age call it an invalid request or an access error.
    let either = [Status::RemoteInvalidRequest, Status::RemoteAccess];
    side.fails(QueueKind::Send, 1, &either)?;
    bench.peer.has(0, &[0; 16])?;
    works_again(bench, &mut side).map(drop)
}

fn remote_invalidate(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    bench.peer.receive(1, 0, 64)?;
    // The key is of a region, which no peer invalidates.
    side.post(2, SendInvalidate::new(Inline(b"x"), door.rkey).signaled())?;
    let statuses = [Status::RemoteOperation, Status::RemoteAccess, Status::RemoteInvalidRequest];
    side.fails(QueueKind::Send, 2, &statuses)?;
    works_again(bench, &mut side).map(drop)
}

fn retries(bench: &mut Bench) -> Verdict {
    // Devices take half a second to a second: 2 x 4.096 us x 2^16 for each wait (evidence E074, F003).
    let shape = Shape { timeout_micros: 8000, retries: 1, ..Shape::default() };
    let (mut side, door) = bench.rc(&shape)?;
    bench.peer.fail()?;
    side.post(1, RdmaWrite::new(side.sge(0, 64), door.remote(0)).signaled())?;
    fails(bench, &mut side, 1, Status::RetriesExceeded).map(drop)
}

fn rnr_retries(bench: &mut Bench) -> Verdict {
    let shape = Shape { rnr_micros: 1000, rnr_retries: 2, ..Shape::default() };
    let (mut side, _) = bench.rc(&shape)?;
    side.post(1, SendMessage::new(Inline(b"anybody there?")).signaled())?;
    side.send_fails(1, Status::RnrRetriesExceeded)?;
    bench.peer.is_in_state(QpState::Rts)?;
    works_again(bench, &mut side).map(drop)
}

fn flush(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    for id in 10..13 {
        let into = side.sge(8000, 64);
        side.receive.post(id, into)?;
    }
    let wrong = Remote { rkey: !0, ..door.remote(0) };
    let (sge, right) = (side.sge(0, 64), door.remote(0));
    let mut batch = side.send()?.batch();
    for (id, remote) in [(1, right), (2, wrong), (3, right), (4, right)] {
        batch.append(id, RdmaWrite::new(sge, remote))?;
    }
    // SAFETY: the memory is the side's, and no code holds a reference to it.
    unsafe { batch.ring() };
    side.send_fails(2, Status::RemoteAccess)?;
    flushed(&mut side, &[3, 4], &[10, 11, 12])?;
    side.is_quiet()?;
    // SAFETY: the request names no memory.
    let refused = unsafe { side.send()?.post(5, Nop::new()) };
    same("a post behind the failure", refused, Err(PostError::WrongState))?;
    works_again(bench, &mut side).map(drop)
}

/// Takes flushed requests, in order on each queue.
fn flushed(side: &mut Side<Rc>, sends: &[u64], receives: &[u64]) -> Verdict {
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    while sent.len() + received.len() < sends.len() + receives.len() {
        match side.next()? {
            Completion::Failed(failure) => {
                holds(failure.status == Status::Flushed, format!("not flushed: {failure}"))?;
                match failure.queue {
                    QueueKind::Send => sent.push(failure.id),
                    QueueKind::Receive => received.push(failure.id),
                }
            }
            other => return Err(failed(format!("instead of a flush: {other:?}"))),
        }
    }
    same("flushed", (&sent[..], &received[..]), (sends, receives))
}

fn flush_by_program(bench: &mut Bench) -> Verdict {
    // The peer has no receives and is asked for ever: the sends stay outstanding.
    let shape = Shape { rnr_micros: 10_000, ..Shape::default() };
    let (mut side, _) = bench.rc(&shape)?;
    for id in 0..3 {
        let into = side.sge(8000, 64);
        side.receive.post(10 + id, into)?;
        side.post(20 + id, SendMessage::new(side.sge(0, 64)))?;
    }
    side.is_quiet()?;
    side.fail()?;
    flushed(&mut side, &[20, 21, 22], &[10, 11, 12])?;
    works_again(bench, &mut side).map(drop)
}
