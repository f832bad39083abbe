//! Locks, threads and numbers of the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::private::{complain, system};

/// Locks a mutex, even if a thread panicked while it held the lock. The data under locks here is
/// whole between any two statements, and a model that has panicked must not end the program.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread that no signal of the program is delivered to.
pub(crate) fn thread(work: impl FnOnce() + Send + 'static) {
    // SAFETY: a set is an array of integers, for which zeros are values. The calls read and write the two
    // of this block.
    let before = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigdelset(&mut all, libc::SIGSEGV);
        libc::sigdelset(&mut all, libc::SIGBUS);
        system::signal_mask(libc::SIG_SETMASK, &all, &mut before);
        before
    };
    let started = crate::engine::spawn(work);
    // SAFETY: the call reads the set, which was filled above.
    unsafe { system::signal_mask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    if let Err(error) = started {
        complain!("a thread cannot be started: {error}");
    }
}

/// Returns this process's number.
pub(crate) fn own_process() -> libc::pid_t {
    std::process::id() as libc::pid_t
}

/// Has `forget` run in every child of a fork from now on: once, if it is always asked for with the same
/// `asked`. It takes no lock, which a thread of the parent may have held.
pub(crate) fn in_children(asked: &AtomicBool, forget: extern "C" fn()) {
    if !asked.swap(true, Ordering::AcqRel) {
        // SAFETY: `forget` has the required type, and takes no lock.
        unsafe { libc::pthread_atfork(None, None, Some(forget)) };
    }
}
