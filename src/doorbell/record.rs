//! Doorbell records: words in memory that tell the HCA what is posted, or which CQEs are consumed.

use core::ptr::NonNull;

use volatile_register::RW;

use super::fence;

/// One word of a doorbell record: big-endian, four bytes, aligned to four.
#[derive(Debug)]
pub(crate) struct Record {
    word: NonNull<RW<u32>>,
}

impl Record {
    /// Creates the word `index` of the record at `base`.
    ///
    /// # Safety
    /// - `base` is a doorbell record of two words, aligned to four bytes, that lives as long as the
    ///   result is used.
    /// - Only the result writes this word.
    pub(crate) unsafe fn new(base: NonNull<u32>, index: usize) -> Self {
        // SAFETY: `base` is a record of two words, as the caller guarantees.
        Self { word: unsafe { base.add(index) }.cast() }
    }

    /// Returns the value stored last.
    pub(crate) fn read(&self) -> u32 {
        // SAFETY: the caller of `new` keeps the word alive. `RW` is a volatile cell, so the
        // reference asserts nothing about its value. The HCA reads this word and never writes it.
        u32::from_be(unsafe { self.word.as_ref() }.read())
    }

    /// Stores `value`: one store of four bytes, no fence.
    #[inline(always)]
    pub(crate) fn store(&mut self, value: u32) {
        // SAFETY: the caller of `new` keeps the word alive, and only this record writes it. Callers
        // own the ring, and store counters of WQEs that they have written or CQEs that they have
        // read.
        unsafe { self.word.as_ref().write(value.to_be()) }
    }

    /// Stores `value`, which is big-endian already: one store of four bytes, no fence.
    #[inline(always)]
    pub(crate) fn store_raw(&mut self, value: u32) {
        // SAFETY: the caller of `new` keeps the word alive, and only this record writes it. Callers
        // own the ring, and store counters of WQEs that they have written.
        unsafe { self.word.as_ref().write(value) }
    }

    /// Publishes WQEs that were written to a ring: a fence, and the store. No register follows. The
    /// HCA reads the record when it needs to.
    #[inline(always)]
    pub(crate) fn publish(&mut self, value: u32) {
        fence::wqe_then_record();
        self.store(value);
    }

    /// Returns CQEs that have been read to the HCA: a fence, and the store.
    #[inline(always)]
    pub(crate) fn release(&mut self, value: u32) {
        fence::cqe_then_record();
        self.store(value);
    }
}
