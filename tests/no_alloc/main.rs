//! Posting and polling allocate and free no memory, on either layer. In a program of its own, since it
//! replaces the allocator.
//!
//! A counting allocator watches one thread. Each test has a control that shows that it counts.

mod direct;
mod owned;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts what watched threads ask of the allocator.
struct Counting;

thread_local! {
    /// Calls of this thread to the allocator, while it is watched.
    static CALLS: Cell<Option<u32>> = const { Cell::new(None) };
}

fn count() {
    // A thread whose locals are gone is not watched.
    let _ = CALLS.try_with(|calls| calls.set(calls.get().map(|calls| calls + 1)));
}

// SAFETY: hands everything to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller upholds the same conditions.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller upholds the same conditions.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller upholds the same conditions.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `section`. Returns its result, and how often it called the allocator.
fn watched<R>(section: impl FnOnce() -> R) -> (R, u32) {
    CALLS.set(Some(0));
    let result = section();
    (result, CALLS.take().expect("watched until now"))
}
