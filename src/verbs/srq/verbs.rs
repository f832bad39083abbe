//! Shared receive queues that libibverbs makes.

use std::ptr::NonNull;
use std::sync::Arc;

use mlx5_sys::verbs::{
    ibv_create_srq_ex, ibv_destroy_srq, ibv_modify_srq, ibv_query_srq, ibv_srq, ibv_srq_attr,
    ibv_srq_attr_mask, ibv_srq_init_attr_ex, ibv_srq_init_attr_mask, ibv_srq_type,
};

use super::{SharedReceiveAttributes, SharedReceiveQueue, SharedReceiveQueueBuilder, SrqPart};
use crate::error::{Cause, Result, check, non_null};
use crate::ring::source::{CqObject, ObjectId, SharedView, UserIndex};
use crate::ring::{shared_receive_number, shared_receive_view};
use crate::verbs::placement::{CallbackTarget, QueueAllocator};
use crate::verbs::tags::TagParts;
use crate::verbs::td::ParentDomain;
use crate::verbs::{CompletionQueue, Context, ProtectionDomain, TagCapacity, XrcDomain, Zeroed};

/// A shared receive queue of libibverbs, with the objects that it uses.
pub struct VerbsSrq {
    srq: NonNull<ibv_srq>,
    pd: ProtectionDomain,
    kind: Kind,
    memory: Option<CallbackTarget>,
    /// Owns the memory if an allocator provided it; freed after the queue.
    _parent: Option<ParentDomain>,
}

/// The kind of a queue. Some kinds have a CQ of their own.
enum Kind {
    Basic,
    Xrc(XrcDomain, CompletionQueue),
    Tags(TagParts, CompletionQueue),
}

// SAFETY: libibverbs allows calls on one SRQ from several threads. A lock guards the tag list.
unsafe impl Send for VerbsSrq {}
// SAFETY: libibverbs allows calls on one SRQ from several threads at once. A lock guards the tag
// list.
unsafe impl Sync for VerbsSrq {}

impl SrqPart for VerbsSrq {
    fn context(&self) -> &Context {
        self.pd.context()
    }

    fn number(&self) -> Result<u32> {
        // SAFETY: the queue is alive.
        Ok(unsafe { shared_receive_number(self.srq)? })
    }

    fn set_limit(&self, receives: u32) -> Result<()> {
        let mut attributes = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: receives };
        let mask = ibv_srq_attr_mask::IBV_SRQ_LIMIT.0 as libc::c_int;
        // SAFETY: the queue is alive, and the attributes live through the call.
        let result = unsafe { ibv_modify_srq(self.srq.as_ptr(), &mut attributes, mask) };
        check("ibv_modify_srq", result)
    }

    fn query(&self) -> Result<SharedReceiveAttributes> {
        let mut attributes = ibv_srq_attr::zeroed();
        // SAFETY: the queue is alive, and the attributes live through the call.
        let result = unsafe { ibv_query_srq(self.srq.as_ptr(), &mut attributes) };
        check("ibv_query_srq", result)?;
        let ibv_srq_attr { max_wr, max_sge, srq_limit: limit } = attributes;
        Ok(SharedReceiveAttributes { max_wr, max_sge, limit })
    }

    fn is_plain(&self) -> bool {
        !matches!(self.kind, Kind::Xrc(..))
    }

    fn id(&self) -> ObjectId {
        ObjectId::at(self.srq.as_ptr())
    }

    unsafe fn view(&self, order: Option<Box<[u16]>>) -> Result<SharedView> {
        // SAFETY: `self` keeps the SRQ alive. The caller has claimed it, which is given only where
        // no receive is outstanding; so no other code writes its list.
        let view = unsafe { shared_receive_view(self.srq, !self.is_plain(), order)? };
        let (cq, list) = match &self.kind {
            Kind::Basic => (None, None),
            Kind::Xrc(_, cq) => (Some(cq), None),
            Kind::Tags(tags, cq) => (Some(cq), Some(UserIndex::Tagged(tags.list))),
        };
        let cq = cq.map(|cq| CqObject::of(cq.as_raw().as_ptr()));
        Ok(SharedView { cq, index: view.index.or(list), ..view })
    }

    fn destroy(&mut self) -> bool {
        // SAFETY: this crate created the SRQ and destroys it once, here, while PD, CQ and XRC
        // domain are alive. Queue pairs and the direct path held an Arc of it and are gone.
        let is_gone = unsafe { ibv_destroy_srq(self.srq.as_ptr()) == 0 };
        if !is_gone {
            // The HCA still reads the list, and libmlx5 does not count SRQs as users of the domain.
            std::mem::forget(self._parent.take());
        }
        is_gone
    }
}

