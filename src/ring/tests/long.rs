//! WQEs of several blocks on their quick way, against the same by way of a list of entries or of
//! bytes of a length that the compiler does not know, which have none.

use super::*;
use crate::ib::{Transport, Ud};
use crate::ring::random::{Random, rounds};
use crate::ring::{BlueFlameCopy, PostError};
use crate::wqe::{
    Encode, Inline, InlineBytes, PostOn, RdmaWrite, RdmaWriteImm, Remote, SendImm, SendMessage,
    Sge, UdAddress,
};

const BLOCKS: u32 = 16;

/// The same queue three times: posted to singly, in batches, and by the general way.
struct Triplets<T: Transport> {
    queues: [Sq<T>; 3],
    cqs: [Cq; 3],
    half: usize,
    posted: u32,
    /// Posts that took their quick way.
    quick: u32,
}

impl<T: Transport> Triplets<T> {
    fn new(half: usize, start: u32) -> Self {
        let mut cqs = [(); 3].map(|()| Cq::new(64, 64, 0));
        let mut queues = cqs.each_mut().map(|cq| Sq::of(cq, BLOCKS, start, half));
        // As many as fit a BlueFlame buffer behind the segments of a WRITE.
        queues.iter_mut().for_each(|sq: &mut Sq<T>| sq.queue.ring.limits.max_inline = 220);
        Self { queues, cqs, half, posted: 0, quick: 0 }
    }

    /// Posts; false, and nothing changes, if the ring is full.
    fn post<Q, G>(&mut self, quick: Q, general: G) -> bool
    where
        Q: PostOn<T> + Copy,
        G: PostOn<T> + Copy,
    {
        const { assert!(Q::LONG_DS != 0 && G::LONG_DS == 0) };
        let [single, batched, other] = &mut self.queues;
        let id = self.posted.into();
        let (head, clear) = (single.queue.ring.head(), single.queue.ring.state.clear());
        // SAFETY: no HCA is there.
        let result = unsafe { single.queue.post(id, quick) };
        let mut batch = batched.queue.batch();
        assert_eq!(batch.append(id, quick), result);
        if result.is_ok() {
            // SAFETY: no HCA is there.
            unsafe { batch.ring() };
        }
        // SAFETY: no HCA is there.
        assert_eq!(unsafe { other.queue.post(id, general) }, result);
        if result.is_err() {
            let free = single.queue.free_blocks();
            let full = PostError::QueueFull { free };
            let silent = PostError::NothingSignaled { outstanding: BLOCKS - free };
            assert!(result == Err(full) || result == Err(silent), "{result:?}");
            return false;
        }
        let slot = single.queue.ring.shape().slot(head);
        let in_line = slot + Q::LONG_BLOCKS as usize <= BLOCKS as usize;
        self.quick += u32::from(in_line && clear.since(head) >= Q::LONG_BLOCKS);
        let seen = |sq: &Sq<T>| [sq.buffer.read(), sq.record.read()];
        let expected = seen(&self.queues[2]);
        for (way, sq) in ["singly", "in a batch"].into_iter().zip(&self.queues) {
            assert!(seen(sq) == expected, "ring and record after post {id}, {way}");
            let (ring, oracle) = (&sq.queue.ring, &self.queues[2].queue.ring);
            for block in 0..Q::LONG_BLOCKS {
                let keys = [ring, oracle].map(|of| of.state.entry(head.plus(block)).key);
                assert_eq!(keys[0], keys[1], "post {id}, {way}");
            }
            assert_eq!((ring.end(), ring.mark()), (oracle.end(), oracle.mark()));
        }
        // What goes to the register is the WQE, or its first eight bytes.
        let at = 0x800 + self.posted as usize % 2 * self.half;
        let size = if self.half == 0 { 8 } else { Q::LONG_DS as usize * 16 };
        let pages = self.queues.each_ref().map(|sq| sq.page.read());
        let wqe = (0..size).map(|byte| expected[0][(slot * 64 + byte) % (BLOCKS as usize * 64)]);
        assert!(pages[0][at..at + size].iter().copied().eq(wqe), "the register, post {id}");
        assert!(pages[1][at..at + size] == pages[0][at..at + size], "the register, post {id}");
        self.posted += 1;
        true
    }

    /// Retires everything.
    fn retire(&mut self, signaled: u16) {
        for (sq, cq) in self.queues.iter_mut().zip(&mut self.cqs) {
            cq.produce(cqe(0, 10, signaled.into()), &[]);
            let done = cq.reader.poll(&mut sq.queue).unwrap().unwrap();
            assert!(matches!(done, crate::cqe::Completion::Send(_)), "{done:?}");
            assert!(sq.queue.is_idle());
        }
    }
}

fn starts(random: &mut Random) -> u32 {
    [0, 1, 0xfff0 + random.below(16), random.below(0x1_0000)][random.below(4) as usize]
}

fn entry(random: &mut Random) -> Sge {
    Sge::new(random.next(), 1 + random.below(1 << 20), random.next() as u32)
}

