//! Socket addresses of programs, and the ports that have them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;

use super::super::uverbs::process::errno::{Errno, Result};
use super::abi::{SOCKADDR6, STORAGE};
use crate::card::Link;
use crate::identity::{GidEntry, Identity};
use crate::private::{OwnFd, check, system};
use crate::wire::{RoceVersion, gid};

/// `AF_IB`
pub(super) const AF_IB: u16 = 27;
/// Bytes of `struct sockaddr_ib`.
const SOCKADDR_IB: usize = 48;
/// Bytes of `struct sockaddr_in`.
const SOCKADDR4: usize = 16;

/// An address that an id is bound to, or connects to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// An IP address and a port of the id's port space.
    Ip(SocketAddr),
    /// A GID and a service id.
    Ib {
        /// GID; all zero for any.
        gid: [u8; 16],
        /// Service id, and the bits of it that count.
        service: (u64, u64),
    },
}

impl Address {
    /// Returns whether it stands for every address of its family.
    pub fn is_wildcard(&self) -> bool {
        matches!(self, Self::Ip(address) if address.ip().is_unspecified())
    }

    /// Reads a socket address. Returns `None` if it is empty (family 0).
    ///
    /// # Errors
    /// `EINVAL` for another family or too few bytes.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        let family = bytes.get(..2).ok_or(Errno::EINVAL)?;
        let family = u16::from_ne_bytes([family[0], family[1]]);
        let port = |bytes: &[u8]| u16::from_be_bytes([bytes[2], bytes[3]]);
        match i32::from(family) {
            0 => Ok(None),
            libc::AF_INET => {
                let bytes = bytes.get(..8).ok_or(Errno::EINVAL)?;
                let ip = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
                Ok(Some(Self::Ip(SocketAddrV4::new(ip, port(bytes)).into())))
            }
            libc::AF_INET6 => {
                let bytes = bytes.get(..SOCKADDR6).ok_or(Errno::EINVAL)?;
                let mut ip = [0; 16];
                ip.copy_from_slice(&bytes[8..24]);
                let scope = u32::from_ne_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]);
                let address = SocketAddrV6::new(Ipv6Addr::from(ip), port(bytes), 0, scope);
                Ok(Some(Self::Ip(address.into())))
            }
            _ if family == AF_IB => {
                let bytes = bytes.get(..SOCKADDR_IB).ok_or(Errno::EINVAL)?;
                let number = |at: usize| {
                    let mut number = [0; 8];
                    number.copy_from_slice(&bytes[at..at + 8]);
                    u64::from_be_bytes(number)
                };
                let mut gid = [0; 16];
                gid.copy_from_slice(&bytes[8..24]);
                Ok(Some(Self::Ib { gid, service: (number(24), number(32)) }))
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// Returns the socket address, and its length.
    pub fn encode(&self) -> ([u8; STORAGE], usize) {
        let mut bytes = [0; STORAGE];
        let length = match self {
            Self::Ip(SocketAddr::V4(address)) => {
                bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
                bytes[4..8].copy_from_slice(&address.ip().octets());
                SOCKADDR4
            }
            Self::Ip(SocketAddr::V6(address)) => {
                bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
                bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
                bytes[8..24].copy_from_slice(&address.ip().octets());
                bytes[24..28].copy_from_slice(&address.scope_id().to_ne_bytes());
                SOCKADDR6
            }
            Self::Ib { gid, service } => return (ib(gid, 0xffff, *service), SOCKADDR_IB),
        };
        (bytes, length)
    }

    /// Returns whether it is no address in particular.
    pub fn is_any(&self) -> bool {
        match self {
            Self::Ip(address) => address.ip().is_unspecified(),
            Self::Ib { gid, .. } => *gid == [0; 16],
        }
    }

    /// Returns the address with another port.
    pub fn with_port(mut self, port: u16) -> Self {
        match &mut self {
            Self::Ip(address) => address.set_port(port),
            Self::Ib { service, .. } => service.0 = service.0 & !0xffff | u64::from(port),
        }
        self
    }

    /// Returns the address with every bit of its service id counting.
    pub fn exact(mut self) -> Self {
        if let Self::Ib { service, .. } = &mut self {
            service.1 = u64::MAX;
        }
        self
    }

    /// Returns an address of the same family that stands for any.
    pub fn any_like(&self) -> Self {
        match self {
            Self::Ip(SocketAddr::V4(_)) => {
                Self::Ip(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))
            }
            Self::Ip(SocketAddr::V6(_)) => {
                Self::Ip(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0))
            }
            Self::Ib { .. } => Self::Ib { gid: [0; 16], service: (0, 0) },
        }
    }

    /// Returns whether a listener with this address takes requests to `other`.
    pub fn takes(&self, other: IpAddr) -> bool {
        match self {
            Self::Ip(own) => {
                own.ip() == other || own.ip().is_unspecified() && (own.is_ipv6() || other.is_ipv4())
            }
            Self::Ib { .. } => true,
        }
    }
}

