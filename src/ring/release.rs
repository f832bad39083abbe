//! Handing queues back to whoever they were taken from. What libmlx5 can do with them then is in
//! `docs/takeover.md`.

use core::ptr::NonNull;

use mlx5_sys::verbs::{ibv_cq, ibv_qp};

use super::{Completions, ReceiveQueue, SendQueue};
use crate::ib::Transport;

impl<T: Transport> SendQueue<T> {
    /// Hands the send queue back: its QP, of which this queue writes nothing any more. Another
    /// [`from_raw`](Self::from_raw) can go on with it where the doorbell record says.
    ///
    /// libmlx5 cannot: it keeps its own count of what was posted, and starts from there. Before
    /// `ibv_post_send` is called the QP has to go through RESET, where libmlx5 starts anew.
    ///
    /// # Errors
    /// The queue itself, where requests are outstanding, or where it was not made of a queue pair of
    /// libibverbs: one that was made by command has no other name to hand back.
    #[allow(clippy::result_large_err, reason = "the queue itself, unmoved work and all")]
    pub fn into_raw(self) -> Result<NonNull<ibv_qp>, Self> {
        match self.ring.owner.as_raw() {
            Some(qp) if self.is_idle() => Ok(qp),
            _ => Err(self),
        }
    }
}

impl ReceiveQueue {
    /// Hands the receive queue back: its QP, of which this queue writes nothing any more. Another
    /// [`from_raw`](Self::from_raw) can go on with it where the doorbell record says; libmlx5 only
    /// after RESET, as for [`SendQueue::into_raw`].
    ///
    /// # Errors
    /// The queue itself, where receives are outstanding, or it was made by command.
    #[allow(clippy::result_large_err, reason = "the queue itself, unmoved work and all")]
    pub fn into_raw(self) -> Result<NonNull<ibv_qp>, Self> {
        match self.owner.as_raw() {
            Some(qp) if self.outstanding() == 0 => Ok(qp),
            _ => Err(self),
        }
    }
}

impl Completions {
    /// Hands the CQ back, after its record was brought up to date. Another
    /// [`from_raw`](Self::from_raw) can go on with it. Queues that complete on it should have been
    /// handed back before: a later reader promises the CQ's entries anew.
    ///
    /// libmlx5 cannot, whatever is done: it keeps its own count of what was polled, which nothing
    /// sets, and would give what was read here a second time. Its calls that destroy the CQ, or wait
    /// for events, are as good as before.
    ///
    /// # Errors
    /// The reader itself, where it was made of a CQ that was made by command.
    #[allow(clippy::result_large_err, reason = "the reader itself, at the place where it goes on")]
    pub fn into_raw(self) -> Result<NonNull<ibv_cq>, Self> {
        self.raw.ok_or(self)
    }
}
