//! The answers of a subnet administrator: path records and multicast groups.
//!
//! There is no administrator on the model's fabric. Each port computes the answers, so that every
//! process and every host reaches the same ones without asking. A path follows from the two ports,
//! and a group's LID from its GID.

use std::net::IpAddr;

use crate::wire::Link;

/// Bytes of a path record (IBA 1.3, 15.2.5.16).
pub const PATH_RECORD: usize = 64;
/// 200 Gb/s, as records count.
pub const RATE: u8 = 17;
/// Life time of packets, 4.096 µs times two to this power: 16.8 ms on InfiniBand, 268 ms on RoCE,
/// as Linux assumes.
pub const fn life_time(link: Link) -> u8 {
    match link {
        Link::InfiniBand => 12,
        Link::Roce => 16,
    }
}

/// A path between two ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// Source GID.
    pub source: [u8; 16],
    /// Destination GID.
    pub destination: [u8; 16],
    /// LID of the source; 0 on RoCE.
    pub source_lid: u16,
    /// LID of the destination; 0 on RoCE.
    pub destination_lid: u16,
    /// Partition key.
    pub p_key: u16,
    /// Service level.
    pub level: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Path MTU: 1 is 256 bytes, 5 is 4096.
    pub mtu: u8,
    /// Life time of packets, 4.096 µs times two to this power.
    pub life_time: u8,
}

impl Path {
    /// Returns the path record. MTU, rate and life time are exact (selector 2).
    pub fn record(&self) -> [u8; PATH_RECORD] {
        const EXACTLY: u8 = 2 << 6;
        const REVERSIBLE: u8 = 1 << 7;
        let mut bytes = [0; PATH_RECORD];
        bytes[8..24].copy_from_slice(&self.destination);
        bytes[24..40].copy_from_slice(&self.source);
        bytes[40..42].copy_from_slice(&self.destination_lid.to_be_bytes());
        bytes[42..44].copy_from_slice(&self.source_lid.to_be_bytes());
        let word = (self.flow_label & 0xf_ffff) << 8 | u32::from(self.hop_limit);
        bytes[44..48].copy_from_slice(&word.to_be_bytes());
        bytes[48] = self.traffic_class;
        bytes[49] = REVERSIBLE | 1;
        bytes[50..52].copy_from_slice(&self.p_key.to_be_bytes());
        bytes[53] = self.level & 0xf;
        bytes[54] = EXACTLY | self.mtu;
        bytes[55] = EXACTLY | RATE;
        bytes[56] = EXACTLY | self.life_time;
        bytes
    }

    /// Reads a path record that a program sets. Returns `None` for another length.
    pub fn of_record(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; PATH_RECORD] = bytes.try_into().ok()?;
        let gid = |at: usize| {
            let mut gid = [0; 16];
            gid.copy_from_slice(&bytes[at..at + 16]);
            gid
        };
        let u16 = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        Some(Self {
            source: gid(24),
            destination: gid(8),
            source_lid: u16(42),
            destination_lid: u16(40),
            p_key: u16(50),
            level: bytes[53] & 0xf,
            traffic_class: bytes[48],
            flow_label: u32::from(bytes[44] & 0xf) << 16 | u32::from(u16(45)),
            hop_limit: bytes[47],
            mtu: bytes[54] & 0x3f,
            life_time: bytes[56] & 0x3f,
        })
    }
}

/// Returns the GID of the group that an IP address names, as Linux computes it.
/// The signature and the partition count on InfiniBand only.
pub fn group(link: Link, address: IpAddr, p_key: u16, signature: Signature) -> [u8; 16] {
    let mut gid = [0; 16];
    match (link, address) {
        (Link::Roce, IpAddr::V4(address)) => address.to_ipv6_mapped().octets(),
        (Link::Roce, IpAddr::V6(address)) => address.octets(),
        (Link::InfiniBand, IpAddr::V4(address)) => {
            gid[..4].copy_from_slice(&[0xff, 0x12, 0x40, signature as u8]);
            gid[4..6].copy_from_slice(&(p_key | 0x8000).to_be_bytes());
            gid[12..].copy_from_slice(&address.octets());
            gid[12] &= 0x0f;
            gid
        }
        (Link::InfiniBand, IpAddr::V6(address)) => {
            let address = address.octets();
            // An MGID that an administrator has given.
            if address[..4] == [0xff, address[1], 0xa0, 0x1b] && address[1] & 0xf0 == 0x10 {
                return address;
            }
            gid[..4].copy_from_slice(&[0xff, 0x12, 0x60, signature as u8]);
            gid[4..6].copy_from_slice(&(p_key | 0x8000).to_be_bytes());
            gid[6..].copy_from_slice(&address[6..]);
            gid
        }
    }
}

/// The signature in a group's GID on InfiniBand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Signature {
    /// IP over InfiniBand.
    Ip = 0x1b,
    /// Datagram services of the RDMA communication manager.
    Rdma = 0x01,
}

/// Returns the LID of a multicast group.
pub fn group_lid(gid: &[u8; 16]) -> u16 {
    /// Group LIDs are those from 0xc000 to 0xfffe.
    const GROUPS: u32 = 0x3fff;
    let hash = gid
        .iter()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    0xc000 + (hash % GROUPS) as u16
}
