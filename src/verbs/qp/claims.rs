//! Who writes to the queues of a pair on the direct path.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::verbs::{Error, Result};

/// One of the two queues of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WorkQueue {
    /// Of requests.
    Send = 1,
    /// Of receives.
    Receive = 2,
}

impl WorkQueue {
    /// The bit that says that the last owner left work outstanding.
    const fn unfinished(self) -> u8 {
        (self as u8) << 2
    }

    /// What errors call it.
    const fn name(self) -> &'static str {
        match self {
            WorkQueue::Send => "send queue",
            WorkQueue::Receive => "receive queue",
        }
    }
}

/// Which of the two queues are owned by the direct path, and which were left with work outstanding.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// Bits of [`WorkQueue`], and of [`WorkQueue::unfinished`].
    taken: AtomicU8,
}

impl Claims {
    /// Claims one of the queues for a writer on the direct path: two writers would overwrite each
    /// other's WQEs. While claimed, the pair cannot be reset, which would set the card's counters
    /// back under the writer.
    ///
    /// # Errors
    /// [`Error::QueueInUse`]; [`QueueError::Outstanding`](crate::ring::QueueError::Outstanding) if
    /// the last owner left work outstanding.
    pub(crate) fn claim(&self, queue: WorkQueue) -> Result<()> {
        let before = self.taken.fetch_or(queue as u8, Ordering::Acquire);
        if before & queue as u8 == 0 && before & queue.unfinished() != 0 {
            self.taken.fetch_and(!(queue as u8), Ordering::Release);
            return Err(crate::ring::QueueError::Outstanding.into());
        }
        if before & queue as u8 != 0 {
            return Err(Error::QueueInUse { queue: queue.name() });
        }
        Ok(())
    }

    /// Gives a claim back. If not `idle`, work of the owner is outstanding: the queue cannot be
    /// claimed again before the pair was reset.
    pub(crate) fn release(&self, queue: WorkQueue, idle: bool) {
        if !idle {
            self.taken.fetch_or(queue.unfinished(), Ordering::Relaxed);
        }
        self.taken.fetch_and(!(queue as u8), Ordering::Release);
    }

    /// Whether the pair may be reset.
    ///
    /// # Errors
    /// [`Error::QueueInUse`] while one of the queues is claimed.
    pub(crate) fn check_free(&self) -> Result<()> {
        let taken = self.taken.load(Ordering::Acquire);
        let taken =
            [WorkQueue::Send, WorkQueue::Receive].into_iter().find(|q| taken & *q as u8 != 0);
        taken.map_or(Ok(()), |queue| Err(Error::QueueInUse { queue: queue.name() }))
    }

    /// The pair was reset: nothing is outstanding.
    pub(crate) fn reset(&self) {
        self.taken.store(0, Ordering::Release);
    }
}
