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
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::card::Link;
    use crate::command::test::Rig;

    struct Log(Mutex<Vec<(usize, Vec<u8>)>>);

    impl Registers for Log {
        fn execute(&self, _: &mut Card, offset: usize, bytes: &[u8]) {
            self.0.lock().unwrap().push((offset, bytes.to_vec()));
        }
    }

    #[test]
    fn stores_keep_their_order_and_bytes_over_many_laps() {
        static LOG: Log = Log(Mutex::new(Vec::new()));
        let (queue, mut card) = (Deferred::new(), Rig::on(Link::InfiniBand).card);
        let store = |n: usize| Store::new(&LOG, 0, n, &n.to_le_bytes()).unwrap();
        let mut next = 0;
        for burst in [1, 5, ROOM, 700, ROOM] {
            for n in next..next + burst {
                assert!(queue.put(store(n)));
            }
            assert_eq!(queue.put(store(0)), burst < ROOM, "no more than there is room for");
            for _ in 0..burst + usize::from(burst < ROOM) {
                // SAFETY: no other thread takes.
                unsafe { queue.take() }.expect("a store").execute(&mut card);
            }
            // SAFETY: no other thread takes.
            assert!(unsafe { queue.take() }.is_none());
            let log = std::mem::take(&mut *LOG.0.lock().unwrap());
            let expected: Vec<_> =
                (next..next + burst).map(|n| (n, n.to_le_bytes().to_vec())).collect();
            assert_eq!(log[..burst], expected);
            next += burst;
        }
        assert!(Store::new(&LOG, 0, 0, &[0; LONGEST + 1]).is_none());
    }

    #[test]
    fn threads_put_at_the_same_time() {
        static LOG: Log = Log(Mutex::new(Vec::new()));
        let (queue, mut card) = (Deferred::new(), Rig::on(Link::InfiniBand).card);
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let queue = &queue;
                scope.spawn(move || {
                    for n in 0..2000 {
                        let store = Store::new(&LOG, 0, n, &[thread]).unwrap();
                        while !queue.put(store) {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let mut count = 0;
            while count < 8000 {
                // SAFETY: no other thread takes.
                match unsafe { queue.take() } {
                    Some(store) => {
                        store.execute(&mut card);
                        count += 1;
                    }
                    None => std::thread::yield_now(),
                }
            }
        });
        let log = LOG.0.lock().unwrap();
        for thread in 0..4u8 {
            let of: Vec<usize> =
                log.iter().filter(|(_, bytes)| bytes == &[thread]).map(|(n, _)| *n).collect();
            assert_eq!(of, (0..2000).collect::<Vec<_>>());
        }
    }
}
