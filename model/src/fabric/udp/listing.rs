//! The addresses of one interface and of its VLANs, asked of the kernel (`rtnetlink(7)`).
//!
//! `getifaddrs` says the same. But it opens a descriptor of its own, and ends the process if the program closes
//! it meanwhile. The thread that follows addresses runs beside the program, so it uses a descriptor that the
//! program cannot close.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;

use crate::fabric::local::socket::{Fd, own};
use crate::private::{check, system};
use crate::wire::gid;

use super::interface::{Addresses, DUPLICATE, Vlan};

/// Bytes of a header, and of the structures behind it that are used: `ifinfomsg` and `ifaddrmsg`.
const HEADER: usize = 16;
const LINK: usize = 16;
const ADDRESS: usize = 8;
/// More than the kernel puts in one message of a list.
const ROOM: usize = 32 << 10;
/// Attributes of a link, of its kind, and of a VLAN (`if_link.h`).
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINK: u16 = 5;
const IFLA_LINKINFO: u16 = 18;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_VLAN_ID: u16 = 1;
/// Attributes of an address (`if_addr.h`).
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;

/// Returns the addresses of an interface and of the VLANs on top of it: IPv4 first, then IPv6 by number.
/// VLANs are in the order of their interfaces' numbers. `None` if there is no such interface.
///
/// # Errors
/// Those of asking the kernel.
pub(super) fn addresses(index: u32) -> io::Result<Option<Addresses>> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: the call passes no memory. It returns a new descriptor, which `own` takes.
    let socket = unsafe { own(system::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE)) }?;
    let (mut is_there, mut vlans) = (false, BTreeMap::new());
    ask(&socket, libc::RTM_GETLINK, libc::NLM_F_DUMP, &[0; LINK], |payload| {
        is_there |= number_of(payload) == Some(index);
        if let Some(vlan) = vlan_on(payload, index) {
            vlans.insert(vlan.index, vlan);
        }
    })?;
    if !is_there {
        return Ok(None);
    }
    let mut own = Vec::new();
    ask(&socket, libc::RTM_GETADDR, libc::NLM_F_DUMP, &[0; ADDRESS], |payload| {
        let Some((number, gid)) = read(payload) else { return };
        if number == index {
            own.push(gid);
        } else if let Some(vlan) = vlans.get_mut(&number) {
            vlan.gids.push(gid);
        }
    })?;
    let mut vlans: Vec<Vlan> = vlans.into_values().collect();
    for list in vlans.iter_mut().map(|vlan| &mut vlan.gids).chain([&mut own]) {
        list.sort_by_key(|gid| (!gid::is_ipv4(gid)).then_some(*gid));
    }
    Ok(Some(Addresses { own, vlans }))
}

/// Returns the number of the interface that a message of links is about.
fn number_of(payload: &[u8]) -> Option<u32> {
    payload.get(4..LINK)?.first_chunk().copied().map(u32::from_ne_bytes)
}

/// Returns the VLAN that a message of links is about, still without addresses, if it is directly on top of
/// an interface.
fn vlan_on(payload: &[u8], below: u32) -> Option<Vlan> {
    let attributes = payload.get(LINK..)?;
    let on: [u8; 4] = *find(attributes, IFLA_LINK)?.first_chunk()?;
    // The number is then one of another network namespace.
    let is_elsewhere = find(attributes, IFLA_LINK_NETNSID).is_some();
    let about = find(attributes, IFLA_LINKINFO)?;
    let is_vlan = find(about, IFLA_INFO_KIND)?.split(|byte| *byte == 0).next() == Some(b"vlan");
    if is_elsewhere || !is_vlan || u32::from_ne_bytes(on) != below {
        return None;
    }
    let id: [u8; 2] = *find(find(about, IFLA_INFO_DATA)?, IFLA_VLAN_ID)?.first_chunk()?;
    let name = find(attributes, IFLA_IFNAME)?.split(|byte| *byte == 0).next()?;
    Some(Vlan {
        id: u16::from_ne_bytes(id),
        name: String::from_utf8_lossy(name).into_owned(),
        index: number_of(payload)?,
        mac: *find(attributes, IFLA_ADDRESS)?.first_chunk()?,
        gids: Vec::new(),
    })
}

/// Returns the number of the interface and the address of a message. `None` for an address that another
/// node has.
fn read(payload: &[u8]) -> Option<(u32, [u8; 16])> {
    let [family, _, flags, _, a, b, c, d] = *payload.first_chunk::<ADDRESS>()?;
    let attributes = payload.get(ADDRESS..)?;
    let all = find(attributes, IFA_FLAGS).and_then(|flags| flags.first_chunk().copied());
    let flags = all.map_or(flags.into(), u32::from_ne_bytes);
    if flags & DUPLICATE != 0 {
        return None;
    }
    // On a link between two, the other one is that of the peer.
    let own = find(attributes, IFA_LOCAL).or_else(|| find(attributes, IFA_ADDRESS))?;
    let gid = match i32::from(family) {
        libc::AF_INET => {
            let ip: [u8; 4] = *own.first_chunk()?;
            gid::of_ip(ip.into())
        }
        libc::AF_INET6 => *own.first_chunk()?,
        _ => return None,
    };
    Some((u32::from_ne_bytes([a, b, c, d]), gid))
}

/// Returns the value of the first attribute of a kind. Its two upper bits are flags (`netlink.h`).
fn find(mut bytes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let [a, b, c, d] = *bytes.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let value = bytes.get(4..length)?;
        if u16::from_ne_bytes([c, d]) & 0x3fff == kind {
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
