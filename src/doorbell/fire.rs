//! The doorbell of a prepared WQE.
//!
//! A separate function beside the other BlueFlame copies, because it has no choice to make. The WQE
//! is in four registers already, the record's word was computed ahead, and the buffers of the
//! BlueFlame register differ by a constant. [`SendDoorbell::fires`] is checked long before.

#[cfg(any(not(target_arch = "x86_64"), miri))]
use core::ptr::NonNull;

use mlx5_sys::doorbell::BF_BUFFER_SIZE;
use mlx5_sys::wqe::SEGMENT_SIZE;

use super::{SendDoorbell, fence};
use crate::watch::flight::DoorbellKind;
use crate::watch::timing::Phase;
use crate::wqe::Unit;

/// A WQE of one block.
pub(crate) type Units = [Unit; 4];

impl SendDoorbell {
    /// Returns whether WQEs of one block may go by [`fire`](Self::fire).
    pub(crate) fn fires(&self) -> bool {
        self.takes_words() && self.flip == BF_BUFFER_SIZE
    }

    /// Rings by BlueFlame for a WQE of one block with the bytes `units`, in four stores of 16 bytes
    /// in ascending order. `record` is the producer counter after it, in memory order.
    ///
    /// # Safety
    /// - `units` are the only WQE before `record` that was not rung, as it lies in its ring.
    /// - The memory that it names obeys the contract of the queue's commit point.
    /// - [`fires`](Self::fires) is true.
    #[inline(always)]
    pub(crate) unsafe fn fire(&mut self, record: u32, units: Units) {
        self.flight.rings(DoorbellKind::BlueFlame, self.next);
        fence::wqe_then_record();
        self.timing.stamp(Phase::Fence);
        self.record().store_raw(record);
        self.timing.stamp(Phase::Record);
        fence::record_then_register();
        self.timing.stamp(Phase::Order);
        let to = self.next;
        for (at, unit) in units.into_iter().enumerate() {
            // SAFETY: within the buffer, which takes a block and is aligned to its size.
            unsafe { unit.store(to.add(at * SEGMENT_SIZE)) }
        }
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
