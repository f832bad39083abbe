//! The queue that matches tags, and its list.

use core::fmt;

use super::changes::{Change, Changes, Report, What};
use super::list::{List, TagHandle};
use crate::ib::Rc;
use crate::ring::completion::Completions;
use crate::ring::credit::Credit;
use crate::ring::known::{Membership, Name};
use crate::ring::source::CqId;
use crate::ring::srq::UserIndex;
use crate::ring::{
    PostError, QueueError, ReceiveConfig, ReceiveSource, SendConfig, SendQueue, SharedReceiveBatch,
    SharedReceives,
};
use crate::verbs::{ListState, QueuePair, Rts, SharedReceiveQueue};
use crate::wqe::{AppendTag, ChangeTags, ListFlags, Sge, SgeList, Tag};

/// Messages for no entry that the HCA is not told of before it should be. Of 2^16 that it counts, so
/// that they are told from those before: `MLX5_TM_MAX_SYNC_DIFF` of rdma-core.
const MOST_UNTOLD: u16 = 0x3fff;

/// CQEs that say something of an entry: that it was taken, and that its message is there.
const CQES_OF_ENTRY: u32 = 2;

/// How a queue that matches tags is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TagConfig {
    /// Its receives.
    pub receives: ReceiveConfig,
    /// The send queue that its list is changed by. [`SendConfig::signals`] are changes to be reported
    /// that may be under way.
    pub changes: SendConfig,
}

/// Why a list was not changed. Nothing was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TagError {
    /// As many entries are in the list as it was made for, or as its CQ has room for.
    #[error("the list of tags is full: wait for messages to take entries, or remove some")]
    ListFull,
    /// The entry was taken by a message, or was asked to be removed before.
    #[error("the handle names no entry any more: a message has taken it, or it is being removed")]
    Gone,
    /// The request could not be posted.
    #[error(transparent)]
    Post(#[from] PostError),
}

/// An entry for a list of tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct TagReceive {
    tag: Tag,
    into: Sge,
    signaled: bool,
}

impl TagReceive {
    /// Takes one message whose tag is `tag`, into the memory of `into`, which may have no length where
    /// messages have none.
    pub const fn new(tag: Tag, into: Sge) -> Self {
        Self { tag, into, signaled: false }
    }

    /// Has the HCA report that it was appended. Default: not.
    pub const fn signaled(mut self) -> Self {
        self.signaled = true;
        self
    }
}

/// A shared receive queue that matches tags, written to directly.
///
/// The HCA compares the header of each message ([`TagHeader`](crate::wqe::TagHeader)) with the
/// entries of a list, the oldest first. The first that takes its tag gets the message, without its
/// header; a message that asks to be fetched ([`Rendezvous`](crate::wqe::Rendezvous)) is fetched by
/// the HCA. Messages for no entry, and those without a tag, take [receives](Self::post).
///
/// A program that finds no message among those that have come searches them, and then appends an
/// entry. In between more may come: the HCA could give the entry to a later message than software
/// has. Therefore the HCA counts messages for no entry, each change says how many of them polls have
/// found, and entries take no message while the two counts differ. It is for the program to
/// [remove](Self::remove) the entry that an [unexpected](super::TagCompletion::Unexpected) message
/// would have been for before it appends or [syncs](Self::sync) again. Where
/// [`needs_sync`](Self::needs_sync) says so, and nothing else is to be appended, it calls `sync`.
///
/// A change of the list is a WQE on the send queue of a queue pair of its own: it costs the stores of
/// a [post](SendQueue::post), and some ten to private memory.
pub struct TaggedReceives {
    pub(super) shared: SharedReceives,
    pub(super) commands: SendQueue<Rc>,
    pub(super) list: List,
    pub(super) changes: Changes,
    pub(super) cq: CqId,
    /// Messages for no entry, modulo 2^16: that polls have found, and that the HCA was told of.
    pub(super) seen: u16,
    pub(super) told: u16,
    /// The HCA has said that entries wait until it is told of more.
    pub(super) waiting: bool,
    credit: Credit,
    /// Known to the reader of the CQ.
    _member: Option<Membership>,
    /// The list's, among all of this process.
    name: u64,
    srq: SharedReceiveQueue,
    _qp: QueuePair<Rc, Rts>,
}