impl SharedReceiveQueue {
    /// Creates a builder for a queue in `pd`. Default: 64 receives of one SGE each.
    #[doc(alias("ibv_create_srq", "ibv_create_srq_ex"))]
    pub fn builder(pd: &ProtectionDomain) -> SharedReceiveQueueBuilder {
        let options = SrqOptions { pd: pd.clone(), wanted: Wanted::Basic, memory: None };
        SharedReceiveQueueBuilder::with(options)
    }

    /// Returns the protection domain of the memory that its receives name.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.part().pd
    }

    /// Returns the XRC domain of a queue for extended reliable connections.
    pub fn xrc_domain(&self) -> Option<&XrcDomain> {
        match &self.part().kind {
            Kind::Xrc(domain, _) => Some(domain),
            _ => None,
        }
    }

    /// Returns the CQ of a queue for extended reliable connections or for tag matching. Receives of
    /// other queues complete on the CQs of their queue pairs.
    pub fn cq(&self) -> Option<&CompletionQueue> {
        match &self.part().kind {
            Kind::Xrc(_, cq) | Kind::Tags(_, cq) => Some(cq),
            Kind::Basic => None,
        }
    }

    /// Returns the allocator of its memory.
    pub(in crate::verbs) fn memory(&self) -> Option<&CallbackTarget> {
        self.part().memory.as_ref()
    }

    pub(in crate::verbs) fn tag_parts(&self) -> Option<&TagParts> {
        match &self.part().kind {
            Kind::Tags(tags, _) => Some(tags),
            _ => None,
        }
    }

    /// Returns the queue, for calls that this crate does not wrap. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<ibv_srq> {
        self.part().srq
    }
}

/// Options that only shared receive queues of verbs have.
#[derive(Clone, Debug)]
pub struct SrqOptions {
    pd: ProtectionDomain,
    wanted: Wanted,
    memory: Option<CallbackTarget>,
}

#[derive(Clone, Debug)]
enum Wanted {
    Basic,
    Xrc(XrcDomain, CompletionQueue),
    Tags(TagCapacity, CompletionQueue),
}

impl SharedReceiveQueueBuilder {
    /// Makes it a queue for extended reliable connections: requests to any target of `domain` may
    /// name it, and its receives complete on `cq`.
    #[doc(alias = "IBV_SRQT_XRC")]
    pub fn xrc(mut self, domain: &XrcDomain, cq: &CompletionQueue) -> Self {
        self.options.wanted = Wanted::Xrc(domain.clone(), cq.clone());
        self
    }

    /// Makes it a tag-matching queue. A message of a reliable connection goes to the oldest list
    /// entry that matches its tag, or else to a receive. All complete on `cq`.
    /// [`TmSrq`](crate::expert::TmSrq) appends entries.
    ///
    /// On Linux, an HCA fetches [messages for their receivers](crate::expert::Rendezvous) only on
    /// queue pairs that were made with [no send WQEs](crate::verbs::QueuePairBuilder::max_send_wr),
    /// because it uses their send queues itself.
    #[doc(alias = "IBV_SRQT_TM")]
    pub fn tags(mut self, cq: &CompletionQueue, capacity: TagCapacity) -> Self {
        self.options.wanted = Wanted::Tags(capacity, cq.clone());
        self
    }

