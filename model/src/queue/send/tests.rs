//! Unit tests.

use mlx5_sys::ifc::create_qp_out;

use super::super::{Data, SendWqe};
use super::*;
use crate::command::test::{Rig, ring};

/// A queue pair in RTS with a send queue of 16 blocks.
struct Queue {
    rig: Rig,
    qp: u32,
    ring: u64,
}

impl Queue {
    fn new() -> Self {
        let mut rig = Rig::new();
        let cq = rig.cq();
        let create = rig.create_qp(cq, cq);
        let qp = rig.number(&create, create_qp_out::QPN);
        rig.rts(qp);
        // Eight receive WQEs of 32 bytes come first.
        Self { rig, qp, ring: ring(&create) + 256 }
    }

    /// Starts the queue's counters somewhere.
    fn at(mut self, index: u16) -> Self {
        let sq = &mut self.rig.card.objects.qps.get_mut(&self.qp).unwrap().sq;
        (sq.fetched, sq.producer) = (index, index);
        self
    }

    fn control(&self, index: u16, opcode: u8, ds: u8) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend_from_slice(&index.to_be_bytes());
        bytes.push(opcode);
        bytes.extend_from_slice(&(self.qp << 8 | u32::from(ds)).to_be_bytes());
        bytes.resize(16, 0);
        bytes
    }

    /// Writes bytes to the ring from a block on, round its end.
    fn put(&self, index: u16, bytes: &[u8]) {
        for (i, segment) in bytes.chunks(16).enumerate() {
            let at = (usize::from(index) * 64 + i * 16) % 1024;
            self.rig.write(self.ring + at as u64, segment);
        }
    }

    fn ring_to(&mut self, producer: u16) {
        self.rig.card.objects.qps.get_mut(&self.qp).unwrap().sq.producer = producer;
    }

    fn fetch(&mut self) -> Fetch {
        self.rig.card.fetch_send(self.qp)
    }

    fn wqe(&mut self) -> SendWqe {
        match self.fetch() {
            Fetch::Wqe(wqe) => wqe,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn wqes_run_on_across_the_end_of_the_ring_and_of_the_counter() {
    for start in [0u16, 14, 15, 0xfffe, 0xffff] {
        let mut queue = Queue::new().at(start);
        let payload: Vec<u8> = (0..150).collect();
        let mut bytes = queue.control(start, 0x0a, 11);
        bytes.extend_from_slice(&0x8000_0096u32.to_be_bytes());
        bytes.extend_from_slice(&payload);
        bytes.resize(11 * 16, 0);
        queue.put(start, &bytes);
        queue.ring_to(start.wrapping_add(3));
        let wqe = queue.wqe();
        assert_eq!((wqe.index, wqe.blocks), (start, 3));
        assert_eq!(wqe.data, [Data::Inline(payload)]);
        assert!(matches!(queue.fetch(), Fetch::Empty));
    }
}

/// Measured on ConnectX-6 (evidence E009): fields 1000 to 1003 gave CQEs with counters 0 to 3.
#[test]
fn the_index_of_the_ctrl_segment_is_counted_and_not_compared() {
    let mut queue = Queue::new();
    queue.put(0, &queue.control(1000, 0, 1));
    queue.ring_to(1);
    assert_eq!(queue.wqe().index, 0);
    assert_eq!(queue.rig.card.complaints.misplaced_wqes, 1);
}

/// Else a counter that is one behind would be one that is 65,535 ahead.
#[test]
fn a_counter_that_is_behind_covers_nothing() {
    for first in [0u16, 7, 0x7fff, 0x8000, 0xffff] {
        for (ahead, covers) in [
            (0, false),
            (1, true),
            (0x7fff, true),
            (0x8000, true),
            (0x8001, false),
            (0xffff, false),
        ] {
            let counter = first.wrapping_add(ahead);
            assert_eq!(SendQueue::covers(counter, first), covers, "{counter} of {first}");
        }
    }
}

#[test]
fn nothing_is_fetched_before_rts_and_everything_after_an_error() {
    let mut queue = Queue::new();
    queue.put(0, &queue.control(0, 0, 1));
    queue.ring_to(1);
    for state in [State::Reset, State::Init, State::Rtr, State::Sqd] {
        queue.rig.card.objects.qps.get_mut(&queue.qp).unwrap().state = state;
        assert!(matches!(queue.fetch(), Fetch::Empty));
    }
    queue.rig.card.objects.qps.get_mut(&queue.qp).unwrap().state = State::Error;
    assert_eq!(queue.wqe().index, 0);
}

#[test]
fn control_segments_that_do_not_belong_are_malformed() {
    let control = |queue: &Queue, index, opcode, ds| queue.control(index, opcode, ds);
    for (spoil, opcode) in [
        // No segments, more segments than are posted, more than the ring has.
        (control(&Queue::new(), 0, 0x0a, 0), 0x0a),
        (control(&Queue::new(), 0, 0x0a, 9), 0x0a),
        (control(&Queue::new(), 0, 0x0a, 63), 0x0a),
        (control(&Queue::new(), 0, 0x77, 1), 0x77),
    ] {
        let mut queue = Queue::new();
        queue.put(0, &spoil);
        queue.ring_to(2);
        let Fetch::Malformed { index: 0, opcode: told, syndrome } = queue.fetch() else {
            panic!("{spoil:02x?} was accepted");
        };
        assert_eq!((told, syndrome), (opcode, Syndrome::LocalQpOperation));
    }
    let mut queue = Queue::new();
    let mut other = queue.control(0, 0x0a, 1);
    other[6] ^= 1;
    queue.put(0, &other);
    queue.ring_to(1);
    assert!(matches!(queue.fetch(), Fetch::Malformed { .. }));
    assert!(matches!(queue.fetch(), Fetch::Empty));
}

#[test]
fn messages_beyond_the_limit_are_a_length_error() {
    let mut queue = Queue::new();
    let mut bytes = queue.control(0, 0x0a, 3);
    for _ in 0..2 {
        bytes.extend_from_slice(&0x4000_0000u32.to_be_bytes());
        bytes.extend_from_slice(&[0; 12]);
    }
    queue.put(0, &bytes);
    queue.ring_to(1);
    assert!(matches!(queue.fetch(), Fetch::Malformed { syndrome: Syndrome::LocalLength, .. }));
}
