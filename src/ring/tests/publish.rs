//! When the HCA is told how far a CQ is read.

use mlx5_sys::cqe::opcode as cqe_opcode;
use mlx5_sys::wqe::opcode;

use super::*;
use crate::cqe::Completion;
use crate::error::QueueError;
use crate::ring::completion::Publish;
use crate::ring::random::{Random, rounds};
use crate::ring::{PostError, Queues, ReceiveSide, SendSide};
use crate::wqe::Nop;

fn nop(counter: u32) -> Cqe64 {
    cqe(cqe_opcode::REQ, opcode::NOP, counter)
}

fn post(sq: &mut Sq, id: u64) {
    // SAFETY: no HCA is there.
    unsafe { sq.queue.post(id, Nop::new().signaled()).unwrap() }
}

#[test]
fn the_record_is_stored_every_so_many() {
    for (cqe_size, start) in [(64, 0), (64, 0xff_fffa), (128, 5)] {
        let mut cq = Cq::new(16, cqe_size, start);
        cq.reader.publish(Publish::Every(3)).unwrap();
        let mut sq = Sq::new(&mut cq, 16, 0, HALF);
        for taken in 1..=40 {
            post(&mut sq, taken);
            cq.produce(nop(taken as u32 - 1), &[]);
            assert!(matches!(cq.reader.poll(&mut sq.queue), Ok(Some(Completion::Send(_)))));
            let told = start + taken as u32 / 3 * 3;
            assert_eq!(cq.record.be32(0), told & 0xff_ffff, "after {taken} from {start:#x}");
            assert_eq!(cq.reader.poll(&mut sq.queue), Ok(None));
        }
        // 40 taken, 39 told. Who arms must say all, and then counts from there.
        cq.reader.arm();
        assert_eq!(cq.record.be32(0), (start + 40) & 0xff_ffff);
        assert_eq!(cq.record.be32(4) & 0xff_ffff, (start + 40) & 0xff_ffff);
        for taken in 41..=42 {
            post(&mut sq, taken);
            cq.produce(nop(taken as u32 - 1), &[]);
            assert!(matches!(cq.reader.poll(&mut sq.queue), Ok(Some(_))));
            assert_eq!(cq.record.be32(0), (start + 40) & 0xff_ffff);
        }
        // The next reader starts where the record says.
        let Cq { record, reader, .. } = cq;
        drop(reader);
        assert_eq!(record.be32(0), (start + 42) & 0xff_ffff);
    }
}

#[test]
fn many_at_once_count_each() {
    let mut cq = Cq::new(32, 64, 0);
    cq.reader.publish(Publish::Every(4)).unwrap();
    let mut sq = Sq::new(&mut cq, 32, 0, HALF);
    for id in 0..11 {
        post(&mut sq, id);
        cq.produce(nop(id as u32), &[]);
    }
    assert_eq!(cq.reader.poll_all(&mut sq.queue).take(10).count(), 10);
    assert_eq!(cq.record.be32(0), 8);
    assert_eq!(cq.reader.poll_all(&mut sq.queue).count(), 1);
    assert_eq!(cq.record.be32(0), 8);
    cq.reader.publish(Publish::EveryPoll).unwrap();
    assert_eq!(cq.record.be32(0), 11, "nothing is held back when every poll says it");
    post(&mut sq, 11);
    cq.produce(nop(11), &[]);
    assert!(matches!(cq.reader.poll(&mut sq.queue), Ok(Some(_))));
    assert_eq!(cq.record.be32(0), 12);
}

/// A reader that publishes with every CQE has published all CQEs whose requests are retired,
/// whenever other code runs: between the steps of an iterator, and after one that was leaked.
#[test]
fn drain_publishes_each_cqe_before_it_returns_the_completion() {
    for cqe_size in [64, 128] {
        let mut cq = Cq::new(16, cqe_size, 0);
        let mut sq = Sq::new(&mut cq, 16, 0, HALF);
        for id in 0..10 {
            post(&mut sq, id);
            cq.produce(nop(id as u32), &[]);
        }
        let mut drain = cq.reader.poll_all(&mut sq.queue);
        for taken in 1..=4 {
            assert!(matches!(drain.next(), Some(Ok(Completion::Send(_)))));
            assert_eq!(cq.record.be32(0), taken, "CQEs of {cqe_size} bytes");
        }
        let _leaked = core::mem::ManuallyDrop::new(drain);
        assert_eq!((cq.record.be32(0), sq.queue.ring.state.used()), (4, 6));
    }
}

/// Queues that check, whenever a poll asks for one, that the record has as many CQEs as requests
/// were retired.
struct Strict<'a> {
    sq: &'a mut Sq,
    record: &'a Memory,
    posted: u32,
    likely: bool,
}

impl Strict<'_> {
    fn check(&self) {
        let retired = self.posted - self.sq.queue.ring.state.used();
        assert_eq!(self.record.be32(0), retired, "the record has what is retired");
    }
}

impl Queues for Strict<'_> {
    fn send_side(&mut self, qpn: u32) -> Option<SendSide<'_>> {
        self.check();
        self.sq.queue.send_side(qpn)
    }

    fn receive_side(&mut self, _: u32) -> Option<ReceiveSide<'_>> {
        None
    }

    fn likely_send_side(&mut self) -> Option<SendSide<'_>> {
        self.check();
        if self.likely { self.sq.queue.likely_send_side() } else { None }
    }

    fn device_failed(&mut self) {}
}

