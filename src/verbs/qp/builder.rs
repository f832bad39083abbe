//! Builder for queue pairs.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32};

use mlx5_sys::dv::{
    MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE, MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
    MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS, mlx5dv_create_qp, mlx5dv_dc_init_attr,
    mlx5dv_qp_init_attr,
};
use mlx5_sys::verbs::{
    ibv_pd, ibv_qp, ibv_qp_cap, ibv_qp_create_flags, ibv_qp_init_attr, ibv_qp_init_attr_ex,
    ibv_qp_init_attr_mask,
};

use super::dynamic::{self, Dynamic};
use super::{Claims, Parents, QpInner, QpState, QueuePair, Reset};
use crate::error::{Cause, Error, Result, non_null};
use crate::ib::{HasQueues, RawPacket, Rc, Receives, Transport};
use crate::verbs::placement::{CallbackTarget, QueueAllocator};
use crate::verbs::td::ParentDomain;
use crate::verbs::{
    CompletionQueue, CompletionQueueHandle, ProtectionDomain, SharedReceiveQueue, ThreadDomain,
    Zeroed,
};

/// The capacities of the queues of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacities {
    /// Requests of the send queue.
    pub max_send_wr: u32,
    /// Receives of the receive queue.
    pub max_recv_wr: u32,
    /// Scatter/gather entries of a send request.
    pub max_send_sge: u32,
    /// Scatter/gather entries of a receive.
    pub max_recv_sge: u32,
    /// Payload bytes that a send request can carry inline.
    pub max_inline_data: u32,
}

impl From<ibv_qp_cap> for Capacities {
    fn from(raw: ibv_qp_cap) -> Capacities {
        Capacities {
            max_send_wr: raw.max_send_wr,
            max_recv_wr: raw.max_recv_wr,
            max_send_sge: raw.max_send_sge,
            max_recv_sge: raw.max_recv_sge,
            max_inline_data: raw.max_inline_data,
        }
    }
}

/// Which payload the HCA may put into CQEs instead of the memory that a WQE names (scatter to CQE).
///
/// Payload of up to 32 bytes fits into a CQE of 64 bytes, and up to 64 bytes into one of 128. The
/// HCA saves a write to memory. The poll then copies the payload with the CPU to the *address* in
/// the WQE's data segments. It cannot ask what memory the `lkey` stands for. So all data segments
/// of the queue must name memory of this process that is mapped at the same address: a
/// [`MemoryRegion`](crate::verbs::MemoryRegion) does. A dma-buf region (GPU memory), device memory,
/// and a key at an address of the program's choice or over other keys (KLM, KSM, UMR) do not.
///
/// Requests of [`owned`](crate::endpoint) name slices of a `MemoryRegion` only, so any choice is
/// right there. For the raw queues it is a condition of their `unsafe` posts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ScatterToCqe {
    /// None (`MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE`). Right for every kind of memory.
    #[default]
    Never,
    /// Messages of receives, and with [`signal_all`](QueuePairBuilder::signal_all) also the results
    /// of READs and atomics: the default of libmlx5. `MLX5_SCATTER_TO_CQE=0` in the environment
    /// turns it off.
    Receives,
    /// Messages of receives, and the results of READs and atomics
    /// (`MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE`).
    Always,
}

/// Builder for [`QueuePair`].
#[derive(Clone, Debug)]
#[must_use = "nothing is made before build"]
pub struct QueuePairBuilder<T: Transport> {
    pd: ProtectionDomain,
    send_cq: CompletionQueueHandle,
    receive_cq: CompletionQueueHandle,
    capacities: Capacities,
    signal_all: bool,
    scatter_to_cqe: ScatterToCqe,
    shared_receives: Option<SharedReceiveQueue>,
    thread_domain: Option<ThreadDomain>,
    memory: Option<CallbackTarget>,
    pub(super) dynamic: Dynamic,
    /// For Ethernet: the longest header that large sends repeat, and whether VLAN tags are removed.
    max_tso_header: u16,
    strip_vlan: bool,
    transport: PhantomData<fn() -> T>,
}

