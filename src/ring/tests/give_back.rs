//! Requests that are retired at once and given back one by one, against an oracle.

use std::collections::VecDeque;

use mlx5_sys::cqe::opcode as cqe_opcode;
use mlx5_sys::wqe::opcode;

use super::{Account, Cq, Sq, cqe};
use crate::cqe::Completion;
use crate::ib::Counter;
use crate::ring::random::{Random, rounds};
use crate::wqe::{Inline, InlineBytes, Nop, SendMessage};

const BLOCKS: u32 = 32;
const CQES: u32 = 8;

struct Posted {
    index: u32,
    id: u64,
    blocks: u32,
    signaled: bool,
}

struct Case {
    cq: Cq,
    sq: Sq,
    head: u32,
    next_id: u64,
    /// Not given back, oldest first.
    outstanding: VecDeque<Posted>,
}

impl Case {
    fn new(random: &mut Random) -> Self {
        let start = [0, 0xfff0, random.below(0x1_0000)][random.below(3) as usize];
        let mut cq = Cq::new(CQES, 64, random.next() as u32);
        let sq = Sq::new(&mut cq, BLOCKS, start, 256 * random.below(2) as usize);
        Self { cq, sq, head: start, next_id: random.next(), outstanding: VecDeque::new() }
    }

    fn used(&self) -> u32 {
        self.outstanding.iter().map(|posted| posted.blocks).sum()
    }

    fn post(&mut self, random: &mut Random) {
        let (kind, signaled, id) = (random.below(3), random.below(3) == 0, self.next_id);
        let queue = &mut self.sq.queue;
        // SAFETY: no HCA is there.
        let (result, blocks) = unsafe {
            match kind {
                0 => (queue.post(id, Nop::new().signaled_if(signaled)), 1),
                1 => {
                    (queue.post(id, SendMessage::new(InlineBytes([1; 8])).signaled_if(signaled)), 1)
                }
                _ => (queue.post(id, SendMessage::new(Inline(&[2; 150])).signaled_if(signaled)), 3),
            }
        };
        let signals = self.outstanding.iter().filter(|posted| posted.signaled).count() as u32;
        let (used, requests) = (self.used(), self.outstanding.len() as u32);
        let account = Account { blocks: BLOCKS, used, slots: CQES, requests, signals };
        assert_eq!(result, account.verdict(blocks, signaled));
        if result.is_ok() {
            self.outstanding.push_back(Posted { index: self.head, id, blocks, signaled });
            self.head = self.head.wrapping_add(blocks);
            self.next_id = self.next_id.wrapping_add(1);
        }
    }

    fn drop_a_batch(&mut self) {
        let mut batch = self.sq.queue.batch();
        for id in 0..3 {
            // There may be no room.
            let _ = batch.append(id, Nop::new().signaled());
        }
    }

    fn check(&self) {
        let ring = &self.sq.queue.ring;
        let expected: Vec<_> =
            self.outstanding.iter().map(|posted| (Counter::new(posted.index), posted.id)).collect();
        let found: Vec<_> = ring.state.outstanding().map(|(at, entry)| (at, entry.id)).collect();
        assert_eq!(found, expected);
        assert_eq!(self.sq.queue.free_blocks(), BLOCKS - self.used());
    }

    /// A completion of the next signaled request, or of one after it, and what follows.
    fn complete(&mut self, random: &mut Random) {
        let signaled: Vec<_> = (0..self.outstanding.len())
            .filter(|&at| self.outstanding[at].signaled)
            .take(1 + random.below(2) as usize)
            .collect();
        let Some(&last) = signaled.last() else { return };
        let Posted { index, id, .. } = self.outstanding[last];
        self.cq.produce(cqe(cqe_opcode::REQ, opcode::NOP, index), &[]);
        let mark = self.sq.queue.ring.mark();
        let found = self.cq.reader.poll(&mut self.sq.queue);
        assert!(matches!(found, Ok(Some(Completion::Send(done))) if done.id == id), "{found:?}");
        let end = self.sq.queue.ring.state.hold_back(mark);
        for _ in 0..=last {
            self.check();
            let (at, entry) = self.sq.queue.ring.state.give_back(end).unwrap();
            let posted = self.outstanding.pop_front().unwrap();
            assert_eq!((at, entry.id), (Counter::new(posted.index), posted.id));
            // Room that is given back can be used at once.
            match random.below(4) {
                0 => self.post(random),
                1 => self.drop_a_batch(),
                _ => {}
            }
        }
        assert!(self.sq.queue.ring.state.give_back(end).is_none());
    }
}

#[test]
fn requests_are_given_back_in_order_and_keep_their_place_until_then() {
    let mut random = Random::from_clock();
    for _ in 0..rounds(100) {
        let mut case = Case::new(&mut random);
        for _ in 0..rounds(200) {
            match random.below(8) {
                0 | 1 => case.complete(&mut random),
                2 => case.drop_a_batch(),
                _ => case.post(&mut random),
            }
            case.check();
        }
    }
}
