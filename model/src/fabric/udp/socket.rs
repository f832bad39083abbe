//! UDP sockets whose packets have known IP headers.
//!
//! The ICRC covers most of the IP header, which the kernel writes. So a sender makes the kernel
//! write what the frame already has: an unconnected socket that must not fragment sends
//! identification 0 with the flag DF, time to live and type of service come with each packet, and
//! there is no UDP checksum. A receiver builds the header anew from the same facts.

use std::io;
use std::os::fd::AsRawFd;

use crate::fabric::local::socket::{self as local, Fd};
use crate::private::{OwnFd, check, system};
use crate::wire::ethernet::{self, HEADER};
use crate::wire::gid::{ipv4_at, is_ipv4, is_link_local};
use crate::wire::route::{GRH, HOPS, IPV4, ROCE_PORT, UDP};
use crate::wire::{Frame, mac};

/// Bytes of a receive buffer to request. The kernel may grant less.
const UNREAD: libc::c_int = 32 << 20;
/// Bytes of a send buffer. What waits in a longer one would be repeated before it has left.
const UNSENT: libc::c_int = 1 << 20;
/// Longest packet without IP and UDP headers: 4096 bytes of payload and all headers.
const LONGEST: usize = 4096 + 256;
/// Frames moved by one system call.
pub(super) const BATCH: usize = 32;
/// Bytes of control messages that come with a packet: two numbers.
const CONTROL: usize = 64;
/// `linux/in6.h`
pub(super) const IPV6_MULTICAST_ALL: libc::c_int = 29;
/// Bytes of Ethernet, IP and UDP headers of packets between addresses of this family.
fn headers(ipv4: bool) -> usize {
    HEADER + if ipv4 { IPV4 } else { GRH } + UDP
}

/// Returns a socket for questions about interfaces.
pub(super) fn any() -> io::Result<Fd> {
    // SAFETY: `socket` passes no memory. It returns a new descriptor, which `own` takes.
    unsafe { local::own(system::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0)) }
}

fn set<T>(fd: &OwnFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the call reads `length` bytes, the size of `value`.
    check(unsafe {
        system::setsockopt(fd.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), length)
    })
    .map(drop)
}

/// A socket address, as the kernel reads and writes it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Address {
    bytes: [u8; 28],
    length: libc::socklen_t,
}

impl Address {
    const NONE: Self = Self { bytes: [0; 28], length: 28 };

    /// The address of a port of a GID. `interface` says where a link-local address is.
    fn new(gid: &[u8; 16], port: u16, interface: u32) -> Self {
        let mut bytes = [0; 28];
        bytes[2..4].copy_from_slice(&port.to_be_bytes());
        if is_ipv4(gid) {
            bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            bytes[4..8].copy_from_slice(&gid[12..]);
            return Self { bytes, length: 16 };
        }
        bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        bytes[8..24].copy_from_slice(gid);
        // Link-local unicast and multicast addresses say nothing without their link.
        let local = is_link_local(gid) || gid[0] == 0xff;
        bytes[24..].copy_from_slice(&if local { interface } else { 0 }.to_ne_bytes());
        Self { bytes, length: 28 }
    }

    fn port(&self) -> [u8; 2] {
        [self.bytes[2], self.bytes[3]]
    }

    fn gid(&self, ipv4: bool) -> [u8; 16] {
        if ipv4 { ipv4_at(&self.bytes, 4) } else { std::array::from_fn(|at| self.bytes[8 + at]) }
    }
}

