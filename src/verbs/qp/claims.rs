//! Claims of the direct path on the queues of a pair.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::error::{Error, Result};
use crate::ring::source::WorkQueue;

impl WorkQueue {
    /// Returns the bit that is set if the last owner left work outstanding.
    const fn unfinished(self) -> u8 {
        (self as u8) << 2
    }

    /// Returns the name of the queue in errors.
    const fn name(self) -> &'static str {
        match self {
            WorkQueue::Send => "send queue",
            WorkQueue::Receive => "receive queue",
        }
    }
}

/// Which queues the direct path has claimed, and which were left with work outstanding.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// Bits of [`WorkQueue`], and of [`WorkQueue::unfinished`].
    taken: AtomicU8,
}

impl Claims {
    /// Claims one of the queues for a writer on the direct path. Two writers would overwrite each
    /// other's WQEs. While a queue is claimed, the pair cannot be reset: a reset would set the
    /// HCA's counters back under the writer.
    ///
    /// # Errors
    /// [`Error::QueueInUse`]; [`QueueError::NotIdle`](crate::ring::QueueError::NotIdle) if
    /// the last owner left work outstanding.
    pub(crate) fn claim(&self, queue: WorkQueue) -> Result<()> {
        let before = self.taken.fetch_or(queue as u8, Ordering::Acquire);
        if before & queue as u8 == 0 && before & queue.unfinished() != 0 {
            self.taken.fetch_and(!(queue as u8), Ordering::Release);
            return Err(crate::error::QueueError::NotIdle.into());
        }
        if before & queue as u8 != 0 {
            return Err(Error::QueueInUse { queue: queue.name() });
        }
        Ok(())
    }

    /// Releases a claim. If not `idle`, work of the owner is outstanding: the queue cannot be
    /// claimed again before the pair was reset.
    pub(crate) fn release(&self, queue: WorkQueue, idle: bool) {
        if !idle {
            self.taken.fetch_or(queue.unfinished(), Ordering::Relaxed);
        }
        self.taken.fetch_and(!(queue as u8), Ordering::Release);
    }

    /// Claims both queues for a reset of the pair. Until the reservation is dropped, no queue of
    /// the direct path can claim one.
    ///
    /// # Errors
    /// [`Error::QueueInUse`] while one of the queues is claimed, or another reset is under way.
    pub(crate) fn reserve(&self) -> Result<Reservation<'_>> {
        const BOTH: u8 = WorkQueue::Send as u8 | WorkQueue::Receive as u8;
        let reserve = |taken| (taken & BOTH == 0).then_some(taken | BOTH);
        match self.taken.fetch_update(Ordering::Acquire, Ordering::Relaxed, reserve) {
            Ok(before) => Ok(Reservation { claims: self, after: before }),
            Err(taken) => {
                let send = taken & WorkQueue::Send as u8 != 0;
                let queue = if send { WorkQueue::Send } else { WorkQueue::Receive };
                Err(Error::QueueInUse { queue: queue.name() })
            }
        }
    }
}

/// The claim of both queues during a reset.
pub(crate) struct Reservation<'a> {
    claims: &'a Claims,
    /// The bits of the claims after the reservation ends.
    after: u8,
}

impl Reservation<'_> {
    /// Ends the reservation after a successful reset. No work is outstanding any more.
    pub(crate) fn was_reset(mut self) {
        self.after = 0;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.claims.taken.store(self.after, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
