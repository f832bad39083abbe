//! Descriptors that programs wait on, and read nothing from.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::error::{Error, Result};

/// An epoll instance that watches one descriptor of events: it is readable when that one is.
///
/// Programs get this descriptor, and not the one that this crate reads events from. Safe code may read,
/// write, duplicate and configure each descriptor that it gets:
///
/// - libibverbs waits in the destruction of an object until each event of it that was read is
///   acknowledged. It does not learn of an event that the program reads itself.
/// - Duplicates share the file status flags. On a descriptor of events that blocks, a read would outlast
///   its timeout.
/// - The commands of librdmacm are bytes that are written to its descriptor, and name memory that the
///   kernel writes to.
///
/// An epoll instance refuses reads and writes, and its flags are not those of the other descriptor.
#[derive(Debug)]
pub(crate) struct Readiness(OwnedFd);

impl Readiness {
    /// Makes the descriptor of events `fd` non-blocking, because waits use poll with a timeout, and
    /// watches it until it is closed. Two descriptors are in use then.
    pub(crate) fn of_events(fd: RawFd) -> Result<Readiness> {
        set_nonblocking(fd)?;
        // SAFETY: the call passes no memory.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(Error::last("epoll_create1"));
        }
        // SAFETY: the descriptor was just opened, and nothing else owns it.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: `event` lives through the call.
        let added =
            unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) };
        if added < 0 {
            return Err(Error::last("epoll_ctl"));
        }
        Ok(Readiness(epoll))
    }
}

impl AsFd for Readiness {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Readiness {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Makes a descriptor non-blocking, which its owner keeps open.
fn set_nonblocking(fd: RawFd) -> Result<()> {
    // SAFETY: the call passes no memory, and the caller keeps the descriptor open.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: the call passes no memory, and the caller keeps the descriptor open.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(Error::last("fcntl"));
    }
    Ok(())
}
