//! Unit tests.

use super::*;

/// A block's bytes before anything is written.
const STALE: [u64; WORDS] = [0x5a5a_5a5a_5a5a_5a5a; WORDS];

#[test]
fn a_block_has_the_bytes_of_a_straight_line_and_keeps_words_that_are_in_it() {
    let payload: Vec<u8> = (1..=44).collect();
    for length in 1..=44 {
        for cut in [0, 1, 3, 4, length].into_iter().filter(|cut| *cut <= length) {
            let (first, second) = payload[..length].split_at(cut);
            let pieces = [first, second];
            // What is cut off nowhere is one piece.
            let pieces = if cut == 0 { &pieces[1..] } else { &pieces[..] };
            let (mut line, mut block) = (STALE, STALE);
            // SAFETY: a block each, of which a segment, a header and the payload take no more.
            let words = unsafe {
                let mut linear = Linear::new((&raw mut line).cast());
                linear.put([1, 2]);
                linear.put_inline(length as u32, pieces.iter().copied());
                let mut writer = Block::new((&raw mut block).cast());
                writer.put([1, 2]);
                writer.put_inline(length as u32, pieces.iter().copied());
                let end =
                    (&raw const block).cast::<u8>().add(16 + (4 + length).next_multiple_of(16));
                assert_eq!(writer.linear.at.cast_const(), end);
                assert_eq!(writer.used * 8, 16 + (4 + length).next_multiple_of(16));
                writer.words()
            };
            assert_eq!(block, line, "{length} bytes, cut at {cut}");
            for (word, kept) in block.iter().zip(words) {
                assert!(kept.is_none_or(|kept| kept == *word), "{length} bytes: {words:x?}");
            }
        }
    }
}
