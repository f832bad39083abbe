//! The protocol of shared send queues under every interleaving that the memory model allows, up to
//! a bound. The source is the driver's, with loom's atomics.
//!
//! The ring has one loom cell per block. A cell fails a test if a write may race with any other
//! access. The doorbell, its shadow, and the positions that a reader retires are such cells too.

#[allow(dead_code, reason = "what is needed with hardware only")]
#[path = "../src/ring/send/shared/position.rs"]
mod position;
#[allow(dead_code, reason = "what is needed with hardware only")]
#[path = "../src/ring/send/shared/sequencer.rs"]
mod sequencer;

mod atomic {
    pub use loom::sync::atomic::{AtomicU64, Ordering};

    /// Enough that there is a wait, and one that ends before the other thread is done.
    pub const LOOKS: u32 = 1;

    pub fn prefetch_write<T>(_: *const T) {}

    pub fn spin_loop() {}
}

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use position::Position;
use sequencer::{Refusal, Sequencer};

/// The note beside a stamp: an id.
struct Note(UnsafeCell<u32>);

impl Default for Note {
    fn default() -> Self {
        Self(UnsafeCell::new(0))
    }
}

// SAFETY: loom checks it.
unsafe impl Sync for Note {}

/// A send queue without a card: what is written where, and what was rung.
struct Queue {
    sequencer: Sequencer<Note>,
    /// The WQE in each slot, identified by its first block.
    ring: Vec<UnsafeCell<u32>>,
    /// The doorbell: ids in the order in which they were rung.
    rung: UnsafeCell<Vec<u32>>,
    start: u64,
}

const ENTRIES: u32 = 4;

impl Queue {
    fn new(start: u64, entries: u32, requests: u32) -> Arc<Self> {
        let at = (Position::new(start), start as u16);
        Arc::new(Self {
            sequencer: Sequencer::new(entries, requests, at, at, at.0),
            ring: (0..entries).map(|_| UnsafeCell::new(0)).collect(),
            rung: UnsafeCell::new(Vec::new()),
            start,
        })
    }

    fn slot(&self, position: Position) -> &UnsafeCell<u32> {
        &self.ring[position.slot(self.ring.len() as u32)]
    }

    /// As a producer posts a signaled request.
    fn post(&self, id: u32, blocks: u32) -> Result<(), Refusal> {
        self.post_some(id, blocks, true)
    }

    /// As a producer posts a request, signaled or not.
    fn post_some(&self, id: u32, blocks: u32, signaled: bool) -> Result<(), Refusal> {
        let ticket = self.sequencer.reserve(blocks, signaled)?;
        let first = ticket.position();
        for block in 0..blocks {
            // SAFETY: loom checks it.
            self.slot(first.plus(block)).with_mut(|place| unsafe { *place = id });
        }
        // SAFETY: loom checks it.
        self.sequencer.note(first).0.with_mut(|note| unsafe { *note = id });
        let mut next = self.sequencer.written(ticket, blocks * 4);
        while let Some(turn) = next {
            let from = self.sequencer.rung();
            let mut ids = Vec::new();
            let mut at = from;
            while at != turn.end() {
                // SAFETY: loom checks it.
                ids.push(self.slot(at).with(|place| unsafe { *place }));
                at = at.plus(1);
            }
            let (last, _) = turn.last();
            // SAFETY: loom checks it.
            let note = self.sequencer.note(last).0.with(|note| unsafe { *note });
            assert_eq!(Some(&note), ids.last());
            turn.publish();
            // SAFETY: loom checks it.
            self.rung.with_mut(|rung| unsafe { (*rung).extend(ids) });
            next = turn.pass();
        }
        Ok(())
    }

    /// As a reader retires what is rung. Returns the ids, one per block.
    fn retire(&self, from: Position) -> (Position, Vec<u32>) {
        let end = self.sequencer.rung();
        let mut ids = Vec::new();
        let mut at = from;
        while at != end {
            // SAFETY: loom checks it.
            let id = self.slot(at).with(|place| unsafe { *place });
            if ids.last() != Some(&id) {
                // SAFETY: loom checks it.
                assert_eq!(self.sequencer.note(at).0.with(|note| unsafe { *note }), id);
            }
            ids.push(id);
            at = at.plus(1);
        }
        if end != from {
            self.sequencer.retire(end.get() as u32, end.get() as u16);
        }
        (end, ids)
    }

    /// Every WQE was rung once, in order, when all threads are done.
    fn check(&self, mut expected: Vec<u32>) {
        let (reserved, _) = self.sequencer.reserved();
        assert_eq!(self.sequencer.rung(), reserved);
        // SAFETY: loom checks it.
        let mut rung = self.rung.with(|rung| unsafe { (*rung).clone() });
        assert_eq!(rung.len() as u64, reserved.since(Position::new(self.start)));
        rung.sort_unstable();
        expected.sort_unstable();
        assert_eq!(rung, expected);
    }
}

fn model(preemptions: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(test);
}

