//! Unit tests.

use std::collections::HashMap;

use super::*;
use crate::ring::random::Random;

#[test]
fn agrees_with_a_hash_map() {
    let mut random = Random::from_clock();
    let (mut numbers, mut oracle) = (Numbers::new(), HashMap::new());
    for _ in 0..if cfg!(miri) { 40 } else { 20_000 } {
        // Neighbours, and numbers from anywhere.
        let number = match random.below(3) {
            0 => 0xff_ff00 + random.below(0x100),
            1 => random.below(300),
            _ => random.next() as u32 & 0xff_ffff & 0xff_f0ff,
        };
        match random.below(3) {
            0 => assert_eq!(numbers.remove(number), oracle.remove(&number)),
            1 => {
                let value = random.below(1000);
                assert_eq!(numbers.insert(number, value), oracle.insert(number, value));
            }
            _ => assert_eq!(numbers.get(number), oracle.get(&number).copied()),
        }
    }
    for (&number, &value) in &oracle {
        assert_eq!(numbers.get(number), Some(value), "{}", random.seed());
    }
}

#[test]
fn every_leaf_may_be_used_and_longer_numbers_lead_nowhere() {
    let mut numbers = Numbers::new();
    // The last ones are enough where it takes long.
    let leaves = if cfg!(miri) { LEAVES as u32 - 2 } else { 0 }..LEAVES as u32;
    for upper in leaves.clone() {
        assert_eq!(numbers.insert(upper << LEAF_BITS | 7, upper), None);
    }
    for upper in leaves {
        assert_eq!(numbers.get(upper << LEAF_BITS | 7), Some(upper));
        assert_eq!(numbers.get(upper << LEAF_BITS | 8), None);
    }
    assert_eq!(numbers.insert(1 << 24, 3), None);
    assert_eq!((numbers.get(1 << 24), numbers.get(u32::MAX)), (None, None));
}
