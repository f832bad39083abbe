//! Interposed functions on signals. The model's handler stays first, and the signals that the model
//! needs are never blocked.

use libc::{c_int, sighandler_t, sigset_t};

use super::super::process::{real, trap};

/// A mask without the signals that faults arrive as.
///
/// A thread that blocks them would be killed by its next doorbell. Blocking them has no other use:
/// a fault that is blocked kills in any case.
///
/// # Safety
/// `set` is null or points to a valid set.
unsafe fn without_faults(set: *const sigset_t) -> Option<sigset_t> {
    if set.is_null() {
        return None;
    }
    // SAFETY: not null, so the caller guarantees that it points to a set.
    let mut copy = unsafe { *set };
    // SAFETY: the copy is a valid set.
    unsafe {
        libc::sigdelset(&mut copy, libc::SIGSEGV);
        libc::sigdelset(&mut copy, libc::SIGBUS);
    }
    Some(copy)
}

/// `sigaction`, which the model intercepts.
///
/// # Safety
/// Pointers are null or valid for what the function of the C library reads and writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the caller guarantees that `new` is null or points to an action.
    if let Some(before) = unsafe { trap::replace(signal, new) } {
        if !old.is_null() {
            // SAFETY: not null, so the caller guarantees that it may be written.
            unsafe { *old = before };
        }
        return 0;
    }
    // SAFETY: the caller guarantees that both pointers are null or valid; the copy outlives the call.
    unsafe {
        if new.is_null() {
            return real::sigaction(signal, new, old);
        }
        // What a handler blocks while it runs must not stop a doorbell in it.
        let mut copy = *new;
        if let Some(mask) = without_faults(&copy.sa_mask) {
            copy.sa_mask = mask;
        }
        real::sigaction(signal, &copy, old)
    }
}

/// Installs a plain handler through [`trap::replace`]; `None` if the signal is none of ours.
///
/// # Safety
/// `handler` is SIG_DFL, SIG_IGN or a function that may be called upon the signal.
unsafe fn plain(number: c_int, handler: sighandler_t, flags: c_int) -> Option<sighandler_t> {
    // SAFETY: zeros are a value of sigaction, with an empty mask. The caller guarantees the handler.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = handler;
        new.sa_flags = flags;
        trap::replace(number, &new).map(|before| before.sa_sigaction)
    }
}

/// `signal`, which the model intercepts.
///
/// # Safety
/// `handler` is SIG_DFL, SIG_IGN or a function that may be called upon the signal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(number: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller passes a handler, as the function of the C library asks.
    unsafe { plain(number, handler, libc::SA_RESTART) }.unwrap_or_else(|| {
        // SAFETY: the caller passes a handler, as the function of the C library asks.
        unsafe { real::signal(number, handler) }
    })
}

/// `sysv_signal`, which the model intercepts.
///
/// # Safety
/// `handler` is SIG_DFL, SIG_IGN or a function that may be called upon the signal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sysv_signal(number: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the caller passes a handler, as the function of the C library asks.
    unsafe { plain(number, handler, libc::SA_RESETHAND | libc::SA_NODEFER) }.unwrap_or_else(|| {
        // SAFETY: the caller passes a handler, as the function of the C library asks.
        unsafe { real::sysv_signal(number, handler) }
    })
}

/// `pthread_sigmask`, which the model intercepts.
///
/// # Safety
/// Pointers are null or valid for what the function of the C library reads and writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_sigmask(
    how: c_int,
    set: *const sigset_t,
    old: *mut sigset_t,
) -> c_int {
    // SAFETY: the caller guarantees that both pointers are null or valid; the copy outlives the call.
    unsafe {
        match without_faults(set) {
            Some(copy) if how != libc::SIG_UNBLOCK => real::pthread_sigmask(how, &copy, old),
            _ => real::pthread_sigmask(how, set, old),
        }
    }
}

/// `sigprocmask`, which the model intercepts.
///
/// # Safety
/// Pointers are null or valid for what the function of the C library reads and writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigprocmask(
    how: c_int,
    set: *const sigset_t,
    old: *mut sigset_t,
) -> c_int {
    // SAFETY: the caller guarantees that both pointers are null or valid; the copy outlives the call.
    unsafe {
        match without_faults(set) {
            Some(copy) if how != libc::SIG_UNBLOCK => real::sigprocmask(how, &copy, old),
            _ => real::sigprocmask(how, set, old),
        }
    }
}
