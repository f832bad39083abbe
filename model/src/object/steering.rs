//! Flow tables: the rules that direct packets to queues.

mod actions;

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use mlx5_sys::ifc::fte_match_param;

use super::Table;

pub use actions::{
    AddedTag, Decapsulation, Edits, ModifyHeader, PacketChanges, Reformat, Reformatting,
};

/// Bytes of a packet's headers for comparison.
pub const MATCH: usize = fte_match_param::SIZE;

/// Types of tables (`mlx5_ifc.h`, `FS_FT_*`): received packets of the port, sent ones, and the sniffers'
/// copies of both.
pub const NIC_RX: u8 = 0;
/// Type of the tables for sent packets: see [`NIC_RX`].
pub const NIC_TX: u8 = 1;
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
    /// The port, by which sent packets leave.
    Port,
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
    /// Changes of matching packets.
    pub changes: PacketChanges,
}

/// A packet on its way through tables.
pub trait SteeredPacket: Sized {
    /// Its header fields, as entries compare them.
    fn fields(&self) -> &[u8; MATCH];
    /// Its length in bytes.
    fn length(&self) -> usize;
    /// The packet with an entry's changes; `None` if they cannot be made.
    fn edited(&self, edits: &Edits<'_>) -> Option<Self>;
}

/// A packet for a TIR, as the entries on its way have left it.
#[derive(Debug)]
pub struct Delivery<P> {
    /// The TIR.
    pub tir: u32,
    /// The flow's tag.
    pub tag: u32,
    /// The packet.
    pub packet: Rc<P>,
}

/// The receivers and counters that the tables give a packet.
#[derive(Debug)]
pub struct Classified<P> {
    /// TIRs that receive it.
    pub tirs: Vec<Delivery<P>>,
    /// Packets that leave by the port.
    pub leaving: Vec<Rc<P>>,
    /// Counters that count it, each with the bytes.
    pub counters: Vec<(u32, usize)>,
}

impl<P> Default for Classified<P> {
    fn default() -> Self {
        Self { tirs: Vec::new(), leaving: Vec::new(), counters: Vec::new() }
    }
}

/// A way that a packet takes: the next table, the tag so far, and the packet as it is there.
struct Path<P> {
    table: u32,
    tag: u32,
    packet: Rc<P>,
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

/// The actions on whole headers that a table's entries may have, as it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelActions {
    /// Reformatting (`reformat_en`).
    pub reformat: bool,
    /// Taking tunnels off (`decap_en`).
    pub decap: bool,
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
    /// The changes of whole headers that its entries may make.
    pub tunnels: TunnelActions,
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
    /// Contexts of changed headers.
    pub modify_headers: Table<ModifyHeader>,
    /// Contexts of reformatting.
    pub reformats: Table<Reformat>,
}

impl Default for Steering {
    fn default() -> Self {
        Self {
            tables: Table::new(0x20, 0x00ff_ffff),
            roots: BTreeMap::new(),
            modify_headers: Table::new(0x60, 0x00ff_ffff),
            reformats: Table::new(0x70, 0x00ff_ffff),
        }
    }
}

impl Steering {
    /// Returns receivers and counters of a packet, from a type's root on. In each table the first matching
    /// entry decides; the next tables see the packet with its changes. A packet that matches no entry is
    /// dropped if it was received, and leaves if it is sent. A packet that visits too many tables, or
    /// that too many TIRs would receive, is dropped and not counted.
    pub fn classify<P: SteeredPacket>(&self, kind: u8, packet: P) -> Classified<P> {
        self.walk(kind, packet).unwrap_or_else(|| {
            tracing::debug!(kind, "a packet visits too many tables or TIRs");
            Classified::default()
        })
    }

    fn walk<P: SteeredPacket>(&self, kind: u8, packet: P) -> Option<Classified<P>> {
        let mut classified = Classified::default();
        let packet = Rc::new(packet);
        let start = |root: &u32| Path { table: *root, tag: 0, packet };
        let mut ways: Vec<Path<P>> = self.roots.get(&kind).map(start).into_iter().collect();
        let mut lookups = 0;
        while let Some(Path { table, tag, packet }) = ways.pop() {
            lookups += 1;
            if lookups > MAX_LOOKUPS {
                return None;
            }
            let Some(table) = self.tables.get(table) else { continue };
            let Some(entry) = table.find(packet.fields()) else {
                match table.miss {
                    Some(table) => ways.push(Path { table, tag, packet }),
                    None if kind == NIC_TX => classified.leaving.push(packet),
                    None => {}
                }
                continue;
            };
            let tag = if entry.tag == 0 { tag } else { entry.tag };
            let length = packet.length();
            classified.counters.extend(entry.counters.iter().map(|counter| (*counter, length)));
            let Some(packet) = self.edited(entry, packet) else {
                tracing::debug!(kind, "an entry's changes cannot be made, a packet is lost");
                continue;
            };
            for destination in &entry.destinations {
                let packet = packet.clone();
                match *destination {
                    Destination::Tir(_) if classified.tirs.len() == MAX_RECEIVERS => return None,
                    Destination::Tir(tir) => classified.tirs.push(Delivery { tir, tag, packet }),
                    Destination::Table(table) => ways.push(Path { table, tag, packet }),
                    Destination::Port => classified.leaving.push(packet),
                }
            }
        }
        Some(classified)
    }

    /// Returns a packet with the changes of an entry that it matches; `None` if they cannot be made.
    fn edited<P: SteeredPacket>(&self, entry: &FlowEntry, packet: Rc<P>) -> Option<Rc<P>> {
        let changes = &entry.changes;
        if entry.destinations.is_empty() || changes.are_none() {
            return Some(packet);
        }
        let modify = changes.modify.and_then(|number| self.modify_headers.get(number));
        let reformat = changes.reformat.and_then(|number| self.reformats.get(number));
        packet.edited(&Edits { changes, modify, reformat }).map(Rc::new)
    }

    /// Returns whether any entry names a context of changed headers.
    pub fn uses_modify_header(&self, number: u32) -> bool {
        self.entries().any(|entry| entry.changes.modify == Some(number))
    }

    /// Returns whether any entry names a context of reformatting.
    pub fn uses_reformat(&self, number: u32) -> bool {
        self.entries().any(|entry| entry.changes.reformat == Some(number))
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

    /// Returns whether any entry is for packets that arrive or are seen by sniffers.
    pub fn receives(&self) -> bool {
        self.tables
            .iter()
            .any(|(_, table)| table.kind != NIC_TX && table.entries().next().is_some())
    }

    fn entries(&self) -> impl Iterator<Item = &FlowEntry> {
        self.tables.iter().flat_map(|(_, table)| table.entries())
    }
}

impl FlowTable {
    fn entries(&self) -> impl Iterator<Item = &FlowEntry> {
        self.groups.values().flat_map(|group| group.entries.values())
    }

    /// Returns the first entry that header fields match.
    fn find(&self, fields: &[u8; MATCH]) -> Option<&FlowEntry> {
        self.groups
            .values()
            .flat_map(|group| group.entries.iter().map(move |entry| (group, entry)))
            .filter(|(group, (_, entry))| matches(&group.criteria, &entry.value, fields))
            .min_by_key(|(_, (index, _))| **index)
            .map(|(_, (_, entry))| entry)
    }
}

fn matches(criteria: &[u8; MATCH], value: &[u8; MATCH], headers: &[u8; MATCH]) -> bool {
    criteria.iter().zip(value).zip(headers).all(|((mask, value), met)| (value ^ met) & mask == 0)
}

#[cfg(test)]
mod tests;
