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
mod tests;
