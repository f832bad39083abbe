//! Unit tests.

use super::*;

#[test]
fn addresses_survive_the_way_to_verbs_and_back() {
    let plain = AddressVector { service_level: 3, ..AddressVector::lid(1, 0x17) };
    assert_eq!(AddressVector::from_raw(&plain.to_raw()), plain);
    let mut global = AddressVector::gid(2, 3, "192.0.2.1".parse().unwrap());
    if let Some(route) = &mut global.global {
        (route.flow_label, route.traffic_class) = (0xabcde, 0x68);
    }
    assert_eq!(AddressVector::from_raw(&global.to_raw()), global);
}

#[test]
fn gids_that_cannot_reach_each_other_are_told_apart() {
    let reaches = |kind, source: &str, destination: &str| {
        let gid = source.parse().unwrap();
        let source = GidEntry { port: 1, index: 3, gid, kind, interface: 2 };
        let route = AddressVector::gid(1, 3, destination.parse().unwrap()).global.unwrap();
        route.check_kind(&source).map_err(|error| error.to_string())
    };
    let (v4, v6, link) = ("192.0.2.1", "2001:db8::1", "fe80::1");
    for (kind, source, destination) in [
        (GidType::InfiniBand, link, v4),
        (GidType::RoceV1, link, link),
        (GidType::RoceV1, v4, v4),
        (GidType::RoceV2, v4, "192.0.2.2"),
        (GidType::RoceV2, v6, link),
        (GidType::RoceV1, v4, "ff0e::ffff:ef01:101"),
        (GidType::RoceV2, v4, "239.1.1.1"),
        (GidType::RoceV2, v6, "ff0e::1"),
    ] {
        assert_eq!(reaches(kind, source, destination), Ok(()));
    }
    for (kind, source, destination) in [
        (GidType::RoceV1, link, v4),
        (GidType::RoceV2, link, v4),
        (GidType::RoceV2, v4, v6),
        (GidType::RoceV2, v4, "ff0e::1"),
        (GidType::RoceV2, v6, "239.1.1.1"),
    ] {
        let text = reaches(kind, source, destination).unwrap_err();
        assert!(text.contains("GID index 3") && text.contains("wrong kind"), "{text}");
    }
}
