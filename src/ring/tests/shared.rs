//! Shared send queues over plain memory: what they write beside an exclusive one, what they refuse,
//! and what several threads leave in ring, record and shadow.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;

use mlx5_sys::cqe::opcode as cqe_opcode;
use mlx5_sys::wqe::{CE_ALWAYS, CE_MASK, opcode};

use super::*;
use crate::cqe::{Completion, Status};
use crate::ring::random::{Random, rounds};
use crate::ring::{PostError, Producer, Retirer};
use crate::wqe::{Inline, InlineBytes, Nop, RdmaRead, Remote, SendMessage, Sge};

/// A send queue's memory, and the halves of the queue.
struct Halves {
    buffer: Memory,
    record: Memory,
    page: Memory,
    producer: Producer<Rc>,
    retirer: Retirer<Rc>,
}

fn share(sq: Sq) -> Halves {
    let Sq { buffer, record, page, queue } = sq;
    let (producer, retirer) = queue.share();
    Halves { buffer, record, page, producer, retirer }
}

/// A request of one to four blocks, or one that a path of its own takes.
#[derive(Clone, Copy, Debug)]
struct Request {
    kind: u32,
    signaled: bool,
}

impl Request {
    fn random(random: &mut Random) -> Self {
        Self { kind: random.below(6), signaled: random.below(3) != 0 }
    }

    fn blocks(self) -> u32 {
        [1, 1, 1, 1, 3, 4][self.kind as usize]
    }
}

/// Posts a request by anything that has `post`.
macro_rules! post {
    ($queue:expr, $id:expr, $request:expr) => {{
        let (sge, remote, signaled) =
            (Sge::new(0x1000, 64, 7), Remote::new(0x2000, 9), $request.signaled);
        let id: u64 = $id;
        // SAFETY: no HCA is there.
        unsafe {
            match $request.kind {
                0 => $queue.post(id, SendMessage::new(sge).signaled_if(signaled)),
                1 => $queue.post(id, RdmaRead::new(sge, remote).signaled_if(signaled)),
                2 => $queue.post(
                    id,
                    SendMessage::new(InlineBytes(id.to_ne_bytes())).signaled_if(signaled),
                ),
                3 => $queue.post(id, Nop::new().signaled_if(signaled)),
                4 => $queue.post(id, SendMessage::new(Inline(&[2; 150])).signaled_if(signaled)),
                _ => $queue.post(id, SendMessage::new(Inline(&[3; 200])).signaled_if(signaled)),
            }
        }
    }};
}

/// With one poster, a shared queue does the same stores to ring, record and register as an
/// exclusive queue, refuses the same posts and returns the same completions. This also holds after
/// it was unshared and shared in between.
#[test]
fn alone_it_does_what_an_exclusive_queue_does() {
    let mut random = Random::from_clock();
    for _ in 0..rounds(60) {
        let (blocks, cqes) = (4 << random.below(4), 2 << random.below(4));
        let start = [0, 0x1_0000 - 1 - random.below(20), u32::MAX - random.below(20)];
        let start = start[random.below(3) as usize];
        let half = [0, HALF][random.below(2) as usize];
        let (mut cq, mut shared_cq) = (Cq::new(cqes, 64, 0), Cq::new(cqes, 64, 0));
        let mut exclusive = Sq::new(&mut cq, blocks, start, half);
        let mut shared = share(Sq::new(&mut shared_cq, blocks, start, half));
        let mut signaled = VecDeque::new();
        let mut head = start;
        for id in 0..u64::from(rounds(400)) {
            let request = Request::random(&mut random);
            let expected = post!(exclusive.queue, id, request);
            assert_eq!(post!(shared.producer, id, request), expected, "seed {}", random.seed());
            let register = |buffer, page| take_register(buffer, page, head, half);
            assert_eq!(
                register(&shared.buffer, &shared.page),
                register(&exclusive.buffer, &exclusive.page)
            );
            if expected.is_ok() {
                if request.signaled {
                    signaled.push_back((id, head));
                }
                head = head.wrapping_add(request.blocks());
            }
            assert_eq!(shared.record.read(), exclusive.record.read());
            assert!(shared.buffer.read() == exclusive.buffer.read(), "{}", random.seed());
            for _ in 0..random.below(3) {
                let Some((id, counter)) = signaled.pop_front() else { break };
                for cq in [&mut cq, &mut shared_cq] {
                    cq.produce(cqe(cqe_opcode::REQ, 0, counter), &[]);
                }
                let ours = shared_cq.reader.poll(&mut shared.retirer).unwrap();
                assert_eq!(ours, cq.reader.poll(&mut exclusive.queue).unwrap());
                assert!(matches!(ours, Some(Completion::Send(done)) if done.id == id));
            }
            if random.below(50) == 0 {
                let Halves { buffer, record, page, producer, retirer } = shared;
                let retirer = retirer.unshare().expect_err("there is a producer");
                drop(producer);
                let mut queue = retirer.unshare().expect("the last one");
                assert_eq!(queue.free_blocks(), exclusive.queue.free_blocks());
                let request = Request { kind: 0, signaled: false };
                let expected = post!(exclusive.queue, 1000, request);
                assert_eq!(post!(queue, 1000, request), expected);
                head = head.wrapping_add(expected.is_ok().into());
                shared = share(Sq { buffer, record, page, queue });
            }
        }
    }
}

