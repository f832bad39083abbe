//! Tests of the send queue's accounts: blocks, CQEs, and the request of each CQE.

use std::collections::VecDeque;

use mlx5_sys::cqe::opcode as cqe_opcode;
use mlx5_sys::wqe::opcode;

use super::*;
use crate::cqe::{Completion, UnexpectedCqeReason};
use crate::ring::random::{Random, rounds};
use crate::ring::{Batch, PostError};
use crate::wqe::{Inline, InlineBytes, Nop, RdmaRead, Remote, SendMessage, Sge};

#[test]
fn no_completion_names_a_block_inside_a_wqe() {
    let long = [7; 150];
    let mut cq = Cq::new(16, 64, 0);
    // The blocks inside the long WQE are where WQEs of a dropped batch began, and of the lap
    // before.
    let mut sq = Sq::new(&mut cq, 8, 0xfffc, 0);
    for id in 0..8 {
        // SAFETY: no HCA is there.
        unsafe { sq.queue.post(id, Nop::new().signaled_if(id == 7)).unwrap() };
    }
    cq.produce(cqe(cqe_opcode::REQ, opcode::NOP, 3), &[]);
    assert!(
        matches!(cq.reader.poll(&mut sq.queue), Ok(Some(Completion::Send(done))) if done.id == 7)
    );
    let mut batch = sq.queue.batch();
    for id in 20..24 {
        batch.append(id, Nop::new()).unwrap();
    }
    drop(batch);
    // SAFETY: no HCA is there.
    unsafe { sq.queue.post(42, SendMessage::new(Inline(&long)).signaled()).unwrap() };
    for inside in [5, 6] {
        cq.produce(cqe(cqe_opcode::REQ, opcode::SEND, inside), &[]);
        let Ok(Some(Completion::UnexpectedCqe(unexpected))) = cq.reader.poll(&mut sq.queue) else {
            panic!("block {inside} was taken for a WQE");
        };
        assert_eq!(unexpected.reason, UnexpectedCqeReason::NotOutstanding);
    }
    cq.produce(cqe(cqe_opcode::REQ, opcode::SEND, 4), &[]);
    assert!(
        matches!(cq.reader.poll(&mut sq.queue), Ok(Some(Completion::Send(done))) if done.id == 42)
    );
    assert!(sq.queue.is_idle());
}

/// A request, and how it is posted.
#[derive(Clone, Copy)]
struct Mixed {
    kind: u32,
    signaled: bool,
}

impl Mixed {
    /// Kinds that the queue has a path of its own for, and kinds that it has not.
    fn blocks(self) -> u32 {
        [1, 1, 1, 1, 3][self.kind as usize]
    }

    fn append(self, batch: &mut Batch<'_>, id: u64) -> Result<(), PostError> {
        let (sge, remote) = (Sge::new(0x1000, 64, 7), Remote::new(0x2000, 9));
        match self.kind {
            0 => batch.append(id, SendMessage::new(sge).signaled_if(self.signaled)),
            1 => batch.append(id, RdmaRead::new(sge, remote).signaled_if(self.signaled)),
            2 => {
                batch.append(id, SendMessage::new(InlineBytes([1; 12])).signaled_if(self.signaled))
            }
            3 => batch.append(id, Nop::new().signaled_if(self.signaled)),
            _ => batch.append(id, SendMessage::new(Inline(&[2; 150])).signaled_if(self.signaled)),
        }
    }

    fn post(self, queue: &mut SendQueue, id: u64) -> Result<(), PostError> {
        let (sge, remote) = (Sge::new(0x1000, 64, 7), Remote::new(0x2000, 9));
        // SAFETY: no HCA is there.
        unsafe {
            match self.kind {
                0 => queue.post(id, SendMessage::new(sge).signaled_if(self.signaled)),
                1 => queue.post(id, RdmaRead::new(sge, remote).signaled_if(self.signaled)),
                2 => queue
                    .post(id, SendMessage::new(InlineBytes([1; 12])).signaled_if(self.signaled)),
                3 => queue.post(id, Nop::new().signaled_if(self.signaled)),
                _ => queue.post(id, SendMessage::new(Inline(&[2; 150])).signaled_if(self.signaled)),
            }
        }
    }
}

/// Whatever way a request takes into the ring, it is refused exactly where there is no block or no
/// CQE for it, and comes back with its id.
#[test]
fn every_way_of_posting_keeps_one_account() {
    let mut random = Random::from_clock();
    for _ in 0..rounds(60) {
        let (blocks, cqes) = (4 << random.below(4), 2 << random.below(4));
        let start = [0, 0x1_0000 - 1 - random.below(20)][random.below(2) as usize];
        let half = [0, HALF][random.below(2) as usize];
        let mut cq = Cq::new(cqes, 64, 0);
        let mut sq = Sq::new(&mut cq, blocks, start, half);
        // Posted and not retired: id, counter, what it was.
        let mut posted = VecDeque::<(u64, u32, Mixed)>::new();
        let (mut head, mut id) = (start, 0);
        let fits = |posted: &VecDeque<(u64, u32, Mixed)>, request: Mixed| {
            let used: u32 = posted.iter().map(|(.., it)| it.blocks()).sum();
            let signals = posted.iter().filter(|(.., it)| it.signaled).count() as u32;
            let requests = posted.len() as u32;
            let account = Account { blocks, used, slots: cqes, requests, signals };
            account.verdict(request.blocks(), request.signaled)
        };
        for _ in 0..rounds(400) {
            let count = 1 + random.below(3);
            let requests: Vec<_> = (0..count)
                .map(|_| Mixed { kind: random.below(5), signaled: random.below(2) == 0 })
                .collect();
            // Singly, in a batch, or in a batch that comes to nothing.
            let way = random.below(4);
            if way < 2 {
                for request in requests {
                    let expected = fits(&posted, request);
                    let got = request.post(&mut sq.queue, id);
                    assert_eq!(got, expected, "kind {}, seed {}", request.kind, random.seed());
                    if expected.is_ok() {
                        posted.push_back((id, head, request));
                        head = head.wrapping_add(request.blocks());
                    }
                    id += 1;
                }
            } else {
                let (mut batched, mut batch_head) = (posted.clone(), head);
                let mut batch = sq.queue.batch();
                for request in requests {
                    let expected = fits(&batched, request);
                    let got = request.append(&mut batch, id);
                    assert_eq!(got, expected, "kind {}, seed {}", request.kind, random.seed());
                    if expected.is_ok() {
                        batched.push_back((id, batch_head, request));
                        batch_head = batch_head.wrapping_add(request.blocks());
                    }
                    id += 1;
                }
                if way == 2 {
                    // SAFETY: no HCA is there.
                    unsafe { batch.ring() };
                    (posted, head) = (batched, batch_head);
                }
            }
            assert_eq!(sq.record.be32(4), head & 0xffff);
            for _ in 0..random.below(3) {
                let Some(at) = posted.iter().position(|(.., it)| it.signaled) else { break };
                let (expected, counter, _) = posted[at];
                posted.drain(..=at);
                cq.produce(cqe(cqe_opcode::REQ, 0, counter), &[]);
                let Ok(Some(Completion::Send(done))) = cq.reader.poll(&mut sq.queue) else {
                    panic!("no completion, seed {}", random.seed());
                };
                assert_eq!(done.id, expected, "seed {}", random.seed());
            }
        }
    }
}
