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

    /// Returns the byte of the payload behind those that change, at most `usize::MAX`.
    pub const fn end(&self) -> usize {
        self.at.saturating_add(self.bytes.len())
    }
}

/// Where an inline payload lies in its WQE.
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

    /// Checks that all changes lie in the payload.
    ///
    /// # Errors
    /// [`PostError::OutsidePayload`].
    #[inline]
    pub(crate) fn check(self, changes: &[Change<'_>]) -> Result<(), PostError> {
        let outside = changes.iter().find(|change| change.end() > self.length);
        outside.map_or(Ok(()), |change| {
            Err(PostError::OutsidePayload(Excess::new(change.end(), self.length as u32)))
        })
    }

    /// Stores the bytes of a change. `word` returns the address of a word of the WQE.
    ///
    /// # Safety
    /// - [`check`](Self::check) passed for the change.
    /// - For every word of the payload, `word` returns an aligned address of eight bytes, which only
    ///   the caller reads and writes.
    #[inline]
    pub(crate) unsafe fn store(self, change: &Change<'_>, word: impl Fn(usize) -> NonNull<u64>) {
        let (mut at, mut rest) = (self.start + change.at, change.bytes);
        while !rest.is_empty() {
            let within = at % WORD;
            let (now, later) = rest.split_at(rest.len().min(WORD - within));
            let ones = u64::MAX >> (8 * (WORD - now.len()));
            let value = now.first_chunk().map_or_else(|| few(now), |all| u64::from_ne_bytes(*all));
            // SAFETY: `check` passed, so the byte is of the payload, and the word of the WQE.
            unsafe {
                let place = word(at / WORD);
                let kept = place.read() & !(ones << (8 * within));
                place.write_volatile(kept | value << (8 * within));
            }
            (at, rest) = (at + now.len(), later);
        }
    }
}

#[cfg(test)]
mod tests;
