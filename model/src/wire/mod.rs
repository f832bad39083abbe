//! Packets and their transfer.
//!
//! - [`address`] names ports on their link, and ways through the fabric.
//! - [`gid`] tells the GIDs that are IP addresses.
//! - [`opcode`] names the packets of the transport and lists the headers of each.
//! - [`route`] is a packet's address on its link.
//! - [`packet`] encodes and decodes all headers together.
//! - [`icrc`] protects them.
//! - [`ethernet`] handles frames that are not of the transport.
//!
//! A [`Frame`] is one frame as it is on the link. The fabric carries it to the port of its address.

pub mod address;
pub mod ethernet;
pub mod gid;
pub mod icrc;
mod link;
pub mod opcode;
pub mod packet;
pub mod route;
mod service;
#[cfg(test)]
mod tests;

pub use address::{LinkAddress, Way};
pub use ethernet::Tag;
pub use link::Link;
pub use opcode::Opcode;
pub use packet::{Acknowledge, Aeth, AtomicEth, DcEth, Deth, Header, Malformed, NakCode, Reth};
pub use route::{Ecn, Global, RoceVersion, Route, mac};
pub use service::Service;

/// Destination of a packet to a multicast group, in place of a queue pair's number.
pub const MULTICAST: u32 = 0xff_ffff;

/// The way of a frame through a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The frame arrives.
    Inbound,
    /// The frame leaves.
    Outbound,
}

/// One frame as it is on the link. On InfiniBand: LRH, optional GRH, transport headers and ICRC. On
/// Ethernet: addresses, perhaps a VLAN tag, and type; in packets of the transport, IP, UDP, transport
/// headers and ICRC follow. The checksums of the link itself (VCRC, FCS) are not part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame(
    /// Its bytes.
    pub Vec<u8>,
    /// The transport domain of the queue that sent it, as long as it has not left its device.
    pub(crate) Option<u32>,
);

impl Frame {
    /// A frame of these bytes, of no transport domain of the device.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes, None)
    }

    /// Whether it is a packet of the transport, rather than another frame of Ethernet.
    pub fn is_transport(&self, link: Link) -> bool {
        match link {
            Link::InfiniBand => true,
            Link::Roce => ethernet::is_roce(&self.0),
        }
    }
}
