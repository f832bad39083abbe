//! Which queues a poll finds the CQEs' queues among.

use crate::ib::Transport;
use crate::ring::{
    DedicatedRegister, Prepared, ReceiveQueue, ReceiveSide, Retirer, SendQueue, SendSide, Srq,
};

/// The queues whose completions a poll may meet.
///
/// Sealed. Implemented by send and receive queues, also [shared](crate::ring::Srq) ones, references,
/// pairs, slices, `Option` and `()`, and by [`QueueTable`](crate::ring::QueueTable) for many queues.
///
/// A CQE of a live queue that is not found stays in the CQ, and the poll fails with
/// [`PollError::QueueNotGiven`](crate::ring::PollError::QueueNotGiven). One of a queue that was dropped,
/// or that this crate does not drive, is taken and comes out as
/// [`Completion::UnexpectedCqe`](crate::cqe::Completion::UnexpectedCqe).
///
/// ```
/// # let rig::Link { mut reader, mut sends, mut receives, .. } = rig::link()?;
/// use mlx5::cqe::Completion;
/// use mlx5::ring::{CqReader, PollError, Queues};
///
/// /// Whatever queues complete on the CQ.
/// fn failures(reader: &mut CqReader, queues: &mut impl Queues) -> Result<usize, PollError> {
///     let mut count = 0;
///     while let Some(completion) = reader.poll(queues)? {
///         count += usize::from(matches!(completion, Completion::Failed(_)));
///     }
///     Ok(count)
/// }
/// assert_eq!(failures(&mut reader, &mut sends)?, 0);
/// assert_eq!(failures(&mut reader, &mut (&mut sends, &mut receives))?, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Sealed by the types of the sides, which are not exported.
pub trait Queues {
    /// Returns the send queue of the queue pair `qpn`.
    #[doc(hidden)]
    fn send_side(&mut self, qpn: u32) -> Option<SendSide<'_>>;

    /// Returns the receive queue of the queue pair `qpn`.
    #[doc(hidden)]
    fn receive_side(&mut self, qpn: u32) -> Option<ReceiveSide<'_>>;

    /// Returns the shared receive queue of an XRC domain that CQEs call `index`
    /// ([`Srq::user_index`](crate::ring::Srq::user_index)). Asked where no
    /// [`receive_side`](Self::receive_side) is found.
    #[doc(hidden)]
    #[inline(always)]
    fn indexed_side(&mut self, index: u32) -> Option<ReceiveSide<'_>> {
        let _ = index;
        None
    }

    /// Returns the send queue whose oldest request the next success is likely to be of, for a poll
    /// to try before it looks for the queue by its number. A wrong guess costs a few instructions.
    #[doc(hidden)]
    #[inline(always)]
    fn likely_send_side(&mut self) -> Option<SendSide<'_>> {
        None
    }

    /// Returns the receive queue whose oldest receive the next message is likely to complete, like
    /// [`likely_send_side`](Self::likely_send_side).
    #[doc(hidden)]
    #[inline(always)]
    fn likely_receive_queue(&mut self) -> Option<&mut ReceiveQueue> {
        None
    }

    /// Refuses posts to all its queues from now on: the device failed.
    #[doc(hidden)]
    fn device_failed(&mut self);
}

/// No queue.
impl Queues for () {
    fn send_side(&mut self, _: u32) -> Option<SendSide<'_>> {
        None
    }

    fn receive_side(&mut self, _: u32) -> Option<ReceiveSide<'_>> {
        None
    }

    fn device_failed(&mut self) {}
}

impl<T: Transport> Queues for SendQueue<T> {
    #[inline(always)]
    fn send_side(&mut self, qpn: u32) -> Option<SendSide<'_>> {
        let side = self.side();
        (side.qpn() == qpn).then_some(side)
    }

    #[inline(always)]
    fn receive_side(&mut self, _: u32) -> Option<ReceiveSide<'_>> {
        None
    }

    #[inline(always)]
    fn likely_send_side(&mut self) -> Option<SendSide<'_>> {
        Some(self.side())
    }

    fn device_failed(&mut self) {
        self.ring.state.device_failed();
    }
}

impl Queues for ReceiveQueue {
    #[inline(always)]
    fn send_side(&mut self, _: u32) -> Option<SendSide<'_>> {
        None
    }

    #[inline(always)]
    fn receive_side(&mut self, qpn: u32) -> Option<ReceiveSide<'_>> {
        if self.qpn() == qpn { Some(self.side()) } else { None }
    }

    #[inline(always)]
    fn likely_receive_queue(&mut self) -> Option<&mut ReceiveQueue> {
        Some(self)
    }

    fn device_failed(&mut self) {
        self.ring.device_failed();
    }
}

impl<Q: Queues + ?Sized> Queues for &mut Q {
    #[inline(always)]
    fn send_side(&mut self, qpn: u32) -> Option<SendSide<'_>> {
        (**self).send_side(qpn)
    }

    #[inline(always)]
    fn receive_side(&mut self, qpn: u32) -> Option<ReceiveSide<'_>> {
        (**self).receive_side(qpn)
    }

    #[inline(always)]
    fn indexed_side(&mut self, index: u32) -> Option<ReceiveSide<'_>> {
        (**self).indexed_side(index)
    }

    #[inline(always)]
    fn likely_send_side(&mut self) -> Option<SendSide<'_>> {
        (**self).likely_send_side()
    }

    #[inline(always)]
    fn likely_receive_queue(&mut self) -> Option<&mut ReceiveQueue> {
        (**self).likely_receive_queue()
    }

    fn device_failed(&mut self) {
        (**self).device_failed();
    }
}

