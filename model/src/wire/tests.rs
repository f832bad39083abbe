//! Tests of addresses, and of which Ethernet frames are packets of the transport.

use super::{Ecn, Frame, Global, Header, Link, LinkAddress, Opcode, Route, Tag, mac};

fn mapped(host: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, host]
}

fn link_local(host: u8) -> [u8; 16] {
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0xff, 0xfe, 3, 4, host]
}

const FROM: [u8; 6] = [2, 1, 2, 3, 4, 5];
const TO: [u8; 6] = [2, 1, 2, 3, 4, 6];

fn roce(source: [u8; 16], destination: [u8; 16]) -> Route {
    let global = Global { traffic_class: 0, flow_label: 0, hop_limit: 64, source, destination };
    Route::Ethernet { source: FROM, destination: TO, tag: None, global, port: Some(0xc001) }
}

fn packet(route: Route) -> Frame {
    Header::new(route, Opcode::SendOnly, 0xffff, 0x1234, 7).bare()
}

#[test]
fn roce_frame_begins_with_the_addresses_and_type_of_ethernet() {
    for (gid, kind) in [(mapped as fn(u8) -> [u8; 16], [8, 0]), (link_local, [0x86, 0xdd])] {
        let frame = packet(roce(gid(1), gid(2)));
        assert_eq!(
            (&frame.0[..6], &frame.0[6..12], &frame.0[12..14]),
            (&TO[..], &FROM[..], &kind[..])
        );
        assert!(frame.is_transport(Link::Roce));
        assert_eq!(LinkAddress::of(Link::Roce, &frame.0), Some(LinkAddress::Mac(TO)));
        let (header, _) = Header::decode(Link::Roce, &frame.0).unwrap();
        let Route::Ethernet { source, destination, .. } = header.route.reverse() else { panic!() };
        assert_eq!((source, destination), (TO, FROM));
        // Its bytes are the same from the IP header on, whatever the addresses of Ethernet are.
        let mut other = roce(gid(1), gid(2));
        if let Route::Ethernet { source, .. } = &mut other {
            *source = [9; 6];
        }
        assert_eq!(packet(other).0[14..], frame.0[14..]);
    }
}

#[test]
fn frame_that_is_not_udp_to_the_port_of_roce_is_no_packet_of_the_transport() {
    let v4 = packet(roce(mapped(1), mapped(2)));
    let v6 = packet(roce(link_local(1), link_local(2)));
    // A type that is not IP, TCP, another port, a fragment, options.
    let changes: [(&Frame, usize, u8); 8] = [
        (&v4, 12, 0x88),
        (&v4, 23, 6),
        (&v4, 37, 0xb8),
        (&v4, 20, 0x20),
        (&v4, 14, 0x46),
        (&v6, 12, 0x08),
        (&v6, 20, 58),
        (&v6, 57, 0xb8),
    ];
    for (frame, at, byte) in changes {
        let mut frame = frame.clone();
        assert_ne!(frame.0[at], byte);
        frame.0[at] = byte;
        assert!(!frame.is_transport(Link::Roce), "byte {at}");
    }
    // A service tag, and two tags.
    for tags in [&[0x88, 0xa8, 0, 5][..], &[0x81, 0, 0, 5, 0x81, 0, 0, 6]] {
        let frame = [&v4.0[..12], tags, &v4.0[12..]].concat();
        assert!(!Frame::new(frame).is_transport(Link::Roce), "{tags:?}");
    }
    for length in 0..38 {
        assert!(!Frame::new(v4.0[..length].to_vec()).is_transport(Link::Roce));
    }
    // A damaged packet is still one of the transport.
    assert!(Frame::new(v4.0[..v4.0.len() - 1].to_vec()).is_transport(Link::Roce));
}

#[test]
fn a_tagged_frame_is_the_untagged_one_with_four_bytes_more() {
    for gid in [mapped, link_local] {
        for version in [None, Some(0xc001)] {
            let mut route = roce(gid(1), gid(2));
            let Route::Ethernet { tag, port, .. } = &mut route else { panic!() };
            (*tag, *port) = (None, version);
            let plain = packet(route);
            let Route::Ethernet { tag, .. } = &mut route else { panic!() };
            *tag = Some(Tag { vlan: 0x123, priority: 5 });
            let tagged = packet(route);
            let expected = [&plain.0[..12], &[0x81, 0, 0xa1, 0x23], &plain.0[12..]].concat();
            assert_eq!(tagged.0, expected);
            assert!(tagged.is_transport(Link::Roce));
            let (header, _) = Header::decode(Link::Roce, &tagged.0).unwrap();
            assert_eq!((header.route, header.route.reverse().tag()), (route, route.tag()));
            // A frame that may be dropped before others (DEI) is of the same VLAN.
            let mut eligible = tagged.clone();
            eligible.0[14] |= 0x10;
            assert_eq!(Route::decode(Link::Roce, &eligible.0), Ok(route));
            for length in 0..tagged.0.len() {
                let cut = &tagged.0[..length];
                assert!(Header::decode(Link::Roce, cut).is_err(), "{length}");
            }
        }
    }
}

#[test]
fn groups_are_told_from_ports() {
    let frame = |lid: u16| {
        let route = Route::InfiniBand { level: 0, source: 1, destination: lid, global: None };
        LinkAddress::of(Link::InfiniBand, &packet(route).0).unwrap()
    };
    assert_eq!(frame(0x1234), LinkAddress::Lid(0x1234));
    for (lid, is_group) in
        [(1, false), (0xbfff, false), (0xc000, true), (0xfffe, true), (0xffff, false)]
    {
        assert_eq!(frame(lid).is_group(), is_group, "{lid:#x}");
    }
    assert!(LinkAddress::Mac([0xff; 6]).is_group());
    assert!(LinkAddress::Mac(mac(&[0xff; 16])).is_group());
    assert!(!LinkAddress::Mac(FROM).is_group());
    for link in [Link::InfiniBand, Link::Roce] {
        assert_eq!(LinkAddress::of(link, &[0; 3]), None);
    }
}

#[test]
fn answer_has_the_hop_limit_of_a_new_packet_and_no_mark() {
    let Route::Ethernet { source, destination, tag, global, port } = roce(mapped(1), mapped(2))
    else {
        panic!()
    };
    let met = Global { hop_limit: 7, traffic_class: 0x68, ..global }.with_ecn(Ecn::Experienced);
    let request = Route::Ethernet { source, destination, tag, global: met, port };
    let turned = Global { source: met.destination, destination: met.source, ..met };
    let expected = Global { hop_limit: 64, traffic_class: 0x68, ..turned };
    let (source, destination) = (destination, source);
    let back = Route::Ethernet { source, destination, tag, global: expected, port };
    assert_eq!(request.answer(), back);
    let infiniband = Route::InfiniBand { level: 3, source: 1, destination: 2, global: Some(met) };
    let back = Route::InfiniBand {
        level: 3,
        source: 2,
        destination: 1,
        global: Some(Global { hop_limit: 255, ..turned }),
    };
    assert_eq!(infiniband.answer(), back);
}
