//! Unit tests.

//! Unit tests.

use super::*;

#[test]
fn processors_are_one_bit_each() {
    let mask = cpu_mask();
    let bits: u32 =
        mask.split(',').map(|word| u32::from_str_radix(word, 16).unwrap().count_ones()).sum();
    assert_eq!(bits as usize, system::processors());
}

#[test]
fn functions_have_bars_one_behind_the_other() {
    let end = |index| {
        let text = resources(index);
        let mut words = text
            .split_whitespace()
            .map(|word| u64::from_str_radix(word.strip_prefix("0x").unwrap(), 16).unwrap());
        (words.next().unwrap(), words.next().unwrap())
    };
    assert_eq!(end(0).1 - end(0).0 + 1, pci::BAR_SIZE);
    assert_eq!(end(0).1 + 1, end(1).0);
    assert_eq!(resources(0).lines().count(), RESOURCES);
}
