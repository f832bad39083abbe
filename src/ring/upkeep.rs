//! Queues beside their traffic: taking back what nothing reports, draining, going on after an error.

use std::time::Duration;

use mlx5_sys::verbs::ibv_qp_state;

use super::source::require;
use super::{Completions, PollError, PostError, QueueError, Queues, ReceiveQueue, SendQueue};
use crate::cqe::{Completion, SendOperation};
use crate::ib::{Recoverable, Transport};
use crate::verbs::deadline;
use crate::wqe::{Nop, PostOn};

/// Why a queue was not drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DrainError {
    /// The CQ cannot be polled.
    #[error(transparent)]
    Poll(#[from] PollError),
    /// Nothing reports what is outstanding, and no marker could be posted.
    #[error("no marker could be posted behind requests that nothing reports: {0}")]
    Marker(PostError),
    /// It took longer than it was given.
    #[error("the queue was not drained in time: {outstanding} blocks or receives are outstanding")]
    TimedOut {
        /// What was outstanding then.
        outstanding: u32,
    },
}

impl<T: Transport> SendQueue<T> {
    /// Returns whether requests are outstanding, and all of them unsignaled: no completion retires them
    /// before a later request is signaled. Looks at up to every outstanding WQE.
    pub fn is_silent(&self) -> bool {
        self.ring.cursor.used() != 0 && !self.ring.expects_cqe()
    }

    /// For a queue whose user is idle: where only unsignaled requests are
    /// [outstanding](Self::is_silent), posts a signaled NOP with this id behind them, whose
    /// completion retires them, so that their memory and their part of the ring come back. Returns
    /// whether it did.
    ///
    /// # Errors
    /// [`PostError::QueueFull`] where unsignaled requests fill the ring: then no completion can come
    /// any more, and only RESET helps. [`PostError::WrongState`] after an error, whose completions
    /// retire everything by themselves.
    pub fn reclaim(&mut self, id: u64) -> Result<bool, PostError>
    where
        Nop: PostOn<T>,
    {
        if !self.is_silent() {
            return Ok(false);
        }
        // SAFETY: a NOP names no memory.
        unsafe { self.post(id, Nop::new().signaled()) }.map(|()| true)
    }
}

impl<T: Recoverable> SendQueue<T> {
    /// Goes on after a request failed: moves the queue pair from SQE back to RTS, with the ring
    /// where it was. Every request that was outstanding must have come back, failed or flushed;
    /// what was flushed is to be posted again by whoever wants it. The receive queue was never
    /// concerned.
    ///
    /// A firmware command: tens of microseconds.
    ///
    /// # Errors
    /// [`QueueError::WrongState`] where the queue pair is not in SQE (in ERROR, only RESET helps);
    /// [`QueueError::Outstanding`]: poll until the flushed ones are back;
    /// [`Error::Call`](crate::Error::Call). Nothing is changed then.
    pub fn recover(&mut self) -> crate::Result<()> {
        let state = self.ring.owner.state()?;
        // Somebody else may have moved it, with this ring left stopped.
        let moved = state == ibv_qp_state::IBV_QPS_RTS && self.ring.stopped;
        if !moved {
            require(state, &[ibv_qp_state::IBV_QPS_SQE], "SQE")?;
        }
        if self.ring.cursor.used() != 0 {
            return Err(QueueError::Outstanding.into());
        }
        if !moved {
            self.ring.owner.resume()?;
        }
        self.ring.go_on();
        Ok(())
    }
}

impl Completions {
    /// Polls until the send queue has nothing outstanding. Where nothing would report it, posts a
    /// marker: a NOP with the id `marker`, which no other NOP of the queue must have. All
    /// completions but the marker's go to `each`, those of `others`, too: the other live queues that
    /// complete on the same CQ (or `()`). A completion of one that is missing ends the drain with
    /// [`PollError::QueueNotGiven`].
    ///
    /// # Errors
    /// [`DrainError`]. What came until then has been given to `each`.
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
        while !queue.is_idle() {
            match queue.reclaim(marker) {
                // After an error everything comes back flushed.
                Ok(_) | Err(PostError::WrongState) => {}
                Err(error) => return Err(DrainError::Marker(error)),
            }
            match self.poll(&mut (&mut *queue, &mut *others))? {
                Some(Completion::Send(done))
                    if (done.qpn, done.id) == (qpn, marker)
                        && done.operation == SendOperation::Nop => {}
                Some(completion) => each(completion),
                None => wait(deadline, || queue.blocks() - queue.free_blocks())?,
            }
        }
        Ok(())
    }

    /// Polls until the receive queue has nothing outstanding. Its queue pair is in ERROR, so that
    /// what no message came for is flushed ([`QueuePair::to_error`](crate::verbs::QueuePair::to_error)).
    /// All completions go to `each`, those of `others`, too.
    ///
    /// # Errors
    /// [`DrainError`]. What came until then has been given to `each`.
    pub fn drain_receives(
        &mut self,
        queue: &mut ReceiveQueue,
        others: &mut impl Queues,
        timeout: Duration,
        mut each: impl FnMut(Completion),
    ) -> Result<(), DrainError> {
        let deadline = deadline(timeout);
        while queue.outstanding() != 0 {
            match self.poll(&mut (&mut *queue, &mut *others))? {
                Some(completion) => each(completion),
                None => wait(deadline, || queue.outstanding())?,
            }
        }
        Ok(())
    }
}

/// Lets others run, if there is time left.
fn wait(deadline: std::time::Instant, outstanding: impl FnOnce() -> u32) -> Result<(), DrainError> {
    if std::time::Instant::now() >= deadline {
        return Err(DrainError::TimedOut { outstanding: outstanding() });
    }
    std::thread::yield_now();
    Ok(())
}
