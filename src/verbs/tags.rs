//! Tag-matching shared receive queues: the device's capabilities, and the queue pair that changes
//! their lists.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mlx5_sys::verbs::ibv_tm_cap_flags;

use super::{
    AddressVector, Context, InitAttributes, Mtu, QueuePair, QueuePairBuilder, RtrAttributes, Rts,
    RtsAttributes, SharedReceiveQueue,
};
use crate::error::{Error, QueueError, Result};
use crate::ib::{Access, Rc};
use crate::ring::{CqReader, ListOwner, ListState, TagConfig, TmSrq};

/// The port of queue pairs that change lists. They send nothing.
const PORT: u8 = 1;

/// Tag-matching capabilities of a device.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::expert::TagCapacity;
///
/// let matching = context.tag_matching()?.ok_or("the device does not match tags")?;
/// let capacity = TagCapacity { tags: matching.max_tags.min(64), operations: 64 };
/// assert!(capacity.tags > 0 && matching.max_sge >= 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_tm_caps")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagMatching {
    /// Entries of one list.
    pub max_tags: u32,
    /// Most outstanding changes of one list.
    pub max_operations: u32,
    /// Scatter/gather entries of a list entry. This crate uses one.
    pub max_sge: u32,
    /// Whether the HCA fetches the data of [`Rendezvous`](crate::expert::Rendezvous) messages, on
    /// reliable connections.
    pub rendezvous: bool,
    /// The longest header of such a message, in bytes.
    pub max_rendezvous_header: u32,
}

/// The capacity of a tag-matching queue.
///
/// See the example on [`TmSrq`](crate::expert::TmSrq).
#[doc(alias = "ibv_tm_cap")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagCapacity {
    /// Entries of its list.
    pub tags: u32,
    /// Outstanding changes of the list.
    pub operations: u32,
}

impl Context {
    /// Returns the device's tag-matching capabilities; `None` if it has none. One call into the
    /// kernel.
    ///
    /// # Errors
    /// [`Error::Call`].
    #[doc(alias = "ibv_query_device_ex")]
    pub fn tag_matching(&self) -> Result<Option<TagMatching>> {
        let caps = self.extended_attributes()?.tm_caps;
        Ok((caps.max_num_tags != 0).then_some(TagMatching {
            max_tags: caps.max_num_tags,
            max_operations: caps.max_ops,
            max_sge: caps.max_sge,
            rendezvous: caps.flags & ibv_tm_cap_flags::IBV_TM_CAP_RC.0 != 0,
            max_rendezvous_header: caps.max_rndv_hdr_size,
        }))
    }
}

/// The number of lists made so far.
static LISTS: AtomicU64 = AtomicU64::new(0);

/// The state of a tag-matching queue besides its receives.
pub(super) struct TagParts {
    pub(super) capacity: TagCapacity,
    /// The name of the list, unique in this process.
    pub(super) list: u64,
    left: Mutex<Option<ListState>>,
}

impl TagParts {
    pub(super) fn new(capacity: TagCapacity) -> Self {
        // One index per entry, and one that is never the last: each entry holds the next one's
        // index.
        let order = (0..=capacity.tags as u16).collect();
        let list = LISTS.fetch_add(1, Ordering::Relaxed);
        Self { capacity, list, left: Mutex::new(Some(ListState { order, known: 0 })) }
    }
}

impl TagCapacity {
    pub(super) fn check(&self, context: &Context) -> Result<()> {
        let Some(limits) = context.tag_matching()? else {
            let rule = "this device matches no tags";
            return Err(Error::attribute("tags", self.tags, rule));
        };
        // An index has 16 bits.
        let tags = limits.max_tags.min(0xffff);
        for (attribute, value, limit) in
            [("tags", self.tags, tags), ("operations", self.operations, limits.max_operations)]
        {
            if !(1..=limit).contains(&value) {
                let rule =
                    format!("of a queue that matches tags on this device it is 1 to {limit}");
                return Err(Error::attribute(attribute, value, rule));
            }
        }
        Ok(())
    }
}

