//! Claims of queues: the object that a queue was made from, and the claim to be its only direct
//! user. Posts and polls do not touch them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::Titles;
use super::WorkQueue;
use super::{CqOwner, QueueOwner, SrqOwner};
use crate::error::QueueError;

/// A queue pair, with the claim of one of its queues.
pub(in crate::ring) struct QueueKeep {
    /// The doorbell register's claim, for a send queue. Dropped before the queue pair is released,
    /// since another queue pair may then get its register.
    pub(in crate::ring) register: Option<RegisterClaim>,
    owner: Arc<dyn QueueOwner>,
    queue: WorkQueue,
    /// Whether the queue had nothing outstanding when its owner was dropped.
    pub(in crate::ring) idle: bool,
}

impl QueueKeep {
    pub(in crate::ring) fn send(owner: Arc<dyn QueueOwner>) -> crate::error::Result<Self> {
        Self::claim(owner, WorkQueue::Send)
    }

    pub(in crate::ring) fn receive(owner: Arc<dyn QueueOwner>) -> crate::error::Result<Self> {
        Self::claim(owner, WorkQueue::Receive)
    }

    fn claim(owner: Arc<dyn QueueOwner>, queue: WorkQueue) -> crate::error::Result<Self> {
        owner.claim(queue)?;
        Ok(Self { owner, queue, idle: true, register: None })
    }

    /// Returns the owner of the claimed object.
    pub(in crate::ring) fn owner(&self) -> &Arc<dyn QueueOwner> {
        &self.owner
    }

    /// Returns the flag that is set when the queue pair is destroyed.
    pub(in crate::ring) fn destroyed(&self) -> Arc<AtomicBool> {
        self.owner.destroyed()
    }

    /// Returns the flag that is set when the queue pair is destroyed. For a queue pair that the
    /// caller of `from_raw` keeps, it is never set, since nothing tells when that one is destroyed.
    pub(in crate::ring) fn destroyed_of(keep: Option<&Self>) -> Arc<AtomicBool> {
        keep.map_or_else(Arc::default, Self::destroyed)
    }
}

impl Drop for QueueKeep {
    fn drop(&mut self) {
        self.owner.release(self.queue, self.idle);
    }
}

/// A completion queue, with the claim of its consumer side.
pub(in crate::ring) struct CqKeep {
    owner: Arc<dyn CqOwner>,
    events: Arc<AtomicU32>,
    /// Whether another reader could continue where this one stopped.
    pub(in crate::ring) reusable: bool,
}

impl CqKeep {
    pub(in crate::ring) fn new(owner: Arc<dyn CqOwner>) -> crate::error::Result<Self> {
        owner.claim()?;
        Ok(Self { events: owner.events(), owner, reusable: true })
    }

    /// Returns the CQ's owner.
    pub(in crate::ring) fn owner(&self) -> &dyn CqOwner {
        &*self.owner
    }

    /// Returns whether the HCA writes CQEs without checking the consumer index.
    pub(in crate::ring) fn ignores_overrun(&self) -> bool {
        self.owner.ignores_overrun()
    }

    /// Returns the titles that the last reader left.
    pub(in crate::ring) fn titles(&self) -> Titles {
        let titles = self.owner.titles();
        titles.map_or_else(Titles::default, |it| *it.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Leaves the titles to the next reader.
    pub(in crate::ring) fn leave(&self, titles: Titles) {
        if let Some(place) = self.owner.titles() {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = titles;
        }
    }

    /// Returns the number of events of the CQ that were taken.
    pub(in crate::ring) fn events(&self) -> u32 {
        self.events.load(Ordering::Relaxed)
    }
}

impl Drop for CqKeep {
    fn drop(&mut self) {
        if self.reusable {
            self.owner.release();
        }
    }
}

/// A shared receive queue, with the claim of posting to it.
pub(in crate::ring) struct SrqKeep {
    owner: Arc<dyn SrqOwner>,
    /// The order in which the HCA takes the WQEs next, if none is outstanding.
    pub(in crate::ring) order: Option<Box<[u16]>>,
    /// Whether taking the queue over failed.
    unused: bool,
}

impl SrqKeep {
    /// Claims the queue. Also returns the order in which the last owner left its WQEs.
    pub(in crate::ring) fn new(
        owner: Arc<dyn SrqOwner>,
    ) -> crate::error::Result<(Self, Option<Box<[u16]>>)> {
        let order = owner.claim()?;
        Ok((Self { owner, order: None, unused: false }, order))
    }

    /// Returns the flag that is set when the queue is destroyed.
    pub(in crate::ring) fn destroyed(&self) -> Arc<AtomicBool> {
        self.owner.destroyed()
    }

    /// Releases the claim on an unchanged queue.
    pub(in crate::ring) fn give_up(&mut self, order: Option<Box<[u16]>>) {
        (self.order, self.unused) = (order, true);
    }
}

impl Drop for SrqKeep {
    fn drop(&mut self) {
        let order = self.order.take();
        if self.unused { self.owner.unclaim(order) } else { self.owner.release(order) }
    }
}

/// The doorbell registers that send queues of this process use: for each address the number of
/// sharers, or `None` for a single owner. Eight-byte doorbells of several queues do not disturb
/// each other. But they would end up inside a WQE that another thread is copying to the same
/// register.
static REGISTERS: Mutex<Option<HashMap<usize, Option<u32>>>> = Mutex::new(None);

/// The use of one doorbell register, released when dropped.
pub(in crate::ring) struct RegisterClaim {
    address: usize,
}

impl RegisterClaim {
    /// Claims the register at `address`, alone (`own`), or shared with other queues.
    pub(in crate::ring) fn new(address: NonNull<u8>, own: bool) -> Result<Self, QueueError> {
        let address = address.addr().get();
        let mut registers = REGISTERS.lock().unwrap_or_else(PoisonError::into_inner);
        match registers.get_or_insert_default().entry(address) {
            Entry::Vacant(vacant) => {
                vacant.insert(if own { None } else { Some(1) });
            }
            Entry::Occupied(mut occupied) => match occupied.get_mut() {
                Some(sharers) if !own => *sharers += 1,
                _ => return Err(QueueError::RegisterShared),
            },
        }
        Ok(Self { address })
    }
}

impl Drop for RegisterClaim {
    fn drop(&mut self) {
        let mut registers = REGISTERS.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(registers) = registers.as_mut() else { return };
        match registers.get_mut(&self.address) {
            Some(Some(sharers)) if *sharers > 1 => *sharers -= 1,
            _ => {
                registers.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests;
