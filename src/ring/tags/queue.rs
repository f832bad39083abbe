//! The tag-matching queue and its list.

use core::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::changes::{Change, Changes, Report, What};
use super::list::{List, TagHandle};
use crate::doorbell::Lent;
use crate::error::QueueError;
use crate::ib::Rc;
use crate::ring::completion::members::{Membership, Name};
use crate::ring::completion::reader::CqReader;
use crate::ring::completion::slots::{Demand, Reservation};
use crate::ring::source::UserIndex;
use crate::ring::source::{CqId, SendSource, SharedReceiveSource};
use crate::ring::{
    PostError, ReceiveBatch, ReceiveConfig, ReceiveSource, SendConfig, SendQueue, Srq, TagError,
};
use crate::wqe::{AppendTag, ChangeTags, ListFlags, PostOn, Sge, SgeList, Tag};

/// Messages for no entry that the HCA is not told of before it should be. Of 2^16 that it counts,
/// so that they are told from those before: `MLX5_TM_MAX_SYNC_DIFF` of rdma-core.
const MOST_UNTOLD: u16 = 0x3fff;

/// Number of CQEs for an entry: that it was taken, and that its message has arrived.
const CQES_OF_ENTRY: u32 = 2;
/// CQ slots that the send queue of changes needs: one for a change, and the one that it keeps.
const LEAST: u32 = 2;

/// The state of a list without entries, as its last writer left it.
#[derive(Clone, Debug)]
pub(crate) struct ListState {
    /// The indices of entries, in the order in which the HCA uses them.
    pub(crate) order: Vec<u16>,
    /// Unexpected messages that software has counted, modulo 2^16.
    pub(crate) known: u16,
}

/// Keeps a tag-matching queue alive, with the state of its list between two writers.
pub(crate) trait ListOwner: Send {
    /// Takes the state that the last writer of the list left. `None` if there is a writer, or if
    /// one was leaked or left entries in the list.
    fn take_list(&self) -> Option<ListState>;

    /// Puts the state of the list back.
    fn leave_list(&self, state: ListState);

    /// Returns the flag that is set when the queue is destroyed.
    fn destroyed(&self) -> Arc<AtomicBool>;
}

/// Configuration of a [`TmSrq`].
///
/// ```
/// use mlx5::expert::TagConfig;
/// use mlx5::ring::ReceiveConfig;
///
/// // Receives for 32 messages without an entry.
/// let config = TagConfig { receives: ReceiveConfig { receives: 32 }, ..TagConfig::default() };
/// assert_eq!(config.receives.receives, 32);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TagConfig {
    /// Configuration of its receives.
    pub receives: ReceiveConfig,
    /// Configuration of the send queue that changes its list. [`SendConfig::requests`] is one more
    /// than the number of changes that may be under way, reported or not.
    pub changes: SendConfig,
}

/// An entry for a list of tags.
///
/// See the example on [`TmSrq`].
#[doc(alias = "ibv_ops_wr")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct TagReceive {
    tag: Tag,
    into: Sge,
    signaled: bool,
}

impl TagReceive {
    /// Takes one message whose tag matches `tag`, into the memory of `into`. That may have no
    /// length if messages have no bytes.
    pub const fn new(tag: Tag, into: Sge) -> Self {
        Self { tag, into, signaled: false }
    }

    /// Makes the HCA report that it was appended. Default: no.
    pub const fn signaled(mut self) -> Self {
        self.signaled = true;
        self
    }
}

