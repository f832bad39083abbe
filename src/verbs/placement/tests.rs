//! Unit tests.

use super::*;

#[test]
fn runs_are_aligned_apart_and_used_again() {
    let placement = Placement::new();
    let take = |size, alignment| {
        placement.allocate(size, alignment, QueueBuffer::Record).unwrap().addr().get()
    };
    let (ring, first, second) = (take(8192, 4096), take(8, 8), take(8, 8));
    assert_eq!((ring % 4096, first % 64, second % 64), (0, 0, 0));
    assert!(first.abs_diff(second) >= 64 && first.abs_diff(ring) >= 64);
    assert_eq!(placement.in_use(), 8192 + 128);
    let memory = NonNull::new(ring as *mut u8).unwrap();
    assert!(placement.contains(memory.as_ptr()));
    // SAFETY: taken above, and written while it is.
    unsafe {
        memory.as_ptr().write(7);
        placement.free(memory, QueueBuffer::QueuePair);
    }
    assert_eq!(placement.in_use(), 128);
    let again = placement.allocate(4096, 4096, QueueBuffer::CompletionQueue).unwrap();
    assert_eq!(again.addr().get(), ring);
    // SAFETY: taken again.
    assert_eq!(unsafe { again.as_ptr().read() }, 0);
    // More than a chunk.
    let large = take(5 << 20, 4096);
    assert!(placement.contains(large as *const u8));
    assert!(placement.allocate(usize::MAX, 8, QueueBuffer::Record).is_none());
    assert!(placement.allocate(8, 24, QueueBuffer::Record).is_none());
}

#[test]
fn a_panic_stays_on_this_side() {
    struct Panicking;
    // SAFETY: it gives nothing.
    unsafe impl QueueAllocator for Panicking {
        fn allocate(&self, _: usize, _: usize, _: QueueBuffer) -> Option<NonNull<u8>> {
            panic!("no memory today")
        }
        unsafe fn free(&self, _: NonNull<u8>, _: QueueBuffer) {
            panic!("nor tomorrow")
        }
    }
    let mut target = CallbackTarget(Arc::new(Panicking));
    let context = (&raw mut target).cast();
    let none = std::ptr::null_mut();
    // SAFETY: the target lives.
    unsafe {
        assert!(allocate(none, context, 64, 64, 0).is_null());
        free(none, context, NonNull::<u8>::dangling().as_ptr().cast(), 0);
    }
}
