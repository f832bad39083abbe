//! Unit tests.

use super::*;
use crate::engine::identities;

fn entry(text: &str, vlan: Option<u16>) -> GidEntry {
    let entry = GidEntry::new(gid::of_ip(text.parse().unwrap()), RoceVersion::V2);
    GidEntry { vlan, ..entry }
}

fn socket(text: &str) -> SocketAddr {
    SocketAddr::new(text.parse().unwrap(), 0)
}

/// Two ports with addresses of their own, and in VLANs.
fn ports() -> Vec<Identity> {
    let mut ports = identities(2, Link::Roce, 0);
    ports[0].gids =
        vec![entry("198.18.0.1", None), entry("192.0.2.1", Some(5)), entry("192.0.2.1", Some(7))];
    ports[1].gids = vec![
        entry("198.18.0.2", None),
        entry("192.0.2.2", Some(5)),
        entry("192.0.2.3", Some(6)),
        entry("192.0.2.2", None),
    ];
    ports
}

#[test]
fn a_path_has_both_ends_in_one_vlan() {
    let ports = ports();
    for (to, own, place) in [
        ("198.18.0.2", "198.18.0.1", (0, 0)),
        ("192.0.2.2", "192.0.2.1", (0, 1)),
        // The first port is not of this VLAN: the address talks to itself.
        ("192.0.2.3", "192.0.2.3", (1, 2)),
    ] {
        let (source, here, there) = route(&ports, None, &socket(to)).expect("a path");
        assert_eq!((source, there), (socket(own), gid::of_ip(to.parse().unwrap())));
        assert_eq!((here.card, here.index), place, "to {to}");
    }
}

#[test]
fn a_bound_address_reaches_its_own_vlan() {
    let ports = ports();
    let reaches = |card: usize, index: usize, to: &str| {
        let own = (socket("192.0.2.1"), Place { card, index });
        route(&ports, Some(own), &socket(to)).is_some()
    };
    // The destination has the address in VLAN 5 and in none.
    assert!(reaches(0, 1, "192.0.2.2") && reaches(0, 0, "192.0.2.2"));
    assert!(!reaches(0, 2, "192.0.2.2") && !reaches(0, 1, "192.0.2.3"));
    assert!(!reaches(0, 1, "198.18.0.2"));
}

#[test]
fn a_place_is_found_by_address_and_vlan() {
    let ports = ports();
    let gid = gid::of_ip("192.0.2.2".parse().unwrap());
    let place = |card, index| Some(Place { card, index });
    assert_eq!(place_in_vlan(&ports, &gid, 5), place(1, 1));
    assert_eq!(place_in_vlan(&ports, &gid, 0), place(1, 3));
    assert_eq!(place_in_vlan(&ports, &gid, 6), None);
}
