//! The invariant CRC at the end of every packet.
//!
//! It is a CRC-32 over everything from the first header on. The fields that may change on the way
//! are read as ones (IBA 1.3, 7.8.1; annex A17 for RoCEv2): the virtual lane of a local packet, the
//! whole LRH of a packet with a GRH (on Ethernet eight bytes of ones replace it), traffic class,
//! flow label, hop limit, IP and UDP checksums, and the BTH's byte 4.

use crc32fast::Hasher;

use super::Link;
use super::route::{GRH, IPV4, LRH, UDP};

/// Bytes of the ICRC.
pub const ICRC: usize = 4;
const BTH: usize = 12;

/// The ICRC of a packet as its last four bytes hold it. `bytes` is the packet without them; `None`
/// if it is too short to have the headers it says it has.
pub fn icrc(link: Link, bytes: &[u8]) -> Option<[u8; ICRC]> {
    let mut masked = [0xff; LRH + GRH + UDP + BTH];
    let network = match link {
        Link::InfiniBand if *bytes.get(1)? & 3 == 3 => LRH + GRH,
        Link::InfiniBand => LRH,
        Link::Roce if *bytes.first()? >> 4 == 4 => IPV4 + UDP,
        Link::Roce => GRH + UDP,
    };
    let transport = network + BTH;
    let headers = bytes.get(..transport)?;
    // Ethernet has no LRH; ones stand in for it.
    let skip = if link == Link::Roce { LRH } else { 0 };
    let masked = &mut masked[..skip + transport];
    masked[skip..].copy_from_slice(headers);
    match link {
        Link::InfiniBand => {
            if network == LRH {
                masked[0] |= 0xf0;
            } else {
                masked[..LRH].fill(0xff);
                mask_ipv6(&mut masked[LRH..]);
            }
        }
        Link::Roce => {
            let ip = &mut masked[LRH..];
            if network == IPV4 + UDP {
                ip[1] = 0xff;
                ip[8] = 0xff;
                ip[10..12].fill(0xff);
            } else {
                mask_ipv6(ip);
            }
            ip[network - 2..network].fill(0xff);
        }
    }
    masked[skip + network + 4] = 0xff;
    let mut hasher = Hasher::new();
    hasher.update(masked);
    hasher.update(&bytes[transport..]);
    Some(hasher.finalize().to_le_bytes())
}

fn mask_ipv6(header: &mut [u8]) {
    header[0] |= 0x0f;
    header[1..4].fill(0xff);
    header[7] = 0xff;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of Scapy's RoCE tests: a UC SEND from 192.168.0.7 to itself.
    #[test]
    fn a_published_send_has_the_published_icrc() {
        let mut packet = vec![
            0x45, 0x01, 0x00, 0x40, 0x04, 0x78, 0x40, 0x00, 0x40, 0x11, 0xb4, 0xd5, 192, 168, 0, 7,
            192, 168, 0, 7, // IPv4
            0xc0, 0x00, 0x12, 0xb7, 0x00, 0x2c, 0xac, 0xa2, // UDP
            0x24, 0x60, 0xff, 0xff, 0x00, 0x00, 0x00, 0xd3, 0x00, 0xcf, 0x17, 0x10, // BTH
        ];
        packet.extend_from_slice(b"F0\x81\x8b\xe2\x895\xd9\x0e\x9a\x95PT\x01\xbe\x88^P\x00\x00");
        assert_eq!(icrc(Link::Roce, &packet), Some([0x78, 0xf3, 0x53, 0xf3]));
    }

    /// A congestion notification captured on a ConnectX-4 Lx, also of Scapy's tests.
    #[test]
    fn a_captured_notification_has_the_captured_icrc() {
        let mut packet = vec![
            0x45, 0xc2, 0x00, 0x3c, 0x71, 0x8c, 0x40, 0x00, 0x40, 0x11, 0x91, 0x61, 0x0a, 0x00,
            0x11, 0x01, 0x0a, 0x00, 0x12, 0x01, 0x00, 0x00, 0x12, 0xb7, 0x00, 0x28, 0x00, 0x00,
            0x81, 0x00, 0xff, 0xff, 0x40, 0x00, 0x01, 0x18,
        ];
        // PSN and sixteen reserved bytes.
        packet.resize(56, 0);
        assert_eq!(icrc(Link::Roce, &packet), Some([0x82, 0xfd, 0x00, 0x2a]));
    }

    /// CRC-32 bit by bit, continued from `crc` and not inverted at the end.
    fn crc32(crc: u32, bytes: &[u8]) -> u32 {
        bytes.iter().fold(crc, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
            })
        })
    }

    /// The rule of Linux's rdma_rxe (`rxe_icrc.c`): it starts from a seed in place of the LRH, and
    /// sets fields of a copy of the headers.
    fn rxe(bytes: &[u8]) -> [u8; ICRC] {
        const SEED: u32 = 0xdebb_20e3;
        let mut bytes = bytes.to_vec();
        let udp = if bytes[0] >> 4 == 4 {
            let (service, time_to_live, checksum) = (1, 8, 10..12);
            bytes[service] = 0xff;
            bytes[time_to_live] = 0xff;
            bytes[checksum].fill(0xff);
            20
        } else {
            // The upper half of the traffic class, the lower one with the flow label, the hop limit.
            bytes[0] |= 0x0f;
            bytes[1..4].fill(0xff);
            bytes[7] = 0xff;
            40
        };
        bytes[udp + 6..udp + 8].fill(0xff);
        // The byte before the queue pair's number.
        bytes[udp + 8 + 4] = 0xff;
        (!crc32(SEED, &bytes)).to_le_bytes()
    }

    #[test]
    fn icrc_is_that_of_rdma_rxe() {
        assert_eq!(crc32(!0, &[0xff; 8]), 0xdebb_20e3, "the seed stands for a masked LRH");
        let mut random = crate::clock::Random::seeded(11);
        for length in 0..200 {
            for version in [4, 6] {
                let headers = if version == 4 { IPV4 } else { GRH } + UDP + BTH;
                let mut packet: Vec<u8> =
                    (0..headers + length).map(|_| random.draw() as u8).collect();
                packet[0] = version << 4 | if version == 4 { 5 } else { packet[0] & 0xf };
                assert_eq!(icrc(Link::Roce, &packet), Some(rxe(&packet)), "{packet:02x?}");
            }
        }
    }

    #[test]
    fn what_changes_on_the_way_is_not_covered() {
        let mut local = vec![0u8; LRH + BTH];
        local[1] = 2;
        let sent = icrc(Link::InfiniBand, &local);
        local[0] = 0x70;
        local[LRH + 4] = 0x40;
        assert_eq!(icrc(Link::InfiniBand, &local), sent);
        local[3] = 1;
        assert_ne!(icrc(Link::InfiniBand, &local), sent, "the LID is covered");

        let mut global = vec![0u8; LRH + GRH + BTH];
        global[1] = 3;
        global[LRH] = 0x60;
        let sent = icrc(Link::InfiniBand, &global);
        global[3] = 9;
        global[LRH + 7] = 63;
        assert_eq!(icrc(Link::InfiniBand, &global), sent);
        global[LRH + 8] = 1;
        assert_ne!(icrc(Link::InfiniBand, &global), sent, "the GID is covered");
    }

    #[test]
    fn a_short_packet_has_none() {
        assert_eq!(icrc(Link::InfiniBand, &[0; LRH + BTH - 1]), None);
        assert_eq!(icrc(Link::Roce, &[]), None);
    }
}
