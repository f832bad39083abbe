//! Engines of a process that forks or exits.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::deferred::Store;
use super::device::Budget;
use super::shared::Outside;
use super::{Engine, Shield, Stopped};
use crate::fabric::local::{Network, socket};
use crate::fabric::udp::Udp;

/// Longest that an exiting process stays for packets that found no room.
const LINGER: Duration = Duration::from_secs(1);

static ENGINES: Mutex<Vec<Weak<Engine>>> = Mutex::new(Vec::new());

thread_local! {
    /// Engines locked by this thread while it forks.
    static FORKING: RefCell<Option<Forking>> = const { RefCell::new(None) };
}

/// The engines that a thread holds while it forks. Signals come only when the engines are free
/// again.
struct Forking {
    engines: Vec<Locked>,
    _shield: Shield,
}

/// Everything in an engine, kept from other threads.
struct Held<'a> {
    // Dropped in this order.
    deferred: Vec<MutexGuard<'a, VecDeque<Store>>>,
    outside: MutexGuard<'a, Outside>,
    _devices: Stopped<'a>,
}

/// A locked engine. It has a destructor, so it cannot be taken apart, after which the engine could be
/// freed before its locks are.
struct Locked {
    /// Borrows from `engine`.
    held: ManuallyDrop<Held<'static>>,
    engine: Arc<Engine>,
}

impl Locked {
    fn new(engine: Arc<Engine>) -> Self {
        let devices = engine.stop();
        let outside = engine.outside();
        let deferred = engine.devices.iter().map(|device| device.work.deferred.hold()).collect();
        let held = Held { deferred, outside, _devices: devices };
        // SAFETY: the guards borrow from the engine, which this value keeps alive and at its address
        // until `drop` has dropped them. No method lends them for longer than that.
        let held = unsafe { std::mem::transmute::<Held<'_>, Held<'static>>(held) };
        Self { held: ManuallyDrop::new(held), engine }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: the guards are dropped here alone, once, and before the engine.
        unsafe { ManuallyDrop::drop(&mut self.held) };
    }
}

/// Looks after an engine from now on.
pub(super) fn register(engine: &Arc<Engine>) {
    static HOOKS: Once = Once::new();
    HOOKS.call_once(|| {
        // SAFETY: the functions have the types asked for, and are there as long as the process: the
        // library is never unloaded, since its threads run.
        unsafe {
            libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
            libc::atexit(at_exit);
        }
    });
    let mut engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
    engines.retain(|engine| engine.strong_count() > 0);
    engines.push(Arc::downgrade(engine));
}

fn engines() -> Vec<Arc<Engine>> {
    let engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
    engines.iter().filter_map(Weak::upgrade).filter(|engine| !engine.is_detached()).collect()
}

/// Locks every engine, so that the child's copies are whole.
extern "C" fn before_fork() {
    let shield = Shield::new();
    let engines = engines().into_iter().map(Locked::new).collect();
    let forking = Forking { engines, _shield: shield };
    FORKING.set(Some(forking));
}

extern "C" fn in_parent() {
    let Some(Forking { engines, _shield }) = FORKING.take() else { return };
    for locked in engines {
        let engine = Arc::clone(&locked.engine);
        drop(locked);
        engine.attend(&mut engine.budget());
    }
}

/// The child has the sockets' copies, which would keep the parent's names alive, and no thread. What
/// waits for the devices is the parent's.
extern "C" fn in_child() {
    let Some(mut forking) = FORKING.take() else { return };
    for mut locked in forking.engines.drain(..) {
        let Locked { held, engine } = &mut locked;
        engine.detached.store(true, Ordering::Relaxed);
        engine.runs.store(false, Ordering::Relaxed);
        for (device, stores) in engine.devices.iter().zip(&mut held.deferred) {
            device.lock.forget_waiters();
            device.work.inbox.clear();
            device.work.deferred.clear(stores);
            device.work.set_unfinished(false);
        }
        if let Some(order) = &engine.order {
            order.forget_waiters();
        }
        // Its descriptors are copies: closing them changes nothing for the parent.
        held.outside.udp = None;
        if let Some(network) = held.outside.network.take() {
            network.abandon();
        }
    }
}

/// Gives packets that wait for room a last chance.
extern "C" fn at_exit() {
    let end = Instant::now() + LINGER;
    for engine in engines() {
        loop {
            let waiting = engine.linger();
            let left = end.saturating_duration_since(Instant::now());
            if waiting.is_empty() || left.is_zero() {
                break;
            }
            socket::wait_writable(&waiting, left.as_millis() as libc::c_int + 1);
        }
    }
}

impl Engine {
    /// Does what is left to do. Returns the sockets for which packets wait.
    fn linger(&self) -> Vec<RawFd> {
        let _shield = Shield::new();
        let mut outside = self.outside();
        let Outside { network, udp } = &mut *outside;
        if let Some(network) = network {
            network.retry(self);
        }
        if let Some(udp) = udp {
            udp.retry(self);
        }
        drop(outside);
        let mut budget = Budget { frames: usize::MAX, ..self.budget() };
        for index in 0..self.devices.len() {
            self.inside(index).attend(&mut budget);
        }
        self.attend(&mut budget);
        let outside = self.outside();
        let mut waiting = outside.network.as_ref().map(Network::congested).unwrap_or_default();
        waiting.extend(outside.udp.iter().flat_map(Udp::congested));
        waiting
    }
}
