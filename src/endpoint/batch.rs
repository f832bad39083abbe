//! A batch of requests that own their memory.

use core::fmt;
use core::hint::black_box;

use super::flight::{Flight, InFlight};
use super::{Owned, Refused};
use crate::doorbell::Lent;
use crate::ib::{Rc, Transport};
use crate::ring::{self, PostError, SendQueue};
use crate::watch::lint::Refusal;
use crate::wqe::PostOn;

/// Requests that are written to the ring of an [`Endpoint`](super::Endpoint), and not yet known to
/// the HCA. One doorbell rings them all.
///
/// ```no_run
/// # use mlx5::endpoint::{Endpoint, MrSlice};
/// # use mlx5::wqe::{Inline, Remote, RdmaWrite};
/// # fn example(endpoint: &mut Endpoint, slice: MrSlice, remote: Remote) {
/// let mut batch = endpoint.batch();
/// batch.append(1, RdmaWrite::new(slice, remote)).unwrap();
/// batch.append(2, RdmaWrite::new(Inline(b"done"), remote.offset(4096)).signaled()).unwrap();
/// batch.ring();
/// # }
/// ```
///
/// Dropping the batch posts nothing, and drops the memory of its requests. Leaking it posts
/// nothing, either; the memory of each request is dropped by the next post to its place in the
/// ring, when the endpoint is converted to a [`PreparedEndpoint`](super::PreparedEndpoint), or with
/// the endpoint.
#[doc(alias = "ibv_wr_abort")]
#[must_use = "a batch posts nothing until it is rung"]
pub struct EndpointBatch<'e, T: Transport = Rc> {
    requests: ring::Batch<'e, T>,
    flight: &'e mut Flight,
}

impl<'e, T: Transport> EndpointBatch<'e, T> {
    #[inline]
    pub(super) fn new(queue: &'e mut SendQueue<T>, flight: &'e mut Flight) -> Self {
        Self { requests: queue.batch(), flight }
    }

    /// Writes a request after those already in the batch, see
    /// [`Endpoint::post`](super::Endpoint::post).
    ///
    /// # Errors
    /// [`Refused`], which returns the operation. The batch stays as it was, and can still be rung.
    #[inline]
    pub fn append<O: PostOn<T> + Owned>(
        &mut self,
        id: u64,
        operation: O,
    ) -> Result<(), Refused<O>> {
        if !self.flight.accepts(&operation) {
            return Err(Refused::memory(operation));
        }
        let head = self.requests.head();
        if self.requests.append_ready(id, &operation) {
            self.flight.put(head, operation);
            return Ok(());
        }
        // `black_box` makes it another operation for the compiler, so that only this path needs it
        // in memory.
        let operation = black_box(operation);
        if let Err(error) = self.requests.append_any(id, &operation) {
            return Err(Refused { error, operation });
        }
        self.flight.put(head, operation);
        Ok(())
    }

    /// Requests in the batch.
    pub fn len(&self) -> u32 {
        self.requests.len()
    }

    /// Returns whether nothing was appended.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Posts the batch: the doorbell record, then the register (`docs/ordering.md`). An empty batch
    /// rings nothing.
    ///
    /// With the feature `lint`, a batch with a defect is not posted: the defect is printed on
    /// standard error, and the next post returns it. [`try_ring`](Self::try_ring) returns it at
    /// once. The memory of the requests is dropped then.
    #[doc(alias = "ibv_wr_complete")]
    #[inline]
    pub fn ring(mut self) {
        if let Err(refusal) = self.commit() {
            self.requests.keep(refusal);
        }
    }

    /// Posts the batch like [`ring`](Self::ring), and returns the defect of a request, if any.
    ///
    /// # Errors
    /// The errors of [`ring::Batch::try_ring`](crate::ring::Batch::try_ring). The memory of the
    /// requests is dropped then.
    #[doc(alias = "ibv_wr_complete")]
    #[inline]
    pub fn try_ring(mut self) -> Result<(), PostError> {
        Ok(self.commit()?)
    }

    #[inline(always)]
    fn commit(&mut self) -> Result<(), Refusal> {
        // SAFETY: all memory that the requests name is in slices, which the flight owns until a
        // poll has retired the request or the QP was reset: nothing else reaches it. A dropped
        // flight gives it to the queue pair.
        self.requests.commit(unsafe { Lent::promised() })
    }
}

impl<T: Transport> Drop for EndpointBatch<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        for at in self.requests.unposted() {
            drop(self.flight.take(at));
        }
    }
}

impl<T: Transport> fmt::Debug for EndpointBatch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.requests.fmt(f)
    }
}
