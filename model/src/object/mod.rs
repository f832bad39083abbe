//! Objects: created by firmware commands, each with its context, pages and translation.
//!
//! [`Objects`] holds every table. Only `command/` adds and removes objects. The queues and the
//! transport look an object up by number each time, so a destroyed object is simply not found. A
//! context is kept as the bytes of the command, with fields read by their `mlx5_ifc.h` names.
//! Fields that the device changes are kept beside it and filled in when the context is queried.

mod compression;
mod counter;
mod cq;
mod eq;
mod ethernet;
mod flow_counter;
mod groups;
mod l2_table;
mod memic;
mod mkey;
mod pages;
mod qp;
mod room;
mod srq;
mod steering;
mod table;
mod tags;
mod target;
mod transport;
mod umem;

use std::collections::{BTreeMap, HashMap};

use crate::cost::Rate;

pub(crate) use compression::{CQE, Entry, is_compressible};
pub use compression::{Compression, Layout, MiniFormat};
pub use counter::Counters;
pub use cq::{Arm, Cq, Untold};
pub use eq::Eq;
pub use ethernet::{DIRECT, INDIRECT, Rqt, Strides, Tir, Tis};
pub use flow_counter::FlowCounter;
pub use groups::Groups;
pub use l2_table::L2Entry;
pub use memic::{Memic, Run};
pub use mkey::{KlmList, KlmPiece, Mkey, PageTable, Translation};
pub use pages::Pages;
pub use qp::{CopiedWqe, Qp, ReceiveQueue, Role, SendQueue, Special, State, Used};
pub use room::{Room, Share};
pub use srq::{Srq, SrqContext, SrqQueue, Xrc};
pub use steering::{
    AddedTag, Classified, Decapsulation, Delivery, Destination, Edits, FlowEntry, FlowGroup,
    FlowTable, LOG_MAX_DESTINATIONS, MATCH, ModifyHeader, NIC_RX, NIC_TX, PacketChanges, Reformat,
    Reformatting, SNIFFER_RX, SNIFFER_TX, SteeredPacket, Steering, TunnelActions,
};
pub use table::Table;
pub use tags::{TagEntry, TagList};
pub use target::{Drain, Target};
pub use transport::TransportState;
pub use umem::{Hold, Umem};

pub use crate::wire::Service;
pub use crate::work::Klm;

/// An object that is only a number with an owner: UAR, PD, XRCD, transport domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned {
    /// User context that created it; 0 is the driver itself.
    pub uid: u16,
}

/// A PSV, which holds a signature while data passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Psv {
    /// User context that created it.
    pub uid: u16,
    /// Protection domain.
    pub pd: u32,
}

/// Every object of one device, by number.
pub struct Objects {
    /// Queue pairs by 24-bit number, and Ethernet queues, each as half of one. Added and removed by
    /// [`Objects::enter_qp`] and [`Objects::remove_qp`].
    pub qps: BTreeMap<u32, Qp>,
    /// Numbers of the port's queue pairs 0 and 1.
    management: [Option<u32>; 2],
    /// Number of queue pairs that use each object.
    users: HashMap<Used, u32>,
    /// Start of the search for the next free QP number.
    pub next_qpn: u32,
    /// Completion queues by 24-bit number.
    pub cqs: Table<Cq>,
    /// Shared receive queues of all kinds by 24-bit number.
    pub srqs: Table<Srq>,
    /// Event queues by 8-bit number.
    pub eqs: Table<Eq>,
    /// The memory that lists of pages and keys may take.
    pub room: Room,
    /// Memory keys by 24-bit index: the key without its low byte.
    pub mkeys: Table<Mkey>,
    /// Protection domains.
    pub pds: Table<Owned>,
    /// XRC domains.
    pub xrcds: Table<Owned>,
    /// Transport domains.
    pub transport_domains: Table<Owned>,
    /// Counter sets of queues, by 8-bit number; 0 stands for none.
    pub counters: Table<Counters>,
    /// PSVs.
    pub psvs: Table<Psv>,
    /// Rates that send queues are limited to, by index.
    pub rates: BTreeMap<u32, Rate>,
    /// Transport interfaces, receive.
    pub tirs: Table<Tir>,
    /// Transport interfaces, send.
    pub tises: Table<Tis>,
    /// Tables of receive queues for RSS (RQT).
    pub rqts: Table<Rqt>,
    /// Flow tables.
    pub steering: Steering,
    /// Counters of flows.
    pub flow_counters: Table<FlowCounter>,
    /// Entries of the table of Ethernet addresses, by index.
    pub l2_table: BTreeMap<u32, L2Entry>,
    /// UAR pages.
    pub uars: Table<Owned>,
    /// Umems: memory that commands name by number.
    pub umems: Table<Umem>,
    /// User contexts, by the `uid` that commands carry.
    pub uctxs: Table<()>,
    /// Multicast groups.
    pub groups: Groups,
    /// Entries of the GID table as SET_ROCE_ADDRESS wrote them, by index.
    pub roce_addresses: HashMap<u16, [u8; 32]>,
}

