//! The network interfaces that ports are put on: their addresses, as GIDs, and their MTU.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use super::{listing, socket};
use crate::fabric::Carrier;
use crate::identity::{GidEntry, Identity};
use crate::private::{files, system};
use crate::wire::{RoceVersion, ethernet, gid, mac};

/// Most addresses of a port. Each has two entries of its GID table.
const ADDRESSES: usize = 8;
/// Upper bytes of the node GUID where the interface has no Ethernet address: the model's own.
const OUI: u64 = 0x0050_6b4b << 40;
/// The flag of an IPv6 address that another node has (`IFA_F_DADFAILED`).
pub(super) const DUPLICATE: u32 = 0x08;

/// The addresses of a port's network interface, and of the VLANs on top of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// Addresses of the interface itself.
    pub own: Vec<[u8; 16]>,
    /// The VLANs.
    pub vlans: Vec<Vlan>,
}

impl Addresses {
    /// Returns the entries of RoCE v1 that a port with this Ethernet address gets for them. Each has one of
    /// RoCE v2 beside it.
    pub(crate) fn entries(&self, mac: [u8; 6]) -> impl Iterator<Item = GidEntry> {
        let own = self.own.iter().map(|gid| GidEntry::new(*gid, RoceVersion::V1));
        own.chain(self.vlans.iter().flat_map(move |vlan| vlan.entries(mac)))
    }
}

/// The network interface of a VLAN on top of a port's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vlan {
    /// The number of the VLAN.
    pub id: u16,
    /// The name of the interface.
    pub name: String,
    /// The number of the interface.
    pub index: u32,
    /// The Ethernet address of the interface.
    pub mac: [u8; 6],
    /// Its addresses.
    pub gids: Vec<[u8; 16]>,
}

impl Vlan {
    fn entries(&self, mac: [u8; 6]) -> impl Iterator<Item = GidEntry> {
        let other = (self.mac != mac).then_some(self.mac);
        self.gids.iter().map(move |gid| {
            let entry = GidEntry::new(*gid, RoceVersion::V1).in_vlan(self.id);
            GidEntry { mac: other, ..entry }
        })
    }
}

/// A network interface, or one address of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    /// Its name.
    pub name: String,
    /// Its number in the kernel.
    pub index: u32,
    /// Its Ethernet address; zeros where it has none.
    pub mac: [u8; 6],
    /// Its MTU in bytes.
    pub mtu: u32,
    /// log2 of the largest payload that fits its packets.
    pub log_mtu: u32,
    /// Its addresses: link-local ones first, then IPv4, then other IPv6 addresses.
    pub gids: Vec<[u8; 16]>,
    /// The only address of it that counts, if there is one.
    only: Option<[u8; 16]>,
    /// The VLANs on top of it, with the addresses that they have at first.
    pub vlans: Vec<Vlan>,
    /// The carrier of the port's packets.
    carrier: Carrier,
}

