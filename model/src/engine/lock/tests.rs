//! Unit tests.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::*;

/// Has one `is` for every type, and a second one for each `Sync` type. For a `Sync` type,
/// naming `is` is therefore ambiguous and does not compile.
trait NotSync<Which> {
    fn is() {}
}

struct IfSync;

impl<T: ?Sized> NotSync<()> for T {}
impl<T: ?Sized + Sync> NotSync<IfSync> for T {}

#[test]
fn guard_of_a_value_that_is_not_sync_is_not_sync() {
    // Threads that shared it would change the cell at the same time.
    <Guard<'_, Cell<u32>> as NotSync<_>>::is();
    fn sync<T: Sync>() {}
    sync::<Guard<'_, u32>>();
    sync::<Lock<Cell<u32>>>();
}

#[test]
fn a_thread_that_enters_all_the_time_does_not_keep_others_out() {
    let lock = Arc::new(Lock::new(0u64));
    let stop = Arc::new(AtomicBool::new(false));
    let greedy = {
        let (lock, stop) = (lock.clone(), stop.clone());
        std::thread::spawn(move || {
            let mut turns = 0u64;
            while !stop.load(Ordering::Relaxed) {
                let mut value = lock.lock();
                // Longer than it takes to come back, so that the lock is hardly ever free.
                let end = Instant::now() + Duration::from_millis(1);
                while Instant::now() < end {
                    *value += 1;
                }
                turns += 1;
            }
            turns
        })
    };
    while *lock.lock() == 0 {}
    // Were it a matter of luck, a turn would take hundreds of the other thread's.
    for _ in 0..50 {
        *lock.lock() += 1;
    }
    stop.store(true, Ordering::Relaxed);
    let turns = greedy.join().expect("its end");
    assert!(turns < 1500, "{turns} turns of the greedy thread for 50 of this one");
    assert_eq!(lock.overdue.load(Ordering::Relaxed), 0);
}

#[test]
fn waiting_ends_at_the_limit_and_leaves_no_trace() {
    let lock = Lock::new(());
    let held = lock.lock();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| lock.lock_within(Duration::from_millis(2)).is_none());
        assert!(waits.join().expect("its end"), "the lock was held all the time");
    });
    assert_eq!(lock.overdue.load(Ordering::Relaxed), 0);
    assert!(lock.lock_within(Duration::ZERO).is_none(), "it is still held");
    drop(held);
    assert!(lock.lock_within(Duration::ZERO).is_some());
}

#[test]
fn threads_exclude_each_other() {
    let lock = Lock::new(0u64);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let mut value = lock.lock();
                    let seen = *value;
                    std::hint::spin_loop();
                    *value = seen + 1;
                }
            });
        }
    });
    assert_eq!(*lock.lock(), 80_000);
}
