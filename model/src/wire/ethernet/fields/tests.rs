//! Unit tests.

use proptest::prelude::*;

use super::super::{IPV4, IPV6, VLAN};
use super::*;

/// A packet of TCP or UDP with right checksums, and 30 bytes above.
pub(in super::super) fn packet(version: Network, transport: Transport, tagged: bool) -> Vec<u8> {
    let mut frame: Vec<u8> = (1..=12).collect();
    if tagged {
        frame.extend_from_slice(&VLAN.to_be_bytes());
        frame.extend_from_slice(&[0x60, 5]);
    }
    let (protocol, header) = match transport {
        Transport::Tcp => (6, vec![0x50; 20]),
        Transport::Udp => (17, vec![0x50; 8]),
    };
    let length = header.len() as u8 + 30;
    match version {
        Network::V4 => {
            frame.extend_from_slice(&IPV4.to_be_bytes());
            frame.extend_from_slice(&[0x45, 0xb9, 0, 20 + length, 0, 1, 0, 0, 64, protocol, 0, 0]);
            frame.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        }
        Network::V6 => {
            frame.extend_from_slice(&IPV6.to_be_bytes());
            frame.extend_from_slice(&[0x6b, 0x90, 0, 0, 0, length, protocol, 64]);
            frame.extend(100..132);
        }
    }
    frame.extend_from_slice(&header);
    frame.extend(0..30);
    let headers = Headers::of(&frame).unwrap();
    headers.fill_network(&mut frame);
    headers.fill_transport(&mut frame);
    frame
}

fn changed(frame: &[u8], actions: &[FieldAction]) -> (Vec<u8>, Metadata) {
    let (mut frame, mut metadata) = (frame.to_vec(), Metadata::default());
    let headers = Headers::of(&frame).unwrap();
    change(&mut frame, &headers, &mut metadata, actions);
    (frame, metadata)
}

fn whole(number: u32) -> FieldPart {
    FieldPart::whole(number).unwrap()
}

fn set(number: u32, value: u32) -> FieldAction {
    FieldAction::Set(whole(number), value)
}

fn is_right(frame: &[u8]) -> bool {
    let headers = Headers::of(frame).unwrap();
    headers.network_is_right(frame) && headers.transport_is_right(frame)
}

