//! The GID table of a port, as Linux keeps it (`drivers/infiniband/core/cache.c`).

use std::sync::{Arc, Weak};

use mlx5_sys::ifc::{opcode, roce_addr_layout, set_roce_address_in, set_roce_address_out};

use super::super::tree::table::GidTable;
use super::command::Command;
use crate::card::GidEntry;
use crate::fabric::udp::Addresses;
use crate::wire::{RoceVersion, gid};

/// Entries for the default GID of a RoCE port, one of each version (`gid_table_reserve_default`).
const DEFAULTS: usize = 2;
/// Code of version 2 in an entry of the device (`device.h`).
const VERSION_2: u64 = 2;

/// A place in the table.
enum Slot {
    Free,
    /// Queue pairs and address handles that use the entry hold it.
    Used(Arc<GidEntry>),
    /// The address was removed. The place is free when no object holds the entry any more
    /// (`GID_TABLE_ENTRY_PENDING_DEL`).
    Removed(Weak<GidEntry>),
}

impl Slot {
    fn entry(&self) -> Option<&Arc<GidEntry>> {
        match self {
            Self::Used(entry) => Some(entry),
            Self::Free | Self::Removed(_) => None,
        }
    }

    fn is_free(&self) -> bool {
        match self {
            Self::Free => true,
            Self::Used(_) => false,
            Self::Removed(entry) => entry.strong_count() == 0,
        }
    }
}

/// The table.
pub(crate) struct Gids {
    slots: Vec<Slot>,
    /// Entries at the beginning that only the default GID gets.
    defaults: usize,
    /// The Ethernet address of the port.
    mac: [u8; 6],
    /// The addresses that the entries are of.
    addresses: Addresses,
}

/// A change of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub index: usize,
    /// The entry before the change. It is empty if an entry was added.
    pub before: GidEntry,
    /// The entry of now. It is empty if one was removed.
    pub entry: GidEntry,
}

impl Gids {
    /// Creates a table of `size` entries that begins with those of `table`, of a port with this Ethernet
    /// address. A port whose first GID is `default` has entries for it alone.
    pub fn new(table: &GidTable, size: usize, default: Option<[u8; 16]>, mac: [u8; 6]) -> Self {
        let slot = |index: usize| match table.entry(index) {
            entry if entry.is_empty() => Slot::Free,
            entry => Slot::Used(Arc::new(entry)),
        };
        let defaults = if default.is_some() { DEFAULTS } else { 0 };
        let untagged = |entry: &&GidEntry| entry.vlan.is_none() && !entry.is_empty();
        let mut own: Vec<[u8; 16]> =
            table.entries.iter().skip(defaults).filter(untagged).map(|entry| entry.gid).collect();
        own.dedup();
        let addresses = Addresses { own, vlans: table.vlans.clone() };
        Self { slots: (0..size).map(slot).collect(), defaults, mac, addresses }
    }

    /// Returns the addresses that the entries are of.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Returns the entries of VLANs, as changes from an empty table.
    pub fn of_vlans(&self) -> Vec<Change> {
        let added = |(index, entry): (usize, GidEntry)| {
            let before = GidEntry::default();
            entry.vlan.is_some().then_some(Change { index, before, entry })
        };
        self.entries().into_iter().enumerate().filter_map(added).collect()
    }

    /// Returns an entry in use.
    pub fn get(&self, index: usize) -> Option<&Arc<GidEntry>> {
        self.slots.get(index)?.entry()
    }

    /// Returns the table as it is now.
    pub fn table(&self) -> GidTable {
        GidTable { entries: self.entries(), vlans: self.addresses.vlans.clone() }
    }

    fn entries(&self) -> Vec<GidEntry> {
        self.slots
            .iter()
            .map(|slot| slot.entry().map_or_else(GidEntry::default, |it| **it))
            .collect()
    }

