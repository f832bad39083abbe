//! Unit tests.

use super::*;

#[test]
fn stores_of_each_width_reach_their_place_and_no_other() {
    let bytes: Vec<u8> = (1..=64).collect();
    for length in [1, 2, 4, 8, 16, 24, 32, 63, 64] {
        let mut place = [0xff; 80];
        // SAFETY: the place has 80 bytes, and is not used otherwise meanwhile.
        unsafe { put(place.as_mut_ptr().add(8), &bytes[..length]) };
        assert_eq!(place[8..8 + length], bytes[..length]);
        assert!(place[..8].iter().chain(&place[8 + length..]).all(|byte| *byte == 0xff));
    }
}

/// Stores of a copy, one behind the other.
struct Copy(Vec<(usize, Vec<u8>)>, usize);

impl Stores for Copy {
    fn store(&self) -> (usize, &[u8]) {
        (self.0[self.1].0, &self.0[self.1].1)
    }

    fn done(&mut self) -> bool {
        self.1 += 1;
        self.1 < self.0.len()
    }
}

#[test]
fn a_copy_is_gathered_whole_and_a_longer_one_in_parts() {
    let stores: Vec<_> = (0..70).map(|index| (0x800 + index * 8, vec![index as u8; 8])).collect();
    let mut copy = Copy(stores.clone(), 0);
    let mut block = Block::default();
    assert!(!block.gather(&mut copy));
    assert_eq!(block.stores().count(), MOST);
    let mut rest = Block::default();
    assert!(rest.gather(&mut copy));
    let all = block.stores().chain(rest.stores());
    assert!(all.eq(stores.iter().map(|(offset, bytes)| (*offset, bytes.as_slice()))));
}
