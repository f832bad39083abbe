//! What queues ask of the objects that they were made of, outside of traffic.

use core::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex};

use mlx5_sys::ifc::cqc;
use mlx5_sys::verbs::ibv_qp;

use super::ObjectId;
use crate::ring::QueueError;
use crate::ring::enhanced::Titles;
use crate::verbs::WorkQueue;

/// Keeps a queue pair alive, or a work queue that is alone.
pub trait QueueOwner: Send + Sync {
    /// Which one it is.
    fn id(&self) -> ObjectId;

    /// Claims one of its queues for a writer on the direct path. While claimed, it is not reset.
    ///
    /// # Errors
    /// [`Error::QueueInUse`](crate::Error::QueueInUse), [`QueueError::Outstanding`].
    fn claim(&self, queue: WorkQueue) -> crate::Result<()>;

    /// Gives a claim back. If not `idle`, work is outstanding, and only RESET makes the queue free.
    fn release(&self, queue: WorkQueue, idle: bool);

    /// Set when it is destroyed.
    fn destroyed(&self) -> Arc<AtomicBool>;

    /// Its state, as the HCA says it (`enum ibv_qp_state`): a firmware command.
    ///
    /// # Errors
    /// [`QueueError::QueryQp`], [`QueueError::QueryRefused`].
    fn state(&self) -> Result<u32, QueueError>;

    /// Moves it from SQE to RTS: a firmware command.
    ///
    /// # Errors
    /// Those of the call or the command.
    fn resume(&self) -> crate::Result<()>;

    /// The queue pair of libibverbs, where it is one.
    fn as_raw(&self) -> Option<NonNull<ibv_qp>>;
}

/// What is known of a CQ that gets no CQEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqCheck {
    /// It works: no asynchronous event is unread.
    NoEvent,
    /// It works: the HCA said so.
    Works,
    /// An event is unread, and the HCA does not tell this context whether it is of the CQ.
    Unknown,
    /// The HCA has failed it.
    Failed,
}

impl CqCheck {
    /// Judges by the status in a CQ's context: not 0 after an overrun, or a CQE that could not be
    /// written.
    pub(crate) fn of(context: &[u8]) -> Self {
        if cqc::STATUS.get(context) == 0 { Self::Works } else { Self::Failed }
    }
}

/// Keeps a completion queue alive.
pub trait CqOwner: Send + Sync {
    /// Claims its consumer side.
    ///
    /// # Errors
    /// [`Error::QueueInUse`](crate::Error::QueueInUse).
    fn claim(&self) -> crate::Result<()>;

    /// Gives the claim back.
    fn release(&self);

    /// Whether the HCA writes to it without a look at how far it was read.
    fn ignores_overrun(&self) -> bool;

    /// Counts its events that were taken.
    fn events(&self) -> Arc<AtomicU32>;

    /// Looks whether the HCA has failed the CQ, whose number is `cqn`. A system call, and a firmware
    /// command where something points to a failure.
    fn check(&self, cqn: u32) -> CqCheck;

    /// Where a CQ of the enhanced layout keeps what compressed CQEs may be like, for the next reader.
    fn titles(&self) -> Option<&Mutex<Titles>> {
        None
    }
}

/// Keeps a shared receive queue alive.
pub trait SrqOwner: Send + Sync {
    /// Claims posting to it. Gives the order in which the last owner left its WQEs, if there was one.
    ///
    /// # Errors
    /// [`Error::QueueInUse`](crate::Error::QueueInUse), [`QueueError::Outstanding`].
    fn claim(&self) -> crate::Result<Option<Box<[u16]>>>;

    /// Gives the claim back, with the order in which the HCA takes the WQEs next; `None` if some
    /// are outstanding.
    fn release(&self, order: Option<Box<[u16]>>);

    /// Gives a claim back that came to nothing.
    fn unclaim(&self, order: Option<Box<[u16]>>);

    /// Set when it is destroyed.
    fn destroyed(&self) -> Arc<AtomicBool>;
}
