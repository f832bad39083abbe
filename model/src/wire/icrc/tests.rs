//! Unit tests.

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
        0x45, 0xc2, 0x00, 0x3c, 0x71, 0x8c, 0x40, 0x00, 0x40, 0x11, 0x91, 0x61, 0x0a, 0x00, 0x11,
        0x01, 0x0a, 0x00, 0x12, 0x01, 0x00, 0x00, 0x12, 0xb7, 0x00, 0x28, 0x00, 0x00, 0x81, 0x00,
        0xff, 0xff, 0x40, 0x00, 0x01, 0x18,
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
            let mut packet: Vec<u8> = (0..headers + length).map(|_| random.draw() as u8).collect();
            packet[6] = 17;
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

/// Ones stand for the LRH on InfiniBand too (annex A16).
#[test]
fn icrc_of_roce_v1_is_that_of_the_packet_on_infiniband() {
    let mut random = crate::clock::Random::seeded(12);
    let mut packet: Vec<u8> = (0..GRH + BTH + 40).map(|_| random.draw() as u8).collect();
    (packet[0], packet[6]) = (0x60, NEXT_HEADER_IBA);
    let mut local = vec![0, 3, 0, 1, 0, 2, 0, 3];
    local.extend_from_slice(&packet);
    assert_eq!(icrc(Link::Roce, &packet), icrc(Link::InfiniBand, &local));
}

#[test]
fn a_short_packet_has_none() {
    assert_eq!(icrc(Link::InfiniBand, &[0; LRH + BTH - 1]), None);
    assert_eq!(icrc(Link::Roce, &[]), None);
}
