//! A port's GID table, and the network interfaces behind its entries.

use super::netdev::Netdev;
use crate::card::GidEntry;
use crate::fabric::udp::Vlan;

/// A port's GID table at a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct GidTable {
    /// The entries by index.
    pub entries: Vec<GidEntry>,
    /// The VLANs on top of the port's interface.
    pub vlans: Vec<Vlan>,
}

impl GidTable {
    /// Returns an entry, which is empty where the table has none.
    pub fn entry(&self, index: usize) -> GidEntry {
        self.entries.get(index).copied().unwrap_or_default()
    }
}

/// Returns the name and the number of the interface that has the address of an entry. `own` is the port's.
pub(crate) fn interface_of<'a>(
    entry: &GidEntry,
    own: Option<&'a Netdev>,
    vlans: &'a [Vlan],
) -> Option<(&'a str, u32)> {
    match entry.vlan {
        None => own.map(|own| (own.name.as_str(), own.index)),
        Some(id) => {
            let vlan = vlans.iter().find(|vlan| vlan.id == id)?;
            Some((vlan.name.as_str(), vlan.index))
        }
    }
}
