//! Prepared WQEs: written ahead, each in its slot of the send ring, and posted later.
//!
//! Posting fills in the variable fields and rings. [`Prepared`] owns or borrows the queue
//! meanwhile, so nothing else is posted in between. `forms` declares, as types, which requests may
//! be prepared. `line` keeps the bookkeeping of the WQEs in the ring. `next` is the hot path: it
//! hands out the requests to fire one at a time, in order, and firing consumes them.

mod forms;
mod line;
mod next;

use core::fmt;
use core::marker::PhantomData;

pub use forms::{Either, Form, Forms};
use forms::{Kind, Parts};
use line::Line;
pub use next::Next;

use super::{HasSendQueue, PostError, Queues, ReceiveSide, SendQueue, SendSide};
use crate::ib::{Rc, Transport};

/// Why no request can be fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FireError {
    /// No request is prepared.
    #[error("nothing is prepared")]
    NothingPrepared,
    /// The QP has left RTS: an error completion of this queue was seen.
    #[error(
        "the QP is no longer in RTS: a request failed; take it through RESET and restart the queue"
    )]
    WrongState,
}

/// A send queue with requests that are written to its ring and not yet known to the HCA.
///
/// `Q` is the queue: `&mut SendQueue`, or a [`SendQueue`] itself. `F` declares the requests: a
/// [`Form`], or [`Either`] of two. [`prepare`](Self::prepare) checks everything that could fail:
/// free blocks in the ring, free CQ slots, limits. Firing only stores the
/// [variable](super::variable) fields and rings, by BlueFlame if the register allows it.
///
/// ```no_run
/// # use mlx5::cqe::Completion;
/// # use mlx5::ring::{Prepared, CqReader, Form, SendQueue, variable::Bytes};
/// # use mlx5::wqe::{InlineBytes, Remote, RdmaWrite};
/// # fn example(
/// #     queue: &mut SendQueue, completions: &mut CqReader, remote: Remote, price: u64,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// let mut prepared = Prepared::<_, Form<RdmaWrite<InlineBytes<8>>, Bytes>>::new(queue);
/// for id in 0..4 {
///     prepared.prepare(id, RdmaWrite::new(InlineBytes([0; 8]), remote).signaled())?;
/// }
/// // … and when it matters:
/// let next = prepared.next()?;
/// // SAFETY: an inline payload names no memory of this side.
/// unsafe { next.fire(price.to_le_bytes()) };
/// // Completions are polled with the queue as it is.
/// let done = completions.poll(&mut prepared)?;
/// # Ok(())
/// # }
/// ```
///
/// The HCA may fetch the WQEs that the doorbell record covers. It covers a WQE when that is fired,
/// in the order of preparing, and from then on the WQE cannot be changed. [`next`](Self::next)
/// hands out the one WQE that may be fired, and firing consumes it.
///
/// ```compile_fail,E0382
/// # use mlx5::{ib::Rc, ring::{*, variable::*}, wqe::*};
/// fn twice(prepared: &mut Prepared<SendQueue<Rc>, Form<RdmaWrite<InlineBytes<8>>, Bytes>>) {
///     let next = prepared.next().unwrap();
///     // SAFETY: the payload is copied, and the remote memory is this program's.
///     unsafe { next.fire([1; 8]) };
///     // SAFETY: the payload is copied, and the remote memory is this program's.
///     unsafe { next.fire([2; 8]) };
/// }
/// ```
/// ```compile_fail,E0499
/// # use mlx5::{ib::Rc, ring::{*, variable::*}, wqe::*};
/// fn out_of_order(prepared: &mut Prepared<SendQueue<Rc>, Form<RdmaWrite<InlineBytes<8>>, Bytes>>) {
///     let (first, second) = (prepared.next().unwrap(), prepared.next().unwrap());
///     // SAFETY: the payload is copied, and the remote memory is this program's.
///     unsafe { second.fire([2; 8]) };
///     // SAFETY: the payload is copied, and the remote memory is this program's.
///     unsafe { first.fire([1; 8]) };
/// }
/// ```
/// ```compile_fail,E0499
/// # use mlx5::{ib::Rc, ring::{*, variable::*}, wqe::*};
/// fn beside_it(queue: &mut SendQueue<Rc>, remote: Remote) {
///     let mut prepared = Prepared::<_, Form<RdmaWrite<InlineBytes<8>>, Bytes>>::new(&mut *queue);
///     let batch = queue.batch();
///     // SAFETY: the payload is copied, and the remote memory is this program's.
///     unsafe { prepared.next().unwrap().fire([1; 8]) };
/// }
/// ```
/// ```
/// # use mlx5::{ib::Rc, ring::{*, variable::*}, wqe::*};
/// fn in_order(queue: &mut SendQueue<Rc>, remote: Remote) {
///     let mut prepared = Prepared::<_, Form<RdmaWrite<InlineBytes<8>>, Bytes>>::new(&mut *queue);
///     // SAFETY: the payload is copied, and the remote memory is this program's.
///     unsafe { prepared.next().unwrap().fire([1; 8]) };
///     // SAFETY: the payload is copied, and the remote memory is this program's.
///     unsafe { prepared.next().unwrap().fire([2; 8]) };
///     let batch = queue.batch();
/// }
/// ```
///
/// Dropping or leaking it posts none of the requests that are still prepared. The next post
/// overwrites their slots. Ids of requests that were not fired do not come back.
///
/// When a request has failed, the HCA flushes the fired requests until the poll that returns the
/// error completion: each request, even an unsignaled one, completes with an error and its id. From
/// that poll on [`next`](Self::next) returns [`FireError::WrongState`]. Recover as for every queue:
/// drop this value, take the QP through RESET, [restart](SendQueue::restart) the queue, and prepare
/// again.
pub struct Prepared<Q, F, T: Transport = Rc> {
    queue: Q,
    line: Line,
    forms: PhantomData<(fn(F), T)>,
}

