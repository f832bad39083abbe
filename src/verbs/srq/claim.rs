//! The claim of the direct path on a shared receive queue.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, QueueError, Result};

/// The claim of a shared receive queue: one writer at a time.
#[derive(Debug, Default)]
pub(crate) struct SrqClaim {
    claim: Mutex<Claim>,
}

#[derive(Debug)]
enum Claim {
    /// Not claimed. Holds the order in which the HCA uses its WQEs next, if an owner has left one.
    Free(Option<Box<[u16]>>),
    /// Claimed by one owner.
    Taken,
    /// Cannot be claimed any more: the last owner left receives outstanding.
    Unfinished,
}

impl Default for Claim {
    fn default() -> Self {
        Self::Free(None)
    }
}

impl SrqClaim {
    /// Claims the queue for a writer on the direct path. Returns the order that the last owner has
    /// left, if there was one.
    ///
    /// # Errors
    /// [`Error::QueueInUse`]; [`QueueError::NotIdle`] if the last owner left receives
    /// outstanding: an SRQ cannot be reset.
    pub(crate) fn claim(&self) -> Result<Option<Box<[u16]>>> {
        let mut claim = self.lock();
        match &mut *claim {
            Claim::Taken => Err(Error::QueueInUse { queue: "shared receive queue" }),
            Claim::Unfinished => Err(QueueError::NotIdle.into()),
            Claim::Free(order) => {
                let order = order.take();
                *claim = Claim::Taken;
                Ok(order)
            }
        }
    }

    /// Releases a claim, with the order in which the HCA uses the WQEs next; `None` if receives of
    /// the owner are outstanding.
    pub(crate) fn release(&self, order: Option<Box<[u16]>>) {
        *self.lock() = match order {
            Some(order) => Claim::Free(Some(order)),
            None => Claim::Unfinished,
        };
    }

    /// Releases a claim that was not used.
    pub(crate) fn unclaim(&self, order: Option<Box<[u16]>>) {
        *self.lock() = Claim::Free(order);
    }

    fn lock(&self) -> MutexGuard<'_, Claim> {
        self.claim.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
