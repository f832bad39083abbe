//! Flow tables: the rules that direct packets to queues.

use std::collections::BTreeMap;
use std::ops::Range;

use mlx5_sys::ifc::fte_match_param;

use super::Table;

/// Bytes of a packet's headers for comparison.
pub const MATCH: usize = fte_match_param::SIZE;

/// Types of tables (`mlx5_ifc.h`, `FS_FT_*`): received packets of the port, and the sniffers'
/// copies of received and sent packets.
pub const NIC_RX: u8 = 0;
/// Type of the sniffers' tables for received packets: see [`NIC_RX`].
pub const SNIFFER_RX: u8 = 5;
/// Type of the sniffers' tables for sent packets: see [`NIC_RX`].
pub const SNIFFER_TX: u8 = 6;

/// log2 of the most destinations of an entry.
pub const LOG_MAX_DESTINATIONS: u32 = 8;
/// Tables that one packet may visit: a few times the number of levels. Entries may lead packets to
/// the same table on several ways, so the number of ways has no bound.
const MAX_LOOKUPS: usize = 512;
/// TIRs that may receive one packet.
const MAX_RECEIVERS: usize = 1024;

/// The destination of packets that match an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Another table.
    Table(u32),
    /// A TIR.
    Tir(u32),
}

/// An entry of a table.
#[derive(Clone, Debug)]
pub struct FlowEntry {
    /// Header values to match, in the bits set in the group's criteria.
    pub value: Box<[u8; MATCH]>,
    /// The flow's tag in CQEs.
    pub tag: u32,
    /// Destinations of matching packets; empty if they are dropped.
    pub destinations: Vec<Destination>,
    /// Counters of matching packets.
    pub counters: Vec<u32>,
}

/// The receivers and counters that the tables give a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classified {
    /// TIRs that receive it, each with the flow's tag.
    pub tirs: Vec<(u32, u32)>,
    /// Counters that count it.
    pub counters: Vec<u32>,
}

/// Entries of a table that compare the same bits.
#[derive(Clone, Debug)]
pub struct FlowGroup {
    /// First index of its entries, and last.
    pub range: (u32, u32),
    /// The bits to compare.
    pub criteria: Box<[u8; MATCH]>,
    /// Its entries, by index.
    pub entries: BTreeMap<u32, FlowEntry>,
}

/// A table.
#[derive(Clone, Debug)]
pub struct FlowTable {
    /// User context that created it.
    pub uid: u16,
    /// Its type (`mlx5_ifc.h`, `table_type`).
    pub kind: u8,
    /// Its level: packets go to greater levels only.
    pub level: u8,
    /// Maximum number of entries.
    pub size: u32,
    /// The table for packets that match no entry.
    pub miss: Option<u32>,
    /// Groups by number.
    pub groups: BTreeMap<u32, FlowGroup>,
    /// Number of the next group.
    pub next_group: u32,
}

/// Every table of a device.
#[derive(Debug)]
pub struct Steering {
    /// Tables by number.
    pub tables: Table<FlowTable>,
    /// The first table for packets, by type of table.
    pub roots: BTreeMap<u8, u32>,
}

impl Default for Steering {
    fn default() -> Self {
        Self { tables: Table::new(0x20, 0x00ff_ffff), roots: BTreeMap::new() }
    }
}

impl Steering {
    /// Returns receivers and counters of a packet with these headers, from a type's root on. In each
    /// table the first matching entry decides. A packet that visits too many tables, or that too many
    /// TIRs would receive, is dropped and not counted.
    pub fn classify(&self, kind: u8, headers: &[u8; MATCH]) -> Classified {
        self.walk(kind, headers).unwrap_or_else(|| {
            tracing::debug!(kind, "a packet visits too many tables or TIRs");
            Classified::default()
        })
    }

    fn walk(&self, kind: u8, headers: &[u8; MATCH]) -> Option<Classified> {
        let mut classified = Classified::default();
        let mut ways: Vec<(u32, u32)> =
            self.roots.get(&kind).map(|root| (*root, 0)).into_iter().collect();
        let mut lookups = 0;
        while let Some((number, tag)) = ways.pop() {
            lookups += 1;
            if lookups > MAX_LOOKUPS {
                return None;
            }
            let Some(table) = self.tables.get(number) else { continue };
            let found = table
                .groups
                .values()
                .flat_map(|group| group.entries.iter().map(move |entry| (group, entry)))
                .filter(|(group, (_, entry))| matches(&group.criteria, &entry.value, headers))
                .min_by_key(|(_, (index, _))| **index);
            match found {
                Some((_, (_, entry))) => {
                    let tag = if entry.tag == 0 { tag } else { entry.tag };
                    classified.counters.extend_from_slice(&entry.counters);
                    for destination in &entry.destinations {
                        match destination {
                            Destination::Tir(_) if classified.tirs.len() == MAX_RECEIVERS => {
                                return None;
                            }
                            Destination::Tir(tir) => classified.tirs.push((*tir, tag)),
                            Destination::Table(table) => ways.push((*table, tag)),
                        }
                    }
                }
                None => ways.extend(table.miss.map(|miss| (miss, tag))),
            }
        }
        Some(classified)
    }

    /// Returns whether any entry leads to a TIR.
    pub fn uses_tir(&self, tir: u32) -> bool {
        self.entries().any(|entry| entry.destinations.contains(&Destination::Tir(tir)))
    }

    /// Returns whether any entry names one of these counters.
    pub fn uses_counter(&self, counters: &Range<u32>) -> bool {
        self.entries().any(|entry| entry.counters.iter().any(|counter| counters.contains(counter)))
    }

    /// Returns whether packets reach a table, by an entry or after a miss.
    pub fn uses_table(&self, number: u32) -> bool {
        self.tables.iter().any(|(_, table)| table.miss == Some(number))
            || self.entries().any(|entry| entry.destinations.contains(&Destination::Table(number)))
    }

    /// Returns whether there is no entry at all.
    pub fn is_empty(&self) -> bool {
        self.entries().next().is_none()
    }

    fn entries(&self) -> impl Iterator<Item = &FlowEntry> {
        self.tables
            .iter()
            .flat_map(|(_, table)| table.groups.values())
            .flat_map(|group| group.entries.values())
    }
}

fn matches(criteria: &[u8; MATCH], value: &[u8; MATCH], headers: &[u8; MATCH]) -> bool {
    criteria.iter().zip(value).zip(headers).all(|((mask, value), met)| (value ^ met) & mask == 0)
}

#[cfg(test)]
mod tests;
