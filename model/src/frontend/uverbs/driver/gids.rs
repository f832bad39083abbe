//! The GID table of a port, as Linux keeps it (`drivers/infiniband/core/cache.c`).

use std::sync::{Arc, Weak};

use mlx5_sys::ifc::{opcode, roce_addr_layout, set_roce_address_in, set_roce_address_out};

use super::command::Command;
use crate::card::GidEntry;
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
}

/// A change of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub index: usize,
    /// What it has become; empty if it was removed.
    pub entry: GidEntry,
}

impl Gids {
    /// Creates a table of `size` entries that begins with `entries`. A port whose first GID is `default`
    /// has entries for it alone.
    pub fn new(entries: &[GidEntry], size: usize, default: Option<[u8; 16]>) -> Self {
        let slot = |index: usize| match entries.get(index) {
            Some(entry) if !entry.is_empty() => Slot::Used(Arc::new(*entry)),
            _ => Slot::Free,
        };
        let defaults = if default.is_some() { DEFAULTS } else { 0 };
        Self { slots: (0..size).map(slot).collect(), defaults }
    }

    /// Returns an entry in use.
    pub fn get(&self, index: usize) -> Option<&Arc<GidEntry>> {
        self.slots.get(index)?.entry()
    }

    /// Returns all entries by index.
    pub fn entries(&self) -> Vec<GidEntry> {
        self.slots
            .iter()
            .map(|slot| slot.entry().map_or_else(GidEntry::default, |it| **it))
            .collect()
    }

    /// Makes the table that of a port with this default GID and these addresses. Removes the entries of
    /// other addresses, then adds each new address in the first free places. An address that finds none
    /// is left out, as by Linux.
    pub fn follow(&mut self, default: Option<[u8; 16]>, addresses: &[[u8; 16]]) -> Vec<Change> {
        let mut changes = self.remove(default, addresses);
        let default = default.filter(|_| self.defaults > 0);
        if let Some(gid) = default {
            self.add(gid, 0..self.defaults, &mut changes);
        }
        // Linux refuses zero (`rdma_is_zero_gid`).
        let others = addresses.iter().filter(|gid| Some(**gid) != default && **gid != [0; 16]);
        for gid in others {
            self.add(*gid, self.defaults..self.slots.len(), &mut changes);
        }
        changes
    }

    fn remove(&mut self, default: Option<[u8; 16]>, addresses: &[[u8; 16]]) -> Vec<Change> {
        let mut changes = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Slot::Used(entry) = slot else { continue };
            let stays = match index < self.defaults {
                true => default == Some(entry.gid),
                false => default != Some(entry.gid) && addresses.contains(&entry.gid),
            };
            if !stays {
                *slot = Slot::Removed(Arc::downgrade(entry));
                changes.push(Change { index, entry: GidEntry::default() });
            }
        }
        changes
    }

    /// Adds the entries of an address that has none yet, at places of a range.
    fn add(
        &mut self,
        gid: [u8; 16],
        mut places: std::ops::Range<usize>,
        changes: &mut Vec<Change>,
    ) {
        for version in [RoceVersion::V1, RoceVersion::V2] {
            let entry = GidEntry::new(gid, version);
            if self.slots.iter().filter_map(Slot::entry).any(|known| **known == entry) {
                continue;
            }
            let Some(index) = places.find(|index| self.slots[*index].is_free()) else {
                tracing::warn!(?gid, "the GID table is full, address left out");
                return;
            };
            self.slots[index] = Slot::Used(Arc::new(entry));
            changes.push(Change { index, entry });
        }
    }
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
        let [a, b, c, d, e, f] = mac;
        for (field, value) in [
            (roce_addr_layout::SOURCE_MAC_47_32, u64::from(u16::from_be_bytes([a, b]))),
            (roce_addr_layout::SOURCE_MAC_31_0, u64::from(u32::from_be_bytes([c, d, e, f]))),
        ] {
            field.set(address, value);
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
