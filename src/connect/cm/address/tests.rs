//! Unit tests.

use super::*;

#[test]
fn addresses_survive_the_way_through_c() {
    for text in ["192.0.2.1:7471", "[2001:db8::1]:1", "[fe80::1%3]:65535"] {
        let address: SocketAddr = text.parse().unwrap();
        assert_eq!(from_raw(&to_raw(address)), Some(address));
    }
    let mut raw = to_raw("192.0.2.1:7471".parse().unwrap());
    raw.ss_family = libc::AF_UNIX as sa_family_t;
    assert_eq!(from_raw(&raw), None);
}
