//! GIDs that are IP addresses, as all are on RoCE. An IPv4 address is mapped into IPv6.

use std::net::{IpAddr, Ipv4Addr};

/// The first bytes of a mapped IPv4 address.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// Returns the GID of an IP address.
pub fn of_ip(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// Reads the four bytes of an IPv4 address from the place `at` of a header.
pub fn ipv4_at(bytes: &[u8], at: usize) -> [u8; 16] {
    of_ip(Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]).into())
}

/// Returns whether a GID is a mapped IPv4 address.
pub fn is_ipv4(gid: &[u8; 16]) -> bool {
    gid.starts_with(&MAPPED)
}

/// Returns the first IPv4 address among GIDs.
pub fn first_ipv4<'a>(gids: impl IntoIterator<Item = &'a [u8; 16]>) -> Option<Ipv4Addr> {
    let [.., a, b, c, d] = *gids.into_iter().find(|gid| is_ipv4(gid))?;
    Some(Ipv4Addr::new(a, b, c, d))
}

/// Returns whether a GID is a link-local address, which says nothing without its link (RFC 4291).
pub fn is_link_local(gid: &[u8; 16]) -> bool {
    gid[0] == 0xfe && gid[1] & 0xc0 == 0x80
}

/// Returns the link-local address of an interface with an Ethernet address (RFC 4291).
pub fn link_local([a, b, c, d, e, f]: [u8; 6]) -> [u8; 16] {
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

/// Returns whether a GID is that of a multicast group: of IPv6, or of IPv4, mapped.
pub fn is_multicast(gid: &[u8; 16]) -> bool {
    gid[0] == 0xff || is_ipv4(gid) && gid[12] & 0xf0 == 0xe0
}