impl TaggedReceives {
    /// Takes over a queue that matches tags, and completes on `completions`; keeps it alive, and makes
    /// the queue pair that its list is changed by. It can be taken over again once the result was
    /// dropped, if it had no entry, receive or change outstanding then.
    ///
    /// Queue pairs of reliable connections that were made to [take from
    /// it](crate::verbs::QueuePairBuilder::shared_receive_queue) are to be [attached](Self::attach).
    /// Its CQ is polled by [`poll`](Self::poll) from now on. Another poll that meets a CQE of it fails
    /// with [`PollError::QueueNotGiven`](crate::ring::PollError::QueueNotGiven), and takes nothing.
    ///
    /// # Errors
    /// [`Error::QueueInUse`](crate::Error::QueueInUse), [`Error::Queue`](crate::Error::Queue): it
    /// matches no tags, completes on another CQ, was left with something outstanding, or shares its
    /// CQ ([`QueueError::TagsElsewhere`]); and as [`SharedReceives::new`] and [`SendQueue::new`].
    pub fn new(
        srq: &SharedReceiveQueue,
        completions: &mut Completions,
        config: TagConfig,
    ) -> crate::Result<Self> {
        let (Some(capacity), Some(name)) = (srq.tags(), srq.list_name()) else {
            return Err(QueueError::NoTags.into());
        };
        let shared = SharedReceives::of_tagged(srq, completions, config.receives)?;
        let Some(state) = srq.take_list() else { return Err(QueueError::Outstanding.into()) };
        let made = (|| {
            if !completions.meets_xrc(UserIndex::Tagged(name)) {
                return Err(QueueError::TagsElsewhere.into());
            }
            let qp = srq.list_queue()?;
            let commands = SendQueue::new(&qp, completions, config.changes)?;
            let credit = completions.promise_shared(capacity.tags * CQES_OF_ENTRY)?;
            let entries = (credit.entries() / CQES_OF_ENTRY) as usize;
            if entries == 0 {
                return Err(QueueError::CqFull { cqes: completions.capacity() }.into());
            }
            let Some(list) = List::new(state.order.clone(), entries) else {
                return Err(QueueError::Geometry("a list of tags without room").into());
            };
            Ok::<_, crate::Error>((qp, commands, credit, list))
        })();
        let (qp, commands, credit, list) = match made {
            Ok(made) => made,
            Err(error) => {
                srq.leave_list(state);
                return Err(error);
            }
        };
        let cursor = &commands.ring.cursor;
        let changes = Changes::new(cursor.shape(), cursor.head());
        Ok(Self {
            shared,
            list,
            changes,
            cq: completions.id(),
            seen: state.known,
            told: state.known,
            waiting: false,
            credit,
            _member: completions.admit(Name::Tags),
            name,
            srq: srq.clone(),
            commands,
            _qp: qp,
        })
    }

    /// Keeps a queue pair alive that takes from the queue, and has its failures found. To be called
    /// before its peer sends. Until it is [detached](Self::detach), it cannot be reset.
    ///
    /// # Errors
    /// [`Error::QueueInUse`](crate::Error::QueueInUse), [`Error::Queue`](crate::Error::Queue): it
    /// takes from another queue, or its receive CQ is not the queue's. Nothing is changed then.
    pub fn attach<Q: ReceiveSource<Transport = Rc>>(
        &mut self,
        qp: &Q,
        completions: &mut Completions,
    ) -> crate::Result<()> {
        if completions.id() != self.cq {
            return Err(QueueError::ForeignCq.into());
        }
        self.shared.attach_tagged(qp, completions)
    }

    /// Lets go of a queue pair; `false` if it was not attached. Nothing of what it has received is
    /// lost.
    pub fn detach(&mut self, qpn: u32) -> bool {
        self.shared.detach_tagged(qpn)
    }

    /// Posts a receive for a message that no entry takes, as [`SharedReceives::post`]. Its memory
    /// begins with the message's header.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// The HCA may put a message into the receive from now on. Until a poll returns its completion, or
    /// the shared receive queue is destroyed:
    /// - The memory of its entries stays allocated, and registered for local write under the `lkey`
    ///   given.
    /// - Nothing reads, writes or holds a reference to that memory.
    /// - If any QP that takes from the queue may put payload into CQEs
    ///   ([`ScatterToCqe`](crate::verbs::ScatterToCqe): not by default, but QPs that libmlx5 made for
    ///   other code do), the memory is mapped, writable, in this process at the address in each entry.
    #[inline]
    pub unsafe fn post<L: SgeList>(&mut self, id: u64, list: L) -> Result<(), PostError> {
        // SAFETY: the caller keeps the memory of `list` registered and untouched until the receive
        // completes, or the queue is destroyed.
        unsafe { self.shared.post(id, list) }
    }

