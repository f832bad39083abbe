//! Stores made by signal handlers, kept until the next entry into the engine executes them.
//!
//! A handler may have interrupted the allocator, whose locks its thread then holds, and executing a
//! store allocates. So a handler's store is not executed in place. It is recorded here without a
//! lock and without allocating. The next thread that enters executes the recorded stores first, in
//! their order.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::card::Card;

/// Stores that may wait.
const ROOM: usize = 1024;
/// Longest store that may wait.
const LONGEST: usize = 64;

/// A page of registers.
pub(crate) trait Registers: Sync {
    /// Executes a store to the page.
    fn execute(&self, card: &mut Card, offset: usize, bytes: &[u8]);
}

/// A store that waits.
#[derive(Clone, Copy)]
pub(super) struct Store {
    page: &'static dyn Registers,
    pub(super) card: usize,
    offset: usize,
    length: usize,
    bytes: [u8; LONGEST],
}

impl Store {
    /// `None` if it is too long to wait.
    pub(super) fn new(
        page: &'static dyn Registers,
        card: usize,
        offset: usize,
        stored: &[u8],
    ) -> Option<Self> {
        let mut bytes = [0; LONGEST];
        bytes.get_mut(..stored.len())?.copy_from_slice(stored);
        Some(Self { page, card, offset, length: stored.len(), bytes })
    }

    pub(super) fn execute(&self, card: &mut Card) {
        self.page.execute(card, self.offset, &self.bytes[..self.length]);
    }
}

/// A slot of the queue. Its turn says which thread may use it: at `n`, the producer with number
/// `n`, and at `n + 1`, the consumer. The consumer leaves it to the producer that comes [`ROOM`]
/// later.
struct Place {
    turn: AtomicUsize,
    store: UnsafeCell<Option<Store>>,
}

/// The queue: any thread puts stores in, the thread that holds the engine's lock takes them out.
pub(super) struct Deferred {
    places: Box<[Place]>,
    put: AtomicUsize,
    taken: AtomicUsize,
}

// SAFETY: a place's turn admits one thread at a time to its store: a producer, or the consumer, which
// the caller of `take` guarantees to be one. A store moves between threads, and may: it is `Send`.
unsafe impl Sync for Deferred {}

impl Deferred {
    pub(super) fn new() -> Self {
        let place = |turn| Place { turn: AtomicUsize::new(turn), store: UnsafeCell::new(None) };
        Self {
            places: (0..ROOM).map(place).collect(),
            put: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
        }
    }

    /// Puts a store behind the others; `false` if there is no room. The caller must not be
    /// interrupted by a handler that stores.
    pub(super) fn put(&self, store: Store) -> bool {
        let mut number = self.put.load(Ordering::Relaxed);
        loop {
            let place = &self.places[number % ROOM];
            let turn = place.turn.load(Ordering::Acquire);
            if turn == number {
                let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
                match self.put.compare_exchange_weak(number, number + 1, success, failure) {
                    Ok(_) => {
                        // SAFETY: this thread alone has taken the number, whose turn it is: no other
                        // accesses the place until `turn` changes.
                        unsafe { *place.store.get() = Some(store) };
                        place.turn.store(number + 1, Ordering::Release);
                        return true;
                    }
                    Err(changed) => number = changed,
                }
            } else if turn < number {
                return false;
            } else {
                number = self.put.load(Ordering::Relaxed);
            }
        }
    }

    /// Takes the oldest store.
    ///
    /// # Safety
    /// One thread at a time calls this.
    pub(super) unsafe fn take(&self) -> Option<Store> {
        let number = self.taken.load(Ordering::Relaxed);
        let place = &self.places[number % ROOM];
        if place.turn.load(Ordering::Acquire) != number + 1 {
            return None;
        }
        // SAFETY: it is the consumer's turn, so no producer accesses the place until `turn` changes.
        // The caller guarantees that no other thread takes.
        let store = unsafe { (*place.store.get()).take() };
        place.turn.store(number + ROOM, Ordering::Release);
        self.taken.store(number + 1, Ordering::Relaxed);
        store
    }
}

#[cfg(test)]
mod tests;
