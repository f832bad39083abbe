//! A table of queues that complete on one CQ, found by number.

use core::fmt;
use core::ptr::NonNull;

use mlx5_sys::verbs::ibv_qp;

use crate::error::QueueError;
use crate::ib::{Rc, Transport};
use crate::ring::receive::Numbers;
use crate::ring::receive::srq::Srq;
use crate::ring::source::member;
use crate::ring::{
    CqReader, Queues, ReceiveQueue, ReceiveSide, ReceiveSource, SendQueue, SendSide,
};

/// Queues, owned, that polls find by the number of the queue pair, or by the user index of a queue
/// of an XRC domain. Finding one costs a bounded number of instructions, however many there are.
///
/// Send queues are all of one transport; for several, give polls a pair of tables.
///
/// ```
/// # let rig::Link { qp, mut reader, sends, receives, .. } = rig::link()?;
/// use mlx5::ring::QueueTable;
/// use mlx5::wqe::Nop;
///
/// let mut table = QueueTable::new();
/// table.insert_send(sends);
/// table.insert_receive(receives);
/// // A table of many queues: each is found by the number of its queue pair.
/// let sends = table.send(qp.number()).ok_or("no such queue")?;
/// // SAFETY: the request names no memory.
/// unsafe { sends.post(1, Nop::new().signaled())? };
/// # assert!(matches!(rig::poll(&mut reader, &mut table)?, mlx5::cqe::Completion::Send(_)));
/// assert!(reader.poll(&mut table)?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct QueueTable<T: Transport = Rc> {
    sends: Slab<SendQueue<T>>,
    receives: Slab<ReceiveQueue>,
    shared: Slab<Srq>,
    /// From the number of a queue pair to its send queue.
    senders: Numbers,
    /// From the number of a queue pair to its receive queue: see [`Row`].
    receivers: Numbers,
    /// From user indices to shared receive queues.
    indices: Numbers,
    /// The shared receive queue of an XRC domain whose user index is not known.
    nameless: Option<u32>,
    /// The send queue that a poll found last.
    likely: u32,
}

/// The receive queue of a queue pair.
#[derive(Clone, Copy)]
enum Row {
    Own(u32),
    Shared(u32),
}

impl Row {
    const fn pack(self) -> u32 {
        match self {
            Self::Own(at) => at << 1,
            Self::Shared(at) => at << 1 | 1,
        }
    }

    #[inline(always)]
    const fn unpack(value: u32) -> Self {
        if value & 1 == 0 { Self::Own(value >> 1) } else { Self::Shared(value >> 1) }
    }
}

/// A shared receive queue of a [`QueueTable`].
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::connect::LocalPort;
/// use mlx5::ib::Rc;
/// use mlx5::ring::{CqReader, QueueTable, ReceiveConfig, Srq};
/// use mlx5::verbs::{QueuePair, SharedReceiveQueue};
///
/// let srq = SharedReceiveQueue::builder(&pd).build()?;
/// let qp = QueuePair::builder(&pd, &cq).shared_receive_queue(&srq).build()?;
/// let qp = qp.init(&LocalPort::new(&context, 1, None)?.init())?;
/// let mut reader = CqReader::new(&cq)?;
/// let mut table = QueueTable::<Rc>::new();
/// let receives = Srq::new(&srq, &mut reader, ReceiveConfig::default())?;
/// // The key names the SRQ in the table. From `attach` on polls find it by the queue pair.
/// let key = table.insert_shared(receives).map_err(|_| "its user index is taken")?;
/// table.attach(key, &qp, &mut reader)?;
/// assert!(table.shared(key).is_some_and(|srq| srq.attached().eq([qp.number()])));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharedKey(u32);

/// Values at indices that do not change.
struct Slab<V> {
    places: Vec<Option<V>>,
}

impl<V> Slab<V> {
    const EMPTY: Self = Self { places: Vec::new() };

    fn insert(&mut self, value: V) -> u32 {
        let free = self.places.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[at] = Some(value);
        at as u32
    }

    #[inline(always)]
    fn get(&mut self, at: u32) -> Option<&mut V> {
        self.places.get_mut(at as usize)?.as_mut()
    }

    fn remove(&mut self, at: u32) -> Option<V> {
        self.places.get_mut(at as usize)?.take()
    }
}

impl<T: Transport> Default for QueueTable<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Transport> QueueTable<T> {
    /// Creates an empty table.
    pub fn new() -> Self {
        Self {
            sends: Slab::EMPTY,
            receives: Slab::EMPTY,
            shared: Slab::EMPTY,
            senders: Numbers::new(),
            receivers: Numbers::new(),
            indices: Numbers::new(),
            nameless: None,
            likely: 0,
        }
    }

    /// Adds a send queue. Returns the queue pair's former one.
    pub fn insert_send(&mut self, queue: SendQueue<T>) -> Option<SendQueue<T>> {
        let qpn = queue.qpn();
        let before = self.remove_send(qpn);
        let at = self.sends.insert(queue);
        self.senders.insert(qpn, at);
        before
    }

    /// Adds a receive queue. Returns the queue pair's former one.
    pub fn insert_receive(&mut self, queue: ReceiveQueue) -> Option<ReceiveQueue> {
        let qpn = queue.qpn();
        let before = self.remove_receive(qpn);
        let at = self.receives.insert(queue);
        self.receivers.insert(qpn, Row::Own(at).pack());
        before
    }

