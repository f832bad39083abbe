//! Unit tests.

use proptest::prelude::*;

use super::*;

/// RFC 1071's own example.
#[test]
fn sums_are_those_of_the_rfc() {
    assert_eq!(fold(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])), 0xddf2);
}

/// A UDP packet over IPv4 of which the checksums were computed by another program (the header
/// is the one that is worked out in Wikipedia's "IPv4 header checksum").
#[test]
fn a_known_header_is_right() {
    let mut frame = vec![0; HEADER];
    frame[12..14].copy_from_slice(&[8, 0]);
    let header = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00,
        0x01, 0xc0, 0xa8, 0x00, 0xc7,
    ];
    frame.extend_from_slice(&header);
    frame.resize(HEADER + 0x73, 0x35);
    let headers = Headers::of(&frame).unwrap();
    assert!(headers.network_is_right(&frame));
    assert_eq!(headers.transport, Some((Transport::Udp, HEADER + 20)));
    frame[HEADER + 8] ^= 1;
    assert!(!headers.network_is_right(&frame));
    headers.fill_network(&mut frame);
    assert!(headers.network_is_right(&frame));
}

proptest! {
    #[test]
    fn what_is_filled_in_is_right(
        v6: bool, tcp: bool, tagged: bool,
        payload in proptest::collection::vec(any::<u8>(), 0..200),
        noise in proptest::collection::vec(any::<u8>(), 80),
    ) {
        let mut frame = noise[..12].to_vec();
        if tagged {
            frame.extend_from_slice(&[0x81, 0, 0x20, 5]);
        }
        let segment = if tcp { 20 } else { 8 } + payload.len();
        let at = frame.len() + 2;
        if v6 {
            frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend_from_slice(&(segment as u16).to_be_bytes());
            frame.extend_from_slice(&[if tcp { TCP } else { UDP }, 64]);
            frame.extend_from_slice(&noise[12..44]);
        } else {
            frame.extend_from_slice(&[0x08, 0, 0x45, 0]);
            frame.extend_from_slice(&(segment as u16 + 20).to_be_bytes());
            frame.extend_from_slice(&[1, 2, 0, 0, 64, if tcp { TCP } else { UDP }, 9, 9]);
            frame.extend_from_slice(&noise[12..20]);
        }
        frame.extend_from_slice(&noise[44..44 + if tcp { 20 } else { 8 }]);
        frame.extend_from_slice(&payload);
        let headers = Headers::of(&frame).unwrap();
        prop_assert_eq!(headers.network.unwrap().1, at);
        prop_assert_eq!(headers.vlan, tagged.then_some((VLAN, 0x2005)));
        headers.fill_network(&mut frame);
        headers.fill_transport(&mut frame);
        prop_assert!(headers.network_is_right(&frame) && headers.transport_is_right(&frame));
        let (_, start) = headers.transport.unwrap();
        frame[start + 1] ^= 0x10;
        prop_assert!(!headers.transport_is_right(&frame));
    }

    #[test]
    fn any_bytes_are_read_without_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..120),
        kind in prop_oneof![Just(IPV4), Just(IPV6), Just(VLAN), any::<u16>()],
        version in prop_oneof![Just(0x45u8), Just(0x60), any::<u8>()],
    ) {
        if bytes.len() > HEADER {
            bytes[12..14].copy_from_slice(&kind.to_be_bytes());
            bytes[14] = version;
        }
        if let Some(headers) = Headers::of(&bytes) {
            headers.ports(&bytes);
            headers.transport_length(&bytes);
            headers.network_is_right(&bytes);
            headers.transport_is_right(&bytes);
            headers.fill_network(&mut bytes);
            headers.fill_transport(&mut bytes);
        }
    }
}
