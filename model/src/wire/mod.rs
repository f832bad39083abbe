//! Packets and what carries them.
//!
//! [`packet`] encodes and decodes the headers, [`icrc`] checks them; a [`Frame`] is one packet as
//! it is on the wire. The engine carries frames between the cards of one process, and over local
//! sockets to other processes.

/// One packet as it is on the wire: LRH, optional GRH and transport headers on InfiniBand; IP, UDP
/// and transport headers on Ethernet; ICRC at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame(pub Vec<u8>);