impl QueuePair<Rc, Reset> {
    /// Creates a builder for a reliable connection in `pd` that completes on `cq`, see
    /// [`QueuePairBuilder::new`].
    pub fn builder(pd: &ProtectionDomain, cq: &CompletionQueue) -> QueuePairBuilder<Rc> {
        QueuePairBuilder::new(pd, cq)
    }
}

impl QueuePairBuilder<RawPacket> {
    /// Sets the length of the longest header that a [large send](crate::wqe::EthTso) repeats, in
    /// bytes. Default: 0, no large sends.
    pub fn max_tso_header(mut self, bytes: u16) -> Self {
        self.max_tso_header = bytes;
        self
    }

    /// Makes the HCA remove VLAN tags from arriving packets; completions report the tags. Default:
    /// no.
    pub fn strip_vlan(mut self, strip: bool) -> Self {
        self.strip_vlan = strip;
        self
    }
}

impl<T: Receives> QueuePairBuilder<T> {
    /// Sets the CQ of receives, if it differs from the CQ of sends.
    pub fn receive_cq(mut self, cq: &CompletionQueue) -> Self {
        self.receive_cq = cq.handle();
        self
    }

    /// Sets how many receives the receive queue holds at least.
    pub fn max_recv_wr(mut self, receives: u32) -> Self {
        self.capacities.max_recv_wr = receives;
        self
    }

    /// Sets the number of scatter/gather entries of a receive.
    pub fn max_recv_sge(mut self, entries: u32) -> Self {
        self.capacities.max_recv_sge = entries;
        self
    }

    /// Sets the shared receive queue from which it takes receives. It then has no receive queue of
    /// its own.
    pub fn shared_receive_queue(mut self, queue: &SharedReceiveQueue) -> Self {
        self.shared_receives = Some(queue.clone());
        self.capacities.max_recv_wr = 0;
        self
    }
}

impl<T: HasQueues> QueuePairBuilder<T> {
    /// Creates a builder for a queue pair of transport `T` in `pd` that completes on `cq`. Default:
    /// 64 sends, 64 receives (if the transport has any), one SGE each, no inline data, and
    /// completions only for signaled requests.
    ///
    /// `QueuePairBuilder::<Ud>::new(&pd, &cq).max_recv_wr(512).build()?`
    pub fn new(pd: &ProtectionDomain, cq: &CompletionQueue) -> Self {
        Self::of_handle(pd, cq.handle())
    }

    /// Like [`new`](Self::new), with a handle of the CQ.
    pub(in crate::verbs) fn of_handle(pd: &ProtectionDomain, cq: CompletionQueueHandle) -> Self {
        Self {
            pd: pd.clone(),
            send_cq: cq.clone(),
            receive_cq: cq,
            capacities: Capacities {
                max_send_wr: 64,
                max_recv_wr: if T::RECEIVES { 64 } else { 0 },
                max_send_sge: 1,
                max_recv_sge: u32::from(T::RECEIVES),
                max_inline_data: 0,
            },
            signal_all: false,
            scatter_to_cqe: ScatterToCqe::Never,
            shared_receives: None,
            thread_domain: None,
            memory: None,
            dynamic: Dynamic::default(),
            max_tso_header: 0,
            strip_vlan: false,
            transport: PhantomData,
        }
    }

    /// Sets how many requests the send queue holds at least.
    pub fn max_send_wr(mut self, requests: u32) -> Self {
        self.capacities.max_send_wr = requests;
        self
    }

    /// Sets the number of scatter/gather entries of a send request.
    pub fn max_send_sge(mut self, entries: u32) -> Self {
        self.capacities.max_send_sge = entries;
        self
    }

    /// Sets how many payload bytes a send request can carry inline.
    pub fn max_inline_data(mut self, bytes: u32) -> Self {
        self.capacities.max_inline_data = bytes;
        self
    }

    /// Makes every send request of `ibv_post_send` signaled (`sq_sig_all`). The direct path sets
    /// the flag for each request.
    pub fn signal_all(mut self, all: bool) -> Self {
        self.signal_all = all;
        self
    }

