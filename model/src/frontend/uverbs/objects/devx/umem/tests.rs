//! Unit tests.

use super::*;

#[test]
fn the_largest_page_that_fits_and_is_allowed_is_told_to_the_card() {
    let all = u64::MAX;
    for (start, length, allowed, shift) in [
        (0x20_0000, 0x40_0000, all, Some(21)),
        (0x20_0000, 0x40_0000, 1 << 12, Some(12)),
        (0x20_0000, 0x40_0000, 1 << 12 | 1 << 16, Some(16)),
        (0x20_0000, 0x41_0000, all, Some(16)),
        (0x20_1008, 100, all, Some(12)),
        (0x20_1008, 100, 1 << 21, None),
        (0x20_0000, 0x20_0000, 1 << 22, None),
    ] {
        assert_eq!(page_shift(start, length, allowed), shift, "{start:#x} {length:#x}");
    }
}
