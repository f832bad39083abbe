//! The completing half of a shared send queue.

use core::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Shared;
use crate::ib::{Rc, Transport};
use crate::ring::{SendQueue, SendSide};

/// The polling side of a shared send queue: polls take it as their [`Queues`](crate::ring::Queues).
///
/// It retires the requests that the [`Producer`](super::Producer)s have posted. A queue has one
/// retirer. The thread that reads the completion queue owns it. When it is dropped, no request is
/// retired any more, and posts fail when the queue is full.
///
/// ```
/// # let rig::Link { mut reader, sends, .. } = rig::link()?;
/// use mlx5::wqe::Nop;
///
/// // Producers go to the threads that post. The thread that polls has the retirer.
/// let (producer, mut retirer) = sends.share();
/// // SAFETY: the request names no memory.
/// unsafe { producer.post(1, Nop::new().signaled())? };
/// while !retirer.is_idle() {
///     reader.poll(&mut retirer)?;
/// }
/// drop(producer);
/// assert!(retirer.unshare().is_ok()); // the exclusive queue, since no producer is left
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Retirer<T: Transport = Rc> {
    shared: Arc<Shared<T>>,
}

impl<T: Transport> Retirer<T> {
    pub(super) fn new(shared: Arc<Shared<T>>) -> Self {
        Self { shared }
    }

    /// Number of the queue pair.
    pub fn qpn(&self) -> u32 {
        self.shared.wqes.qpn()
    }

    /// Returns whether every request that is known to the HCA is retired.
    pub fn is_idle(&mut self) -> bool {
        self.side().is_none_or(|side| side.ring.state.is_idle())
    }

    /// Converts the queue back to an exclusive one, for example to
    /// [`restart`](SendQueue::restart) it. Outstanding requests stay outstanding.
    ///
    /// # Errors
    /// The retirer itself, if a producer still exists.
    pub fn unshare(self) -> Result<SendQueue<T>, Self> {
        let mut shared = self.shared;
        match Arc::get_mut(&mut shared).and_then(Shared::take) {
            Some(mut queue) => {
                queue.ring.refill();
                Ok(queue)
            }
            None => Err(Self { shared }),
        }
    }

    /// Returns the last events of the queue, for requests that the HCA knows, up to the last
    /// failure if there was one. `None` for a queue that was taken out.
    #[cfg(feature = "flight-recorder")]
    pub fn flight_record(&mut self) -> Option<mlx5_diag::flight::Record> {
        self.side().map(|side| side.ring.doorbell.flight.record())
    }

    /// Returns the queue's side for an owner of memory, who takes the memory of a retired request
    /// before it calls [`release`](Self::release).
    #[inline(always)]
    pub(crate) fn held_side(&mut self) -> Option<SendSide<'_>> {
        self.side().map(|side| SendSide { shared: None, ..side })
    }

    /// Releases the blocks of retired requests to the producers. After a failure, stops them. Call
    /// it after the consumer index was published.
    #[inline(always)]
    pub(crate) fn release(&mut self) {
        if let Some(side) = self.side() {
            side.release();
            side.stop_producers();
        }
    }

    /// Refuses posts from now on, because the device failed.
    pub(in crate::ring) fn fail_device(&mut self) {
        self.shared.device_failed.store(true, Ordering::Relaxed);
        if let Some(side) = self.side() {
            side.ring.state.device_failed();
            side.stop_producers();
        }
    }

    #[inline(always)]
    pub(in crate::ring) fn side(&mut self) -> Option<SendSide<'_>> {
        // SAFETY: this is the retirer, of which there is one, and it is borrowed.
        let queue = unsafe { self.shared.queue()? };
        Some(SendSide { ring: &mut queue.ring, shared: Some(&self.shared.sequencer) })
    }
}

impl<T: Transport> fmt::Debug for Retirer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Retirer").field(&self.shared).finish()
    }
}