    /// Adds a shared receive queue, with the queue pairs that are attached to it.
    ///
    /// # Errors
    /// A table finds one queue of an XRC domain whose user index is [not
    /// known](Srq::user_index). A second one is returned.
    pub fn insert_shared(&mut self, queue: Srq) -> Result<SharedKey, Box<Srq>> {
        let unknown = queue.is_xrc() && queue.user_index().is_none();
        if unknown && self.nameless.is_some() {
            return Err(Box::new(queue));
        }
        let (index, qpns): (_, Vec<_>) = (queue.user_index(), queue.attached().collect());
        let at = self.shared.insert(queue);
        for qpn in qpns {
            self.receivers.insert(qpn, Row::Shared(at).pack());
        }
        if let Some(index) = index {
            self.indices.insert(index, at);
        }
        if unknown {
            self.nameless = Some(at);
        }
        Ok(SharedKey(at))
    }

    /// [Attaches](Srq::attach) a queue pair to a shared receive queue of the table.
    ///
    /// # Errors
    /// The errors of [`Srq::attach`].
    ///
    /// # Panics
    /// If the table has no queue with that key.
    pub fn attach<Q: ReceiveSource>(
        &mut self,
        key: SharedKey,
        qp: &Q,
        completions: &mut CqReader,
    ) -> crate::error::Result<()> {
        self.shared.get(key.0).expect("a queue of this table").attach(qp, completions)?;
        self.receivers.insert(qp.member().number, Row::Shared(key.0).pack());
        Ok(())
    }

    /// [Attaches](Srq::attach_raw) a queue pair that this crate did not make to a shared receive queue
    /// of the table.
    ///
    /// # Errors
    /// The errors of [`Srq::attach_raw`].
    ///
    /// # Panics
    /// If the table has no queue with that key.
    ///
    /// # Safety
    /// `qp` stays alive and is not reset, until it is detached or the queue is dropped.
    pub unsafe fn attach_raw(
        &mut self,
        key: SharedKey,
        qp: NonNull<ibv_qp>,
        completions: &mut CqReader,
    ) -> Result<(), QueueError> {
        let queue = self.shared.get(key.0).expect("a queue of this table");
        // SAFETY: this function's contract.
        let number = unsafe {
            queue.attach_raw(qp, completions)?;
            member(qp).number
        };
        self.receivers.insert(number, Row::Shared(key.0).pack());
        Ok(())
    }

    /// [Detaches](Srq::detach) a queue pair from a shared receive queue of the table.
    /// Returns whether it was attached.
    pub fn detach(&mut self, key: SharedKey, qpn: u32, completions: &mut CqReader) -> bool {
        let Some(queue) = self.shared.get(key.0) else { return false };
        let was = queue.detach(qpn, completions);
        if was {
            self.receivers.remove(qpn);
        }
        was
    }

    /// The send queue of a queue pair.
    #[inline]
    pub fn send(&mut self, qpn: u32) -> Option<&mut SendQueue<T>> {
        self.sends.get(self.senders.get(qpn)?)
    }

    /// The receive queue that a queue pair has of its own.
    #[inline]
    pub fn receive(&mut self, qpn: u32) -> Option<&mut ReceiveQueue> {
        match Row::unpack(self.receivers.get(qpn)?) {
            Row::Own(at) => self.receives.get(at),
            Row::Shared(_) => None,
        }
    }

    /// A shared receive queue.
    #[inline]
    pub fn shared(&mut self, key: SharedKey) -> Option<&mut Srq> {
        self.shared.get(key.0)
    }

    /// Takes a queue pair's send queue out of the table.
    pub fn remove_send(&mut self, qpn: u32) -> Option<SendQueue<T>> {
        let at = self.senders.remove(qpn)?;
        self.sends.remove(at)
    }

    /// Takes a queue pair's own receive queue out of the table.
    pub fn remove_receive(&mut self, qpn: u32) -> Option<ReceiveQueue> {
        let Row::Own(at) = Row::unpack(self.receivers.get(qpn)?) else { return None };
        self.receivers.remove(qpn);
        self.receives.remove(at)
    }

    /// Takes a shared receive queue out of the table, with the queue pairs that are attached to it.
    pub fn remove_shared(&mut self, key: SharedKey) -> Option<Srq> {
        let queue = self.shared.remove(key.0)?;
        for qpn in queue.attached() {
            self.receivers.remove(qpn);
        }
        if let Some(index) = queue.user_index() {
            self.indices.remove(index);
        }
        if self.nameless == Some(key.0) {
            self.nameless = None;
        }
        Some(queue)
    }
}

impl<T: Transport> Queues for QueueTable<T> {
    #[inline(always)]
    fn send_side(&mut self, qpn: u32) -> Option<SendSide<'_>> {
        let at = self.senders.get(qpn)?;
        self.likely = at;
        Some(self.sends.get(at)?.side())
    }

    #[inline(always)]
    fn receive_side(&mut self, qpn: u32) -> Option<ReceiveSide<'_>> {
        match Row::unpack(self.receivers.get(qpn)?) {
            Row::Own(at) => Some(self.receives.get(at)?.side()),
            // Asked again, since it can be attached and detached behind the table's back.
            Row::Shared(at) => self.shared.get(at)?.side(qpn),
        }
    }

    #[inline(always)]
    fn indexed_side(&mut self, index: u32) -> Option<ReceiveSide<'_>> {
        let at = self.indices.get(index).or(self.nameless)?;
        self.shared.get(at)?.side_of_index(index)
    }

    #[inline(always)]
    fn likely_send_side(&mut self) -> Option<SendSide<'_>> {
        Some(self.sends.get(self.likely)?.side())
    }

    fn device_failed(&mut self) {
        self.sends.places.device_failed();
        self.receives.places.device_failed();
        self.shared.places.device_failed();
    }
}

impl<T: Transport> fmt::Debug for QueueTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueTable")
            .field("sends", &self.sends.places.iter().flatten().count())
            .field("receives", &self.receives.places.iter().flatten().count())
            .field("shared", &self.shared.places.iter().flatten().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
