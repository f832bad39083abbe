//! Traffic counters of the port, as a virtual port has them: transport packets and other Ethernet
//! frames, each by kind of destination.

use super::Card;
use crate::wire::{Frame, Header, Link, MULTICAST};

/// A number of packets and their bytes, including headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes: of transport packets from LRH or IP to ICRC, of other Ethernet frames the whole
    /// frame.
    pub octets: u64,
}

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// A transport packet to a queue pair.
    Unicast,
    /// A transport packet to a multicast group.
    Multicast,
    /// An Ethernet frame to the broadcast address.
    EthernetBroadcast,
    /// An Ethernet frame to one address.
    EthernetUnicast,
    /// An Ethernet frame to a group of addresses.
    EthernetMulticast,
}

/// Counts of one direction, indexed by [`Sort`].
pub type Counts = [Count; 5];

/// Traffic counters of the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets received for this device.
    pub received: Counts,
    /// Packets sent.
    pub sent: Counts,
}

impl Sort {
    /// Returns the kind of a packet on a link, and its counted bytes.
    pub fn of(link: Link, frame: &Frame) -> Option<(Self, usize)> {
        let bytes = &frame.0;
        if !frame.is_transport(link) {
            let sort = match bytes.get(..6)? {
                [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => Self::EthernetBroadcast,
                [first, ..] if first & 1 == 1 => Self::EthernetMulticast,
                _ => Self::EthernetUnicast,
            };
            return Some((sort, bytes.len()));
        }
        let (_, destination) = Header::destination(link, bytes)?;
        let sort = if destination == MULTICAST { Self::Multicast } else { Self::Unicast };
        Some((sort, bytes.len() - link.header()))
    }
}

impl Card {
    /// Counts a packet that leaves.
    pub fn count_sent(&mut self, frame: &Frame) {
        if let Some((sort, bytes)) = Sort::of(self.identity.link, frame) {
            add(&mut self.traffic.sent, sort, bytes);
        }
    }

    /// Counts an arrived packet that has a receiver here.
    pub(crate) fn count_received(&mut self, frame: &Frame) {
        if let Some((sort, bytes)) = Sort::of(self.identity.link, frame) {
            add(&mut self.traffic.received, sort, bytes);
        }
    }
}

fn add(counts: &mut Counts, sort: Sort, bytes: usize) {
    let count = &mut counts[sort as usize];
    count.packets += 1;
    count.octets += bytes as u64;
}