    /// Sets the allocator of the ring and doorbell record, for example
    /// [`Placement`](crate::expert::Placement); libmlx5 if not called. The queue pairs that change a
    /// tag-matching queue's list use it as well. It is kept until the queue is destroyed.
    pub fn placement<A: QueueAllocator>(mut self, memory: &Arc<A>) -> Self {
        self.options.memory = Some(CallbackTarget(Arc::<A>::clone(memory)));
        self
    }

    pub(in crate::verbs) fn build_by_verbs(self) -> Result<SharedReceiveQueue> {
        self.check()?;
        let options = self.options;
        let mut attributes = ibv_srq_init_attr_ex::zeroed();
        attributes.attr.max_wr = self.max_wr;
        attributes.attr.max_sge = self.max_sge;
        let parent = ParentDomain::of(&options.pd, None, options.memory.as_ref())?;
        let pd = parent.as_ref().map_or(options.pd.as_raw(), ParentDomain::as_raw);
        attributes.pd = pd.as_ptr();
        attributes.srq_type = ibv_srq_type::IBV_SRQT_BASIC;
        let mut mask = ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_PD
            | ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_TYPE;
        match &options.wanted {
            Wanted::Basic => {}
            Wanted::Xrc(domain, cq) => {
                attributes.srq_type = ibv_srq_type::IBV_SRQT_XRC;
                attributes.xrcd = domain.as_raw().as_ptr();
                attributes.cq = cq.as_raw().as_ptr();
                mask = mask
                    | ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_XRCD
                    | ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_CQ;
            }
            Wanted::Tags(capacity, cq) => {
                attributes.srq_type = ibv_srq_type::IBV_SRQT_TM;
                attributes.cq = cq.as_raw().as_ptr();
                attributes.tm_cap.max_num_tags = capacity.tags;
                attributes.tm_cap.max_ops = capacity.operations;
                mask = mask
                    | ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_TM
                    | ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_CQ;
            }
        }
        attributes.comp_mask = mask.0;
        let context = options.pd.context().as_raw();
        // SAFETY: PD, XRC domain and CQ are alive and of this context; the attributes live through
        // the call.
        let srq = unsafe { ibv_create_srq_ex(context.as_ptr(), &mut attributes) };
        let srq = non_null("ibv_create_srq_ex", srq.unwrap_or(std::ptr::null_mut()));
        let srq = srq.map_err(|error| {
            let cause = Cause::memlock(error.errno(), None);
            error.because(cause)
        })?;
        // libibverbs sets the domain of basic queues only, but libmlx5 asks the domain where to
        // free memory that an allocator provided.
        // SAFETY: the queue was just made, and no other code has it.
        unsafe {
            let unset = &raw mut (*srq.as_ptr()).pd;
            if (*unset).is_null() {
                *unset = pd.as_ptr();
            }
        }
        let kind = match options.wanted {
            Wanted::Basic => Kind::Basic,
            Wanted::Xrc(domain, cq) => Kind::Xrc(domain, cq),
            Wanted::Tags(capacity, cq) => Kind::Tags(TagParts::new(capacity), cq),
        };
        let SrqOptions { pd, memory, .. } = options;
        let part = VerbsSrq { srq, pd, kind, memory, _parent: parent };
        Ok(SharedReceiveQueue::of(attributes.attr.max_wr, attributes.attr.max_sge, part))
    }

    fn check(&self) -> Result<()> {
        let context = self.options.pd.context();
        self.check_sizes(context)?;
        let (domain, cq) = match &self.options.wanted {
            Wanted::Basic => return Ok(()),
            Wanted::Xrc(domain, cq) => (domain.context(), cq.context()),
            Wanted::Tags(capacity, cq) => {
                capacity.check(context)?;
                (context, cq.context())
            }
        };
        for (attribute, other) in [("XRC domain", domain), ("completion queue", cq)] {
            context.require_same(attribute, other.as_raw())?;
        }
        Ok(())
    }
}
