//! Unit tests.

use super::*;
use crate::fabric::udp::Vlan;
use RoceVersion::{V1, V2};

fn ip(text: &str) -> [u8; 16] {
    gid::of_ip(text.parse().unwrap())
}

const DEFAULT: &str = "fe80::11:22ff:fe33:4455";
const MAC: [u8; 6] = [2, 0x11, 0x22, 0x33, 0x44, 0x55];

/// The table of a port with two addresses, of 8 entries.
fn table() -> Gids {
    let addresses = [DEFAULT, "192.0.2.1", "192.0.2.2"].map(ip);
    let entries = GidEntry::pairs(&addresses);
    Gids::new(&GidTable { entries, vlans: Vec::new() }, 8, Some(ip(DEFAULT)), MAC)
}

/// Changes the addresses of a port without VLANs. Returns what each changed entry has become.
fn follow(table: &mut Gids, default: Option<[u8; 16]>, own: &[[u8; 16]]) -> Vec<(usize, GidEntry)> {
    let changes = table.follow(default, Addresses { own: own.to_vec(), vlans: Vec::new() });
    changes.iter().map(|change| (change.index, change.entry)).collect()
}

fn change(index: usize, entry: Option<(&str, RoceVersion)>) -> (usize, GidEntry) {
    (index, entry.map_or_else(GidEntry::default, |(text, it)| GidEntry::new(ip(text), it)))
}

#[test]
fn a_new_address_takes_the_places_of_one_that_was_removed() {
    let mut table = table();
    let default = Some(ip(DEFAULT));
    let changes = follow(&mut table, default, &[ip("192.0.2.2")]);
    assert_eq!(changes, [change(2, None), change(3, None)]);
    assert!(table.get(2).is_none() && table.get(3).is_none());
    let changes = follow(&mut table, default, &["192.0.2.2", "2001:db8::1"].map(ip));
    let new = "2001:db8::1";
    assert_eq!(changes, [change(2, Some((new, V1))), change(3, Some((new, V2)))]);
    assert_eq!(follow(&mut table, default, &["2001:db8::1", "192.0.2.2"].map(ip)), []);
}

#[test]
fn the_place_of_an_entry_in_use_stays_taken() {
    let mut table = table();
    let default = Some(ip(DEFAULT));
    let held = table.get(3).cloned();
    follow(&mut table, default, &[ip("192.0.2.2")]);
    assert!(table.get(3).is_none());
    // The address itself comes back at other places.
    let changes = follow(&mut table, default, &["192.0.2.2", "192.0.2.1"].map(ip));
    let back = "192.0.2.1";
    assert_eq!(changes, [change(2, Some((back, V1))), change(6, Some((back, V2)))]);
    drop(held);
    let changes = follow(&mut table, default, &["192.0.2.2", "192.0.2.1", "192.0.2.9"].map(ip));
    let new = "192.0.2.9";
    assert_eq!(changes, [change(3, Some((new, V1))), change(7, Some((new, V2)))]);
}

#[test]
fn the_default_gid_has_the_first_entries_whatever_the_addresses() {
    let mut table = table();
    let default = Some(ip(DEFAULT));
    assert_eq!(follow(&mut table, default, &[]).len(), 4);
    // The interface's own link-local address is the default GID.
    assert_eq!(follow(&mut table, default, &[ip(DEFAULT), [0; 16]]), []);
    let gone = follow(&mut table, None, &[]);
    assert_eq!(gone, [change(0, None), change(1, None)]);
    // No other address gets its places.
    let changes = follow(&mut table, None, &[ip("192.0.2.1")]);
    assert_eq!(changes.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [2, 3]);
    let changes = follow(&mut table, default, &[ip("192.0.2.1")]);
    assert_eq!(changes, [change(0, Some((DEFAULT, V1))), change(1, Some((DEFAULT, V2)))]);
}

#[test]
fn an_address_without_a_free_place_is_left_out() {
    let mut table = table();
    let addresses = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"].map(ip);
    assert_eq!(follow(&mut table, Some(ip(DEFAULT)), &addresses).len(), 2);
    assert_eq!(table.entries()[6].gid, ip("192.0.2.3"));
    assert_eq!(table.entries().len(), 8);
}

/// The interface of a VLAN on top of the port's.
fn vlan(id: u16, mac: [u8; 6], addresses: &[&str]) -> Vlan {
    let gids = addresses.iter().map(|text| ip(text)).collect();
    Vlan { id, name: format!("eth0.{id}"), index: 100 + u32::from(id), mac, gids }
}

#[test]
fn addresses_of_vlans_have_entries_of_their_own() {
    let mut table = table();
    let default = Some(ip(DEFAULT));
    let own = vec![ip("192.0.2.1")];
    // The default GID has its places for the port's own interface alone.
    let vlans = vec![vlan(5, MAC, &["192.0.2.1", DEFAULT])];
    let changes = table.follow(default, Addresses { own: own.clone(), vlans });
    let added: Vec<_> = changes.iter().filter(|change| !change.entry.is_empty()).collect();
    let expected: Vec<_> = [("192.0.2.1", 4), (DEFAULT, 6)]
        .into_iter()
        .flat_map(|(text, index)| {
            [(index, V1), (index + 1, V2)]
                .map(|(index, version)| (index, GidEntry::new(ip(text), version).in_vlan(5)))
        })
        .collect();
    assert_eq!(added.iter().map(|it| (it.index, it.entry)).collect::<Vec<_>>(), expected);
    assert_eq!(table.table().vlans[0].name, "eth0.5");
    // The same address goes from one VLAN alone.
    let vlans = vec![vlan(5, MAC, &[DEFAULT])];
    let changes = table.follow(default, Addresses { own: own.clone(), vlans });
    let gone: Vec<_> = changes.iter().map(|change| (change.index, change.before)).collect();
    assert_eq!(gone, expected[..2]);
    assert_eq!(table.get(2).unwrap().gid, own[0]);
}

#[test]
fn the_device_is_told_of_the_vlan_and_of_its_ethernet_address() {
    const OTHER: [u8; 6] = [2, 9, 9, 9, 9, 9];
    let mut table = table();
    let mut written = |mac: [u8; 6], id: u16| {
        let vlans = vec![vlan(id, mac, &["192.0.2.9"])];
        let changes = table.follow(None, Addresses { own: Vec::new(), vlans });
        let added = changes.into_iter().find(|change| !change.entry.is_empty()).expect("an entry");
        added.command(MAC).bytes()[set_roce_address_in::ROCE_ADDRESS.bytes()].to_vec()
    };
    for (mac, id) in [(MAC, 5), (OTHER, 5), (MAC, 4094)] {
        let address = written(mac, id);
        assert_eq!(roce_addr_layout::VLAN_VALID.get(&address), 1);
        assert_eq!(roce_addr_layout::VLAN_ID.get(&address), id.into());
        assert_eq!(address[0x12..0x18], mac);
    }
}
