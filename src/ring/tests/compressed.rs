//! Tests of compressed blocks: polls return what they return for the same CQEs uncompressed.

use std::collections::VecDeque;

use mlx5_sys::cqe::{Cqe64, FORMAT_COMPRESSED, FORMAT_SHIFT, opcode as cqe_opcode};
use mlx5_sys::wqe::opcode;
use zerocopy::IntoBytes;

use super::*;
use crate::cqe::Completion;
use crate::ib::CqeCompression;
use crate::ring::PollError;
use crate::ring::random::{Random, rounds};
use crate::wqe::{RdmaRead, Remote, SendMessage, Sge};

const FORMATS: [CqeCompression; 3] =
    [CqeCompression::Hash, CqeCompression::Checksum, CqeCompression::ChecksumStride];

impl Cq {
    /// Returns the offset of the CQE of an index.
    fn place(&self, index: u32) -> usize {
        (index % self.reader.capacity()) as usize * self.cqe_size + self.cqe_size - 64
    }

    /// Writes a compressed block of CQEs that differ only in the fields that mini-CQEs have.
    fn fold(&mut self, cqes: &[Cqe64], format: CqeCompression) {
        let start = self.produced;
        let mut title = cqes[0];
        title.byte_cnt = (cqes.len() as u32).into();
        title.op_own |= FORMAT_COMPRESSED << FORMAT_SHIFT;
        for (at, eight) in cqes.chunks(8).enumerate() {
            let slot = minis(eight, format);
            let ahead = if at == 0 { 1 } else { at as u32 * 8 };
            self.buffer.write(self.place(start.wrapping_add(ahead)), &slot);
        }
        self.produce_at(title, start);
        self.produced = start.wrapping_add(cqes.len() as u32);
    }

    /// Writes CQEs that are like the one before in the enhanced layout, so many to a slot at most.
    fn fold_into(&mut self, cqes: &[Cqe64], format: CqeCompression, most: usize) {
        for some in cqes.chunks(most) {
            let mut slot = minis(some, format);
            slot[62] = (self.produced / self.reader.capacity()) as u8;
            // No owner bit is looked at.
            slot[63] = (some.len() as u8 - 1) << 4 | FORMAT_COMPRESSED << FORMAT_SHIFT | 1;
            self.buffer.write(self.place(self.produced), &slot);
            self.produced = self.produced.wrapping_add(some.len() as u32);
        }
    }

    fn produce_at(&mut self, mut cqe: Cqe64, index: u32) {
        cqe.op_own = cqe.op_own & !1 | (index / self.reader.capacity() % 2) as u8;
        self.buffer.write(self.place(index), cqe.as_bytes());
    }
}

/// A slot of mini CQEs.
fn minis(cqes: &[Cqe64], format: CqeCompression) -> [u8; 64] {
    let mut slot = [0xaa; 64];
    for (mini, cqe) in slot.chunks_exact_mut(8).zip(cqes) {
        let counter = cqe.wqe_counter.to_bytes();
        let word = match (cqe.opcode(), format) {
            (cqe_opcode::REQ, _) => [counter[0], counter[1], cqe.sop_drop_qpn.to_bytes()[0], 0],
            (_, CqeCompression::Hash) => cqe.rss_hash_result.to_bytes(),
            (_, CqeCompression::Checksum) => [7, 8, 9, 10],
            _ => [7, 8, counter[0], counter[1]],
        };
        mini[..4].copy_from_slice(&word);
        mini[4..].copy_from_slice(&cqe.byte_cnt.to_bytes());
    }
    slot
}

/// A CQ with a send and a receive queue.
struct Side {
    cq: Cq,
    sq: Sq,
    rq: Rq,
}

impl Side {
    fn new(cqes: u32, cqe_size: usize, start: u32, format: CqeCompression) -> Self {
        Self::of(Cq::new(cqes, cqe_size, start), format)
    }

