//! The enhanced layout of compressed CQEs: mini CQEs that are like the CQE before them.
//!
//! Up to seven mini CQEs are in a slot, with their number in its last byte. What they do not say is as
//! in the CQE before: a whole one, or the last mini CQE of a slot before. They take as many slots as
//! they are, of which the HCA writes the first. Whose a slot is, its last byte but one tells: the
//! number of the lap, modulo 256. (UCX, `ib_mlx5.inl`; Linux, mlx5e's `mlx5_cqwq_get_cqe_enahnced_comp`
//! and `mlx5e_decompress_enhanced_cqe`; DPDK, `mlx5_rxtx_vec`.)
//!
//! Polls compare last bytes, which say nothing here, so in the ring each of them goes the longer way:
//! a consumer of this layout is where no byte is what polls look for. Mini CQEs are written out beside
//! the ring at once, as those of the basic layout are ([`block`](super::block)), and there the short
//! way is open. A CQE is remembered when it is seen, since the HCA may overwrite it when it is taken,
//! and mini CQEs that are like it may come later. Slots that the HCA skips are given the number of
//! their lap, so that what is in them is not taken for a CQE when that number comes round again.

use mlx5_sys::cqe::{Cqe64, FORMAT_COMPRESSED, FORMAT_SHIFT, OPCODE_SHIFT, OWNER_MASK, opcode};

use super::block::{Block, Words};
use super::consumer::Consumer;
use crate::cqe::CqeRef;
use crate::ib::Counter;

/// Mini CQEs in the fullest slot.
const MOST: u32 = 7;
/// Where a CQE has the number of its lap.
const ITERATION: usize = 62;

/// What an owner byte of a ring of this layout is compared with: never equal.
pub(super) const NOBODY: u32 = 1 << 8;

/// The CQEs that mini CQEs may be like: by the index behind them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Titles {
    /// The CQE that was seen last.
    last: Option<(Counter, Words)>,
    /// The last one of those that were there when CQEs of a queue were dropped.
    swept: Option<(Counter, Words)>,
}

impl Titles {
    fn before(&self, index: Counter) -> Option<Words> {
        let found = [self.swept, self.last]
            .into_iter()
            .flatten()
            .find(|(at, _)| at.low24() == index.low24());
        found.map(|(_, words)| words)
    }

    pub(super) fn remember(&mut self, index: Counter, cqe: Words) {
        self.last = Some((index, cqe));
    }

    pub(super) fn keep(&mut self, end: Counter) {
        self.swept = self.last.filter(|(at, _)| *at == end);
    }
}

impl Block {
    /// Opens the mini CQEs in the slot at `index` of a ring of so many entries, and writes them out.
    /// `false` where what they are like is not known, is no success, or where they are too many.
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
    /// The consumer is at a ring of this layout.
    pub(super) fn enhance(&mut self, titles: Titles) {
        self.block().enhance(titles);
        let index = self.index();
        self.seek(index);
    }

    /// The next CQE, of any kind, of the ring.
    #[cold]
    pub(super) fn look_enhanced<'a>(&mut self) -> Option<CqeRef<'a>> {
        let index = self.index();
        let cqe = self.peek(index)?;
        if !cqe.compressed() {
            self.pass(index);
        }
        Some(cqe)
    }

    /// Remembers the whole CQE at `index`, in the ring, as one that what comes may be like. Nothing
    /// in the basic layout.
    pub(super) fn pass(&mut self, index: Counter) {
        if self.block_ref().is_enhanced() {
            let words = self.words(index);
            self.block().remember(index.plus(1), words);
        }
    }

    /// What comes after the CQEs that are there, up to `end`, may be like the last of them, whatever
    /// is done to them now.
    pub(super) fn keep_title(&mut self, end: Counter) {
        self.block().keep_title(end);
    }

    /// What mini CQEs may be like that come next; `None` in the basic layout.
    pub(super) fn titles(&self) -> Option<Titles> {
        self.block_ref().is_enhanced().then(|| self.block_ref().titles())
    }

    /// Opens the mini CQEs in the slot at `index`, which is software's: see [`Block::open_slot`].
    pub(super) fn open_enhanced(&mut self, index: Counter, slot: Words) -> bool {
        if index != self.index() {
            // Those before it are whole by now.
            self.pass(index.before());
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

    /// Says of the slot at `index`, which is software's, that it is of its lap.
    pub(super) fn stamp(&mut self, index: Counter) {
        let iteration = self.shape().iteration(index);
        // SAFETY: a byte of a CQE of the ring, which software owns.
        unsafe { self.entry(index).add(ITERATION).write_volatile(iteration) };
    }

    /// Whether the slot at `index` is of its lap.
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
