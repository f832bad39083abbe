//! Unit tests.

use mlx5_sys::ifc::{create_cq_out, create_qp_in, create_qp_out, opcode, rst2init_qp_in};
use proptest::prelude::*;

use super::*;
use crate::card::Complaints;
use crate::command::test::{Command, Rig, ring};
use crate::object::State;

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
fn a_doorbell_starts_what_it_names() {
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

/// Linux tests write-combining so: the copy asks for a completion, and the WQE in the ring does not.
#[test]
fn a_copy_that_arrives_whole_is_what_is_executed() {
    for (piece, completions) in [(64, 1), (8, 0)] {
        let mut queue = Queue::new();
        let copy = queue.post();
        let mut quiet = copy;
        quiet[11] = 0;
        queue.rig.write(queue.ring, &quiet);
        for at in (0..64).step_by(piece) {
            queue.store(0x800 + at, &copy[at..at + piece]);
        }
        assert_eq!(queue.completed(), completions, "in pieces of {piece}");
        let sq = &queue.rig.card.objects.qps[&queue.qp].sq;
        assert!(sq.fetched == 1 && sq.copied.is_none());
    }
}

/// The register tells of the WQEs, not the record (measured on ConnectX-6, evidence E001, E010).
#[test]
fn what_a_doorbell_names_runs_whatever_the_record_says() {
    for record in [0, 1, 2, 3, 9, 0xffff] {
        let mut queue = Queue::new();
        queue.post();
        let last = queue.post();
        queue.rig.write(queue.record + 4, &u32::to_be_bytes(record));
        queue.store(0x800, &last[..8]);
        assert_eq!(queue.completed(), 2, "{record}");
        let late = u64::from(record < 2 || record == 0xffff);
        let counted = Complaints { late_records: late, ..Complaints::default() };
        assert_eq!(queue.rig.card.complaints, counted, "{record}");
        // The same doorbell again, and the record after it.
        queue.store(0x900, &last[..8]);
        queue.rig.write(queue.record + 4, &2u32.to_be_bytes());
        assert_eq!(queue.completed(), 2);
        assert_eq!(queue.rig.card.complaints, counted);
    }
}

/// NVSHMEM and GPUNetIO ring so, with a record.
#[test]
fn a_doorbell_of_size_zero_names_the_end() {
    let mut queue = Queue::new();
    for _ in 0..3 {
        queue.post();
    }
    queue.store(0x800, &(2u64 << 40 | u64::from(queue.qp) << 8).to_be_bytes());
    assert_eq!(queue.completed(), 2);
    queue.store(0x900, &(3u64 << 40 | u64::from(queue.qp) << 8).to_be_bytes());
    assert_eq!(queue.completed(), 3);
    assert_eq!(queue.rig.card.complaints, Complaints::default());
}

#[test]
fn a_record_ahead_of_the_last_doorbell_is_counted_when_the_queue_ends() {
    let mut queue = Queue::new();
    let first = queue.post();
    queue.store(0x800, &first[..8]);
    queue.post();
    assert_eq!(queue.completed(), 1);
    assert_eq!(queue.rig.card.complaints, Complaints::default(), "the doorbell may still come");
    let reset = Command::new(opcode::QP_2RST, 0x10).set(rst2init_qp_in::QPN, queue.qp);
    queue.rig.run(&reset).unwrap();
    let counted = Complaints { early_records: 1, ..Complaints::default() };
    assert_eq!(queue.rig.card.complaints, counted);
}

#[test]
fn a_lost_doorbell_is_made_up_for_by_the_next_one() {
    for (pieces, offset) in
        [(&[8][..], 0x800), (&[4, 4], 0x900), (&[64], 0x800), (&[32, 32], 0x900)]
    {
        let mut queue = Queue::new();
        let (uar, qp) = (queue.rig.uar, queue.qp);
        let rules = format!("lose doorbell 1 qp {qp}; lose doorbell qp {}", qp ^ 1);
        queue.rig.card.set_faults(&rules.parse().unwrap(), 0);
        let wqe = queue.post();
        let mut at = 0;
        for piece in pieces {
            queue.rig.card.store(uar, offset + at, &wqe[at..at + piece]);
            at += piece;
        }
        assert_eq!(queue.completed(), 0, "{pieces:?}");
        let next = queue.post();
        queue.store(offset, &next[..8]);
        assert_eq!(queue.completed(), 2, "{pieces:?}");
        assert_eq!(queue.rig.card.complaints, Complaints::default());
        let tallies = queue.rig.card.fault_tallies();
        assert_eq!(tallies.iter().map(|tally| tally.struck).collect::<Vec<_>>(), [1, 0]);
    }
}

/// The record covers what the lost doorbell named, and the device loads it when the queue fails.
#[test]
fn what_a_lost_doorbell_named_is_flushed_in_error() {
    let mut queue = Queue::new();
    queue.rig.card.set_faults(&"lose doorbell".parse().unwrap(), 0);
    let wqe = queue.post();
    queue.store(0x800, &wqe);
    assert_eq!(queue.completed(), 0);
    let error = Command::new(opcode::QP_2ERR, 0x10).set(rst2init_qp_in::QPN, queue.qp);
    queue.rig.run(&error).unwrap();
    assert_eq!(queue.completed(), 1);
}

#[test]
fn a_copy_that_was_not_executed_is_forgotten_when_the_queue_pair_is_reset() {
    let mut queue = Queue::new();
    let copy = queue.post();
    let (uar, qp) = (queue.rig.uar, queue.qp);
    queue.rig.card.objects.qps.get_mut(&qp).unwrap().state = State::Sqd;
    queue.store(0x800, &copy);
    let reset = Command::new(opcode::QP_2RST, 0x10).set(rst2init_qp_in::QPN, qp);
    queue.rig.run(&reset).unwrap();
    queue.rig.rts(qp);
    let mut quiet = copy;
    quiet[11] = 0;
    queue.rig.write(queue.ring, &quiet);
    queue.rig.write(queue.record + 4, &1u32.to_be_bytes());
    // Without a doorbell, which would forget the copy too.
    queue.rig.card.ring_all(uar);
    assert_eq!(queue.completed(), 0, "the ring is executed, not the old copy");
    assert_eq!(queue.rig.card.objects.qps[&qp].sq.fetched, 1);
}

#[test]
fn a_copy_of_another_wqe_than_the_next_is_forgotten() {
    let mut queue = Queue::new();
    queue.post();
    let copy = queue.post();
    let mut quiet = copy;
    quiet[11] = 0;
    queue.rig.write(queue.ring + 64, &quiet);
    queue.store(0x800, &copy);
    assert_eq!(queue.completed(), 1, "the second is executed as it is in the ring");
}

#[test]
fn a_copy_that_differs_is_counted() {
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
fn stores_out_of_place_are_counted() {
    let mut queue = Queue::new();
    // A doorbell that was rung before, and not as the last.
    let wqe = queue.post();
    let last = queue.post();
    queue.store(0x800, &last[..8]);
    queue.store(0x800, &wqe[..8]);
    assert_eq!(queue.rig.card.complaints.wrong_doorbells, 1);
    assert_eq!(queue.completed(), 2);
    // Another UAR page, and a queue pair that does not exist.
    let uar = queue.rig.uar + 1;
    queue.rig.card.store(uar, 0x800, &wqe[..8]);
    let mut other = wqe;
    other[6] ^= 0xff;
    queue.store(0x800, &other[..8]);
    assert_eq!(queue.rig.card.complaints.stray_doorbells, 2);
    assert_eq!(queue.completed(), 2);
    // The middle of a register whose start was not stored, an offset without a register, and
    // half of a register alone.
    queue.store(0xc08, &wqe[..8]);
    queue.store(0x10, &wqe[..8]);
    queue.store(0x804, &wqe[..4]);
    queue.store(0x8f8, &wqe[..16]);
    assert_eq!(queue.rig.card.complaints.unknown_stores, 4);
    // More than the ring holds.
    queue.store(0x800, &(19u64 << 40 | u64::from(queue.qp) << 8).to_be_bytes());
    assert_eq!(queue.rig.card.complaints.overfull_queues, 1);
    assert_eq!(queue.completed(), 2);
}

#[test]
fn without_a_record_the_doorbell_says_what_is_posted() {
    let mut queue = Queue::with(|qp| qp.set(qpc::SEND_DBR_MODE.within(create_qp_in::QPC), 1u64));
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
