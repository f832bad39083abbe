//! Unit tests.

use super::*;
use RoceVersion::{V1, V2};

fn ip(text: &str) -> [u8; 16] {
    gid::of_ip(text.parse().unwrap())
}

const DEFAULT: &str = "fe80::11:22ff:fe33:4455";

/// The table of a port with two addresses, of 8 entries.
fn table() -> Gids {
    let addresses = [DEFAULT, "192.0.2.1", "192.0.2.2"].map(ip);
    Gids::new(&GidEntry::pairs(&addresses), 8, Some(ip(DEFAULT)))
}

fn change(index: usize, entry: Option<(&str, RoceVersion)>) -> Change {
    let entry = entry.map_or_else(GidEntry::default, |(text, it)| GidEntry::new(ip(text), it));
    Change { index, entry }
}

#[test]
fn a_new_address_takes_the_places_of_one_that_was_removed() {
    let mut table = table();
    let default = Some(ip(DEFAULT));
    let changes = table.follow(default, &[ip("192.0.2.2")]);
    assert_eq!(changes, [change(2, None), change(3, None)]);
    assert!(table.get(2).is_none() && table.get(3).is_none());
    let changes = table.follow(default, &["192.0.2.2", "2001:db8::1"].map(ip));
    let new = "2001:db8::1";
    assert_eq!(changes, [change(2, Some((new, V1))), change(3, Some((new, V2)))]);
    assert_eq!(table.follow(default, &["2001:db8::1", "192.0.2.2"].map(ip)), []);
}

#[test]
fn the_place_of_an_entry_in_use_stays_taken() {
    let mut table = table();
    let default = Some(ip(DEFAULT));
    let held = table.get(3).cloned();
    table.follow(default, &[ip("192.0.2.2")]);
    assert!(table.get(3).is_none());
    // The address itself comes back at other places.
    let changes = table.follow(default, &["192.0.2.2", "192.0.2.1"].map(ip));
    let back = "192.0.2.1";
    assert_eq!(changes, [change(2, Some((back, V1))), change(6, Some((back, V2)))]);
    drop(held);
    let changes = table.follow(default, &["192.0.2.2", "192.0.2.1", "192.0.2.9"].map(ip));
    let new = "192.0.2.9";
    assert_eq!(changes, [change(3, Some((new, V1))), change(7, Some((new, V2)))]);
}

#[test]
fn the_default_gid_has_the_first_entries_whatever_the_addresses() {
    let mut table = table();
    let default = Some(ip(DEFAULT));
    assert_eq!(table.follow(default, &[]).len(), 4);
    // The interface's own link-local address is the default GID.
    assert_eq!(table.follow(default, &[ip(DEFAULT), [0; 16]]), []);
    let gone = table.follow(None, &[]);
    assert_eq!(gone, [change(0, None), change(1, None)]);
    // No other address gets its places.
    let changes = table.follow(None, &[ip("192.0.2.1")]);
    assert_eq!(changes.iter().map(|change| change.index).collect::<Vec<_>>(), [2, 3]);
    let changes = table.follow(default, &[ip("192.0.2.1")]);
    assert_eq!(changes, [change(0, Some((DEFAULT, V1))), change(1, Some((DEFAULT, V2)))]);
}

#[test]
fn an_address_without_a_free_place_is_left_out() {
    let mut table = table();
    let addresses = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"].map(ip);
    assert_eq!(table.follow(Some(ip(DEFAULT)), &addresses).len(), 2);
    assert_eq!(table.entries()[6].gid, ip("192.0.2.3"));
    assert_eq!(table.entries().len(), 8);
}