    /// Makes the table that of a port with this default GID and these addresses. Removes the entries of
    /// other addresses, then adds each new address in the first free places. An address that finds none
    /// is left out, as by Linux.
    pub fn follow(&mut self, default: Option<[u8; 16]>, addresses: Addresses) -> Vec<Change> {
        let wanted: Vec<GidEntry> = addresses.entries(self.mac).collect();
        let mut changes = self.remove(default, &wanted);
        let default = default.filter(|_| self.defaults > 0);
        if let Some(gid) = default {
            let entry = GidEntry::new(gid, RoceVersion::V1);
            self.add(entry, 0..self.defaults, &mut changes);
        }
        // Linux refuses zero (`rdma_is_zero_gid`).
        for entry in wanted.iter().filter(|it| !is_default(default, it) && !it.is_empty()) {
            self.add(*entry, self.defaults..self.slots.len(), &mut changes);
        }
        self.addresses = addresses;
        changes
    }

    fn remove(&mut self, default: Option<[u8; 16]>, wanted: &[GidEntry]) -> Vec<Change> {
        let mut changes = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Slot::Used(entry) = slot else { continue };
            let first = GidEntry { version: RoceVersion::V1, ..**entry };
            let stays = match index < self.defaults {
                true => is_default(default, entry),
                false => !is_default(default, entry) && wanted.contains(&first),
            };
            if !stays {
                let before = **entry;
                *slot = Slot::Removed(Arc::downgrade(entry));
                changes.push(Change { index, before, entry: GidEntry::default() });
            }
        }
        changes
    }

    /// Adds an entry in both versions, as far as the table has none yet, at places of a range.
    fn add(
        &mut self,
        entry: GidEntry,
        mut places: std::ops::Range<usize>,
        changes: &mut Vec<Change>,
    ) {
        for entry in entry.both() {
            if self.slots.iter().filter_map(Slot::entry).any(|known| **known == entry) {
                continue;
            }
            let Some(index) = places.find(|index| self.slots[*index].is_free()) else {
                tracing::warn!(gid = ?entry.gid, "the GID table is full, address left out");
                return;
            };
            self.slots[index] = Slot::Used(Arc::new(entry));
            changes.push(Change { index, before: GidEntry::default(), entry });
        }
    }
}

/// Returns whether an entry is one of the default GID, which is of the port's own interface.
fn is_default(default: Option<[u8; 16]>, entry: &GidEntry) -> bool {
    default == Some(entry.gid) && entry.vlan.is_none()
}

impl Change {
    /// Returns the command that writes the entry to the device, as mlx5_ib gives it (`set_roce_addr`).
    pub fn command(&self, mac: [u8; 6]) -> Command {
        let (size, reply) = (set_roce_address_in::SIZE, set_roce_address_out::SIZE);
        let mut command = Command::new(opcode::SET_ROCE_ADDRESS, size, reply);
        command.set(set_roce_address_in::ROCE_ADDRESS_INDEX, self.index as u64);
        if self.entry.is_empty() {
            return command;
        }
        let address = &mut command.bytes()[set_roce_address_in::ROCE_ADDRESS.bytes()];
        address[roce_addr_layout::SOURCE_L3_ADDRESS.bytes()].copy_from_slice(&self.entry.gid);
        let [a, b, c, d, e, f] = self.entry.mac.unwrap_or(mac);
        for (field, value) in [
            (roce_addr_layout::SOURCE_MAC_47_32, u64::from(u16::from_be_bytes([a, b]))),
            (roce_addr_layout::SOURCE_MAC_31_0, u64::from(u32::from_be_bytes([c, d, e, f]))),
        ] {
            field.set(address, value);
        }
        if let Some(vlan) = self.entry.vlan {
            roce_addr_layout::VLAN_VALID.set(address, 1);
            roce_addr_layout::VLAN_ID.set(address, vlan.into());
        }
        if self.entry.version == RoceVersion::V2 {
            roce_addr_layout::ROCE_VERSION.set(address, VERSION_2);
            // Type 0 is IPv4, 1 is IPv6.
            roce_addr_layout::ROCE_L3_TYPE.set(address, (!gid::is_ipv4(&self.entry.gid)).into());
        }
        command
    }
}

#[cfg(test)]
mod tests;
