//! Tests of the comparison with the oldest request's entry: it must not accept CQEs of requests
//! that were never posted, and must find the same result as the slow path.

use std::collections::VecDeque;

use mlx5_sys::cqe::opcode as cqe_opcode;
use mlx5_sys::wqe::opcode;
use zerocopy::IntoBytes;

use super::*;
use crate::cqe::{Completion, SendOperation, UnexpectedCqeReason};
use crate::ib::Access;
use crate::ring::random::{Random, rounds};
use crate::ring::{Batch, Queues};
use crate::wqe::{
    BindWindow, Inline, InlineBytes, Nop, RdmaRead, RdmaWrite, Remote, SendMessage, Sge,
};

fn done(cq: &mut Cq, queues: &mut impl Queues) -> (u64, SendOperation) {
    match cq.reader.poll(queues).unwrap() {
        Some(Completion::Send(done)) => (done.id, done.operation),
        other => panic!("{other:?}"),
    }
}

fn not_outstanding(cq: &mut Cq, queues: &mut impl Queues) {
    match cq.reader.poll(queues).unwrap() {
        Some(Completion::UnexpectedCqe(unexpected)) => {
            assert_eq!(unexpected.reason, UnexpectedCqeReason::NotOutstanding);
        }
        other => panic!("{other:?}"),
    }
}

/// Appends `count` NOPs with ids from `id` on.
fn append(batch: &mut Batch<'_>, id: u64, count: u64) {
    for id in id..id + count {
        batch.append(id, Nop::new().signaled()).unwrap();
    }
}

/// The CQEs name WQEs that were written to ring and shadow and never posted. Polls complete none of
/// them, before and after other posts. (A batch has no destructor: dropping it is leaking it.)
#[test]
fn what_was_written_and_not_posted_is_not_completed() {
    let mut cq = Cq::new(64, 64, 0);
    let mut sq = Sq::new(&mut cq, 16, 0xfffe, HALF);
    let abandon = |sq: &mut Sq, count| {
        let mut batch = sq.queue.batch();
        append(&mut batch, 100, count);
    };
    let nop = |counter| cqe(cqe_opcode::REQ, opcode::NOP, counter);
    abandon(&mut sq, 5);
    cq.produce(nop(0xfffe), &[]);
    not_outstanding(&mut cq, &mut sq.queue);
    // One is posted over the first of them; the entry behind it is still the batch's.
    // SAFETY: no HCA is there.
    unsafe { sq.queue.post(1, Nop::new().signaled()).unwrap() };
    for counter in [0xfffe, 0xffff, 0x1_0000] {
        cq.produce(nop(counter), &[]);
    }
    assert_eq!(done(&mut cq, &mut sq.queue), (1, SendOperation::Nop));
    not_outstanding(&mut cq, &mut sq.queue);
    not_outstanding(&mut cq, &mut sq.queue);
    // A shorter batch over them, and again what is behind it.
    abandon(&mut sq, 4);
    let mut batch = sq.queue.batch();
    append(&mut batch, 2, 2);
    // SAFETY: no HCA is there.
    unsafe { batch.ring() };
    for counter in [0xffff, 0x1_0000, 0x1_0001, 0x1_0002] {
        cq.produce(nop(counter), &[]);
    }
    assert_eq!(done(&mut cq, &mut sq.queue).0, 2);
    assert_eq!(done(&mut cq, &mut sq.queue).0, 3);
    not_outstanding(&mut cq, &mut sq.queue);
    not_outstanding(&mut cq, &mut sq.queue);
    assert!(sq.queue.is_idle() && sq.queue.free_blocks() == 16);
    // An empty batch changes nothing.
    // SAFETY: no HCA is there.
    unsafe { sq.queue.batch().ring() };
    // SAFETY: no HCA is there.
    unsafe { sq.queue.post(4, Nop::new().signaled()).unwrap() };
    cq.produce(nop(1), &[]);
    assert_eq!(done(&mut cq, &mut sq.queue).0, 4);
}