impl SharedReceiveQueue {
    /// Returns the capacity it was made for; `None` if it does not match tags.
    pub fn tags(&self) -> Option<TagCapacity> {
        self.tag_parts().map(|tags| tags.capacity)
    }

    /// Returns the name of its list, unique in this process.
    pub(crate) fn list_name(&self) -> Option<u64> {
        self.tag_parts().map(|tags| tags.list)
    }

    /// Creates a queue pair in RTS, with itself as its peer, that takes its receives from the
    /// queue. WQEs on its send queue may change the queue's list.
    ///
    /// libmlx5 makes such a queue pair for each tag-matching queue, with the same attributes, but
    /// does not expose it. The HCA finds the list by the shared receive queue's number in the
    /// context of the queue pair on which a change is posted. So several queue pairs may post
    /// changes. UCX also makes one of its own in this way (`uct_rc_mlx5_verbs_create_cmd_qp`).
    fn list_queue(&self) -> Result<QueuePair<Rc, Rts>> {
        let (Some(capacity), Some(cq)) = (self.tags(), self.cq()) else {
            return Err(crate::error::QueueError::NoTags.into());
        };
        let pd = self.protection_domain();
        let qp = QueuePairBuilder::<Rc>::new(pd, cq);
        let qp = qp.shared_receive_queue(self).max_send_wr(capacity.operations);
        let qp = qp.memory(self.memory()).build()?;
        let init = InitAttributes { access: Access::empty(), ..InitAttributes::new(PORT) };
        let qp = qp.init(&init)?;
        let port = self.context().port(PORT)?;
        let mut address = AddressVector::lid(PORT, port.lid);
        if port.needs_gid().is_some() {
            let own = self.context().gid(PORT, 0)?;
            address = AddressVector { dlid: port.lid, ..AddressVector::gid(PORT, 0, own.gid) };
        }
        let rtr = RtrAttributes {
            path_mtu: Mtu::Mtu256,
            max_dest_rd_atomic: 0,
            ..RtrAttributes::new(qp.number(), address)
        };
        let rts = RtsAttributes { max_rd_atomic: 0, ..RtsAttributes::default() };
        Ok(qp.rtr(&rtr)?.rts(&rts)?)
    }
}

impl ListOwner for SharedReceiveQueue {
    fn take_list(&self) -> Option<ListState> {
        let tags = self.tag_parts()?;
        tags.left.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn leave_list(&self, state: ListState) {
        if let Some(tags) = self.tag_parts() {
            *tags.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
        }
    }

    fn destroyed(&self) -> Arc<AtomicBool> {
        SharedReceiveQueue::destroyed(self)
    }
}

impl TmSrq {
    /// Takes over a tag-matching queue that completes on `completions`. Keeps it alive, and creates
    /// the queue pair that changes its list. The queue can be taken over again after the result was
    /// dropped, if it had no entry, receive or change outstanding then.
    ///
    /// Queue pairs of reliable connections that were created to [take from
    /// it](crate::verbs::QueuePairBuilder::shared_receive_queue) must be [attached](Self::attach).
    /// Its CQ is polled by [`poll`](Self::poll) from now on. Another poll that meets a CQE of it
    /// fails with [`PollError::QueueNotGiven`](crate::ring::PollError::QueueNotGiven), and takes
    /// nothing.
    ///
    /// # Errors
    /// [`Error::QueueInUse`](crate::Error::QueueInUse), [`Error::Queue`](crate::Error::Queue): the
    /// queue matches no tags, completes on another CQ, was left with work outstanding, or shares
    /// its CQ ([`QueueError::TagsElsewhere`]). Also the errors of
    /// [`Srq::new`](crate::ring::Srq::new) and
    /// [`SendQueue::new`](crate::ring::SendQueue::new).
    pub fn new(
        srq: &SharedReceiveQueue,
        completions: &mut CqReader,
        config: TagConfig,
    ) -> crate::error::Result<Self> {
        let (Some(capacity), Some(name)) = (srq.tags(), srq.list_name()) else {
            return Err(QueueError::NoTags.into());
        };
        let list = (capacity.tags, name);
        let owner = Box::new(srq.clone());
        Self::take_over(srq, owner, list, || srq.list_queue(), completions, config)
    }
}
