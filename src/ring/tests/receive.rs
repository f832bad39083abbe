//! Tests of receives, posted in every way, against an oracle of the outstanding ones.

use std::collections::VecDeque;

use mlx5_sys::cqe::{Cqe64, FORMAT_INLINE_32, FORMAT_SHIFT, opcode};

use super::{Cq, Memory, Rq, cqe};
use crate::cqe::{Completion, UnexpectedCqeReason};
use crate::ring::PostError;
use crate::ring::random::Random;
use crate::wqe::Sge;

/// A receive's segments as they must lie in the ring.
fn image(list: &[Sge], max_sge: u32) -> Vec<u8> {
    let mut wqe = Vec::new();
    for sge in list.iter().filter(|sge| sge.length != 0) {
        wqe.extend(sge.length.to_be_bytes());
        wqe.extend(sge.lkey.to_be_bytes());
        wqe.extend(sge.addr.to_be_bytes());
    }
    if wqe.len() < max_sge as usize * 16 {
        wqe.extend([0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
    wqe
}

/// A posted receive: index, id, bytes.
type Posted = (u32, u64, Vec<u8>);

struct Case {
    cq: Cq,
    rq: Rq,
    entries: u32,
    max_sge: u32,
    /// Receives that CQ slots are reserved for.
    slots: u32,
    head: u32,
    next_id: u64,
    outstanding: VecDeque<Posted>,
}

impl Case {
    fn new(random: &mut Random) -> Self {
        let (entries, max_sge) = (4 << random.below(4), 1 << random.below(3));
        let start = [0, 0xfffe, random.below(0x1_0000)][random.below(3) as usize];
        // Sometimes there are fewer CQEs than slots.
        let mut cq = Cq::new(entries.max(8) / (1 + random.below(2)), 64, random.next() as u32);
        let slots = cq.reader.capacity().min(entries);
        let rq = Rq::new(&mut cq, entries, max_sge * 16, start);
        let (next_id, outstanding) = (random.next(), VecDeque::new());
        Self { cq, rq, entries, max_sge, slots, head: start, next_id, outstanding }
    }

    fn list(&self, random: &mut Random) -> Vec<Sge> {
        let count = random.below(self.max_sge + 1);
        let sge = |_| Sge::new(random.next(), random.below(3), random.next() as u32);
        (0..count).map(sge).collect()
    }

    /// Returns the expected result of the next post with `before` receives in its batch before it.
    fn expected(&self, before: u32) -> Result<(), PostError> {
        let used = self.outstanding.len() as u32 + before;
        if used < self.slots {
            Ok(())
        } else if self.slots == self.entries {
            Err(PostError::QueueFull { free: 0 })
        } else {
            Err(PostError::CqFull { slots: self.slots })
        }
    }

    fn single(&mut self, random: &mut Random) {
        let (id, expected) = (self.next_id, self.expected(0));
        let (result, list) = if random.below(2) == 0 {
            let sge = Sge::new(random.next(), 1 + random.below(9), 7);
            // SAFETY: no HCA is there.
            (unsafe { self.rq.queue.post(id, sge) }, vec![sge])
        } else {
            let list = self.list(random);
            // SAFETY: no HCA is there.
            (unsafe { self.rq.queue.post(id, &list[..]) }, list)
        };
        assert_eq!(result, expected);
        if result.is_ok() {
            self.post(vec![(self.head, id, image(&list, self.max_sge))]);
        }
    }

    fn batch(&mut self, random: &mut Random) {
        let wanted: Vec<_> = (0..random.below(self.entries + 3))
            .map(|at| {
                let list = self.list(random);
                (self.next_id.wrapping_add(u64::from(at)), list, self.expected(at))
            })
            .collect();
        let mut batch = self.rq.queue.batch();
        let mut posted = Vec::new();
        for (id, list, expected) in wanted {
            let result = match list[..] {
                [sge] => batch.append(id, sge),
                _ => batch.append(id, &list[..]),
            };
            assert_eq!(result, expected);
            if result.is_ok() {
                posted.push((self.head + posted.len() as u32, id, image(&list, self.max_sge)));
            }
            assert_eq!(batch.len() as usize, posted.len());
        }
        // Otherwise it is dropped, or leaked, which is the same.
        if random.below(2) == 0 {
            // SAFETY: no HCA is there.
            unsafe { batch.ring() };
            self.post(posted);
        }
    }

    fn post(&mut self, posted: Vec<Posted>) {
        self.head += posted.len() as u32;
        self.next_id = self.next_id.wrapping_add(posted.len() as u64);
        self.outstanding.extend(posted);
    }

    fn retire(&mut self) {
        let Some((index, id, _)) = self.outstanding.pop_front() else { return };
        self.cq.produce(cqe(opcode::RESP_SEND, 0, index), &[]);
        let found = self.cq.reader.poll(&mut self.rq.queue).unwrap();
        assert!(matches!(found, Some(Completion::Receive(done)) if done.id == id), "{found:?}");
    }

    fn check(&self) {
        let ring = self.rq.buffer.read();
        for (index, _, wqe) in &self.outstanding {
            let at = (index % self.entries * self.max_sge) as usize * 16;
            assert_eq!(&ring[at..at + wqe.len()], wqe);
        }
        assert_eq!(self.rq.record.be32(0), self.head & 0xffff);
        assert_eq!(self.rq.queue.outstanding() as usize, self.outstanding.len());
    }
}

/// A CQE that names another receive than the oldest, of every kind: it says so, and retires
/// nothing.
#[test]
fn poll_reports_a_receive_out_of_order_with_both_indices() {
    for start in [0, 0xffff, 7] {
        let mut cq = Cq::new(64, 64, 0);
        let memory = Memory::new(64, 0xee);
        let address = memory.at(0).as_ptr().expose_provenance() as u64;
        let mut rq = Rq::new(&mut cq, 8, 16, start);
        for id in 0..5 {
            // SAFETY: the memory outlives the queue.
            unsafe { rq.queue.post(id, Sge::new(address, 64, 1)) }.unwrap();
        }
        let plain = |index: u32| cqe(opcode::RESP_SEND, 0, start + index);
        let short = |index: u32| {
            let mut entry = plain(index);
            entry.op_own |= FORMAT_INLINE_32 << FORMAT_SHIFT;
            entry.byte_cnt = 8.into();
            entry
        };
        let failed = |index: u32| cqe(opcode::RESP_ERR, 0, start + index);
        let wrong =
            [1, 4, 5, 8, 0x7fff].map(|index| (index, [plain(index), short(index), failed(index)]));
        for (index, entry) in wrong.iter().flat_map(|(index, all)| all.map(|entry| (*index, entry)))
        {
            cq.produce(entry, &[]);
            let Ok(Some(Completion::UnexpectedCqe(unexpected))) = cq.reader.poll(&mut rq.queue)
            else {
                panic!("claimed")
            };
            let (oldest, named) = (start as u16, (start + index) as u16);
            assert_eq!(unexpected.reason, UnexpectedCqeReason::NotOldest { oldest, named });
            let shown = format!("{unexpected:?}");
            assert!(shown.contains(&format!("oldest: {oldest}, named: {named}")), "{shown}");
            assert_eq!(rq.queue.outstanding(), 5);
        }
        assert_eq!(memory.read(), [0xee; 64]);
        // The right ones are taken afterwards.
        for index in 0..5 {
            cq.produce(if index % 2 == 0 { plain(index) } else { short(index) }, &[]);
            let found = cq.reader.poll(&mut rq.queue).unwrap();
            assert!(
                matches!(found, Some(Completion::Receive(done)) if done.id == u64::from(index))
            );
        }
        cq.produce(plain(5), &[]);
        let Ok(Some(Completion::UnexpectedCqe(unexpected))) = cq.reader.poll(&mut rq.queue) else {
            panic!("claimed")
        };
        assert_eq!(unexpected.reason, UnexpectedCqeReason::NotOutstanding);
    }
}

/// Queue pairs with neighboring numbers often share a CQ, and indices of receives wrap.
#[test]
fn a_receive_with_a_wrapped_index_is_not_that_of_the_next_queue_pair() {
    let mut cq = Cq::new(64, 64, 0);
    let memory = Memory::new(64, 0xee);
    let address = memory.at(0).as_ptr().expose_provenance() as u64;
    let mut rq = Rq::new(&mut cq, 8, 16, 0xffff);
    for id in 0..2 {
        // SAFETY: the memory outlives the queue.
        unsafe { rq.queue.post(id, Sge::new(address, 64, 1)) }.unwrap();
    }
    let received = |index| cqe(opcode::RESP_SEND, 0, index);
    cq.produce(received(0xffff), &[]);
    let found = cq.reader.poll(&mut rq.queue).unwrap();
    assert!(matches!(found, Some(Completion::Receive(done)) if done.id == 0));
    let neighbor = Cqe64 { sop_drop_qpn: (super::QPN + 1).into(), ..received(0) };
    cq.produce(neighbor, &[]);
    let found = cq.reader.poll(&mut rq.queue).unwrap();
    assert!(matches!(found, Some(Completion::UnexpectedCqe(_))), "{found:?}");
    cq.produce(received(0), &[]);
    let found = cq.reader.poll(&mut rq.queue).unwrap();
    assert!(matches!(found, Some(Completion::Receive(done)) if done.id == 1));
}

/// The HCA sees what was posted, whole and in its place, whatever was dropped or leaked before.
#[test]
fn receives_in_every_way_are_where_the_card_looks() {
    let mut random = Random::from_clock();
    for _ in 0..if cfg!(miri) { 2 } else { 200 } {
        let mut case = Case::new(&mut random);
        for _ in 0..60 {
            match random.below(4) {
                0 => case.single(&mut random),
                1 => case.batch(&mut random),
                _ => case.retire(),
            }
            case.check();
        }
    }
}