/// A run of key changes ends where a batch that was dropped has written: the next change clears
/// that, so that polls compare again.
#[test]
fn a_run_of_key_changes_ends_where_something_is_written_ahead() {
    let mut cq = Cq::new(64, 64, 0);
    let mut sq = Sq::new(&mut cq, 32, 0, HALF);
    let bind = || BindWindow::type_1(0x100, Sge::new(0, 64, 0), Access::LOCAL_WRITE).signaled();
    for id in 0..2 {
        // SAFETY: no HCA is there.
        unsafe { sq.queue.post(id, bind()).unwrap() };
    }
    let mut batch = sq.queue.batch();
    append(&mut batch, 100, 5);
    assert!(sq.queue.ring.state.is_open());
    // SAFETY: no HCA is there.
    unsafe { sq.queue.post(2, bind()).unwrap() };
    assert!(!sq.queue.ring.state.is_open());
    for counter in [0, 3, 6] {
        cq.produce(cqe(cqe_opcode::REQ, opcode::UMR, counter), &[]);
    }
    for id in 0..3 {
        assert_eq!(done(&mut cq, &mut sq.queue).0, id);
    }
    cq.produce(cqe(cqe_opcode::REQ, opcode::NOP, 9), &[]);
    not_outstanding(&mut cq, &mut sq.queue);
}

/// A CQE that names what the oldest request's does, but is of another kind, queue pair or CQ.
#[test]
fn every_part_of_a_cqe_is_compared() {
    let mut cq = Cq::new(64, 64, 0);
    let mut other_cq = Cq::new(64, 64, 0);
    let mut sq = Sq::new(&mut cq, 16, 7, HALF);
    // SAFETY: no HCA is there.
    unsafe { sq.queue.post(5, SendMessage::new(InlineBytes([0; 8])).signaled()).unwrap() };
    let right = cqe(cqe_opcode::REQ, opcode::SEND, 7);
    for bit in 0..24 {
        let mut wrong = right;
        wrong.sop_drop_qpn = (u32::from(opcode::SEND) << 24 | QPN ^ 1 << bit).into();
        cq.produce(wrong, &[]);
        let polled = cq.reader.poll(&mut sq.queue).unwrap();
        assert!(matches!(polled, Some(Completion::UnexpectedCqe(_))), "{polled:?}");
    }
    for bit in 0..16 {
        cq.produce(cqe(cqe_opcode::REQ, opcode::SEND, 7 ^ 1 << bit), &[]);
        not_outstanding(&mut cq, &mut sq.queue);
    }
    other_cq.produce(right, &[]);
    let polled = other_cq.reader.poll(&mut sq.queue).unwrap();
    assert!(matches!(polled, Some(Completion::UnexpectedCqe(_))), "{polled:?}");
    // The signature is whatever it is, and the opcode is what was posted.
    let mut signed = right;
    signed.signature = 0xa5;
    signed.sop_drop_qpn = (u32::from(opcode::RDMA_WRITE) << 24 | QPN).into();
    cq.produce(signed, &[]);
    assert_eq!(done(&mut cq, &mut sq.queue), (5, SendOperation::Send));
    // SAFETY: no HCA is there.
    unsafe { sq.queue.post(6, SendMessage::new(InlineBytes([0; 8])).signaled()).unwrap() };
    let mut signed = cqe(cqe_opcode::REQ, opcode::SEND, 8);
    signed.signature = 0x5a;
    cq.produce(signed, &[]);
    assert_eq!(done(&mut cq, &mut sq.queue), (6, SendOperation::Send));
}

