//! A receive queue that owns the memory of its receives.

use core::hint::black_box;

use super::flight::{Flight, InFlight, Outstanding};
use super::{Buffers, CallFailed, Owned, Refused};
use crate::doorbell::Lent;
use crate::error::QueueError;
use crate::ib::{INTERNAL, Internal, Rc, Transport};
use crate::ring::source::ObjectId;
use crate::ring::{CqReader, Queues, ReceiveConfig, ReceiveQueue, ReceiveSource};
use crate::verbs::{QueuePair, Reset, Rts, State, TransitionError};
use crate::wqe::SgeList;

/// The receive half of an [`Endpoint`](super::Endpoint): a [`Receiver`], or [`NoReceiver`].
// Sealed by the argument of its methods.
pub trait ReceiveHalf {
    /// The queue that a poll looks for receives in.
    #[doc(hidden)]
    type Queue: Queues;

    /// Returns the queue, for a poll.
    #[doc(hidden)]
    fn queue_mut(&mut self, _: Internal) -> &mut Self::Queue;

    /// Takes the memory of the receive that was retired last.
    #[doc(hidden)]
    fn take_retired(&mut self, _: Internal) -> Buffers;

    /// Releases the claim on the queue pair. Returns the outstanding receives, oldest first.
    #[doc(hidden)]
    fn give_up(self, _: Internal) -> Outstanding
    where
        Self: Sized;
}

/// Instead of a [`Receiver`]: the queue pair has no receive queue of its own. See the example on
/// [`SendEndpoint`](super::SendEndpoint).
#[derive(Debug, Default)]
pub struct NoReceiver(());

impl ReceiveHalf for NoReceiver {
    type Queue = ();

    #[inline(always)]
    fn queue_mut(&mut self, _: Internal) -> &mut () {
        &mut self.0
    }

    fn take_retired(&mut self, _: Internal) -> Buffers {
        Buffers::None
    }

    fn give_up(self, _: Internal) -> Outstanding {
        Outstanding::default()
    }
}

/// A receive queue that owns the memory of its receives. An [`Endpoint`](super::Endpoint) takes it
/// over when its queue pair is connected.
///
/// It is created as soon as the queue pair is in INIT, so that receives can be posted before the
/// peer sends.
///
/// ```no_run
/// # use mlx5::endpoint::{MrSlice, Receiver};
/// # use mlx5::ib::{Access, Rc};
/// # use mlx5::ring::{CqReader, ReceiveConfig};
/// # use mlx5::verbs::{Init, ProtectionDomain, QueuePair};
/// # fn example(
/// #     pd: &ProtectionDomain, qp: &QueuePair<Rc, Init>, reader: &mut CqReader,
/// # ) -> mlx5::Result<()> {
/// let mut receiver = Receiver::new(qp, reader, ReceiveConfig::default())?;
/// receiver.post(1, MrSlice::new(pd.allocate(4096, Access::LOCAL_WRITE)?))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Receiver {
    /// Only [`post`](Self::post) posts to it.
    queue: ReceiveQueue,
    flight: Flight,
}

/// The parts of a closed receiver. See the example on [`Receiver::close`].
#[derive(Debug)]
#[non_exhaustive]
pub struct ClosedReceiver<T: Transport = Rc> {
    /// The queue pair, in RESET.
    pub qp: QueuePair<T, Reset>,
    /// Ids and memory of the receives that no poll has returned, oldest first.
    pub receives: Vec<(u64, Buffers)>,
}

impl Receiver {
    /// Takes over a receive queue, see [`ReceiveQueue::new`].
    ///
    /// # Errors
    /// [`Error::QueueInUse`](crate::Error::QueueInUse), [`Error::Queue`](crate::Error::Queue): the
    /// QP has no receive queue of its own, it completes on another CQ, the CQ has no free slot to
    /// reserve, or it is for packets ([`PacketRq`](crate::ring::PacketRq) takes those). Nothing is
    /// changed then.
    pub fn new<Q: ReceiveSource>(
        qp: &Q,
        completions: &mut CqReader,
        config: ReceiveConfig,
    ) -> crate::error::Result<Self> {
        let domain = qp.domain().ok_or(QueueError::NoQueue)?;
        let queue = ReceiveQueue::new(qp, completions, config)?;
        let shape = queue.layout().shape();
        let flight = Flight::new(shape, domain, qp.owner(INTERNAL));
        Ok(Self { queue, flight })
    }

