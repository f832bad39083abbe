//! A device's lock: a mutex whose owner hands it over to threads that have waited long.
//!
//! With the standard library's mutex, a thread that has just unlocked can lock again before a
//! sleeping thread wakes up. A thread that enters continually would then keep every other thread
//! out for seconds. Here a thread that has waited for [`PATIENCE`] is overdue, and new threads
//! leave a free lock to overdue threads. They do so for [`PATIENCE`] at most, because an overdue
//! thread that the scheduler does not run must not stop all others.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::private::system;

/// How long a thread waits before it counts as overdue, and how long newcomers stand back for it.
const PATIENCE: Duration = Duration::from_micros(200);

/// Values of the lock's word.
const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and its owner wakes a thread when it leaves.
const AWAITED: u32 = 2;

/// A value behind a lock.
pub(super) struct Lock<T> {
    word: AtomicU32,
    /// Threads that have waited for [`PATIENCE`].
    overdue: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the word admits one thread at a time to the value, which so moves between threads.
unsafe impl<T: Send> Sync for Lock<T> {}

/// Access to the value, until it is dropped.
///
/// It lends the value, so it is shared with other threads only where the value may be: a reference to
/// the lock alone would be `Sync` wherever the value is `Send`.
pub(super) struct Guard<'a, T> {
    lock: &'a Lock<T>,
    lends: PhantomData<&'a mut T>,
}

impl<T> Lock<T> {
    pub(super) fn new(value: T) -> Self {
        let (word, overdue) = (AtomicU32::new(FREE), AtomicU32::new(0));
        Self { word, overdue, value: UnsafeCell::new(value) }
    }

    /// Waits for the lock.
    ///
    /// The thread must not hold it, and must not be interrupted by a signal handler that enters the
    /// engine while it does: see [`Shield`](super::Shield).
    pub(super) fn lock(&self) -> Guard<'_, T> {
        loop {
            if let Some(guard) = self.lock_within(Duration::MAX) {
                return guard;
            }
        }
    }

    /// The same, for no longer than `limit`.
    pub(super) fn lock_within(&self, limit: Duration) -> Option<Guard<'_, T>> {
        if self.overdue.load(Ordering::Relaxed) == 0 && self.try_take() {
            return Some(self.taken());
        }
        self.wait(limit).then(|| self.taken())
    }

    /// Returns whether a thread has the lock.
    pub(super) fn is_held(&self) -> bool {
        self.word.load(Ordering::Relaxed) != FREE
    }

    /// Returns whether a thread waits for the lock, or has waited for its owner.
    #[cfg(test)]
    pub(super) fn is_awaited(&self) -> bool {
        self.word.load(Ordering::Relaxed) == AWAITED
    }

    /// The guard of a thread that has just taken the lock.
    fn taken(&self) -> Guard<'_, T> {
        Guard { lock: self, lends: PhantomData }
    }

    fn try_take(&self) -> bool {
        self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Waits behind the overdue threads, then among the sleeping threads.
    fn wait(&self, limit: Duration) -> bool {
        let started = Instant::now();
        loop {
            let overdue = self.overdue.load(Ordering::Relaxed);
            if overdue == 0 {
                break;
            }
            let left = PATIENCE.saturating_sub(started.elapsed());
            if left.is_zero() {
                break;
            }
            sleep(&self.overdue, overdue, left);
        }
        let mut is_overdue = false;
        let taken = loop {
            // The thread that holds the lock now wakes a thread, even if this one gives up.
            if self.word.swap(AWAITED, Ordering::Acquire) == FREE {
                break true;
            }
            let waited = started.elapsed();
            if waited >= limit {
                break false;
            }
            if !is_overdue && waited >= PATIENCE {
                is_overdue = true;
                self.overdue.fetch_add(1, Ordering::Relaxed);
            }
            let next = if is_overdue { limit } else { PATIENCE.min(limit) };
            sleep(&self.word, AWAITED, next.saturating_sub(waited));
        };
        if is_overdue && self.overdue.fetch_sub(1, Ordering::Relaxed) == 1 {
            wake(&self.overdue, u32::MAX >> 1);
        }
        taken
    }

    /// In the child of a fork, whose only thread holds the lock: no other thread waits for it.
    pub(super) fn forget_waiters(&self) {
        self.overdue.store(0, Ordering::Relaxed);
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: a guard exists only while the lock is held, so no other thread accesses the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: a guard exists only while the lock is held, and this one is borrowed exclusively, so
        // nothing else accesses the value.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        if self.lock.word.swap(FREE, Ordering::Release) == AWAITED {
            wake(&self.lock.word, 1);
        }
    }
}

/// Sleeps while the word has this value, until woken or for so long.
fn sleep(word: &AtomicU32, value: u32, most: Duration) {
    // More than the kernel takes is as good as for ever; the caller looks again in any case.
    let most = most.min(Duration::from_secs(1));
    let timeout = libc::timespec {
        tv_sec: most.as_secs() as libc::time_t,
        tv_nsec: most.subsec_nanos().into(),
    };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word and the time-out are borrowed for longer than the call, which writes neither.
    unsafe { system::futex(word.as_ptr(), operation, value, &timeout) };
}

/// Wakes at most so many threads that sleep on a word.
fn wake(word: &AtomicU32, most: u32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is borrowed for longer than the call, which does not access it.
    unsafe { system::futex(word.as_ptr(), operation, most, std::ptr::null()) };
}

#[cfg(test)]
mod tests;