/// A tag-matching shared receive queue. It writes WQEs directly, without libibverbs.
///
/// The HCA compares the header of each message ([`TagHeader`](crate::expert::TagHeader)) with the
/// entries of a list, the oldest first. The first entry that matches its tag gets the message,
/// without its header. If the message asks to be fetched ([`Rendezvous`](crate::expert::Rendezvous)),
/// the HCA fetches it. Messages without a matching entry, and those without a tag, take
/// [receives](Self::post).
///
/// A program that wants a message first searches the messages that have come. If it finds none, it
/// appends an entry. In between more messages may come: the HCA could give the entry to a later
/// message than software has. Therefore the HCA counts messages for no entry. Each change tells the
/// HCA how many of them polls have found. Entries take no message while the two counts differ.
///
/// When an [unexpected](super::TagCompletion::Unexpected) message comes, the program must
/// [remove](Self::remove) the entry that would have matched it before it appends or
/// [syncs](Self::sync) again. If [`needs_sync`](Self::needs_sync) returns true, and the program
/// appends no other entry, it must call `sync`.
///
/// A change of the list is a WQE on the send queue of a separate queue pair. It costs the stores of
/// a [post](SendQueue::post), and about ten stores to private memory.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # use mlx5::connect::LocalPort;
/// # use mlx5::ib::Access;
/// use mlx5::expert::{TagCompletion, TagConfig, TagReceive, TmSrq};
/// use mlx5::ring::CqReader;
/// use mlx5::expert::TagCapacity;
/// use mlx5::verbs::{CompletionQueue, QueuePair, SharedReceiveQueue};
/// use mlx5::expert::Tag;
///
/// let cq = CompletionQueue::new(&context, 255)?;
/// let capacity = TagCapacity { tags: 63, operations: 64 };
/// let srq = SharedReceiveQueue::builder(&pd).tags(&cq, capacity).build()?;
/// let mut reader = CqReader::new(&cq)?;
/// let mut tags = TmSrq::new(&srq, &mut reader, TagConfig::default())?;
/// # let memory = pd.allocate(4096, Access::LOCAL_WRITE)?;
/// # let into = memory.sge(0, 4096)?;
/// // SAFETY: the memory stays registered, and nothing uses it while the entry is on the list.
/// let entry = unsafe { tags.append(1, TagReceive::new(Tag::exact(0x501), into).signaled())? };
/// let completion = loop {
///     if let Some(completion) = tags.poll(&mut reader, &mut ())? {
///         break completion;
///     }
/// };
/// assert!(matches!(completion, TagCompletion::Appended { handle, .. } if handle == entry));
/// assert!(tags.is_listed(entry));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "IBV_SRQT_TM")]
pub struct TmSrq {
    pub(super) shared: Srq,
    pub(super) commands: SendQueue<Rc>,
    pub(super) list: List,
    pub(super) changes: Changes,
    pub(super) cq: CqId,
    /// Number of messages for no entry, modulo 2^16: as found by polls, and as told to the HCA.
    pub(super) seen: u16,
    pub(super) told: u16,
    /// Whether the HCA has reported that entries wait until it is told of more.
    pub(super) waiting: bool,
    cq_slots: Reservation,
    /// Registers the queue with the reader of the CQ.
    _member: Option<Membership>,
    /// Id of the list among all lists of this process.
    name: u64,
    owner: Box<dyn ListOwner>,
    /// The queue pair of `commands`.
    _qp: Box<dyn Send>,
}

impl TmSrq {
    /// Takes over a tag-matching queue for up to `tags` entries. `name` is unique among the lists
    /// of this process. `make_queue` makes the queue pair that changes the list.
    pub(crate) fn take_over<
        S: SharedReceiveSource,
        Q: SendSource<Transport = Rc> + Send + 'static,
    >(
        srq: &S,
        owner: Box<dyn ListOwner>,
        (tags, name): (u32, u64),
        make_queue: impl FnOnce() -> crate::error::Result<Q>,
        completions: &mut CqReader,
        config: TagConfig,
    ) -> crate::error::Result<Self> {
        let shared = Srq::of_tagged(srq, completions, config.receives)?;
        let Some(state) = owner.take_list() else { return Err(QueueError::NotIdle.into()) };
        let made = (|| {
            if !completions.meets_xrc(UserIndex::Tagged(name)) {
                return Err(QueueError::TagsElsewhere.into());
            }
            let qp = make_queue()?;
            let commands = SendQueue::new(&qp, completions, config.changes)?;
            if commands.request_limit() < LEAST {
                let (cqes, free) = (completions.capacity(), commands.request_limit());
                return Err(QueueError::CqFull { cqes, free, needed: LEAST }.into());
            }
            let cq_slots = completions.reserve_shared(Demand::up_to(tags * CQES_OF_ENTRY))?;
            let entries = (cq_slots.entries() / CQES_OF_ENTRY) as usize;
            if entries == 0 {
                let (cqes, free) = (completions.capacity(), cq_slots.entries());
                return Err(QueueError::CqFull { cqes, free, needed: CQES_OF_ENTRY }.into());
            }
            let Some(list) = List::new(state.order.clone(), entries) else {
                return Err(QueueError::Geometry("a list of tags without room").into());
            };
            Ok::<_, crate::error::Error>((qp, commands, cq_slots, list))
        })();
        let (qp, commands, cq_slots, list) = match made {
            Ok(made) => made,
            Err(error) => {
                owner.leave_list(state);
                return Err(error);
            }
        };
        let sends = commands.state();
        let changes = Changes::new(sends.shape(), commands.request_limit() - 1, sends.head());
        Ok(Self {
            shared,
            list,
            changes,
            cq: completions.id(),
            seen: state.known,
            told: state.known,
            waiting: false,
            cq_slots,
            _member: completions.admit(Name::Tags, None),
            name,
            owner,
            commands,
            _qp: Box::new(qp),
        })
    }

