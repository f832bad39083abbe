//! A receive queue that owns the memory of its receives.

use super::flight::{Flight, Refused};
use super::operation::OwnedPayload;
use crate::ring::{Completions, PostError, ReceiveConfig, ReceiveQueue};
use crate::verbs::state::CanReceive;
use crate::verbs::{QueuePair, Transport};
use crate::wqe::SgeList;

/// A receive queue that owns the memory of its receives: what a [`Channel`](super::Channel) is
/// given when its queue pair is connected.
///
/// It is made as soon as the queue pair is in INIT, so that receives are there before the peer
/// sends.
#[derive(Debug)]
pub struct Receiver {
    // The queue first: its claim ends before its memory goes.
    pub(super) queue: ReceiveQueue,
    pub(super) flight: Flight,
}

impl Receiver {
    /// As [`ReceiveQueue::new`].
    ///
    /// # Errors
    /// As there.
    pub fn new<T: Transport, S: CanReceive>(
        qp: &QueuePair<T, S>,
        completions: &mut Completions,
        config: ReceiveConfig,
    ) -> crate::Result<Self> {
        let queue = ReceiveQueue::new(qp, completions, config)?;
        let flight = Flight::new(queue.capacity());
        Ok(Self { queue, flight })
    }

    /// Posts a receive into `memory`, a [`Slice`](super::Slice) or a `Vec` of them. It comes back
    /// with the completion, by [`Channel::poll`](super::Channel::poll).
    ///
    /// # Errors
    /// [`Refused`], which gives the memory back. [`PostError::QueueFull`] also where retired
    /// receives have not been given back yet.
    pub fn post<P: OwnedPayload + SgeList>(
        &mut self,
        id: u64,
        memory: P,
    ) -> Result<(), Refused<P>> {
        post(&mut self.queue, &mut self.flight, id, memory)
    }

    /// The queue, for what can be asked of it.
    pub fn queue(&self) -> &ReceiveQueue {
        &self.queue
    }
}

/// Posts a receive whose memory goes to `flight`.
#[inline]
pub(super) fn post<P: OwnedPayload + SgeList>(
    queue: &mut ReceiveQueue,
    flight: &mut Flight,
    id: u64,
    memory: P,
) -> Result<(), Refused<P>> {
    let Some(number) = flight.next() else {
        return Err(Refused { error: PostError::QueueFull, operation: memory });
    };
    // SAFETY: all memory that the receive names is in slices, which are the flight's from here on:
    // nobody can read, write or borrow it. They are given back when a poll returns the completion,
    // or after RESET. If the flight is dropped before, so are the slices: their memory stays
    // registered as long as other slices of the region live, which do not cover it, and is freed
    // after it was deregistered.
    match unsafe { queue.post_ref(number, &memory, None) } {
        Ok(()) => {
            flight.add(id, memory.into_buffers());
            Ok(())
        }
        Err(error) => Err(Refused { error, operation: memory }),
    }
}
