//! Addresses of ports.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A GID, 128 bits in network order. On InfiniBand a subnet prefix and a port's GUID; on RoCE an
/// IPv6 address, or an IPv4 address mapped into one.
///
/// ```
/// use std::net::Ipv4Addr;
/// use mlx5::ib::Gid;
///
/// // The GID of a RoCE port with an IPv4 address.
/// let gid: Gid = "::ffff:192.0.2.1".parse()?;
/// assert_eq!(gid.ipv4(), Some(Ipv4Addr::new(192, 0, 2, 1)));
/// assert!(Gid([0; 16]).is_zero());
/// assert!("fe80::1".parse::<Gid>()?.is_link_local());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_gid")]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// Returns whether all bits are zero: no address.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }

    /// Returns the upper half: the subnet prefix on InfiniBand.
    pub fn subnet_prefix(self) -> u64 {
        (u128::from_be_bytes(self.0) >> 64) as u64
    }

    /// Returns the lower half: the port's GUID on InfiniBand.
    pub fn interface_id(self) -> Guid {
        Guid(u128::from_be_bytes(self.0) as u64)
    }

    /// Returns the IPv4 address mapped into it, if one is.
    pub fn ipv4(self) -> Option<Ipv4Addr> {
        Ipv6Addr::from(self.0).to_ipv4_mapped()
    }

    /// Returns whether it is a link-local address (fe80::/10), which does not leave the subnet.
    pub fn is_link_local(self) -> bool {
        self.0[0] == 0xfe && self.0[1] & 0xc0 == 0x80
    }

    /// Returns whether it is a multicast group: of IPv6 (ff00::/8), or of IPv4 (224.0.0.0/4),
    /// mapped.
    pub fn is_multicast(self) -> bool {
        self.0[0] == 0xff || self.ipv4().is_some_and(|v4| v4.is_multicast())
    }
}

impl From<IpAddr> for Gid {
    fn from(address: IpAddr) -> Gid {
        match address {
            IpAddr::V4(v4) => Gid(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Gid(v6.octets()),
        }
    }
}

impl FromStr for Gid {
    type Err = std::net::AddrParseError;

    /// From an IPv6 or IPv4 address.
    fn from_str(text: &str) -> Result<Gid, Self::Err> {
        Ok(IpAddr::from_str(text)?.into())
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Ipv6Addr::from(self.0), f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A 64-bit EUI: of a node, a port or a system image.
///
/// ```
/// use mlx5::ib::{Gid, Guid};
///
/// let guid = Guid(0x0002_c903_00ab_cdef);
/// assert_eq!(guid.to_string(), "0002:c903:00ab:cdef");
/// // The lower half of the first GID of an InfiniBand port.
/// assert_eq!("fe80::2:c903:ab:cdef".parse::<Gid>()?.interface_id(), guid);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(pub u64);

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = [48, 32, 16, 0].map(|shift| (self.0 >> shift) & 0xffff);
        write!(f, "{a:04x}:{b:04x}:{c:04x}:{d:04x}")
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The network protocol of packets with this source GID.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::ib::GidType;
///
/// let kind = if context.port(1)?.is_ethernet() { GidType::RoceV2 } else { GidType::InfiniBand };
/// assert_eq!(context.find_gid(1, kind)?.kind, kind);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_gid_type")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GidType {
    /// InfiniBand.
    #[doc(alias = "IBV_GID_TYPE_IB")]
    InfiniBand,
    /// RoCE version 1: an Ethernet type of its own, not routable.
    #[doc(alias = "IBV_GID_TYPE_ROCE_V1")]
    RoceV1,
    /// RoCE version 2: UDP port 4791.
    #[doc(alias = "IBV_GID_TYPE_ROCE_V2")]
    RoceV2,
}

impl fmt::Display for GidType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GidType::InfiniBand => "IB",
            GidType::RoceV1 => "RoCE v1",
            GidType::RoceV2 => "RoCE v2",
        })
    }
}

#[cfg(test)]
mod tests;