    /// Attaches a queue pair that takes from the queue, and keeps it alive. Polls then find its
    /// failures. Call it before its peer sends. The queue pair cannot be reset until it is
    /// [detached](Self::detach).
    ///
    /// # Errors
    /// [`Error::QueueInUse`](crate::Error::QueueInUse), [`Error::Queue`](crate::Error::Queue): the
    /// queue pair takes from another queue, or its receive CQ is not the queue's. Nothing is
    /// changed then.
    pub fn attach<Q: ReceiveSource<Transport = Rc>>(
        &mut self,
        qp: &Q,
        completions: &mut CqReader,
    ) -> crate::error::Result<()> {
        if completions.id() != self.cq {
            return Err(QueueError::CqMismatch.into());
        }
        self.shared.attach_tagged(qp, completions)
    }

    /// Detaches a queue pair. Returns whether it was attached. Completions of its messages are not
    /// lost.
    pub fn detach(&mut self, qpn: u32) -> bool {
        self.shared.detach_tagged(qpn)
    }

    /// Posts a receive for a message that no entry matches, see [`Srq::post`]. Its
    /// memory will begin with the message's header.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// The HCA may put a message into the receive from now on. Until a poll returns its completion,
    /// or the shared receive queue is destroyed:
    /// - The memory of its entries stays allocated, and registered for local write under the `lkey`
    ///   given.
    /// - Nothing reads, writes or holds a reference to that memory.
    /// - If any QP that takes from the queue may put payload into CQEs
    ///   ([`ScatterToCqe`](crate::verbs::attr::ScatterToCqe): not by default, but QPs that libmlx5 made
    ///   for other code do), the memory is mapped, writable, in this process at the address in each
    ///   entry.
    #[doc(alias = "ibv_post_srq_recv")]
    #[inline]
    pub unsafe fn post<L: SgeList>(&mut self, id: u64, list: L) -> Result<(), PostError> {
        // SAFETY: the caller keeps the memory of `list` registered and untouched until the receive
        // completes, or the queue is destroyed.
        unsafe { self.shared.post(id, list) }
    }

