//! Send queues that several threads post to.
//!
//! [`SendQueue::share`] gives a [`Producer`], which threads clone or borrow and post by, and a
//! [`Retirer`], which the completion reader's thread polls with. A post reserves its blocks by one
//! atomic operation, writes its WQE while other threads write theirs, and says so by another one.
//! No thread waits for another: WQEs become known to the HCA in the order of their blocks, rung by
//! the thread whose WQE was the oldest one not yet written, together with those behind it that are
//! written by then. `sequencer` has that protocol, and the argument for it.
//!
//! Exclusive queues are not touched by any of this: they stay without atomic operations. Phases
//! (module [`timing`](crate::watch::timing)) are those of exclusive queues only.

mod position;
mod producer;
mod retirer;
mod sequencer;

pub use producer::Producer;
pub use retirer::Retirer;

/// What the protocol is made of; its tests have their own.
mod atomic {
    pub use core::hint::spin_loop;
    pub use core::sync::atomic::{AtomicU64, Ordering};

    /// How often a WQE that is not written yet is looked at again before the doorbell is handed
    /// over: as long as writing one takes.
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

use self::position::Position;
use self::sequencer::Apart;
use super::SendQueue;
use super::slots::{Posted, Slots};
use crate::doorbell::SendDoorbell;
use crate::ib::{Counter, Transport};
use crate::wqe::Limits;

/// What is common to queues of all transports.
pub(super) type Sequencer = sequencer::Sequencer<Note>;

/// What producers and the retirer share.
struct Shared<T: Transport> {
    sequencer: Sequencer,
    slots: Slots,
    limits: Limits,
    signal_all: bool,
    /// Used by the thread that has the [`Turn`](sequencer::Turn).
    doorbell: Apart<UnsafeCell<SendDoorbell>>,
    /// Used by the retirer, and when it is the only one left: its head lags behind, and its doorbell
    /// is not used. `None` only when it has been taken out, by whoever is the only one left.
    queue: Apart<UnsafeCell<Option<SendQueue<T>>>>,
}

/// What a producer leaves beside a WQE's stamp, for who rings and who retires.
#[derive(Default)]
pub(super) struct Note(UnsafeCell<Posted>);

// SAFETY: written by the holder of the slot's ticket, and read when the sequencer says that it was.
unsafe impl Sync for Note {}

// SAFETY: the cells are used by one thread at a time, as they say. Ring and shadow are written by
// who holds a slot's ticket and read by others only as the sequencer allows; the HCA does not mind
// which thread stores.
unsafe impl<T: Transport> Send for Shared<T> {}
// SAFETY: the cells are used by one thread at a time: the doorbell by the holder of the turn, the queue
// by the retirer. Ring and shadow are written by the holder of a slot's ticket, and read by others only
// when the sequencer says that they were.
unsafe impl<T: Transport> Sync for Shared<T> {}

impl<T: Transport> Shared<T> {
    fn new(mut queue: SendQueue<T>) -> Self {
        let ring = &mut queue.ring;
        // Nothing may look posted but what is.
        ring.refill();
        let (head, tail) = (ring.cursor.head(), ring.cursor.tail());
        let first = Position::new(u64::from(tail.since(Counter::default())));
        let last = first.next_with_low32(head.since(Counter::default()));
        let (entries, credit) = (ring.cursor.shape().entries(), ring.credit.entries());
        let sequencer = Sequencer::new(
            entries,
            credit,
            (last, last.minus_slack(ring.slack)),
            (first, first.minus_slack(ring.slack_retired)),
        );
        if ring.stopped {
            sequencer.stop();
        }
        // SAFETY: the queue's own is not used until it goes on from this one.
        let doorbell = unsafe { ring.doorbell.twin() };
        Self {
            sequencer,
            slots: ring.slots(),
            limits: ring.limits,
            signal_all: ring.signal_all,
            doorbell: Apart(UnsafeCell::new(doorbell)),
            queue: Apart(UnsafeCell::new(Some(queue))),
        }
    }

    /// The queue, in which everything is posted that is rung by now.
    ///
    /// # Safety
    /// For the retirer, or who is the only one left; one at a time.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "as the contract says")]
    unsafe fn queue(&self) -> Option<&mut SendQueue<T>> {
        // SAFETY: nothing else uses the cell.
        let queue = unsafe { &mut *self.queue.0.get() }.as_mut()?;
        let rung = self.sequencer.rung();
        while queue.ring.cursor.head() != counter(rung) {
            let head = queue.ring.cursor.head().since(Counter::default());
            let note = self.sequencer.note(Position::new(head.into()));
            // SAFETY: of a WQE that is rung and not retired: nothing writes it.
            queue.ring.adopt(unsafe { &*note.0.get() });
        }
        Some(queue)
    }

    /// Takes out the queue, as an exclusive one.
    fn take(&mut self) -> Option<SendQueue<T>> {
        // SAFETY: there is nothing else.
        unsafe { self.queue() };
        let mut queue = self.queue.0.get_mut().take()?;
        let ring = &mut queue.ring;
        // A ticket that was lost in a panic was never rung, nor was anything behind it.
        ring.stopped |= self.sequencer.rung() != self.sequencer.reserved().0;
        ring.doorbell.go_on_from(self.doorbell.0.get_mut());
        // Producers may have changed keys.
        ring.careful = true;
        ring.refill();
        Some(queue)
    }
}

impl<T: Transport> Drop for Shared<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// The same position, as exclusive queues count.
#[inline(always)]
fn counter(position: Position) -> Counter {
    Counter::new(position.get() as u32)
}

impl<T: Transport> SendQueue<T> {
    /// Makes the queue one that several threads can post to: by clones of the [`Producer`], or
    /// references to it. Completions are polled with the [`Retirer`]. Outstanding requests stay so.
    /// Allocates; [`Retirer::unshare`] makes it an exclusive one again.
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
            .field("qpn", &self.slots.qpn())
            .field("reserved", &reserved.get())
            .field("rung", &rung.get())
            .finish_non_exhaustive()
    }
}