    /// Starts a batch of receives. Dropping it posts nothing.
    pub fn batch(&mut self) -> SharedReceiveBatch<'_> {
        self.shared.batch()
    }

    /// Appends an entry to the list. `id` comes back with the message that takes it.
    ///
    /// # Errors
    /// [`TagError`]; nothing is changed then.
    ///
    /// # Safety
    /// The HCA may put a message into the entry's memory from now on. Until a poll says of the entry
    /// that its message [has arrived](super::TagCompletion::Arrived) or [is
    /// incomplete](super::TagCompletion::Incomplete), or that it [was
    /// removed](super::TagCompletion::Removed), or the shared receive queue is destroyed:
    /// - The memory stays allocated, and registered for local write under the `lkey` given.
    /// - Nothing reads, writes or holds a reference to it.
    /// - If any QP that takes from the queue may put payload into CQEs
    ///   ([`ScatterToCqe`](crate::verbs::ScatterToCqe): not by default), it is mapped, writable, in this
    ///   process at the entry's address.
    #[inline]
    pub unsafe fn append(&mut self, id: u64, entry: TagReceive) -> Result<TagHandle, TagError> {
        let Some((index, next)) = self.list.next() else { return Err(TagError::ListFull) };
        let report = match entry.signaled {
            true => Report::Program,
            false if self.changes.is_due() => Report::Own,
            false => Report::Nobody,
        };
        let reported = self.may_report(report)?;
        let flags = ListFlags { report: reported, known: Some(self.seen) };
        let request = AppendTag { tag: entry.tag, into: entry.into, next, flags };
        // SAFETY: the request names the entry's memory alone, which the caller keeps registered and
        // untouched until the entry is reported to be none any more, or the queue is destroyed.
        unsafe { self.commands.post(id, request)? };
        self.told = self.seen;
        self.changes.post(Change { what: What::Append(index), report, id, known: self.told });
        Ok(self.list.append(index, id, entry.into, reported))
    }

    /// Asks the HCA to take an entry out of the list, and to
    /// [say](super::TagCompletion::Removed) whether it was there.
    ///
    /// # Errors
    /// [`TagError`]; nothing is changed then.
    pub fn remove(&mut self, handle: TagHandle) -> Result<(), TagError> {
        if !self.list.holds(handle) {
            return Err(TagError::Gone);
        }
        let report = Report::Program;
        // The count is not told: an entry that this message is for may be removed next.
        let flags = ListFlags { report: self.may_report(report)?, known: None };
        let request = ChangeTags { remove: Some(handle.index), flags };
        // SAFETY: a request to remove an entry names no memory.
        unsafe { self.commands.post(0, request)? };
        let id = self.list.leave(handle).ok_or(TagError::Gone)?.id;
        let what = What::Remove(handle.index);
        self.changes.post(Change { what, report, id, known: self.told });
        Ok(())
    }

    /// Tells the HCA how many messages for no entry polls have found, so that entries which wait for
    /// that take messages; it [answers](super::TagCompletion::Synced).
    ///
    /// # Errors
    /// [`TagError::Post`]; nothing is changed then.
    pub fn sync(&mut self, id: u64) -> Result<(), TagError> {
        let report = Report::Program;
        let flags = ListFlags { report: self.may_report(report)?, known: Some(self.seen) };
        // SAFETY: a request to sync names no memory.
        unsafe { self.commands.post(id, ChangeTags { remove: None, flags })? };
        self.told = self.seen;
        self.changes.post(Change { what: What::Sync, report, id, known: self.told });
        Ok(())
    }

    /// Whether to [`sync`](Self::sync), unless something is appended: entries wait for messages that
    /// polls have found since, or there are so many that the HCA's count is about to run round.
    pub fn needs_sync(&self) -> bool {
        let untold = self.seen.wrapping_sub(self.told);
        untold != 0 && self.waiting || untold > MOST_UNTOLD
    }

    /// Messages for no entry that polls have found, modulo 2^16.
    pub fn unexpected(&self) -> u16 {
        self.seen
    }

    /// Whether the handle names an entry that no poll has said to be taken, and that nothing has asked
    /// to be removed.
    pub fn is_listed(&self, handle: TagHandle) -> bool {
        self.list.holds(handle)
    }

    /// Entries that the list has room for.
    pub fn capacity(&self) -> u32 {
        self.list.capacity() as u32
    }

    /// Entries that are in the list, or of which something is still to be said.
    pub fn entries(&self) -> u32 {
        self.list.used() as u32
    }

    /// The receives.
    pub fn receives(&self) -> &SharedReceives {
        &self.shared
    }

    /// Number of the queue pair that the list is changed by.
    pub fn qpn(&self) -> u32 {
        self.commands.qpn()
    }

    /// Whether there is a CQE for one more report, if it is to be one.
    #[inline(always)]
    fn may_report(&self, report: Report) -> Result<bool, PostError> {
        if report == Report::Nobody {
            return Ok(false);
        }
        if self.changes.reports() >= self.commands.signal_limit() {
            return Err(PostError::CqOverrun);
        }
        Ok(true)
    }
}

impl Drop for TaggedReceives {
    fn drop(&mut self) {
        match self.list.order() {
            // Of changes that nothing is told of there are only appends, whose entries are gone.
            Some(order) if self.changes.reports() == 0 => {
                self.srq.leave_list(ListState { order, known: self.seen });
            }
            // CQEs of it may come as long as the queue is there, and name nothing that others know.
            _ => {
                let name = Some(UserIndex::Tagged(self.name));
                self.credit.owe_shared(Vec::new(), None, name, self.srq.destroyed());
            }
        }
    }
}

impl fmt::Debug for TaggedReceives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaggedReceives")
            .field("entries", &self.entries())
            .field("capacity", &self.capacity())
            .field("unexpected", &self.seen)
            .field("receives", &self.shared)
            .finish_non_exhaustive()
    }
}
