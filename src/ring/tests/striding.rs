//! Tests of striding receives, posted singly and in batches, against an oracle of the ring.

use super::{Cq, Memory, QPN};
use crate::ring::random::Random;
use crate::ring::receive::striding::{Strides, StridingView};
use crate::ring::{PostError, StridingRq};
use crate::wqe::Sge;

/// Bytes of a WQE in the ring.
const WQE: usize = 32;
/// Bytes and strides of the memory of a WQE.
const STRIDES: Strides = Strides { number: QPN, bytes: 64, count: 8, shift: 0 };

struct Case {
    // Before the memory that it reads and writes.
    queue: StridingRq,
    buffer: Memory,
    record: Memory,
    _cq: [Memory; 3],
    entries: u32,
    head: u32,
    /// The ring as it must be.
    ring: Vec<u8>,
}

impl Case {
    fn new(random: &mut Random) -> Self {
        let entries = 2 << random.below(4);
        let start = [0, 0xfffe, random.below(0x1_0000)][random.below(3) as usize];
        let buffer = Memory::new(entries as usize * WQE, 0xee);
        let record = Memory::new(8, 0);
        record.write(0, &start.to_be_bytes());
        let view = StridingView {
            buffer: buffer.at(0),
            entries,
            wqe_stride: WQE as u32,
            record: record.at(0).cast(),
            strides: STRIDES,
        };
        let Cq { reader, buffer: cqes, record: cq_record, page, .. } = Cq::new(256, 64, 0);
        // SAFETY: the memory lives as long as the queue, in the same structure, and is its own.
        let queue = unsafe { StridingRq::take_over(&view, reader, || true, Box::new(())).unwrap() };
        let ring = buffer.read();
        Self { queue, buffer, record, _cq: [cqes, cq_record, page], entries, head: start, ring }
    }

    /// Lays a WQE out at this place ahead of the head: an unused segment, and the pointer.
    fn lay(&mut self, ahead: u32, memory: &Sge) {
        let slot = (self.head.wrapping_add(ahead) % self.entries) as usize;
        let length = STRIDES.bytes * STRIDES.count;
        let wqe = &mut self.ring[slot * WQE..][..WQE];
        wqe[..16].fill(0);
        wqe[16..20].copy_from_slice(&length.to_be_bytes());
        wqe[20..24].copy_from_slice(&memory.lkey.to_be_bytes());
        wqe[24..].copy_from_slice(&memory.addr.to_be_bytes());
    }

    fn check(&self) {
        assert_eq!(self.buffer.read(), self.ring);
        assert_eq!(self.record.be32(0), self.head & 0xffff);
    }
}

fn memory(random: &mut Random) -> Sge {
    Sge::new(random.next(), 512 + random.below(9), random.next() as u32)
}

#[test]
fn batches_write_what_single_posts_write_and_store_the_record_when_rung() {
    let mut random = Random::from_clock();
    for _ in 0..200 {
        let mut case = Case::new(&mut random);
        let mut posted = 0;
        while posted < case.entries {
            let count = random.below(4);
            if count == 0 {
                let memory = memory(&mut random);
                // SAFETY: no HCA is there.
                unsafe { case.queue.post(1, memory).unwrap() };
                case.lay(0, &memory);
                (case.head, posted) = (case.head.wrapping_add(1), posted + 1);
                case.check();
                continue;
            }
            let list: Vec<Sge> = (0..count).map(|_| memory(&mut random)).collect();
            let recorded = case.record.be32(0);
            let mut batch = case.queue.batch();
            let mut results = Vec::new();
            for memory in &list {
                let short = Sge { length: 511, ..*memory };
                assert_eq!(batch.append(1, short), Err(PostError::ReceiveTooShort { needed: 512 }));
                results.push(batch.append(2, *memory));
            }
            assert_eq!(case.record.be32(0), recorded, "the HCA knows of no WQE yet");
            let fits = count.min(case.entries - posted);
            assert_eq!((batch.len(), batch.is_empty()), (fits, false));
            for (at, result) in results.into_iter().enumerate() {
                let full = Err(PostError::QueueFull { free: 0 });
                assert_eq!(result, if (at as u32) < fits { Ok(()) } else { full });
            }
            let rung = if random.below(3) == 0 { 0 } else { fits };
            if rung == 0 {
                drop(batch);
            } else {
                // SAFETY: no HCA is there.
                unsafe { batch.ring() };
            }
            for (at, memory) in list.iter().enumerate().take(fits as usize) {
                case.lay(at as u32, memory);
            }
            (case.head, posted) = (case.head.wrapping_add(rung), posted + rung);
            case.check();
            assert_eq!(case.queue.outstanding(), posted);
        }
        assert!(case.queue.batch().append(1, memory(&mut random)).is_err());
    }
}