impl Interface {
    /// Finds an interface by its name or by one of its addresses. An address stands for itself
    /// alone, a name for all addresses and, with a carrier that tags packets, for those of its VLANs.
    ///
    /// # Errors
    /// A text that says what is wrong with the interface, and the cure.
    pub(crate) fn find(which: &str, carrier: Carrier) -> Result<Self, String> {
        let all = addresses().map_err(|error| format!("cannot list the interfaces: {error}"))?;
        let wanted: Option<IpAddr> = which.parse().ok();
        let known = match wanted {
            // All of 127.0.0.0/8 is the loopback interface's, though it lists one address.
            Some(ip) => all.iter().find(|known| {
                known.gids.contains(&gid::of_ip(ip)) || ip.is_loopback() && known.name == "lo"
            }),
            None => all.iter().find(|known| known.name == which),
        };
        let Some(known) = known else {
            let have: Vec<&str> = all.iter().map(|known| known.name.as_str()).collect();
            return Err(match wanted {
                Some(_) => format!(
                    "no interface has the address {which}: `ip address add {which}/24 dev NAME`"
                ),
                None => format!(
                    "no interface {which} in this network namespace; it has {}",
                    have.join(", ")
                ),
            });
        };
        let name = &known.name;
        if !known.up {
            return Err(format!("the interface {name} is down: `ip link set {name} up`"));
        }
        let only = wanted.map(gid::of_ip);
        let gids = match only {
            Some(gid) => vec![gid],
            None => known.in_order(),
        };
        if gids.is_empty() {
            return Err(format!(
                "the interface {name} has no IP address: `ip address add 192.0.2.1/24 dev {name}`"
            ));
        }
        let mtu = mtu(name).map_err(|error| format!("the MTU of {name} is unknown: {error}"))?;
        let log_mtu = ethernet::log_mtu(mtu).ok_or_else(|| {
            format!(
                "the MTU of {name} is {mtu} bytes, and RoCE needs {}: `ip link set {name} mtu 1500`",
                256 + ethernet::ROCE_HEADERS
            )
        })?;
        let (name, index, mac) = (name.clone(), known.index, known.mac);
        let vlans = Vec::new();
        let mut found = Self { name, index, mac, mtu, log_mtu, gids, only, vlans, carrier };
        if let Ok(Some(now)) = found.addresses() {
            found.vlans = now.vlans;
        }
        Ok(found)
    }

    /// Returns its addresses of now. `None` if there is no such interface any more.
    ///
    /// # Errors
    /// Those of listing the interfaces.
    pub(crate) fn addresses(&self) -> io::Result<Option<Addresses>> {
        let Some(mut all) = listing::addresses(self.index)? else { return Ok(None) };
        match self.only {
            Some(only) => all.own.retain(|gid| *gid == only),
            None => all.own.sort_by_key(|gid| rank(gid, &self.mac)),
        }
        // The kernel's sockets tag no packet for a port that is not of the VLAN itself.
        if self.only.is_some() || self.carrier == Carrier::Udp {
            all.vlans.clear();
        }
        Ok(Some(all))
    }

    /// Returns the GID that the port has in any case, as Linux gives it: the link-local address made of
    /// the Ethernet address.
    pub(crate) fn default_gid(&self) -> Option<[u8; 16]> {
        let has_mac = self.only.is_none() && self.mac != [0; 6];
        has_mac.then(|| gid::link_local(self.mac))
    }

    /// Returns the addresses that the port has at first, each once: the default GID, then the others.
    fn first_addresses(&self) -> Vec<[u8; 16]> {
        let default = self.default_gid();
        let others = self.gids.iter().copied().filter(|gid| Some(*gid) != default);
        default.into_iter().chain(others).take(ADDRESSES).collect()
    }

    /// Returns the Ethernet address of a port on it. Without an Ethernet address of its own, it is the
    /// one that follows from the first GID.
    pub(crate) fn port_mac(&self) -> [u8; 6] {
        match self.mac {
            [0, 0, 0, 0, 0, 0] => self.gids.first().map_or(self.mac, mac),
            mac => mac,
        }
    }

    /// Returns the identity of a device whose port is on this interface. A smaller MTU that was
    /// configured stays.
    pub(crate) fn applied_to(&self, identity: Identity) -> Identity {
        let [a, b, c, d, e, f] = self.mac;
        let node_guid = if self.mac == [0; 6] {
            let last = self.gids.first().map_or([0; 4], |gid| [gid[12], gid[13], gid[14], gid[15]]);
            OUI | u64::from(u32::from_be_bytes(last))
        } else {
            u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
        };
        Identity {
            node_guid,
            mac: self.port_mac(),
            gids: GidEntry::pairs(&self.first_addresses()),
            log_mtu: Some(identity.log_mtu.map_or(self.log_mtu, |log| log.min(self.log_mtu))),
            ..identity
        }
    }
}

/// Returns the place of an address in the table. Linux puts the link-local address that is made of
/// the Ethernet address first.
fn rank(gid: &[u8; 16], mac: &[u8; 6]) -> u8 {
    match gid {
        gid if gid::is_link_local(gid) => u8::from(*gid != gid::link_local(*mac)),
        gid if gid::is_ipv4(gid) => 2,
        _ => 3,
    }
}

