//! The memory of requests in flight in a send queue, and its return.

use core::fmt;
use core::mem::{forget, replace};

use super::{Buffers, MrSlice};
use crate::cqe::{Failure, ReceiveDone, SendDone, UnexpectedCqe};
use crate::ib::Counter;
use crate::ring::PostError;
use crate::ring::give_back::Mark;
use crate::ring::send_ring::SendRing;
use crate::ring::shadow::Entry;
use crate::ring::source::DomainId;

/// A request that was not posted, with the error and all its memory.
pub struct Refused<O> {
    /// Why. The queue is as it was.
    pub error: PostError,
    /// The operation, or the receive's memory.
    pub operation: O,
}

impl<O> Refused<O> {
    /// The operation names memory of another protection domain than the queue's.
    #[cold]
    pub(super) fn foreign(operation: O) -> Self {
        Self { error: PostError::PdMismatch, operation }
    }
}

impl<O> fmt::Debug for Refused<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl<O> fmt::Display for Refused<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<O> std::error::Error for Refused<O> {}

/// A retired request, and its memory.
#[derive(Debug)]
#[must_use = "it holds the memory of the request"]
pub struct Returned {
    /// The id it was posted with.
    pub id: u64,
    /// Its memory.
    pub buffers: Buffers,
    /// Outcome of the request.
    pub outcome: Outcome,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// A signaled request is done.
    Sent(SendDone),
    /// An unsignaled request is done: a later request has completed.
    SentUnsignaled {
        /// Number of bytes of its slices.
        byte_len: usize,
    },
    /// A receive is done.
    Received(ReceiveDone),
    /// It failed.
    Failed(Failure),
}

/// The result of a poll.
#[derive(Debug)]
#[must_use = "it may hold the memory of a request"]
pub enum Event {
    /// A request is retired.
    Returned(Returned),
    /// A CQE of none of the queues, or one that contradicts its queue's state.
    UnexpectedCqe(UnexpectedCqe),
}

/// Stores buffers in a place that holds none.
///
/// # Safety
/// - `place` is valid for a write.
/// - It holds no buffers: they would be leaked.
#[inline(always)]
pub(super) unsafe fn put(place: *mut Buffers, buffers: Buffers) {
    if buffers.is_none() {
        forget(buffers);
    } else {
        // SAFETY: the caller guarantees that the place is valid for a write.
        unsafe { place.write(buffers) }
    }
}

/// The buffers of a slot. It has the size of an entry of the ring's shadow, so that one addition
/// converts between their addresses.
#[derive(Debug)]
struct Place {
    buffers: Buffers,
    _unused: u64,
}

/// The memory of requests in flight in a send ring, by slot of a WQE's first block. Allocated once.
/// A slot whose WQE is not in flight, or has no memory of its own, holds none.
#[derive(Debug)]
pub(super) struct Flight {
    memory: Box<[Place]>,
    /// Protection domain of the memory that requests may name.
    pub(super) domain: DomainId,
    /// Distance from the address of the shadow entry behind a slot's to the address of the slot's
    /// place here.
    from_shadow: usize,
    /// Whether places of free slots may hold memory: while a batch exists, and after it was leaked.
    /// Then the ring has no clear head, so that the next post calls `forget_unposted`.
    open: bool,
    /// While retired requests have not been returned: where the ring's tail will be, and the
    /// outcome of the last request before it.
    retired: Option<(Counter, Outcome)>,
}

impl Flight {
    pub(super) fn new(ring: &SendRing, domain: DomainId) -> Self {
        const { assert!(size_of::<Place>() == size_of::<Entry>()) };
        let place = |_| Place { buffers: Buffers::None, _unused: 0 };
        let mut memory: Box<[Place]> = (0..ring.cursor.shape().entries()).map(place).collect();
        let behind_first = ring.shadow.first().addr().get() + size_of::<Entry>();
        let from_shadow = memory.as_mut_ptr().addr().wrapping_sub(behind_first);
        Self { memory, domain, from_shadow, open: false, retired: None }
    }

    /// Adds the memory of the WQE in that slot.
    ///
    /// # Safety
    /// - `slot` is less than the number of the ring's entries.
    /// - Its place holds nothing.
    #[inline(always)]
    pub(super) unsafe fn add(&mut self, slot: usize, buffers: Buffers) {
        // SAFETY: the caller passes a slot of the ring, and `memory` has a place for each. The
        // caller guarantees that it holds nothing.
        unsafe { put(&raw mut self.memory.get_unchecked_mut(slot).buffers, buffers) }
    }

    /// Sets whether places of WQEs that are not posted yet may hold memory.
    #[inline(always)]
    pub(super) fn set_open(&mut self, open: bool) {
        self.open = open;
    }

    /// Drops the memory of WQEs that were written ahead and not posted. Cost: reads each free
    /// block's place.
    #[inline(always)]
    pub(super) fn forget_unposted(&mut self, ring: &SendRing) {
        if self.open {
            self.empty_free(ring);
        }
    }

    #[cold]
    #[inline(never)]
    fn empty_free(&mut self, ring: &SendRing) {
        self.open = false;
        let (shape, head) = (ring.cursor.shape(), ring.cursor.head());
        for ahead in 0..ring.cursor.free_from(head) {
            self.memory[shape.slot(head.plus(ahead))].buffers = Buffers::None;
        }
    }

    /// Takes the memory of the request that the ring has retired last, as its oldest.
    ///
    /// # Safety
    /// - `ring` is the one that this value was made for.
    /// - The ring retired it by [`retire_oldest`](crate::ring::shadow::Shadow::retire_oldest), and
    ///   has retired nothing since.
    #[inline(always)]
    pub(super) unsafe fn take_oldest(&mut self, ring: &SendRing) -> Buffers {
        let address = ring.shadow.behind_retired().wrapping_add(self.from_shadow);
        let place = self.memory.as_mut_ptr().with_addr(address);
        // SAFETY: the caller guarantees that the ring has just retired a request, whose entry is
        // the one before `behind_retired`. `memory` has a place for each entry, of the same size.
        // So the address is that of the place of the request's slot.
        unsafe { replace(&mut (*place).buffers, Buffers::None) }
    }

    /// Handles a CQE, the first since `mark`, that retired a request with that outcome, and perhaps
    /// others before it.
    pub(super) fn retire(&mut self, ring: &mut SendRing, mark: Mark, outcome: Outcome) {
        self.retired = Some((ring.hold_back(mark), outcome));
    }

    /// Returns whether there are retired requests that have not been returned.
    pub(super) fn has_retired(&self) -> bool {
        self.retired.is_some()
    }

    /// Returns the oldest request, if it is retired.
    pub(super) fn give_back(&mut self, ring: &mut SendRing) -> Option<Returned> {
        let (end, last) = self.retired?;
        let Some((slot, entry)) = ring.give_back(end) else {
            self.retired = None;
            return None;
        };
        let buffers = replace(&mut self.memory[slot].buffers, Buffers::None);
        let outcome = if ring.cursor.tail() == end {
            self.retired = None;
            last
        } else {
            let byte_len = buffers.slices().iter().map(MrSlice::len).sum();
            Outcome::SentUnsignaled { byte_len }
        };
        Some(Returned { id: entry.id, buffers, outcome })
    }

    /// Returns ids and memory of all requests that were not returned, oldest first.
    pub(super) fn take_rest(&mut self, ring: &SendRing) -> Vec<(u64, Buffers)> {
        let take = |(slot, entry): (usize, Entry)| {
            (entry.id, replace(&mut self.memory[slot].buffers, Buffers::None))
        };
        ring.outstanding().map(take).collect()
    }
}