/// Posts until a ring is full, and empties it, some laps long.
fn laps<T: Transport>(
    random: &mut Random,
    mut post: impl FnMut(&mut Triplets<T>, &mut Random, bool) -> bool,
) {
    const LAPS: u32 = if cfg!(miri) { 2 } else { 6 };
    for half in [HALF, 0] {
        let mut quick = 0;
        for _ in 0..rounds(20) {
            let mut all = Triplets::<T>::new(half, starts(random));
            for _ in 0..LAPS {
                let mut last = None;
                loop {
                    let head = all.queues[0].queue.ring.head();
                    // The last one that fits is signaled.
                    let fits = all.queues[0].queue.free_blocks();
                    let signaled = fits < 8 || random.below(2) == 0;
                    if !post(&mut all, random, signaled) {
                        break;
                    }
                    if signaled {
                        last = Some(head.low16());
                    }
                }
                all.retire(last.expect("the last one is signaled"));
            }
            quick += all.quick;
            assert!(all.posted >= LAPS * BLOCKS / 4 - LAPS);
        }
        assert!(quick > rounds(20) * LAPS, "{quick} took the way that is tested");
    }
}

#[test]
fn datagrams_are_the_same_by_every_way() {
    let mut random = Random::from_clock();
    laps::<Ud>(&mut random, |all, random, signaled| {
        let address = UdAddress::of_segments([(); 3].map(|()| [random.next(), random.next()]));
        let (sge, imm) = (entry(random), random.next() as u32);
        let bytes = sge.addr.to_ne_bytes();
        match random.below(4) {
            0 => all.post(
                SendMessage::new(sge).signaled_if(signaled).to(&address),
                SendMessage::new(&[sge][..]).signaled_if(signaled).to(address),
            ),
            1 => all.post(
                SendImm::new(sge, imm).signaled_if(signaled).solicited().to(address),
                SendImm::new([sge], imm).signaled_if(signaled).solicited().to(&address),
            ),
            2 => all.post(
                SendMessage::new(InlineBytes(bytes)).signaled_if(signaled).to(address),
                SendMessage::new(Inline(&bytes)).signaled_if(signaled).to(address),
            ),
            _ => {
                let bytes: [u8; 60] = core::array::from_fn(|_| random.next() as u8);
                all.post(
                    SendMessage::new(InlineBytes(bytes)).signaled_if(signaled).to(&address),
                    SendMessage::new(Inline(&bytes)).signaled_if(signaled).to(&address),
                )
            }
        }
    });
}

#[test]
fn so_are_long_inline_payloads_of_connections() {
    let mut random = Random::from_clock();
    laps::<Rc>(&mut random, |all, random, signaled| {
        let remote = Remote::new(random.next(), random.next() as u32);
        let imm = random.next() as u32;
        // The most of two, three and four blocks, and the least of three and four.
        let bytes: [u8; 220] = core::array::from_fn(|_| random.next() as u8);
        macro_rules! write {
            ($length:literal) => {{
                let (known, slice) = (*bytes.first_chunk::<$length>().unwrap(), &bytes[..$length]);
                all.post(
                    RdmaWrite::new(InlineBytes(known), remote).signaled_if(signaled),
                    RdmaWrite::new(Inline(slice), remote).signaled_if(signaled),
                )
            }};
        }
        match random.below(7) {
            0 => write!(92),
            1 => write!(93),
            2 => write!(96),
            3 => write!(156),
            4 => write!(157),
            5 => write!(220),
            _ => {
                let short: [u8; 29] = core::array::from_fn(|at| bytes[at]);
                let write = RdmaWriteImm::new(InlineBytes(short), remote, imm).fenced();
                let general = RdmaWriteImm::new(Inline(&short), remote, imm).fenced();
                all.post(write.signaled_if(signaled), general.signaled_if(signaled))
            }
        }
    });
}

#[test]
fn a_refused_one_leaves_everything_as_it_was() {
    let mut cq = Cq::new(16, 64, 0);
    let mut sq = Sq::<Ud>::of(&mut cq, BLOCKS, 0, HALF);
    let address = UdAddress::of_segments([[1; 2]; 3]);
    let before = [sq.buffer.read(), sq.record.read(), sq.page.read()];
    let long = Sge::new(1, (1 << 31) + 1, 1);
    // SAFETY: no HCA is there.
    let refused = unsafe { sq.queue.post(1, SendMessage::new(long).to(&address)) };
    assert_eq!(refused, Err(PostError::SgeTooLong { bytes: (1 << 31) + 1 }));
    assert!([sq.buffer.read(), sq.record.read(), sq.page.read()] == before);
    // An empty entry is left out: one block.
    // SAFETY: no HCA is there.
    unsafe { sq.queue.post(1, SendMessage::new(Sge::new(1, 0, 1)).to(&address)) }.unwrap();
    assert_eq!(sq.queue.free_blocks(), BLOCKS - 1);
}

#[test]
fn other_copies_take_two_blocks_as_well() {
    for copy in BlueFlameCopy::available() {
        let mut cq = Cq::new(16, 64, 0);
        let mut sq = Sq::<Ud>::of(&mut cq, BLOCKS, 0, HALF);
        sq.queue.set_copy(copy).unwrap();
        let address = UdAddress::of_segments([[1, 2], [3, 4], [5, 6]]);
        let request = SendMessage::new(Sge::new(7, 8, 9)).to(&address);
        assert_eq!(1 + request.body_ds(), 5);
        // SAFETY: no HCA is there.
        unsafe { sq.queue.post(1, request) }.unwrap();
        let (ring, page) = (sq.buffer.read(), sq.page.read());
        assert!(ring[..80] == page[0x800..0x800 + 80], "{copy:?}");
    }
}
