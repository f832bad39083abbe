//! Requests that complete in any order, as those of different streams may, against an oracle.

use std::collections::VecDeque;

use mlx5_sys::cqe::opcode as cqe_opcode;
use mlx5_sys::wqe::opcode;

use super::{Account, Cq, Sq, cqe};
use crate::cqe::{Completion, UnexpectedCqe, UnexpectedCqeReason};
use crate::ib::Counter;
use crate::ring::random::{Random, rounds};
use crate::ring::source::CompletionOrder;
use crate::wqe::{Inline, InlineBytes, Nop, SendMessage};

const BLOCKS: u32 = 32;
const CQES: u32 = 8;

struct Posted {
    index: u32,
    id: u64,
    blocks: u32,
    completed: bool,
}

struct Case {
    cq: Cq,
    sq: Sq,
    head: u32,
    /// From the oldest on that has not completed.
    posted: VecDeque<Posted>,
}

impl Case {
    fn new(random: &mut Random) -> Self {
        let start = [0, 0xfff0, random.below(0x1_0000)][random.below(3) as usize];
        let mut cq = Cq::new(CQES, 64, random.next() as u32);
        let half = 256 * random.below(2) as usize;
        let sq = Sq::ordered(&mut cq.reader, BLOCKS, start, half, CompletionOrder::Any);
        Self { cq, sq, head: start, posted: VecDeque::new() }
    }

    fn used(&self) -> u32 {
        self.posted.iter().map(|posted| posted.blocks).sum()
    }

    /// Posts a request. Each brings a completion, also one that does not ask for it.
    fn post(&mut self, random: &mut Random) {
        let (kind, signaled, id) = (random.below(4), random.below(2) == 0, random.next());
        let queue = &mut self.sq.queue;
        let nop = Nop::new().signaled_if(signaled);
        // SAFETY: no HCA is there.
        let (result, blocks) = unsafe {
            match kind {
                0 => (queue.post(id, nop), 1),
                1 => {
                    (queue.post(id, SendMessage::new(InlineBytes([1; 8])).signaled_if(signaled)), 1)
                }
                2 => {
                    let mut batch = queue.batch();
                    let result = batch.append(id, nop);
                    // Not posted, and overwritten by the next one.
                    if random.below(2) == 0 {
                        return;
                    }
                    batch.ring();
                    (result, 1)
                }
                _ => (queue.post(id, SendMessage::new(Inline(&[2; 150])).signaled_if(signaled)), 3),
            }
        };
        let requests = self.posted.len() as u32;
        let signals = requests;
        let account = Account { blocks: BLOCKS, used: self.used(), slots: CQES, requests, signals };
        assert_eq!(result, account.verdict(blocks, true));
        if result.is_ok() {
            self.posted.push_back(Posted { index: self.head, id, blocks, completed: false });
            self.head = self.head.wrapping_add(blocks);
        }
    }

    /// A completion of any request.
    fn complete(&mut self, random: &mut Random) {
        let Some(last) = self.posted.len().checked_sub(1) else { return };
        let at = random.below(last as u32 + 1) as usize;
        let Posted { index, id, completed, .. } = self.posted[at];
        self.cq.produce(cqe(cqe_opcode::REQ, opcode::NOP, index), &[]);
        let found = self.cq.reader.poll(&mut self.sq.queue);
        if completed {
            let reason = UnexpectedCqeReason::NotOutstanding;
            let Ok(Some(Completion::UnexpectedCqe(UnexpectedCqe { reason: found, .. }))) = found
            else {
                panic!("{found:?}")
            };
            assert_eq!(found, reason);
            return;
        }
        assert!(matches!(found, Ok(Some(Completion::Send(done))) if done.id == id), "{found:?}");
        let (alone, entry) = self.sq.queue.ring.state.retired_alone().unwrap();
        assert_eq!((alone, entry.id), (Counter::new(index), id));
        self.posted[at].completed = true;
        while self.posted.front().is_some_and(|posted| posted.completed) {
            self.posted.pop_front();
        }
    }

    fn check(&self) {
        let expected: Vec<_> = self
            .posted
            .iter()
            .filter(|posted| !posted.completed)
            .map(|posted| (Counter::new(posted.index), posted.id))
            .collect();
        let ring = &self.sq.queue.ring;
        let found: Vec<_> = ring.state.outstanding().map(|(at, entry)| (at, entry.id)).collect();
        assert_eq!(found, expected);
        assert_eq!(self.sq.queue.free_blocks(), BLOCKS - self.used());
        assert_eq!(self.sq.queue.is_idle(), expected.is_empty());
    }
}

#[test]
fn completions_in_any_order_retire_one_request_each_and_free_blocks_up_to_the_oldest() {
    let mut random = Random::from_clock();
    for _ in 0..rounds(100) {
        let mut case = Case::new(&mut random);
        for _ in 0..rounds(200) {
            match random.below(2) {
                0 => case.complete(&mut random),
                _ => case.post(&mut random),
            }
            case.check();
        }
    }
}
