//! Shared receive queues.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mlx5_sys::verbs::{
    ibv_create_srq_ex, ibv_destroy_srq, ibv_modify_srq, ibv_query_srq, ibv_srq, ibv_srq_attr,
    ibv_srq_attr_mask, ibv_srq_init_attr_ex, ibv_srq_init_attr_mask, ibv_srq_type,
};

use super::placement::{CallbackTarget, QueueAllocator};
use super::tags::TagParts;
use super::td::ParentDomain;
use super::{
    CompletionQueue, CompletionQueueHandle, Context, ProtectionDomain, SrqClaim, TagCapacity,
    XrcDomain,
};
use crate::error::{Cause, Error, Result, check, non_null};
use crate::verbs::Zeroed;

/// A shared receive queue, from which any number of queue pairs take receives.
///
/// Clones are cheap and name the same queue. It is destroyed after its last clone, and the last
/// queue pair made with it, are dropped.
///
/// Its events come from [`Context::async_event`](super::Context::async_event), with the address of
/// [`as_raw`](Self::as_raw) as their source. `SRQ_LIMIT_REACHED` comes once for each
/// [`arm_limit`](Self::arm_limit). `QP_LAST_WQE_REACHED` means that a queue pair in the error state
/// takes no more receives from the queue.
#[derive(Clone)]
pub struct SharedReceiveQueue {
    inner: Arc<SrqInner>,
}

struct SrqInner {
    srq: NonNull<ibv_srq>,
    max_wr: u32,
    max_sge: u32,
    claim: SrqClaim,
    /// Set when the queue is destroyed, so that no completion is expected any more.
    destroyed: Arc<AtomicBool>,
    pd: ProtectionDomain,
    kind: Kind,
    memory: Option<CallbackTarget>,
    /// Owns the memory if an allocator provided it; freed after the queue.
    _parent: Option<ParentDomain>,
}

/// The kind of a queue. Some kinds have a CQ of their own.
enum Kind {
    Basic,
    Xrc(XrcDomain, CompletionQueueHandle),
    Tags(TagParts, CompletionQueueHandle),
}

// SAFETY: libibverbs allows calls on one SRQ from several threads. A lock guards the claim.
unsafe impl Send for SrqInner {}
// SAFETY: libibverbs allows calls on one SRQ from several threads at once. Locks guard the claim
// and the tag list.
unsafe impl Sync for SrqInner {}

impl Drop for SrqInner {
    fn drop(&mut self) {
        // SAFETY: this crate created the SRQ and destroys it once, here, while PD, CQ and XRC
        // domain are alive. Queue pairs and the direct path held an Arc of it and are gone.
        let result = unsafe { ibv_destroy_srq(self.srq.as_ptr()) };
        self.destroyed.store(result == 0, Ordering::Release);
    }
}

/// Capacity and limit of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedReceiveAttributes {
    /// WQEs that the kernel made it for. libmlx5 makes about twice as many as can be posted, and
    /// reserves the others for receives that met a page fault.
    pub max_wr: u32,
    /// Scatter/gather entries of a receive.
    pub max_sge: u32,
    /// An event comes when fewer receives than this are posted; 0: no event.
    pub limit: u32,
}

impl SharedReceiveQueue {
    /// Creates a builder for a queue in `pd`. Default: 64 receives of one SGE each.
    pub fn builder(pd: &ProtectionDomain) -> SharedReceiveQueueBuilder {
        let wanted = Wanted::Basic;
        SharedReceiveQueueBuilder { pd: pd.clone(), max_wr: 64, max_sge: 1, wanted, memory: None }
    }

    /// Returns how many receives can be posted: at least the requested number.
    pub fn capacity(&self) -> u32 {
        self.inner.max_wr
    }

    /// Returns the number of scatter/gather entries that a receive may have.
    pub fn max_sge(&self) -> u32 {
        self.inner.max_sge
    }

    /// Returns the number by which requests on extended reliable connections name it. 24 bits.
    ///
    /// # Errors
    /// [`Error::Queue`] if it is not a queue of libmlx5.
    pub fn number(&self) -> Result<u32> {
        // SAFETY: the queue is alive.
        Ok(unsafe { crate::ring::shared_receive_number(self.as_raw())? })
    }