/// Polls expect the signaled request as many requests behind the oldest as last time. What lies
/// there is retired only if it is outstanding.
#[test]
fn a_signaled_request_retires_the_unsignaled_ones_before_it() {
    let nop = |counter| cqe(cqe_opcode::REQ, opcode::NOP, counter);
    // Under Miri, one alone.
    for unsignaled in [1, 8, 63, 70].into_iter().filter(|&count| !cfg!(miri) || count == 8) {
        let mut cq = Cq::new(256, 64, 0);
        let mut sq = Sq::new(&mut cq, 128, 0, HALF);
        let mut head = 0;
        let mut post = |sq: &mut Sq, signaled| {
            // SAFETY: no HCA is there.
            unsafe { sq.queue.post(head.into(), Nop::new().signaled_if(signaled)).unwrap() };
            head += 1;
            head - 1
        };
        // Each entry then is of a signaled request that was retired.
        for _ in 0..128 {
            let at = post(&mut sq, true);
            cq.produce(nop(at), &[]);
            assert_eq!(done(&mut cq, &mut sq.queue).0, at.into());
        }
        let mut last = 0;
        for round in 0..6 {
            for _ in 0..unsignaled {
                last = post(&mut sq, false);
            }
            // Of an earlier lap, and not yet posted.
            for wrong in [last + 1 - 128, last + 1] {
                cq.produce(nop(wrong), &[]);
                not_outstanding(&mut cq, &mut sq.queue);
            }
            assert_eq!(sq.queue.free_blocks(), 128 - unsignaled, "round {round}");
            last = post(&mut sq, true);
            cq.produce(nop(last), &[]);
            assert_eq!(done(&mut cq, &mut sq.queue).0, last.into(), "round {round}");
            assert!(sq.queue.is_idle() && sq.queue.free_blocks() == 128, "round {round}");
        }
        // Further blocks of an unsignaled request are counted, too.
        let long = [1; 100];
        // SAFETY: no HCA is there.
        unsafe { sq.queue.post(1, SendMessage::new(Inline(&long))).unwrap() };
        head += 2;
        for _ in 2..unsignaled {
            // SAFETY: no HCA is there.
            unsafe { sq.queue.post(2, Nop::new()).unwrap() };
            head += 1;
        }
        // SAFETY: no HCA is there.
        unsafe { sq.queue.post(3, Nop::new().signaled()).unwrap() };
        cq.produce(nop(head), &[]);
        assert_eq!(done(&mut cq, &mut sq.queue).0, 3);
        assert!(sq.queue.is_idle() && sq.queue.free_blocks() == 128);
        // SAFETY: no HCA is there.
        let free = (0..200).take_while(|_| unsafe { sq.queue.post(4, Nop::new()).is_ok() }).count();
        assert_eq!(free, 127, "no block is counted twice");
    }
}

