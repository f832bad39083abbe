//! Unit tests.

use super::*;

#[test]
fn rooms_are_powers_of_two_and_whole_blocks() {
    let rooms = |events, wqe_bytes| Config { events, wqe_bytes }.rooms();
    assert_eq!(rooms(64, 256), (64, 4));
    assert_eq!(rooms(0, 0), (1, 1));
    assert_eq!(rooms(65, 65), (128, 2));
    assert_eq!(rooms(u32::MAX, u32::MAX), (1 << 16, 4));
}

#[test]
fn the_variable_is_taken_if_it_is_a_power_of_two() {
    assert_eq!(events(None), 64);
    assert_eq!(events(Some("1024".into())), 1024);
    for wrong in ["", "100", "-1", "131072", "many"] {
        assert_eq!(events(Some(wrong.into())), 64, "{wrong}");
    }
}