/// The first that has the queue.
impl<A: Queues, B: Queues> Queues for (A, B) {
    #[inline(always)]
    fn send_side(&mut self, qpn: u32) -> Option<SendSide<'_>> {
        let (first, second) = self;
        first.send_side(qpn).or_else(|| second.send_side(qpn))
    }

    #[inline(always)]
    fn receive_side(&mut self, qpn: u32) -> Option<ReceiveSide<'_>> {
        let (first, second) = self;
        first.receive_side(qpn).or_else(|| second.receive_side(qpn))
    }

    #[inline(always)]
    fn indexed_side(&mut self, index: u32) -> Option<ReceiveSide<'_>> {
        let (first, second) = self;
        first.indexed_side(index).or_else(|| second.indexed_side(index))
    }

    #[inline(always)]
    fn likely_send_side(&mut self) -> Option<SendSide<'_>> {
        let (first, second) = self;
        first.likely_send_side().or_else(|| second.likely_send_side())
    }

    #[inline(always)]
    fn likely_receive_queue(&mut self) -> Option<&mut ReceiveQueue> {
        let (first, second) = self;
        first.likely_receive_queue().or_else(|| second.likely_receive_queue())
    }

    fn device_failed(&mut self) {
        let (first, second) = self;
        first.device_failed();
        second.device_failed();
    }
}

/// The first that has the queue.
impl<Q: Queues> Queues for [Q] {
    fn send_side(&mut self, qpn: u32) -> Option<SendSide<'_>> {
        self.iter_mut().find_map(|queue| queue.send_side(qpn))
    }

    fn receive_side(&mut self, qpn: u32) -> Option<ReceiveSide<'_>> {
        self.iter_mut().find_map(|queue| queue.receive_side(qpn))
    }

    fn indexed_side(&mut self, index: u32) -> Option<ReceiveSide<'_>> {
        self.iter_mut().find_map(|queue| queue.indexed_side(index))
    }

    fn device_failed(&mut self) {
        self.iter_mut().for_each(Q::device_failed);
    }
}

impl<Q: Queues> Queues for Option<Q> {
    fn send_side(&mut self, qpn: u32) -> Option<SendSide<'_>> {
        self.as_mut()?.send_side(qpn)
    }

    fn receive_side(&mut self, qpn: u32) -> Option<ReceiveSide<'_>> {
        self.as_mut()?.receive_side(qpn)
    }

    fn indexed_side(&mut self, index: u32) -> Option<ReceiveSide<'_>> {
        self.as_mut()?.indexed_side(index)
    }

    fn likely_send_side(&mut self) -> Option<SendSide<'_>> {
        self.as_mut()?.likely_send_side()
    }

    #[inline(always)]
    fn likely_receive_queue(&mut self) -> Option<&mut ReceiveQueue> {
        self.as_mut()?.likely_receive_queue()
    }

    fn device_failed(&mut self) {
        self.iter_mut().for_each(Q::device_failed);
    }
}

/// Completions can be polled while requests are prepared.
impl<O, T: Transport> Queues for Prepared<O, T> {
    #[inline(always)]
    fn send_side(&mut self, qpn: u32) -> Option<SendSide<'_>> {
        self.queue_mut().send_side(qpn)
    }

    #[inline(always)]
    fn receive_side(&mut self, _: u32) -> Option<ReceiveSide<'_>> {
        None
    }

    fn device_failed(&mut self) {
        self.queue_mut().device_failed();
    }
}

impl<T: Transport> Queues for Retirer<T> {
    #[inline(always)]
    fn send_side(&mut self, qpn: u32) -> Option<SendSide<'_>> {
        if self.qpn() == qpn { self.side() } else { None }
    }

    #[inline(always)]
    fn likely_send_side(&mut self) -> Option<SendSide<'_>> {
        self.side()
    }

    #[inline(always)]
    fn receive_side(&mut self, _: u32) -> Option<ReceiveSide<'_>> {
        None
    }

    fn device_failed(&mut self) {
        self.fail_device();
    }
}

/// Finds queues by number with a linear search.
impl<T: Transport> Queues for DedicatedRegister<T> {
    fn send_side(&mut self, qpn: u32) -> Option<SendSide<'_>> {
        self.queues_mut().send_side(qpn)
    }

    fn receive_side(&mut self, _: u32) -> Option<ReceiveSide<'_>> {
        None
    }

    fn likely_send_side(&mut self) -> Option<SendSide<'_>> {
        self.last_mut().map(SendQueue::side)
    }

    fn device_failed(&mut self) {
        self.queues_mut().device_failed();
    }
}

impl Queues for Srq {
    #[inline(always)]
    fn send_side(&mut self, _: u32) -> Option<SendSide<'_>> {
        None
    }

    #[inline(always)]
    fn receive_side(&mut self, qpn: u32) -> Option<ReceiveSide<'_>> {
        self.side(qpn)
    }

    #[inline(always)]
    fn indexed_side(&mut self, index: u32) -> Option<ReceiveSide<'_>> {
        self.side_of_index(index)
    }

    fn device_failed(&mut self) {
        self.ring.device_failed();
    }
}