    fn of(mut cq: Cq, format: CqeCompression) -> Self {
        let cqes = cq.reader.capacity();
        // SAFETY: the test writes mini CQEs of this format.
        unsafe { cq.reader.expect_compression(format) };
        // Half of the CQ for each.
        let rq = Rq::new(&mut cq, cqes / 2, 16, 0);
        let sq = Sq::new(&mut cq, cqes / 2, 0, HALF);
        Self { cq, sq, rq }
    }

    fn poll(&mut self, many: u32) -> Vec<Completion> {
        let (reader, queues) = (&mut self.cq.reader, &mut (&mut self.sq.queue, &mut self.rq.queue));
        match many {
            0 => reader.poll(queues).unwrap().into_iter().collect(),
            1 => reader.poll_all(queues).take(3).map(|done| done.unwrap()).collect(),
            _ => reader.poll_all(queues).map(|done| done.unwrap()).collect(),
        }
    }
}

/// The kind of work that the HCA completes next.
#[derive(Clone, Copy, PartialEq)]
enum Run {
    Send,
    Receive,
    /// Receives of a queue pair that the poll is not given.
    Foreign,
}

#[test]
fn blocks_are_taken_as_the_cqes_they_stand_for() {
    folded_as_whole(false);
}

#[test]
fn slots_of_the_enhanced_layout_are_taken_as_the_cqes_they_stand_for() {
    folded_as_whole(true);
}

/// Whether a CQE can be a mini CQE behind another, as its run and its common fields say.
type Like = (Run, u64);