#[test]
fn an_error_completion_stops_all_producers() {
    let mut cq = Cq::new(8, 64, 0);
    let mut shared = share(Sq::new(&mut cq, 8, 0, 0));
    let other = shared.producer.clone();
    let request = Request { kind: 0, signaled: true };
    assert_eq!((post!(other, 1, request), post!(shared.producer, 2, request)), (Ok(()), Ok(())));
    let mut error = cqe(cqe_opcode::REQ_ERR, opcode::SEND, 0);
    error.as_mut_bytes()[55] = 0x10;
    cq.produce(error, &[]);
    let failed = cq.reader.poll(&mut shared.retirer).unwrap();
    assert!(matches!(failed, Some(Completion::Failed(it)) if it.id == 1), "{failed:?}");
    assert_eq!(post!(other, 3, request), Err(PostError::WrongState));
    assert_eq!(post!(shared.producer, 3, request), Err(PostError::WrongState));
    // What was posted before still completes.
    let mut error = cqe(cqe_opcode::REQ_ERR, opcode::SEND, 1);
    error.as_mut_bytes()[55] = 0x05;
    cq.produce(error, &[]);
    let flushed = cq.reader.poll(&mut shared.retirer).unwrap();
    assert!(
        matches!(flushed, Some(Completion::Failed(it)) if it.id == 2 && it.status == Status::Flushed),
        "{flushed:?}"
    );
    assert!(shared.retirer.is_idle());
}

#[test]
fn a_retirer_that_is_gone_leaves_a_queue_that_fills_up() {
    let mut cq = Cq::new(8, 64, 0);
    let Halves { producer, retirer, .. } = &mut share(Sq::new(&mut cq, 4, 0, 0));
    let request = Request { kind: 0, signaled: false };
    for id in 0..3 {
        assert_eq!(post!(producer, id, request), Ok(()));
    }
    let silent = PostError::NothingSignaled { outstanding: 3 };
    assert_eq!(post!(producer, 3, request), Err(silent));
    assert_eq!(post!(producer, 3, Request { signaled: true, ..request }), Ok(()));
    let full = PostError::QueueFull { free: 0 };
    assert_eq!(post!(producer, 4, request), Err(full));
    assert_eq!((retirer.is_idle(), retirer.qpn(), producer.qpn()), (false, QPN, QPN));
}

/// An HCA that reads the record and checks that it covers only whole WQEs, each in its place.
struct Card {
    head: u32,
    blocks: u32,
}

