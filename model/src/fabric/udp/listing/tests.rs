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
    let mut bytes = vec![family as u8, 24, flags, 0, 7, 0, 0, 0];
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
    assert!(found.contains(&ip("127.0.0.1")), "{found:?}");
    assert_eq!(addresses(0x7fff_fff0).unwrap(), None);
}

#[test]
fn own_addresses_of_the_interface_are_read() {
    let (own, peer) = ([192, 0, 2, 1], [192, 0, 2, 9]);
    let of_pair = address(libc::AF_INET, 0, &[(IFA_ADDRESS, &peer), (IFA_LOCAL, &own)]);
    assert_eq!(read(&of_pair, 7), Some(ip("192.0.2.1")));
    assert_eq!(read(&of_pair, 8), None);
    let new = ip("2001:db8::1");
    let ipv6 = address(libc::AF_INET6, 0, &[(IFA_ADDRESS, &new)]);
    assert_eq!(read(&ipv6, 7), Some(new));
    // Another node has it: by the short flags, or by the long ones, which count.
    assert_eq!(read(&address(libc::AF_INET6, 8, &[(IFA_ADDRESS, &new)]), 7), None);
    let long = [(IFA_FLAGS, &[8, 0, 0, 0][..]), (IFA_ADDRESS, &new)];
    assert_eq!(read(&address(libc::AF_INET6, 0, &long), 7), None);
    for length in 0..ipv6.len() {
        assert_eq!(read(&ipv6[..length], 7), None, "{length}");
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
