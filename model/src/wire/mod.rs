//! Packets and their transfer.
//!
//! - [`opcode`] names the packets of the transport and lists the headers of each.
//! - [`route`] is a packet's address on its link.
//! - [`packet`] encodes and decodes all headers together.
//! - [`icrc`] protects them.
//! - [`cnp`] is the congestion notification packet, which no queue pair receives.
//! - [`ethernet`] handles frames that are not of the transport.
//! - [`lossy`] is a wire that loses, repeats, reorders and corrupts, from a seed.
//!
//! A [`Frame`] is one packet as it is on the wire. The engine carries frames between the devices of
//! one process, and over local sockets to other processes.

pub mod cnp;
pub mod ethernet;
pub mod icrc;
mod link;
pub mod lossy;
pub mod opcode;
pub mod packet;
pub mod route;
mod service;

pub use link::Link;
pub use lossy::Lossy;
pub use opcode::Opcode;
pub use packet::{Acknowledge, Aeth, AtomicEth, DcEth, Deth, Header, Malformed, NakCode, Reth};
pub use route::{Global, Route, is_multicast, mac};
pub use service::Service;

/// Destination of a packet to a multicast group, in place of a queue pair's number.
pub const MULTICAST: u32 = 0xff_ffff;

/// One packet as it is on the wire: LRH, optional GRH and transport headers on InfiniBand; IP, UDP
/// and transport headers on Ethernet; ICRC at the end. Other frames of Ethernet follow a byte that
/// no IP header begins with ([`ethernet::MARK`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame(pub Vec<u8>);

impl Frame {
    /// Whether it goes to all listeners, rather than to the queue pair it names.
    pub fn is_for_all(&self, link: Link) -> bool {
        let multicast = || Header::destination(link, &self.0).is_some_and(|to| to.1 == MULTICAST);
        ethernet::contents(link, self).is_some() || multicast()
    }
}
