//! Flow tables: the rules that direct packets to queues.

use std::collections::BTreeMap;

use mlx5_sys::ifc::fte_match_param;

use super::Table;

/// Bytes that a packet's headers are compared as.
pub const MATCH: usize = fte_match_param::SIZE;

/// Types of tables (`mlx5_ifc.h`, `FS_FT_*`): what a port receives, and what sniffers see of what is
/// received and of what is sent.
pub const NIC_RX: u8 = 0;
/// See [`NIC_RX`].
pub const SNIFFER_RX: u8 = 5;
/// See [`NIC_RX`].
pub const SNIFFER_TX: u8 = 6;

/// Where a packet goes that an entry matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// On to another table.
    Table(u32),
    /// To a TIR.
    Tir(u32),
}

/// An entry of a table.
#[derive(Clone, Debug)]
pub struct FlowEntry {
    /// What the headers have to be, where the group's criteria have ones.
    pub value: Box<[u8; MATCH]>,
    /// What CQEs call the flow.
    pub tag: u32,
    /// Where matching packets go; nowhere if they are dropped.
    pub destinations: Vec<Destination>,
}

/// Entries of a table that look at the same bits.
#[derive(Clone, Debug)]
pub struct FlowGroup {
    /// First index of its entries, and last.
    pub range: (u32, u32),
    /// The bits that are looked at.
    pub criteria: Box<[u8; MATCH]>,
    /// Its entries, by index.
    pub entries: BTreeMap<u32, FlowEntry>,
}

/// A table.
#[derive(Clone, Debug)]
pub struct FlowTable {
    /// User context that made it.
    pub uid: u16,
    /// Its type (`mlx5_ifc.h`, `table_type`).
    pub kind: u8,
    /// Its level: packets go to greater levels only.
    pub level: u8,
    /// Entries that it may have.
    pub size: u32,
    /// The table where packets go that no entry matches.
    pub miss: Option<u32>,
    /// Groups by number.
    pub groups: BTreeMap<u32, FlowGroup>,
    /// Number of the next group.
    pub next_group: u32,
}

/// Every table of a card.
#[derive(Debug)]
pub struct Steering {
    /// Tables by number.
    pub tables: Table<FlowTable>,
    /// Where packets start, by type of table.
    pub roots: BTreeMap<u8, u32>,
}

impl Default for Steering {
    fn default() -> Self {
        Self { tables: Table::new(0x20, 0x00ff_ffff), roots: BTreeMap::new() }
    }
}

impl Steering {
    /// What becomes of a packet with these headers that starts at the root of a type: TIRs, and
    /// what the flow is called. Of a table's entries, the first that matches counts.
    pub fn classify(&self, kind: u8, headers: &[u8; MATCH]) -> Vec<(u32, u32)> {
        let mut tirs = Vec::new();
        let mut ways: Vec<(u32, u32)> =
            self.roots.get(&kind).map(|root| (*root, 0)).into_iter().collect();
        while let Some((number, tag)) = ways.pop() {
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
                    for destination in &entry.destinations {
                        match destination {
                            Destination::Tir(tir) => tirs.push((*tir, tag)),
                            // Levels rise, so this ends.
                            Destination::Table(table) => ways.push((*table, tag)),
                        }
                    }
                }
                None => ways.extend(table.miss.map(|miss| (miss, tag))),
            }
        }
        tirs
    }

    /// Whether any entry leads to a TIR.
    pub fn uses_tir(&self, tir: u32) -> bool {
        self.entries().any(|entry| entry.destinations.contains(&Destination::Tir(tir)))
    }

    /// Whether packets reach a table by an entry, or as what follows a miss.
    pub fn uses_table(&self, number: u32) -> bool {
        self.tables.iter().any(|(_, table)| table.miss == Some(number))
            || self.entries().any(|entry| entry.destinations.contains(&Destination::Table(number)))
    }

    /// Whether there is no entry at all.
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
