//! Handing queues back to their former owners. `docs/takeover.md` says what libmlx5 can do with
//! them.

use core::ptr::NonNull;

use mlx5_sys::verbs::{ibv_cq, ibv_qp};

use crate::ib::Transport;
use crate::ring::{CqReader, ReceiveQueue, SendQueue};

impl<T: Transport> SendQueue<T> {
    /// Returns the send queue's QP. This queue writes nothing to it any more. Another
    /// [`from_raw`](Self::from_raw) can continue at the index in the doorbell record.
    ///
    /// libmlx5 cannot continue: it keeps its own count of posts, and starts from there. Before
    /// `ibv_post_send` is called the QP has to go through RESET, where libmlx5 starts again.
    ///
    /// # Errors
    /// The queue itself, if requests are outstanding, or if it was not made from a queue pair of
    /// libibverbs: one made by command has no `ibv_qp` to return.
    #[allow(clippy::result_large_err, reason = "the queue itself, unmoved work and all")]
    pub fn into_raw(self) -> Result<NonNull<ibv_qp>, Self> {
        match self.ring.owner.as_raw() {
            Some(qp) if self.is_idle() => Ok(qp),
            _ => Err(self),
        }
    }
}

impl ReceiveQueue {
    /// Returns the receive queue's QP. This queue writes nothing to it any more. Another
    /// [`from_raw`](Self::from_raw) can continue at the index in the doorbell record. libmlx5 can
    /// only after RESET, see [`SendQueue::into_raw`].
    ///
    /// # Errors
    /// The queue itself, if receives are outstanding, or it was made by command.
    #[allow(clippy::result_large_err, reason = "the queue itself, unmoved work and all")]
    pub fn into_raw(self) -> Result<NonNull<ibv_qp>, Self> {
        match self.owner.as_raw() {
            Some(qp) if self.outstanding() == 0 => Ok(qp),
            _ => Err(self),
        }
    }
}

impl CqReader {
    /// Returns the CQ, after updating its record. Another [`from_raw`](Self::from_raw) can continue
    /// with it. Queues that complete on it should have been handed back before: a later reader
    /// reserves the CQ's slots again.
    ///
    /// libmlx5 cannot continue: it keeps its own count of polled CQEs, which cannot be set, and
    /// would return CQEs a second time. Its calls that destroy the CQ, or wait for events, still
    /// work.
    ///
    /// # Errors
    /// The reader itself, if its CQ was made by command.
    #[allow(clippy::result_large_err, reason = "the reader itself, at the place where it goes on")]
    pub fn into_raw(self) -> Result<NonNull<ibv_cq>, Self> {
        self.raw.ok_or(self)
    }
}