/// Properties of an interface that the kernel reports.
#[derive(Debug)]
struct Known {
    name: String,
    index: u32,
    mac: [u8; 6],
    up: bool,
    gids: Vec<[u8; 16]>,
}

impl Known {
    /// Returns its addresses in the order of the table.
    fn in_order(&self) -> Vec<[u8; 16]> {
        let mut gids = self.gids.clone();
        gids.sort_by_key(|gid| rank(gid, &self.mac));
        gids
    }
}

/// Returns all interfaces of this thread's network namespace.
fn addresses() -> io::Result<Vec<Known>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: the call writes a pointer to a list that it has allocated.
    if unsafe { libc::getifaddrs(&mut first) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut all: Vec<Known> = Vec::new();
    let mut ipv4 = Vec::new();
    let mut next = first;
    // SAFETY: `next` is null or an entry of the list, which is freed only below.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        if entry.ifa_addr.is_null() {
            continue;
        }
        // SAFETY: the name of an entry is a C string.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        // SAFETY: the address is not null, and starts with its family.
        match i32::from(unsafe { (*entry.ifa_addr).sa_family }) {
            libc::AF_PACKET => {
                // SAFETY: an address of this family is a `sockaddr_ll`.
                let link = unsafe { *entry.ifa_addr.cast::<libc::sockaddr_ll>() };
                let mut mac = [0; 6];
                if link.sll_halen == 6 {
                    mac.copy_from_slice(&link.sll_addr[..6]);
                }
                all.push(Known {
                    name,
                    index: link.sll_ifindex as u32,
                    mac,
                    up: entry.ifa_flags & libc::IFF_UP as u32 != 0,
                    gids: Vec::new(),
                });
            }
            libc::AF_INET => {
                // SAFETY: an address of this family is a `sockaddr_in`.
                let ip = unsafe { *entry.ifa_addr.cast::<libc::sockaddr_in>() }.sin_addr.s_addr;
                // The name of an address may have a label behind that of its interface.
                let name = name.split(':').next().unwrap_or_default().to_owned();
                ipv4.push((name, IpAddr::from(ip.to_ne_bytes())));
            }
            _ => {}
        }
    }
    // SAFETY: the list comes from `getifaddrs`, and no reference to it is left.
    unsafe { libc::freeifaddrs(first) };
    for (name, ip) in ipv4 {
        if let Some(known) = all.iter_mut().find(|known| known.name == name) {
            known.gids.push(gid::of_ip(ip));
        }
    }
    // Without IPv6 there is no such file.
    let list = files::text("/proc/thread-self/net/if_inet6").unwrap_or_default();
    let ipv6: BTreeSet<(u32, [u8; 16])> = list.lines().filter_map(ipv6).collect();
    for (index, gid) in ipv6 {
        if let Some(known) = all.iter_mut().find(|known| known.index == index) {
            known.gids.push(gid);
        }
    }
    Ok(all)
}

/// Reads a line of `/proc/net/if_inet6`: address, interface number, prefix length, scope, flags and
/// name. `None` for an address that another node has.
fn ipv6(line: &str) -> Option<(u32, [u8; 16])> {
    let mut words = line.split_whitespace();
    let address = u128::from_str_radix(words.next()?, 16).ok()?;
    let index = u32::from_str_radix(words.next()?, 16).ok()?;
    let flags = u32::from_str_radix(words.nth(2)?, 16).ok()?;
    (flags & DUPLICATE == 0).then_some((index, address.to_be_bytes()))
}

/// Returns the MTU of an interface. `/sys` may show another namespace's interfaces.
fn mtu(name: &str) -> io::Result<u32> {
    let socket = socket::any()?;
    // SAFETY: all zeros is a valid value: an empty name and a zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.iter_mut().zip(name.bytes());
    room.for_each(|(to, from)| *to = from as libc::c_char);
    // SAFETY: the call reads the name and writes the MTU, both in `request`.
    if unsafe { system::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, (&raw mut request).cast()) } < 0
    {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has written this field of the union.
    Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
}

#[cfg(test)]
mod tests;
