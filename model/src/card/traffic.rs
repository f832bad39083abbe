//! Traffic counters of the port, as a virtual port has them: transport packets and other Ethernet
//! frames, each by kind of destination.

use super::Card;
use crate::wire::{Frame, Header, Link, MULTICAST, ethernet};

/// Packets and their bytes, headers and all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes as they are on the wire, from LRH or IP to ICRC; of other frames of Ethernet, their own.
    pub octets: u64,
}

/// What kind of packet it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Of the transport, to a queue pair.
    Unicast,
    /// Of the transport, to a group.
    Multicast,
    /// A frame to everybody.
    EthernetBroadcast,
    /// A frame to one address.
    EthernetUnicast,
    /// A frame to a group of addresses.
    EthernetMulticast,
}

/// Counts by [`Sort`], of one direction.
pub type Counts = [Count; 5];

/// What went through the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// What arrived and was for this card.
    pub received: Counts,
    /// What left.
    pub sent: Counts,
}

impl Sort {
    /// Of a packet on a link, with its bytes that count.
    pub fn of(link: Link, frame: &Frame) -> Option<(Self, usize)> {
        if let Some(bytes) = ethernet::contents(link, frame) {
            let sort = match bytes.get(..6)? {
                [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => Self::EthernetBroadcast,
                [first, ..] if first & 1 == 1 => Self::EthernetMulticast,
                _ => Self::EthernetUnicast,
            };
            return Some((sort, bytes.len()));
        }
        let (_, destination) = Header::destination(link, &frame.0)?;
        let sort = if destination == MULTICAST { Self::Multicast } else { Self::Unicast };
        Some((sort, frame.0.len()))
    }
}

impl Card {
    /// A packet leaves.
    pub fn count_sent(&mut self, frame: &Frame) {
        if let Some((sort, bytes)) = Sort::of(self.identity.link, frame) {
            add(&mut self.traffic.sent, sort, bytes);
        }
    }

    /// A packet has arrived for somebody here.
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