impl Card {
    /// The next WQE that the record covers: its id, and whether it is signaled, and its counter.
    fn next(&mut self, halves: &Halves) -> Option<(u64, bool, u32)> {
        // SAFETY: within the record.
        let record = unsafe { halves.record.at(4).cast::<u32>().read_volatile() };
        std::sync::atomic::fence(Ordering::Acquire);
        if u32::from_be(record) == self.head & 0xffff {
            return None;
        }
        let word = |block: u32, offset: usize| {
            let slot = (self.head.wrapping_add(block) % self.blocks) as usize;
            // SAFETY: within the ring.
            unsafe { halves.buffer.at(slot * 64 + offset).cast::<u32>().read_volatile() }
        };
        let (first, second) = (u32::from_be(word(0, 0)), u32::from_be(word(0, 4)));
        assert_eq!(first >> 8 & 0xffff, self.head & 0xffff, "the WQE is the one of this place");
        assert_eq!((second >> 8, first as u8), (QPN, opcode::SEND));
        let blocks = (second & 0x3f).div_ceil(4);
        // An inline header, then the id, again and again to the end of the block.
        let id = |block| {
            let (low, high) = (word(block, 56), word(block, 60));
            u64::from(low.to_le()) | u64::from(high.to_le()) << 32
        };
        for block in 1..blocks {
            assert_eq!(id(block), id(0), "block {block} of {blocks} is written");
        }
        let flags = word(0, 8).to_le() >> 24;
        let found = (id(0), flags as u8 & CE_MASK == CE_ALWAYS, self.head);
        self.head = self.head.wrapping_add(blocks);
        Some(found)
    }
}

/// Threads post as fast as they can, an HCA looks at the record. All that it covers is written, in
/// order of place and of each thread, once; all completions come back with their ids.
#[test]
fn many_threads_post_whole_wqes_in_order() {
    const EACH: u32 = rounds(400);
    /// Blocks of the longest request.
    const LONGEST: u32 = 3;
    let mut random = Random::from_clock();
    for threads in [2, 3, 8] {
        let blocks = 4 << random.below(5);
        let start = [0, u32::MAX - 100][random.below(2) as usize];
        let mut cq = Cq::new(8 << random.below(3), 64, 0);
        let mut halves =
            share(Sq::new(&mut cq, blocks, start, [0, HALF][random.below(2) as usize]));
        let mut card = Card { head: start, blocks };
        let failed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (producer, failed) = (halves.producer.clone(), &failed);
                let mut random = Random::from_seed(random.next());
                scope.spawn(move || {
                    for sequence in 0..EACH {
                        let id = u64::from(thread) << 32 | u64::from(sequence);
                        // From 44 bytes on, an id ends every block: 44, 108, 172 after the header.
                        let bytes: Vec<u8> =
                            (0..22).flat_map(|_| id.to_le_bytes()).skip(4).collect();
                        let length = [44, 108, 172][random.below(3) as usize];
                        // The last of each thread is signaled, so that all is retired at last.
                        let signaled = random.below(3) == 0 || sequence == EACH - 1;
                        let mut send =
                            SendMessage::new(Inline(&bytes[..length])).signaled_if(signaled);
                        loop {
                            // SAFETY: no memory is named.
                            match unsafe { producer.post(id, send) } {
                                Ok(()) => break,
                                Err(PostError::NothingSignaled { .. }) => send = send.signaled(),
                                Err(PostError::QueueFull { .. } | PostError::CqFull { .. }) => {
                                    if failed.load(Ordering::Relaxed) {
                                        return;
                                    }
                                    std::thread::yield_now();
                                }
                                Err(error) => panic!("{error}"),
                            }
                        }
                    }
                });
            }
            let check = std::panic::AssertUnwindSafe(|| {
                let mut next = vec![0; threads as usize];
                let mut posted = VecDeque::new();
                let mut done = 0;
                while done < threads * EACH {
                    while let Some((id, signaled, counter)) = card.next(&halves) {
                        let (thread, sequence) = ((id >> 32) as usize, id as u32);
                        assert_eq!(sequence, next[thread], "thread {thread} in order");
                        next[thread] += 1;
                        posted.push_back((id, signaled, counter));
                    }
                    // The oldest one that brings a CQE. Where there is none, and the longest would
                    // not find room, the newest one, as if it had asked for one.
                    let room = |first: &(u64, bool, u32)| {
                        card.head.wrapping_sub(first.2) + LONGEST <= blocks
                    };
                    let at = posted.iter().position(|it| it.1);
                    let full = posted.front().is_some_and(|first| !room(first));
                    let Some(at) = at.or(full.then(|| posted.len() - 1)) else { continue };
                    let (id, _, counter) = posted[at];
                    posted.drain(..=at);
                    done += at as u32 + 1;
                    cq.produce(cqe(cqe_opcode::REQ, opcode::SEND, counter), &[]);
                    let Ok(Some(Completion::Send(found))) = cq.reader.poll(&mut halves.retirer)
                    else {
                        panic!("no completion")
                    };
                    assert_eq!(found.id, id);
                }
                assert_eq!(next, vec![EACH; threads as usize]);
                assert!(halves.retirer.is_idle());
            });
            if let Err(panic) = std::panic::catch_unwind(check) {
                failed.store(true, Ordering::Relaxed);
                println!("{threads} threads, {blocks} blocks");
                std::panic::resume_unwind(panic);
            }
        });
        // As many blocks as ever are free.
        let Halves { producer, retirer, .. } = halves;
        drop(producer);
        assert_eq!(retirer.unshare().expect("the last one").free_blocks(), blocks);
    }
}