    /// Requests one `SRQ_LIMIT_REACHED` event when fewer than `receives` are posted, which may be
    /// at once. 0 requests none.
    ///
    /// # Errors
    /// [`Error::Attribute`] beyond the capacity, [`Error::Call`].
    pub fn arm_limit(&self, receives: u32) -> Result<()> {
        if receives > self.capacity() {
            let rule = format!("the queue holds {}", self.capacity());
            return Err(Error::attribute("limit", receives, rule));
        }
        let mut attributes = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: receives };
        let mask = ibv_srq_attr_mask::IBV_SRQ_LIMIT.0;
        // SAFETY: the queue is alive, and the attributes live through the call.
        let result =
            unsafe { ibv_modify_srq(self.as_raw().as_ptr(), &mut attributes, mask as libc::c_int) };
        check("ibv_modify_srq", result)
    }

    /// Returns the kernel's attributes of the queue. One call into the kernel.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn query(&self) -> Result<SharedReceiveAttributes> {
        let mut attributes = ibv_srq_attr::zeroed();
        // SAFETY: the queue is alive, and the attributes live through the call.
        let result = unsafe { ibv_query_srq(self.as_raw().as_ptr(), &mut attributes) };
        check("ibv_query_srq", result)?;
        let ibv_srq_attr { max_wr, max_sge, srq_limit: limit } = attributes;
        Ok(SharedReceiveAttributes { max_wr, max_sge, limit })
    }

    /// Returns the protection domain of the memory that its receives name.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.inner.pd
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        self.inner.pd.context()
    }

    /// Returns the XRC domain of a queue for extended reliable connections.
    pub fn xrc_domain(&self) -> Option<&XrcDomain> {
        match &self.inner.kind {
            Kind::Xrc(domain, _) => Some(domain),
            _ => None,
        }
    }

    /// Returns the CQ of a queue for extended reliable connections or for tag matching. Receives of
    /// other queues complete on the CQs of their queue pairs.
    pub fn cq(&self) -> Option<&CompletionQueueHandle> {
        match &self.inner.kind {
            Kind::Xrc(_, cq) | Kind::Tags(_, cq) => Some(cq),
            Kind::Basic => None,
        }
    }

    /// Returns the allocator of its memory.
    pub(super) fn memory(&self) -> Option<&CallbackTarget> {
        self.inner.memory.as_ref()
    }

    pub(super) fn tag_parts(&self) -> Option<&TagParts> {
        match &self.inner.kind {
            Kind::Tags(tags, _) => Some(tags),
            _ => None,
        }
    }

    /// Returns the queue, for calls that this crate does not wrap. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<ibv_srq> {
        self.inner.srq
    }

    /// Set when the queue is destroyed.
    pub(crate) fn destroyed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.inner.destroyed)
    }

    /// Returns the claim of the direct path on posting to it.
    pub(crate) fn claims(&self) -> &SrqClaim {
        &self.inner.claim
    }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveQueue")
            .field("capacity", &self.capacity())
            .field("max_sge", &self.max_sge())
            .field("xrc", &self.xrc_domain().is_some())
            .field("tags", &self.tags())
            .finish_non_exhaustive()
    }
}

/// Builder for [`SharedReceiveQueue`].
#[derive(Clone, Debug)]
#[must_use = "nothing is made before build"]
pub struct SharedReceiveQueueBuilder {
    pd: ProtectionDomain,
    max_wr: u32,
    max_sge: u32,
    wanted: Wanted,
    memory: Option<CallbackTarget>,
}

#[derive(Clone, Debug)]
enum Wanted {
    Basic,
    Xrc(XrcDomain, CompletionQueueHandle),
    Tags(TagCapacity, CompletionQueueHandle),
}

impl SharedReceiveQueueBuilder {
    /// Sets how many receives it holds at least.
    pub fn max_wr(mut self, receives: u32) -> Self {
        self.max_wr = receives;
        self
    }

    /// Sets the number of scatter/gather entries of a receive.
    pub fn max_sge(mut self, entries: u32) -> Self {
        self.max_sge = entries;
        self
    }