fn socket(ipv4: bool) -> io::Result<Fd> {
    let family = if ipv4 { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: `socket` passes no memory. It returns a new descriptor, which `own` takes.
    let fd = unsafe { local::own(system::socket(family, kind, 0)) }?;
    if !ipv4 {
        set(&fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &1)?;
    }
    Ok(fd)
}

/// Returns whether the machine has a route to the address of a GID, for a port on this interface.
pub(crate) fn has_route(gid: &[u8; 16], interface: u32) -> bool {
    let Ok(fd) = socket(is_ipv4(gid)) else { return false };
    let address = Address::new(gid, ROCE_PORT, interface);
    // SAFETY: `address` is an address of `length` bytes, which the call reads.
    let result =
        unsafe { system::connect(fd.as_raw_fd(), address.bytes.as_ptr().cast(), address.length) };
    result == 0
}

fn bind(fd: &OwnFd, gid: &[u8; 16], port: u16, interface: u32) -> io::Result<()> {
    if !is_ipv4(gid) {
        // An address that was just added cannot be bound to until it is known to be unique.
        set(fd, libc::IPPROTO_IPV6, libc::IPV6_FREEBIND, &1)?;
    }
    let address = Address::new(gid, port, interface);
    // SAFETY: `address` is an address of `length` bytes, which the call reads.
    check(unsafe { system::bind(fd.as_raw_fd(), address.bytes.as_ptr().cast(), address.length) })
        .map(drop)
}

/// Requests a larger buffer. A smaller one is only slower, so a refusal does not matter.
fn enlarge(fd: &OwnFd, [force, plain]: [libc::c_int; 2], bytes: libc::c_int) {
    let _ = set(fd, libc::SOL_SOCKET, force, &bytes)
        .or_else(|_| set(fd, libc::SOL_SOCKET, plain, &bytes));
}

fn tell_headers(fd: &OwnFd, ipv4: bool) -> io::Result<()> {
    enlarge(fd, [libc::SO_RCVBUFFORCE, libc::SO_RCVBUF], UNREAD);
    if ipv4 {
        set(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, &1)?;
        set(fd, libc::IPPROTO_IP, libc::IP_RECVTTL, &1)
    } else {
        set(fd, libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_RX, &1)?;
        set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, &1)?;
        set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, &1)
    }
}

/// Returns a socket that receives all packets of RoCE to an address.
///
/// # Errors
/// `AddrInUse` if another socket does.
pub(super) fn receiver(gid: &[u8; 16], interface: u32) -> io::Result<Fd> {
    let fd = socket(is_ipv4(gid))?;
    tell_headers(&fd, is_ipv4(gid))?;
    bind(&fd, gid, ROCE_PORT, interface)?;
    Ok(fd)
}

/// Returns a socket that receives the packets of RoCE to a multicast group on an interface. Other
/// sockets may receive them too.
pub(super) fn member(group: &[u8; 16], interface: u32) -> io::Result<Fd> {
    let ipv4 = is_ipv4(group);
    let fd = socket(ipv4)?;
    tell_headers(&fd, ipv4)?;
    set(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1)?;
    bind(&fd, group, ROCE_PORT, interface)?;
    if ipv4 {
        let group = libc::in_addr {
            s_addr: u32::from_ne_bytes([group[12], group[13], group[14], group[15]]),
        };
        let request = libc::ip_mreqn {
            imr_multiaddr: group,
            imr_address: libc::in_addr { s_addr: 0 },
            imr_ifindex: interface as libc::c_int,
        };
        // Otherwise it receives what comes to any interface on which a socket is a member.
        set(&fd, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, &0)?;
        set(&fd, libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &request)?;
    } else {
        let request = libc::ipv6_mreq {
            ipv6mr_multiaddr: libc::in6_addr { s6_addr: *group },
            ipv6mr_interface: interface,
        };
        match set(&fd, libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL, &0) {
            // Linux has it from 4.20 on.
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {}
            done => done?,
        }
        set(&fd, libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP, &request)?;
    }
    Ok(fd)
}

/// Returns a socket that sends from a port of an address, and receives nothing.
///
/// # Errors
/// `AddrInUse` if another socket has the port.
pub(super) fn sender(gid: &[u8; 16], port: u16, interface: u32) -> io::Result<Fd> {
    let ipv4 = is_ipv4(gid);
    let fd = socket(ipv4)?;
    let mut nothing =
        libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    let filter = libc::sock_fprog { len: 1, filter: &raw mut nothing };
    set(&fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)?;
    enlarge(&fd, [libc::SO_SNDBUFFORCE, libc::SO_SNDBUF], UNSENT);
    if ipv4 {
        set(&fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &libc::IP_PMTUDISC_DO)?;
        set(&fd, libc::SOL_SOCKET, libc::SO_NO_CHECK, &1)?;
        let request = libc::ip_mreqn {
            imr_multiaddr: libc::in_addr { s_addr: 0 },
            imr_address: libc::in_addr { s_addr: 0 },
            imr_ifindex: interface as libc::c_int,
        };
        set(&fd, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &request)?;
    } else {
        set(&fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, &libc::IPV6_PMTUDISC_DO)?;
        set(&fd, libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_TX, &1)?;
        set(&fd, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, &interface)?;
    }
    bind(&fd, gid, port, interface)?;
    Ok(fd)
}

/// A control message with one number.
#[derive(Clone, Copy)]
#[repr(C)]
struct Number {
    header: libc::cmsghdr,
    value: libc::c_int,
}

