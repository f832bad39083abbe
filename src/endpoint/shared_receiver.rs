//! A shared receive queue that owns the memory of its receives.

use core::fmt;
use core::mem::take;
use std::sync::Arc;

use super::operation::accepts;
use super::{Buffers, Owned, Refused};
use crate::doorbell::Lent;
use crate::error::Error;
use crate::ib::INTERNAL;
use crate::ring::source::handover::Shares;
use crate::ring::source::{DomainId, SrqOwner};
use crate::ring::{CqReader, PostError, ReceiveConfig, Srq};
use crate::verbs::SharedReceiveQueue;
use crate::wqe::SgeList;

/// A shared receive queue that owns the memory of its receives. [`Endpoints`](super::Endpoints)
/// take it over.
///
/// Its receives are taken by the messages of all connections and complete in any order. They outlive
/// each of the connections.
///
/// ```no_run
/// # use mlx5::endpoint::{MrSlice, SharedReceiver};
/// # use mlx5::ib::Access;
/// # use mlx5::ring::{CqReader, ReceiveConfig};
/// # use mlx5::verbs::{ProtectionDomain, SharedReceiveQueue};
/// # fn example(pd: &ProtectionDomain, reader: &mut CqReader) -> mlx5::Result<()> {
/// let srq = SharedReceiveQueue::builder(pd).max_wr(256).build()?;
/// let mut receiver = SharedReceiver::new(&srq, reader, ReceiveConfig::default())?;
/// let mut pool = MrSlice::new(pd.allocate(256 * 64, Access::LOCAL_WRITE)?);
/// for id in 0..256 {
///     let rest = pool.split_off(64);
///     receiver.post(id, std::mem::replace(&mut pool, rest))?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct SharedReceiver {
    /// Only [`post`](Self::post) posts to it.
    pub(super) queue: Srq,
    pub(super) loans: Loans,
}

impl SharedReceiver {
    /// Takes over a shared receive queue, see [`Srq::new`].
    ///
    /// # Errors
    /// The errors of [`Srq::new`]. [`Error::Attribute`] for a queue of an XRC domain: its
    /// completions name no connection.
    pub fn new(
        srq: &SharedReceiveQueue,
        completions: &mut CqReader,
        config: ReceiveConfig,
    ) -> crate::error::Result<Self> {
        if srq.xrc_domain().is_some() {
            return Err(Error::attribute(
                "shared receive queue",
                "of an XRC domain",
                "its completions name no connection: use ring::Srq",
            ));
        }
        let queue = Srq::new(srq, completions, config)?;
        let domain = srq.protection_domain().id();
        let loans = Loans::new(queue.capacity(), domain, srq.owner(INTERNAL));
        Ok(Self { queue, loans })
    }

    /// Posts a receive into `memory`, a [`MrSlice`](super::MrSlice) or a `Vec` of them. The memory
    /// is returned with the completion, by [`Endpoints::poll`](super::Endpoints::poll).
    ///
    /// # Errors
    /// [`Refused`], which gives the memory back: with [`PostError::PdMismatch`] for memory of
    /// another protection domain than the shared receive queue's, or of another device; with
    /// [`PostError::NoLocalWrite`] for memory without that right.
    #[doc(alias = "ibv_post_srq_recv")]
    #[inline]
    pub fn post<P: SgeList + Owned>(&mut self, id: u64, memory: P) -> Result<(), Refused<P>> {
        self.loans.post(&mut self.queue, id, memory)
    }

    /// Returns the queue, for its queries.
    pub fn queue(&self) -> &Srq {
        &self.queue
    }
}

impl fmt::Debug for SharedReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedReceiver").field(&self.queue).finish()
    }
}

/// The memory of receives that complete in any order: a place for each that can be outstanding.
/// Allocated once.
///
/// The queue knows each receive by the number of its place. So a completion leads to the memory,
/// whichever WQE it had.
///
/// The memory outlives the loans while the HCA may write to it: dropped loans hand it to the shared
/// receive queue.
pub(super) struct Loans {
    /// The ids of receives and their memory. Free places have none.
    places: Box<[(u64, Buffers)]>,
    /// Numbers of the free places.
    free: Vec<u32>,
    /// Protection domain of the memory that receives may name.
    domain: DomainId,
    /// Takes the memory over when the loans are dropped.
    owner: Arc<dyn SrqOwner>,
}

impl Drop for Loans {
    fn drop(&mut self) {
        let mut memory = take(&mut self.places).into_vec();
        memory.retain(|(_, buffers)| !matches!(buffers, Buffers::None));
        if !memory.is_empty() {
            self.owner.retain(Box::new(memory));
        }
    }
}

impl Loans {
    fn new(receives: u32, domain: DomainId, owner: Arc<dyn SrqOwner>) -> Self {
        let places = (0..receives).map(|_| (0, Buffers::None)).collect();
        Self { places, free: (0..receives).rev().collect(), domain, owner }
    }

    /// Posts a receive to `queue`, whose receives are all posted here.
    #[inline]
    pub(super) fn post<P: SgeList + Owned>(
        &mut self,
        queue: &mut Srq,
        id: u64,
        memory: P,
    ) -> Result<(), Refused<P>> {
        if !accepts(self.domain, &memory) {
            return Err(Refused::memory(memory));
        }
        let Some(&place) = self.free.last() else {
            return Err(Refused { error: PostError::QueueFull { free: 0 }, operation: memory });
        };
        // SAFETY: all memory that the receive names is in slices, which its place owns as soon as
        // the call returns: nothing reads, writes or borrows it. `take` returns them after a poll
        // or a detach has retired the receive. Dropped loans give them to the queue's object.
        let lent = unsafe { Lent::promised() };
        if let Err(error) = queue.post_ref(lent, place.into(), &memory) {
            return Err(Refused { error, operation: memory });
        }
        self.free.pop();
        self.places[place as usize] = (id, memory.into_buffers());
        Ok(())
    }

    /// Takes id and memory of the receive that the queue knew by `place`, which is retired.
    #[inline]
    pub(super) fn take(&mut self, place: u64) -> (u64, Buffers) {
        // The queue returns only what was posted to it.
        let (id, buffers) = &mut self.places[place as usize];
        let taken = (*id, take(buffers));
        self.free.push(place as u32);
        taken
    }
}
