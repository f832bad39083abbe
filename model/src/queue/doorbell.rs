//! Registers of the UAR pages.

use mlx5_sys::ifc::{cqc, qpc};

use super::send::BLOCK;
use crate::card::{BlueflameCopy, Card};

/// Offsets into a UAR page (`mlx5dv.h`, `mlx5_ifc.h`; `device.h` for the EQ's).
const CQ_ARM: usize = 0x20;
const EQ_ARM: usize = 0x40;
const EQ_UPDATE: usize = 0x48;
/// The send doorbell of queues without a record (rdma-core, `tests/mlx5_base.py`).
pub(crate) const RECORDLESS: usize = 0x600;
/// BlueFlame registers of 0x200 bytes, each of two halves, up to the end of the page.
const BLUEFLAME: usize = 0x800;
const HALF: usize = 0x100;
const PAGE: usize = 0x1000;

impl Card {
    /// A store reached a register, as [`Card::store`] says. Returns the queue pair whose doorbell it
    /// rang, if that has work.
    pub(crate) fn stored(&mut self, uar: u32, offset: usize, bytes: &[u8]) -> Option<u32> {
        let upper = self.registers.upper.take();
        match (offset, bytes.len()) {
            (EQ_ARM | EQ_UPDATE, 4) => {
                let word = be32(bytes, 0);
                self.update_eq(uar, word >> 24, word, offset == EQ_ARM);
            }
            (CQ_ARM, 8) => self.arm_register(uar, be32(bytes, 0), be32(bytes, 4)),
            (RECORDLESS, 8) => return self.recordless(uar, be32(bytes, 0), be32(bytes, 4)),
            (CQ_ARM | RECORDLESS, 4) => self.registers.upper = Some((uar, offset, first(bytes))),
            (at, 4)
                if at % 8 == 4 && matches!(upper, Some((u, o, _)) if (u, o) == (uar, at - 4)) =>
            {
                let mut whole = [0; 8];
                if let Some((_, _, half)) = upper {
                    whole[..4].copy_from_slice(&half);
                }
                whole[4..].copy_from_slice(&first(bytes));
                return self.stored(uar, offset - 4, &whole);
            }
            (at, n) if (BLUEFLAME..PAGE).contains(&at) && at % HALF + n <= HALF && n > 0 => {
                return self.blueflame(uar, at & !(HALF - 1), at % HALF, bytes);
            }
            (_, n) => {
                tracing::warn!(uar, offset, n, "a store to no register");
                self.complaints.unknown_stores += 1;
            }
        }
        None
    }

    /// Returns the queue pairs with send queues and records whose doorbells are on a UAR page.
    pub(crate) fn send_queues_on(&self, uar: u32) -> Vec<u32> {
        let mut queues: Vec<u32> = self
            .objects
            .qps
            .values()
            .filter(|qp| qp.get(qpc::UAR_PAGE) == uar && qp.sq.blocks > 0)
            .filter(|qp| !qp.is_recordless())
            .map(|qp| qp.number)
            .collect();
        queues.sort_unstable();
        queues
    }

    /// Whether the doorbell record of a send queue has changed since it was last read.
    pub(crate) fn has_news(&mut self, qp: u32) -> bool {
        self.read_producer(qp).is_some_and(|(old, new)| old != new)
    }

    /// Looks at the arm words of the CQs on a UAR page.
    pub(crate) fn look_at_arms(&mut self, uar: u32) {
        let cqs: Vec<(u32, u64, u32)> = self
            .objects
            .cqs
            .iter()
            .filter(|(_, cq)| cq.get(cqc::UAR_PAGE) == uar)
            .map(|(n, cq)| (n, cq.record(), cq.arm_word))
            .collect();
        for (cqn, record, seen) in cqs {
            let mut word = [0; 4];
            if self.memory.read(record.wrapping_add(4), &mut word).is_ok()
                && u32::from_be_bytes(word) != seen
            {
                self.arm_cq(cqn, u32::from_be_bytes(word));
            }
        }
    }

    fn arm_register(&mut self, uar: u32, word: u32, cqn: u32) {
        if self.objects.cqs.get(cqn).is_none_or(|cq| cq.get(cqc::UAR_PAGE) != uar) {
            tracing::warn!(uar, cqn, "an arm of a CQ that is not on this UAR page");
            self.complaints.stray_doorbells += 1;
            return;
        }
        self.arm_cq(cqn, word);
    }

