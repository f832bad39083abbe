//! Changes of payloads, beside bytes that are copied one by one.

use super::*;

/// Units of the WQE, and of those before the payload.
const UNITS: usize = 6;
const BEFORE: usize = 2;

#[repr(align(16))]
struct Wqe([u64; UNITS * SEGMENT_SIZE / WORD]);

/// Applies changes to a WQE of ascending bytes, and returns it.
fn changed(part: InlinePart, changes: &[Change<'_>]) -> Vec<u8> {
    let mut wqe = Wqe(core::array::from_fn(|word| {
        u64::from_ne_bytes(core::array::from_fn(|byte| (WORD * word + byte) as u8))
    }));
    let start = NonNull::from(&mut wqe.0).cast::<u64>();
    for change in changes {
        part.check(change).unwrap();
        // SAFETY: the changes lie in the payload, which lies in the WQE.
        unsafe { part.store(change, |word| start.add(word)) }
    }
    wqe.0.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[test]
fn a_change_of_any_place_and_length_changes_its_bytes_alone() {
    let longest = (UNITS - BEFORE) * SEGMENT_SIZE - InlineHeader::SIZE;
    let bytes: Vec<u8> = (0..longest).map(|at| 0xff - at as u8).collect();
    let part = InlinePart::new(BEFORE, longest, UNITS);
    let untouched = changed(part, &[]);
    for at in 0..=longest {
        for length in 0..=longest - at {
            let mut expected = untouched.clone();
            let start = BEFORE * SEGMENT_SIZE + InlineHeader::SIZE + at;
            expected[start..start + length].copy_from_slice(&bytes[..length]);
            let is = changed(part, &[Change::new(at, &bytes[..length])]);
            assert!(is == expected, "{length} bytes at {at}");
        }
    }
}

#[test]
fn the_later_of_two_changes_counts() {
    let part = InlinePart::new(BEFORE, 20, UNITS);
    let both = changed(part, &[Change::new(3, &[0xaa; 8]), Change::new(7, &[0xbb; 8])]);
    let start = BEFORE * SEGMENT_SIZE + InlineHeader::SIZE + 3;
    assert_eq!(both[start..start + 12], [[0xaa; 4], [0xbb; 4], [0xbb; 4]].concat());
}

#[test]
fn a_change_that_reaches_past_the_payload_is_refused() {
    let part = InlinePart::new(BEFORE, 20, UNITS);
    let refused = |end| Err(PostError::OutsidePayload(Excess::new(end, 20)));
    assert_eq!(part.check(&Change::new(0, &[0; 20])), Ok(()));
    assert_eq!(part.check(&Change::new(20, &[])), Ok(()));
    assert_eq!(part.check(&Change::new(13, &[0; 8])), refused(21));
    assert_eq!(part.check(&Change::new(21, &[])), refused(21));
    assert_eq!(part.check(&Change::new(usize::MAX, &[0; 2])), refused(usize::MAX));
    let none = InlinePart::NONE.check(&Change::new(0, &[1]));
    assert_eq!(none, Err(PostError::OutsidePayload(Excess::new(1, 0))));
}

#[test]
fn a_payload_that_would_end_behind_its_wqe_is_none() {
    assert_ne!(InlinePart::new(BEFORE, 60, UNITS), InlinePart::NONE);
    assert_eq!(InlinePart::new(BEFORE, 61, UNITS), InlinePart::NONE);
}
