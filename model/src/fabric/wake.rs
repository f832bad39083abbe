//! Descriptors that wake the engine's thread: sets of them, timers and events. All are the model's own.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::local::socket::{Fd, own};
use crate::private::{OwnFd, check, system};

/// Returns an empty epoll set.
pub(super) fn epoll() -> io::Result<Fd> {
    // SAFETY: the call passes no memory. It returns a new descriptor, which `own` takes.
    unsafe { own(system::epoll_create1(libc::EPOLL_CLOEXEC)) }
}

/// Returns a timer that is not set.
pub(super) fn timer() -> io::Result<Fd> {
    let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
    // SAFETY: the call passes no memory. It returns a new descriptor, which `own` takes.
    unsafe { own(system::timerfd_create(libc::CLOCK_MONOTONIC, flags)) }
}

/// Returns an event that has not happened.
pub(super) fn event() -> io::Result<Fd> {
    let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
    // SAFETY: the call passes no memory. It returns a new descriptor, which `own` takes.
    unsafe { own(system::eventfd(0, flags)) }
}

/// Adds a descriptor to a set, with the token that the set returns for it.
pub(super) fn watch(epoll: &Fd, fd: &OwnFd, token: u64, events: libc::c_int) -> io::Result<()> {
    control(epoll, libc::EPOLL_CTL_ADD, fd, token, events)
}

/// Changes the events for which a descriptor of a set is watched. That its other end is gone is always
/// one of them.
pub(super) fn rewatch(epoll: &Fd, fd: &OwnFd, token: u64, events: libc::c_int) -> io::Result<()> {
    control(epoll, libc::EPOLL_CTL_MOD, fd, token, events)
}

fn control(
    epoll: &Fd,
    operation: libc::c_int,
    fd: &OwnFd,
    token: u64,
    events: libc::c_int,
) -> io::Result<()> {
    let mut event = libc::epoll_event { events: events as u32, u64: token };
    // SAFETY: the call reads `event`, which outlives the call.
    check(unsafe { system::epoll_ctl(epoll.as_raw_fd(), operation, fd.as_raw_fd(), &mut event) })
        .map(drop)
}

/// Removes a descriptor from a set, if it is there.
pub(super) fn unwatch(epoll: &Fd, fd: &OwnFd) {
    let nothing = std::ptr::null_mut();
    // SAFETY: the call reads no event when it removes a descriptor.
    unsafe { system::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_DEL, fd.as_raw_fd(), nothing) };
}

/// Sets a timer to fire once. A time of zero stops it.
pub(super) fn set_timer(timer: &Fd, after: Duration) {
    let it_value = libc::timespec {
        tv_sec: after.as_secs() as libc::time_t,
        tv_nsec: after.subsec_nanos() as libc::c_long,
    };
    let it_interval = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let setting = libc::itimerspec { it_interval, it_value };
    // SAFETY: the call reads `setting`. The null pointer means that it writes no old setting.
    unsafe { system::timerfd_settime(timer.as_raw_fd(), 0, &setting, std::ptr::null_mut()) };
}

/// Has an event happen. Safe in a signal handler.
pub(super) fn signal(event: &Fd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: the call reads the eight bytes of `one`.
    unsafe { system::write(event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// Makes a timer or event unreadable, until it fires or happens again.
pub(super) fn clear(fd: &Fd) {
    let mut count = [0u8; 8];
    // SAFETY: `count` has the eight bytes that the call may write.
    unsafe { system::read(fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
}
