//! A map from 24-bit numbers, of queue pairs or user indices, to values.

/// The value of a number without an entry.
const NOTHING: u32 = u32::MAX;

/// Bits of a number that choose within a leaf; the bits above choose the leaf.
const LEAF_BITS: u32 = 12;
const LEAF: usize = 1 << LEAF_BITS;
const LEAVES: usize = 1 << (24 - LEAF_BITS);

/// A map from 24-bit numbers to small values. A look-up is two loads, however many numbers there
/// are. Numbers that an HCA gives out are close to each other: 4,096 neighbours share a leaf of
/// 16 KiB.
pub struct Numbers {
    /// The leaf of each value of the upper bits.
    leaf: Box<[u16; LEAVES]>,
    /// All leaves, one after another. The first has no entries.
    values: Vec<u32>,
}

impl Numbers {
    pub(crate) fn new() -> Self {
        Self { leaf: Box::new([0; LEAVES]), values: vec![NOTHING; LEAF] }
    }

    /// Returns the value of a number.
    #[inline(always)]
    pub(crate) fn get(&self, number: u32) -> Option<u32> {
        let leaf = *self.leaf.get((number >> LEAF_BITS) as usize)?;
        let at = usize::from(leaf) << LEAF_BITS | number as usize & (LEAF - 1);
        // SAFETY: `at` is in the leaf with this index. The first leaf is there from `new` on, and
        // `insert` stores an index only after it has made `values` longer by the whole leaf.
        let value = unsafe { *self.values.get_unchecked(at) };
        (value != NOTHING).then_some(value)
    }

    /// Sets the value of a number, which is not 2^32 − 1. Numbers of more than 24 bits get no
    /// value. Returns the former value.
    pub(crate) fn insert(&mut self, number: u32, value: u32) -> Option<u32> {
        let before = self.get(number);
        let leaf = self.leaf.get_mut((number >> LEAF_BITS) as usize)?;
        if *leaf == 0 {
            // At most 4,096 besides the first. The index comes last: an allocation that fails may
            // unwind.
            let index = (self.values.len() >> LEAF_BITS) as u16;
            self.values.resize(self.values.len() + LEAF, NOTHING);
            *leaf = index;
        }
        self.values[usize::from(*leaf) << LEAF_BITS | number as usize & (LEAF - 1)] = value;
        before
    }

    /// Removes a number. Returns its former value.
    pub(crate) fn remove(&mut self, number: u32) -> Option<u32> {
        let before = self.get(number)?;
        self.insert(number, NOTHING);
        Some(before)
    }
}

#[cfg(test)]
mod tests {
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
}