enum Way<'q> {
    Single(&'q mut SendQueue<Rc>),
    Batch(Batch<'q>),
}

/// A random mix of what is plain and what is not: sizes, signaling, batches that are rung or
/// dropped. The account of blocks and CQEs stays that of an oracle, and no CQE is lost or made up.
#[test]
fn the_account_is_the_oracles() {
    let mut random = Random::from_clock();
    for _ in 0..rounds(150) {
        let (blocks, cqes) = (1 << (2 + random.below(4)), 1 << (1 + random.below(5)));
        let start = [0, 0xfff9, random.below(0x1_0000)][random.below(3) as usize];
        let mut cq = Cq::new(cqes, 64, random.below(0x100_0000));
        let mut sq = Sq::new(&mut cq, blocks, start, [0, HALF][random.below(2) as usize]);
        // Id, index, blocks, signaled, operation.
        let mut posted = VecDeque::<(u64, u32, u32, bool, SendOperation)>::new();
        let (mut head, mut id) = (start, 0);
        for _ in 0..rounds(600) {
            let used: u32 = posted.iter().map(|request| request.2).sum();
            let signals = posted.iter().filter(|request| request.3).count() as u32;
            assert_eq!(sq.queue.free_blocks(), blocks - used, "{}", random.seed());
            // Posted alone, or as a batch that may be given up.
            let (single, give_up) = (random.below(2) == 0, random.below(3) == 0);
            let count = if single { 1 } else { random.below(5) };
            let mut written = Vec::<(u64, u32, u32, bool, SendOperation)>::new();
            let mut way = match single {
                true => Way::Single(&mut sq.queue),
                false => Way::Batch(sq.queue.batch()),
            };
            let (mut used, mut signals) = (used, signals);
            for _ in 0..count {
                let signaled = random.below(3) != 0;
                let long = [1; 100];
                let remote = Remote::new(0, 0);
                let list = [Sge::new(0, 8, 0); 2];
                macro_rules! request {
                    ($blocks:literal, $operation:ident, $request:expr) => {{
                        let request = $request.signaled_if(signaled);
                        let result = match &mut way {
                            Way::Batch(batch) => batch.append(id, request),
                            // SAFETY: no HCA is there.
                            Way::Single(queue) => unsafe { queue.post(id, request) },
                        };
                        ($blocks, SendOperation::$operation, result)
                    }};
                }
                let (size, operation, result) = match random.below(5) {
                    0 => request!(1, Nop, Nop::new()),
                    1 => request!(1, Write, RdmaWrite::new(InlineBytes([0; 8]), remote)),
                    2 => request!(2, Send, SendMessage::new(Inline(&long))),
                    3 => request!(1, Read, RdmaRead::new(list[0], remote)),
                    _ => request!(1, Read, RdmaRead::new(list, remote)),
                };
                let requests = (posted.len() + written.len()) as u32;
                let account = Account { blocks, used, slots: cqes, requests, signals };
                let expected = account.verdict(size, signaled);
                assert_eq!(result, expected, "{}", random.seed());
                if result.is_ok() {
                    let index = head + written.iter().map(|&(_, _, size, ..)| size).sum::<u32>();
                    written.push((id, index, size, signaled, operation));
                    used += size;
                    signals += u32::from(signaled);
                    id += 1;
                }
            }
            match way {
                Way::Batch(batch) if give_up => {
                    drop(batch);
                    written.clear();
                }
                // SAFETY: no HCA is there.
                Way::Batch(batch) => unsafe { batch.ring() },
                Way::Single(_) => {}
            }
            head += written.iter().map(|&(_, _, size, ..)| size).sum::<u32>();
            posted.extend(written);
            // An HCA completes in order; now and then one makes something up.
            for _ in 0..random.below(4) {
                if random.below(8) == 0 {
                    cq.produce(cqe(cqe_opcode::REQ, opcode::NOP, head + random.below(3)), &[]);
                    not_outstanding(&mut cq, &mut sq.queue);
                }
                let Some(at) = posted.iter().position(|request| request.3) else { break };
                let (id, index, _, _, operation) = posted.drain(..=at).next_back().unwrap();
                let code = match operation {
                    SendOperation::Nop => opcode::NOP,
                    SendOperation::Write => opcode::RDMA_WRITE,
                    SendOperation::Read => opcode::RDMA_READ,
                    _ => opcode::SEND,
                };
                cq.produce(cqe(cqe_opcode::REQ, code, index), &[]);
                assert_eq!(done(&mut cq, &mut sq.queue), (id, operation), "{}", random.seed());
            }
            assert_eq!(cq.reader.poll(&mut sq.queue), Ok(None));
        }
    }
}

/// Messages of every length that fits, in the CQE, into one entry that is as long, longer, too
/// short, or not the only one.
#[test]
fn short_messages_come_out_of_the_cqe() {
    // Under Miri, those at the ends alone.
    for length in (0..=33u32).filter(|length| !cfg!(miri) || [0, 1, 32, 33].contains(length)) {
        for (room, entries) in [(length, 1), (40, 1), (length.max(1) - 1, 1), (length / 2, 2)] {
            let room = room.max(1);
            let mut cq = Cq::new(8, 64, 0);
            let mut rq = Rq::new(&mut cq, 4, 32, 3);
            let memory = Memory::new(128, 0xcc);
            let address = memory.at(0).as_ptr().expose_provenance() as u64;
            let list = [Sge::new(address, room, 0), Sge::new(address + 64, 40, 0)];
            // SAFETY: the memory lives until the end of the test.
            unsafe { rq.queue.post(9, &list[..entries]).unwrap() };
            let mut entry = cqe(cqe_opcode::RESP_SEND, 0, 3);
            entry.byte_cnt = length.into();
            entry.op_own |= 1 << 2;
            let message: Vec<u8> = (1..=length as u8).collect();
            let held = length.min(32) as usize;
            entry.as_mut_bytes()[..held].copy_from_slice(&message[..held]);
            cq.produce(entry, &[]);
            let polled = cq.reader.poll(&mut rq.queue).unwrap().unwrap();
            let case = format!("{length} into {room} of {entries}: {polled:?}");
            let written = memory.read();
            let first = length.min(room) as usize;
            let fits = length <= 32 && (first == length as usize || entries == 2);
            match polled {
                Completion::Receive(done) => {
                    assert!(fits, "{case}");
                    assert_eq!((done.id, done.byte_len), (9, length), "{case}");
                    assert_eq!(written[..first], message[..first], "{case}");
                    let rest = message.len() - first;
                    assert_eq!(written[64..64 + rest], message[first..], "{case}");
                }
                Completion::Failed(failure) => {
                    assert!(!fits, "{case}");
                    assert_eq!(failure.id, 9, "{case}");
                }
                other => panic!("{case} {other:?}"),
            }
            let behind = if first == length as usize { first } else { room as usize };
            assert!(written[behind.min(64)..64].iter().all(|&byte| byte == 0xcc), "{case}");
            assert_eq!(rq.queue.outstanding(), 0, "{case}");
        }
    }
}
