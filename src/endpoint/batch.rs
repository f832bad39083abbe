//! A batch of requests that own their memory.

use core::fmt;
use core::hint::black_box;
use core::mem::ManuallyDrop;
use core::ptr::read;

use super::flight::{Flight, Refused};
use super::{MrSlice, OwnedOperation};
use crate::ib::{Rc, Transport};
use crate::ring::{self, PostError, SendQueue};
use crate::watch::lint::Refusal;

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
/// nothing, either; the memory is dropped with the endpoint, or by the endpoint's next post or
/// batch.
#[must_use = "a batch posts nothing until it is rung"]
pub struct EndpointBatch<'c, T: Transport = Rc> {
    requests: ring::Batch<'c, T>,
    flight: &'c mut Flight,
}

impl<'c, T: Transport> EndpointBatch<'c, T> {
    #[inline]
    pub(super) fn new(queue: &'c mut SendQueue<T>, flight: &'c mut Flight) -> Self {
        flight.forget_unposted(&queue.ring);
        let requests = queue.batch();
        flight.set_open(true);
        Self { requests: requests.alone(), flight }
    }

    /// Writes a request after those already in the batch, see
    /// [`Endpoint::post`](super::Endpoint::post).
    ///
    /// # Errors
    /// [`Refused`], which returns the operation. The batch stays as it was, and can still be rung.
    #[inline]
    pub fn append<O: OwnedOperation<T>>(
        &mut self,
        id: u64,
        operation: O,
    ) -> Result<(), Refused<O>> {
        if MrSlice::any_foreign(operation.slices(), self.flight.domain) {
            return Err(Refused::foreign(operation));
        }
        let slot = self.requests.slot();
        if self.requests.append_ready(id, &operation) {
            // SAFETY: `slot` is the ring's, of the request appended above. It was free, so its
            // place holds nothing: `new` has dropped the buffers of a leaked batch.
            unsafe { self.flight.add(slot, operation.into_buffers()) }
            return Ok(());
        }
        // `black_box` makes it another operation for the compiler, so that only this path needs it
        // in memory.
        let rest = black_box(operation);
        if let Err(error) = self.requests.append_any(id, &rest) {
            return Err(Refused { error, operation: rest });
        }
        // SAFETY: `slot` is the ring's, of the request appended above. It was free, so its place
        // holds nothing: `new` has dropped the buffers of a leaked batch.
        unsafe { self.flight.add(slot, rest.into_buffers()) }
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
    #[inline]
    pub fn ring(self) {
        let (rung, mut requests) = self.commit();
        if let Err(refusal) = rung {
            requests.keep(refusal);
        }
    }

    /// Posts the batch like [`ring`](Self::ring), and returns the defect of a request, if any.
    ///
    /// # Errors
    /// The errors of [`ring::Batch::try_ring`](crate::ring::Batch::try_ring). The memory of the
    /// requests is dropped then.
    #[inline]
    pub fn try_ring(self) -> Result<(), PostError> {
        self.commit().0?;
        Ok(())
    }

    #[inline(always)]
    fn commit(self) -> (Result<(), Refusal>, ring::Batch<'c, T>) {
        let this = ManuallyDrop::new(self);
        // SAFETY: both fields are moved out once, and `this` is never dropped.
        let (mut requests, flight) = unsafe { (read(&this.requests), read(&this.flight)) };
        // SAFETY: all memory that the requests name is in slices, which the flight owns until a
        // poll has retired the request or the QP was reset: nothing else reaches it. If the
        // endpoint is dropped before, the memory is freed only after it was deregistered.
        let rung = unsafe { requests.commit() };
        if rung.is_ok() {
            flight.set_open(false);
        }
        (rung, requests)
    }
}

impl<T: Transport> Drop for EndpointBatch<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.flight.forget_unposted(self.requests.send_ring());
    }
}

impl<T: Transport> fmt::Debug for EndpointBatch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.requests.fmt(f)
    }
}
