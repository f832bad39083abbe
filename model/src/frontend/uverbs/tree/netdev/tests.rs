//! Unit tests.

//! Unit tests.

use super::*;

#[test]
fn the_mtu_of_a_view_gives_the_ports() {
    for log in 8..=12 {
        assert_eq!(ethernet::log_mtu(mtu(log)), Some(log));
    }
    assert_eq!((mtu(10), mtu(12)), (1500, 9000));
}
