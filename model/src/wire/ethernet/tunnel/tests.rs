//! Unit tests.

use proptest::prelude::*;

use super::super::fields::tests::packet;
use super::*;

/// Ethernet and IP of a tunnel, without lengths and checksums, as drivers give them.
fn outer(version: Network, protocol: u8) -> Vec<u8> {
    let mut outer = vec![2, 0, 0, 0, 0, 7, 2, 0, 0, 0, 0, 8];
    match version {
        Network::V4 => {
            outer.extend_from_slice(&IPV4.to_be_bytes());
            outer.extend_from_slice(&[0x45, 0, 0, 0, 0, 0, 0, 0, 32, protocol, 0, 0]);
            outer.extend_from_slice(&[172, 16, 0, 1, 172, 16, 0, 2]);
        }
        Network::V6 => {
            outer.extend_from_slice(&IPV6.to_be_bytes());
            outer.extend_from_slice(&[0x60, 0, 0, 0, 0, 0, protocol, 32]);
            outer.extend_from_slice(&[0xfd; 32]);
        }
    }
    outer
}

/// The same with UDP to a port and what follows it.
fn over_udp(version: Network, port: u16, checksum: [u8; 2], shim: &[u8]) -> Vec<u8> {
    let mut outer = outer(version, 17);
    outer.extend_from_slice(&[0xc0, 1]);
    outer.extend_from_slice(&port.to_be_bytes());
    outer.extend_from_slice(&[0, 0]);
    outer.extend_from_slice(&checksum);
    outer.extend_from_slice(shim);
    outer
}

fn over_gre(version: Network, header: &[u8]) -> Vec<u8> {
    [&outer(version, GRE)[..], header].concat()
}

const VXLAN_SHIM: [u8; 8] = [8, 0, 0, 0, 0, 0, 42, 0];

/// Tunnels that carry frames, by both versions of IP.
fn frame_tunnels() -> Vec<Vec<u8>> {
    let gre_with_key = [0x20, 0, 0x65, 0x58, 0, 0, 42, 0];
    let gre_with_all = [0xb0, 0, 0x65, 0x58, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3];
    let mut geneve = vec![2, 0, 0x65, 0x58, 0, 0, 42, 0];
    geneve.extend_from_slice(&[7; 8]);
    let versions = [Network::V4, Network::V6];
    let of = |version| {
        [
            over_udp(version, VXLAN, [0, 0], &VXLAN_SHIM),
            over_udp(version, VXLAN_GPE, [9, 9], &[0xc, 0, 0, 3, 0, 0, 42, 0]),
            over_udp(version, GENEVE, [9, 9], &geneve),
            over_gre(version, &[0, 0, 0x65, 0x58]),
            over_gre(version, &gre_with_key),
            over_gre(version, &gre_with_all),
        ]
    };
    versions.into_iter().flat_map(of).collect()
}

/// Tunnels that carry IP packets.
fn packet_tunnels(inner: Network) -> Vec<Vec<u8>> {
    let (kind, protocol, next) = match inner {
        Network::V4 => ([8, 0], IP_IN_IP, 1),
        Network::V6 => ([0x86, 0xdd], IPV6_IN_IP, 2),
    };
    let versions = [Network::V4, Network::V6];
    let of = |version| {
        [
            over_gre(version, &[&[0, 0], &kind[..]].concat()),
            over_udp(version, VXLAN_GPE, [0, 0], &[0xc, 0, 0, next, 0, 0, 42, 0]),
            outer(version, protocol),
        ]
    };
    versions.into_iter().flat_map(of).collect()
}

#[test]
fn a_frame_comes_out_of_a_tunnel_as_it_went_in() {
    let inner = packet(Network::V4, Transport::Tcp, true);
    for outer in frame_tunnels() {
        let mut frame = encapsulate(&outer, &inner).unwrap();
        assert_eq!(frame[outer.len()..], inner);
        // What pads a frame is not part of the tunnel.
        frame.extend_from_slice(&[0; 7]);
        let headers = Headers::of(&frame).unwrap();
        assert_eq!(inner_frame(&frame, &headers), Some(&inner[..]), "{outer:02x?}");
        assert_eq!(inner_packet(&frame, &headers), None);
    }
}

#[test]
fn a_packet_comes_out_of_a_tunnel_as_it_went_in() {
    for version in [Network::V4, Network::V6] {
        let inner = &packet(version, Transport::Udp, false)[HEADER..];
        for outer in packet_tunnels(version) {
            let frame = encapsulate(&outer, inner).unwrap();
            let headers = Headers::of(&frame).unwrap();
            assert_eq!(inner_packet(&frame, &headers), Some(inner), "{outer:02x?}");
            assert_eq!(inner_frame(&frame, &headers), None);
        }
    }
}

