//! Unit tests.

use super::*;

#[test]
fn errors_set_errno() {
    // SAFETY: the call passes no memory.
    assert_eq!(unsafe { close(-1) }, -1);
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
}

#[test]
fn answers_are_those_of_the_c_library() {
    // SAFETY: these calls pass no memory.
    let (thread, user, nice) =
        unsafe { (libc::gettid(), libc::geteuid(), libc::getpriority(libc::PRIO_PROCESS, 0)) };
    assert_eq!((super::thread(), super::user(), niceness()), (thread, user, nice));
    assert_eq!(process() as u32, std::process::id());
    assert!(processors() >= 1);
}

#[test]
fn a_mask_spares_the_signals_of_the_c_library() {
    // SAFETY: sets are integers, for which zeros are values. The calls access those of this block.
    unsafe {
        let (mut all, mut now): (sigset_t, sigset_t) = std::mem::zeroed();
        (&raw mut all).cast::<u64>().write(u64::MAX);
        let mut before: sigset_t = std::mem::zeroed();
        assert_eq!(signal_mask(libc::SIG_SETMASK, &all, &mut before), 0);
        assert_eq!(signal_mask(libc::SIG_SETMASK, &before, &mut now), 0);
        let blocked = (&raw const now).cast::<u64>().read();
        assert_eq!(blocked & 0b11 << 31, 0, "{blocked:#x}");
        assert_eq!(libc::sigismember(&now, libc::SIGTERM), 1);
    }
}
