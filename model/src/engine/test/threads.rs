//! Tests of threads that use devices of one engine at the same time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use super::super::deferred::{Registers, Store, Stores};
use super::super::lock::Holder;
use super::super::{Budget, Engine};
use super::{PATIENCE, domain, packet, received};
use crate::card::{Card, Link};
use crate::command::test::Rig;
use crate::identity::Identity;
use crate::wire::{Frame, mac};

/// Devices at different ports of one link, and their identities.
fn cards() -> (Vec<Card>, [Identity; 2]) {
    let cards = [1, 2].map(|end| {
        let mut card = Rig::on(Link::InfiniBand).card;
        let identity = &mut card.identity;
        (identity.lid, identity.gids[0][15]) = (end.into(), end);
        identity.mac = mac(&identity.gids[0]);
        card
    });
    let identities = cards.each_ref().map(|card| card.identity.clone());
    (cards.into(), identities)
}

fn engine() -> (Arc<Engine>, [Identity; 2]) {
    let (cards, identities) = cards();
    (Engine::new(cards, Box::new(|_, _, _| {})), identities)
}

/// A packet from a device to the other one, or to itself.
fn packet_between(from: &Identity, to: &Identity) -> Frame {
    packet(from, to, u32::from(to.qpn_prefixes[0]) << 8)
}

/// Registers that write down which thread executes which store.
struct Log(Mutex<Vec<(ThreadId, usize)>>);

impl Log {
    fn leak() -> &'static Self {
        Box::leak(Box::new(Self(Mutex::new(Vec::new()))))
    }

    fn all(&self) -> Vec<(ThreadId, usize)> {
        self.0.lock().unwrap().clone()
    }

    fn offsets(&self) -> Vec<usize> {
        self.all().into_iter().map(|(_, offset)| offset).collect()
    }
}

impl Registers for Log {
    fn execute(&self, _: &mut Card, offset: usize, _: &[u8]) {
        self.0.lock().unwrap().push((std::thread::current().id(), offset));
    }
}

/// A copy by stores of so many bytes, one behind the other.
struct Copying {
    start: usize,
    lengths: Vec<usize>,
    done: usize,
}

impl Copying {
    fn new(start: usize, lengths: &[usize]) -> Self {
        Self { start, lengths: lengths.to_vec(), done: 0 }
    }
}

impl Stores for Copying {
    fn store(&self) -> (usize, &[u8]) {
        (self.start + self.done, &[0; 128][..self.lengths[self.done]])
    }

    fn done(&mut self) -> bool {
        self.done += 1;
        self.done < self.lengths.len()
    }
}

/// Executes one store, or has it wait.
fn store(
    engine: &Engine,
    card: usize,
    page: &'static dyn Registers,
    offset: usize,
    bytes: &[u8],
) -> Option<()> {
    engine.store_from_fault(card, page, &mut Copying::new(offset, &[bytes.len()]))
}

/// Has a thread enter a device and stay there until it is told. Returns whether it was told in time.
fn stay(engine: &Engine, card: usize, entered: &Sender<()>, leave: &Receiver<()>) -> bool {
    engine.enter(card, |_| {
        entered.send(()).expect("a listener");
        leave.recv_timeout(PATIENCE).is_ok()
    })
}

/// Runs `work` while another thread is in a device. Returns the thread.
fn while_busy(engine: &Engine, card: usize, work: impl FnOnce()) -> ThreadId {
    let ((entered, inside), (told, leave)) = (channel(), channel());
    std::thread::scope(|scope| {
        let other = scope.spawn(move || stay(engine, card, &entered, &leave));
        let thread = other.thread().id();
        inside.recv().expect("it enters");
        work();
        let _ = told.send(());
        assert!(other.join().expect("its end"), "the work waited for the thread in the device");
        thread
    })
}

#[test]
fn device_is_used_while_a_thread_is_in_another_one() {
    let seen = Arc::new(AtomicUsize::new(0));
    let log = seen.clone();
    let (cards, identities) = cards();
    let interrupt = move |index: usize, _: &mut Card, vector: u32| {
        log.store(index << 16 | vector as usize, Ordering::Relaxed);
    };
    let engine = Engine::new(cards, Box::new(interrupt));
    while_busy(&engine, 0, || {
        let frame = packet_between(&identities[1], &identities[1]);
        engine.enter(1, |card| {
            card.interrupts.push_back(5);
            card.outbox.push_back(frame);
        });
        assert_eq!(seen.load(Ordering::Relaxed), 1 << 16 | 5);
        assert_eq!(engine.enter(1, |card| received(card)), 1);
    });
}

