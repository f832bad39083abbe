//! Protection from signals and cancellation that would stop a thread inside the model.

use std::cell::Cell;
use std::marker::PhantomData;

use crate::private::system;
use libc::c_int;

const PTHREAD_CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    /// Safe in a signal handler: it changes a word of the thread's own descriptor.
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

thread_local! {
    /// The number of [`Uncancelled`] values of this thread. Without a destructor, so that signal
    /// handlers and ending threads can read it.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Returns whether this thread works inside the model, and so may hold its locks.
pub(crate) fn is_inside() -> bool {
    INSIDE.get() > 0
}

/// The thread cannot be cancelled while this value exists.
///
/// A store to a register is no cancellation point, and neither are `ioctl` and `mmap`, but the system
/// calls are by which the model does what they ask for. A thread that ended in one would leave the
/// locks of its callers taken.
pub(crate) struct Uncancelled {
    before: c_int,
    /// The shield is state of its thread.
    thread: PhantomData<*const ()>,
}

impl Uncancelled {
    pub(crate) fn new() -> Self {
        let mut before = 0;
        // SAFETY: the state is one of the two there are, and the call writes the old one to `before`.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut before) };
        INSIDE.set(INSIDE.get() + 1);
        Self { before, thread: PhantomData }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        INSIDE.set(INSIDE.get() - 1);
        let mut disabled = 0;
        // SAFETY: the state is the one that the thread had, and the call writes the old one to `disabled`.
        unsafe { pthread_setcancelstate(self.before, &mut disabled) };
    }
}

/// Every signal but the faults that memory accesses recover from is blocked in the thread while this
/// value exists.
struct Unsignalled {
    before: libc::sigset_t,
}

impl Unsignalled {
    fn new() -> Self {
        Self { before: block_signals() }
    }
}

impl Drop for Unsignalled {
    fn drop(&mut self) {
        // SAFETY: the call reads the mask, which `block_signals` has filled. Null asks for no old one.
        unsafe { system::signal_mask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// Keeps signal handlers and cancellation away from this thread while it works in the model, as the
/// kernel keeps them away from a thread in a system call.
///
/// A signal handler may post. Its store would wait for a lock that the interrupted thread holds. So
/// a thread works under a shield while it holds a lock that a store takes, or changes data that a
/// store reads.
/// Shields nest: they are dropped in the reverse order.
pub(crate) struct Shield {
    // Signals come last, when everything else is as it was.
    _cancellation: Uncancelled,
    _signals: Unsignalled,
}

impl Shield {
    pub(crate) fn new() -> Self {
        Self { _cancellation: Uncancelled::new(), _signals: Unsignalled::new() }
    }
}

/// Blocks every signal but the faults that memory accesses recover from. Returns the mask before.
fn block_signals() -> libc::sigset_t {
    // SAFETY: a set is an array of integers, for which zeros are values. The calls read and write the two
    // sets, which live through them.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL] {
            libc::sigdelset(&mut all, fault);
        }
        system::signal_mask(libc::SIG_SETMASK, &all, &mut old);
        old
    }
}
