//! The memory of requests in flight.

use core::fmt;
use core::mem::{forget, replace, take};
use std::collections::HashSet;
use std::sync::Arc;

use super::operation::accepts;
use super::{Buffers, Owned};
use crate::ib::{Counter, Shape};
use crate::ring::send::Place;
use crate::ring::source::{DomainId, QueueOwner};

/// Where the memory of requests in flight is taken from when they are retired.
pub trait InFlight: fmt::Debug {
    /// Takes the memory of the request whose WQE begins at this counter.
    fn take(&mut self, at: Counter) -> Buffers;

    /// Takes the memory of a request, see [`take`](Self::take).
    ///
    /// # Safety
    /// `place` is that of a WQE in the ring of this flight.
    unsafe fn take_at(&mut self, place: Place) -> Buffers;
}

/// The memory of requests in flight in a ring: one slot for each of the ring's. Allocated once.
///
/// The slot of a WQE's first block owns the memory of the request, from the post until the request
/// is retired. Other slots are empty. Only a batch that was leaked leaves memory in other slots, for
/// the next post to drop; receives are not posted in batches. A prepared request has no memory, and
/// firing it does not use its slot: so [`drop_leaked`](Self::drop_leaked) is called before requests
/// are prepared.
///
/// The memory outlives the flight while the HCA may work on it: a dropped flight hands it to the
/// owner of the ring.
// In this order, so that a post finds the slots at an offset: what is at the address of the flight,
// which a post also passes on, takes an instruction more.
#[repr(C)]
pub struct Flight {
    /// Protection domain of the memory that requests may name.
    pub(super) domain: DomainId,
    pub(super) slots: Box<[Buffers]>,
    pub(super) shape: Shape,
    /// Owner of the ring, which takes the memory over when the flight is dropped.
    pub(super) owner: Arc<dyn QueueOwner>,
}

impl Flight {
    pub(super) fn new(shape: Shape, domain: DomainId, owner: Arc<dyn QueueOwner>) -> Self {
        let slots = (0..shape.entries()).map(|_| Buffers::None).collect();
        Self { slots, shape, domain, owner }
    }

    /// Returns whether the ring may take the memory of a request, see [`accepts`].
    #[inline(always)]
    pub(super) fn accepts(&self, request: &impl Owned) -> bool {
        accepts(self.domain, request)
    }

    /// Stores the memory of a request whose WQE begins at this counter.
    #[inline(always)]
    pub(super) fn put(&mut self, at: Counter, request: impl Owned) {
        put(self.slot(at), request);
    }

    /// Stores the memory of a receive, see [`put`](Self::put). Its slot is empty, since receives are
    /// posted singly; what is there would be leaked.
    #[inline(always)]
    pub(super) fn put_receive(&mut self, at: Counter, memory: impl Owned) {
        let slot = self.slot(at);
        debug_assert!(matches!(slot, Buffers::None), "the receive before was taken out");
        forget(replace(slot, memory.into_buffers()));
    }

    /// Stores the memory of a request, see [`put`](Self::put).
    ///
    /// # Safety
    /// `place` is that of a WQE in the ring of this flight.
    #[inline(always)]
    pub(super) unsafe fn put_at(&mut self, place: Place, request: impl Owned) {
        // SAFETY: there is a slot for each of the ring's blocks.
        put(unsafe { &mut *place.among(self.slots.as_mut_ptr()) }, request);
    }

    /// Drops the memory that leaked batches left in slots. `posted` are the starts of all requests
    /// whose memory has not been taken. Costs a load per slot.
    pub(super) fn drop_leaked(&mut self, posted: impl Iterator<Item = Counter>) {
        let posted: HashSet<usize> = posted.map(|at| self.shape.slot(at)).collect();
        for (slot, buffers) in self.slots.iter_mut().enumerate() {
            if !posted.contains(&slot) {
                // A destructor of the program may panic: the other slots keep their memory.
                drop(take(buffers));
            }
        }
    }

    #[inline(always)]
    fn slot(&mut self, at: Counter) -> &mut Buffers {
        // SAFETY: a slot of the shape is less than its number of entries, which is the number of
        // slots here.
        unsafe { self.slots.get_unchecked_mut(self.shape.slot(at)) }
    }
}

impl InFlight for Flight {
    #[inline(always)]
    fn take(&mut self, at: Counter) -> Buffers {
        take(self.slot(at))
    }

    #[inline(always)]
    unsafe fn take_at(&mut self, place: Place) -> Buffers {
        // SAFETY: there is a slot for each of the ring's blocks.
        take(unsafe { &mut *place.among(self.slots.as_mut_ptr()) })
    }
}

impl fmt::Debug for Flight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flight").field("slots", &self.slots).finish_non_exhaustive()
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut memory = take(&mut self.slots).into_vec();
        memory.retain(|buffers| !matches!(buffers, Buffers::None));
        if !memory.is_empty() {
            self.owner.retain(Box::new(memory));
        }
    }
}

/// The requests of a queue that was given up. Its queue pair may still work on them.
#[derive(Debug, Default)]
pub struct Outstanding {
    /// The start of each WQE, and the request's id.
    requests: Vec<(Counter, u64)>,
    flight: Option<Flight>,
}

impl Outstanding {
    pub(super) fn new(requests: Vec<(Counter, u64)>, flight: Flight) -> Self {
        Self { requests, flight: Some(flight) }
    }

    /// Returns ids and memory of the requests, after the queue pair was reset.
    pub(super) fn after_reset(self) -> Vec<(u64, Buffers)> {
        let Self { requests, flight } = self;
        let Some(mut flight) = flight else { return Vec::new() };
        requests.into_iter().map(|(at, id)| (id, flight.take(at))).collect()
    }
}

/// Stores the memory of a request in its slot.
#[inline(always)]
fn put(slot: &mut Buffers, request: impl Owned) {
    if !matches!(slot, Buffers::None) {
        return put_over(slot, request.into_buffers());
    }
    // Not an assignment, which would call the destructor of nothing.
    forget(replace(slot, request.into_buffers()));
}

/// Stores the memory of a request, and drops what a leaked batch left in its slot.
#[cold]
#[inline(never)]
fn put_over(slot: &mut Buffers, request: Buffers) {
    // In this order: a destructor of the program may panic, and the HCA may work on the request.
    drop(replace(slot, request));
}
