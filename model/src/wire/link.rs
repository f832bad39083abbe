//! The kind of link that a port is attached to.

use super::ethernet;

/// The kind of link that a port is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// An InfiniBand subnet: LIDs, optional GRH.
    InfiniBand,
    /// Ethernet: RoCE, whose GIDs are IP addresses.
    Roce,
}

impl Link {
    /// log2 of the bytes of payload in the largest packet that a port sends unless a connection's
    /// path says otherwise: all that InfiniBand has, and what fits Ethernet's 1,500 bytes.
    pub fn log_mtu(self) -> u32 {
        match self {
            Self::InfiniBand => 12,
            Self::Roce => 10,
        }
    }

    /// Returns the bytes of a whole frame before the headers that the ICRC covers: the Ethernet header,
    /// with a VLAN tag.
    pub fn header_of(self, frame: &[u8]) -> usize {
        match self {
            Self::InfiniBand => 0,
            Self::Roce => ethernet::header(frame),
        }
    }

    /// Returns the bytes of a frame's Ethernet header without a VLAN tag.
    pub fn header(self) -> usize {
        match self {
            Self::InfiniBand => 0,
            Self::Roce => ethernet::HEADER,
        }
    }
}
