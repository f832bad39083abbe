//! Posting singly, by whatever path, against a batch of one on a queue of the same kind.

use super::*;
use crate::ring::random::Random;
use crate::ring::{BlueFlameCopy, PostError, UarMapping};
use crate::wqe::{
    CompareSwap, FetchAdd, Inline, InlineBytes, InlineGather, Nop, PostOn, RdmaRead, RdmaWrite,
    RdmaWriteImm, Remote, SendImm, SendMessage, Sge, Word,
};

/// How a queue tells the HCA.
#[derive(Clone, Copy, Debug)]
struct Way {
    half: usize,
    copy: BlueFlameCopy,
    memory: UarMapping,
}

/// The same queue twice: one is posted to singly, the other in batches.
struct Twins {
    way: Way,
    queues: [Sq; 2],
    posted: u32,
}

impl Twins {
    fn new(cqs: &mut [Cq; 2], way: Way, start: u32) -> Self {
        let queues = cqs.each_mut().map(|cq| {
            let mut sq = Sq::new(cq, 16, start, way.half);
            sq.queue.set_copy(way.copy).unwrap();
            if way.memory.is_uncached() {
                // SAFETY: the page is ordinary memory, whose stores stay in order.
                unsafe { sq.queue.ring.doorbell.set_uncached() };
            }
            sq
        });
        Self { way, queues, posted: 0 }
    }

    fn post<O: PostOn<Rc> + Clone>(&mut self, operation: O) -> bool {
        let [single, batched] = &mut self.queues;
        let id = self.posted.into();
        let head = single.queue.ring.head().value();
        // SAFETY: no HCA is there.
        let result = unsafe { single.queue.post(id, operation.clone()) };
        let mut batch = batched.queue.batch();
        let expected = batch.append(id, operation);
        if expected.is_ok() {
            // SAFETY: no HCA is there.
            unsafe { batch.ring() };
        }
        assert_eq!(result, expected, "{:?}, post {id}", self.way);
        let half = self.way.half;
        let seen = |sq: &Sq| {
            let register = take_register(&sq.buffer, &sq.page, head, half);
            [sq.buffer.read(), sq.record.read(), register]
        };
        let [single, batched] = self.queues.each_ref().map(seen);
        for (at, what) in ["ring", "record", "register"].into_iter().enumerate() {
            assert!(single[at] == batched[at], "the {what} after post {id}, {:?}", self.way);
        }
        self.posted += 1;
        !matches!(result, Err(PostError::QueueFull { .. } | PostError::NothingSignaled { .. }))
    }

    /// Posts a random request; false if the ring is full.
    fn random(&mut self, random: &mut Random) -> bool {
        let bytes: Vec<u8> = (0..random.below(210)).map(|_| random.next() as u8).collect();
        let short = &bytes[..bytes.len().min(random.below(50) as usize)];
        let sge = |random: &mut Random| {
            let length = if random.below(4) == 0 { 0 } else { random.below(1 << 20) };
            Sge::new(random.next(), length, random.next() as u32)
        };
        let list: Vec<_> = (0..random.below(10)).map(|_| sge(random)).collect();
        let remote = Remote::new(random.next(), random.next() as u32);
        let (imm, yes) = (random.next() as u32, random.below(2) == 0);
        let word = Word::new(random.next(), random.next() as u32);
        let pieces = short.split_at(short.len() / 2);
        match random.below(15) {
            0 => self.post(Nop::new().signaled_if(yes)),
            1 => self.post(SendMessage::new(Inline(short)).signaled_if(yes)),
            2 => self.post(SendMessage::new(Inline(&bytes)).fenced()),
            3 => self.post(SendImm::new(&list[..], imm).solicited()),
            4 => self.post(RdmaWrite::new(Inline(short), remote).signaled_if(yes)),
            5 => self.post(RdmaWrite::new(InlineBytes(word.addr.to_ne_bytes()), remote)),
            6 => self.post(RdmaWrite::new(sge(random), remote).signaled_if(yes)),
            7 => self.post(RdmaWrite::new([sge(random), sge(random)], remote)),
            8 => self.post(RdmaWriteImm::new(InlineGather(&[pieces.0, pieces.1]), remote, imm)),
            9 => self.post(RdmaRead::new(&list[..], remote).signaled()),
            10 => self.post(RdmaRead::new(sge(random), remote).signaled_if(yes)),
            11 => self.post(CompareSwap::new(word, remote, random.next(), random.next())),
            12 => self.post(FetchAdd::new(word, remote, random.next()).signaled_if(yes)),
            13 => self.post(SendImm::new(InlineBytes([imm as u8; 13]), imm).signaled()),
            _ => self.post(RdmaWrite::new(&list[..], remote)),
        }
    }
}

#[test]
fn a_post_is_a_batch_of_one() {
    let mut random = Random::from_clock();
    let combining = UarMapping::WRITE_COMBINING;
    let mut ways: Vec<_> = BlueFlameCopy::available()
        .map(|copy| Way { half: HALF, copy, memory: combining })
        .collect();
    let copy = BlueFlameCopy::Words;
    ways.push(Way { half: 0, copy, memory: combining });
    // A register whose halves take a block, and no more.
    ways.push(Way { half: 64, copy, memory: combining });
    ways.push(Way { half: HALF, copy, memory: UarMapping::UNCACHED });
    for way in ways {
        for _ in 0..if cfg!(miri) { 1 } else { 20 } {
            let mut cqs = [Cq::new(16, 64, 0), Cq::new(16, 64, 0)];
            let start = [0, 0xfff0 + random.below(16), random.below(0x1_0000)];
            let mut twins = Twins::new(&mut cqs, way, start[random.below(3) as usize]);
            while twins.random(&mut random) {}
            assert_ne!(twins.posted, 0);
        }
    }
}
