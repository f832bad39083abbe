//! A completion queue with the queues that complete on it. They are one group, which one thread uses at a
//! time.

use core::ptr::NonNull;

use mlx5::ib::{Rc, Uc, Ud};
use mlx5::ring::{Batch, CqReader, QueueTable};
use mlx5_sys::verbs::ibv_cq;

use crate::claims::Claim;
use crate::error::{Failed, Result, caught};
use crate::status::Status;
use crate::wait::Channel;

/// `struct mlx5_cq`.
pub struct Cq {
    // Fields are dropped in this order: the batch borrows a queue, and queues end before their reader.
    /// The batch that is being filled. While there is one, nothing touches the tables.
    pub(crate) open: Option<Open>,
    pub(crate) tables: Tables,
    pub(crate) reader: CqReader,
    pub(crate) channel: Channel,
    /// Handles of queues that complete here.
    pub(crate) queues: u32,
    /// Whether a call on this group has panicked.
    pub(crate) broken: bool,
    pub(crate) raw: NonNull<ibv_cq>,
    pub(crate) _claim: Claim,
}

/// The queues of a group, by transport. Most groups have one transport.
pub(crate) struct Tables {
    /// Also has the receive queues of all transports.
    pub(crate) rc: QueueTable<Rc>,
    pub(crate) uc: Option<Box<QueueTable<Uc>>>,
    pub(crate) ud: Option<Box<QueueTable<Ud>>>,
}

impl Cq {
    /// Fails if a batch is open: nothing but its own calls may touch the tables.
    #[inline(always)]
    pub(crate) fn require_no_batch(&self) -> Result {
        match self.open {
            None => Ok(()),
            Some(_) => Err(Failed::of(Status::BatchOpen)),
        }
    }
}

/// The batch that a group has open.
pub(crate) struct Open {
    pub(crate) qpn: u32,
    pub(crate) batch: Filled,
}

/// A batch that borrows a queue of the group's tables: nothing touches the tables while it exists.
pub(crate) enum Filled {
    Rc(Batch<'static, Rc>),
    Uc(Batch<'static, Uc>),
    Ud(Batch<'static, Ud>),
}

impl Open {
    /// Returns the open batch, if it is of the queue pair with this number.
    pub(crate) fn of(open: &mut Option<Self>, qpn: u32) -> Result<&mut Self> {
        open.as_mut().filter(|open| open.qpn == qpn).ok_or(Failed::of(Status::NoBatch))
    }
}

/// The group lacks the queue of a handle.
pub(crate) const GONE: Failed =
    Failed::with(Status::Internal, "the group of the completion queue lacks this queue");

/// Runs a body on a group. A panic in it ends the use of the group.
///
/// # Safety
/// `cq` is null or a handle that is alive, and no other call runs on its group.
#[inline(always)]
pub(crate) unsafe fn on<R>(cq: *mut Cq, body: impl FnOnce(&mut Cq) -> Result<R>) -> Result<R> {
    // SAFETY: null or alive, and used by nothing else, by this function's contract.
    let Some(cq) = (unsafe { cq.as_mut() }) else {
        return Err(Failed::argument("the handle is null"));
    };
    if cq.broken {
        return Err(Failed::of(Status::Internal));
    }
    let group = &mut *cq;
    let result = caught(move || body(group));
    if matches!(&result, Err(failed) if failed.status == Status::Internal) {
        cq.broken = true;
    }
    result
}

#[cfg(test)]
mod tests;
