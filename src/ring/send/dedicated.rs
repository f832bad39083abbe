//! Send queues of one owner that share a doorbell register.

use core::fmt;

use crate::doorbell::Lent;
use crate::error::QueueError;
use crate::ib::{Rc, Transport};
use crate::ring::source::claims::RegisterClaim;
use crate::ring::{Batch, CqReader, PostError, SendConfig, SendQueue, SendSource};
use crate::wqe::{Limits, PostOn};

/// A doorbell register with all send queues that store to it. Each can copy its WQEs there
/// (BlueFlame) without colliding with another's copy.
///
/// A register belongs to one of these:
///
/// - One queue, which then need not share anything.
/// - Queues in any threads that ring by eight bytes only
///   ([`RegisterUse::Shared`](crate::ring::RegisterUse)).
/// - A value of this type: the queues of one thread, whose queue pairs are created in one
///   [`ThreadDomain`](crate::verbs::ThreadDomain).
///
/// The value can be moved to another thread as a whole. It is not `Sync`, and hands out one queue
/// at a time, so no two threads can store to the register.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// # use mlx5::connect::LocalPort;
/// use mlx5::expert::DedicatedRegister;
/// use mlx5::ring::{CqReader, SendConfig};
/// use mlx5::verbs::{QueuePair, ThreadDomain};
/// use mlx5::wqe::Nop;
///
/// # let local = LocalPort::new(&context, 1, None)?;
/// let thread = ThreadDomain::new(&context)?;
/// let mut reader = CqReader::new(&cq)?;
/// let mut queues = DedicatedRegister::new();
/// for _ in 0..2 {
///     let qp = QueuePair::builder(&pd, &cq).max_send_wr(16).thread_domain(&thread).build()?;
/// #     let data = local.connection_data(&qp); // its own peer
/// #     let qp = qp.init(&local.init())?.rtr(&local.rtr(&data, &data))?;
///     queues.add(&qp.rts(&local.rts(&data, &data))?, &mut reader, SendConfig::default())?;
/// }
/// // SAFETY: the request names no memory.
/// unsafe { queues.turn(1).post(7, Nop::new().signaled())? };
/// assert_eq!(queues.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DedicatedRegister<T: Transport = Rc> {
    /// Dropped before the queue pairs are released, since another queue pair may then get their
    /// register.
    claim: Option<RegisterClaim>,
    queues: Vec<SendQueue<T>>,
    /// The queue that stored to the register last. The next one continues with its buffer.
    last: usize,
}

/// A queue of a [`DedicatedRegister`], while it holds the register.
///
/// See the example on [`DedicatedRegister`].
#[derive(Debug)]
pub struct Turn<'r, T: Transport = Rc> {
    queue: &'r mut SendQueue<T>,
}

impl<T: Transport> Default for DedicatedRegister<T> {
    fn default() -> Self {
        Self { claim: None, queues: Vec::new(), last: 0 }
    }
}

impl<T: Transport> DedicatedRegister<T> {
    /// Creates a value without queues. The first queue determines the register.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes over the send queue of a QP, see [`SendQueue::new`]. Returns its index.
    ///
    /// # Errors
    /// The errors of [`SendQueue::new`]. [`QueueError::RegisterShared`] if another queue uses the
    /// register. [`QueueError::OtherRegister`] if the QP has another register than the first one.
    pub fn add<Q: SendSource<Transport = T>>(
        &mut self,
        qp: &Q,
        completions: &mut CqReader,
        config: SendConfig,
    ) -> crate::error::Result<usize> {
        let queue = SendQueue::unclaimed(qp, completions, config)?;
        let doorbell = &queue.ring.doorbell;
        match self.queues.first() {
            Some(first) if first.ring.doorbell.register() != doorbell.register() => {
                return Err(QueueError::OtherRegister.into());
            }
            Some(_) => {}
            None => self.claim = Some(RegisterClaim::new(doorbell.register(), true)?),
        }
        self.queues.push(queue);
        Ok(self.queues.len() - 1)
    }

    /// Returns the number of queues.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// Returns whether there is no queue.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Returns a queue with the register. Costs a comparison, and a load and a store if the last
    /// queue was another.
    ///
    /// # Panics
    /// If there is no queue with that index.
    #[inline]
    pub fn turn(&mut self, index: usize) -> Turn<'_, T> {
        if index != self.last {
            // The buffers of the register alternate across all queues.
            let next = self.queues[self.last].ring.doorbell.buffer();
            self.queues[index].ring.doorbell.set_buffer(next);
            self.last = index;
        }
        Turn { queue: &mut self.queues[index] }
    }
}

impl<T: Transport> DedicatedRegister<T> {
    /// Returns all queues.
    pub(in crate::ring) fn queues_mut(&mut self) -> &mut [SendQueue<T>] {
        &mut self.queues
    }

    /// Returns the queue that had the register last.
    pub(in crate::ring) fn last_mut(&mut self) -> Option<&mut SendQueue<T>> {
        self.queues.get_mut(self.last)
    }
}

impl<'r, T: Transport> Turn<'r, T> {
    /// Posts one request, see [`SendQueue::post`].
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// The HCA works on the request from now on: until it is retired,
    /// [its memory](crate::ring#the-memory-of-requests) is the HCA's.
    #[doc(alias = "ibv_post_send")]
    #[inline]
    pub unsafe fn post<O: PostOn<T>>(&mut self, id: u64, operation: O) -> Result<(), PostError> {
        // SAFETY: this function's contract.
        self.queue.post_lent(unsafe { Lent::promised() }, id, operation)
    }

    /// Starts a batch, see [`SendQueue::batch`]. The batch holds the register until it is rung or
    /// dropped.
    #[inline]
    pub fn batch(&mut self) -> Batch<'_, T> {
        self.queue.batch()
    }

    /// Returns the number of the queue pair.
    pub fn qpn(&self) -> u32 {
        self.queue.qpn()
    }

    /// Returns the limits of a request: entries and inline bytes.
    pub fn limits(&self) -> Limits {
        self.queue.limits()
    }

    /// Returns the number of free blocks.
    pub fn free_blocks(&self) -> u32 {
        self.queue.free_blocks()
    }

    /// Returns whether every posted request is retired.
    pub fn is_idle(&self) -> bool {
        self.queue.is_idle()
    }
}

impl<T: Transport> fmt::Debug for DedicatedRegister<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DedicatedRegister").field("queues", &self.queues).finish_non_exhaustive()
    }
}
