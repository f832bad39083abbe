//! Tests of polling: ownership, retiring, and the completions returned.

use std::collections::VecDeque;

use mlx5_sys::cqe::{opcode as cqe_opcode, syndrome};
use mlx5_sys::wqe::opcode;

use super::*;
use crate::cqe::{
    Completion, Failure, QueueKind, ReceiveKind, SendDone, SendOperation, Status,
    UnexpectedCqeReason,
};
use crate::ring::random::{Random, rounds};
use crate::ring::{PollError, PostError};
use crate::wqe::{FetchAdd, Inline, Nop, RdmaRead, Remote, SendMessage, Sge, Word};

#[test]
fn completions_retire_what_was_posted_before_them() {
    let mut random = Random::from_clock();
    for _ in 0..rounds(60) {
        let (cqes, cqe_size) = (4 << random.below(3), [64, 128][random.below(2) as usize]);
        // Starts where 24 and 16 bits wrap, and where laps change.
        let cq_start = [0, 0xff_fff0, random.below(0x100_0000)][random.below(3) as usize];
        let sq_start = [0, 0xfff8, random.below(0x1_0000)][random.below(3) as usize];
        let mut cq = Cq::new(cqes, cqe_size, cq_start);
        let mut sq = Sq::new(&mut cq, 32, sq_start, HALF);
        // Posted and not retired: id, counter, signaled.
        let mut posted = VecDeque::new();
        let mut head = sq_start;
        let mut free = 32;
        let mut id = 0;
        for _ in 0..rounds(500) {
            let signaled = random.below(3) == 0;
            let bytes = vec![7; random.below(190) as usize];
            let blocks = if bytes.is_empty() { 1 } else { (16 + 4 + bytes.len()).div_ceil(64) };
            let signals = posted.iter().filter(|(_, _, signaled, _)| *signaled).count() as u32;
            let (used, requests) = (32 - free as u32, posted.len() as u32);
            let account = Account { blocks: 32, used, slots: cqes, requests, signals };
            let expected = account.verdict(blocks as u32, signaled);
            let request = SendMessage::new(Inline(&bytes)).signaled_if(signaled);
            // SAFETY: no HCA is there.
            assert_eq!(unsafe { sq.queue.post(id, request) }, expected);
            if expected.is_ok() {
                posted.push_back((id, head, signaled, blocks));
                head = head.wrapping_add(blocks as u32);
                free -= blocks;
                id += 1;
            }
            if random.below(3) != 0 {
                continue;
            }
            // The HCA completes some signaled requests, in order.
            for _ in 0..random.below(4) {
                let Some(at) = posted.iter().position(|(_, _, signaled, _)| *signaled) else {
                    break;
                };
                let done: Vec<_> = posted.drain(..=at).collect();
                free += done.iter().map(|(_, _, _, blocks)| blocks).sum::<usize>();
                let (id, counter, ..) = done[at];
                cq.produce(cqe(cqe_opcode::REQ, opcode::SEND, counter), &[]);
                let operation = SendOperation::Send;
                let expected = SendDone { id, qpn: QPN, operation, byte_len: 0 };
                let completion = cq.reader.poll(&mut sq.queue).unwrap();
                assert_eq!(completion, Some(Completion::Send(expected)));
                assert_eq!(cq.record.be32(0), cq.produced & 0xff_ffff);
                assert_eq!(sq.queue.free_blocks() as usize, free);
            }
            assert_eq!(cq.reader.poll(&mut sq.queue).unwrap(), None);
        }
    }
}

