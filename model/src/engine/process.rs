//! Engines of a process that forks or exits.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::lock::Guard;
use super::{Engine, Shield, State};
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

/// A locked engine. It has a destructor, so it cannot be taken apart, after which the engine could be
/// freed before its lock is.
struct Locked {
    /// Borrows from `engine`.
    guard: ManuallyDrop<Guard<'static, State>>,
    engine: Arc<Engine>,
}

impl Locked {
    fn new(engine: Arc<Engine>) -> Self {
        let guard = engine.state.lock();
        // SAFETY: the guard borrows from the engine, which this value keeps alive and at its address
        // until `drop` has dropped the guard. No method lends the guard for longer than that.
        let guard =
            unsafe { std::mem::transmute::<Guard<'_, State>, Guard<'static, State>>(guard) };
        Self { guard: ManuallyDrop::new(guard), engine }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: the guard is dropped here alone, once, and before the engine.
        unsafe { ManuallyDrop::drop(&mut self.guard) };
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
    drop(FORKING.take());
}

/// The child has the sockets' copies, which would keep the parent's names alive, and no thread.
extern "C" fn in_child() {
    let Some(mut forking) = FORKING.take() else { return };
    for mut locked in forking.engines.drain(..) {
        let Locked { guard, engine } = &mut locked;
        engine.detached.store(true, Ordering::Relaxed);
        engine.runs.store(false, Ordering::Relaxed);
        engine.state.forget_waiters();
        guard.started = false;
        // Its descriptors are copies: closing them changes nothing for the parent.
        guard.udp = None;
        if let Some(network) = guard.network.take() {
            network.abandon();
        }
    }
}

/// Gives packets that wait for room a last chance.
extern "C" fn at_exit() {
    let end = Instant::now() + LINGER;
    for engine in engines() {
        loop {
            let mut state = engine.lock();
            let State { network, udp, cards, .. } = &mut *state;
            if let Some(network) = network {
                network.retry(cards);
            }
            if let Some(udp) = udp {
                udp.retry(cards);
            }
            state.run(usize::MAX);
            state.flush_trace();
            let mut waiting = state.network.as_ref().map(Network::congested).unwrap_or_default();
            waiting.extend(state.udp.iter().flat_map(Udp::congested));
            drop(state);
            let left = end.saturating_duration_since(Instant::now());
            if waiting.is_empty() || left.is_zero() {
                break;
            }
            socket::wait_writable(&waiting, left.as_millis() as libc::c_int + 1);
        }
    }
}
