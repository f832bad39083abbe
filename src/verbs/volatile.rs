//! Copies into and out of memory that an HCA may write or read at the same time.
//!
//! Every byte is accessed once, by a volatile load or store: in words where the shared side is
//! aligned to words, in bytes at the ends.

use std::ptr;

const WORD: usize = size_of::<u64>();

/// Copies `data` to `target`.
///
/// # Safety
/// `data.len()` bytes at `target` are valid for writes, and no reference to them exists.
pub(crate) unsafe fn store(target: *mut u8, data: &[u8]) {
    let head = target.align_offset(WORD).min(data.len());
    let (first, rest) = data.split_at(head);
    let (words, last) = rest.split_at(rest.len() / WORD * WORD);
    for (index, &byte) in first.iter().enumerate() {
        // SAFETY: inside the caller's range.
        unsafe { target.add(index).write_volatile(byte) }
    }
    for (index, word) in words.chunks_exact(WORD).enumerate() {
        // SAFETY: `word` is eight bytes, of any alignment.
        let value = unsafe { ptr::read_unaligned(word.as_ptr().cast::<u64>()) };
        // SAFETY: inside the caller's range, and aligned after `head` bytes.
        unsafe { target.add(head + index * WORD).cast::<u64>().write_volatile(value) }
    }
    for (index, &byte) in last.iter().enumerate() {
        // SAFETY: inside the caller's range.
        unsafe { target.add(head + words.len() + index).write_volatile(byte) }
    }
}

/// Copies from `source` to `data`.
///
/// # Safety
/// `data.len()` initialised bytes at `source` are valid for reads, and no unique reference to them
/// exists.
pub(crate) unsafe fn load(source: *const u8, data: &mut [u8]) {
    let head = source.align_offset(WORD).min(data.len());
    let (first, rest) = data.split_at_mut(head);
    let whole = rest.len() / WORD * WORD;
    let (words, last) = rest.split_at_mut(whole);
    for (index, byte) in first.iter_mut().enumerate() {
        // SAFETY: inside the caller's range.
        *byte = unsafe { source.add(index).read_volatile() };
    }
    for (index, word) in words.chunks_exact_mut(WORD).enumerate() {
        // SAFETY: inside the caller's range, and aligned after `head` bytes.
        let value = unsafe { source.add(head + index * WORD).cast::<u64>().read_volatile() };
        word.copy_from_slice(&value.to_ne_bytes());
    }
    for (index, byte) in last.iter_mut().enumerate() {
        // SAFETY: inside the caller's range.
        *byte = unsafe { source.add(head + whole + index).read_volatile() };
    }
}

#[cfg(test)]
mod tests;
