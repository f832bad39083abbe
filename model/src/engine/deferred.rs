//! Stores made by signal handlers and by devices, kept until a thread in the device executes them.
//!
//! A handler may have interrupted the allocator, whose locks its thread then holds, and executing a
//! store allocates. So a handler's store is not executed in place. It is recorded here without
//! allocating. The next thread in the device executes the recorded stores first, in their order. A store of a device is kept because its thread may be in another device.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::card::Card;

/// Stores to one device that may wait.
const ROOM: usize = 1024;
/// Longest store that may wait.
pub(super) const LONGEST: usize = 64;

/// A page of registers.
pub(crate) trait Registers: Sync {
    /// Executes a store to the page.
    fn execute(&self, card: &mut Card, offset: usize, bytes: &[u8]);
}

/// Stores of the program to a page, one behind the other.
pub(crate) trait Stores {
    /// Returns the store that is not done yet: its offset and its bytes.
    fn store(&self) -> (usize, &[u8]);

    /// The store is done. Returns whether there is another.
    fn done(&mut self) -> bool;
}

/// A store that waits.
#[derive(Clone, Copy)]
pub(super) struct Store {
    page: &'static dyn Registers,
    offset: usize,
    length: usize,
    bytes: [u8; LONGEST],
}

impl Store {
    /// `None` if it is too long to wait.
    pub(super) fn new(page: &'static dyn Registers, offset: usize, stored: &[u8]) -> Option<Self> {
        let mut bytes = [0; LONGEST];
        bytes.get_mut(..stored.len())?.copy_from_slice(stored);
        Some(Self { page, offset, length: stored.len(), bytes })
    }

    pub(super) fn execute(&self, card: &mut Card) {
        self.page.execute(card, self.offset, &self.bytes[..self.length]);
    }
}

/// The queue: any thread puts stores in, the thread in the device takes them out.
///
/// Its lock is held for the copy of one store. The holder is never interrupted by a handler that
/// stores: it handles a fault itself, or works under a [`Shield`](super::Shield).
pub(super) struct Deferred {
    stores: Mutex<VecDeque<Store>>,
    /// The length of the queue.
    count: AtomicUsize,
}

impl Deferred {
    pub(super) fn new() -> Self {
        Self { stores: Mutex::new(VecDeque::with_capacity(ROOM)), count: AtomicUsize::new(0) }
    }

    /// Puts a store behind the others; `false` if there is no room.
    pub(super) fn put(&self, store: Store) -> bool {
        let mut stores = self.hold();
        if stores.len() >= ROOM {
            return false;
        }
        self.push(&mut stores, store);
        true
    }

    /// Puts a store of a device behind the others. May allocate: devices do, and no handler of the program
    /// runs in a thread that is in one. Their stores are few, since each thread in a device takes them out.
    pub(super) fn put_from_device(&self, store: Store) {
        self.push(&mut self.hold(), store);
    }

    fn push(&self, stores: &mut VecDeque<Store>, store: Store) {
        stores.push_back(store);
        self.count.store(stores.len(), Ordering::Relaxed);
    }

    /// Puts stores behind the others, as many as there is room for and are not too long. Returns
    /// whether these are all.
    pub(super) fn put_all(&self, page: &'static dyn Registers, stores: &mut dyn Stores) -> bool {
        loop {
            let (offset, bytes) = stores.store();
            if !Store::new(page, offset, bytes).is_some_and(|store| self.put(store)) {
                return false;
            }
            if !stores.done() {
                return true;
            }
        }
    }

    /// Takes the oldest store.
    pub(super) fn take(&self) -> Option<Store> {
        if self.is_empty() {
            return None;
        }
        let mut stores = self.hold();
        let store = stores.pop_front();
        self.count.store(stores.len(), Ordering::Relaxed);
        store
    }

    /// Returns whether no store waits. One load.
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Keeps other threads from the queue.
    pub(super) fn hold(&self) -> MutexGuard<'_, VecDeque<Store>> {
        self.stores.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets all stores, in the child of a fork: they are the parent's. The caller holds the queue.
    pub(super) fn clear(&self, stores: &mut VecDeque<Store>) {
        stores.clear();
        self.count.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
