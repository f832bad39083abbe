//! News of the kernel that an interface or an address has changed.

use std::io;
use std::os::fd::AsRawFd;

use crate::fabric::local::socket::{Fd, own};
use crate::private::{check, system};

/// A socket that gets a message after each change of this network namespace (`rtnetlink(7)`). The messages
/// are not read: the change is found by listing the interfaces.
#[derive(Debug)]
pub(crate) struct Changes(Fd);

impl Changes {
    /// Subscribes to changes of interfaces and of their addresses.
    ///
    /// # Errors
    /// Those of creating and binding a socket.
    pub(crate) fn subscribe() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: the call passes no memory. It returns a new descriptor, which `own` takes.
        let fd = unsafe { own(system::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE)) }?;
        // SAFETY: the structure has integers alone, for which zeros are values.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        let groups = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
        address.nl_groups = groups as u32;
        let length = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the call reads `length` bytes, the size of `address`.
        check(unsafe { system::bind(fd.as_raw_fd(), (&raw const address).cast(), length) })?;
        Ok(Self(fd))
    }

    /// Waits for changes since the last call. They count as known when it returns.
    ///
    /// # Errors
    /// Those of receiving, except that messages were lost: that is a change.
    pub(crate) fn wait(&self) -> io::Result<()> {
        self.take(0)?;
        while self.take(libc::MSG_DONTWAIT).is_ok() {}
        Ok(())
    }

    /// Takes a message. Its bytes do not count.
    fn take(&self, flags: libc::c_int) -> io::Result<()> {
        let mut start = [0u8; 16];
        let (to, room) = (start.as_mut_ptr().cast(), start.len());
        // SAFETY: the call writes at most `room` bytes, the size of `start`.
        let got = unsafe { system::recv(self.0.as_raw_fd(), to, room, flags) };
        if got >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR | libc::ENOBUFS) => Ok(()),
            _ => Err(error),
        }
    }
}
