use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

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

/// Returns the filter of a membership of "lo" as the kernel has it: its mode, and its only source. The list
/// `/proc/net/mcfilter` would leave it out where another process joins a group without a source later: it
/// looks at the newest group of an interface first, and ends there.
fn filter(group: &Group, address: Ipv4Addr) -> (u32, Ipv4Addr) {
    /// `ip_msfilter` with room for one source.
    #[repr(C)]
    struct Filter {
        group: [u8; 4],
        interface: [u8; 4],
        mode: u32,
        sources: u32,
        source: [u8; 4],
    }
    let interface = Ipv4Addr::LOCALHOST.octets();
    let mut filter =
        Filter { group: address.octets(), interface, mode: u32::MAX, sources: 1, source: [0; 4] };
    let mut size = size_of::<Filter>() as libc::socklen_t;
    let socket = group.socket.as_ref().expect("a membership").as_raw_fd();
    // SAFETY: the call reads and writes the filter, whose size it is given.
    let done = unsafe {
        let to = (&raw mut filter).cast();
        libc::getsockopt(socket, libc::IPPROTO_IP, libc::IP_MSFILTER, to, &mut size)
    };
    assert_eq!((done, filter.sources), (0, 1));
    (filter.mode, filter.source.into())
}

#[test]
fn one_source_is_joined_alone() {
    /// `MCAST_INCLUDE` of `linux/in.h`.
    const INCLUDE: u32 = 1;
    let group = own(237);
    let IpAddr::V4(address) = group else { panic!("IPv4") };
    let group = Group::join("lo", Some(ip("10.7.7.7")), group).unwrap();
    assert_eq!(group.source(), Some(ip("10.7.7.7")));
    assert_eq!(filter(&group, address), (INCLUDE, Ipv4Addr::new(10, 7, 7, 7)));
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