#[test]
fn lengths_and_checksums_of_a_tunnel_are_right() {
    let inner = packet(Network::V6, Transport::Tcp, false);
    for version in [Network::V4, Network::V6] {
        for checksum in [[0, 0], [9, 9]] {
            let outer = over_udp(version, VXLAN, checksum, &VXLAN_SHIM);
            let frame = encapsulate(&outer, &inner).unwrap();
            let headers = Headers::of(&frame).unwrap();
            assert!(headers.network_is_right(&frame));
            assert_eq!((headers.end, headers.cut_off), (frame.len(), false));
            let at = headers.transport_at(Transport::Udp).unwrap();
            assert_eq!(word(&frame, at + 4), Some((UDP + SHIM + inner.len()) as u16));
            let none = checksum == [0, 0];
            assert_eq!(word(&frame, at + 6) == Some(0), none);
            assert!(none || headers.transport_is_right(&frame));
        }
    }
}

#[test]
fn what_ip_cannot_count_is_no_tunnel() {
    let outer = over_udp(Network::V4, VXLAN, [0, 0], &VXLAN_SHIM);
    let room = usize::from(u16::MAX) - (outer.len() - HEADER);
    assert!(encapsulate(&outer, &vec![0; room]).is_some());
    assert_eq!(encapsulate(&outer, &vec![0; room + 1]), None);
    // A header that is not of IP has no length.
    let plain = [&[2; 12][..], &[0x88, 0xb5]].concat();
    assert_eq!(encapsulate(&plain, &[1, 2, 3]).unwrap(), [&plain[..], &[1, 2, 3]].concat());
}

#[test]
fn packets_of_no_tunnel_have_nothing_inside() {
    let mut geneve_of_ip = vec![0, 0, 8, 0, 0, 0, 42, 0];
    geneve_of_ip.extend_from_slice(&[0; 40]);
    let inner = packet(Network::V4, Transport::Udp, false);
    let fragment = |mut frame: Vec<u8>| {
        frame[HEADER + 6] = 0x20;
        frame
    };
    for frame in [
        inner.clone(),
        encapsulate(&over_udp(Network::V4, 4788, [0, 0], &VXLAN_SHIM), &inner).unwrap(),
        encapsulate(&over_udp(Network::V4, GENEVE, [0, 0], &geneve_of_ip), &[]).unwrap(),
        // Another version of GRE, and a frame that is too short.
        encapsulate(&over_gre(Network::V4, &[0, 1, 0x65, 0x58]), &inner).unwrap(),
        encapsulate(&over_gre(Network::V4, &[0, 0, 0x65, 0x58]), &inner[..HEADER - 1]).unwrap(),
        fragment(encapsulate(&over_gre(Network::V4, &[0, 0, 0x65, 0x58]), &inner).unwrap()),
        fragment(encapsulate(&outer(Network::V4, IP_IN_IP), &inner[HEADER..]).unwrap()),
    ] {
        let headers = Headers::of(&frame).unwrap();
        assert_eq!(inner_frame(&frame, &headers), None, "{frame:02x?}");
        assert_eq!(inner_packet(&frame, &headers), None, "{frame:02x?}");
    }
}

#[test]
fn tags_are_put_before_others_and_taken_off_again() {
    let bare = packet(Network::V4, Transport::Udp, false);
    let mut frame = bare.clone();
    push_tag(&mut frame, VLAN, 0x2005);
    push_tag(&mut frame, SERVICE_VLAN, 0x0006);
    assert_eq!(frame[..12], bare[..12]);
    assert_eq!(frame[12..20], [0x88, 0xa8, 0, 6, 0x81, 0, 0x20, 5]);
    assert_eq!(frame[20..], bare[12..]);
    for vlan in [Some((SERVICE_VLAN, 6)), Some((VLAN, 0x2005)), None, None] {
        assert_eq!(Headers::of(&frame).unwrap().vlan, vlan);
        pop_tag(&mut frame);
    }
    assert_eq!(frame, bare);
}

proptest! {
    #[test]
    fn any_bytes_are_opened_without_panic(
        mut inner in proptest::collection::vec(any::<u8>(), 0..60),
        which in 0..18usize, cut in 0..80usize,
    ) {
        let tunnels = [frame_tunnels(), packet_tunnels(Network::V4)].concat();
        let mut frame = encapsulate(&tunnels[which % tunnels.len()], &inner).unwrap();
        frame.truncate(frame.len().saturating_sub(cut).max(HEADER));
        let headers = Headers::of(&frame).unwrap();
        inner_frame(&frame, &headers);
        inner_packet(&frame, &headers);
        pop_tag(&mut inner);
        push_tag(&mut inner, VLAN, 1);
        set_length(&mut inner);
        encapsulate(&inner, &frame);
    }
}
