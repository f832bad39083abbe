//! GIDs: the addresses of ports, and the table that a port keeps of its own.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use mlx5_sys::verbs::{ibv_gid_entry, ibv_query_gid_ex};

use super::error::check;
use super::{Context, Error, Guid, Result};
use crate::verbs::Zeroed;

/// A GID, 128 bits in network order. On InfiniBand a subnet prefix and a port's GUID; on RoCE an
/// IPv6 address, or an IPv4 address mapped into one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// Whether all bits are zero: no address.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }

    /// The upper half: the subnet prefix on InfiniBand.
    pub fn subnet_prefix(self) -> u64 {
        (u128::from_be_bytes(self.0) >> 64) as u64
    }

    /// The lower half: the port's GUID on InfiniBand.
    pub fn interface_id(self) -> Guid {
        Guid(u128::from_be_bytes(self.0) as u64)
    }

    /// The IPv4 address mapped into it, if one is.
    pub fn ipv4(self) -> Option<Ipv4Addr> {
        Ipv6Addr::from(self.0).to_ipv4_mapped()
    }

    /// Whether it is a link-local address (fe80::/10), which does not leave the subnet.
    pub fn is_link_local(self) -> bool {
        self.0[0] == 0xfe && self.0[1] & 0xc0 == 0x80
    }

    /// Whether it is a multicast group: of IPv6 (ff00::/8), or of IPv4 (224.0.0.0/4), mapped.
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

/// What packets with this source GID look like on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GidType {
    /// InfiniBand.
    InfiniBand,
    /// RoCE version 1: an Ethernet type of its own, not routable.
    RoceV1,
    /// RoCE version 2: UDP port 4791.
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

/// An entry of a port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidEntry {
    /// The port.
    pub port: u8,
    /// Its index in the table, which is what a QP's address names.
    pub index: u32,
    /// The address.
    pub gid: Gid,
    /// What packets from it look like.
    pub kind: GidType,
    /// Index of the network device behind it; 0 on InfiniBand.
    pub interface: u32,
}

impl fmt::Display for GidEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.index, self.gid, self.kind)
    }
}

impl Context {
    /// Entry `index` of the GID table of port `port`.
    ///
    /// # Errors
    /// [`Error::GidEmpty`] with the entries that are in use, [`Error::GidIndexRange`],
    /// [`Error::NoSuchPort`], [`Error::Call`].
    pub fn gid(&self, port: u8, index: u32) -> Result<GidEntry> {
        let length = self.port(port)?.gid_table_length;
        if index >= length {
            let device = self.name();
            return Err(Error::GidIndexRange { device, port, index, length });
        }
        match self.gid_entry(port, index)? {
            Some(entry) => Ok(entry),
            None => Err(Error::GidEmpty {
                device: self.name(),
                port,
                index,
                valid: self.gids(port)?.iter().map(|entry| entry.index).collect(),
            }),
        }
    }

    /// The entries in use of the GID table of port `port`. One call into the kernel for each.
    ///
    /// # Errors
    /// [`Error::NoSuchPort`], [`Error::Call`].
    pub fn gids(&self, port: u8) -> Result<Vec<GidEntry>> {
        let length = self.port(port)?.gid_table_length;
        (0..length).filter_map(|index| self.gid_entry(port, index).transpose()).collect()
    }

    /// The first entry of that type, with an IPv4 address preferred, which routers between
    /// subnets and most tools expect.
    ///
    /// # Errors
    /// [`Error::NoGidOfType`] with the entries that are in use, [`Error::NoSuchPort`],
    /// [`Error::Call`].
    pub fn find_gid(&self, port: u8, kind: GidType) -> Result<GidEntry> {
        let entries = self.gids(port)?;
        let of_kind = || entries.iter().filter(|entry| entry.kind == kind);
        let found = of_kind().find(|entry| entry.gid.ipv4().is_some()).or_else(|| of_kind().next());
        found.copied().ok_or_else(|| Error::NoGidOfType {
            device: self.name(),
            port,
            wanted: kind,
            present: entries.iter().map(GidEntry::to_string).collect(),
        })
    }

    fn gid_entry(&self, port: u8, index: u32) -> Result<Option<GidEntry>> {
        let mut raw = ibv_gid_entry::zeroed();
        // SAFETY: the context is open, and `raw` lives through the call.
        let result =
            unsafe { ibv_query_gid_ex(self.as_raw().as_ptr(), port.into(), index, &mut raw, 0) };
        if let Err(error) = check("ibv_query_gid_ex", result) {
            return match error.errno().map(|errno| errno.0) {
                Some(libc::ENODATA) => Ok(None),
                _ => Err(error),
            };
        }
        // SAFETY: every bit pattern is a valid array of bytes.
        let gid = Gid(unsafe { raw.gid.raw });
        if gid.is_zero() {
            // A kernel without the entry query reports empty entries as zeroes.
            return Ok(None);
        }
        let kind = match raw.gid_type {
            1 => GidType::RoceV1,
            2 => GidType::RoceV2,
            _ => GidType::InfiniBand,
        };
        Ok(Some(GidEntry { port, index, gid, kind, interface: raw.ndev_ifindex }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gids_print_and_parse_as_addresses() {
        let gid: Gid = "192.0.2.7".parse().unwrap();
        assert_eq!(gid.to_string(), "::ffff:192.0.2.7");
        assert_eq!(gid.ipv4(), Some(Ipv4Addr::new(192, 0, 2, 7)));
        let gid: Gid = "fe80::c42:a103:65:d8e1".parse().unwrap();
        assert_eq!(gid.subnet_prefix(), 0xfe80 << 48);
        assert_eq!(gid.interface_id(), Guid(0x0c42_a103_0065_d8e1));
        assert!(gid.is_link_local() && !gid.is_multicast() && gid.ipv4().is_none());
        assert!(Gid::default().is_zero());
    }
}