    /// Starts a batch of receives. Dropping it posts nothing.
    pub fn batch(&mut self) -> ReceiveBatch<'_, Srq> {
        self.shared.batch()
    }

    /// Appends an entry to the list. `id` comes back with the message that takes it.
    ///
    /// # Errors
    /// [`TagError`]; nothing is changed then.
    ///
    /// # Safety
    /// The HCA may put a message into the entry's memory from now on. Until a poll reports that the
    /// entry's message [has arrived](super::TagCompletion::Arrived) or [is
    /// incomplete](super::TagCompletion::Incomplete), or that the entry [was
    /// removed](super::TagCompletion::Removed), or the shared receive queue is destroyed:
    /// - The memory stays allocated, and registered for local write under the `lkey` given.
    /// - Nothing reads, writes or holds a reference to it.
    /// - If any QP that takes from the queue may put payload into CQEs
    ///   ([`ScatterToCqe`](crate::verbs::attr::ScatterToCqe): not by default), it is mapped, writable, in
    ///   this process at the entry's address.
    #[doc(alias("ibv_post_srq_ops", "IBV_WR_TAG_ADD"))]
    #[inline]
    pub unsafe fn append(&mut self, id: u64, entry: TagReceive) -> Result<TagHandle, TagError> {
        let Some((index, next)) = self.list.next() else {
            return Err(TagError::ListFull { entries: self.capacity() });
        };
        let report = match entry.signaled {
            true => Report::Program,
            false if self.changes.is_due() => Report::Own,
            false => Report::Nobody,
        };
        let reported = report != Report::Nobody;
        let flags = ListFlags { report: reported, known: Some(self.seen) };
        let request = AppendTag { tag: entry.tag, into: entry.into, next, flags };
        // SAFETY: the request names only the entry's memory. The caller keeps it registered and
        // untouched until a poll reports that the entry no longer exists, or the queue is
        // destroyed.
        self.post_change(unsafe { Lent::promised() }, id, request)?;
        self.told = self.seen;
        self.changes.post(Change { what: What::Append(index), report, id, known: self.told });
        Ok(self.list.append(index, id, entry.into, reported))
    }

    /// Asks the HCA to remove an entry from the list, and to
    /// [report](super::TagCompletion::Removed) whether it was there.
    ///
    /// # Errors
    /// [`TagError`]; nothing is changed then.
    #[doc(alias("ibv_post_srq_ops", "IBV_WR_TAG_DEL"))]
    pub fn remove(&mut self, handle: TagHandle) -> Result<(), TagError> {
        if !self.list.holds(handle) {
            return Err(TagError::Gone);
        }
        let report = Report::Program;
        // The count is not sent: an entry that would have matched this message may be removed next.
        let flags = ListFlags { report: true, known: None };
        let request = ChangeTags { remove: Some(handle.index), flags };
        // SAFETY: a request to remove an entry names no memory.
        self.post_change(unsafe { Lent::promised() }, 0, request)?;
        let id = self.list.leave(handle).ok_or(TagError::Gone)?.id;
        let what = What::Remove(handle.index);
        self.changes.post(Change { what, report, id, known: self.told });
        Ok(())
    }

    /// Tells the HCA how many messages for no entry polls have found, so that entries that wait for
    /// this take messages. The HCA [answers](super::TagCompletion::Synced).
    ///
    /// # Errors
    /// [`TagError::Post`]; nothing is changed then.
    #[doc(alias("ibv_post_srq_ops", "IBV_WR_TAG_SYNC"))]
    pub fn sync(&mut self, id: u64) -> Result<(), TagError> {
        let report = Report::Program;
        let flags = ListFlags { report: true, known: Some(self.seen) };
        // SAFETY: a request to sync names no memory.
        self.post_change(unsafe { Lent::promised() }, id, ChangeTags { remove: None, flags })?;
        self.told = self.seen;
        self.changes.post(Change { what: What::Sync, report, id, known: self.told });
        Ok(())
    }

    /// Returns whether to [`sync`](Self::sync), unless an entry is appended: entries wait for
    /// messages that polls have found since, or the HCA's count is close to wrapping.
    pub fn needs_sync(&self) -> bool {
        let untold = self.seen.wrapping_sub(self.told);
        untold != 0 && self.waiting || untold > MOST_UNTOLD
    }

    /// Returns the number of messages for no entry that polls have found, modulo 2^16.
    pub fn unexpected(&self) -> u16 {
        self.seen
    }

    /// Returns whether the handle names an entry that no poll has reported as taken, and whose
    /// removal was not requested.
    pub fn is_listed(&self, handle: TagHandle) -> bool {
        self.list.holds(handle)
    }

    /// Returns the maximum number of entries in the list.
    pub fn capacity(&self) -> u32 {
        self.list.capacity() as u32
    }

    /// Returns the number of entries that are in the list, or of which a report is still to come.
    pub fn entries(&self) -> u32 {
        self.list.used() as u32
    }

    /// Returns the receives.
    pub fn receives(&self) -> &Srq {
        &self.shared
    }

    /// Returns the number of the queue pair that changes the list.
    pub fn qpn(&self) -> u32 {
        self.commands.qpn()
    }

    /// Posts a change. The send queue keeps its last block and CQ slot for a signaled request, which
    /// no change is.
    #[inline(always)]
    fn post_change<O: PostOn<Rc>>(
        &mut self,
        lent: Lent,
        id: u64,
        change: O,
    ) -> Result<(), PostError> {
        self.commands.post_lent(lent, id, change).map_err(|error| match error {
            PostError::NothingSignaled { outstanding } => PostError::CqFull { slots: outstanding },
            other => other,
        })
    }
}

impl Drop for TmSrq {
    fn drop(&mut self) {
        match self.list.order() {
            // Unreported changes are only appends, whose entries are gone.
            Some(order) if self.changes.reports() == 0 => {
                self.owner.leave_list(ListState { order, known: self.seen });
            }
            // Its CQEs may come while the queue exists, and name nothing that other queues know.
            _ => {
                let name = Some(UserIndex::Tagged(self.name));
                self.cq_slots.keep_shared(Vec::new(), None, name, self.owner.destroyed());
            }
        }
    }
}

impl fmt::Debug for TmSrq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TmSrq")
            .field("entries", &self.entries())
            .field("capacity", &self.capacity())
            .field("unexpected", &self.seen)
            .field("receives", &self.shared)
            .finish_non_exhaustive()
    }
}
