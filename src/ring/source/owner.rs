//! Owners of the objects that queues are made from. Queues use them outside of traffic.

use core::mem::forget;
use core::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex};

use mlx5_sys::ifc::cqc;
use mlx5_sys::verbs::ibv_qp;

use super::ObjectId;
use super::Titles;
use crate::error::{Errno, QueueError};

/// One of the two queues of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WorkQueue {
    /// The send queue.
    Send = 1,
    /// The receive queue.
    Receive = 2,
}

/// Keeps a queue pair, or a work queue without one, alive.
pub trait QueueOwner: Send + Sync {
    /// Returns the identity of the object.
    fn id(&self) -> ObjectId;

    /// Claims one of its queues for direct posting. While claimed, it is not reset.
    ///
    /// # Errors
    /// [`Error::QueueInUse`](crate::Error::QueueInUse), [`QueueError::NotIdle`].
    fn claim(&self, queue: WorkQueue) -> crate::error::Result<()>;

    /// Releases a claim. If not `idle`, work is outstanding, and only RESET makes the queue free
    /// again.
    fn release(&self, queue: WorkQueue, idle: bool);

    /// Returns the flag that is set when it is destroyed.
    fn destroyed(&self) -> Arc<AtomicBool>;

    /// Returns the state that the HCA reports (`enum ibv_qp_state`). Gives a firmware command.
    ///
    /// # Errors
    /// [`QueueError::QueryQp`], [`QueueError::QueryRefused`].
    fn state(&self) -> Result<u32, QueueError>;

    /// Moves it from SQE to RTS. Gives a firmware command.
    ///
    /// # Errors
    /// The error of the call or the command.
    fn resume(&self) -> crate::error::Result<()>;

    /// Moves it to ERROR, whatever its state is. By default this is refused.
    ///
    /// # Errors
    /// The error of the call or the command.
    fn fail(&self) -> crate::error::Result<()> {
        Err(QueueError::NoQueue.into())
    }

    /// Keeps the memory of requests that were outstanding when their queue was dropped, until the
    /// HCA no longer accesses it. By default for ever.
    fn retain(&self, memory: Box<dyn Send>) {
        forget(memory);
    }

    /// Returns the queue pair of libibverbs, if it is one.
    fn as_raw(&self) -> Option<NonNull<ibv_qp>>;
}

/// The result of checking a CQ that gets no CQEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqCheck {
    /// It works: no asynchronous event is unread.
    NoEvent,
    /// It works: the HCA said so.
    Works,
    /// An event is unread, and the HCA does not tell this context whether it concerns the CQ.
    Unknown,
    /// The HCA failed it.
    Failed,
    /// The whole device failed or was removed.
    DeviceFailed,
}

impl CqCheck {
    /// Decides by the errno of a command that asked for the CQ's status.
    pub(crate) fn refused(errno: Errno) -> Self {
        if errno.is_device_gone() { Self::DeviceFailed } else { Self::Unknown }
    }

    /// Decides by the status in a CQ's context. It is not 0 after an overrun, or if a CQE could not
    /// be written.
    pub(crate) fn of(context: &[u8]) -> Self {
        if cqc::STATUS.get(context) == 0 { Self::Works } else { Self::Failed }
    }
}

/// Keeps a completion queue alive.
pub trait CqOwner: Send + Sync {
    /// Claims the consumer side.
    ///
    /// # Errors
    /// [`Error::QueueInUse`](crate::Error::QueueInUse).
    fn claim(&self) -> crate::error::Result<()>;

    /// Releases the claim.
    fn release(&self);

    /// Returns whether the HCA writes CQEs without checking the consumer index.
    fn ignores_overrun(&self) -> bool;

    /// Returns the counter of its events that were taken.
    fn events(&self) -> Arc<AtomicU32>;

    /// Checks whether the HCA failed the CQ `cqn`. Costs a system call, and a firmware command if
    /// there are signs of a failure.
    fn check(&self, cqn: u32) -> CqCheck;

    /// Returns where a CQ of the enhanced layout keeps its titles for the next reader.
    fn titles(&self) -> Option<&Mutex<Titles>> {
        None
    }
}

/// Keeps a shared receive queue alive.
pub trait SrqOwner: Send + Sync {
    /// Claims posting to it. Returns the order in which the last claimant left its WQEs, if there
    /// was one.
    ///
    /// # Errors
    /// [`Error::QueueInUse`](crate::Error::QueueInUse), [`QueueError::NotIdle`].
    fn claim(&self) -> crate::error::Result<Option<Box<[u16]>>>;

    /// Releases the claim. `order` is the order in which the HCA takes the WQEs next; `None` if
    /// some are outstanding.
    fn release(&self, order: Option<Box<[u16]>>);

    /// Releases a claim after taking over failed.
    fn unclaim(&self, order: Option<Box<[u16]>>);

    /// Keeps the memory of receives that were outstanding when the claimant was dropped, until the
    /// HCA no longer accesses it.
    fn retain(&self, memory: Box<dyn Send>);

    /// Returns the flag that is set when it is destroyed.
    fn destroyed(&self) -> Arc<AtomicBool>;
}
