//! Unit tests.

use super::*;
use crate::ring::random::{Random, rounds};

#[test]
fn shapes_are_powers_of_two() {
    for entries in [0, 3, 6, 1 << 25, u32::MAX] {
        assert_eq!(Shape::new(entries), None, "{entries}");
    }
    assert_eq!(Shape::new(1).unwrap().entries(), 1);
    assert_eq!(Shape::new(1 << 24).unwrap().entries(), 1 << 24);
}

/// The oracle keeps entries in a deque and counts with 64 bits, so it has no wraps.
#[test]
fn agrees_with_a_deque_from_random_starts() {
    let mut random = Random::from_clock();
    for _ in 0..rounds(200) {
        let entries = 1 << random.below(if cfg!(miri) { 6 } else { 16 });
        let shape = Shape::new(entries).unwrap();
        // Starts close to the wraps of 16 and 32 bits as often as anywhere.
        let near = [0, 0xffff, 0x1_0000, 0xff_ffff, u32::MAX];
        let start = if random.below(2) == 0 {
            near[random.below(5) as usize].wrapping_sub(random.below(40))
        } else {
            random.next() as u32
        };
        let mut cursor = Cursor::new(shape, Counter::new(start));
        let mut oracle = std::collections::VecDeque::<u64>::new();
        let mut next = u64::from(start);
        for _ in 0..rounds(400) {
            if random.below(2) == 0 {
                let n = random.below(entries + 2);
                let room = u64::from(entries) - oracle.len() as u64;
                assert_eq!(u64::from(cursor.free_from(cursor.head())), room);
                if u64::from(n) <= room {
                    cursor.publish(cursor.head().plus(n));
                    oracle.extend(next..next + u64::from(n));
                    next += u64::from(n);
                }
            } else if !oracle.is_empty() {
                let at = random.below(oracle.len() as u32) as usize;
                let named = oracle[at];
                let found = cursor.outstanding(named as u16);
                // With 2^16 entries or fewer the low 16 bits are unambiguous.
                assert_eq!(found, Some(Counter::new(named as u32)), "{}", random.seed());
                assert_eq!(shape.slot(found.unwrap()) as u64, named % u64::from(entries));
                assert_eq!(shape.lap(found.unwrap()), named / u64::from(entries) % 2 == 1);
                cursor.retire_known(found.unwrap().plus(1));
                oracle.drain(..=at);
            }
            assert_eq!(cursor.used() as usize, oracle.len());
            let foreign = (next as u16).wrapping_add(random.below(100) as u16);
            if oracle.iter().all(|&entry| entry as u16 != foreign) {
                assert_eq!(cursor.outstanding(foreign), None);
            }
        }
    }
}
