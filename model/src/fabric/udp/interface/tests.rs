//! Unit tests.

use super::*;

#[test]
fn path_mtu_is_the_largest_that_fits_with_headers() {
    for (mtu, log) in [(1500, 10), (1400, 10), (9000, 12), (4200, 12), (4195, 11), (356, 8)] {
        assert_eq!(ethernet::log_mtu(mtu), Some(log), "{mtu}");
    }
    assert_eq!(ethernet::log_mtu(355), None);
}

#[test]
fn loopback_is_found_by_name_and_by_address() {
    let lo = Interface::find("lo", Carrier::Udp).unwrap();
    assert_eq!((lo.index, lo.mac, lo.log_mtu), (1, [0; 6], 12));
    let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1];
    assert_eq!(lo.gids[0], mapped);
    let one = Interface::find("127.0.0.1", Carrier::Udp).unwrap();
    assert_eq!((one.name.as_str(), one.gids), ("lo", vec![mapped]));
}

#[test]
fn failure_names_the_interface_and_the_cure() {
    let error = Interface::find("nowhere0", Carrier::Udp).unwrap_err();
    assert!(error.contains("nowhere0") && error.contains("lo"), "{error}");
    let error = Interface::find("192.0.2.77", Carrier::Udp).unwrap_err();
    assert!(error.contains("ip address add 192.0.2.77"), "{error}");
}

#[test]
fn table_starts_with_the_address_made_of_the_mac() {
    let mac = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];
    let gid = |text: &str| gid::of_ip(text.parse().unwrap());
    let order = ["fe80::11:22ff:fe33:4455", "fe80::1", "192.0.2.1", "2001:db8::1"];
    let ranks: Vec<u8> = order.iter().map(|text| rank(&gid(text), &mac)).collect();
    assert_eq!(ranks, [0, 1, 2, 3]);
}

#[test]
fn address_that_another_node_has_is_left_out() {
    let line = |flags: &str| format!("fe80000000000000001122fffe334455 02 40 20 {flags} eth0");
    let gid = gid::of_ip("fe80::11:22ff:fe33:4455".parse().unwrap());
    assert_eq!(ipv6(&line("80")), Some((2, gid)));
    assert_eq!(ipv6(&line("40")), Some((2, gid)), "another node may still object");
    assert_eq!(ipv6(&line("c8")), None);
    assert_eq!(ipv6("what is this"), None);
}
