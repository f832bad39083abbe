//! The doorbell of a prepared WQE.
//!
//! A separate function beside the other BlueFlame copies, because it has no choice to make. The size
//! of the WQE is known to the compiler, what has just changed of it is in registers, the record's
//! word was computed ahead, and the buffers of the BlueFlame register differ by a constant.
//! [`SendDoorbell::fires`] is checked long before.

use super::Lent;
use core::ptr::NonNull;

use mlx5_sys::doorbell::BF_BUFFER_SIZE;
use mlx5_sys::wqe::SEGMENT_SIZE;

use super::register::BLOCK_DS;
use super::{SendDoorbell, fence};
use crate::watch::flight::DoorbellKind;
use crate::watch::timing::Phase;
use crate::wqe::{MOST_UNITS, Unit};

/// A WQE in contiguous blocks of a ring.
pub(crate) struct Wqe {
    pub(crate) place: NonNull<u8>,
    /// Number of 16-byte units, at most [`MOST_UNITS`].
    pub(crate) ds: usize,
    /// The units that are at hand, as bits; the others are only in the ring.
    pub(crate) known: u32,
    pub(crate) units: [Unit; MOST_UNITS],
}

impl SendDoorbell {
    /// Returns whether WQEs of up to [`MOST_UNITS`] may go by [`fire`](Self::fire).
    pub(crate) fn fires(&self) -> bool {
        self.takes_words() && self.flip == BF_BUFFER_SIZE
    }

    /// Rings by BlueFlame for `wqe`, whose blocks are stored 16 bytes at once, in ascending order.
    /// Behind its end, the last unit is repeated: it is at hand, and the HCA does not read it.
    /// `record` is the producer counter after it, in memory order.
    ///
    /// # Safety
    /// - `wqe` is the only WQE before `record` that was not rung. It lies in its ring with the units
    ///   that are at hand, aligned to 16.
    /// - [`fires`](Self::fires) is true.
    #[inline(always)]
    pub(crate) unsafe fn fire(&mut self, _: Lent, record: u32, wqe: Wqe) {
        self.flight.rings(DoorbellKind::BlueFlame, self.next);
        fence::wqe_then_record();
        self.timing.stamp(Phase::Fence);
        self.record().store_raw(record);
        self.timing.stamp(Phase::Record);
        fence::record_then_register();
        self.timing.stamp(Phase::Order);
        let to = self.next;
        let Wqe { place, ds, known, units } = wqe;
        let mut unit = units[0];
        // Written out, so that the compiler sees which units there are.
        macro_rules! copy {
            ($($at:literal)*) => { $(
                if $at < ds.next_multiple_of(BLOCK_DS as usize) {
                    if known >> $at & 1 != 0 {
                        unit = units[$at];
                    } else if $at < ds {
                        // SAFETY: a unit of the WQE.
                        unit = unsafe { Unit::load(place.add($at * SEGMENT_SIZE)) };
                    }
                    // SAFETY: within the buffer, which takes `MOST_UNITS`, whole blocks, and is
                    // aligned to its size.
                    unsafe { unit.store(to.add($at * SEGMENT_SIZE)) }
                }
            )* };
        }
        const { assert!(MOST_UNITS == 16) };
        copy!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        self.timing.stamp(Phase::Doorbell);
        fence::flush_register();
        self.timing.stamp(Phase::Flush);
    }

    /// Makes the other buffer the next one. Called after [`fire`](Self::fire). A separate call:
    /// there the compiler knows the address, and keeps it in a register, where one instruction
    /// changes it in memory.
    #[inline(always)]
    pub(crate) fn turn(&mut self) {
        // The compiler would change the one byte that differs, and the next load of all eight would
        // wait until that store has left the store buffer: some eight cycles.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: one buffer's address becomes the other's, and neither is null.
        unsafe {
            core::arch::asm!(
                "xor qword ptr [{next}], {half}",
                next = in(reg) &raw mut self.next,
                half = const BF_BUFFER_SIZE,
                options(nostack)
            );
        }
        #[cfg(any(not(target_arch = "x86_64"), miri))]
        {
            let next = self.next.as_ptr().map_addr(|addr| addr ^ BF_BUFFER_SIZE);
            // SAFETY: one buffer's address becomes the other's, and neither is null.
            self.next = unsafe { NonNull::new_unchecked(next) };
        }
    }
}
