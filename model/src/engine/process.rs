//! What happens to engines when their process forks or exits.

use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::network::Network;
use super::{Engine, State, socket};

/// Longest that an exiting process stays for packets that found no room.
const LINGER: Duration = Duration::from_secs(1);

static ENGINES: Mutex<Vec<Weak<Engine>>> = Mutex::new(Vec::new());

thread_local! {
    /// Engines locked by this thread while it forks.
    static FORKING: RefCell<Vec<Locked>> = const { RefCell::new(Vec::new()) };
}

/// A locked engine. The guard is dropped before what it borrows from.
struct Locked {
    guard: MutexGuard<'static, State>,
    engine: Arc<Engine>,
}

/// Looks after an engine from now on.
pub(super) fn register(engine: &Arc<Engine>) {
    static HOOKS: Once = Once::new();
    HOOKS.call_once(|| {
        // SAFETY: the functions live as long as the process: a library that holds an engine's
        // thread is never unloaded.
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
unsafe extern "C" fn before_fork() {
    let locked = engines().into_iter().map(|engine| {
        let guard = engine.lock();
        // SAFETY: the guard borrows from the engine, which `Locked` keeps alive for longer than
        // the guard: fields are dropped in order.
        let guard = unsafe {
            std::mem::transmute::<MutexGuard<'_, State>, MutexGuard<'static, State>>(guard)
        };
        Locked { guard, engine }
    });
    let locked = locked.collect();
    FORKING.with(|forking| *forking.borrow_mut() = locked);
}

unsafe extern "C" fn in_parent() {
    FORKING.with(|forking| forking.borrow_mut().clear());
}

/// The child has the sockets' copies, which would keep the parent's names alive, and no thread.
unsafe extern "C" fn in_child() {
    FORKING.with(|forking| {
        for Locked { mut guard, engine } in forking.borrow_mut().drain(..) {
            engine.detached.store(true, Ordering::Relaxed);
            if let Some(network) = guard.network.take() {
                network.abandon();
            }
        }
    });
}

/// Gives packets that wait for room a last chance.
extern "C" fn at_exit() {
    let end = Instant::now() + LINGER;
    for engine in engines() {
        loop {
            let mut state = engine.lock();
            let State { network, cards, .. } = &mut *state;
            if let Some(network) = network {
                network.retry(cards);
            }
            state.run();
            state.flush_trace();
            let waiting = state.network.as_ref().map(Network::congested).unwrap_or_default();
            drop(state);
            let left = end.saturating_duration_since(Instant::now());
            if waiting.is_empty() || left.is_zero() {
                break;
            }
            socket::wait_writable(&waiting, left.as_millis() as libc::c_int + 1);
        }
    }
}
