//! The addresses of one interface, asked of the kernel (`rtnetlink(7)`).
//!
//! `getifaddrs` says the same. But it opens a descriptor of its own, and ends the process if the program closes
//! it meanwhile. The thread that follows addresses runs beside the program, so it uses a descriptor that the
//! program cannot close.

use std::io;
use std::os::fd::AsRawFd;

use crate::fabric::local::socket::{Fd, own};
use crate::private::{check, system};
use crate::wire::gid;

use super::interface::DUPLICATE;

/// Bytes of a header, and of the structures behind it that are used: `ifinfomsg` and `ifaddrmsg`.
const HEADER: usize = 16;
const LINK: usize = 16;
const ADDRESS: usize = 8;
/// More than the kernel puts in one message of a list.
const ROOM: usize = 32 << 10;
/// Attributes of an address (`if_addr.h`).
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;

/// Returns the addresses of an interface: IPv4 first, then IPv6 by number. `None` if there is no such interface.
///
/// # Errors
/// Those of asking the kernel.
pub(super) fn addresses(index: u32) -> io::Result<Option<Vec<[u8; 16]>>> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: the call passes no memory. It returns a new descriptor, which `own` takes.
    let socket = unsafe { own(system::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE)) }?;
    let mut link = [0; LINK];
    link[4..8].copy_from_slice(&index.to_ne_bytes());
    match ask(&socket, libc::RTM_GETLINK, 0, &link, |_| {}) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
        asked => asked?,
    }
    let (mut ipv4, mut ipv6) = (Vec::new(), Vec::new());
    ask(&socket, libc::RTM_GETADDR, libc::NLM_F_DUMP, &[0; ADDRESS], |payload| {
        if let Some(gid) = read(payload, index) {
            let list = if gid::is_ipv4(&gid) { &mut ipv4 } else { &mut ipv6 };
            list.push(gid);
        }
    })?;
    ipv6.sort_unstable();
    ipv4.extend(ipv6);
    Ok(Some(ipv4))
}

/// Returns an address of this interface from a message. `None` for one that another node has.
fn read(payload: &[u8], index: u32) -> Option<[u8; 16]> {
    let [family, _, flags, _, a, b, c, d] = *payload.first_chunk::<ADDRESS>()?;
    let attributes = payload.get(ADDRESS..)?;
    let all = find(attributes, IFA_FLAGS).and_then(|flags| flags.first_chunk().copied());
    let flags = all.map_or(flags.into(), u32::from_ne_bytes);
    if u32::from_ne_bytes([a, b, c, d]) != index || flags & DUPLICATE != 0 {
        return None;
    }
    // On a link between two, the other one is that of the peer.
    let own = find(attributes, IFA_LOCAL).or_else(|| find(attributes, IFA_ADDRESS))?;
    match i32::from(family) {
        libc::AF_INET => {
            let ip: [u8; 4] = *own.first_chunk()?;
            Some(gid::of_ip(ip.into()))
        }
        libc::AF_INET6 => own.first_chunk().copied(),
        _ => None,
    }
}

/// Returns the value of the first attribute of a kind.
fn find(mut bytes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let [a, b, c, d] = *bytes.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let value = bytes.get(4..length)?;
        if u16::from_ne_bytes([c, d]) == kind {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

/// Makes a request, and passes what each message of the answer carries to `take`.
fn ask(
    socket: &Fd,
    kind: u16,
    flags: libc::c_int,
    body: &[u8],
    mut take: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut request = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    request.extend(kind.to_ne_bytes());
    request.extend(((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
    request.extend([0; 8]);
    request.extend(body);
    let fd = socket.as_raw_fd();
    // SAFETY: the call reads the request, whose length it is given.
    let sent = unsafe { system::send(fd, request.as_ptr().cast(), request.len(), 0) };
    check(sent as libc::c_int)?;
    let mut room = vec![0; ROOM];
    loop {
        // SAFETY: the call writes at most the length of `room`.
        let got = unsafe { system::recv(fd, room.as_mut_ptr().cast(), room.len(), 0) };
        let Ok(got) = usize::try_from(got) else {
            match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => continue,
                error => return Err(error),
            }
        };
        if let Some(end) = messages(&room[..got.min(ROOM)], flags, &mut take) {
            return end;
        }
    }
}

/// Passes on what messages carry. Returns how the answer ends, if it ends with one of them.
fn messages(
    mut bytes: &[u8],
    flags: libc::c_int,
    take: &mut impl FnMut(&[u8]),
) -> Option<io::Result<()>> {
    while let Some(header) = bytes.first_chunk::<HEADER>() {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let Some(payload) = bytes.get(HEADER..length) else {
            return Some(Err(io::ErrorKind::InvalidData.into()));
        };
        match i32::from(u16::from_ne_bytes([header[4], header[5]])) {
            libc::NLMSG_DONE => return Some(Ok(())),
            libc::NLMSG_ERROR => {
                let code = payload.first_chunk().copied().map_or(0, i32::from_ne_bytes);
                return Some(match code {
                    0 => Ok(()),
                    code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
                });
            }
            _ => take(payload),
        }
        // One that asks for one thing is answered by one message.
        if flags == 0 {
            return Some(Ok(()));
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

#[cfg(test)]
mod tests;
