//! Unit tests.

use super::*;

#[test]
fn every_alignment_and_length_is_copied_exactly() {
    let data: Vec<u8> = (1..=40).collect();
    for offset in 0..8 {
        for length in 0..=data.len() - 8 {
            let mut memory = [0u8; 64];
            // SAFETY: offset + length is at most 40 of 64 bytes.
            unsafe { store((&raw mut memory).cast::<u8>().add(offset), &data[..length]) };
            assert_eq!(&memory[offset..offset + length], &data[..length]);
            assert!(memory[..offset].iter().all(|&byte| byte == 0));
            assert!(memory[offset + length..].iter().all(|&byte| byte == 0));
            let mut back = vec![0; length];
            // SAFETY: the bytes lie in `memory`, which no other code accesses.
            unsafe { load((&raw const memory).cast::<u8>().add(offset), &mut back) };
            assert_eq!(back, &data[..length]);
        }
    }
}