impl Number {
    fn new(level: libc::c_int, kind: libc::c_int, value: u8) -> Self {
        // SAFETY: all zeros is a valid value: numbers.
        let mut header: libc::cmsghdr = unsafe { std::mem::zeroed() };
        // SAFETY: `CMSG_LEN` only computes.
        header.cmsg_len = unsafe { libc::CMSG_LEN(size_of::<libc::c_int>() as u32) } as _;
        (header.cmsg_level, header.cmsg_type) = (level, kind);
        Self { header, value: value.into() }
    }
}

/// Returns type of service and time to live of a frame.
fn service(bytes: &[u8], ipv4: bool) -> (u8, u8) {
    if ipv4 { (bytes[1], bytes[8]) } else { (bytes[0] << 4 | bytes[1] >> 4, bytes[7]) }
}

/// Sends frames to the addresses in their IP headers, and returns their number. All come from the
/// socket's address, and have whole IP and UDP headers.
///
/// # Errors
/// `WouldBlock` if not even one fits. Other errors are those of the first frame.
pub(super) fn send<'a>(
    fd: &OwnFd,
    ipv4: bool,
    interface: u32,
    frames: impl Iterator<Item = &'a Frame>,
) -> io::Result<usize> {
    let mut parts = [NO_PART; BATCH];
    let mut targets = [Address::NONE; BATCH];
    let none = Number::new(0, 0, 0);
    let mut control = [[none; 2]; BATCH];
    // SAFETY: all zeros is a valid value: null pointers and zero lengths.
    let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
    let mut count = 0;
    for (index, frame) in frames.take(BATCH).enumerate() {
        let (headers, payload) = frame.0.split_at(headers(ipv4));
        let headers = &headers[HEADER..];
        let to =
            if ipv4 { ipv4_at(headers, 16) } else { std::array::from_fn(|at| headers[24 + at]) };
        targets[index] = Address::new(&to, ROCE_PORT, interface);
        let (class, hops) = service(headers, ipv4);
        // Linux does not send a time to live of zero.
        let hops = if hops == 0 { HOPS } else { hops };
        control[index] = if ipv4 {
            [
                Number::new(libc::IPPROTO_IP, libc::IP_TOS, class),
                Number::new(libc::IPPROTO_IP, libc::IP_TTL, hops),
            ]
        } else {
            [
                Number::new(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, class),
                Number::new(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, hops),
            ]
        };
        parts[index].iov_base = payload.as_ptr().cast_mut().cast();
        parts[index].iov_len = payload.len();
        count += 1;
    }
    for (index, message) in messages.iter_mut().take(count).enumerate() {
        let header = &mut message.msg_hdr;
        header.msg_name = targets[index].bytes.as_mut_ptr().cast();
        header.msg_namelen = targets[index].length;
        header.msg_iov = &raw mut parts[index];
        header.msg_iovlen = 1;
        header.msg_control = control[index].as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control[index]) as _;
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: each of the `count` messages points to its own entries of `targets`, `parts` and
    // `control`, which live through the call. Each part points to a frame that is borrowed for
    // longer than the call. The call only reads all of them.
    let sent = unsafe {
        system::sendmmsg(fd.as_raw_fd(), messages.as_mut_ptr(), count as libc::c_uint, flags)
    };
    Ok(check(sent)? as usize)
}

/// An empty part of a message.
const NO_PART: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// Buffers for a batch of frames.
pub(super) struct Batch(Vec<Frame>);

impl Batch {
    pub(super) fn new() -> Self {
        Self((0..BATCH).map(|_| Frame::new(Vec::with_capacity(headers(false) + LONGEST))).collect())
    }