#[test]
fn store_to_a_busy_device_returns_and_the_thread_in_the_device_executes_it() {
    let (engine, _) = engine();
    let log = Log::leak();
    let thread = while_busy(&engine, 0, || {
        for offset in 0..3 {
            assert_eq!(store(&engine, 0, log, offset, &[1]), Some(()));
        }
        assert_eq!(log.offsets(), [], "a thread is in the device");
        // The other device's stores do not wait.
        store(&engine, 1, log, 7, &[1]).expect("executed");
        assert_eq!(log.offsets(), [7]);
    });
    assert_eq!(log.offsets(), [7, 0, 1, 2]);
    assert!(log.all()[1..].iter().all(|(by, _)| *by == thread), "{thread:?}: {:?}", log.all());
}

#[test]
fn store_waits_if_no_room_is_left_or_it_is_too_long() {
    let (engine, _) = engine();
    let log = Log::leak();
    while_busy(&engine, 0, || {
        assert_eq!(store(&engine, 0, log, 0, &[0; 65]), None, "to be repeated");
        let mut room = 0;
        while store(&engine, 0, log, room, &[1]).is_some() {
            room += 1;
        }
        assert!(room > 100, "{room}");
        assert_eq!(log.offsets(), []);
    });
    assert!(log.offsets().iter().copied().eq(0..log.offsets().len()));
    assert!(!log.offsets().is_empty());
}

#[test]
fn copy_to_a_busy_device_keeps_its_order() {
    let (engine, _) = engine();
    let log = Log::leak();
    while_busy(&engine, 0, || {
        let mut whole = Copying::new(0, &[16, 16, 16, 16]);
        assert_eq!(engine.store_from_fault(0, log, &mut whole), Some(()));
        assert_eq!((whole.done, log.offsets().len()), (4, 0));
        let mut part = Copying::new(4, &[16, 65, 16]);
        assert_eq!(engine.store_from_fault(0, log, &mut part), None);
        assert_eq!(part.done, 1, "the next store is too long to wait, and is repeated");
    });
    assert_eq!(log.offsets(), [0, 1, 2, 3, 4]);
    let mut copy = Copying::new(5, &[65, 16]);
    assert_eq!(engine.store_from_fault(0, log, &mut copy), Some(()));
    assert_eq!(log.offsets(), [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn entry_executes_first_what_was_deferred() {
    let (engine, _) = engine();
    let log = Log::leak();
    let put = |offset| {
        let store = Store::new(log, offset, &[1]).expect("short");
        assert!(engine.devices[0].work.deferred.put(store));
    };
    put(1);
    engine.enter(0, |card| log.execute(card, 2, &[]));
    put(3);
    store(&engine, 0, log, 4, &[]).expect("executed");
    put(5);
    engine.while_stopped(|| assert_eq!(log.offsets(), [1, 2, 3, 4, 5]));
}

#[test]
fn frame_to_a_busy_device_is_executed_by_the_thread_in_it() {
    let (engine, identities) = engine();
    while_busy(&engine, 1, || {
        let frame = packet_between(&identities[0], &identities[1]);
        engine.enter(0, |card| card.outbox.push_back(frame));
        assert!(engine.devices[1].work.is_there());
    });
    assert!(!engine.devices[1].work.is_there());
    // Looks without doing what waits.
    assert_eq!(received(&engine.inside(1, Holder::Program).seat.card), 1);
}

#[test]
fn entry_waits_for_the_engines_thread() {
    let (engine, identities) = engine();
    let engine = &*engine;
    for card in 0..2 {
        let log = Log::leak();
        let done = AtomicBool::new(false);
        let thread = engine.inside(card, Holder::Thread);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let frame = packet_between(&identities[0], &identities[1]);
                engine.enter(0, |card| card.outbox.push_back(frame));
                store(engine, 0, log, 1, &[1]).expect("executed");
                assert_eq!(log.offsets(), [1]);
                assert!(!engine.devices.iter().any(|device| device.work.is_there()));
                done.store(true, Ordering::Relaxed);
            });
            let end = Instant::now() + PATIENCE;
            while !engine.devices[card].lock.is_awaited() {
                assert!(Instant::now() < end && !other.is_finished(), "it does not wait");
                std::thread::yield_now();
            }
            assert!(!done.load(Ordering::Relaxed));
            drop(thread);
        });
        let after = received(&engine.inside(1, Holder::Program).seat.card);
        assert_eq!(after, card as u64 + 1);
    }
}

