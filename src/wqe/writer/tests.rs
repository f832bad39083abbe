//! Unit tests.

use super::*;
use crate::wqe::{EncodePayload, InlineBytes};
use zerocopy::IntoBytes;

/// Memory before anything is written.
const STALE: u64 = 0x5a5a_5a5a_5a5a_5a5a;

/// Four blocks' words, aligned as a ring is.
#[repr(align(64))]
struct Memory([u64; 32]);

impl Memory {
    fn new() -> Self {
        Self([STALE; 32])
    }

    fn at(&mut self) -> *mut u8 {
        (&raw mut self.0).cast()
    }

    fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Cuts of a payload into pieces, some of them empty.
fn cuts(payload: &[u8]) -> Vec<Vec<&[u8]>> {
    let length = payload.len();
    let mut all = vec![vec![payload], payload.chunks(1).collect(), payload.chunks(3).collect()];
    all.push(payload.chunks(9).collect());
    for cut in [0, 1, 3, 4, 5, 8, 12, 13].into_iter().filter(|cut| *cut <= length) {
        let (first, second) = payload.split_at(cut);
        all.push(vec![first, &[], second]);
    }
    all
}

#[test]
fn inline_payload_is_header_pieces_and_zeros_up_to_the_next_segment() {
    let payload: Vec<u8> = (1..=200).collect();
    for length in (1..=64).chain([100, 125, 200]) {
        let payload = &payload[..length];
        let header = InlineHeader { byte_count: (INLINE_SEG | length as u32).into() };
        let mut expected = [header.as_bytes(), payload].concat();
        expected.resize(expected.len().next_multiple_of(SEGMENT_SIZE), 0);
        let mut whole = Memory::new();
        // SAFETY: four blocks, more than header and payload take.
        unsafe { Linear::new(whole.at()).put_inline(payload, 32) };
        assert_eq!(whole.bytes()[..expected.len()], expected, "{length} bytes");
        for pieces in cuts(payload) {
            let (mut line, mut wrapped) = (Memory::new(), Memory::new());
            // SAFETY: four blocks each, more than header and payload take.
            unsafe {
                let mut linear = Linear::new(line.at());
                linear.put_gathered(length as u32, pieces.iter().copied());
                assert_eq!(linear.at.cast_const().cast(), line.at().add(expected.len()));
                let start = NonNull::new_unchecked(wrapped.at());
                let mut wrapping = Wrapping::new(start, 256, 240);
                wrapping.put_gathered(length as u32, pieces.iter().copied());
            }
            assert_eq!(line.bytes()[..expected.len()], expected, "{pieces:?}");
            assert_eq!(line.0, whole.0, "{pieces:?}");
            assert!(line.bytes()[expected.len()..].iter().all(|byte| *byte == STALE as u8));
            let (start, end) = expected.split_at(16);
            assert_eq!(wrapped.bytes()[240..], *start, "{pieces:?}");
            assert_eq!(wrapped.bytes()[..end.len()], *end, "{pieces:?}");
        }
    }
}

#[test]
fn packed_bytes_continue_a_segment_after_its_first() {
    let bytes: Vec<u8> = (100..=140).collect();
    for used in 1..16 {
        let mut start = [0; 16];
        for (at, byte) in start[..used].iter_mut().enumerate() {
            *byte = at as u8 + 1;
        }
        for length in 0..=40 {
            let mut expected = [&start[..used], &bytes[..length]].concat();
            expected.resize(expected.len().next_multiple_of(SEGMENT_SIZE), 0);
            let mut line = Memory::new();
            // SAFETY: four blocks, more than the bytes take.
            unsafe {
                let mut linear = Linear::new(line.at());
                let start: Segment = zerocopy::transmute!(start);
                linear.put_packed(start, used, core::iter::once(&bytes[..length]));
            }
            assert_eq!(line.bytes()[..expected.len()], expected, "{used} and {length} bytes");
            assert_eq!(line.bytes()[expected.len()], STALE as u8);
        }
    }
}

/// A block with an inline payload of known length leaves no word to load from the ring.
fn check_known<const N: usize>() {
    let payload = InlineBytes::<N>(core::array::from_fn(|at| at as u8 + 1));
    let (mut block, mut line) = (Memory::new(), Memory::new());
    // SAFETY: a block each, which a segment, a header and the payload fit.
    let words = unsafe {
        let mut writer = Block::new(block.at());
        writer.put([1, 2]);
        payload.put_usual(&mut writer);
        let mut linear = Linear::new(line.at());
        linear.put([1, 2]);
        payload.put(&mut linear);
        writer.padded()
    };
    assert_eq!(block.0, line.0, "{N} bytes");
    let end = 2 + 2 * payload.ds() as usize;
    let expected = (0..WORDS).map(|at| Some(if at < end { block.0[at] } else { 0 }));
    assert!(words.into_iter().eq(expected), "{N} bytes: {words:x?}");
}

#[test]
fn a_block_of_known_size_keeps_all_its_words() {
    macro_rules! each {
        ($($length:literal)*) => { $(check_known::<$length>();)* };
    }
    each!(1 2 3 4 5 6 7 8 9 11 12 13 16 19 20 24 27 28 29 31 32 35 36 39 40 43 44);
}