#[test]
fn two_threads_post_once_each() {
    model(5, || {
        let queue = Queue::new(0, ENTRIES, 9);
        let other = Arc::clone(&queue);
        let thread = thread::spawn(move || other.post(1, 1).unwrap());
        queue.post(2, 2).unwrap();
        thread.join().unwrap();
        queue.check(vec![1, 2, 2]);
    });
}

#[test]
fn two_threads_post_twice_each() {
    model(3, || {
        // Over the end of the counter, too.
        let queue = Queue::new((1 << 46) - 2, ENTRIES, 9);
        let other = Arc::clone(&queue);
        let thread = thread::spawn(move || {
            other.post(1, 1).unwrap();
            other.post(2, 1).unwrap();
        });
        queue.post(3, 1).unwrap();
        queue.post(4, 1).unwrap();
        thread.join().unwrap();
        queue.check(vec![1, 2, 3, 4]);
    });
}

#[test]
fn three_threads_post() {
    model(2, || {
        let queue = Queue::new(0, ENTRIES, 9);
        let threads = [1, 2].map(|id| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.post(id, 1).unwrap())
        });
        queue.post(3, 2).unwrap();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        queue.check(vec![1, 2, 3, 3]);
    });
}

/// Blocks are reused: a thread that overwrites one is ordered after the reader, and after the
/// thread that rang it.
#[test]
fn blocks_are_reused_after_a_reader_retired_them() {
    model(3, || {
        let queue = Queue::new(0, 2, 9);
        let other = Arc::clone(&queue);
        let thread = thread::spawn(move || {
            let mut posted = Vec::new();
            for id in [1, 2] {
                if other.post(id, 1).is_ok() {
                    posted.push(id);
                }
            }
            posted
        });
        let mut expected = Vec::new();
        let mut tail = Position::new(0);
        let mut retired = Vec::new();
        for id in [3, 4] {
            if queue.post(id, 1).is_ok() {
                expected.push(id);
            }
            let (end, ids) = queue.retire(tail);
            tail = end;
            retired.extend(ids);
        }
        expected.extend(thread.join().unwrap());
        let (_, ids) = queue.retire(tail);
        retired.extend(ids);
        queue.check(expected);
        // SAFETY: loom checks it.
        assert_eq!(retired, queue.rung.with(|rung| unsafe { (*rung).clone() }));
    });
}

/// A refusal is true: with room for one, one of two threads gets it.
#[test]
fn room_for_one_is_given_once() {
    let refusals = [(1, 9, Refusal::Blocks { free: 0 }), (4, 1, Refusal::Slots { slots: 1 })];
    for (entries, requests, refusal) in refusals {
        model(5, move || {
            let queue = Queue::new(0, entries, requests);
            let other = Arc::clone(&queue);
            let thread = thread::spawn(move || other.post(1, 1));
            let mine = queue.post(2, 1);
            let theirs = thread.join().unwrap();
            assert!(
                matches!((mine, theirs), (Ok(()), Err(it)) | (Err(it), Ok(())) if it == refusal)
            );
            queue.check(vec![if mine.is_ok() { 2 } else { 1 }]);
        });
    }
}

/// The last block is for a signaled WQE, also if two threads take the blocks before it.
#[test]
fn unsignaled_posts_leave_a_block_for_a_signaled_one() {
    model(5, || {
        let queue = Queue::new(0, 2, 9);
        let other = Arc::clone(&queue);
        let thread = thread::spawn(move || other.post_some(1, 1, false));
        let mine = queue.post_some(2, 1, false);
        let theirs = thread.join().unwrap();
        let silent = Refusal::NothingSignaled { outstanding: 1 };
        // As long as the other thread's WQE is not rung, it might be signaled.
        let refusals = [silent, Refusal::Blocks { free: 1 }];
        assert!(
            matches!(
                (mine, theirs),
                (Ok(()), Err(it)) | (Err(it), Ok(())) if refusals.contains(&it)
            ),
            "{mine:?} {theirs:?}"
        );
        assert_eq!(queue.post_some(4, 1, false), Err(silent));
        assert_eq!(queue.post(3, 1), Ok(()));
        queue.check(vec![if mine.is_ok() { 2 } else { 1 }, 3]);
    });
}

/// A WQE reserved before a stop is rung; later ones are refused.
#[test]
fn a_stop_loses_nothing() {
    model(3, || {
        let queue = Queue::new(0, ENTRIES, 9);
        let other = Arc::clone(&queue);
        let thread = thread::spawn(move || (other.post(1, 1), other.post(2, 1)));
        queue.sequencer.stop();
        assert_eq!(queue.post(3, 1), Err(Refusal::Stopped));
        let (first, second) = thread.join().unwrap();
        assert!(first.is_ok() || second == Err(Refusal::Stopped));
        let posted = [(1, first), (2, second)];
        queue.check(posted.iter().filter(|it| it.1.is_ok()).map(|it| it.0).collect());
    });
}