    /// Receives waiting packets, up to a batch. `to` is the address that the socket is bound to,
    /// and `port` the Ethernet address of its port.
    /// Returns the frames with their IP headers, and whether more may wait. Packets that are too
    /// long for one of RoCE are left out.
    ///
    /// # Errors
    /// `WouldBlock` if no packet waits.
    pub(super) fn receive(
        &mut self,
        fd: &OwnFd,
        to: &[u8; 16],
        port: [u8; 6],
    ) -> io::Result<(impl Iterator<Item = &Frame>, bool)> {
        let ipv4 = is_ipv4(to);
        let start = headers(ipv4);
        let mut parts = [NO_PART; BATCH];
        let mut senders = [Address::NONE; BATCH];
        let mut control = [[0u64; CONTROL / 8]; BATCH];
        // SAFETY: all zeros is a valid value: null pointers and zero lengths.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        for (index, frame) in self.0.iter_mut().enumerate() {
            frame.0.clear();
            frame.0.resize(start, 0);
            let room = &mut frame.0.spare_capacity_mut()[..LONGEST];
            parts[index] = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
            let header = &mut messages[index].msg_hdr;
            header.msg_name = senders[index].bytes.as_mut_ptr().cast();
            header.msg_namelen = senders[index].length;
            header.msg_iov = &raw mut parts[index];
            header.msg_iovlen = 1;
            header.msg_control = control[index].as_mut_ptr().cast();
            header.msg_controllen = CONTROL as _;
        }
        // SAFETY: each of the BATCH messages points to its own entries of `senders`, `parts` and
        // `control`, with their lengths. Each part points to the spare capacity of its own frame.
        let got = unsafe {
            system::recvmmsg(
                fd.as_raw_fd(),
                messages.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let got = check(got)? as usize;
        for (index, message) in messages[..got].iter().enumerate() {
            let bytes = &mut self.0[index].0;
            if message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
                bytes.clear();
                continue;
            }
            // SAFETY: without MSG_TRUNC, `msg_len` is the number of bytes that the kernel has
            // written behind the first `start`. It is at most LONGEST, which the capacity has.
            unsafe { bytes.set_len(start + message.msg_len as usize) };
            // SAFETY: the message's control buffer is the entry of `control`, which is still there.
            let (class, hops) = unsafe { numbers(&message.msg_hdr) };
            describe(bytes, &senders[index], (to, port), class, hops);
        }
        Ok((self.0[..got].iter().filter(|frame| !frame.0.is_empty()), got == BATCH))
    }
}

/// Returns type of service and time to live from the control messages of a packet.
///
/// # Safety
/// The control buffer of the message is as the kernel has written it.
unsafe fn numbers(message: &libc::msghdr) -> (u8, u8) {
    let (mut class, mut hops) = (0, HOPS);
    // SAFETY: the caller guarantees the buffer that these macros walk along.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: `next` is null or a whole header within the buffer.
    while let Some(header) = unsafe { next.as_ref() } {
        // The kernel sends one byte or a number. Both are below 256.
        // SAFETY: the message has at least one byte of data.
        let data = unsafe { libc::CMSG_DATA(next) };
        // SAFETY: `CMSG_LEN` only computes.
        let number = unsafe { libc::CMSG_LEN(size_of::<libc::c_int>() as u32) };
        let wide = header.cmsg_len >= number as _;
        // SAFETY: `data` has four bytes if the length says so, and one byte otherwise.
        let value =
            unsafe { if wide { data.cast::<libc::c_int>().read_unaligned() as u8 } else { *data } };
        match (header.cmsg_level, header.cmsg_type) {
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                class = value;
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                hops = value;
            }
            _ => {}
        }
        // SAFETY: the caller guarantees the buffer, and `next` is a header in it.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    (class, hops)
}

/// Writes the headers that a packet came with. Its sender's Ethernet address is not known: the one
/// that follows from the sender's GID stands for it.
fn describe(
    bytes: &mut [u8],
    from: &Address,
    (to, port): (&[u8; 16], [u8; 6]),
    class: u8,
    hops: u8,
) {
    let ipv4 = is_ipv4(to);
    let (headers, payload) = bytes.split_at_mut(headers(ipv4));
    let length = UDP + payload.len();
    let (link, rest) = headers.split_at_mut(HEADER);
    let (ip, udp) = rest.split_at_mut(rest.len() - UDP);
    let source = from.gid(ipv4);
    if ipv4 {
        ip[..2].copy_from_slice(&[0x45, class]);
        ip[2..4].copy_from_slice(&((IPV4 + length) as u16).to_be_bytes());
        // No identification, do not fragment.
        ip[6] = 0x40;
        ip[8..10].copy_from_slice(&[hops, libc::IPPROTO_UDP as u8]);
        ip[12..16].copy_from_slice(&source[12..]);
        ip[16..20].copy_from_slice(&to[12..]);
        let sum = !ethernet::folded(ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    } else {
        ip[..2].copy_from_slice(&[0x60 | class >> 4, class << 4]);
        ip[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        ip[6..8].copy_from_slice(&[libc::IPPROTO_UDP as u8, hops]);
        ip[8..24].copy_from_slice(&source);
        ip[24..40].copy_from_slice(to);
    }
    link[..6].copy_from_slice(&port);
    link[6..12].copy_from_slice(&mac(&source));
    let kind = if ipv4 { ethernet::IPV4 } else { ethernet::IPV6 };
    link[12..].copy_from_slice(&kind.to_be_bytes());
    udp[..2].copy_from_slice(&from.port());
    udp[2..4].copy_from_slice(&ROCE_PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&(length as u16).to_be_bytes());
}
