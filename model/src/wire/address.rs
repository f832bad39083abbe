//! Addresses of ports on their link, and ways through the fabric.

use super::{Link, Route};

/// The address of a port on its link, or of a group of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LinkAddress {
    /// A local identifier of an InfiniBand subnet.
    Lid(u16),
    /// An Ethernet address.
    Mac([u8; 6]),
}

impl LinkAddress {
    /// Returns the destination of a frame on a link. `None` if the frame is too short to have one.
    pub fn of(link: Link, frame: &[u8]) -> Option<Self> {
        Some(match link {
            Link::InfiniBand => Self::Lid(u16::from_be_bytes([*frame.get(2)?, *frame.get(3)?])),
            Link::Roce => Self::Mac(*frame.first_chunk()?),
        })
    }

    /// Bytes of an encoded address.
    pub const ENCODED: usize = 7;

    /// Encodes the address: its kind, then its bytes, as many as a MAC has.
    pub fn encode(self) -> [u8; Self::ENCODED] {
        let mut bytes = [0; Self::ENCODED];
        match self {
            Self::Lid(lid) => bytes[1..3].copy_from_slice(&lid.to_le_bytes()),
            Self::Mac(mac) => {
                bytes[0] = 1;
                bytes[1..].copy_from_slice(&mac);
            }
        }
        bytes
    }

    /// Decodes what [`LinkAddress::encode`] returns. `None` if the kind is unknown.
    pub fn decode([kind, address @ ..]: [u8; Self::ENCODED]) -> Option<Self> {
        match kind {
            0 => Some(Self::Lid(u16::from_le_bytes([address[0], address[1]]))),
            1 => Some(Self::Mac(address)),
            _ => None,
        }
    }

    /// Returns whether frames to this address go to several ports: multicast and broadcast.
    pub fn is_group(self) -> bool {
        match self {
            // The last LID is not a group: it names the port at the other end of a cable.
            Self::Lid(lid) => (0xc000..=0xfffe).contains(&lid),
            Self::Mac(mac) => mac[0] & 1 != 0,
        }
    }
}

impl std::fmt::Display for LinkAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Lid(lid) => write!(f, "LID {lid}"),
            Self::Mac([a, b, c, d, e, g]) => {
                write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
            }
        }
    }
}

/// A way through the fabric: the queue pairs of a port whose packets wait in one queue.
///
/// The fabric decides which queue pairs share a way, and reports that a way is full or slow. All
/// others only compare destinations with what was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Way {
    /// Address of the port.
    pub to: LinkAddress,
    /// First number of its queue pairs.
    pub first: u32,
    /// Last number of its queue pairs.
    pub last: u32,
}

impl Way {
    /// Returns whether packets with a route to a queue pair take this way.
    pub fn leads_to(&self, route: &Route, number: u32) -> bool {
        (self.first..=self.last).contains(&number) && route.to() == self.to
    }
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "QPs {:#x} to {:#x} of {}", self.first, self.last, self.to)
    }
}