#[test]
fn entry_leaves_work_beyond_its_bound_to_the_thread() {
    let (engine, identities) = engine();
    let own = packet_between(&identities[0], &identities[0]);
    engine.inside(0, Holder::Program).seat.card.outbox.extend(vec![own; 5000]);
    let mut budget = Budget { frames: 100, holder: Holder::Program, has_sent: false };
    engine.inside(0, Holder::Program).attend(&mut budget);
    assert_eq!(budget.frames, 0);
    assert!(engine.devices[0].work.is_there());
    engine.enter(0, |_| ());
    assert!(!engine.devices[0].work.is_there());
    assert_eq!(engine.enter(0, |card| received(card)), 5000);
}

/// Registers whose stores send a packet from the device.
struct Sends(Frame);

impl Registers for Sends {
    fn execute(&self, card: &mut Card, _: usize, _: &[u8]) {
        card.outbox.push_back(self.0.clone());
    }
}

#[test]
fn threads_that_exchange_frames_between_devices_lose_none() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 3000;
    let (engine, identities) = engine();
    let ways = [(0, 1), (1, 0), (0, 0), (1, 1)].map(|(from, to)| {
        let frame = packet_between(&identities[from], &identities[to]);
        (from, &*Box::leak(Box::new(Sends(frame))))
    });
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let engine = &engine;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let (from, sends) = ways[(thread + round) % ways.len()];
                    if round % 3 == 0 {
                        engine.enter(from, |card| card.outbox.push_back(sends.0.clone()));
                    } else {
                        while store(engine, from, sends, 0, &[1]).is_none() {}
                    }
                    if round % 512 == 0 {
                        engine.while_stopped(|| ());
                    }
                }
            });
        }
    });
    assert!(!engine.devices.iter().any(|device| device.work.is_there()), "all threads have left");
    for card in 0..2 {
        let inside = engine.inside(card, Holder::Program);
        assert_eq!(received(&inside.seat.card), (THREADS * ROUNDS / 2) as u64);
    }
}

#[test]
fn deferred_stores_are_the_parents_after_a_fork() {
    let (cards, _) = cards();
    let engine = Engine::connected(&domain(), cards, Box::new(|_, _, _| {})).unwrap();
    let log = Log::leak();
    assert!(engine.devices[0].work.deferred.put(Store::new(log, 1, &[1]).expect("short")));
    // SAFETY: the child only looks at its copy of the engine, which `pthread_atfork` keeps whole, and
    // leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let forgotten = !engine.devices[0].work.is_there() && log.offsets().is_empty();
        engine.enter(0, |_| ());
        let none = log.offsets().is_empty();
        // SAFETY: `_exit` passes no memory.
        unsafe { libc::_exit(if forgotten && none { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the call writes one int, `status`.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child has executed them or still has them");
    assert_eq!(log.offsets(), [1]);
}

#[test]
fn lock_tells_whether_the_engines_thread_has_it() {
    let (engine, _) = engine();
    assert_eq!(engine.holder(0), None);
    for holder in [Holder::Program, Holder::Thread] {
        let inside = engine.inside(0, holder);
        assert_eq!((engine.holder(0), engine.holder(1)), (Some(holder), None));
        // A thread that waits does not change the answer.
        let limit = Duration::from_millis(1);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| engine.inside_within(0, limit, Holder::Program).is_none());
            assert!(waits.join().expect("its end"));
        });
        assert_eq!(engine.holder(0), Some(holder));
        drop(inside);
    }
    assert_eq!(engine.holder(0), None);
}
