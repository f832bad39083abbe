//! Runs stores to a page that traps, and decodes them in the handler, as the model does.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use libc::ucontext_t;

use super::{Follower, counter, decode};
use crate::memory::recover;

const PAGE: u64 = 4096;

static PAGE_UNDER_TEST: AtomicU64 = AtomicU64::new(0);
static SEEN: Mutex<Vec<(u64, Vec<u8>)>> = Mutex::new(Vec::new());
/// The handler is the process's: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Waits for the other tests that replace the handler of guarded accesses, which stays installed
/// otherwise.
pub fn one() -> MutexGuard<'static, ()> {
    crate::memory::tests::install();
    super::prepare();
    ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

extern "C" fn handler(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes both for a handler installed with SA_SIGINFO.
    unsafe {
        if let Some(resume) = recover(counter(&*context.cast())) {
            return super::resume(&mut *context.cast(), resume);
        }
        let address = (*info).si_addr() as u64;
        let page = PAGE_UNDER_TEST.load(Ordering::SeqCst);
        assert!((page..page + PAGE).contains(&address), "a fault of its own at {address:#x}");
        let context = &mut *context.cast::<ucontext_t>();
        let mut trapped = decode(context).expect("every instruction of these tests is a store");
        loop {
            SEEN.lock().unwrap().push((trapped.address, trapped.bytes.to_vec()));
            if !trapped.next_part() {
                break;
            }
        }
        Follower::new(context).step(&trapped);
    }
}

/// Runs `stores` with the address of a page that traps and returns what was seen: offset in
/// the page and bytes.
pub fn trapped(stores: impl FnOnce(*mut u8)) -> Vec<(u64, Vec<u8>)> {
    let _one = one();
    // SAFETY: an anonymous page of our own that cannot be written.
    let page = unsafe {
        libc::mmap(
            null_mut(),
            PAGE as usize,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(page, libc::MAP_FAILED);
    PAGE_UNDER_TEST.store(page as u64, Ordering::SeqCst);
    SEEN.lock().unwrap().clear();
    // SAFETY: plain sigaction with a handler of the right signature.
    let previous = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        let mut previous: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGSEGV, &action, &mut previous), 0);
        previous
    };
    stores(page.cast());
    // SAFETY: puts back what was there; the page is not used any more.
    unsafe {
        assert_eq!(libc::sigaction(libc::SIGSEGV, &previous, null_mut()), 0);
        libc::munmap(page, PAGE as usize);
    }
    let seen = std::mem::take(&mut *SEEN.lock().unwrap());
    seen.into_iter().map(|(address, bytes)| (address - page as u64, bytes)).collect()
}

pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| i as u8 ^ 0x5a).collect()
}
