//! Send queues that share a doorbell register, in the hands of one owner.

use core::fmt;

use super::keep::RegisterClaim;
use super::{
    Batch, Completions, PostError, QueueError, Queues, ReceiveSide, SendConfig, SendQueue,
    SendSide, SendSource,
};
use crate::ib::{Rc, Transport};
use crate::wqe::{Limits, PostOn};

/// A doorbell register with all send queues that store to it, so that each can copy its WQEs there
/// (BlueFlame) and none meets another's copy.
///
/// A register belongs to one queue, which then need not share anything; or to queues that ring by
/// eight bytes only ([`RegisterUse::Shared`](super::RegisterUse)), in any threads; or to this: the
/// queues of one thread, whose queue pairs are made in one
/// [`ThreadDomain`](crate::verbs::ThreadDomain). It can be moved to another thread as a whole. It is
/// not `Sync`, and hands out one queue at a time, so no two threads can store to the register.
pub struct DedicatedRegister<T: Transport = Rc> {
    /// Ends before the queue pairs do, whose register another one may get then.
    claim: Option<RegisterClaim>,
    queues: Vec<SendQueue<T>>,
    /// The queue that stored to the register last: where the next one goes on.
    last: usize,
}

/// A queue of a [`DedicatedRegister`], as long as it has the register.
#[derive(Debug)]
pub struct Turn<'r, T: Transport = Rc> {
    queue: &'r mut SendQueue<T>,
}

impl<T: Transport> Default for DedicatedRegister<T> {
    fn default() -> Self {
        Self { claim: None, queues: Vec::new(), last: 0 }
    }
}

impl<T: Transport> DedicatedRegister<T> {
    /// No queue yet; the first one decides which register it is.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes over the send queue of a QP, as [`SendQueue::new`], and returns its index.
    ///
    /// # Errors
    /// As there: [`QueueError::RegisterShared`] where a queue outside uses the register; and
    /// [`QueueError::OtherRegister`] for a QP of another register than the first one's.
    pub fn add<Q: SendSource<Transport = T>>(
        &mut self,
        qp: &Q,
        completions: &mut Completions,
        config: SendConfig,
    ) -> crate::Result<usize> {
        let queue = SendQueue::unclaimed(qp, completions, config)?;
        let doorbell = &queue.ring.doorbell;
        match self.queues.first() {
            Some(first) if first.ring.doorbell.register() != doorbell.register() => {
                return Err(QueueError::OtherRegister.into());
            }
            Some(_) => {}
            None => self.claim = Some(RegisterClaim::new(doorbell.register(), true)?),
        }
        self.queues.push(queue);
        Ok(self.queues.len() - 1)
    }

    /// How many queues there are.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// Whether there is none yet.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// A queue's turn. A comparison, and where it is another queue than before, a load and a store.
    ///
    /// # Panics
    /// If there is no queue of that index.
    #[inline]
    pub fn turn(&mut self, index: usize) -> Turn<'_, T> {
        if index != self.last {
            // The buffers of the register are used in turn, whoever uses them.
            let next = self.queues[self.last].ring.doorbell.buffer();
            self.queues[index].ring.doorbell.set_buffer(next);
            self.last = index;
        }
        Turn { queue: &mut self.queues[index] }
    }
}

impl<'r, T: Transport> Turn<'r, T> {
    /// As [`SendQueue::post`].
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// The HCA works on the request from now on. Until it is retired, by a poll that returns its
    /// completion or that of a later request, or by a RESET or the end of the QP:
    /// - The memory of its entries stays allocated, and registered under the `lkey` given.
    /// - Nothing writes what a SEND or WRITE reads. Nothing reads, writes or holds a reference to what a
    ///   READ or atomic writes.
    /// - If the QP may put payload into CQEs ([`ScatterToCqe`](crate::verbs::ScatterToCqe): not by
    ///   default, but QPs that libmlx5 made for other code may), the memory that a READ or atomic writes
    ///   is mapped, writable, in this process at the address in the entry.
    #[inline]
    pub unsafe fn post<O: PostOn<T>>(&mut self, id: u64, operation: O) -> Result<(), PostError> {
        // SAFETY: passed on.
        unsafe { self.queue.post(id, operation) }
    }

    /// As [`SendQueue::batch`]. The register is the batch's until that is rung or dropped.
    #[inline]
    pub fn batch(&mut self) -> Batch<'_, T> {
        self.queue.batch()
    }

    /// Number of the queue pair.
    pub fn qpn(&self) -> u32 {
        self.queue.qpn()
    }

    /// What a request may be.
    pub fn limits(&self) -> Limits {
        self.queue.limits()
    }

    /// Blocks that are free.
    pub fn free_blocks(&self) -> u32 {
        self.queue.free_blocks()
    }

    /// Whether every posted request is retired.
    pub fn is_idle(&self) -> bool {
        self.queue.is_idle()
    }
}

/// Found by number, one after the other.
impl<T: Transport> Queues for DedicatedRegister<T> {
    fn send_side(&mut self, qpn: u32) -> Option<SendSide<'_>> {
        self.queues.as_mut_slice().send_side(qpn)
    }

    fn receive_side(&mut self, _: u32) -> Option<ReceiveSide<'_>> {
        None
    }

    fn likely_send_side(&mut self) -> Option<SendSide<'_>> {
        self.queues.get_mut(self.last).map(SendQueue::side)
    }
}

impl<T: Transport> fmt::Debug for DedicatedRegister<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DedicatedRegister").field("queues", &self.queues).finish_non_exhaustive()
    }
}