impl<Q: HasSendQueue<T>, F: Forms<T>, T: Transport> Prepared<Q, F, T> {
    /// Takes a queue, without prepared requests. Allocates 32 bytes per block of the ring.
    pub fn new(mut queue: Q) -> Self {
        let line = Line::new(&mut queue.queue_mut().ring);
        Self { queue, line, forms: PhantomData }
    }

    /// Writes a request behind those already prepared, except for its variable fields. The
    /// request's values in variable fields are ignored, except for the remote address, which an
    /// [`Offset`](super::variable::Offset) is added to. `id` comes back with its completion.
    ///
    /// # Errors
    /// The errors of [`Batch::append`](super::Batch::append). Nothing is prepared then. An
    /// unsignaled request counts as a signaled one while more than one CQ slot is free. Then it can
    /// be fired on the fast path.
    pub fn prepare(&mut self, id: u64, operation: F::Operation) -> Result<(), PostError> {
        let ring = &mut self.queue.queue_mut().ring;
        F::prepare(Parts { ring, line: &mut self.line }, Kind::default(), id, &operation)
    }

    /// Returns the oldest prepared request, to be [fired](Next::fire). If the result is dropped,
    /// the request is still the next one. For an [`Either`] form, the result tells which form it
    /// is.
    ///
    /// # Errors
    /// [`FireError`]; nothing is changed then.
    #[inline(always)]
    #[allow(clippy::should_implement_trait, reason = "what it gives borrows from it")]
    pub fn next(&mut self) -> Result<F::Next<'_>, FireError> {
        let ring = &mut self.queue.queue_mut().ring;
        let ready = !ring.ready.is_empty() || self.line.aim(ring)?;
        let bits = if F::CHOICES == 0 { 0 } else { self.line.kind(ring) };
        Ok(F::next(Parts { ring, line: &mut self.line }, bits, ready))
    }

    /// Turns a prepared request into a NOP in its slot. `position` 0 is the next request. Returns
    /// its id, or `None` if fewer are prepared.
    ///
    /// The NOP is posted with the request fired after it, whose doorbell covers both, or by
    /// [`ring_cancelled`](Self::ring_cancelled). If the request was signaled, so is the NOP. Its
    /// completion returns the id, as [`SendOperation::Nop`](crate::cqe::SendOperation::Nop), and
    /// retires the unsignaled requests before it as usual. Cost: reads each request before it.
    pub fn cancel(&mut self, position: u32) -> Option<u64> {
        self.line.cancel(&mut self.queue.queue_mut().ring, position)
    }

    /// Posts the NOPs before the next prepared request, or all NOPs if nothing is prepared, by one
    /// 8-byte doorbell. Returns their number. Rings nothing if there are none, or an error
    /// completion was seen.
    pub fn ring_cancelled(&mut self) -> u32 {
        self.line.ring_cancelled(&mut self.queue.queue_mut().ring)
    }

    /// Returns the number of prepared requests.
    pub fn len(&self) -> u32 {
        self.line.len(&self.queue.queue().ring)
    }

    /// Returns whether no request is prepared.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the queue.
    pub fn queue(&self) -> &SendQueue<T> {
        self.queue.queue()
    }

    /// Returns the queue. Requests that are still prepared are not posted.
    pub fn into_queue(self) -> Q {
        self.queue
    }
}

/// Completions can be polled while requests are prepared.
impl<Q: HasSendQueue<T>, F, T: Transport> Queues for Prepared<Q, F, T> {
    #[inline(always)]
    fn send_side(&mut self, qpn: u32) -> Option<SendSide<'_>> {
        self.queue.queue_mut().send_side(qpn)
    }

    #[inline(always)]
    fn receive_side(&mut self, _: u32) -> Option<ReceiveSide<'_>> {
        None
    }
}

impl<Q: HasSendQueue<T>, F, T: Transport> fmt::Debug for Prepared<Q, F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = self.queue.queue();
        let prepared = self.line.len(&queue.ring);
        f.debug_struct("Prepared").field("prepared", &prepared).field("queue", queue).finish()
    }
}
