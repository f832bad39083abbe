//! Interposed functions on sockets: those of RDMA netlink are served here, all others go to libc.

use std::sync::Arc;

use libc::{c_int, c_void, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::super::netlink::{Side, Socket};
use super::super::process::descriptors::{self, Inherited};
use super::super::process::errno::{Errno, Result, errno, set_errno};
use super::super::process::{real, user};
use super::super::tree::discovery::{Discovery, discovery};
use super::files::file;
use super::open::{self, owned};

/// Netlink family of RDMA, over which the kernel names its own devices only.
const NETLINK_RDMA: c_int = 20;

/// Returns the socket of RDMA netlink behind a descriptor. One that came over a fork is served by the parent's
/// process no more, so the child gets one of its own under the same number.
fn netlink(fd: c_int) -> Option<Arc<Socket>> {
    if owned(fd) {
        return file(fd);
    }
    if descriptors::inherited(fd) == Inherited::Netlink && descriptors::is_same_file(fd) {
        return open::netlink_again(fd);
    }
    None
}

/// Returns what a call returns that does this.
fn call(done: Result<()>) -> c_int {
    match done {
        Ok(()) => 0,
        Err(error) => {
            set_errno(error.0);
            -1
        }
    }
}

/// Sends bytes of the program by a socket of RDMA netlink.
fn served(socket: &Socket, bytes: Result<Vec<u8>>) -> ssize_t {
    match bytes.and_then(|bytes| socket.send(&bytes).map(|()| bytes.len() as ssize_t)) {
        Ok(sent) => sent,
        Err(error) => {
            set_errno(error.0);
            -1
        }
    }
}

/// Sends what a program has at an address by a socket of RDMA netlink.
pub(super) fn written(socket: &Socket, from: *const c_void, length: usize) -> ssize_t {
    let bytes = if length > Socket::LONGEST {
        Err(Errno::EMSGSIZE)
    } else {
        user::read(from as u64, length)
    };
    served(socket, bytes)
}

/// The program has received a message, which may have made room for more, and wants to know from whom if
/// `address` is not null.
fn received(socket: &Socket, got: ssize_t, address: u64, length: u64) -> ssize_t {
    let before = errno();
    socket.fill();
    set_errno(before);
    if got >= 0 && address != 0 && call(socket.name(Side::Kernel, address, length)) != 0 {
        return -1;
    }
    got
}

/// Returns the header of a message, whose pointers may lead nowhere.
fn header(message: *const msghdr) -> Result<msghdr> {
    let bytes = user::read(message as u64, size_of::<msghdr>())?;
    // SAFETY: it has the bytes of a header: integers and pointers, which may have any value.
    Ok(unsafe { bytes.as_ptr().cast::<msghdr>().read_unaligned() })
}

/// Returns the bytes that `sendmsg` is given.
fn gathered(message: *const msghdr) -> Result<Vec<u8>> {
    let message = header(message)?;
    const PIECE: usize = size_of::<libc::iovec>();
    /// Most pieces (`UIO_MAXIOV`).
    const PIECES: usize = 1024;
    if message.msg_iovlen > PIECES {
        return Err(Errno::EMSGSIZE);
    }
    let mut bytes = Vec::new();
    for piece in user::read(message.msg_iov as u64, message.msg_iovlen * PIECE)?.chunks(PIECE) {
        let word = |at| piece[at..].first_chunk().copied().map_or(0, usize::from_ne_bytes);
        let (address, length) = (word(0) as u64, word(size_of::<usize>()));
        if length > Socket::LONGEST || bytes.len() + length > Socket::LONGEST {
            return Err(Errno::EMSGSIZE);
        }
        bytes.extend(user::read(address, length)?);
    }
    Ok(bytes)
}

/// `recv`.
///
/// # Safety
/// The contract of that function holds.
unsafe fn taken(fd: c_int, to: *mut c_void, length: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller keeps the contract.
    let got = unsafe { real::recv(fd, to, length, flags) };
    match netlink(fd) {
        Some(socket) => received(&socket, got, 0, 0),
        None => got,
    }
}

/// `recvfrom`.
///
/// # Safety
/// The contract of that function holds.
unsafe fn taken_from(
    fd: c_int,
    to: *mut c_void,
    length: size_t,
    flags: c_int,
    address: *mut sockaddr,
    room: *mut socklen_t,
) -> ssize_t {
    let Some(socket) = netlink(fd) else {
        // SAFETY: the caller keeps the contract.
        return unsafe { real::recvfrom(fd, to, length, flags, address, room) };
    };
    let nobody = std::ptr::null_mut();
    // SAFETY: the caller keeps the contract, and nothing is asked about the sender.
    let got = unsafe { real::recvfrom(fd, to, length, flags, nobody, std::ptr::null_mut()) };
    received(&socket, got, address as u64, room as u64)
}

interpose! {
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        /// All but the flags.
        const KIND: c_int = 0xf;
        if domain == libc::AF_NETLINK && protocol == NETLINK_RDMA {
            if let Discovery::On(offer) = discovery() {
                // By one of the first kind, libraries would find none of the kernel's devices.
                let is_served = match kind & KIND {
                    libc::SOCK_RAW => !offer.tree.has_others(),
                    kind => kind == libc::SOCK_DGRAM,
                };
                if is_served {
                    return open::netlink(kind);
                }
                set_errno(libc::EPROTONOSUPPORT);
                return -1;
            }
        }
        real::socket(domain, kind, protocol)
    }
    bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
        match netlink(fd) {
            Some(socket) => call(socket.bind(address as u64, length as usize)),
            None => real::bind(fd, address, length),
        }
    }
    getsockname(fd: c_int, to: *mut sockaddr, length: *mut socklen_t) -> c_int {
        match netlink(fd) {
            Some(socket) => call(socket.name(Side::Program, to as u64, length as u64)),
            None => real::getsockname(fd, to, length),
        }
    }
    setsockopt(fd: c_int, level: c_int, option: c_int, value: *const c_void, length: socklen_t) -> c_int {
        // Groups have nothing to tell, and other options are about how errors are told.
        if level == libc::SOL_NETLINK && netlink(fd).is_some() {
            return 0;
        }
        real::setsockopt(fd, level, option, value, length)
    }
    send(fd: c_int, from: *const c_void, length: size_t, flags: c_int) -> ssize_t {
        match netlink(fd) {
            Some(socket) => written(&socket, from, length),
            None => real::send(fd, from, length, flags),
        }
    }
    sendto(fd: c_int, from: *const c_void, length: size_t, flags: c_int, address: *const sockaddr, room: socklen_t) -> ssize_t {
        match netlink(fd) {
            Some(socket) => written(&socket, from, length),
            None => real::sendto(fd, from, length, flags, address, room),
        }
    }
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        match netlink(fd) {
            Some(socket) => served(&socket, gathered(message)),
            None => real::sendmsg(fd, message, flags),
        }
    }
    recv(fd: c_int, to: *mut c_void, length: size_t, flags: c_int) -> ssize_t {
        taken(fd, to, length, flags)
    }
    recvfrom(fd: c_int, to: *mut c_void, length: size_t, flags: c_int, address: *mut sockaddr, room: *mut socklen_t) -> ssize_t {
        taken_from(fd, to, length, flags, address, room)
    }
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        let Some(socket) = netlink(fd) else { return real::recvmsg(fd, message, flags) };
        let before = header(message);
        let got = real::recvmsg(fd, message, flags);
        let (Ok(before), true) = (before, got >= 0) else { return received(&socket, got, 0, 0) };
        // The kernel has said that the message comes from a socket without a name.
        (*message).msg_namelen = before.msg_namelen;
        received(&socket, got, before.msg_name as u64, (&raw mut (*message).msg_namelen) as u64)
    }
    // `recv` and `recvfrom` of programs that are built with _FORTIFY_SOURCE.
    __recv_chk(fd: c_int, to: *mut c_void, length: size_t, _room: size_t, flags: c_int) -> ssize_t {
        taken(fd, to, length, flags)
    }
    __recvfrom_chk(fd: c_int, to: *mut c_void, length: size_t, _size: size_t, flags: c_int, address: *mut sockaddr, room: *mut socklen_t) -> ssize_t {
        taken_from(fd, to, length, flags, address, room)
    }
}