#[test]
fn poll_all_takes_cqes_in_order_and_publishes_each() {
    let mut cq = Cq::new(16, 64, 0);
    let mut sq = Sq::new(&mut cq, 32, 0, 0);
    for id in 0..10 {
        // SAFETY: no HCA is there.
        unsafe { sq.queue.post(id, Nop::new().signaled()).unwrap() };
        cq.produce(cqe(cqe_opcode::REQ, opcode::NOP, id as u32), &[]);
    }
    let ids = |completions: &[Completion]| -> Vec<u64> {
        completions
            .iter()
            .map(|completion| match completion {
                Completion::Send(done) => done.id,
                other => panic!("{other:?}"),
            })
            .collect()
    };
    let some: Result<Vec<_>, _> = cq.reader.poll_all(&mut sq.queue).take(4).collect();
    assert_eq!(ids(&some.unwrap()), [0, 1, 2, 3]);
    assert_eq!(cq.record.be32(0), 4);
    let mut drain = cq.reader.poll_all(&mut sq.queue);
    let first = drain.next().unwrap().unwrap();
    assert_eq!(ids(&[first]), [4]);
    assert_eq!(cq.record.be32(0), 5, "published with each");
    let _leaked = std::mem::ManuallyDrop::new(drain);
    let mut drain = cq.reader.poll_all(&mut sq.queue);
    let rest: Result<Vec<_>, _> = drain.by_ref().collect();
    assert_eq!(ids(&rest.unwrap()), [5, 6, 7, 8, 9]);
    assert_eq!(cq.record.be32(0), 10);
    let _leaked = std::mem::ManuallyDrop::new(drain);
    assert!(cq.reader.poll_all(&mut sq.queue).next().is_none());
}

#[test]
fn every_syndrome_comes_out_with_its_request() {
    for code in (0..=u8::MAX).step_by(if cfg!(miri) { 17 } else { 1 }) {
        let mut cq = Cq::new(16, 64, 0);
        let mut sq = Sq::new(&mut cq, 16, 5, 0);
        // SAFETY: no HCA is there.
        unsafe {
            sq.queue.post(41, Nop::new()).unwrap();
            sq.queue.post(42, SendMessage::new(Inline(b"x"))).unwrap();
        }
        let mut error = cqe(cqe_opcode::REQ_ERR, opcode::SEND, 6);
        error.timestamp = u64::from_be_bytes([0, 0, 0, 0, 0, 0, 0x99, code]).into();
        cq.produce(error, &[]);
        let expected = Failure {
            id: 42,
            qpn: QPN,
            queue: QueueKind::Send,
            status: Status::from_syndrome(code),
            vendor_error: 0x99,
            wqe_index: 6,
            opcode: opcode::SEND,
        };
        let completion = cq.reader.poll(&mut sq.queue).unwrap().unwrap();
        assert_eq!(completion, Completion::Failed(expected));
        let text = expected.to_string();
        assert!(text.contains("SEND with id 0x2a") && text.contains("vendor code 0x99"), "{text}");
        // SAFETY: no HCA is there.
        let refused = unsafe { sq.queue.post(43, Nop::new()) };
        assert_eq!(refused, Err(PostError::WrongState));
        assert!(sq.queue.is_idle());
    }
    assert_eq!(Status::from_syndrome(syndrome::WR_FLUSH), Status::Flushed);
}

#[test]
fn receives_complete_in_order_with_what_arrived() {
    let mut cq = Cq::new(16, 64, 0xff_fff8);
    let mut rq = Rq::new(&mut cq, 8, 16, 0xfffc);
    for id in 0..8 {
        // SAFETY: no HCA is there.
        unsafe { rq.queue.post(id, Sge::new(0, 100, 0)).unwrap() };
    }
    let kinds = [
        (cqe_opcode::RESP_SEND, ReceiveKind::Send),
        (cqe_opcode::RESP_SEND_IMM, ReceiveKind::SendImm(0xdead_beef)),
        (cqe_opcode::RESP_WR_IMM, ReceiveKind::WriteImm(0xdead_beef)),
        (cqe_opcode::RESP_SEND_INV, ReceiveKind::SendInvalidate(0xdead_beef)),
    ];
    for (id, (kind, expected)) in kinds.into_iter().enumerate() {
        let mut entry = cqe(kind, 0, 0xfffc + id as u32);
        entry.imm_inval_pkey = 0xdead_beef.into();
        entry.byte_cnt = 100.into();
        entry.flags_rqpn = 0x1512_3456.into();
        entry.slid = 0x4321.into();
        entry.ml_path = 0x85;
        entry.op_own |= 2;
        cq.produce(entry, &[]);
        let Some(Completion::Receive(done)) = cq.reader.poll(&mut rq.queue).unwrap() else {
            panic!("not a receive");
        };
        assert_eq!((done.id, done.kind, done.byte_len), (id as u64, expected, 100));
        assert_eq!((done.src_qp, done.slid, done.sl), (0x12_3456, 0x4321, 5));
        assert_eq!((done.dlid_path_bits, done.grh, done.solicited), (5, true, true));
    }
    assert_eq!(rq.queue.outstanding(), 4);
    cq.produce(cqe(cqe_opcode::RESP_ERR, 0, 0), &[]);
    let Some(Completion::Failed(failure)) = cq.reader.poll(&mut rq.queue).unwrap() else {
        panic!("not a failure");
    };
    assert_eq!((failure.id, failure.queue), (4, QueueKind::Receive));
}

