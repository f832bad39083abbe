//! Draining queues: polling until nothing is outstanding.

use std::time::{Duration, Instant};

use crate::cqe::{Completion, SendOperation};
use crate::ib::Transport;
use crate::ring::{CqReader, DrainError, PostError, Queues, ReceiveQueue, SendQueue};
use crate::wqe::{Nop, PostOn};

impl CqReader {
    /// Polls until the send queue has nothing outstanding. If no completion would report that,
    /// posts a marker: a NOP with the id `marker`, which no other NOP of the queue may have.
    /// `others` are the other live queues that complete on the same CQ (or `()`). All completions
    /// but the marker's are passed to `each`, those of `others`, too. A completion of a queue that
    /// is missing ends the call with [`QueueNotGiven`](crate::ring::PollError::QueueNotGiven).
    ///
    /// # Errors
    /// [`DrainError`]. Completions taken until then have been passed to `each`.
    pub fn drain_sends<T: Transport>(
        &mut self,
        queue: &mut SendQueue<T>,
        others: &mut impl Queues,
        marker: u64,
        timeout: Duration,
        mut each: impl FnMut(Completion),
    ) -> Result<(), DrainError>
    where
        Nop: PostOn<T>,
    {
        let deadline = deadline(timeout);
        let qpn = queue.qpn();
        self.check_health();
        while !queue.is_idle() {
            match queue.reclaim(marker) {
                // After an error everything comes back flushed. The poll reports a failed device.
                Ok(_) | Err(PostError::WrongState | PostError::DeviceFailed) => {}
                Err(error) => return Err(DrainError::Marker(error)),
            }
            match self.poll(&mut (&mut *queue, &mut *others))? {
                Some(Completion::Send(done))
                    if (done.qpn, done.id) == (qpn, marker)
                        && done.operation == SendOperation::Nop => {}
                Some(completion) => each(completion),
                None => self.wait(deadline, || queue.blocks() - queue.free_blocks())?,
            }
        }
        Ok(())
    }

    /// Polls until the receive queue has nothing outstanding. Its queue pair must be in ERROR
    /// ([`QueuePair::to_error`](crate::verbs::QueuePair::to_error)), so that the HCA flushes
    /// receives for which no message came. All completions go to `each`, also the ones of `others`.
    ///
    /// # Errors
    /// [`DrainError`]. All completions until then were given to `each`.
    pub fn drain_receives(
        &mut self,
        queue: &mut ReceiveQueue,
        others: &mut impl Queues,
        timeout: Duration,
        mut each: impl FnMut(Completion),
    ) -> Result<(), DrainError> {
        let deadline = deadline(timeout);
        self.check_health();
        while queue.outstanding() != 0 {
            match self.poll(&mut (&mut *queue, &mut *others))? {
                Some(completion) => each(completion),
                None => self.wait(deadline, || queue.outstanding())?,
            }
        }
        Ok(())
    }

    /// Lets other threads run after a poll that found nothing, if there is time left.
    fn wait(
        &mut self,
        deadline: Instant,
        outstanding: impl FnOnce() -> u32,
    ) -> Result<(), DrainError> {
        if Instant::now() >= deadline {
            return Err(DrainError::TimedOut { outstanding: outstanding() });
        }
        self.waited();
        std::thread::yield_now();
        Ok(())
    }
}

/// Returns the end of a wait that begins now. If the clock cannot express it: in about a century.
pub(crate) fn deadline(timeout: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or_else(|| now + CENTURY)
}
