//! Unit tests.

use super::*;

#[repr(align(16))]
struct Memory([u8; 16]);

fn bytes(unit: Unit) -> [u8; 16] {
    let mut memory = Memory([0xee; 16]);
    // SAFETY: memory of this function.
    unsafe { unit.store(NonNull::from(&mut memory.0).cast()) };
    memory.0
}

#[test]
fn units_are_made_of_words_as_they_lie_in_memory() {
    let mut memory = Memory(core::array::from_fn(|at| at as u8 + 1));
    // SAFETY: memory of this function.
    let unit = unsafe { Unit::load(NonNull::from(&mut memory.0).cast()) };
    assert_eq!(bytes(unit), memory.0);
    let word = |at: usize| u64::from_ne_bytes(memory.0[at..at + 8].try_into().unwrap());
    assert_eq!(bytes(Unit::from_words(word(0), word(8))), memory.0);
    assert_eq!((unit.low(), unit.high()), (word(0), word(8)));
    assert_eq!(bytes(Unit::from_bytes(&memory.0)), memory.0);
    let moved = bytes(unit.behind_4());
    assert_eq!((&moved[..4], &moved[4..]), (&[0; 4][..], &memory.0[..12]));
    for at in -9..=17 {
        let moved = |to: usize| memory.0[..8].get((to as isize - at) as usize).copied();
        let expected = core::array::from_fn(|to| moved(to).unwrap_or(0));
        assert_eq!(bytes(Unit::from_word_at(word(0), at)), expected, "at {at}");
    }
    let kept = bytes(unit.and(Unit::from_words(0xff00, !0)));
    assert_eq!((&kept[..3], &kept[3..8]), (&[0, 2, 0][..], &[0; 5][..]));
    assert_eq!(kept[8..], memory.0[8..]);
    let both = bytes(Unit::from_words(0, word(8)).or(Unit::from_words(word(0), 0)));
    assert_eq!(both, memory.0);
}
