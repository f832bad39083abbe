//! Maintenance of send queues: retiring unreported requests, and recovery after an error.

use mlx5_sys::verbs::ibv_qp_state;

use crate::error::QueueError;
use crate::ib::{Recoverable, Transport};
use crate::ring::source::require;
use crate::ring::{PostError, SendQueue};
use crate::wqe::{Nop, PostOn};

impl<T: Transport> SendQueue<T> {
    /// Returns whether requests are outstanding, and all of them are unsignaled. Then no completion
    /// retires them until a later request is signaled. Cost: reads up to every outstanding WQE.
    pub fn is_silent(&self) -> bool {
        !self.is_idle() && !self.ring.expects_cqe(self.ring.head())
    }

    /// Retires the outstanding requests of an idle queue. If only unsignaled requests are
    /// [outstanding](Self::is_silent), posts a signaled NOP with this id behind them. Its
    /// completion retires them, so that their memory and their blocks become free. Returns whether
    /// it posted the NOP.
    ///
    /// # Errors
    /// [`PostError::WrongState`] after an error: its completions retire all requests by themselves.
    /// There is always a block for the NOP: unsignaled requests never take the last one
    /// ([`PostError::NothingSignaled`]).
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

impl<T: Transport> SendQueue<T>
where
    Nop: PostOn<T>,
{
    /// Posts a signaled NOP to a queue pair in ERROR, which the HCA flushes after all requests
    /// before it. Returns the NOP's index. If the queue is full, posts nothing and returns the index
    /// of its last request. The queue is not used any more afterwards.
    pub(crate) fn post_last(&mut self) -> Option<u16> {
        let ring = &mut self.ring;
        // It may have seen a failure.
        ring.state.resume();
        ring.refill();
        let head = ring.head();
        // SAFETY: a NOP names no memory.
        match unsafe { self.post(0, Nop::new().signaled()) } {
            Ok(()) => Some(head.low16()),
            Err(_) => self.ring.state.outstanding().last().map(|(at, _)| at.low16()),
        }
    }
}

impl<T: Recoverable> SendQueue<T> {
    /// Recovers after a request failed: moves the queue pair from SQE back to RTS. The ring
    /// continues at its position. Every outstanding request must have been returned, failed or
    /// flushed. The program posts flushed requests again if it wants to. The receive queue is not
    /// affected.
    ///
    /// Gives a firmware command, which takes tens of microseconds.
    ///
    /// # Errors
    /// [`QueueError::WrongState`] if the queue pair is not in SQE (in ERROR, only RESET helps);
    /// [`QueueError::NotIdle`]: poll until the flushed requests are returned;
    /// [`Error::Call`](crate::Error::Call). Nothing is changed then.
    #[doc(alias("ibv_modify_qp", "IBV_QPS_SQE"))]
    pub fn recover(&mut self) -> crate::error::Result<()> {
        let state = self.ring.owner.state()?;
        // Other code may have moved it to RTS, with this ring still stopped.
        let moved = state == ibv_qp_state::IBV_QPS_RTS && self.ring.state.is_stopped();
        if !moved {
            require(state, &[ibv_qp_state::IBV_QPS_SQE], "SQE")?;
        }
        if !self.is_idle() {
            return Err(QueueError::NotIdle.into());
        }
        if !moved {
            self.ring.owner.resume()?;
        }
        self.ring.go_on();
        Ok(())
    }
}