fn folded_as_whole(enhanced: bool) {
    let mut random = Random::from_clock();
    let mut folded = 0;
    for round in 0..rounds(90) {
        let cqes = 8 << random.below(if cfg!(miri) { 2 } else { 5 });
        let cqe_size = [64, 128][random.below(2) as usize];
        let start = [0, 0xff_fff0, random.below(0x100_0000)][random.below(3) as usize];
        let format = FORMATS[round as usize % 3];
        let mut sides = [false, enhanced]
            .map(|enhanced| Side::of(Cq::of(cqes, cqe_size, start, enhanced), format));
        let mut before: Option<Like> = None;
        let mut commons = 0;
        let mut sends = VecDeque::new();
        let (mut receives, mut received, mut foreign, mut counter) = (0u32, 0u32, 0u32, 0u32);
        for _ in 0..rounds(100).min(40) {
            while sends.len() < cqes as usize / 2 {
                let code = [opcode::SEND, opcode::RDMA_READ][random.below(2) as usize];
                for side in &mut sides {
                    let (sge, id) = (Sge::new(0x1000, 64, 3), u64::from(counter));
                    let read = RdmaRead::new(sge, Remote::new(0, 0)).signaled();
                    // SAFETY: no HCA is there.
                    let posted = unsafe {
                        match code {
                            opcode::SEND => {
                                side.sq.queue.post(id, SendMessage::new(sge).signaled())
                            }
                            _ => side.sq.queue.post(id, read),
                        }
                    };
                    posted.unwrap();
                }
                sends.push_back((code, counter));
                counter += 1;
            }
            while receives < cqes / 2 {
                for side in &mut sides {
                    // SAFETY: no HCA is there.
                    unsafe { side.rq.queue.post(u64::from(counter), Sge::new(0, 9, 3)) }.unwrap();
                }
                receives += 1;
            }
            let mut room = cqes;
            for _ in 0..1 + random.below(4) {
                let run = [Run::Send, Run::Receive, Run::Foreign][random.below(3) as usize];
                let most = match run {
                    Run::Send => sends.len() as u32,
                    Run::Receive => receives,
                    Run::Foreign => 20,
                };
                let length = random.below(most.min(room) + 1);
                if length == 0 {
                    continue;
                }
                room -= length;
                let mut common = cqe(cqe_opcode::RESP_SEND_IMM, 0, 0);
                // What is different from run to run, now and then; of sends all are alike.
                commons += u64::from(random.below(3) == 0 && !matches!(run, Run::Send));
                common.imm_inval_pkey = (commons as u32 * 0x1_0001).into();
                common.slid = (commons as u16).into();
                common.op_own |= (commons as u8 & 1) << 1;
                common.check_sum = 0x0708.into();
                if let Run::Foreign = run {
                    common.sop_drop_qpn = 0x1111.into();
                    if random.below(2) == 0 {
                        foreign = random.below(0x1_0000);
                        before = None;
                    }
                }
                let cqes: Vec<_> = (0..length)
                    .map(|_| {
                        let mut cqe = common;
                        if let Run::Send = run {
                            let (code, counter) = sends.pop_front().unwrap();
                            cqe = super::cqe(cqe_opcode::REQ, code, counter);
                        } else {
                            let next = match run {
                                Run::Foreign => &mut foreign,
                                _ => &mut received,
                            };
                            cqe.wqe_counter = (*next as u16).into();
                            *next += 1;
                            if format == CqeCompression::Hash {
                                cqe.rss_hash_result = random.below(1 << 30).into();
                            }
                        }
                        cqe.byte_cnt = random.below(1 << 20).into();
                        cqe
                    })
                    .collect();
                if let Run::Receive = run {
                    receives -= length;
                }
                for cqe in &cqes {
                    sides[0].cq.produce(*cqe, &[]);
                }
                let like = (run, if let Run::Send = run { 0 } else { commons });
                let goes_on = before == Some(like);
                before = Some(like);
                let whole = random.below(4) == 0;
                if enhanced && !whole {
                    let titles = usize::from(!goes_on);
                    for cqe in &cqes[..titles] {
                        sides[1].cq.produce(*cqe, &[]);
                    }
                    let most = 1 + random.below(7) as usize;
                    sides[1].cq.fold_into(&cqes[titles..], format, most);
                    folded += length;
                } else if length < 2 || whole {
                    for cqe in &cqes {
                        sides[1].cq.produce(*cqe, &[]);
                    }
                } else {
                    sides[1].cq.fold(&cqes, format);
                    folded += length;
                }
            }
            loop {
                let how = random.below(4);
                if how == 3 {
                    // Nothing outstanding is dropped; what is left of a block goes to the ring.
                    for side in &mut sides {
                        assert_eq!(side.cq.reader.discard(0x2222, QueueKind::Receive), 0);
                    }
                    continue;
                }
                let [mut expected, mut found] = sides.each_mut().map(|side| side.poll(how));
                for completion in expected.iter_mut().chain(&mut found) {
                    if let Completion::UnexpectedCqe(unexpected) = completion {
                        // The owner bit is the lap's, of which what is written out knows nothing.
                        unexpected.bytes[63] &= !1;
                        unexpected.bytes[62] = 0;
                    }
                }
                assert_eq!(found, expected, "{format:?}, {cqes} of {cqe_size}");
                assert_eq!(sides[1].cq.record.be32(0), sides[0].cq.record.be32(0));
                if found.is_empty() {
                    break;
                }
            }
        }
        assert_eq!(sides[1].cq.record.be32(0), sides[1].cq.produced & 0xff_ffff);
    }
    assert!(folded > if cfg!(miri) { 10 } else { 1000 });
}

