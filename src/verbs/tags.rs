//! Shared receive queues that match tags: what a device has of them, and the queue pair that changes
//! their lists.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use mlx5_sys::verbs::ibv_tm_cap_flags;

use super::{
    AddressVector, Context, Error, InitAttributes, Mtu, QueuePair, QueuePairBuilder, Result,
    RtrAttributes, Rts, RtsAttributes, SharedReceiveQueue,
};
use crate::ib::{Access, Rc};

/// The port that queue pairs which change lists are made on. They send nothing.
const PORT: u8 = 1;

/// What a device has for the matching of tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagMatching {
    /// Entries of one list.
    pub max_tags: u32,
    /// Changes of one list that may be under way.
    pub max_operations: u32,
    /// Pieces of memory of an entry. This crate gives it one.
    pub max_sge: u32,
    /// Whether messages that their receivers fetch ([`Rendezvous`](crate::wqe::Rendezvous)) are
    /// fetched by the HCA, on reliable connections.
    pub rendezvous: bool,
    /// The longest header of such a message, in bytes.
    pub max_rendezvous_header: u32,
}

/// What a queue that matches tags is to have room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagCapacity {
    /// Entries of its list.
    pub tags: u32,
    /// Changes of the list that may be under way.
    pub operations: u32,
}

impl Context {
    /// What the device has for the matching of tags; `None`: nothing. One call into the kernel.
    ///
    /// # Errors
    /// [`Error::Call`].
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

/// How many lists were made.
static LISTS: AtomicU64 = AtomicU64::new(0);

/// What a queue that matches tags has besides receives.
pub(super) struct TagParts {
    pub(super) capacity: TagCapacity,
    /// What the list is called: no other of this process ever is.
    list: u64,
    left: Mutex<Option<ListState>>,
}

/// Where the last writer of a list has left it, which is empty.
#[derive(Clone, Debug)]
pub(crate) struct ListState {
    /// The indices of entries, in the order in which the HCA takes them.
    pub(crate) order: Vec<u16>,
    /// Messages for no entry that software knows of, modulo 2^16.
    pub(crate) known: u16,
}

impl TagParts {
    pub(super) fn new(capacity: TagCapacity) -> Self {
        // As many as there are, and one that is never the last: each is told the next one's index.
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
    /// What it was made for, if it matches tags.
    pub fn tags(&self) -> Option<TagCapacity> {
        self.tag_parts().map(|tags| tags.capacity)
    }

    /// What its list is called, among all of this process.
    pub(crate) fn list_name(&self) -> Option<u64> {
        self.tag_parts().map(|tags| tags.list)
    }

    /// Takes what the last writer of the list has left; `None` if there is one, or one was leaked or
    /// left entries in the list.
    pub(crate) fn take_list(&self) -> Option<ListState> {
        let tags = self.tag_parts()?;
        tags.left.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Gives it back.
    pub(crate) fn leave_list(&self, state: ListState) {
        if let Some(tags) = self.tag_parts() {
            *tags.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
        }
    }

    /// A queue pair, in RTS with itself as its peer, that takes its receives from the queue: what is
    /// posted to its send queue may change the queue's list.
    ///
    /// libmlx5 makes one for each such queue, with the same attributes, and tells nobody. An HCA
    /// goes by the number of the shared receive queue in the context of the queue pair that a change
    /// is posted on, so any may post some: UCX makes one of its own, too, in the same way
    /// (`uct_rc_mlx5_verbs_create_cmd_qp`).
    pub(crate) fn list_queue(&self) -> Result<QueuePair<Rc, Rts>> {
        let (Some(capacity), Some(cq)) = (self.tags(), self.cq()) else {
            return Err(crate::ring::QueueError::NoTags.into());
        };
        let pd = self.protection_domain();
        let qp = QueuePairBuilder::<Rc>::of_handle(pd, cq.clone());
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
