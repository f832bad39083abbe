//! Tests of GIDs of VLANs: the tag of packets, and which packets a port and a queue pair take.

use std::cell::RefCell;
use std::rc::Rc;

use super::datagram::{datagram, datagrams, group};
use super::side::Side;
use super::{Pair, Setup};
use crate::card::Link;
use crate::identity::GidEntry;
use crate::object::Service;
use crate::wire::{Frame, Header, Opcode, Route, Tag};

/// Offset in the region that receives scatter to.
const TO: u64 = 256 << 10;
const GRH: usize = 40;

/// Two sides, each with a GID of a VLAN or of none.
fn pair(setup: Setup, vlans: [Option<u16>; 2]) -> Pair {
    let mut sides = [0, 1].map(|index| {
        let mut side = Side::new(setup, index);
        side.rig.card.identity.gids[0].vlan = vlans[index];
        side
    });
    Pair::connect(&mut sides, [setup; 2]);
    Pair::between(sides)
}

/// Keeps all packets of a pair.
fn frames(pair: &mut Pair) -> Rc<RefCell<Vec<Frame>>> {
    let frames = Rc::new(RefCell::new(Vec::new()));
    let seen = frames.clone();
    pair.drop = Box::new(move |_, frame| {
        seen.borrow_mut().push(frame.clone());
        false
    });
    frames
}

fn of(service: Service) -> Setup {
    let setup = if service == Service::Ud { datagrams() } else { Setup::default() };
    Setup { link: Link::Roce, service, priority: 3, ..setup }
}

/// Sends a message to the other side. Returns whether it arrives.
fn arrives(pair: &mut Pair, setup: Setup) -> bool {
    let post = datagram(pair, setup, 8);
    let [own, peer] = &mut pair.sides;
    own.put(0, b"a packet");
    match setup.service {
        Service::Ud => {
            peer.receive(&[(TO, 100, peer.key)]);
            own.post(&post);
        }
        _ => drop(own.write_to(TO, 8, peer.key)),
    }
    pair.settle();
    let at = if setup.service == Service::Ud { TO + GRH as u64 } else { TO };
    pair.sides[1].get(at, 8) == b"a packet"
}

#[test]
fn packets_of_a_vlan_have_its_tag_and_the_priority_of_their_path() {
    for service in [Service::Rc, Service::Uc, Service::Ud] {
        let setup = of(service);
        let mut pair = pair(setup, [Some(5); 2]);
        let frames = frames(&mut pair);
        assert!(arrives(&mut pair, setup), "{service:?}");
        let frames = frames.borrow();
        let count = if service == Service::Rc { 2 } else { 1 };
        assert_eq!(frames.len(), count, "{service:?}: a request, and an acknowledge of RC");
        for frame in &*frames {
            // Type of the tag, priority 3 of VLAN 5, type of IPv6.
            assert_eq!(frame.0[12..18], [0x81, 0, 0x60, 5, 0x86, 0xdd], "{service:?}");
            assert!(Header::decode(Link::Roce, &frame.0).is_ok());
        }
    }
}

#[test]
fn ports_take_packets_of_their_gids_vlan_alone() {
    for service in [Service::Rc, Service::Uc, Service::Ud] {
        let setup = of(service);
        for (vlans, result) in [
            ([None, None], true),
            ([Some(5), Some(5)], true),
            ([Some(5), Some(6)], false),
            ([Some(5), None], false),
            ([None, Some(5)], false),
            // A tag of VLAN 0 has a priority alone.
            ([Some(0), None], true),
            ([None, Some(0)], true),
        ] {
            let mut pair = pair(setup, vlans);
            assert_eq!(arrives(&mut pair, setup), result, "{service:?}, {vlans:?}");
        }
    }
}

#[test]
fn a_connection_takes_packets_of_its_own_vlan_though_its_port_is_in_both() {
    let setup = of(Service::Uc);
    let both = |vlans: [Option<u16>; 2]| {
        let mut pair = pair(setup, vlans);
        let identity = &mut pair.sides[1].rig.card.identity;
        let entry = identity.gids[0];
        identity.gids.extend([5, 6].map(|vlan| entry.in_vlan(vlan)));
        identity.gids.push(GidEntry { vlan: None, ..entry });
        pair
    };
    for (vlans, result) in [
        ([Some(5), Some(5)], true),
        ([Some(5), Some(6)], false),
        ([Some(5), None], false),
        ([None, Some(5)], false),
        ([None, None], true),
    ] {
        assert_eq!(arrives(&mut both(vlans), setup), result, "{vlans:?}");
    }
}

#[test]
fn a_datagram_of_a_vlan_shows_its_ip_header_and_its_tag() {
    let setup = of(Service::Ud);
    for (vlan, control) in [(Some(5), Some(0x6005)), (None, None)] {
        let mut pair = pair(setup, [vlan; 2]);
        assert!(arrives(&mut pair, setup));
        let cqe = pair.sides[1].poll(1).expect("a completion");
        assert_eq!(cqe.tag, control);
        let header = pair.sides[1].get(TO, GRH);
        // Version of IP, and UDP behind it.
        assert_eq!((header[0] >> 4, header[6]), (6, 17));
        assert_eq!(header[24..40], pair.sides[1].rig.card.identity.gids[0].gid);
    }
}

#[test]
fn groups_are_reached_in_the_vlans_of_a_ports_gids() {
    let setup = of(Service::Ud);
    for (vlans, result) in [
        ([Some(5), Some(5)], true),
        ([Some(5), Some(6)], false),
        ([Some(5), None], false),
        ([None, Some(5)], true),
    ] {
        let mut pair = pair(setup, vlans);
        let (gid, address) = group(setup, &pair.sides[1], 0xc007);
        let mut post = datagram(&pair, setup, 8);
        post.address = address;
        let [own, peer] = &mut pair.sides;
        peer.rig.card.objects.groups.attach(gid, peer.qp);
        peer.receive(&[(TO, 100, peer.key)]);
        own.post(&post);
        pair.settle();
        assert_eq!(pair.sides[1].poll(1).is_some(), result, "{vlans:?}");
    }
}

#[test]
fn a_mark_of_congestion_is_answered_in_the_vlan() {
    let setup = of(Service::Ud);
    let mut pair = pair(setup, [Some(5); 2]);
    let frames = frames(&mut pair);
    assert!(arrives(&mut pair, setup));
    let mut marked = frames.borrow()[0].clone();
    Route::mark_congestion(Link::Roce, &mut marked.0);
    let peer = &mut pair.sides[1];
    peer.receive(&[(TO, 100, peer.key)]);
    peer.rig.card.receive(&marked);
    pair.settle();
    assert_eq!(pair.sides[1].drain(1).len(), 2, "a mark harms no packet");
    let frames = frames.borrow();
    let (header, _) = Header::decode(Link::Roce, &frames.last().unwrap().0).unwrap();
    assert_eq!(header.opcode, Opcode::CongestionNotification);
    // Their priority is a setting of the port.
    assert_eq!(header.route.tag(), Some(Tag { vlan: 5, priority: 6 }));
    assert_eq!(pair.sides[0].rig.card.congestion.handled, 1);
}