/// Threads post while another retires the WQEs of the round before. No thread reads the ring or the
/// record meanwhile, as a device does, so Miri can check all accesses for data races.
#[test]
fn threads_post_while_another_polls_without_a_data_race() {
    const THREADS: u32 = 3;
    const EACH: u32 = 4;
    let start = u32::MAX - 20;
    // Two rounds of WQEs of two blocks fit, and so do their CQEs.
    let mut cq = Cq::new(32, 64, 0);
    let mut halves = share(Sq::new(&mut cq, 64, start, HALF));
    let mut card = Card { head: start, blocks: 64 };
    let mut posted = VecDeque::new();
    for round in 0..5 {
        std::thread::scope(|scope| {
            for thread in 0..THREADS * u32::from(round < 4) {
                let producer = halves.producer.clone();
                scope.spawn(move || {
                    for sequence in 0..EACH {
                        let id = u64::from(thread) << 32 | u64::from(round * EACH + sequence);
                        let bytes: Vec<u8> =
                            (0..14).flat_map(|_| id.to_le_bytes()).skip(4).collect();
                        let length = [44, 108][sequence as usize % 2];
                        let send = SendMessage::new(Inline(&bytes[..length])).signaled();
                        // SAFETY: no memory is named.
                        unsafe { producer.post(id, send).unwrap() };
                    }
                });
            }
            for (id, counter) in posted.drain(..) {
                cq.produce(cqe(cqe_opcode::REQ, opcode::SEND, counter), &[]);
                let found = cq.reader.poll(&mut halves.retirer);
                assert!(
                    matches!(found, Ok(Some(Completion::Send(done))) if done.id == id),
                    "{found:?}"
                );
            }
        });
        let mut next = [round * EACH; THREADS as usize];
        while let Some((id, signaled, counter)) = card.next(&halves) {
            let (thread, sequence) = ((id >> 32) as usize, id as u32);
            assert_eq!((sequence, signaled), (next[thread], true), "thread {thread} in order");
            next[thread] += 1;
            posted.push_back((id, counter));
        }
        assert_eq!(posted.len() as u32, THREADS * EACH * u32::from(round < 4));
    }
    assert!(halves.retirer.is_idle());
}

/// Looks at what a producer may post at the moment when the reader publishes the consumer index:
/// the record's page is protected, and the store to it traps.
#[cfg(not(miri))]
mod at_publication {
    use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

    use super::*;
    use crate::ring::{Queues, ReceiveSide, SendSide};

