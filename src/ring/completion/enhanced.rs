//! The enhanced layout of compressed CQEs: mini CQEs that refer to the CQE before them.
//!
//! A slot holds up to seven mini CQEs, with their number in its last byte. The fields that they
//! omit are those of the CQE before: a whole one, or the last mini CQE of an earlier slot. They
//! take as many slots as their number, of which the HCA writes the first. The last byte but one of
//! a slot tells who owns it: it is the number of the lap, modulo 256. (UCX, `ib_mlx5.inl`; Linux,
//! mlx5e's `mlx5_cqwq_get_cqe_enahnced_comp` and `mlx5e_decompress_enhanced_cqe`; DPDK,
//! `mlx5_rxtx_vec`.)
//!
//! Polls compare last bytes, which do not tell the owner here. So in the ring every poll takes the
//! slow path: for a consumer of this layout, no byte equals the values that polls look for. Mini
//! CQEs are expanded beside the ring at once, like those of the basic layout
//! ([`block`](super::block)), and there the fast path works. A CQE is recorded when it is seen,
//! since the HCA may overwrite it after it is taken, and later mini CQEs may refer to it. Slots
//! that the HCA skips are marked with the number of their lap, so that their content is not taken
//! for a CQE when that number comes again.

use mlx5_sys::cqe::{Cqe64, FORMAT_COMPRESSED, FORMAT_SHIFT, OPCODE_SHIFT, OWNER_MASK, opcode};

use super::block::{Block, Words};
use super::consumer::Consumer;
use crate::cqe::CqeRef;
use crate::ib::Counter;
use crate::ring::source::Titles;

/// Mini CQEs in the fullest slot.
const MOST: u32 = 7;
/// Offset of the lap number in a CQE.
const ITERATION: usize = 62;

/// A value that no owner byte of a ring of this layout equals.
pub(super) const NOBODY: u32 = 1 << 8;

impl Block {
    /// Expands the mini CQEs in the slot at `index` of a ring of `entries` slots. Returns false if
    /// the CQE that they refer to is not known or is no success, or if they are too many.
    fn open_slot(&mut self, index: Counter, slot: Words, entries: u32) -> bool {
        let Some(mut title) = self.titles().before(index) else { return false };
        let bytes: [u8; 64] = zerocopy::transmute!(title);
        let last: [u8; 64] = zerocopy::transmute!(slot);
        let count = u32::from(last[63] >> OPCODE_SHIFT) + 1;
        if bytes[63] >> OPCODE_SHIFT > opcode::RESP_SEND_INV || count > MOST.min(entries) {
            return false;
        }
        let mut whole = bytes;
        whole[ITERATION] = 0;
        whole[63] &= !(3 << FORMAT_SHIFT | OWNER_MASK);
        title = zerocopy::transmute!(whole);
        self.write_out(index, title, slot, count);
        let last = self.cqe(index.plus(count - 1));
        self.remember(index.plus(count), last);
        true
    }
}

impl Consumer {
    /// Switches the consumer to a ring of this layout.
    pub(super) fn enhance(&mut self, titles: Titles) {
        self.block().enhance(titles);
        let index = self.index();
        self.seek(index);
    }

    /// Returns the next CQE of the ring, of any kind.
    #[cold]
    pub(super) fn look_enhanced<'a>(&mut self) -> Option<CqeRef<'a>> {
        let index = self.index();
        let cqe = self.peek(index)?;
        if !cqe.compressed() {
            self.note_title(index);
        }
        Some(cqe)
    }

    /// Records the whole CQE at `index` of the ring, for mini CQEs that may refer to it. Does
    /// nothing in the basic layout.
    pub(in crate::ring) fn note_title(&mut self, index: Counter) {
        if self.block_ref().is_enhanced() {
            let words = self.words(index);
            self.block().remember(index.plus(1), words);
        }
    }

    /// Keeps the last CQE before `end` for mini CQEs that come after it and may refer to it, even
    /// if the CQEs before `end` are changed now.
    pub(super) fn keep_title(&mut self, end: Counter) {
        self.block().keep_title(end);
    }

    /// Returns the CQEs that the next mini CQEs may refer to; `None` in the basic layout.
    pub(in crate::ring) fn titles(&self) -> Option<Titles> {
        self.block_ref().is_enhanced().then(|| self.block_ref().titles())
    }

    /// Expands the mini CQEs in the slot at `index`, which software owns: see [`Block::open_slot`].
    pub(super) fn open_enhanced(&mut self, index: Counter, slot: Words) -> bool {
        if index != self.index() {
            // The CQEs before it are whole by now.
            self.note_title(index.before());
        }
        let entries = self.shape().entries();
        if !self.block().open_slot(index, slot, entries) {
            return false;
        }
        let skipped = self.block_ref().end().since(index);
        for ahead in 1..skipped {
            self.stamp(index.plus(ahead));
        }
        true
    }

    /// Marks the slot at `index`, which software owns, with the number of its lap.
    pub(in crate::ring) fn stamp(&mut self, index: Counter) {
        let iteration = self.shape().iteration(index);
        // SAFETY: a byte of a CQE of the ring, which software owns.
        unsafe { self.entry(index).add(ITERATION).write_volatile(iteration) };
    }

    /// Returns whether the slot at `index` has the number of its lap.
    pub(super) fn is_of_lap(&self, index: Counter) -> bool {
        // SAFETY: a byte of a CQE of the ring.
        let iteration = unsafe { self.entry(index).add(ITERATION).read_volatile() };
        iteration == self.shape().iteration(index)
    }
}

const _: () = {
    assert!(ITERATION == core::mem::offset_of!(Cqe64, signature));
    assert!(FORMAT_COMPRESSED == 3);
};
