//! Tests of threads that use devices of one engine at the same time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::Scope;
use std::time::Instant;

use super::super::deferred::{Registers, Store};
use super::super::device::{Budget, Inside, Worker};
use super::super::{ENTRY, Engine, STORE, TURN};
use super::{PATIENCE, domain, packet, received};
use crate::card::{Card, Link};
use crate::command::test::Rig;
use crate::fabric::Devices;
use crate::identity::Identity;
use crate::object::Pages;
use crate::transport::test::Setup;
use crate::transport::test::extended::copy;
use crate::transport::test::side::{Post, Side};
use crate::wire::{Frame, mac};

/// Devices at different ports of one link, and their identities.
fn cards() -> (Vec<Card>, [Identity; 2]) {
    let cards = [1, 2].map(|end| {
        let mut card = Rig::on(Link::InfiniBand).card;
        let identity = &mut card.identity;
        (identity.lid, identity.gids[0].gid[15]) = (end.into(), end);
        identity.mac = mac(&identity.gids[0].gid);
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

/// Registers that write down which stores are executed.
struct Log(Mutex<Vec<usize>>);

impl Log {
    fn leak() -> &'static Self {
        Box::leak(Box::new(Self(Mutex::new(Vec::new()))))
    }

    fn offsets(&self) -> Vec<usize> {
        self.0.lock().unwrap().clone()
    }
}

impl Registers for Log {
    fn execute(&self, _: &mut Card, offset: usize, _: &[u8]) {
        self.0.lock().unwrap().push(offset);
    }
}

/// Executes a store.
fn store(engine: &Engine, card: usize, page: &dyn Registers, offset: usize) -> Option<()> {
    engine.enter_from_fault(card, |card| page.execute(card, offset, &[1]))
}

/// Has a thread enter a device and stay there until it is told. Returns whether it was told in time.
fn stay(engine: &Engine, card: usize, entered: &Sender<()>, leave: &Receiver<()>) -> bool {
    engine.enter(card, |_| {
        entered.send(()).expect("a listener");
        leave.recv_timeout(PATIENCE).is_ok()
    })
}

/// Runs `work` while another thread is in a device.
fn while_busy(engine: &Engine, card: usize, work: impl FnOnce()) {
    let ((entered, inside), (told, leave)) = (channel(), channel());
    std::thread::scope(|scope| {
        let other = scope.spawn(move || stay(engine, card, &entered, &leave));
        inside.recv().expect("it enters");
        work();
        let _ = told.send(());
        assert!(other.join().expect("its end"), "the work waited for the thread in the device");
    });
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

/// Has a thread do something that has to wait for a device, which this thread is in. Returns when the
/// other thread waits.
fn until_it_waits<'scope>(
    scope: &'scope Scope<'scope, '_>,
    engine: &Engine,
    inside: &Inside<'_>,
    work: impl FnOnce() + Send + 'scope,
) {
    let other = scope.spawn(work);
    let end = Instant::now() + PATIENCE;
    while !engine.devices[inside.index].lock.is_awaited() {
        assert!(Instant::now() < end && !other.is_finished(), "it does not wait");
        std::thread::yield_now();
    }
    assert!(!other.is_finished());
}

#[test]
fn store_to_a_busy_device_is_repeated_and_the_other_devices_are_not_waited_for() {
    let (engine, _) = engine();
    let log = Log::leak();
    while_busy(&engine, 0, || {
        let begun = Instant::now();
        assert_eq!(store(&engine, 0, log, 1), None, "to be repeated");
        assert!(begun.elapsed() >= STORE, "it gives up too early");
        store(&engine, 1, log, 2).expect("executed");
    });
    store(&engine, 0, log, 3).expect("executed");
    assert_eq!(log.offsets(), [2, 3]);
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
    store(&engine, 0, log, 4).expect("executed");
    put(5);
    engine.while_stopped(|| assert_eq!(log.offsets(), [1, 2, 3, 4, 5]));
}

#[test]
fn entry_waits_for_a_device_that_has_frames_of_it() {
    for done_by_the_other in [false, true] {
        let (engine, identities) = engine();
        let engine = &*engine;
        let frame = packet_between(&identities[0], &identities[1]);
        let mut inside = engine.inside(1);
        std::thread::scope(|scope| {
            let other = || engine.enter(0, |card| card.outbox.push_back(frame));
            until_it_waits(scope, engine, &inside, other);
            if done_by_the_other {
                inside.attend(&mut Budget::new(Worker::Engine, TURN));
            }
            drop(inside);
        });
        assert!(!engine.devices.iter().any(|device| device.work.is_there()));
        assert_eq!(received(&engine.inside(1).seat.card), 1);
    }
}

#[test]
fn entry_waits_for_work_that_another_thread_has_moved_on() {
    let (engine, identities) = engine();
    let engine = &*engine;
    let [there, back] =
        [(0, 1), (1, 0)].map(|(from, to)| packet_between(&identities[from], &identities[to]));
    let mut inside = engine.inside(1);
    std::thread::scope(|scope| {
        let other = || engine.enter(0, |card| card.outbox.push_back(there));
        until_it_waits(scope, engine, &inside, other);
        // The answer goes to a device that the other thread has looked at.
        inside.seat.card.outbox.push_back(back);
        inside.attend(&mut Budget::new(Worker::Engine, TURN));
        drop(inside);
    });
    assert!(!engine.devices.iter().any(|device| device.work.is_there()));
    assert_eq!([0, 1].map(|card| received(&engine.inside(card).seat.card)), [1, 1]);
}

#[test]
fn entry_without_frames_for_another_device_does_not_wait_for_it() {
    let (engine, identities) = engine();
    let own = packet_between(&identities[0], &identities[0]);
    let frame = packet_between(&identities[0], &identities[1]);
    while_busy(&engine, 1, || {
        // As if from another process.
        engine.deliver(1, &frame);
        engine.enter(0, |card| card.outbox.push_back(own));
        assert!(engine.devices[1].work.is_there());
    });
    // The thread that was in the device has done it.
    assert!(!engine.devices[1].work.is_there());
    assert_eq!([0, 1].map(|card| received(&engine.inside(card).seat.card)), [1, 1]);
}

#[test]
fn engines_thread_leaves_work_to_the_thread_in_the_device() {
    let (engine, identities) = engine();
    let frame = packet_between(&identities[0], &identities[1]);
    while_busy(&engine, 1, || {
        engine.inside(0).seat.card.outbox.push_back(frame);
        let mut budget = Budget::new(Worker::Engine, TURN);
        engine.inside(0).attend(&mut budget);
        engine.attend(&mut budget);
        assert!(engine.devices[1].work.is_there());
    });
    assert!(!engine.devices[1].work.is_there());
    assert_eq!(received(&engine.inside(1).seat.card), 1);
}

#[test]
fn thread_that_stops_all_devices_does_what_waits_in_any() {
    let (engine, identities) = engine();
    for (from, to) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
        let frame = packet_between(&identities[from], &identities[to]);
        engine.inside(from).seat.card.outbox.extend(vec![frame; 2 * TURN]);
    }
    let mut budget = Budget::new(Worker::Program, ENTRY);
    for card in [0, 1] {
        engine.inside(card).attend(&mut budget);
    }
    assert!(budget.must_wait());
    engine.attend_stopped(&mut budget);
    assert!(!budget.must_wait());
    assert!(!engine.devices.iter().any(|device| device.work.is_there()));
    let all = 4 * TURN as u64;
    assert_eq!([0, 1].map(|card| received(&engine.inside(card).seat.card)), [all; 2]);
}

#[test]
fn entry_leaves_work_beyond_its_bound_to_the_thread() {
    let (engine, identities) = engine();
    let own = packet_between(&identities[0], &identities[0]);
    engine.inside(0).seat.card.outbox.extend(vec![own; 5000]);
    let mut budget = Budget::new(Worker::Program, 100);
    engine.inside(0).attend(&mut budget);
    assert_eq!(budget.frames, 0);
    assert!(engine.devices[0].work.is_there());
    engine.enter(0, |_| ());
    assert!(!engine.devices[0].work.is_there());
    assert_eq!(engine.enter(0, |card| received(card)), 5000);
}

/// Enters a device with a send queue of the largest ring, which is full of one WQE, and checks that
/// the thread leaves it. Returns how many WQEs the device has taken meanwhile.
fn taken_by_an_entry(wqe: impl Fn(&Side) -> Post) -> usize {
    const BLOCKS: u16 = 1 << 15;
    const PAGE: usize = 4096;
    let setup = Setup::default();
    let mut side = Side::new(setup, 0);
    let identity = &side.rig.card.identity;
    let own = (side.qp, identity.lid, identity.gids[0].gid);
    side.connect(setup, own, [7, 7]);
    let wqe = Post { signaled: false, ..wqe(&side) };
    side.write(&wqe);
    let block: [u8; 64] = side.rig.read(side.places().1.start);
    // All pages of the ring are one.
    let page = side.rig.page();
    for at in (0..PAGE as u64).step_by(block.len()) {
        side.rig.write(page + at, &block);
    }
    let (length, number) = (usize::from(BLOCKS) * block.len(), side.qp);
    let qp = side.rig.card.objects.qps.get_mut(&number).unwrap();
    qp.sq.pages = Pages::new(vec![page; length / PAGE], 12, 0, length).unwrap();
    qp.sq.blocks = BLOCKS.into();
    // A doorbell with a size of zero names the end.
    let doorbell = u64::from(BLOCKS) << 40 | u64::from(number) << 8;
    side.rig.card.store(side.rig.uar, 0x800, &doorbell.to_be_bytes());
    let card = std::mem::replace(&mut side.rig.card, Rig::on(setup.link).card);
    let engine = Engine::new(vec![card], Box::new(|_, _, _| {}));
    let mut budget = Budget::new(Worker::Program, ENTRY);
    engine.inside(0).attend(&mut budget);
    assert_eq!(budget.frames, ENTRY - TURN);
    assert!(engine.devices[0].work.is_there(), "the rest is left to the engine's thread");
    engine.inside(0).seat.card.objects.qps[&number].sq.fetched.into()
}

/// A turn of a queue pair takes up to so many WQEs.
const QUANTUM: usize = 16;

#[test]
fn thread_leaves_a_device_whose_send_queue_is_long() {
    let taken = taken_by_an_entry(|_| Post::new(0));
    assert!((1..=TURN * QUANTUM).contains(&taken), "{taken} NOPs");
}

#[test]
fn thread_leaves_a_device_that_copies_as_soon_as_after_frames_of_as_many_bytes() {
    const LENGTH: u32 = 128 << 10;
    let taken = taken_by_an_entry(|side| copy(side, 0, 256 << 10, LENGTH));
    let most = (TURN * 4096).div_ceil(LENGTH as usize) + QUANTUM;
    assert!((1..=most).contains(&taken), "{taken} copies");
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
                        while store(engine, from, sends, 0).is_none() {}
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
        let inside = engine.inside(card);
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
