//! Multicast groups.

use std::ffi::CString;
use std::mem::zeroed;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use crate::error::{Errno, Error, Result};
use crate::verbs::group_mac;

/// A multicast group that a network interface has joined, as long as this exists.
///
/// The kernel tells switches by IGMP or MLD, which then deliver the group's packets to the port. A
/// [rule](crate::verbs::FlowBuilder::group) steers them to a receiver:
/// [`PacketReceiver::join`](super::PacketReceiver::join) adds it.
///
/// ```no_run
/// use mlx5::packet::{Group, Membership};
///
/// # fn example() -> mlx5::Result<()> {
/// let group = Group::join("eth0", None, "239.1.1.1".parse().expect("an address"))?;
/// if group.membership() == Membership::NoInterface {
///     println!("switches are not told of {}", group.address());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Group {
    address: IpAddr,
    source: Option<IpAddr>,
    /// The socket that is a member; none without an interface.
    socket: Option<OwnedFd>,
}

/// The state of a membership.
///
/// See the example on [`Group`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Membership {
    /// The kernel has joined, and tells switches.
    Joined,
    /// The port's network interface is known to RDMA alone, as of a software ConnectX: no kernel can
    /// join.
    NoInterface,
}

/// An address of a socket, in the form that memberships take.
fn storage(address: IpAddr) -> libc::sockaddr_storage {
    // SAFETY: zero is a value of every field.
    let mut storage: libc::sockaddr_storage = unsafe { zeroed() };
    let place = &raw mut storage;
    // SAFETY: the storage has the size and the alignment of each address.
    unsafe {
        match address {
            IpAddr::V4(address) => {
                let v4 = place.cast::<libc::sockaddr_in>();
                (*v4).sin_family = libc::AF_INET as libc::sa_family_t;
                (*v4).sin_addr.s_addr = u32::from(address).to_be();
            }
            IpAddr::V6(address) => {
                let v6 = place.cast::<libc::sockaddr_in6>();
                (*v6).sin6_family = libc::AF_INET6 as libc::sa_family_t;
                (*v6).sin6_addr.s6_addr = address.octets();
            }
        }
    }
    storage
}

impl Group {
    /// Joins a group on the network interface of that name: packets of one source (IGMPv3, MLDv2) or of
    /// all.
    ///
    /// # Errors
    /// [`Error::Attribute`] for an unknown interface, an address that is not of a group, and a source of
    /// the other IP version; [`Error::Call`] if the kernel refuses: `ENOBUFS` after
    /// `net.ipv4.igmp_max_memberships` groups of a process's socket.
    #[doc(alias("IP_ADD_MEMBERSHIP", "MCAST_JOIN_GROUP", "MCAST_JOIN_SOURCE_GROUP"))]
    pub fn join(interface: &str, source: Option<IpAddr>, group: IpAddr) -> Result<Group> {
        if !group.is_multicast() {
            let rule = "a multicast address: 224.0.0.0/4 or ff00::/8";
            return Err(Error::attribute("group", group, rule));
        }
        if let Some(source) = source.filter(|source| source.is_ipv4() != group.is_ipv4()) {
            let rule = format!("of the same IP version as {group}");
            return Err(Error::attribute("source", source, rule));
        }
        let unknown =
            || Error::attribute("interface", interface, "no network interface has this name");
        let name = CString::new(interface).map_err(|_| unknown())?;
        // SAFETY: the name ends with a zero.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        let socket = match index {
            0 if Path::new("/sys/class/net").join(interface).exists() => None,
            0 => return Err(unknown()),
            index => member(index, source, group)?,
        };
        Ok(Group { address: group, source, socket })
    }

    /// Returns the Ethernet address to which the packets of a group are sent (RFC 1112, RFC 2464); `None`
    /// for an address that is not of a group. A sender need not join.
    ///
    /// ```
    /// use mlx5::packet::Group;
    ///
    /// let mac = Group::mac_of("239.129.2.3".parse()?);
    /// assert_eq!(mac, Some([0x01, 0x00, 0x5e, 0x01, 0x02, 0x03]));
    /// assert_eq!(Group::mac_of("192.0.2.1".parse()?), None);
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn mac_of(group: IpAddr) -> Option<[u8; 6]> {
        group.is_multicast().then(|| group_mac(group))
    }

    /// Returns the group's address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the only source whose packets it has, if there is one.
    pub fn source(&self) -> Option<IpAddr> {
        self.source
    }

    /// Returns the state of the membership.
    pub fn membership(&self) -> Membership {
        match self.socket {
            Some(_) => Membership::Joined,
            None => Membership::NoInterface,
        }
    }
}

/// Returns a socket that is a member; none if the kernel does not know the interface.
fn member(index: u32, source: Option<IpAddr>, group: IpAddr) -> Result<Option<OwnedFd>> {
    let (family, level) = match group {
        IpAddr::V4(_) => (libc::AF_INET, libc::IPPROTO_IP),
        IpAddr::V6(_) => (libc::AF_INET6, libc::IPPROTO_IPV6),
    };
    // SAFETY: the call takes numbers.
    let socket = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(Error::last("socket"));
    }
    // SAFETY: the descriptor was just made, and nothing else has it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let result = match source {
        None => {
            let request = GroupRequest { interface: index, group: storage(group) };
            set(&socket, level, MCAST_JOIN_GROUP, &request)
        }
        Some(source) => {
            let (group, source) = (storage(group), storage(source));
            let request = SourceRequest { interface: index, group, source };
            set(&socket, level, MCAST_JOIN_SOURCE_GROUP, &request)
        }
    };
    match result {
        Ok(()) => Ok(Some(socket)),
        Err(Errno(libc::ENODEV)) => Ok(None),
        Err(errno) => Err(Error::from_errno("setsockopt(MCAST_JOIN_GROUP)", errno)),
    }
}

/// `linux/in.h`
const MCAST_JOIN_GROUP: libc::c_int = 42;
const MCAST_JOIN_SOURCE_GROUP: libc::c_int = 46;

/// `struct group_req`
#[repr(C)]
struct GroupRequest {
    interface: u32,
    group: libc::sockaddr_storage,
}

/// `struct group_source_req`
#[repr(C)]
struct SourceRequest {
    interface: u32,
    group: libc::sockaddr_storage,
    source: libc::sockaddr_storage,
}

fn set<T>(
    socket: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> Result<(), Errno> {
    let length = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: the value lives through the call, and has this length.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, length) } {
        0 => Ok(()),
        _ => Err(Errno::last()),
    }
}

#[cfg(test)]
mod tests;
