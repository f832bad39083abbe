//! A receive queue that owns the memory of its receives.

use core::mem::replace;

use super::flight::{Refused, put};
use super::operation::OwnedPayload;
use super::{Buffers, MrSlice};
use crate::error::QueueError;
use crate::ring::receive::InOrder;
use crate::ring::receive::core::Layout;
use crate::ring::source::DomainId;
use crate::ring::{CqReader, ReceiveConfig, ReceiveQueue, ReceiveSource};
use crate::wqe::SgeList;

/// A receive queue that owns the memory of its receives. An [`Endpoint`](super::Endpoint) takes it
/// over when its queue pair is connected.
///
/// It is created as soon as the queue pair is in INIT, so that receives can be posted before the
/// peer sends.
#[derive(Debug)]
pub struct Receiver {
    /// Only [`post`](Self::post) posts to it. Dropped before the memory of its receives.
    queue: ReceiveQueue,
    /// By slot of a posted receive: its memory.
    held: Box<[Buffers]>,
    /// Protection domain of the memory that receives may name.
    domain: DomainId,
}

impl Receiver {
    /// Takes over a receive queue, see [`ReceiveQueue::new`].
    ///
    /// # Errors
    /// [`Error::QueueInUse`](crate::Error::QueueInUse), [`Error::Queue`](crate::Error::Queue): the
    /// QP has no receive queue of its own, it completes on another CQ, or the CQ has no free slot
    /// to reserve. Nothing is changed then.
    pub fn new<Q: ReceiveSource>(
        qp: &Q,
        completions: &mut CqReader,
        config: ReceiveConfig,
    ) -> crate::error::Result<Self> {
        let domain = qp.domain().ok_or(QueueError::NoQueue)?;
        let queue = ReceiveQueue::new(qp, completions, config)?;
        let held = (0..queue.capacity()).map(|_| Buffers::None).collect();
        Ok(Self { queue, held, domain })
    }

    /// Posts a receive into `memory`, a [`MrSlice`](super::MrSlice) or a `Vec` of them. The memory
    /// is returned with the completion, by [`Endpoint::poll`](super::Endpoint::poll).
    ///
    /// # Errors
    /// [`Refused`], which gives the memory back: with
    /// [`PostError::PdMismatch`](crate::ring::PostError::PdMismatch) for memory of another
    /// protection domain or device.
    #[inline]
    pub fn post<P: OwnedPayload + SgeList>(
        &mut self,
        id: u64,
        memory: P,
    ) -> Result<(), Refused<P>> {
        if MrSlice::any_foreign(memory.slices(), self.domain) {
            return Err(Refused::foreign(memory));
        }
        let ring = &mut self.queue.ring;
        // SAFETY: the queue's own head.
        let end = unsafe { ring.put_usual(ring.layout.head(), ring.layout.ahead(), id, &memory) };
        let Some(end) = end else { return self.post_any(id, memory) };
        let slot = ring.layout.cursor.shape().slot(ring.layout.head());
        // SAFETY: a slot is less than the number of entries, which is the length of `held`. The
        // slot was free, so its place holds nothing. All memory that the receive names is in
        // slices, which the place owns from here on: nothing reads, writes or borrows it. A poll
        // gives them back that returns the completion, or `close` after RESET. If the queue is
        // dropped before, so are the slices: their memory stays registered while other slices of
        // the region exist, which do not cover it, and is freed after it was deregistered. If the
        // queue is leaked, so are the slices.
        unsafe {
            put(self.held.get_unchecked_mut(slot), memory.into_buffers());
            ring.commit_one(end);
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn post_any<P: OwnedPayload + SgeList>(
        &mut self,
        id: u64,
        memory: P,
    ) -> Result<(), Refused<P>> {
        let ring = &mut self.queue.ring;
        let head = ring.layout.head();
        // SAFETY: the queue's own head.
        let ahead = match unsafe { ring.put_any(head, id, &memory) } {
            Err(error) => return Err(Refused { error, operation: memory }),
            Ok(ahead) => ahead,
        };
        let place = &mut self.held[ring.layout.cursor.shape().slot(head)];
        // SAFETY: `put_any` wrote the receive at the head, whose place holds nothing, as its slot
        // was free. All memory that it names is in slices, which the place owns from here on, until
        // a poll returns the completion or the QP was reset. If the queue is dropped before, so are
        // the slices: their memory is freed only after it was deregistered.
        unsafe {
            put(place, memory.into_buffers());
            ring.commit(InOrder::after(head), ahead);
        }
        Ok(())
    }

    /// Returns the queue, for its queries.
    pub fn queue(&self) -> &ReceiveQueue {
        &self.queue
    }

    /// Returns the queue, for a poll.
    #[inline(always)]
    pub(super) fn queue_mut(&mut self) -> &mut ReceiveQueue {
        &mut self.queue
    }

    /// Returns the memory of the receive that was retired last.
    #[inline(always)]
    pub(super) fn take_retired(&mut self) -> Buffers {
        let cursor = &self.queue.ring.layout.cursor;
        let slot = cursor.shape().slot(cursor.tail().before());
        // SAFETY: a slot is less than the number of entries, which is the length of `held`.
        replace(unsafe { self.held.get_unchecked_mut(slot) }, Buffers::None)
    }

    /// Returns ids and memory of the outstanding receives, oldest first.
    pub(super) fn take_outstanding(&mut self) -> Vec<(u64, Buffers)> {
        let Self { queue, held, .. } = self;
        let (layout, cursor) = (&queue.ring.layout, &queue.ring.layout.cursor);
        let take = |(ahead, id)| {
            let slot = cursor.shape().slot(cursor.tail().plus(ahead));
            (id, replace(&mut held[slot], Buffers::None))
        };
        (0..).zip(layout.outstanding_ids()).map(take).collect()
    }
}
