//! Other bytes for parts of an inline payload that lies in a ring, of a length that is known at run
//! time.
//!
//! All in whole words of eight bytes, put together in registers: the copy to the register loads such
//! words, and would wait for narrower stores.

use core::ptr::NonNull;

use mlx5_sys::wqe::{InlineHeader, SEGMENT_SIZE};

use super::error::{Excess, PostError};
use super::writer::few;

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// Other bytes for a part of the inline payload of a request that was written
/// [ahead](crate::expert::Ahead).
///
/// ```
/// use mlx5::expert::Change;
///
/// // A price of eight bytes, from byte 16 of the payload on.
/// let price = 101u64.to_le_bytes();
/// let change = Change::new(16, &price);
/// assert_eq!(change.end(), 24);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    at: usize,
    bytes: &'a [u8],
}

impl<'a> Change<'a> {
    /// Creates a change to `bytes` from byte `at` of the payload on.
    pub const fn new(at: usize, bytes: &'a [u8]) -> Self {
        Self { at, bytes }
    }

    /// Returns the end of the change: a byte of the payload, at most `usize::MAX`.
    pub const fn end(&self) -> usize {
        self.at.saturating_add(self.bytes.len())
    }
}

/// The place of an inline payload in its WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InlinePart {
    /// Byte of the WQE.
    start: usize,
    /// Number of bytes.
    length: usize,
}

impl InlinePart {
    /// No payload.
    pub(crate) const NONE: Self = Self { start: 0, length: 0 };

    /// Returns the payload of `length` bytes whose header begins unit `unit` of a WQE of `ds`
    /// units; none, if it would end behind the WQE.
    pub(crate) fn new(unit: usize, length: usize, ds: usize) -> Self {
        let start = unit * SEGMENT_SIZE + InlineHeader::SIZE;
        if start + length <= ds * SEGMENT_SIZE { Self { start, length } } else { Self::NONE }
    }

    /// Checks that a change lies in the payload.
    ///
    /// # Errors
    /// [`PostError::OutsidePayload`].
    #[inline(always)]
    pub(crate) fn check(self, change: &Change<'_>) -> Result<(), PostError> {
        match change.end() > self.length {
            false => Ok(()),
            true => Err(PostError::OutsidePayload(Excess::new(change.end(), self.length as u32))),
        }
    }

    /// Stores the bytes of a change. `word` returns the address of a word of the WQE.
    ///
    /// # Safety
    /// - [`check`](Self::check) passed for the change.
    /// - For every word of the payload, `word` returns an aligned address of eight bytes, which only
    ///   the caller reads and writes.
    #[inline(always)]
    pub(crate) unsafe fn store(self, change: &Change<'_>, word: impl Fn(usize) -> NonNull<u64>) {
        let (mut at, mut rest) = (self.start + change.at, change.bytes);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(WORD));
            let ones = u64::MAX >> (8 * (WORD - now.len()));
            let value = now.first_chunk().map_or_else(|| few(now), |all| u64::from_ne_bytes(*all));
            let (within, shift) = (at % WORD, 8 * (at % WORD));
            // SAFETY: `check` passed, so the bytes are of the payload, and the words of the WQE.
            unsafe {
                merge(word(at / WORD), ones << shift, value << shift);
                if within + now.len() > WORD {
                    let back = u64::BITS as usize - shift;
                    merge(word(at / WORD + 1), ones >> back, value >> back);
                }
            }
            (at, rest) = (at + now.len(), later);
        }
    }
}

/// Stores the bits of `value` that are ones in `ones`, and keeps the others.
///
/// # Safety
/// `place` is aligned, can be read and written, and only the caller does.
#[inline(always)]
unsafe fn merge(place: NonNull<u64>, ones: u64, value: u64) {
    // SAFETY: this function's contract.
    unsafe { place.write_volatile(place.read() & !ones | value) }
}

#[cfg(test)]
mod tests;
