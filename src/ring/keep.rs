//! What queues made from this crate's objects hold: the object, and the claim to be its only user on
//! the direct path. Nothing of it is touched by a post or a poll.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::QueueError;
use super::enhanced::Titles;
use super::source::{CqOwner, QueueOwner, SrqOwner};
use crate::verbs::WorkQueue;

/// A queue pair, with the claim of one of its queues.
pub(super) struct QueueKeep {
    /// The doorbell register's claim, for a send queue. It ends before the queue pair does, whose
    /// register another one may get then.
    pub(super) register: Option<RegisterClaim>,
    owner: Arc<dyn QueueOwner>,
    queue: WorkQueue,
    /// Whether the queue had nothing outstanding when its owner was dropped.
    pub(super) idle: bool,
}

impl QueueKeep {
    pub(super) fn send(owner: Arc<dyn QueueOwner>) -> crate::Result<Self> {
        Self::claim(owner, WorkQueue::Send)
    }

    pub(super) fn receive(owner: Arc<dyn QueueOwner>) -> crate::Result<Self> {
        Self::claim(owner, WorkQueue::Receive)
    }

    fn claim(owner: Arc<dyn QueueOwner>, queue: WorkQueue) -> crate::Result<Self> {
        owner.claim(queue)?;
        Ok(Self { owner, queue, idle: true, register: None })
    }

    /// What it keeps.
    pub(super) fn owner(&self) -> &Arc<dyn QueueOwner> {
        &self.owner
    }

    /// Set when the queue pair is destroyed.
    pub(super) fn destroyed(&self) -> Arc<AtomicBool> {
        self.owner.destroyed()
    }

    /// The flag of a queue pair that is destroyed, or of one that the caller of `from_raw` keeps, which
    /// is never set: nothing says when that one is destroyed.
    pub(super) fn destroyed_of(keep: Option<&Self>) -> Arc<AtomicBool> {
        keep.map_or_else(Arc::default, Self::destroyed)
    }
}

impl Drop for QueueKeep {
    fn drop(&mut self) {
        self.owner.release(self.queue, self.idle);
    }
}

/// A completion queue, with the claim of its consumer side.
pub(super) struct CqKeep {
    owner: Arc<dyn CqOwner>,
    events: Arc<AtomicU32>,
    /// Whether another reader could go on where this one stopped.
    pub(super) reusable: bool,
}

impl CqKeep {
    pub(super) fn new(owner: Arc<dyn CqOwner>) -> crate::Result<Self> {
        owner.claim()?;
        Ok(Self { events: owner.events(), owner, reusable: true })
    }

    /// The CQ.
    pub(super) fn owner(&self) -> &dyn CqOwner {
        &*self.owner
    }

    /// Whether the HCA writes to the CQ without a look at how far it was read.
    pub(super) fn ignores_overrun(&self) -> bool {
        self.owner.ignores_overrun()
    }

    /// What compressed CQEs may be like, as the reader before has left it.
    pub(super) fn titles(&self) -> Titles {
        let titles = self.owner.titles();
        titles.map_or_else(Titles::default, |it| *it.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Leaves that to the next reader.
    pub(super) fn leave(&self, titles: Titles) {
        if let Some(place) = self.owner.titles() {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = titles;
        }
    }

    /// Events of the CQ that were taken.
    pub(super) fn events(&self) -> u32 {
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
pub(super) struct SrqKeep {
    owner: Arc<dyn SrqOwner>,
    /// The order in which the HCA takes the WQEs next, if none is outstanding.
    pub(super) order: Option<Box<[u16]>>,
    /// Whether the claim came to nothing.
    unused: bool,
}

impl SrqKeep {
    /// Claims it. Returns the order in which the last owner left its WQEs, too.
    pub(super) fn new(owner: Arc<dyn SrqOwner>) -> crate::Result<(Self, Option<Box<[u16]>>)> {
        let order = owner.claim()?;
        Ok((Self { owner, order: None, unused: false }, order))
    }

    /// Set when the queue is destroyed.
    pub(super) fn destroyed(&self) -> Arc<AtomicBool> {
        self.owner.destroyed()
    }

    /// The queue is as it was found.
    pub(super) fn give_up(&mut self, order: Option<Box<[u16]>>) {
        (self.order, self.unused) = (order, true);
    }
}

impl Drop for SrqKeep {
    fn drop(&mut self) {
        let order = self.order.take();
        if self.unused { self.owner.unclaim(order) } else { self.owner.release(order) }
    }
}

/// The doorbell registers that send queues of this process use: by address, the number of sharers,
/// or `None` for a single owner. Eight-byte doorbells of several queues do not disturb each other,
/// but would end up inside a WQE that another thread is copying to the same register.
static REGISTERS: Mutex<Option<HashMap<usize, Option<u32>>>> = Mutex::new(None);

/// The use of one doorbell register; given back when dropped.
pub(super) struct RegisterClaim {
    address: usize,
}

impl RegisterClaim {
    /// Claims the register at `address`, alone (`own`) or with others that do not need it alone.
    pub(super) fn new(address: NonNull<u8>, own: bool) -> Result<Self, QueueError> {
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
mod tests {
    use super::*;

    #[test]
    fn a_register_has_one_owner_or_sharers() {
        let mut page = [0u8; 2];
        let [first, second] = page.each_mut().map(NonNull::from);
        let own = RegisterClaim::new(first, true).unwrap();
        assert_eq!(RegisterClaim::new(first, true).err(), Some(QueueError::RegisterShared));
        assert_eq!(RegisterClaim::new(first, false).err(), Some(QueueError::RegisterShared));
        let _other = RegisterClaim::new(second, true).unwrap();
        drop(own);
        let sharers = [(); 2].map(|()| RegisterClaim::new(first, false).unwrap());
        assert_eq!(RegisterClaim::new(first, true).err(), Some(QueueError::RegisterShared));
        drop(sharers);
        RegisterClaim::new(first, true).unwrap();
    }
}
