//! What the kernel tells of RDMA devices by netlink, whether they are open or not: `rdma link`, `rdma resource`
//! and their like ask for it, and libibverbs finds devices by it.
//!
//! `devices` are answers about devices and ports, and `resources` those about the objects of all processes.
//!
//! A program's socket is one end of a pair. What it sends is served at once, inside its call. What it has
//! not read yet waits in the pair, as far as that has room, and in a list behind it.

mod devices;
mod resources;

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{c_int, c_void, size_t, ssize_t};

use super::process::descriptors::{Inherited, OpenFile, aside};
use super::process::errno::{Errno, Result, errno, last, set_errno};
use super::process::{lock, real, user};
use super::request::netlink::{Attributes, Request, attribute, command, find_u32};
use super::tree::discovery::{Discovery, Offer, discovery};
use crate::private::{OwnFd, Private, system};

/// Bytes of `struct sockaddr_nl`.
const ADDRESS: usize = size_of::<libc::sockaddr_nl>();
/// Messages that may wait before a further request is refused.
const WAITING: usize = 1 << 10;

/// A program's socket of RDMA netlink.
pub(crate) struct Socket {
    /// The other end of the program's socket, by which replies are sent.
    other: Private,
    /// The program's address.
    port: AtomicU32,
    waiting: Mutex<VecDeque<Vec<u8>>>,
}

impl OpenFile for Socket {
    /// Leaves it to the kernel, and makes room for what waits.
    unsafe fn read(&self, fd: c_int, to: *mut c_void, length: size_t) -> Option<ssize_t> {
        // SAFETY: the caller guarantees that `length` bytes may be written to.
        let got = unsafe { real::read(fd, to, length) };
        let before = errno();
        self.fill();
        set_errno(before);
        Some(got)
    }

    fn inherited(&self) -> Inherited {
        Inherited::Netlink
    }
}

/// What a request is answered with.
enum Answer {
    One(Attributes),
    List(Vec<Attributes>),
}

impl Socket {
    /// The longest that a program may send at once: requests have few attributes.
    pub const LONGEST: usize = 1 << 16;

    /// Opens one of this type (`SOCK_RAW` or `SOCK_DGRAM`, with flags): the program's end, and what serves it.
    pub fn open(kind: c_int) -> Result<(c_int, Socket)> {
        let flags = kind & (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
        let mut pair = [-1; 2];
        // SAFETY: the call writes the two descriptors of `pair`.
        let made = unsafe {
            let kind = libc::SOCK_SEQPACKET | flags | libc::SOCK_CLOEXEC;
            system::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr())
        };
        if made != 0 {
            return Err(last());
        }
        if flags & libc::SOCK_CLOEXEC == 0 {
            // SAFETY: F_SETFD passes no memory.
            unsafe { system::fcntl(pair[0], libc::F_SETFD, 0) };
        }
        let other = aside(pair[1]).unwrap_or(pair[1]);
        // SAFETY: the call above has made the descriptor, so nothing else owns it.
        let other = Private::new(unsafe { OwnFd::new(other) }.map_err(|_| last())?);
        let port = AtomicU32::new(std::process::id());
        Ok((pair[0], Socket { other, port, waiting: Mutex::default() }))
    }