/// A field by number in a packet, a value, and the bytes that stand at a place once it is set.
type FieldCase = (u32, Network, Transport, u32, usize, &'static [u8]);

#[test]
fn every_field_lies_where_its_header_has_it() {
    use Network::{V4, V6};
    use Transport::{Tcp, Udp};
    let cases: &[FieldCase] = &[
        (0x01, V4, Udp, 0xa1b2_c3d4, 6, &[0xa1, 0xb2, 0xc3, 0xd4, 11]),
        (0x02, V4, Udp, 0xa1b2, 10, &[0xa1, 0xb2, 0x81]),
        (0x04, V4, Udp, 0xa1b2_c3d4, 0, &[0xa1, 0xb2, 0xc3, 0xd4, 5]),
        (0x05, V4, Udp, 0xa1b2, 4, &[0xa1, 0xb2, 7]),
        (0x17, V4, Udp, 0x0abc, 14, &[0x6a, 0xbc]),
        (0x06, V4, Udp, 0x3f, 18, &[0x45, 0xfd, 0]),
        (0x06, V6, Udp, 0x3f, 18, &[0x6f, 0xd0, 0]),
        (0x0a, V4, Udp, 9, 26, &[9, 17]),
        (0x47, V6, Udp, 9, 24, &[17, 9]),
        (0x15, V4, Udp, 0xa1b2_c3d4, 30, &[0xa1, 0xb2, 0xc3, 0xd4, 10]),
        (0x16, V4, Udp, 0xa1b2_c3d4, 34, &[0xa1, 0xb2, 0xc3, 0xd4, 0x50]),
        (0x0d, V6, Tcp, 0xa1b2_c3d4, 26, &[0xa1, 0xb2, 0xc3, 0xd4]),
        (0x0e, V6, Tcp, 0xa1b2_c3d4, 30, &[0xa1, 0xb2, 0xc3, 0xd4]),
        (0x0f, V6, Tcp, 0xa1b2_c3d4, 34, &[0xa1, 0xb2, 0xc3, 0xd4]),
        (0x10, V6, Tcp, 0xa1b2_c3d4, 38, &[0xa1, 0xb2, 0xc3, 0xd4]),
        (0x11, V6, Tcp, 0xa1b2_c3d4, 42, &[0xa1, 0xb2, 0xc3, 0xd4]),
        (0x12, V6, Tcp, 0xa1b2_c3d4, 46, &[0xa1, 0xb2, 0xc3, 0xd4]),
        (0x13, V6, Tcp, 0xa1b2_c3d4, 50, &[0xa1, 0xb2, 0xc3, 0xd4]),
        (0x14, V6, Tcp, 0xa1b2_c3d4, 54, &[0xa1, 0xb2, 0xc3, 0xd4, 0x50]),
        (0x08, V4, Tcp, 0xa1b2, 38, &[0xa1, 0xb2, 0x50]),
        (0x09, V4, Tcp, 0xa1b2, 40, &[0xa1, 0xb2, 0x50]),
        (0x59, V4, Tcp, 0xa1b2_c3d4, 42, &[0xa1, 0xb2, 0xc3, 0xd4]),
        (0x5b, V4, Tcp, 0xa1b2_c3d4, 46, &[0xa1, 0xb2, 0xc3, 0xd4]),
        (0x07, V4, Tcp, 0x1ff, 50, &[0x51, 0xff]),
        (0x0b, V6, Udp, 0xa1b2, 58, &[0xa1, 0xb2, 0x50]),
        (0x0c, V6, Udp, 0xa1b2, 60, &[0xa1, 0xb2]),
    ];
    for &(number, version, transport, value, at, bytes) in cases {
        let before = packet(version, transport, true);
        assert_ne!(before[at..at + bytes.len()], *bytes, "{number:#x}");
        let (frame, _) = changed(&before, &[set(number, value)]);
        assert_eq!(frame[at..at + bytes.len()], *bytes, "{number:#x}");
        assert!(is_right(&frame), "{number:#x}");
        let read = FieldAction::Copy(
            whole(number),
            FieldPart::new(0x51, 0, whole(number).length).unwrap(),
        );
        assert_eq!(changed(&frame, &[read]).1[0], value, "{number:#x}");
    }
    let covered = |field: &HeaderField| cases.iter().any(|case| case.0 == u32::from(field.number));
    // The type is tested below, since a packet of another type has other headers.
    let kept =
        FIELDS.iter().filter(|field| !matches!(field.place, Place::Register(_) | Place::Kind));
    assert!(
        kept.clone().all(covered),
        "{:?}",
        kept.filter(|field| !covered(field)).collect::<Vec<_>>()
    );
}

#[test]
fn the_type_lies_behind_the_tag() {
    for (tagged, at) in [(false, 12), (true, 16)] {
        let before = packet(Network::V4, Transport::Udp, tagged);
        let (frame, _) = changed(&before, &[set(0x03, 0x88b5)]);
        assert_eq!(frame[at..at + 2], [0x88, 0xb5]);
        assert_eq!((&frame[..at], &frame[at + 2..]), (&before[..at], &before[at + 2..]));
    }
}

#[test]
fn a_sum_does_not_leave_its_field() {
    let before = packet(Network::V4, Transport::Tcp, false);
    // The time to live is 64: minus one, as drivers say it, and twice around.
    for (added, left) in [(0xff, 63), (0xffff_ffff, 63), (192, 0)] {
        let (frame, _) = changed(&before, &[FieldAction::Add(whole(0x0a), added)]);
        assert_eq!((frame[22], frame[23]), (left, 6));
        assert!(is_right(&frame));
    }
}

#[test]
fn addresses_change_places_by_way_of_registers() {
    let before = packet(Network::V4, Transport::Udp, false);
    let copy = |from, to| FieldAction::Copy(whole(from), whole(to));
    let short = |from, to| {
        FieldAction::Copy(FieldPart::new(from, 0, 16).unwrap(), FieldPart::new(to, 0, 16).unwrap())
    };
    let actions = [
        copy(0x01, 0x51),
        short(0x02, 0x52),
        copy(0x04, 0x01),
        copy(0x05, 0x02),
        copy(0x51, 0x04),
        short(0x52, 0x05),
    ];
    let (frame, metadata) = changed(&before, &actions);
    assert_eq!((&frame[..6], &frame[6..12]), (&before[6..12], &before[..6]));
    assert_eq!(frame[12..], before[12..]);
    assert_eq!(metadata[..3], [0x0708_090a, 0x0b0c, 0]);
}

#[test]
fn a_field_that_a_packet_lacks_is_left_alone() {
    let udp = packet(Network::V4, Transport::Udp, false);
    let mut fragment = udp.clone();
    fragment[20] = 0x20;
    // TCP's port, IPv6's limit, the tag; and UDP's port where no header of UDP is.
    for (frame, number) in [(&udp, 0x08), (&udp, 0x47), (&udp, 0x17), (&fragment, 0x0b)] {
        assert_eq!(changed(frame, &[set(number, 1)]).0, *frame, "{number:#x}");
        let read = FieldPart::new(number, 0, 8).unwrap();
        let action = FieldAction::Copy(read, FieldPart::new(0x51, 0, 8).unwrap());
        assert_eq!(changed(frame, &[set(0x51, 0x1ff), action]).1[0], 0x100);
    }
}

#[test]
fn a_udp_packet_without_a_checksum_stays_without() {
    let mut frame = packet(Network::V4, Transport::Udp, false);
    frame[40..42].fill(0);
    let (frame, _) = changed(&frame, &[set(0x0b, 7), set(0x16, 9)]);
    assert_eq!(frame[40..42], [0, 0]);
    assert!(is_right(&frame));
}

#[test]
fn parts_lie_in_their_fields() {
    assert_eq!(FieldPart::new(0x02, 8, 9), Err(NoPart::Range));
    assert_eq!(FieldPart::new(0x02, 0, 0), Err(NoPart::Range));
    assert_eq!(FieldPart::new(0x01, 0, 0), Ok(whole(0x01)));
    assert_eq!(FieldPart::new(0x18, 0, 1), Err(NoPart::Number));
    assert_eq!(FieldPart::whole(0), Err(NoPart::Number));
    let before = packet(Network::V4, Transport::Udp, false);
    let part = FieldPart::new(0x15, 8, 16).unwrap();
    let (frame, _) = changed(&before, &[FieldAction::Set(part, 0xffff_1234)]);
    assert_eq!(frame[26..30], [10, 0x12, 0x34, 1]);
}

proptest! {
    /// Damage shows behind a change as before it.
    #[test]
    fn checksums_stay_as_right_as_they_were(
        v6: bool, tcp: bool, tagged: bool, damaged: Option<prop::sample::Index>,
        values in proptest::collection::vec((0..FIELDS.len(), any::<u32>()), 1..8),
    ) {
        let version = if v6 { Network::V6 } else { Network::V4 };
        let transport = if tcp { Transport::Tcp } else { Transport::Udp };
        let mut before = packet(version, transport, tagged);
        if let Some(index) = damaged {
            let at = before.len() - 1 - index.index(20);
            before[at] ^= 0x10;
        }
        let headers = Headers::of(&before).unwrap();
        let number = |at: usize| FIELDS[at].number.into();
        // Not the type: headers of another are found no more.
        let actions = values.iter().filter(|(at, _)| FIELDS[*at].place != Place::Kind);
        let actions: Vec<FieldAction> = actions.map(|(at, value)| set(number(*at), *value)).collect();
        let (frame, _) = changed(&before, &actions);
        prop_assert_eq!(headers.network_is_right(&frame), headers.network_is_right(&before));
        prop_assert_eq!(headers.transport_is_right(&frame), headers.transport_is_right(&before));
    }

    #[test]
    fn any_bytes_are_changed_without_panic(
        mut frame in proptest::collection::vec(any::<u8>(), HEADER..90),
        kind in prop_oneof![Just(IPV4), Just(IPV6), Just(VLAN)],
        values in proptest::collection::vec((0..FIELDS.len(), any::<u32>()), 1..16),
    ) {
        frame[12..14].copy_from_slice(&kind.to_be_bytes());
        if frame.len() > HEADER {
            frame[HEADER] = if kind == IPV6 { 0x60 } else { 0x45 };
        }
        let length = frame.len();
        let actions: Vec<FieldAction> =
            values.iter().map(|(at, value)| set(FIELDS[*at].number.into(), *value)).collect();
        prop_assert_eq!(changed(&frame, &actions).0.len(), length);
    }
}