#[test]
fn poll_all_publishes_each_cqe_before_it_asks_for_the_next_queue() {
    for likely in [true, false] {
        let mut cq = Cq::new(16, 64, 0);
        let mut sq = Sq::new(&mut cq, 16, 0, HALF);
        for id in 0..10 {
            post(&mut sq, id);
            cq.produce(nop(id as u32), &[]);
        }
        // The last one by the path that looks at everything.
        post(&mut sq, 10);
        cq.produce(cqe(cqe_opcode::REQ_ERR, opcode::NOP, 10), &[]);
        let mut strict = Strict { sq: &mut sq, record: &cq.record, posted: 11, likely };
        assert_eq!(cq.reader.poll_all(&mut strict).take(11).count(), 11);
        strict.check();
    }
}

#[test]
fn slots_of_unpublished_cqes_are_not_reserved() {
    let mut cq = Cq::new(16, 64, 0);
    cq.reader.publish(Publish::Every(5)).unwrap();
    let sq = Sq::new(&mut cq, 32, 0, HALF);
    assert_eq!(sq.queue.request_limit(), 11);
    // All the others are the queue's: no more can be held back, and less at any time.
    let full = |free, needed| Err(QueueError::CqFull { cqes: 16, free, needed });
    assert_eq!(cq.reader.publish(Publish::Every(6)), full(0, 1));
    assert!(cq.reader.reserve(1, QueueKind::Receive, (1, 1), 0).is_err());
    cq.reader.publish(Publish::Every(2)).unwrap();
    assert_eq!(cq.reader.publish(Publish::Every(6)), full(3, 4));
    drop(cq.reader.reserve(1, QueueKind::Receive, (3, 3), 0).unwrap());
    cq.reader.publish(Publish::Every(5)).unwrap();
    drop(sq);
    cq.reader.publish(Publish::Every(15)).unwrap();
    cq.reader.publish(Publish::EveryPoll).unwrap();
    assert_eq!(Sq::new(&mut cq, 32, 0, HALF).queue.request_limit(), 16);
    // An HCA that looks at the record has to be told.
    assert_eq!(cq.reader.publish(Publish::Never), Err(QueueError::OverrunChecked));
}

/// CQEs of a queue that is dropped with requests outstanding may still come, also if nothing says
/// when its queue pair is gone.
#[test]
fn a_queue_dropped_with_requests_outstanding_keeps_its_slots_until_it_is_taken_over_again() {
    let mut cq = Cq::new(16, 64, 0);
    let mut sq = Sq::new(&mut cq, 16, 0, HALF);
    post(&mut sq, 1);
    drop(sq);
    let full = Err(QueueError::CqFull { cqes: 16, free: 0, needed: 1 });
    let other = cq.reader.reserve(QPN + 1, QueueKind::Send, (1, 1), 0);
    assert_eq!(other.map(|_| ()), full);
    assert_eq!(Sq::new(&mut cq, 16, 0, HALF).queue.request_limit(), 16);
}

/// The HCA's rule: it writes a CQE only if the record says that there is room. A queue that always
/// posts as much as it may never makes it break that rule, whatever is held back.
#[test]
fn the_lag_cannot_cause_an_overrun() {
    let mut random = Random::from_clock();
    for _ in 0..rounds(60) {
        let cqes = 1 << (2 + random.below(4));
        let start = [0, 0xff_fff8, random.below(0x100_0000)][random.below(3) as usize];
        let mut cq = Cq::new(cqes, [64, 128][random.below(2) as usize], start);
        cq.reader.publish(Publish::Every(1 + random.below(cqes - 1))).unwrap();
        let mut sq = Sq::new(&mut cq, 64, 0, HALF);
        let (mut posted, mut completed, mut taken) = (0, 0, 0);
        let mut most = 0;
        // At least so many steps, and until the CQ was more than half full.
        for step in 0.. {
            if step >= rounds(800) && most > cqes / 2 {
                break;
            }
            assert!(step < 100_000, "{most} of {cqes} CQEs were used, {}", random.seed());
            // SAFETY: no HCA is there.
            match unsafe { sq.queue.post(posted, Nop::new().signaled()) } {
                Ok(()) => {
                    posted += 1;
                    continue;
                }
                Err(error) => assert!(matches!(error, PostError::CqFull { .. }), "{error}"),
            }
            while completed < posted && random.below(6) != 0 {
                let used = cq.produced.wrapping_sub(cq.record.be32(0)) & 0xff_ffff;
                assert!(used < cqes, "the CQ overruns: {used} of {cqes}, {}", random.seed());
                most = most.max(used + 1);
                cq.produce(nop(completed as u32), &[]);
                completed += 1;
            }
            for _ in 0..random.below(cqes) {
                match cq.reader.poll(&mut sq.queue).unwrap() {
                    Some(Completion::Send(done)) => assert_eq!(done.id, taken),
                    None => break,
                    Some(other) => panic!("{other:?}"),
                }
                taken += 1;
            }
        }
    }
}
