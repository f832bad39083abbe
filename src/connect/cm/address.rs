//! IP addresses in the form of the C library.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{
    AF_INET, AF_INET6, in_addr, in6_addr, sa_family_t, sockaddr_in, sockaddr_in6, sockaddr_storage,
};

/// Returns the address in the form of the C library.
pub(super) fn to_raw(address: SocketAddr) -> sockaddr_storage {
    // SAFETY: all-zero bytes are a value of the plain C structure.
    let mut raw: sockaddr_storage = unsafe { std::mem::zeroed() };
    match address {
        SocketAddr::V4(v4) => {
            let v4 = sockaddr_in {
                sin_family: AF_INET as sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: every address of IPv4 fits into the storage, which is aligned for it.
            unsafe { (&raw mut raw).cast::<sockaddr_in>().write(v4) };
        }
        SocketAddr::V6(v6) => {
            let v6 = sockaddr_in6 {
                sin6_family: AF_INET6 as sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: every address of IPv6 fits into the storage, which is aligned for it.
            unsafe { (&raw mut raw).cast::<sockaddr_in6>().write(v6) };
        }
    }
    raw
}

/// Returns the address in `raw`, if its family is IPv4 or IPv6.
pub(super) fn from_raw(raw: &sockaddr_storage) -> Option<SocketAddr> {
    let at = &raw const *raw;
    match i32::from(raw.ss_family) {
        AF_INET => {
            // SAFETY: the storage is larger than the address and aligned for it, and every bit
            // pattern is a value.
            let v4 = unsafe { at.cast::<sockaddr_in>().read() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        AF_INET6 => {
            // SAFETY: the storage is larger than the address and aligned for it, and every bit
            // pattern is a value.
            let v6 = unsafe { at.cast::<sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