    /// Chooses which payload may come in CQEs. Default: [`ScatterToCqe::Never`]. With another
    /// choice, every `lkey` that is posted must name memory of this process at its own address, see
    /// [`ScatterToCqe`].
    pub fn scatter_to_cqe(mut self, scatter: ScatterToCqe) -> Self {
        self.scatter_to_cqe = scatter;
        self
    }

    /// Sets the thread domain whose doorbell register the queue pair uses; libmlx5 chooses one if
    /// not called.
    pub fn thread_domain(mut self, domain: &ThreadDomain) -> Self {
        self.thread_domain = Some(domain.clone());
        self
    }

    /// Sets the allocator of the rings and doorbell records, for example [`Placement`]; libmlx5 if
    /// not called. It is kept until the queue pair is destroyed.
    ///
    /// [`Placement`]: crate::verbs::Placement
    pub fn placement<A: QueueAllocator>(mut self, memory: &Arc<A>) -> Self {
        self.memory = Some(CallbackTarget(Arc::<A>::clone(memory)));
        self
    }

    /// Sets the allocator like [`placement`](Self::placement), or none.
    pub(in crate::verbs) fn memory(mut self, memory: Option<&CallbackTarget>) -> Self {
        self.memory = memory.cloned();
        self
    }

    /// Creates the queue pair, in state RESET.
    ///
    /// # Errors
    /// [`Error::Attribute`] for capacities beyond the device's limits or queues of another device;
    /// [`Error::Call`] with the memory lock limit named.
    pub fn build(self) -> Result<QueuePair<T, Reset>> {
        self.check()?;
        let asked = self.capacities;
        let mut attributes = ibv_qp_init_attr::zeroed();
        attributes.send_cq = self.send_cq.as_raw().as_ptr();
        attributes.recv_cq = self.receive_cq.as_raw().as_ptr();
        attributes.cap = ibv_qp_cap {
            max_send_wr: asked.max_send_wr,
            max_recv_wr: asked.max_recv_wr,
            max_send_sge: asked.max_send_sge,
            max_recv_sge: asked.max_recv_sge,
            max_inline_data: asked.max_inline_data,
        };
        attributes.qp_type = T::QP_TYPE;
        if let Some(queue) = &self.shared_receives {
            attributes.srq = queue.as_raw().as_ptr();
            attributes.cap.max_recv_wr = 0;
        }
        attributes.sq_sig_all = self.signal_all.into();
        let parent = ParentDomain::of(&self.pd, self.thread_domain.as_ref(), self.memory.as_ref())?;
        let pd = parent.as_ref().map_or(self.pd.as_raw(), ParentDomain::as_raw);
        dynamic::shape(T::TRANSPORT_KIND, &mut attributes)?;
        // SAFETY: the builder keeps PD, CQs and SRQ alive, and `check` found them to be of one
        // context.
        let qp =
            unsafe { self.create(pd, &mut attributes, self.dynamic.initial(T::TRANSPORT_KIND)) };
        let qp = non_null("mlx5dv_create_qp", qp).map_err(|error| {
            let cause = match error.errno().map(|errno| errno.0) {
                Some(libc::EOPNOTSUPP) => {
                    Some(Cause::Known("the device does not have this transport"))
                }
                Some(libc::EINVAL) => Some(Cause::Known(
                    "one send request may not be larger than the device allows: ask for fewer \
                     SGEs, less inline data or fewer requests",
                )),
                _ => Cause::memlock(error.errno(), None),
            };
            error.because(cause)
        })?;
        // SAFETY: the queue pair was just made. Its number does not change, except for a target of
        // dynamic connections, which has none yet.
        let number = unsafe { (*qp.as_ptr()).qp_num };
        Ok(QueuePair::from_inner(Arc::new(QpInner {
            qp,
            number: AtomicU32::new(number),
            capacities: attributes.cap.into(),
            state: AtomicU8::new(QpState::Reset as u8),
            claims: Claims::default(),
            destroyed: Arc::default(),
            _parent: parent,
            parents: Parents::Queues {
                pd: self.pd,
                send_cq: self.send_cq,
                receive_cq: self.receive_cq,
            },
            shared_receives: self.shared_receives,
        })))
    }