    fn blueflame(&mut self, uar: u32, half: usize, at: usize, bytes: &[u8]) -> Option<u32> {
        if at == 0 && bytes.len() == 4 {
            self.registers.upper = Some((uar, half, first(bytes)));
            return None;
        }
        if at == 0 && bytes.len() >= 8 {
            let (control, rest) = bytes.split_at(8);
            let index = u16::from_be_bytes([control[1], control[2]]);
            let (qp, ds) = (be32(control, 4) >> 8, control[7] & 0x3f);
            let length = usize::from(ds) * 16;
            self.registers
                .copies
                .insert((uar, half), BlueflameCopy { qp, index, length, reached: 8 });
            if !rest.is_empty() {
                self.compare(uar, half, 8, rest);
            }
            return self.doorbell(uar, qp, index);
        }
        match self.registers.copies.get(&(uar, half)) {
            Some(copy) if copy.reached == at => self.compare(uar, half, at, bytes),
            _ => {
                tracing::warn!(uar, half, at, "a BlueFlame store that continues nothing");
                self.complaints.unknown_stores += 1;
            }
        }
        None
    }

    /// Compares a part of a BlueFlame copy with the WQE in the ring, which is what is executed.
    fn compare(&mut self, uar: u32, half: usize, at: usize, bytes: &[u8]) {
        let Some(copy) = self.registers.copies.get_mut(&(uar, half)) else { return };
        copy.reached = at + bytes.len();
        let copy = *copy;
        let Some(qp) = self.objects.qps.get(&copy.qp) else { return };
        let ring = qp.sq.blocks as usize * BLOCK;
        // What is copied beyond the WQE's end fills the last block and means nothing.
        let length = bytes.len().min(copy.length.saturating_sub(at));
        if ring == 0 || length == 0 {
            return;
        }
        let mut met = vec![0; length];
        for (i, chunk) in met.chunks_mut(8).enumerate() {
            let offset = (usize::from(copy.index) * BLOCK + at + i * 8) % ring;
            // Copies are of multiples of eight bytes from an aligned ring; others differ below.
            let room = chunk.len().min(ring - offset);
            if qp.sq.pages.read(&*self.memory, offset, &mut chunk[..room]).is_err() {
                self.complaints.unmapped_queues += 1;
                return;
            }
        }
        if met != bytes[..length] {
            tracing::warn!(
                qp = copy.qp,
                index = copy.index,
                at,
                "a BlueFlame copy differs from its WQE"
            );
            self.complaints.blueflame_mismatches += 1;
        }
    }

    /// The doorbell of a queue with a record. Returns the queue pair, unless it is not on this page.
    fn doorbell(&mut self, uar: u32, number: u32, index: u16) -> Option<u32> {
        let Some(qp) =
            self.objects.qps.get(&number).filter(|qp| {
                qp.get(qpc::UAR_PAGE) == uar && qp.sq.blocks > 0 && !qp.is_recordless()
            })
        else {
            tracing::warn!(uar, qp = number, "a doorbell for a QP that is not on this UAR page");
            self.complaints.stray_doorbells += 1;
            return None;
        };
        let blocks = qp.sq.blocks;
        if let Some((_, producer)) = self.read_producer(number) {
            let behind = u32::from(producer.wrapping_sub(index));
            if behind == 0 || behind > blocks {
                tracing::warn!(
                    qp = number,
                    index,
                    producer,
                    "a doorbell for a WQE that its record does not hold"
                );
                self.complaints.wrong_doorbells += 1;
            }
        }
        Some(number)
    }

