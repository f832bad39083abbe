//! Unit tests.

use super::*;

#[test]
fn gids_print_and_parse_as_addresses() {
    let gid: Gid = "192.0.2.7".parse().unwrap();
    assert_eq!(gid.to_string(), "::ffff:192.0.2.7");
    assert_eq!(gid.ipv4(), Some(Ipv4Addr::new(192, 0, 2, 7)));
    let gid: Gid = "fe80::c42:a103:65:d8e1".parse().unwrap();
    assert_eq!(gid.subnet_prefix(), 0xfe80 << 48);
    assert_eq!(gid.interface_id(), Guid(0x0c42_a103_0065_d8e1));
    assert!(gid.is_link_local() && !gid.is_multicast() && gid.ipv4().is_none());
    assert!(Gid::default().is_zero());
}

#[test]
fn guids_print_as_ibv_devinfo_prints_them() {
    assert_eq!(Guid(0x0c42_a103_0065_d8e1).to_string(), "0c42:a103:0065:d8e1");
}
