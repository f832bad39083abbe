//! Unit tests.

use super::*;

/// A message of the kernel with this payload.
fn message(kind: libc::c_int, payload: &[u8]) -> Vec<u8> {
    let mut bytes = ((HEADER + payload.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend((kind as u16).to_ne_bytes());
    bytes.extend([0; 10]);
    bytes.extend(payload);
    bytes
}

/// An address of interface 7, as the kernel tells of it.
fn address(family: libc::c_int, flags: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    with(&[family as u8, 24, flags, 0, 7, 0, 0, 0], attributes)
}

/// A structure, and attributes behind it.
fn with(start: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = start.to_vec();
    for (kind, value) in attributes {
        bytes.extend(((4 + value.len()) as u16).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(*value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

fn ip(text: &str) -> [u8; 16] {
    gid::of_ip(text.parse().unwrap())
}

#[test]
fn the_loopback_interface_has_its_address() {
    // SAFETY: the name is a C string.
    let index = unsafe { libc::if_nametoindex(c"lo".as_ptr()) };
    let found = addresses(index).unwrap().expect("an interface");
    assert!(found.own.contains(&ip("127.0.0.1")) && found.vlans.is_empty(), "{found:?}");
    assert_eq!(addresses(0x7fff_fff0).unwrap(), None);
}

#[test]
fn own_addresses_of_the_interface_are_read() {
    let (own, peer) = ([192, 0, 2, 1], [192, 0, 2, 9]);
    let of_pair = address(libc::AF_INET, 0, &[(IFA_ADDRESS, &peer), (IFA_LOCAL, &own)]);
    assert_eq!(read(&of_pair), Some((7, ip("192.0.2.1"))));
    let new = ip("2001:db8::1");
    let ipv6 = address(libc::AF_INET6, 0, &[(IFA_ADDRESS, &new)]);
    assert_eq!(read(&ipv6), Some((7, new)));
    // Another node has it: by the short flags, or by the long ones, which count.
    assert_eq!(read(&address(libc::AF_INET6, 8, &[(IFA_ADDRESS, &new)])), None);
    let long = [(IFA_FLAGS, &[8, 0, 0, 0][..]), (IFA_ADDRESS, &new)];
    assert_eq!(read(&address(libc::AF_INET6, 0, &long)), None);
    for length in 0..ipv6.len() {
        assert_eq!(read(&ipv6[..length]), None, "{length}");
    }
}

#[test]
fn answers_end_where_the_kernel_says() {
    let told = |bytes: &[u8], flags| {
        let mut all = Vec::new();
        let end = messages(bytes, flags, &mut |payload: &[u8]| all.push(payload.to_vec()));
        (all, end.map(|end| end.map_err(|error| error.raw_os_error())))
    };
    let one = message(20, &[1, 2, 3, 4]);
    assert_eq!(told(&one, 0), (vec![vec![1, 2, 3, 4]], Some(Ok(()))));
    assert_eq!(told(&one, libc::NLM_F_DUMP), (vec![vec![1, 2, 3, 4]], None));
    let done = [one.clone(), message(libc::NLMSG_DONE, &[0; 4])].concat();
    assert_eq!(told(&done, libc::NLM_F_DUMP), (vec![vec![1, 2, 3, 4]], Some(Ok(()))));
    let refused = message(libc::NLMSG_ERROR, &(-libc::ENODEV).to_ne_bytes());
    assert_eq!(told(&refused, 0), (vec![], Some(Err(Some(libc::ENODEV)))));
    assert_eq!(told(&message(libc::NLMSG_ERROR, &i32::MIN.to_ne_bytes()), 0).0, [[0u8; 0]; 0]);
    // A length below the header's, or behind the end.
    for length in [0, 15, 21] {
        let mut bad = one.clone();
        bad[0] = length;
        assert_eq!(told(&bad, 0), (vec![], Some(Err(None))), "{length}");
    }
}

/// An interface of number 9 on top of interface 7, as the kernel tells of it.
fn link(kind: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let start = [0, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let number = with(&[], &[(IFLA_VLAN_ID, &[5, 0])]);
    let about = with(&[], &[(IFLA_INFO_KIND, kind), (IFLA_INFO_DATA, &number)]);
    let known: [(u16, &[u8]); 4] = [
        (IFLA_ADDRESS, &[2, 0, 0, 0, 0, 9]),
        (IFLA_IFNAME, b"eth0.5\0"),
        (IFLA_LINK, &[7, 0, 0, 0]),
        // A nested attribute may say that it is one.
        (IFLA_LINKINFO | 1 << 15, &about),
    ];
    with(&start, &[&known, attributes].concat())
}

#[test]
fn vlans_on_top_of_an_interface_are_found() {
    let vlan = link(b"vlan\0", &[]);
    let found = vlan_on(&vlan, 7).expect("a VLAN");
    let (mac, gids) = ([2, 0, 0, 0, 0, 9], Vec::new());
    assert_eq!(found, Vlan { id: 5, name: "eth0.5".to_owned(), index: 9, mac, gids });
    // Another interface's, another kind, and one on an interface of another network namespace.
    assert_eq!(vlan_on(&vlan, 8), None);
    assert_eq!(vlan_on(&link(b"macvlan\0", &[]), 7), None);
    assert_eq!(vlan_on(&link(b"vlan\0", &[(IFLA_LINK_NETNSID, &[0; 4])]), 7), None);
    for length in 0..vlan.len() {
        assert_eq!(vlan_on(&vlan[..length], 7), None, "{length}");
    }
}
