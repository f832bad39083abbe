//! Unit tests.

use core::ptr::NonNull;

use super::*;
use crate::wqe::Linear;

#[repr(align(16))]
struct Memory([u8; 64]);

/// Checks the units against the segments of the same payload.
fn check<const N: usize>() {
    let payload = InlineBytes::<N>(core::array::from_fn(|at| at as u8 + 1));
    let (mut written, mut units) = (Memory([0; 64]), Memory([0; 64]));
    // SAFETY: the memory has space for as many segments, and the length is not checked.
    unsafe { payload.put(&mut Linear::new(written.0.as_mut_ptr())) };
    for at in 0..payload.ds() as usize {
        let place = NonNull::from(&mut units.0[at * SEGMENT_SIZE..][..SEGMENT_SIZE]);
        // SAFETY: an aligned unit of the memory.
        unsafe { InlineBytes::unit(&payload.0, at).store(place.cast()) };
    }
    assert_eq!(written.0, units.0, "{N} bytes");
}

#[test]
fn units_of_inline_bytes_are_those_of_their_segments() {
    macro_rules! each {
        ($($length:literal)*) => { $(check::<$length>();)* };
    }
    each!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32);
    each!(33 34 35 36 37 38 39 40 41 42 43 44);
}
