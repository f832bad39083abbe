//! A log of the stores that reached the registers, for tests of the driver's stores and their
//! order. Only trapped pages see every store.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most stores that are kept; older ones are dropped.
pub const KEPT: usize = 1 << 16;

/// One store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// Number of the UAR page.
    pub uar: u32,
    /// Bytes into the page.
    pub offset: usize,
    /// The bytes stored, in memory order. Their number is the store's width.
    pub bytes: Vec<u8>,
}

static RECORDING: AtomicUsize = AtomicUsize::new(0);
static FAULTS: AtomicUsize = AtomicUsize::new(0);
static LOG: Mutex<VecDeque<Store>> = Mutex::new(VecDeque::new());

/// Keeps the log running as long as it lives.
#[derive(Debug)]
#[must_use = "stores are recorded as long as this lives"]
pub struct Recording(());

/// Records every store of this process from now on, until what it gives is dropped.
///
/// The log is one for the process, in the order in which the stores were made; a test that runs
/// beside others tells its own by the number of the UAR page.
pub fn record() -> Recording {
    RECORDING.fetch_add(1, Ordering::AcqRel);
    Recording(())
}

impl Drop for Recording {
    fn drop(&mut self) {
        let mut count = RECORDING.load(Ordering::Acquire);
        // A forked child has stopped recording already.
        while let Some(fewer) = count.checked_sub(1) {
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            match RECORDING.compare_exchange_weak(count, fewer, success, failure) {
                Ok(_) => break,
                Err(changed) => count = changed,
            }
        }
    }
}

/// Takes what was recorded since the last call, oldest first.
pub fn take() -> Vec<Store> {
    log().drain(..).collect()
}

/// Returns the number of faults since the last call whose stores were recorded. A copy to a BlueFlame
/// buffer may be several stores in one fault.
pub fn faults() -> usize {
    FAULTS.swap(0, Ordering::AcqRel)
}

/// A fault's stores were made.
pub(crate) fn faulted() {
    if RECORDING.load(Ordering::Acquire) != 0 {
        FAULTS.fetch_add(1, Ordering::AcqRel);
    }
}

/// Stops recording, in the child of a fork: the log is the parent's, and may have been in use.
pub(crate) fn forget() {
    RECORDING.store(0, Ordering::Release);
}

/// A store was made.
pub(crate) fn made(uar: u32, offset: usize, bytes: &[u8]) {
    if RECORDING.load(Ordering::Acquire) == 0 {
        return;
    }
    let mut log = log();
    if log.len() == KEPT {
        log.pop_front();
    }
    log.push_back(Store { uar, offset, bytes: bytes.to_vec() });
}

/// The log is whole between any two statements, whatever happened to a thread that held its lock.
fn log() -> MutexGuard<'static, VecDeque<Store>> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}