#[test]
fn damaged_blocks_end_polling_and_do_no_harm() {
    let mut random = Random::from_clock();
    for _ in 0..if cfg!(miri) { 5 } else { 1000 } {
        let cqes = 4 << random.below(if cfg!(miri) { 2 } else { 5 });
        let cqe_size = [64, 128][random.below(2) as usize];
        let (start, enhanced) = (random.below(0x100_0000), random.below(2) == 0);
        let mut side = Side::of(Cq::of(cqes, cqe_size, start, enhanced), FORMATS[0]);
        for _ in 0..cqes {
            // Any bytes, of which every title names the reader's lap, and a length that may be.
            let mut cqe = Cqe64::default();
            for byte in cqe.as_mut_bytes() {
                *byte = random.next() as u8;
            }
            cqe.byte_cnt =
                [random.next() as u32, random.below(2 * cqes)][random.below(2) as usize].into();
            if !enhanced || random.below(2) == 0 {
                cqe.op_own |= FORMAT_COMPRESSED << FORMAT_SHIFT;
            }
            side.cq.produce(cqe, &[]);
        }
        if random.below(2) == 0 {
            side.cq.reader.discard(QPN, QueueKind::Send);
        }
        let (reader, queues) = (&mut side.cq.reader, &mut (&mut side.sq.queue, &mut side.rq.queue));
        let mut taken = 0;
        while let Ok(Some(completion)) = reader.poll(queues) {
            // Nothing is outstanding, so nothing can have been completed.
            assert!(matches!(completion, Completion::UnexpectedCqe(_)));
            taken += 1;
            assert!(taken < 2 * cqes);
        }
    }
}

#[test]
fn impossible_lengths_and_errors_are_damaged() {
    for (length, kind) in
        [(0, cqe_opcode::REQ), (1, cqe_opcode::REQ), (9, cqe_opcode::REQ), (4, cqe_opcode::REQ_ERR)]
    {
        let mut side = Side::new(8, 64, 0, FORMATS[0]);
        let mut title = cqe(kind, 0, 0);
        title.byte_cnt = length.into();
        title.op_own |= FORMAT_COMPRESSED << FORMAT_SHIFT;
        side.cq.produce(title, &[]);
        for _ in 0..2 {
            assert_eq!(side.cq.reader.poll(&mut ()), Err(PollError::Compressed));
        }
        assert_eq!(side.cq.record.be32(0), 0, "the block stays");
    }
}

#[test]
fn slots_of_more_than_the_ring_holds_are_damaged() {
    for (entries, most) in [(4, 4), (8, 7), (64, 7)] {
        for count in 1..=16 {
            let mut side = Side::of(Cq::of(entries, 64, 0, true), FORMATS[0]);
            side.cq.produce(cqe(cqe_opcode::RESP_SEND, 0, 0), &[]);
            let mut slot = [0; 64];
            slot[63] = (count - 1) << 4 | FORMAT_COMPRESSED << FORMAT_SHIFT;
            side.cq.buffer.write(side.cq.place(1), &slot);
            let (reader, mut taken) = (&mut side.cq.reader, 0);
            let end = loop {
                match reader.poll(&mut ()) {
                    Ok(Some(_)) => taken += 1,
                    end => break end.map(drop),
                }
            };
            let expected =
                if count <= most { (Ok(()), 1 + count) } else { (Err(PollError::Compressed), 1) };
            assert_eq!((end, taken), expected, "{count} in a slot of {entries}");
        }
    }
}

#[test]
fn the_ring_is_left_as_who_reads_on_needs_it() {
    for taken in 0..12 {
        let mut side = Side::new(16, 64, 0, FORMATS[0]);
        let cqes: Vec<_> = (0..12).map(|at| cqe(cqe_opcode::RESP_SEND, 0, at)).collect();
        side.cq.fold(&cqes, FORMATS[0]);
        for _ in 0..taken {
            assert!(side.cq.reader.poll(&mut ()).unwrap().is_some());
        }
        assert_eq!(side.cq.record.be32(0), taken);
        assert_eq!(side.cq.reader.discard(0x2222, QueueKind::Receive), 0);
        let ring = side.cq.buffer.read();
        for slot in 0..12 {
            let bytes = &ring[slot * 64..][..64];
            if slot >= taken as usize {
                assert_eq!(bytes[60..64], [0, slot as u8, 0, cqe_opcode::RESP_SEND << 4]);
            }
            // What is behind the consumer index says in no lap that it is there.
            if slot < taken as usize {
                assert_eq!(bytes[63], 0xf0);
            }
        }
    }
}
