//! Network interfaces behind the GIDs of a port of Ethernet.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use super::{names, number, text};

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// Whether it is up and has a link.
    pub up: bool,
    /// Its MTU in bytes, from which the RoCE MTU follows: the largest of 256 … 4096 that is below
    /// it less headers.
    pub mtu: Option<u32>,
    /// Its Ethernet address, as the kernel prints it.
    pub mac: Option<String>,
    /// Its IP addresses.
    pub addresses: Vec<IpAddr>,
}

impl Interface {
    /// The interface of that name, in this network namespace; `None` if there is none.
    pub fn named(name: &str) -> Option<Interface> {
        let folder = format!("/sys/class/net/{name}");
        Some(Interface {
            index: number(format!("{folder}/ifindex"))?,
            // What has no carrier to lose, such as `lo`, is unknown while it is up.
            up: text(format!("{folder}/operstate"))
                .is_some_and(|state| matches!(state.as_str(), "up" | "unknown")),
            mtu: number(format!("{folder}/mtu")),
            mac: text(format!("{folder}/address")),
            addresses: addresses(name),
            name: name.to_owned(),
        })
    }

    /// The interface of that number.
    pub fn numbered(index: u32) -> Option<Interface> {
        let mut name = [0; libc::IF_NAMESIZE];
        // SAFETY: the buffer has the size that the function writes at most.
        let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr()) };
        if found.is_null() {
            return None;
        }
        // SAFETY: the function has written a string that ends with a zero.
        Interface::named(unsafe { CStr::from_ptr(name.as_ptr()) }.to_str().ok()?)
    }

    /// The names of the network interfaces of a device whose folder of the class `infiniband` is
    /// `device`, each with the number of its port, from 1. Those in other network namespaces are not
    /// among them.
    pub fn of_device(device: &Path) -> Vec<(u8, String)> {
        let folder = device.join("device/net");
        let port = |name: &String| number::<u8>(folder.join(name).join("dev_port"))?.checked_add(1);
        let named = names(&folder).into_iter().filter_map(|name| Some((port(&name)?, name)));
        named.collect()
    }

    /// The network interface behind entry `index` of the GID table of port `port` of the device
    /// whose folder of the class `infiniband` is `device`; for kernels that do not say its number.
    pub fn of_gid(device: &Path, port: u8, index: u32) -> Option<Interface> {
        Interface::named(&text(device.join(format!("ports/{port}/gid_attrs/ndevs/{index}")))?)
    }
}

/// The IP addresses of an interface.
fn addresses(name: &str) -> Vec<IpAddr> {
    let mut list = std::ptr::null_mut();
    // SAFETY: `list` is a live pointer.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: the list is whole until it is freed below, and ends with a null pointer.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: the name of an entry ends with a zero.
        let is = unsafe { CStr::from_ptr(entry.ifa_name) }.to_bytes() == name.as_bytes();
        if !is || entry.ifa_addr.is_null() {
            continue;
        }
        // SAFETY: an address that is there has a family, which says what it is; neither structure
        // needs more alignment than the C library gives.
        unsafe {
            match i32::from((*entry.ifa_addr).sa_family) {
                libc::AF_INET => {
                    let address = &*entry.ifa_addr.cast::<libc::sockaddr_in>();
                    let bytes = address.sin_addr.s_addr.to_ne_bytes();
                    found.push(IpAddr::V4(Ipv4Addr::from(bytes)));
                }
                libc::AF_INET6 => {
                    let address = &*entry.ifa_addr.cast::<libc::sockaddr_in6>();
                    found.push(IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr)));
                }
                _ => {}
            }
        }
    }
    // SAFETY: it came from getifaddrs, and is freed once.
    unsafe { libc::freeifaddrs(list) };
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_read() {
        let lo = Interface::named("lo").unwrap();
        assert_eq!(Interface::numbered(lo.index), Some(lo.clone()));
        assert!(lo.mtu.is_some_and(|mtu| mtu >= 1500), "{lo:?}");
        // A namespace that was just made has it without an address.
        assert!(!lo.up || lo.addresses.contains(&Ipv4Addr::LOCALHOST.into()), "{lo:?}");
        assert_eq!(Interface::named("none-such"), None);
        assert_eq!(Interface::numbered(u32::MAX), None);
    }
}
