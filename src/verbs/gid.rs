//! A port's own table of GIDs.

use std::fmt;

use mlx5_sys::verbs::{ibv_gid_entry, ibv_query_gid_ex};

use super::{Context, Zeroed};
use crate::error::{Error, Result, check};
use crate::ib::{Gid, GidType};

/// An entry of a port's GID table.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// let entry = context.gids(1)?.into_iter().next().ok_or("no GID")?;
/// assert_eq!(context.gid(1, entry.index)?.gid, entry.gid);
/// assert!(!entry.gid.is_zero());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_gid_entry")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidEntry {
    /// The port.
    pub port: u8,
    /// Its index in the table, which is what a QP's address names.
    pub index: u32,
    /// The address.
    pub gid: Gid,
    /// The network protocol of packets from it.
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
    /// Returns entry `index` of the GID table of port `port`.
    ///
    /// # Errors
    /// [`Error::GidEmpty`] with the entries that are in use, [`Error::GidIndexRange`],
    /// [`Error::NoSuchPort`], [`Error::Call`].
    #[doc(alias("ibv_query_gid", "ibv_query_gid_ex"))]
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

    /// Returns the entries in use of the GID table of port `port`. One call into the kernel for
    /// each.
    ///
    /// # Errors
    /// [`Error::NoSuchPort`], [`Error::Call`].
    #[doc(alias = "ibv_query_gid_table")]
    pub fn gids(&self, port: u8) -> Result<Vec<GidEntry>> {
        let length = self.port(port)?.gid_table_length;
        (0..length).filter_map(|index| self.gid_entry(port, index).transpose()).collect()
    }

    /// Returns the first entry of that type, preferably with an IPv4 address, which routers between
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