/// Returns a `sockaddr_ib`.
pub(super) fn ib(gid: &[u8; 16], p_key: u16, service: (u64, u64)) -> [u8; STORAGE] {
    let mut bytes = [0; STORAGE];
    bytes[..2].copy_from_slice(&AF_IB.to_ne_bytes());
    bytes[2..4].copy_from_slice(&p_key.to_be_bytes());
    bytes[8..24].copy_from_slice(gid);
    bytes[24..32].copy_from_slice(&service.0.to_be_bytes());
    bytes[32..40].copy_from_slice(&service.1.to_be_bytes());
    bytes
}

/// A port and a GID of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Index of the device.
    pub card: usize,
    /// Index of the GID.
    pub index: usize,
}

impl Place {
    /// Returns the GID.
    pub fn gid(&self, ports: &[Identity]) -> [u8; 16] {
        ports[self.card].entry(self.index).gid
    }

    /// Returns the VLAN that the GID is of, if it is of one.
    fn vlan(&self, ports: &[Identity]) -> Option<u16> {
        ports.get(self.card)?.entry(self.index).vlan
    }
}

/// Finds a GID in the tables of the machine's ports. On RoCE connections are of version 2, as Linux's
/// are by default.
pub(super) fn place_of_gid(ports: &[Identity], gid: &[u8; 16]) -> Option<Place> {
    place(ports, |entry| entry.gid == *gid)
}

/// Finds a GID that a port has in a VLAN; 0 for none.
pub(super) fn place_in_vlan(ports: &[Identity], gid: &[u8; 16], vlan: u16) -> Option<Place> {
    place(ports, |entry| entry.gid == *gid && entry.vlan.unwrap_or(0) == vlan)
}

fn place(ports: &[Identity], fits: impl Fn(&GidEntry) -> bool) -> Option<Place> {
    ports.iter().enumerate().find_map(|(card, port)| {
        let index = port.gids.iter().position(|entry| is_used(entry) && fits(entry))?;
        Some(Place { card, index })
    })
}

/// Returns whether connections may be of an entry.
fn is_used(entry: &GidEntry) -> bool {
    !entry.is_empty() && entry.version == RoceVersion::V2
}

/// Finds the port of an IP address of this machine: the port that has it as a GID, or the first
/// device's port for an address of another interface, loopback included.
pub(super) fn place_of(ports: &[Identity], address: &SocketAddr) -> Option<Place> {
    place_of_gid(ports, &gid::of_ip(address.ip()))
        .or_else(|| is_local(address).then(|| usual(ports, 0, address.ip(), None))?)
}

/// Returns the entry of a port's GID table that serves a family of addresses in a VLAN, or in none.
pub(super) fn usual(
    ports: &[Identity],
    card: usize,
    ip: IpAddr,
    vlan: Option<u16>,
) -> Option<Place> {
    let port = ports.get(card)?;
    let used = |entry: &GidEntry| is_used(entry) && entry.vlan == vlan;
    let fits = |entry: &GidEntry| used(entry) && gid::is_ipv4(&entry.gid) == ip.is_ipv4();
    let index = port.gids.iter().position(fits).or_else(|| port.gids.iter().position(used))?;
    Some(Place { card, index })
}

