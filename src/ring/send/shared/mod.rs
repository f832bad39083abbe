//! Send queues that several threads post to.
//!
//! [`SendQueue::share`] returns a [`Producer`], which threads clone or borrow to post, and a
//! [`Retirer`], with which the completion reader's thread polls. A post reserves its blocks by one
//! atomic operation, writes its WQE while other threads write theirs, and marks it as written by
//! another atomic operation. No thread waits for another. WQEs become known to the HCA in the order
//! of their blocks. The thread that wrote the oldest unwritten WQE rings it, together with the
//! written ones behind it. `sequencer` has that protocol, and the argument for it.
//!
//! Exclusive queues are not affected: they use no atomic operations. The phases of module
//! [`timing`](crate::watch::timing) are recorded for exclusive queues only.

mod position;
mod producer;
mod retirer;
mod sequencer;

pub use producer::Producer;
pub use retirer::Retirer;

/// The atomics that the protocol uses. Its tests replace this module.
mod atomic {
    pub use core::hint::spin_loop;
    pub use core::sync::atomic::{AtomicU64, Ordering};

    /// How often an unwritten WQE is polled before the doorbell is passed on: as long as writing
    /// one takes.
    pub const LOOKS: u32 = 8;

    /// Gets the cache line at `address` for writing.
    #[inline(always)]
    pub fn prefetch_write<T>(address: *const T) {
        // Miri executes no assembly, and has no cache.
        if cfg!(miri) {
            return;
        }
        // SAFETY: a hint, which does nothing where there is no memory.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            core::arch::asm!(
                "prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly)
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::asm!(
                "prfm pstl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly)
            );
        }
    }
}

use core::cell::UnsafeCell;
use core::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use self::position::Position;
use self::sequencer::Apart;
use super::wqes::{Posted, Wqes};
use crate::doorbell::SendDoorbell;
use crate::ib::{Counter, Transport};
use crate::ring::SendQueue;
use crate::wqe::Limits;

/// The sequencer for queues of all transports.
pub(super) type Sequencer = sequencer::Sequencer<Note>;

/// State shared by producers and the retirer.
struct Shared<T: Transport> {
    sequencer: Sequencer,
    wqes: Wqes,
    limits: Limits,
    signal_all: bool,
    /// Whether the producers were stopped because the device failed.
    device_failed: AtomicBool,
    /// Used by the thread that holds the [`Turn`](sequencer::Turn).
    doorbell: Apart<UnsafeCell<SendDoorbell>>,
    /// Used by the retirer, or by the last remaining owner of this value. Its head lags behind, and
    /// its doorbell is not used. `None` only after the last remaining owner took it out.
    queue: Apart<UnsafeCell<Option<SendQueue<T>>>>,
}

/// A note that a producer leaves beside a WQE's stamp, for the ringing and the retiring thread.
#[derive(Default)]
pub(super) struct Note(UnsafeCell<Posted>);

// SAFETY: the holder of the slot's ticket writes it. Others read it only after the sequencer shows
// that it was written.
unsafe impl Sync for Note {}

// SAFETY: each cell is used by one thread at a time, as its comment says. Ring and shadow are
// written by the holder of a slot's ticket, and read by others only as the sequencer allows. The
// HCA accepts stores from any thread.
unsafe impl<T: Transport> Send for Shared<T> {}
// SAFETY: each cell is used by one thread at a time: the doorbell by the holder of the turn, the
// queue by the retirer. Ring and shadow are written by the holder of a slot's ticket, and read by
// others only after the sequencer shows that they were written.
unsafe impl<T: Transport> Sync for Shared<T> {}

impl<T: Transport> Shared<T> {
    fn new(mut queue: SendQueue<T>) -> Self {
        let ring = &mut queue.ring;
        // Only posted entries may look posted.
        ring.refill();
        let (end, mark) = (ring.end(), ring.mark());
        let (head, tail) = (end.at, mark.at);
        let first = Position::new(u64::from(tail.since(Counter::default())));
        let last = first.next_with_low32(head.since(Counter::default()));
        let signaled = ring.last_signaled(head).map_or(tail, |counter| counter.plus(1));
        let (entries, cq_slots) = (ring.shape().entries(), ring.state.slots());
        let sequencer = Sequencer::new(
            entries,
            cq_slots,
            (last, last.minus_silent(end.silent)),
            (first, first.minus_silent(mark.silent)),
            first.next_with_low32(signaled.since(Counter::default())),
        );
        if ring.state.is_stopped() {
            sequencer.stop();
        }
        // SAFETY: the queue's own doorbell is not used until it goes on from this one.
        let doorbell = unsafe { ring.doorbell.twin() };
        Self {
            sequencer,
            wqes: ring.wqes(),
            limits: ring.limits,
            signal_all: ring.signal_all,
            device_failed: AtomicBool::new(ring.state.has_device_failed()),
            doorbell: Apart(UnsafeCell::new(doorbell)),
            queue: Apart(UnsafeCell::new(Some(queue))),
        }
    }

    /// Returns the queue, after adding all WQEs that are rung by now.
    ///
    /// # Safety
    /// The caller is the retirer, or the last remaining owner of this value. Only one caller at a
    /// time uses the result.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "as the contract says")]
    unsafe fn queue(&self) -> Option<&mut SendQueue<T>> {
        // SAFETY: by this function's contract, nothing else uses the cell.
        let queue = unsafe { &mut *self.queue.0.get() }.as_mut()?;
        let rung = self.sequencer.rung();
        while queue.ring.head() != counter(rung) {
            let head = queue.ring.head().since(Counter::default());
            let note = self.sequencer.note(Position::new(head.into()));
            // SAFETY: the WQE is rung and not retired, so nothing writes its note.
            queue.ring.adopt(unsafe { &*note.0.get() });
        }
        Some(queue)
    }

    /// Takes the queue out, as an exclusive one. A post needs `SendRing::refill` before; a drop does
    /// not, and reads no WQE.
    fn take(&mut self) -> Option<SendQueue<T>> {
        // SAFETY: `&mut self` is the only access.
        unsafe { self.queue() };
        let mut queue = self.queue.0.get_mut().take()?;
        let ring = &mut queue.ring;
        // A ticket lost in a panic was never rung, nor was any WQE behind it.
        if self.sequencer.rung() != self.sequencer.reserved().0 {
            ring.state.stop();
        }
        ring.doorbell.go_on_from(self.doorbell.0.get_mut());
        ring.state.note_any();
        Some(queue)
    }
}

impl<T: Transport> Drop for Shared<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// Returns the same position as a counter of exclusive queues.
#[inline(always)]
fn counter(position: Position) -> Counter {
    Counter::new(position.get() as u32)
}

impl<T: Transport> SendQueue<T> {
    /// Converts the queue so that several threads can post to it, by clones of the [`Producer`] or
    /// references to it. Completions are polled with the [`Retirer`]. Outstanding requests stay
    /// outstanding. Allocates. [`Retirer::unshare`] converts it back.
    pub fn share(self) -> (Producer<T>, Retirer<T>) {
        let shared = Arc::new(Shared::new(self));
        (Producer::new(Arc::clone(&shared)), Retirer::new(shared))
    }
}

impl<T: Transport> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((reserved, _), rung) = (self.sequencer.reserved(), self.sequencer.rung());
        f.debug_struct("Shared")
            .field("transport", &T::NAME)
            .field("qpn", &self.wqes.qpn())
            .field("reserved", &reserved.get())
            .field("rung", &rung.get())
            .finish_non_exhaustive()
    }
}