    /// Handles a doorbell of a queue without a doorbell record. It has the first eight bytes of the
    /// last WQE, and the posted WQEs end behind that one. Or its size is zero, and its counter is
    /// the one behind the last WQE.
    ///
    /// rdma-core's test rings the first form, GPUNetIO the second. Both are handled here.
    fn recordless(&mut self, uar: u32, first: u32, second: u32) -> Option<u32> {
        let (index, number, ds) = ((first >> 8) as u16, second >> 8, (second & 0x3f) as u16);
        let Some(qp) =
            self.objects.qps.get_mut(&number).filter(|qp| {
                qp.get(qpc::UAR_PAGE) == uar && qp.sq.blocks > 0 && qp.is_recordless()
            })
        else {
            tracing::warn!(uar, qp = number, "a doorbell for a QP that is not on this UAR page");
            self.complaints.stray_doorbells += 1;
            return None;
        };
        let producer = index.wrapping_add(ds.div_ceil(4));
        if producer.wrapping_sub(qp.sq.producer) as i16 <= 0 {
            tracing::warn!(qp = number, index, "a doorbell for a WQE that is known");
            self.complaints.wrong_doorbells += 1;
            return None;
        }
        if u32::from(producer.wrapping_sub(qp.sq.fetched)) > qp.sq.blocks {
            tracing::warn!(qp = number, index, "a doorbell beyond what the ring holds");
            self.complaints.overfull_queues += 1;
            return None;
        }
        qp.sq.producer = producer;
        Some(number)
    }

    /// Reads the send counter of a doorbell record, as a rung doorbell makes a card do: the counter
    /// before and now.
    fn read_producer(&mut self, number: u32) -> Option<(u16, u16)> {
        let qp = self.objects.qps.get_mut(&number)?;
        qp.sq.rung = true;
        let mut word = [0; 4];
        if let Err(fault) = self.memory.read(qp.record().wrapping_add(4), &mut word) {
            tracing::error!(qp = number, %fault, "the doorbell record is not there");
            self.complaints.unmapped_queues += 1;
            return None;
        }
        let old = qp.sq.producer;
        qp.sq.producer = u32::from_be_bytes(word) as u16;
        if u32::from(qp.sq.producer.wrapping_sub(qp.sq.fetched)) > qp.sq.blocks {
            tracing::warn!(qp = number, "more WQEs are posted than the ring holds");
            self.complaints.overfull_queues += 1;
        }
        Some((old, qp.sq.producer))
    }
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
}