/// Returns whether an address is one of this machine's.
fn is_local(address: &SocketAddr) -> bool {
    let mut address = *address;
    address.set_port(0);
    address.ip().is_loopback() || bound(&address).is_ok()
}

/// Returns a UDP socket that is bound to an address.
fn bound(address: &SocketAddr) -> io::Result<OwnFd> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: the call passes no memory, and returns a new descriptor, which nothing else owns.
    let socket =
        unsafe { OwnFd::new(system::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0)) }?;
    let (bytes, length) = Address::Ip(*address).encode();
    // SAFETY: the call reads `length` bytes of the address.
    check(unsafe {
        system::bind(socket.as_raw_fd(), bytes.as_ptr().cast(), length as libc::socklen_t)
    })?;
    Ok(socket)
}

/// Returns the address, without a port, from which the machine sends to a destination.
fn source(destination: &SocketAddr) -> io::Result<SocketAddr> {
    let any: IpAddr = match destination {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = bound(&SocketAddr::new(any, 0))?;
    let (bytes, length) = Address::Ip(*destination).encode();
    // SAFETY: the call reads `length` bytes of the address.
    check(unsafe {
        system::connect(socket.as_raw_fd(), bytes.as_ptr().cast(), length as libc::socklen_t)
    })?;
    let mut bytes = [0u8; STORAGE];
    let mut length = STORAGE as libc::socklen_t;
    // SAFETY: the call writes at most `length` bytes, the size of `bytes`, and the length.
    check(unsafe {
        system::getsockname(socket.as_raw_fd(), bytes.as_mut_ptr().cast(), &mut length)
    })?;
    match Address::decode(&bytes) {
        Ok(Some(Address::Ip(mut source))) => {
            source.set_port(0);
            Ok(source)
        }
        _ => Err(io::ErrorKind::AddrNotAvailable.into()),
    }
}

/// Finds a path's ends for a destination: the port and GID that send, and the destination's GID.
/// `bound` is the address that the sender is bound to. Also returns the sender's address.
pub(super) fn route(
    ports: &[Identity],
    bound: Option<(SocketAddr, Place)>,
    destination: &SocketAddr,
) -> Option<(SocketAddr, Place, [u8; 16])> {
    if let Some(there) = place_of(ports, destination) {
        let there = match bound {
            // Packets do not leave the VLAN of their sender.
            Some((_, here)) if here.vlan(ports) != there.vlan(ports) => {
                let vlan = here.vlan(ports).unwrap_or(0);
                place_in_vlan(ports, &gid::of_ip(destination.ip()), vlan)?
            }
            _ => there,
        };
        let (source, here) = bound.or_else(|| {
            let known = place_of_gid(ports, &gid::of_ip(destination.ip())).is_some();
            let here = match known {
                true => usual(ports, 0, destination.ip(), there.vlan(ports)).unwrap_or(there),
                false => there,
            };
            let own = Ipv6Addr::from(here.gid(ports));
            let ip = match own.to_ipv4_mapped() {
                _ if !known && !destination.ip().is_multicast() => destination.ip(),
                Some(ip) if destination.is_ipv4() => ip.into(),
                _ => own.into(),
            };
            Some((SocketAddr::new(ip, 0), here))
        })?;
        return Some((source, here, there.gid(ports)));
    }
    // On Ethernet the addresses of other hosts are GIDs.
    if ports.first()?.link != Link::Roce {
        return None;
    }
    let (source, here) = match bound {
        Some(bound) => bound,
        None => {
            let source = source(destination).ok()?;
            (source, place_of_gid(ports, &gid::of_ip(source.ip()))?)
        }
    };
    // Only a GID that is an interface's address reaches other hosts.
    let routed = gid::of_ip(source.ip()) == here.gid(ports) && is_local(&source);
    routed.then(|| (source, here, gid::of_ip(destination.ip())))
}

#[cfg(test)]
mod tests;