    /// Makes it a queue for extended reliable connections: requests to any target of `domain` may
    /// name it, and its receives complete on `cq`.
    pub fn xrc(mut self, domain: &XrcDomain, cq: &CompletionQueue) -> Self {
        self.wanted = Wanted::Xrc(domain.clone(), cq.handle());
        self
    }

    /// Makes it a tag-matching queue. A message of a reliable connection goes to the oldest list
    /// entry that matches its tag, or else to a receive. All complete on `cq`.
    /// [`TmSrq`](crate::ring::TmSrq) appends entries.
    ///
    /// On Linux, an HCA fetches [messages for their receivers](crate::wqe::Rendezvous) only on
    /// queue pairs that were made with [no send WQEs](super::QueuePairBuilder::max_send_wr),
    /// because it uses their send queues itself.
    pub fn tags(mut self, cq: &CompletionQueue, capacity: TagCapacity) -> Self {
        self.wanted = Wanted::Tags(capacity, cq.handle());
        self
    }

    /// Sets the allocator of the ring and doorbell record, for example
    /// [`Placement`](super::Placement); libmlx5 if not called. The queue pairs that change a
    /// tag-matching queue's list use it as well. It is kept until the queue is destroyed.
    pub fn placement<A: QueueAllocator>(mut self, memory: &Arc<A>) -> Self {
        self.memory = Some(CallbackTarget(Arc::<A>::clone(memory)));
        self
    }

    /// Creates the queue.
    ///
    /// # Errors
    /// - [`Error::Attribute`]: beyond the device's limits, an XRC domain or CQ of another device,
    ///   or a device without tag matching.
    /// - [`Error::Call`] with the memory lock limit named.
    pub fn build(self) -> Result<SharedReceiveQueue> {
        self.check()?;
        let mut attributes = ibv_srq_init_attr_ex::zeroed();
        attributes.attr.max_wr = self.max_wr;
        attributes.attr.max_sge = self.max_sge;
        let parent = ParentDomain::of(&self.pd, None, self.memory.as_ref())?;
        let pd = parent.as_ref().map_or(self.pd.as_raw(), ParentDomain::as_raw);
        attributes.pd = pd.as_ptr();
        attributes.srq_type = ibv_srq_type::IBV_SRQT_BASIC;
        let mut mask = ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_PD
            | ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_TYPE;
        match &self.wanted {
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
        let context = self.pd.context().as_raw();
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
        Ok(SharedReceiveQueue {
            inner: Arc::new(SrqInner {
                srq,
                max_wr: attributes.attr.max_wr,
                max_sge: attributes.attr.max_sge,
                claim: SrqClaim::default(),
                destroyed: Arc::default(),
                pd: self.pd,
                memory: self.memory,
                kind: match self.wanted {
                    Wanted::Basic => Kind::Basic,
                    Wanted::Xrc(domain, cq) => Kind::Xrc(domain, cq),
                    Wanted::Tags(capacity, cq) => Kind::Tags(TagParts::new(capacity), cq),
                },
                _parent: parent,
            }),
        })
    }

    fn check(&self) -> Result<()> {
        let context = self.pd.context();
        let limits = context.attributes()?;
        for (attribute, value, limit) in [
            ("max_wr", self.max_wr, limits.max_srq_wr),
            ("max_sge", self.max_sge, limits.max_srq_sge),
        ] {
            if !(1..=limit).contains(&value) {
                let rule = format!("of a shared receive queue of this device it is 1 to {limit}");
                return Err(Error::attribute(attribute, value, rule));
            }
        }
        let (domain, cq) = match &self.wanted {
            Wanted::Basic => return Ok(()),
            Wanted::Xrc(domain, cq) => (domain.context(), cq.context()),
            Wanted::Tags(capacity, cq) => {
                capacity.check(context)?;
                (context, cq.context())
            }
        };
        for (attribute, other) in [("XRC domain", domain), ("completion queue", cq)] {
            if other.as_raw() != context.as_raw() {
                return Err(Error::attribute(
                    attribute,
                    format_args!("of {}", other.name()),
                    "it belongs to another opened device than the protection domain",
                ));
            }
        }
        Ok(())
    }
}
