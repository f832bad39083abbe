use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_request_has_the_layout_of_the_kernel() {
    // `group_req` and `group_source_req` of 64 bits: addresses start at 8, and have 128 bytes.
    assert_eq!(std::mem::offset_of!(GroupRequest, group), 8);
    assert_eq!(size_of::<GroupRequest>(), 136);
    assert_eq!(std::mem::offset_of!(SourceRequest, source), 136);
    assert_eq!(size_of::<SourceRequest>(), 264);
}

#[test]
fn what_is_no_group_is_refused_by_name() {
    for (interface, source, group, named) in [
        ("lo", None, "10.0.0.1", "group"),
        ("lo", Some("fe80::1"), "239.0.0.1", "source"),
        ("none-such", None, "239.0.0.1", "interface"),
        ("a\0b", None, "239.0.0.1", "interface"),
    ] {
        let refused = Group::join(interface, source.map(ip), ip(group)).unwrap_err();
        assert!(matches!(refused, Error::Attribute { attribute, .. } if attribute == named));
    }
}

/// Returns a group that no other process joins, nor another test of this one. `kind` tells these apart.
fn own(kind: u8) -> IpAddr {
    let [_, b, c, d] = std::process::id().to_be_bytes();
    IpAddr::from([kind, b, c, d])
}

#[test]
fn the_kernel_is_a_member_as_long_as_the_group_lives() {
    let group = own(238);
    let IpAddr::V4(address) = group else { panic!("IPv4") };
    let listed = format!("{:08X}", u32::from(address).to_be());
    let is_member = || std::fs::read_to_string("/proc/net/igmp").unwrap().contains(&listed);
    assert!(!is_member());
    let group = Group::join("lo", None, group).unwrap();
    assert_eq!((group.membership(), group.source()), (Membership::Joined, None));
    assert!(is_member());
    drop(group);
    assert!(!is_member());
}

#[test]
fn one_source_is_joined_alone() {
    let group = own(237);
    let IpAddr::V4(address) = group else { panic!("IPv4") };
    let listed = format!("{:#010x} 0x0a070707", u32::from(address));
    let group = Group::join("lo", Some(ip("10.7.7.7")), group).unwrap();
    assert_eq!(group.source(), Some(ip("10.7.7.7")));
    let filters = std::fs::read_to_string("/proc/net/mcfilter").unwrap();
    assert!(filters.contains(&listed), "{listed} in {filters}");
}

#[test]
fn a_group_of_version_6_is_joined() {
    let process = std::process::id();
    let listed = format!("ff1500000000000000000000{process:08x}");
    let group = ip(&format!("ff15::{:x}:{:x}", process >> 16, process & 0xffff));
    let is_member = || std::fs::read_to_string("/proc/net/igmp6").unwrap().contains(&listed);
    assert!(!is_member());
    let group = Group::join("lo", None, group).unwrap();
    assert!(is_member());
    drop(group);
    assert!(!is_member());
}