impl Objects {
    /// Adds a queue pair.
    pub fn enter_qp(&mut self, qp: Qp) {
        for used in qp.uses() {
            *self.users.entry(used).or_default() += 1;
        }
        if let Some(number) = qp.special().and_then(Special::wire_number) {
            self.management[number as usize] = Some(qp.number);
        }
        self.next_qpn = qp.number + 1;
        self.qps.insert(qp.number, qp);
    }

    /// Removes a queue pair.
    pub fn remove_qp(&mut self, number: u32) -> Option<Qp> {
        let qp = self.qps.remove(&number)?;
        if let Some(number) = qp.special().and_then(Special::wire_number) {
            self.management[number as usize] = None;
        }
        for used in qp.uses() {
            if let Some(count) = self.users.get_mut(&used) {
                *count -= 1;
                if *count == 0 {
                    self.users.remove(&used);
                }
            }
        }
        Some(qp)
    }

    /// Returns the number of the object that has this number on the wire: the port's queue pairs 0
    /// and 1 have others, if there are any.
    pub fn at_wire_number(&self, number: u32) -> Option<u32> {
        match number {
            0 | 1 => self.management[number as usize],
            number => Some(number),
        }
    }

    /// Returns whether any queue pair uses an object. The time does not depend on their number.
    pub fn is_used(&self, used: Used) -> bool {
        let counted = self.users.contains_key(&used);
        debug_assert_eq!(counted, self.qps.values().any(|qp| qp.uses().any(|one| one == used)));
        counted
    }

    /// Returns a real queue pair: not an Ethernet queue, and not a DCT.
    pub fn queue_pair(&self, number: u32) -> Option<&Qp> {
        self.qps.get(&number).filter(|qp| matches!(qp.role, Role::Pair | Role::Special(_)))
    }

    /// Returns a real queue pair for changes: not an Ethernet queue, and not a DCT.
    pub fn queue_pair_mut(&mut self, number: u32) -> Option<&mut Qp> {
        self.qps.get_mut(&number).filter(|qp| matches!(qp.role, Role::Pair | Role::Special(_)))
    }
}

impl Default for Objects {
    fn default() -> Self {
        // Numbers of different kinds start apart from zero and from each other, so that one
        // mistaken for another is not found. Key 0x100 ends short receive lists, so no key may have
        // index 1.
        Self {
            qps: BTreeMap::new(),
            management: [None; 2],
            users: HashMap::new(),
            next_qpn: 0,
            cqs: Table::new(0x400, 0x00ff_ffff),
            srqs: Table::new(0x600, 0x00ff_ffff),
            eqs: Table::new(1, 0xff),
            room: Room::default(),
            mkeys: Table::new(0x800, 0x00ff_ffff),
            pds: Table::new(0x10, 0x00ff_ffff),
            xrcds: Table::new(0x10, 0x00ff_ffff),
            transport_domains: Table::new(0x10, 0x00ff_ffff),
            counters: Table::new(1, 0x7f),
            psvs: Table::new(0x30, 0x00ff_ffff),
            rates: BTreeMap::new(),
            tirs: Table::new(0x40, 0x00ff_ffff),
            tises: Table::new(0x80, 0x00ff_ffff),
            rqts: Table::new(0xc0, 0x00ff_ffff),
            steering: Steering::default(),
            flow_counters: Table::new(0x50, 0x00ff_ffff),
            l2_table: BTreeMap::new(),
            // Page numbers in the register BAR, between its first pages and the device's memory.
            uars: Table::new(0x10, (Memic::WINDOW >> 12) as u32 - 1),
            umems: Table::new(0x20, 0x00ff_ffff),
            uctxs: Table::new(1, 0xfffe),
            groups: Groups::default(),
            roce_addresses: HashMap::new(),
        }
    }
}