    /// Creates it by `mlx5dv_create_qp`, which takes libmlx5's flags and attributes of newer verbs.
    ///
    /// # Safety
    /// The CQs and the SRQ in `attributes`, and the PD, are alive and of one context.
    unsafe fn create(
        &self,
        pd: NonNull<ibv_pd>,
        attributes: &mut ibv_qp_init_attr,
        dynamic: Option<(u32, mlx5dv_dc_init_attr)>,
    ) -> *mut ibv_qp {
        let (mut extended, mut mlx5) =
            (ibv_qp_init_attr_ex::zeroed(), mlx5dv_qp_init_attr::zeroed());
        extended.send_cq = attributes.send_cq;
        extended.recv_cq = attributes.recv_cq;
        extended.srq = attributes.srq;
        extended.cap = attributes.cap;
        extended.qp_type = attributes.qp_type;
        extended.sq_sig_all = attributes.sq_sig_all;
        extended.comp_mask = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0;
        extended.pd = pd.as_ptr();
        let flags = match self.scatter_to_cqe {
            ScatterToCqe::Never => MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
            ScatterToCqe::Receives => 0,
            ScatterToCqe::Always => MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE,
        };
        if flags != 0 {
            mlx5.comp_mask |= u64::from(MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS);
            mlx5.create_flags = flags;
        }
        if let Some((mask, dc)) = dynamic {
            mlx5.comp_mask |= u64::from(mask);
            mlx5.dc_init_attr = dc;
        }
        if self.max_tso_header != 0 {
            extended.comp_mask |= ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_MAX_TSO_HEADER.0;
            extended.max_tso_header = self.max_tso_header;
        }
        if self.strip_vlan {
            extended.comp_mask |= ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_CREATE_FLAGS.0;
            extended.create_flags = ibv_qp_create_flags::IBV_QP_CREATE_CVLAN_STRIPPING.0;
        }
        let context = self.pd.context().as_raw();
        // SAFETY: the caller keeps PD, CQs and SRQ alive; the attributes live through the call.
        let qp = unsafe { mlx5dv_create_qp(context.as_ptr(), &mut extended, &mut mlx5) };
        attributes.cap = extended.cap;
        qp
    }

    fn check(&self) -> Result<()> {
        let context = self.pd.context();
        for cq in [&self.send_cq, &self.receive_cq] {
            if cq.context().as_raw() != context.as_raw() {
                return Err(Error::attribute(
                    "completion queue",
                    format_args!("of {}", cq.context().name()),
                    "it belongs to another opened device than the protection domain",
                ));
            }
        }
        if let Some(domain) = &self.thread_domain {
            if domain.context().as_raw() != context.as_raw() {
                return Err(Error::attribute(
                    "thread domain",
                    format_args!("of {}", domain.context().name()),
                    "it belongs to another opened device than the protection domain",
                ));
            }
        }
        if let Some(queue) = &self.shared_receives {
            if queue.context().as_raw() != context.as_raw() {
                return Err(Error::attribute(
                    "shared receive queue",
                    format_args!("of {}", queue.context().name()),
                    "it belongs to another opened device than the protection domain",
                ));
            }
            if queue.xrc_domain().is_some() {
                return Err(Error::attribute(
                    "shared receive queue",
                    "one of an XRC domain",
                    "requests name those themselves; a queue pair takes from an ordinary one",
                ));
            }
        }
        let limits = context.attributes()?;
        let asked = &self.capacities;
        for (attribute, value, limit) in [
            ("max_send_wr", asked.max_send_wr, limits.max_qp_wr),
            ("max_recv_wr", asked.max_recv_wr, limits.max_qp_wr),
            ("max_send_sge", asked.max_send_sge, limits.max_sge),
            ("max_recv_sge", asked.max_recv_sge, limits.max_sge),
        ] {
            if value > limit {
                let rule = format!("this device allows {limit}");
                return Err(Error::attribute(attribute, value, rule));
            }
        }
        if asked.max_send_wr == 0 && asked.max_recv_wr == 0 && self.shared_receives.is_none() {
            return Err(Error::attribute("max_send_wr", 0, "max_recv_wr is 0 as well"));
        }
        Ok(())
    }
}