    /// Gives it the address at this place, as `bind` does.
    pub fn bind(&self, address: u64, length: usize) -> Result<()> {
        if length < ADDRESS {
            return Err(Errno::EINVAL);
        }
        let address = user::read(address, ADDRESS)?;
        let (family, port) = address.split_at(4);
        if family[..2] != (libc::AF_NETLINK as u16).to_ne_bytes() {
            return Err(Errno::EINVAL);
        }
        let port = u32::from_ne_bytes([port[0], port[1], port[2], port[3]]);
        if port != 0 {
            self.port.store(port, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Writes its own address to `to`, as `getsockname` does, or the kernel's, as the calls that receive do.
    /// The length at `length` says how much room there is, and then how long the address is.
    pub fn name(&self, whose: Side, to: u64, length: u64) -> Result<()> {
        let room: c_int = user::lenient(&user::read(length, size_of::<c_int>())?);
        let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
        let port = match whose {
            Side::Program => self.port.load(Ordering::Relaxed),
            Side::Kernel => 0,
        };
        let mut address = (libc::AF_NETLINK as u32).to_ne_bytes().to_vec();
        address.extend(port.to_ne_bytes());
        address.resize(ADDRESS, 0);
        user::write(to, &address[..room.min(ADDRESS)])?;
        user::write(length, &(ADDRESS as c_int).to_ne_bytes())
    }

    /// Serves what the program has sent.
    pub fn send(&self, sent: &[u8]) -> Result<()> {
        let Discovery::On(offer) = discovery() else { return Err(Errno::ENODEV) };
        let mut rest = sent;
        while let Some((request, behind)) = Request::split(rest) {
            rest = behind;
            if lock(&self.waiting).len() > WAITING {
                self.fill();
                return Err(Errno::ENOBUFS);
            }
            if request.has(libc::NLM_F_REQUEST) {
                let replies = replies(offer, &request, self.port.load(Ordering::Relaxed));
                lock(&self.waiting).extend(replies);
            }
        }
        self.fill();
        Ok(())
    }

    /// Moves as many of the waiting messages to the program as there is room for.
    pub fn fill(&self) {
        let mut waiting = lock(&self.waiting);
        while let Some(message) = waiting.front() {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            // SAFETY: the call reads the message, whose length it is given.
            let sent = unsafe {
                let bytes = message.as_ptr().cast();
                system::send(self.other.as_raw_fd(), bytes, message.len(), flags)
            };
            if sent < 0 {
                break;
            }
            waiting.pop_front();
        }
    }
}

/// The two sides of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Program,
    Kernel,
}

/// Returns the messages that answer a request.
fn replies(offer: &Offer, request: &Request, port: u32) -> Vec<Vec<u8>> {
    let Some(command) = request.command() else { return vec![request.ended(libc::EINVAL, port)] };
    match answer(offer, command, request) {
        Err(error) => vec![request.ended(error.0, port)],
        Ok(Answer::One(attributes)) => {
            let mut all = vec![request.reply(command, 0, port, attributes.as_bytes())];
            if request.has(libc::NLM_F_ACK) {
                all.push(request.ended(0, port));
            }
            all
        }
        Ok(Answer::List(list)) => {
            let reply =
                |one: Attributes| request.reply(command, libc::NLM_F_MULTI, port, one.as_bytes());
            list.into_iter().map(reply).chain([request.done(port)]).collect()
        }
    }
}

fn answer(offer: &Offer, command: u16, request: &Request) -> Result<Answer> {
    let is_list = request.has(libc::NLM_F_DUMP);
    let given = request.attributes;
    let device = || device(offer, given);
    match command {
        command::GET if is_list => {
            Ok(Answer::List(indices(offer).map(|index| devices::device(offer, index)).collect()))
        }
        command::GET => Ok(Answer::One(devices::device(offer, device()?))),
        command::PORT_GET if is_list => Ok(Answer::List(vec![devices::port(offer, device()?)])),
        command::PORT_GET => {
            let device = device()?;
            port(given)?.ok_or(Errno::EINVAL)?;
            Ok(Answer::One(devices::port(offer, device)))
        }
        command::SYS_GET => Ok(Answer::One(devices::system())),
        command::GET_CHARDEV => devices::node(offer, given).map(Answer::One),
        // Counters that are bound to queue pairs: the model has none.
        command::STAT_GET if is_list => {
            find_u32(given, attribute::STAT_RES).ok_or(Errno::EINVAL)?;
            Ok(Answer::List(Vec::new()))
        }
        command::STAT_GET => {
            let device = device()?;
            port(given)?.ok_or(Errno::EINVAL)?;
            Ok(Answer::One(resources::counters(offer, device)))
        }
        command::RES_GET if is_list => {
            let summary = resources::Summary::new();
            Ok(Answer::List(indices(offer).map(|index| summary.of(offer, index)).collect()))
        }
        command::RES_GET => Ok(Answer::One(resources::Summary::new().of(offer, device()?))),
        _ => {
            let list = resources::LISTS.iter().find(|list| list.command == command);
            // Nothing of the model can be changed this way.
            let list = list.ok_or(Errno::EOPNOTSUPP)?;
            let (device, port) = (device()?, port(given)?);
            match is_list {
                true => Ok(Answer::List(list.all(offer, device, port))),
                false => list.one(offer, device, given).map(Answer::One),
            }
        }
    }
}

fn indices(offer: &Offer) -> std::ops::Range<usize> {
    0..offer.devices.len()
}

/// Returns the number of the device that a request names.
fn device(offer: &Offer, given: &[u8]) -> Result<usize> {
    let index = find_u32(given, attribute::DEV_INDEX).ok_or(Errno::EINVAL)? as usize;
    if index < offer.devices.len() { Ok(index) } else { Err(Errno::EINVAL) }
}

/// Returns the port that a request names, if it names one. Devices have one port.
fn port(given: &[u8]) -> Result<Option<u32>> {
    match find_u32(given, attribute::PORT_INDEX) {
        None => Ok(None),
        Some(1) => Ok(Some(1)),
        Some(_) => Err(Errno::EINVAL),
    }
}

/// Attributes that begin with the device's number and name, as all answers about a device do.
fn of_device(offer: &Offer, index: usize) -> Attributes {
    let mut told = Attributes::default();
    told.u32(attribute::DEV_INDEX, index as u32);
    told.text(attribute::DEV_NAME, &offer.devices[index].name);
    told
}
