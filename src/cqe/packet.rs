//! The packet information of a completion of an Ethernet queue.

use mlx5_sys::cqe::{L3_HDR_TYPE_IPV4, L3_HDR_TYPE_IPV6, L3_HDR_TYPE_SHIFT, L3_OK, L4_OK};

use super::{CqeRef, Layer3, Timestamp};

/// The protocol above IP.
///
/// See the example on [`PacketInfo`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportHeader {
    /// No protocol that the HCA knows, or the packet is a fragment.
    Other,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// The HCA's results for a packet's headers.
///
/// ```
/// use mlx5::cqe::TransportHeader;
/// use mlx5::ring::Packet;
///
/// /// Whether the HCA has checked a packet's UDP checksum, and its hash.
/// fn udp(packet: &Packet) -> Option<u32> {
///     let info = packet.info();
///     (info.transport == TransportHeader::Udp && info.transport_ok).then_some(info.hash)
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketInfo {
    /// The protocol above Ethernet.
    pub network: Layer3,
    /// Whether its header is right, including its checksum if it has one.
    pub network_ok: bool,
    /// The protocol above IP.
    pub transport: TransportHeader,
    /// Whether the checksum of TCP or UDP is right.
    pub transport_ok: bool,
    /// The VLAN tag that the HCA has removed, if the queue requests that.
    pub stripped_vlan: Option<u16>,
    /// The tag of the flow that led the packet here
    /// ([`FlowBuilder::tag`](crate::verbs::FlowBuilder::tag)); 0 if it has none.
    pub flow_tag: u32,
    /// The RSS hash by which packets are [spread](crate::verbs::RssQueues); 0 if they are not.
    pub hash: u32,
    /// Ones' complement sum of the bytes after the Ethernet header.
    pub checksum: u16,
    /// The time at which the packet came, in the format of the queue: free running, unless a queue by
    /// command was made with another one. [`ClockReading`](crate::verbs::ClockReading) converts it.
    pub timestamp: Timestamp,
}

impl PacketInfo {
    /// Returns whether the packet is one of IPv4 and all its checksums are right: what verbs call
    /// `IBV_WC_IP_CSUM_OK`.
    pub fn checksums_ok(&self) -> bool {
        self.network == Layer3::Ipv4 && self.network_ok && self.transport_ok
    }
}

/// The HCA's results for a packet, with the headers' still in one word. A poll copies them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketWords {
    /// Checks, types and VLAN tag.
    headers: u32,
    flow_tag: u32,
    hash: u32,
    checksum: u16,
    timestamp: Timestamp,
}

impl PacketWords {
    /// Reads the results from a CQE. The compiler omits the loads of results that are not used.
    #[inline(always)]
    pub(crate) fn of(cqe: &CqeRef<'_>) -> Self {
        Self {
            headers: cqe.header_word(),
            flow_tag: cqe.flow_tag(),
            hash: cqe.rss_hash(),
            checksum: cqe.checksum(),
            timestamp: cqe.timestamp(),
        }
    }

    /// Returns the results.
    #[inline]
    pub(crate) fn info(&self) -> PacketInfo {
        /// Layer 4 types, and whether a VLAN tag was taken out. Linux `mlx5/device.h`,
        /// `CQE_L4_HDR_TYPE_*` and `cqe_has_vlan`.
        const UDP: u8 = 2;
        const STRIPPED: u8 = 1;
        let [checks, kinds, ..] = self.headers.to_be_bytes();
        PacketInfo {
            network: match kinds >> L3_HDR_TYPE_SHIFT & 3 {
                L3_HDR_TYPE_IPV4 => Layer3::Ipv4,
                L3_HDR_TYPE_IPV6 => Layer3::Ipv6,
                _ => Layer3::None,
            },
            network_ok: checks & L3_OK != 0,
            transport: match kinds >> 4 & 7 {
                // TCP comes in three kinds, by what it acknowledges and carries.
                1 | 3 | 4 => TransportHeader::Tcp,
                UDP => TransportHeader::Udp,
                _ => TransportHeader::Other,
            },
            transport_ok: checks & L4_OK != 0,
            stripped_vlan: (kinds & STRIPPED != 0).then_some(self.headers as u16),
            flow_tag: self.flow_tag,
            hash: self.hash,
            checksum: self.checksum,
            timestamp: self.timestamp,
        }
    }
}

#[cfg(test)]
mod tests;