fn first(bytes: &[u8]) -> [u8; 4] {
    be32(bytes, 0).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use mlx5_sys::ifc::{create_cq_out, create_qp_in, create_qp_out};
    use proptest::prelude::*;

    use super::*;
    use crate::card::Complaints;
    use crate::command::test::{Command, Rig, ring};

    /// A queue pair in RTS that posts signaled NOPs.
    struct Queue {
        rig: Rig,
        qp: u32,
        cq: u32,
        ring: u64,
        record: u64,
        posted: u16,
    }

    impl Queue {
        fn new() -> Self {
            Self::with(|qp| qp)
        }

        fn with(change: impl FnOnce(Command) -> Command) -> Self {
            let mut rig = Rig::new();
            let create = rig.create_cq();
            let cq = rig.number(&create, create_cq_out::CQN);
            let create = change(rig.create_qp(cq, cq));
            let qp = rig.number(&create, create_qp_out::QPN);
            let record = qpc::DBR_ADDR.within(create_qp_in::QPC).get(&create.0);
            rig.rts(qp);
            Self { rig, qp, cq, ring: ring(&create) + 256, record, posted: 0 }
        }

        /// Writes a NOP of four segments to the ring and the record; returns its block.
        fn post(&mut self) -> [u8; 64] {
            let mut wqe: [u8; 64] = std::array::from_fn(|i| i as u8);
            wqe[0] = 0;
            wqe[1..3].copy_from_slice(&self.posted.to_be_bytes());
            wqe[3] = 0;
            wqe[4..8].copy_from_slice(&(self.qp << 8 | 4).to_be_bytes());
            wqe[8..12].copy_from_slice(&[0, 0, 0, 8]);
            self.rig.write(self.ring + u64::from(self.posted % 16) * 64, &wqe);
            self.posted += 1;
            self.rig.write(self.record + 4, &u32::from(self.posted).to_be_bytes());
            wqe
        }

        fn store(&mut self, offset: usize, bytes: &[u8]) {
            let uar = self.rig.uar;
            self.rig.card.store(uar, offset, bytes);
        }

        /// Completions so far, once everything has been executed.
        fn completed(&mut self) -> u32 {
            while self.rig.card.pump() | self.rig.card.settle() {
                self.rig.card.outbox.clear();
            }
            self.rig.card.objects.cqs.get(self.cq).unwrap().producer
        }
    }

    #[test]
    fn a_doorbell_starts_what_the_record_says() {
        let mut queue = Queue::new();
        queue.post();
        let last = queue.post();
        assert_eq!(queue.completed(), 0);
        queue.store(0x800, &last[..8]);
        assert_eq!(queue.completed(), 2);
        // Two halves, at the other register's other half.
        let last = queue.post();
        queue.store(0xb00, &last[..4]);
        assert_eq!(queue.completed(), 2);
        queue.store(0xb04, &last[4..8]);
        assert_eq!(queue.completed(), 3);
        assert_eq!(queue.rig.card.complaints, Complaints::default());
    }

    #[test]
    fn a_blueflame_copy_is_a_doorbell_whole_or_in_parts() {
        for pieces in [&[64][..], &[32, 32], &[8; 8], &[16, 8, 40]] {
            let mut queue = Queue::new();
            let wqe = queue.post();
            let mut at = 0;
            for piece in pieces {
                queue.store(0x900 + at, &wqe[at..at + piece]);
                at += piece;
            }
            assert_eq!(queue.completed(), 1);
            assert_eq!(queue.rig.card.complaints, Complaints::default());
        }
    }

    #[test]
    fn a_copy_of_the_last_of_several_starts_them_all() {
        for pieces in [&[64][..], &[8; 8]] {
            let mut queue = Queue::new();
            // A WQE that was fetched before, then four of which the last is copied.
            let first = queue.post();
            queue.store(0x800, &first[..8]);
            assert_eq!(queue.completed(), 1);
            let wqe = [(); 4].map(|()| queue.post())[3];
            let mut at = 0;
            for piece in pieces {
                queue.store(0x900 + at, &wqe[at..at + piece]);
                at += piece;
            }
            assert_eq!(queue.completed(), 5);
            assert_eq!(queue.rig.card.complaints, Complaints::default());
        }
    }

    #[test]
    fn a_copy_that_differs_is_counted_and_the_ring_is_executed() {
        for piece in [64, 8] {
            let mut queue = Queue::new();
            let mut wqe = queue.post();
            wqe[40] ^= 1;
            for at in (0..64).step_by(piece) {
                queue.store(0x800 + at, &wqe[at..at + piece]);
            }
            assert_eq!(queue.completed(), 1);
            let counted = Complaints { blueflame_mismatches: 1, ..Complaints::default() };
            assert_eq!(queue.rig.card.complaints, counted);
        }
    }

    #[test]
    fn copies_run_on_across_the_end_of_the_ring() {
        let mut queue = Queue::new();
        let sq = &mut queue.rig.card.objects.qps.get_mut(&queue.qp).unwrap().sq;
        (sq.fetched, sq.producer, queue.posted) = (15, 15, 15);
        let mut first = queue.post();
        first[7] = 8;
        queue.rig.write(queue.ring + 15 * 64, &first);
        let second = [0x77; 64];
        queue.rig.write(queue.ring, &second);
        queue.rig.write(queue.record + 4, &17u32.to_be_bytes());
        queue.store(0x800, &[first, second].concat());
        assert_eq!(queue.completed(), 1);
        assert_eq!(queue.rig.card.complaints, Complaints::default());
    }

    #[test]
    fn stores_out_of_order_and_out_of_place_are_counted() {
        let mut queue = Queue::new();
        // Doorbell before record: the WQE it names is not there yet.
        let wqe = queue.post();
        queue.rig.write(queue.record + 4, &[0; 4]);
        queue.store(0x800, &wqe[..8]);
        assert_eq!(queue.rig.card.complaints.wrong_doorbells, 1);
        assert_eq!(queue.completed(), 0);
        queue.rig.write(queue.record + 4, &1u32.to_be_bytes());
        // Another UAR page, and a queue pair that does not exist.
        let uar = queue.rig.uar + 1;
        queue.rig.card.store(uar, 0x800, &wqe[..8]);
        let mut other = wqe;
        other[6] ^= 0xff;
        queue.store(0x800, &other[..8]);
        assert_eq!(queue.rig.card.complaints.stray_doorbells, 2);
        assert_eq!(queue.completed(), 0);
        // The middle of a register whose start was not stored, an offset without a register, and
        // half of a register alone.
        queue.store(0xc08, &wqe[..8]);
        queue.store(0x10, &wqe[..8]);
        queue.store(0x804, &wqe[..4]);
        queue.store(0x8f8, &wqe[..16]);
        assert_eq!(queue.rig.card.complaints.unknown_stores, 4);
        // More than the ring holds.
        queue.rig.write(queue.record + 4, &17u32.to_be_bytes());
        queue.store(0x800, &wqe[..8]);
        assert_eq!(queue.rig.card.complaints.overfull_queues, 1);
    }

    #[test]
    fn without_a_record_the_doorbell_says_what_is_posted() {
        let mut queue =
            Queue::with(|qp| qp.set(qpc::SEND_DBR_MODE.within(create_qp_in::QPC), 1u64));
        let ring = |queue: &mut Queue, wqe: &[u8]| queue.store(0x600, &wqe[..8]);
        // Two that one doorbell tells of, and nothing in the record counts.
        queue.post();
        let second = queue.post();
        queue.rig.write(queue.record + 4, &9u32.to_be_bytes());
        assert_eq!(queue.completed(), 0);
        ring(&mut queue, &second);
        assert_eq!(queue.completed(), 2);
        // The counter behind the last, and no size; in two halves.
        queue.post();
        let mut behind = queue.post();
        behind[1..3].copy_from_slice(&4u16.to_be_bytes());
        behind[7] = 0;
        queue.store(0x600, &behind[..4]);
        assert_eq!(queue.completed(), 2);
        queue.store(0x604, &behind[4..8]);
        assert_eq!(queue.completed(), 4);
        assert_eq!(queue.rig.card.complaints, Complaints::default());
        // Neither the other registers nor a look at the doorbell records post anything.
        let fifth = queue.post();
        queue.store(0x800, &fifth[..8]);
        assert_eq!(queue.rig.card.complaints.stray_doorbells, 1);
        let uar = queue.rig.uar;
        queue.rig.card.ring_all(uar);
        assert_eq!(queue.completed(), 4);
        // A doorbell that is known, one far ahead, and another page.
        ring(&mut queue, &second);
        assert_eq!(queue.rig.card.complaints.wrong_doorbells, 1);
        behind[1..3].copy_from_slice(&21u16.to_be_bytes());
        ring(&mut queue, &behind);
        assert_eq!(queue.rig.card.complaints.overfull_queues, 1);
        queue.rig.card.store(uar + 1, 0x600, &fifth[..8]);
        assert_eq!(queue.rig.card.complaints.stray_doorbells, 2);
        assert_eq!(queue.completed(), 4);
        ring(&mut queue, &fifth);
        assert_eq!(queue.completed(), 5);
        // This register is no doorbell for queues that have a doorbell record.
        let mut usual = Queue::new();
        let wqe = usual.post();
        ring(&mut usual, &wqe);
        assert_eq!(usual.rig.card.complaints.stray_doorbells, 1);
    }

    #[test]
    fn looking_at_a_page_finds_new_work_and_new_arms() {
        let mut queue = Queue::new();
        queue.post();
        let uar = queue.rig.uar;
        queue.rig.card.ring_all(uar + 1);
        assert_eq!(queue.completed(), 0);
        queue.rig.card.ring_all(uar);
        assert_eq!(queue.completed(), 1);
        let record = queue.rig.card.objects.cqs.get(queue.cq).unwrap().record();
        queue.rig.write(record + 4, &(1u32 << 28).to_be_bytes());
        queue.rig.card.ring_all(uar);
        assert_eq!(queue.rig.card.objects.eqs.get(queue.rig.eq).unwrap().producer, 1);
    }

    #[test]
    fn arms_of_another_page_do_nothing() {
        let mut queue = Queue::new();
        let uar = queue.rig.uar + 1;
        let arm = u64::from(queue.cq).to_be_bytes();
        queue.rig.card.store(uar, 0x20, &arm);
        assert_eq!(queue.rig.card.complaints.stray_doorbells, 1);
        assert_eq!(queue.rig.card.objects.cqs.get(queue.cq).unwrap().armed, None);
        queue.store(0x20, &arm[..4]);
        queue.store(0x24, &arm[4..]);
        assert!(queue.rig.card.objects.cqs.get(queue.cq).unwrap().armed.is_some());
    }

    proptest! {
        #[test]
        fn random_stores_never_panic(
            stores in proptest::collection::vec(
                (0usize..0x1100, proptest::collection::vec(any::<u8>(), 0..80)),
                0..40,
            ),
        ) {
            let mut queue = Queue::new();
            queue.post();
            for (offset, bytes) in stores {
                queue.store(offset, &bytes);
            }
            queue.completed();
        }
    }
}