#[test]
fn data_in_the_cqe_goes_where_the_wqe_says() {
    let data: Vec<u8> = (1..=64).collect();
    for (format, cqe_size, length) in [(1, 64, 32), (1, 128, 20), (2, 128, 64), (2, 128, 33)] {
        let mut cq = Cq::new(16, cqe_size, 0);
        let mut rq = Rq::new(&mut cq, 4, 64, 0);
        let memory = Memory::new(128, 0);
        let address = memory.at(0).as_ptr().expose_provenance() as u64;
        let list = [Sge::new(address, 5, 0), Sge::new(0, 0, 0), Sge::new(address + 16, 100, 0)];
        // SAFETY: the memory lives until the end of the test.
        unsafe { rq.queue.post(3, list).unwrap() };
        let mut entry = cqe(cqe_opcode::RESP_SEND, 0, 0);
        entry.byte_cnt = (length as u32).into();
        entry.op_own |= format << 2;
        let data = &data[..length];
        if format == 1 {
            let bytes = entry.as_mut_bytes();
            bytes[..length].copy_from_slice(data);
            cq.produce(entry, &[]);
        } else {
            cq.produce(entry, data);
        }
        let completion = cq.reader.poll(&mut rq.queue).unwrap();
        assert!(matches!(completion, Some(Completion::Receive(_))), "{completion:?}");
        let written = memory.read();
        assert_eq!(written[..5], data[..5]);
        assert_eq!(written[16..16 + length - 5], data[5..]);
        assert!(written[16 + length - 5..].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn data_that_does_not_fit_is_a_length_error() {
    for (format, length) in [(1, 9), (1, 33), (2, 8)] {
        let mut cq = Cq::new(16, 64, 0);
        let mut rq = Rq::new(&mut cq, 4, 16, 0);
        let memory = Memory::new(64, 0);
        let address = memory.at(0).as_ptr().expose_provenance() as u64;
        // SAFETY: the memory lives until the end of the test.
        unsafe { rq.queue.post(3, Sge::new(address, 8, 0)).unwrap() };
        let mut entry = cqe(cqe_opcode::RESP_SEND, 0, 0);
        entry.byte_cnt = length.into();
        entry.op_own |= format << 2;
        cq.produce(entry, &[]);
        let Some(Completion::Failed(failure)) = cq.reader.poll(&mut rq.queue).unwrap() else {
            panic!("not a failure");
        };
        assert_eq!((failure.id, failure.status), (3, Status::LocalLength));
        assert!(memory.read()[8..].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn reads_and_atomics_scatter_from_the_cqe_across_the_rings_end() {
    let mut cq = Cq::new(64, 64, 0);
    // The WQE takes the last block and, with five entries, goes on in the first.
    let mut sq = Sq::new(&mut cq, 4, 3, 0);
    let memory = Memory::new(256, 0);
    let address = memory.at(0).as_ptr().expose_provenance() as u64;
    let list: [Sge; 5] = std::array::from_fn(|at| Sge::new(address + at as u64 * 32, 4, 0));
    // SAFETY: the memory lives until the end of the test.
    unsafe { sq.queue.post(1, RdmaRead::new(list, Remote::new(0, 0)).signaled()).unwrap() };
    let mut entry = cqe(cqe_opcode::REQ, opcode::RDMA_READ, 3);
    entry.byte_cnt = 18.into();
    entry.op_own |= 1 << 2;
    for (at, byte) in entry.as_mut_bytes()[..18].iter_mut().enumerate() {
        *byte = at as u8 + 1;
    }
    cq.produce(entry, &[]);
    let Some(Completion::Send(done)) = cq.reader.poll(&mut sq.queue).unwrap() else {
        panic!("not done");
    };
    assert_eq!((done.operation, done.byte_len), (SendOperation::Read, 18));
    let written = memory.read();
    assert_eq!(written[0..4], [1, 2, 3, 4]);
    assert_eq!(written[128..133], [17, 18, 0, 0, 0]);

    let old = Word::new(address + 200, 0);
    // SAFETY: no HCA is there. The word lies in `memory`, which lives through the test.
    unsafe { sq.queue.post(2, FetchAdd::new(old, Remote::new(0, 0), 1).signaled()).unwrap() };
    let mut entry = cqe(cqe_opcode::REQ, opcode::ATOMIC_FA, 5);
    entry.op_own |= 1 << 2;
    // In a CQE most significant byte first, in memory in the host's order (UCX, `rc_mlx5_iface.c`).
    let value = 0x0102_0304_0506_0708_u64;
    entry.as_mut_bytes()[..8].copy_from_slice(&value.to_be_bytes());
    cq.produce(entry, &[]);
    let Some(Completion::Send(done)) = cq.reader.poll(&mut sq.queue).unwrap() else {
        panic!("not done");
    };
    assert_eq!((done.id, done.byte_len), (2, 8));
    assert_eq!(memory.read()[200..208], value.to_ne_bytes());
}

#[test]
fn what_belongs_to_nobody_is_not_lost() {
    let mut cq = Cq::new(16, 64, 0);
    let mut other_cq = Cq::new(16, 64, 0);
    let mut sq = Sq::new(&mut cq, 16, 0, 0);
    let mut foreign = Sq::new(&mut other_cq, 16, 0, 0);
    // SAFETY: no HCA is there.
    unsafe {
        sq.queue.post(1, SendMessage::new(Inline(&[1; 100])).signaled()).unwrap();
        foreign.queue.post(1, Nop::new().signaled()).unwrap();
    }
    let unexpected = |cq: &mut Cq, entry: Cqe64, queues: &mut dyn FnMut(&mut Cq) -> Completion| {
        cq.produce(entry, &[]);
        let Completion::UnexpectedCqe(unexpected) = queues(cq) else { panic!("claimed") };
        assert_eq!(cq.record.be32(0), cq.produced, "consumed");
        assert_eq!(&unexpected.bytes[..63], &entry.as_bytes()[..63]);
        unexpected.reason
    };
    let stranger = Cqe64 { sop_drop_qpn: 0x55.into(), ..cqe(cqe_opcode::REQ, 0, 0) };
    let mut poll = |cq: &mut Cq| cq.reader.poll(&mut sq.queue).unwrap().unwrap();
    assert_eq!(unexpected(&mut cq, stranger, &mut poll), UnexpectedCqeReason::UnknownQueue);
    // An index inside a WQE, one behind the head, a receive without a queue, strange opcodes.
    for (counter, reason) in
        [(1, UnexpectedCqeReason::NotOutstanding), (2, UnexpectedCqeReason::NotOutstanding)]
    {
        let entry = cqe(cqe_opcode::REQ, opcode::SEND, counter);
        assert_eq!(unexpected(&mut cq, entry, &mut poll), reason);
    }
    let entry = cqe(cqe_opcode::RESP_SEND, 0, 0);
    assert_eq!(unexpected(&mut cq, entry, &mut poll), UnexpectedCqeReason::UnknownQueue);
    for kind in [cqe_opcode::RESIZE_CQ, cqe_opcode::NO_PACKET, cqe_opcode::SIG_ERR, 7, 11] {
        let entry = cqe(kind, 0, 0);
        assert_eq!(unexpected(&mut cq, entry, &mut poll), UnexpectedCqeReason::UnknownOpcode);
    }
    // The same number, but a queue that completes on another CQ.
    let mut poll = |cq: &mut Cq| cq.reader.poll(&mut foreign.queue).unwrap().unwrap();
    let entry = cqe(cqe_opcode::REQ, opcode::NOP, 0);
    assert_eq!(unexpected(&mut cq, entry, &mut poll), UnexpectedCqeReason::UnknownQueue);
    // All of that retired nothing.
    assert!(!sq.queue.is_idle() && !foreign.queue.is_idle());
}

#[test]
fn fresh_compressed_and_overrun_are_told_apart() {
    for cqe_size in [64, 128] {
        let mut cq = Cq::new(4, cqe_size, 0);
        // Never written: invalid opcode with either owner bit.
        for owner in [0xf0, 0xf1] {
            cq.buffer.write(cqe_size - 1, &[owner]);
            assert_eq!(cq.reader.poll(&mut ()), Ok(None));
        }
        let mut entry = cqe(cqe_opcode::REQ, 0, 0);
        entry.op_own |= 3 << 2;
        cq.produce(entry, &[]);
        for _ in 0..2 {
            assert_eq!(cq.reader.poll(&mut ()), Err(PollError::Compressed));
            assert_eq!(cq.record.be32(0), 0, "the block stays");
        }
    }
    let mut cq = Cq::new(4, 64, 0);
    cq.produce(cqe(cqe_opcode::REQ, 0, 0), &[]);
    cq.reader.overrun();
    assert!(matches!(cq.reader.poll(&mut ()), Ok(Some(Completion::UnexpectedCqe(_)))));
    assert_eq!(cq.reader.poll(&mut ()), Err(PollError::Overrun));
}

#[test]
fn arming_names_sequence_command_index_and_cq() {
    let mut cq = Cq::new(4, 64, 0xff_ffff);
    cq.reader.arm();
    assert_eq!(cq.record.be32(4), 0x00ff_ffff);
    assert_eq!(cq.page.read()[0x20..0x28], [0x00, 0xff, 0xff, 0xff, 0, 0, 0, CQN as u8]);
    for taken in 1..=5u32 {
        cq.reader.event_taken();
        cq.reader.arm_solicited();
        assert_eq!(cq.record.be32(4), (taken % 4) << 28 | 0x01ff_ffff);
    }
    let page = cq.page.read();
    assert!(page[..0x20].iter().chain(&page[0x28..]).all(|&byte| byte == 0));
}

#[test]
fn discarding_keeps_the_others_in_order() {
    let mut random = Random::from_clock();
    for _ in 0..rounds(200) {
        let cqe_size = [64, 128][random.below(2) as usize];
        let start = [0, 0xff_fffa, 6][random.below(3) as usize];
        let mut cq = Cq::new(8, cqe_size, start);
        let mut kept = Vec::new();
        let count = random.below(9);
        for counter in 0..count {
            let send = random.below(2) == 0;
            let mine = random.below(2) == 0;
            let mut entry =
                cqe(if send { cqe_opcode::REQ } else { cqe_opcode::RESP_SEND }, 0, counter);
            if !mine {
                entry.sop_drop_qpn = 0x1111.into();
            }
            cq.produce(entry, &[counter as u8; 8][..if cqe_size == 128 { 8 } else { 0 }]);
            if !(send && mine) {
                kept.push(counter);
            }
        }
        let dropped = cq.reader.discard(QPN, QueueKind::Send);
        assert_eq!(dropped as usize, count as usize - kept.len());
        let mut left = Vec::new();
        for completion in cq.reader.poll_all(&mut ()) {
            let Completion::UnexpectedCqe(unexpected) = completion.unwrap() else {
                panic!("claimed")
            };
            left.push(u32::from(unexpected.bytes[61]));
        }
        assert_eq!(left, kept);
        assert_eq!(cq.record.be32(0), (start + count) & 0xff_ffff);
    }
}

#[test]
fn queues_of_two_cards_with_one_number_are_told_apart() {
    let (mut cq, other) = (Cq::new(16, 64, 0), Cq::new(16, 64, 0));
    let rq = Rq::new(&mut cq, 8, 16, 0);
    assert!(rq.queue.is_of(rq.queue.owner.id()) && rq.queue.completes_on(&cq.reader));
    // The number is the same, the verbs object is another.
    let word = 0u64;
    assert!(!rq.queue.is_of(ObjectId::at(&raw const word)));
    assert!(!rq.queue.completes_on(&other.reader));
}

#[test]
fn a_compressed_block_is_not_taken_for_stale_completions() {
    let mut cq = Cq::new(8, 64, 0);
    for kind in [cqe_opcode::REQ << 4, cqe_opcode::REQ << 4 | 3 << 2, cqe_opcode::REQ << 4] {
        let mut entry = cqe(0, opcode::NOP, 0);
        entry.op_own = kind;
        cq.produce(entry, &[]);
    }
    assert_eq!(cq.reader.discard(QPN, QueueKind::Send), 1);
    assert_eq!(cq.reader.poll(&mut ()), Err(PollError::Compressed));
}