    /// Posts a receive into `memory`, a [`MrSlice`](super::MrSlice) or a `Vec` of them. The memory
    /// is returned with the completion, by [`Endpoint::poll`](super::Endpoint::poll).
    ///
    /// # Errors
    /// [`Refused`], which gives the memory back: with
    /// [`PostError::PdMismatch`](crate::ring::PostError::PdMismatch) for memory of another
    /// protection domain or device, with
    /// [`PostError::NoLocalWrite`](crate::ring::PostError::NoLocalWrite) for memory without that
    /// right.
    #[doc(alias = "ibv_post_recv")]
    #[inline]
    pub fn post<P: SgeList + Owned>(&mut self, id: u64, memory: P) -> Result<(), Refused<P>> {
        if !self.flight.accepts(&memory) {
            return Err(Refused::memory(memory));
        }
        let head = self.queue.layout().head();
        // SAFETY: all memory that the receive names is in slices, which the flight owns as soon as
        // the call returns: nothing reads, writes or borrows it. A poll that returns the completion
        // returns them, or `after_reset` does. A dropped flight gives them to the queue pair.
        let lent = unsafe { Lent::promised() };
        if self.queue.post_usual(lent, id, &memory) {
            self.flight.put_receive(head, memory);
            return Ok(());
        }
        // `black_box` makes it other memory for the compiler, so that only this path needs its
        // slices in memory.
        let memory = black_box(memory);
        if let Err(error) = self.queue.post_any(lent, id, &memory) {
            return Err(Refused { error, operation: memory });
        }
        self.flight.put_receive(head, memory);
        Ok(())
    }

    /// Moves the queue pair to RESET, and returns it with the memory of the receives. For
    /// connections that fail before there is an [`Endpoint`](super::Endpoint).
    ///
    /// ```no_run
    /// # use mlx5::endpoint::{MrSlice, Receiver};
    /// # use mlx5::ib::Rc;
    /// # use mlx5::verbs::attr::RtrAttributes;
    /// # use mlx5::verbs::{Init, QueuePair};
    /// # fn example(
    /// #     qp: QueuePair<Rc, Init>, receiver: Receiver, peer: &RtrAttributes,
    /// #     free: &mut Vec<MrSlice>,
    /// # ) -> mlx5::Result<()> {
    /// if let Err(failed) = qp.rtr(peer) {
    ///     println!("{}", failed.error);
    ///     let closed = receiver.close(failed.queue_pair)?;
    ///     free.extend(closed.receives.into_iter().flat_map(|(_, buffers)| buffers));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`CallFailed`] with [`QueueError::QpMismatch`], and the receiver, if it is of another queue
    /// pair; with [`Error::Call`](crate::Error::Call) if the reset fails.
    pub fn close<T: Transport, S: State>(
        self,
        qp: QueuePair<T, S>,
    ) -> Result<ClosedReceiver<T>, CallFailed<(QueuePair<T, S>, Option<Self>)>> {
        if !self.is_of(&qp) {
            let error = QueueError::QpMismatch.into();
            return Err(CallFailed { error, arguments: (qp, Some(self)) });
        }
        // Its claim prevents the reset.
        let receives = self.give_up(INTERNAL);
        match qp.reset() {
            Ok(qp) => Ok(ClosedReceiver { qp, receives: receives.after_reset() }),
            Err(TransitionError { queue_pair, error }) => {
                Err(CallFailed { error, arguments: (queue_pair, None) })
            }
        }
    }

    /// Returns whether it is the receive queue of `qp`.
    fn is_of<T: Transport, S: State>(&self, qp: &QueuePair<T, S>) -> bool {
        // Compares the objects: two devices may give their queue pairs the same number.
        self.queue.is_of(ObjectId::at(qp.as_raw().as_ptr()))
    }

    /// Fails unless it is the receive queue of `qp`, and completes on `completions`.
    pub(super) fn check<T: Transport>(
        &self,
        qp: &QueuePair<T, Rts>,
        completions: &CqReader,
    ) -> Result<(), QueueError> {
        if !self.is_of(qp) {
            return Err(QueueError::QpMismatch);
        }
        if !self.queue.completes_on(completions) {
            return Err(QueueError::CqMismatch);
        }
        Ok(())
    }

    /// Returns the queue, for its queries.
    pub fn queue(&self) -> &ReceiveQueue {
        &self.queue
    }
}

impl ReceiveHalf for Receiver {
    type Queue = ReceiveQueue;

    #[inline(always)]
    fn queue_mut(&mut self, _: Internal) -> &mut ReceiveQueue {
        &mut self.queue
    }

    #[inline(always)]
    fn take_retired(&mut self, _: Internal) -> Buffers {
        self.flight.take(self.queue.layout().tail().before())
    }

    fn give_up(self, _: Internal) -> Outstanding {
        let Self { queue, flight } = self;
        let layout = queue.layout();
        let tail = layout.tail();
        let ids = (0..).zip(layout.outstanding_ids());
        Outstanding::new(ids.map(|(at, id)| (tail.plus(at), id)).collect(), flight)
    }
}
