//! Unit tests.

use super::*;
use crate::engine::identities;
use crate::wire::Link;
use crate::wire::RoceVersion::{V1, V2};

fn ip(text: &str) -> [u8; 16] {
    gid::of_ip(text.parse().unwrap())
}

/// The neighbours of two ports without an interface, changed.
fn on_view(change: impl FnOnce(&mut Vec<Identity>)) -> Neighbours {
    let mut ports = identities(2, Link::Roce, 0);
    change(&mut ports);
    Neighbours { ports: ports.into(), carrier: None }
}

fn set(port: &mut Identity, addresses: &[&str]) {
    let addresses: Vec<[u8; 16]> = addresses.iter().map(|text| ip(text)).collect();
    port.gids = GidEntry::pairs(&addresses);
}

#[test]
fn a_view_has_the_ports_of_the_machine_and_no_route() {
    let first = port_mac(0);
    let neighbours = on_view(|_| ());
    for (text, v1, v2) in [
        ("198.18.0.1", Ok(first), Ok(first)),
        ("198.18.0.16", Ok(port_mac(15)), Ok(port_mac(15))),
        ("198.18.0.17", Err(Unresolved::Neighbour), Err(Unresolved::Neighbour)),
        ("198.18.0.0", Err(Unresolved::Neighbour), Err(Unresolved::Neighbour)),
        ("10.9.9.9", Err(Unresolved::Route), Err(Unresolved::Route)),
        ("2001:db8::1", Err(Unresolved::Route), Err(Unresolved::Route)),
        ("fe80::526b:4bff:fec0:4e00", Ok(first), Ok(first)),
        // Linux makes the address of v1 from the GID alone.
        ("fe80::200:ff:fe00:9", Ok([0, 0, 0, 0, 0, 9]), Err(Unresolved::Neighbour)),
        ("224.0.0.9", Ok([1, 0, 0x5e, 0, 0, 9]), Ok([1, 0, 0x5e, 0, 0, 9])),
    ] {
        let own = if text.contains(':') { "fe80::526b:4bff:fec0:4e00" } else { "198.18.0.1" };
        let find = |it| neighbours.find(&GidEntry::new(ip(own), it), &ip(text), 0);
        assert_eq!([V1, V2].map(find), [v1, v2], "{text}");
    }
    let ipv4 = GidEntry::new(ip("198.18.0.1"), V2);
    assert_eq!(neighbours.find(&ipv4, &ip("2001:db8::1"), 0), Err(Unresolved::Family));
    assert_eq!(neighbours.address(&ip("10.9.9.9"), None), mac(&ip("10.9.9.9")));
}

#[test]
fn a_view_has_the_addresses_that_its_ports_were_given() {
    let neighbours = on_view(|ports| {
        set(&mut ports[0], &["192.0.2.1"]);
        set(&mut ports[1], &["192.0.2.2"]);
    });
    let from = GidEntry::new(ip("192.0.2.1"), V2);
    for (text, found) in [
        ("192.0.2.2", Ok(port_mac(1))),
        ("192.0.2.3", Err(Unresolved::Neighbour)),
        ("192.0.3.1", Err(Unresolved::Route)),
        // The second port no longer has it. The third is another process's.
        ("198.18.0.2", Err(Unresolved::Neighbour)),
        ("198.18.0.3", Ok(port_mac(2))),
    ] {
        assert_eq!(neighbours.find(&from, &ip(text), 0), found, "{text}");
    }
}

#[test]
fn a_port_on_an_interface_has_the_routes_of_the_machine() {
    let on = |carrier| {
        let mut ports = identities(1, Link::Roce, 0);
        set(&mut ports[0], &["127.0.0.1"]);
        Neighbours { ports: ports.into(), carrier: Some(carrier) }
    };
    let find = |neighbours: &Neighbours, to: &str, version| {
        neighbours.find(&GidEntry::new(ip("127.0.0.1"), version), &ip(to), 1)
    };
    let udp = on(Carrier::Udp);
    assert_eq!(find(&udp, "127.0.0.1", V1), Ok(port_mac(0)));
    assert_eq!(find(&udp, "127.0.0.2", V2), Ok(mac(&ip("127.0.0.2"))));
    assert_eq!(find(&udp, "127.0.0.2", V1), Err(Unresolved::Version));
    // No port has the address of all (RFC 919).
    let machine = on(Carrier::Machine);
    assert_eq!(find(&machine, "255.255.255.255", V2), Err(Unresolved::Route));
}

#[test]
fn ports_reach_those_of_their_own_vlan() {
    let of = |text: &str, vlan: Option<u16>| GidEntry { vlan, ..GidEntry::new(ip(text), V2) };
    let mut ports = identities(3, Link::Roce, 0);
    ports[0].gids = vec![of("192.0.2.1", Some(5)), of("192.0.2.1", None)];
    // The same address, at one port in VLAN 5, at another one in none.
    ports[1].gids = vec![of("192.0.2.2", Some(5)), of("192.0.2.3", Some(6))];
    ports[2].gids = vec![of("192.0.2.2", None)];
    let all = |carrier| Neighbours { ports: ports.clone().into(), carrier };
    let view = all(None);
    let far = ip("192.0.2.2");
    assert_eq!(view.find(&of("192.0.2.1", Some(5)), &far, 0), Ok(port_mac(1)));
    assert_eq!(view.find(&of("192.0.2.1", None), &far, 0), Ok(port_mac(2)));
    assert_eq!(view.address(&far, Some(5)), port_mac(1));
    assert_eq!(view.address(&far, None), port_mac(2));
    for (vlan, to, error) in [
        // Nobody answers in the VLAN's network. Another VLAN has no such network.
        (Some(5), "192.0.2.3", Unresolved::Neighbour),
        (Some(7), "192.0.2.3", Unresolved::Route),
        // Ports of other processes are of no VLAN.
        (Some(5), "198.18.0.9", Unresolved::Route),
        (None, "192.0.2.3", Unresolved::Neighbour),
    ] {
        assert_eq!(view.find(&of("192.0.2.1", vlan), &ip(to), 0), Err(error), "{vlan:?} to {to}");
    }
    let machine = all(Some(Carrier::Machine));
    assert_eq!(machine.find(&of("192.0.2.1", Some(5)), &far, 0), Ok(port_mac(1)));
    let lost = machine.find(&of("192.0.2.1", Some(7)), &far, 0);
    assert_eq!(lost, Err(Unresolved::Neighbour));
}
