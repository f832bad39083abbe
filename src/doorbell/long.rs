//! The doorbell of a single WQE of several blocks, which is written to the register as it was to
//! the ring.

use super::Lent;
use mlx5_sys::doorbell::BF_BUFFER_SIZE;
use mlx5_sys::wqe::SEGMENT_SIZE;

use super::register::BLOCK_DS;
use super::{SendDoorbell, fence};
use crate::watch::flight::DoorbellKind;
use crate::watch::timing::Phase;
use crate::wqe::{Linear, Operation, Segment, Segments, Unit, Units};

/// 16-byte units of a BlueFlame buffer.
const UNITS: usize = BF_BUFFER_SIZE / SEGMENT_SIZE;

impl SendDoorbell {
    /// Rings by BlueFlame for a single WQE of several blocks: `operation` behind `ctrl`, whose size
    /// the compiler knows. The segments that its address holds ready go to the register 16 bytes at
    /// once. Zeroes are stored behind its end: the HCA does not read them.
    ///
    /// Does not use the common function for the steps: this is more than the compiler would inline
    /// there.
    ///
    /// # Safety
    /// - `ctrl` and `operation`, which is a usual one, are those of the only WQE before `counter`
    ///   that was not rung.
    /// - [`takes_long`](Self::takes_long) is true of its size.
    #[inline(always)]
    pub(crate) unsafe fn ring_long<O: Operation>(
        &mut self,
        _: Lent,
        counter: u16,
        ctrl: Segment,
        operation: &O,
    ) {
        self.flight.rings(DoorbellKind::BlueFlame, self.next);
        fence::wqe_then_record();
        self.timing.stamp(Phase::Fence);
        self.record().store(u32::from(counter));
        self.timing.stamp(Phase::Record);
        fence::record_then_register();
        self.timing.stamp(Phase::Order);
        let to = self.next;
        // SAFETY: the buffer takes the WQE's blocks, and is aligned to its size.
        unsafe {
            let mut writer = Linear::new(to.as_ptr());
            writer.put(ctrl);
            operation.put_usual(&mut writer);
            macro_rules! pad {
                ($($at:literal)*) => { $(
                    if $at >= O::LONG_DS && $at < O::LONG_BLOCKS * BLOCK_DS {
                        Unit::from_words(0, 0).store(to.add($at * SEGMENT_SIZE));
                    }
                )* };
            }
            const { assert!(UNITS == 16) };
            pad!(5 6 7 9 10 11 13 14 15);
        }
        self.timing.stamp(Phase::Doorbell);
        fence::flush_register();
        self.timing.stamp(Phase::Flush);
        self.flip();
    }

    /// Returns whether a single WQE of `ds` 16-byte units goes by BlueFlame, word by word.
    #[inline(always)]
    pub(crate) fn takes_long(&self, ds: u32) -> bool {
        ds > 1 && ds <= self.long
    }

    /// Rings by BlueFlame for a single WQE of `blocks` whole blocks, 16 bytes at once.
    ///
    /// # Safety
    /// - `units` has those of the only WQE before `counter` that was not rung.
    /// - [`takes_long`](Self::takes_long) is true of its size.
    #[inline(always)]
    pub(crate) unsafe fn ring_kept(&mut self, _: Lent, counter: u16, units: &Units, blocks: u32) {
        self.flight.rings(DoorbellKind::BlueFlame, self.next);
        fence::wqe_then_record();
        self.timing.stamp(Phase::Fence);
        self.record().store(u32::from(counter));
        self.timing.stamp(Phase::Record);
        fence::record_then_register();
        self.timing.stamp(Phase::Order);
        let to = self.next;
        macro_rules! copy {
            ($($block:literal: $($at:literal)*),*) => { $(
                if $block < blocks {
                    // SAFETY: the caller guarantees the block's units, which the buffer takes.
                    $( unsafe { units[$at].assume_init().store(to.add($at * SEGMENT_SIZE)) } )*
                }
            )* };
        }
        // Written out, so that the compiler sees which unit is which.
        copy!(0: 0 1 2 3, 1: 4 5 6 7, 2: 8 9 10 11, 3: 12 13 14 15);
        self.timing.stamp(Phase::Doorbell);
        fence::flush_register();
        self.timing.stamp(Phase::Flush);
        self.flip();
    }
}