    const PAGE: usize = 4096;
    /// The protected page, the producer, and how often a post was accepted and refused in a trap.
    static PROTECTED: AtomicUsize = AtomicUsize::new(0);
    static PRODUCER: AtomicPtr<Producer<Rc>> = AtomicPtr::new(core::ptr::null_mut());
    static ACCEPTED: AtomicU32 = AtomicU32::new(0);
    static REFUSED: AtomicU32 = AtomicU32::new(0);

    fn protect(page: usize, protection: i32) {
        let page = core::ptr::with_exposed_provenance_mut(page);
        // SAFETY: a page that the test owns as a whole.
        assert_eq!(unsafe { libc::mprotect(page, PAGE, protection) }, 0);
    }

    extern "C" fn trap(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel gives a valid structure for SIGSEGV.
        let address = unsafe { (*info).si_addr() }.addr();
        let page = PROTECTED.load(Ordering::Relaxed);
        if page == 0 || address & !(PAGE - 1) != page {
            // SAFETY: ends the process at the next fault, which is another's.
            unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
            return;
        }
        // SAFETY: it lives as long as the page is protected.
        let producer = unsafe { &*PRODUCER.load(Ordering::Relaxed) };
        // SAFETY: no HCA is there.
        match unsafe { producer.post(99, Nop::new().signaled()) } {
            Ok(()) => ACCEPTED.fetch_add(1, Ordering::Relaxed),
            Err(_) => REFUSED.fetch_add(1, Ordering::Relaxed),
        };
        protect(page, libc::PROT_READ | libc::PROT_WRITE);
    }

    /// Queues that are found by number only.
    struct Unlikely<'a>(&'a mut Retirer<Rc>);

    impl Queues for Unlikely<'_> {
        fn send_side(&mut self, qpn: u32) -> Option<SendSide<'_>> {
            self.0.send_side(qpn)
        }

        fn receive_side(&mut self, _: u32) -> Option<ReceiveSide<'_>> {
            None
        }

        fn device_failed(&mut self) {}
    }

    #[test]
    fn producers_get_room_only_after_the_consumer_index_is_published() {
        let mut old = core::mem::MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: all-zero is a valid structure; the handler calls nothing that allocates or locks.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = trap as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
            assert_eq!(libc::sigaction(libc::SIGSEGV, &action, old.as_mut_ptr()), 0);
        }
        let nop = |at: u32| cqe(cqe_opcode::REQ, opcode::NOP, at);
        let mut cq = Cq::new(8, 64, 0);
        let mut halves = share(Sq::new(&mut cq, 32, 0, 0));
        let mut posted = 0;
        let mut traps = 0;
        for way in 0..4 {
            // SAFETY: no HCA is there.
            while unsafe { halves.producer.post(posted, Nop::new().signaled()) }.is_ok() {
                posted += 1;
            }
            cq.produce(nop(cq.produced), &[]);
            PRODUCER.store(&raw mut halves.producer, Ordering::Relaxed);
            let page = cq.record.at(0).expose_provenance().get();
            PROTECTED.store(page, Ordering::Relaxed);
            protect(page, libc::PROT_READ);
            let retirer = &mut halves.retirer;
            match way {
                0 => assert!(cq.reader.poll(retirer).unwrap().is_some()),
                1 => assert!(cq.reader.poll(&mut Unlikely(retirer)).unwrap().is_some()),
                2 => assert!(cq.reader.poll_all(retirer).next().is_some()),
                _ => {
                    // By the path for every kind of CQE.
                    cq.reader.hold(true);
                    assert!(cq.reader.poll(&mut Unlikely(retirer)).unwrap().is_some());
                    cq.reader.hold(false);
                }
            }
            PROTECTED.store(0, Ordering::Relaxed);
            traps += 1;
            assert_eq!(ACCEPTED.load(Ordering::Relaxed), 0, "room before publication, {way}");
            assert_eq!(REFUSED.load(Ordering::Relaxed), traps, "the store trapped, {way}");
        }
        // SAFETY: restores the action that was installed before.
        unsafe { libc::sigaction(libc::SIGSEGV, old.as_ptr(), core::ptr::null_mut()) };
    }
}
