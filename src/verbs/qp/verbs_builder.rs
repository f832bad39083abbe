//! Options of queue pairs that libibverbs makes, and their creation.

use std::ptr::NonNull;
use std::sync::Arc;

use mlx5_sys::dv::{
    MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE, MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
    MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS, mlx5dv_create_qp, mlx5dv_qp_init_attr,
};
use mlx5_sys::verbs::{
    ibv_pd, ibv_qp, ibv_qp_cap, ibv_qp_create_flags, ibv_qp_init_attr_ex, ibv_qp_init_attr_mask,
};
use mlx5_sys::wqe::{InlineHeader, MAX_DS, SEGMENT_SIZE};

use super::backend::{Pair, PairMaker};
use super::verbs::{Parents, VerbsPair};
use super::{Capacities, QueuePair, QueuePairBuilder, Reset, ScatterToCqe};
use crate::error::{Cause, Error, Result, non_null};
use crate::ib::{HasQueues, RawPacket, Rc, Receives, Transport, TransportKind};
use crate::verbs::placement::{CallbackTarget, QueueAllocator};
use crate::verbs::td::ParentDomain;
use crate::verbs::{
    CompletionQueue, Context, LinkLayer, ProtectionDomain, SharedReceiveQueue, ThreadDomain, Verbs,
    Zeroed,
};

/// Options that only verbs have.
#[derive(Clone, Debug)]
pub struct VerbsOptions {
    pd: ProtectionDomain,
    send_cq: CompletionQueue,
    receive_cq: CompletionQueue,
    shared_receives: Option<SharedReceiveQueue>,
    thread_domain: Option<ThreadDomain>,
    memory: Option<CallbackTarget>,
    /// For Ethernet: the longest header that large sends repeat, and whether VLAN tags are removed.
    max_tso_header: u16,
    strip_vlan: bool,
}

impl QueuePair<Rc, Reset> {
    /// Creates a builder for a reliable connection in `pd` that completes on `cq`, see
    /// [`QueuePairBuilder::new`].
    #[doc(alias("ibv_create_qp", "ibv_create_qp_ex"))]
    pub fn builder(pd: &ProtectionDomain, cq: &CompletionQueue) -> QueuePairBuilder<Rc> {
        QueuePairBuilder::new(pd, cq)
    }
}

impl<T: HasQueues> QueuePairBuilder<T> {
    /// Creates a builder for a queue pair of transport `T` in `pd` that completes on `cq`. Default:
    /// 64 sends, 64 receives (if the transport has any), one SGE each, no inline data, and
    /// completions only for signaled requests.
    ///
    /// `QueuePairBuilder::<Ud>::new(&pd, &cq).max_recv_wr(512).build()?`
    #[doc(alias("ibv_create_qp", "ibv_create_qp_ex", "mlx5dv_create_qp"))]
    pub fn new(pd: &ProtectionDomain, cq: &CompletionQueue) -> Self {
        let options = VerbsOptions {
            pd: pd.clone(),
            send_cq: cq.clone(),
            receive_cq: cq.clone(),
            shared_receives: None,
            thread_domain: None,
            memory: None,
            max_tso_header: 0,
            strip_vlan: false,
        };
        Self::with(Capacities::usual::<T>(), options)
    }

    /// Sets the thread domain whose doorbell register the queue pair uses; libmlx5 chooses one if
    /// not called.
    #[doc(alias = "ibv_alloc_parent_domain")]
    pub fn thread_domain(mut self, domain: &ThreadDomain) -> Self {
        self.options.thread_domain = Some(domain.clone());
        self
    }

    /// Sets the allocator of the rings and doorbell records, for example [`Placement`]; libmlx5 if
    /// not called. It is kept until the queue pair is destroyed.
    ///
    /// [`Placement`]: crate::expert::Placement
    pub fn placement<A: QueueAllocator>(self, memory: &Arc<A>) -> Self {
        self.memory(Some(&CallbackTarget(Arc::<A>::clone(memory))))
    }

    /// Sets the allocator like [`placement`](Self::placement), or none.
    pub(in crate::verbs) fn memory(mut self, memory: Option<&CallbackTarget>) -> Self {
        self.options.memory = memory.cloned();
        self
    }
}

impl<T: Receives> QueuePairBuilder<T> {
    /// Sets the CQ of receives, if it differs from the CQ of sends.
    pub fn receive_cq(mut self, cq: &CompletionQueue) -> Self {
        self.options.receive_cq = cq.clone();
        self
    }

    /// Sets the shared receive queue from which it takes receives. It then has no receive queue of
    /// its own.
    pub fn shared_receive_queue(mut self, queue: &SharedReceiveQueue) -> Self {
        self.options.shared_receives = Some(queue.clone());
        self.capacities.max_recv_wr = 0;
        self
    }
}

impl QueuePairBuilder<RawPacket> {
    /// Sets the length of the longest header that a [large send](crate::wqe::EthTso) repeats, in
    /// bytes. Default: 0, no large sends.
    pub fn max_tso_header(mut self, bytes: u16) -> Self {
        self.options.max_tso_header = bytes;
        self
    }

    /// Makes the HCA remove VLAN tags from arriving packets; completions report the tags. Default:
    /// no.
    pub fn strip_vlan(mut self, strip: bool) -> Self {
        self.options.strip_vlan = strip;
        self
    }
}

impl<T: Transport> PairMaker<T> for Verbs {
    type Object = VerbsPair;
    type Options = VerbsOptions;

    fn build(builder: QueuePairBuilder<T>) -> Result<QueuePair<T, Reset>> {
        let options = &builder.options;
        let capacities = if T::TRANSPORT_KIND == TransportKind::Dct {
            Capacities::NONE
        } else {
            builder.capacities
        };
        options.check::<T>(&builder.capacities)?;
        let (thread, memory) = (options.thread_domain.as_ref(), options.memory.as_ref());
        let parent = ParentDomain::of(&options.pd, thread, memory)?;
        let pd = parent.as_ref().map_or(options.pd.as_raw(), ParentDomain::as_raw);
        // SAFETY: the builder keeps PD, CQs and SRQ alive, and `check` found them to be of one
        // context.
        let (qp, capacities) = unsafe { create(pd, &builder, capacities) };
        let qp = non_null("mlx5dv_create_qp", qp)
            .map_err(|error| explain::<T>(error, options.pd.context()))?;
        // SAFETY: the queue pair was just made. Its number does not change, except for a target of
        // dynamic connections, which has none yet.
        let number = unsafe { (*qp.as_ptr()).qp_num };
        let VerbsOptions { pd, send_cq, receive_cq, shared_receives, .. } = builder.options;
        let parents = Parents::Queues { pd, send_cq, receive_cq };
        let order = builder.dynamic.order();
        let object = VerbsPair { qp, _parent: parent, parents, shared_receives, order };
        Ok(QueuePair::new(Pair::new(number, capacities, object)))
    }
}

/// Creates a queue pair by `mlx5dv_create_qp`, which takes libmlx5's flags and attributes of newer
/// verbs. Returns it with the capacities of its queues.
///
/// # Safety
/// `pd` and the CQs and the SRQ of the builder are alive and of one context.
unsafe fn create<T: Transport>(
    pd: NonNull<ibv_pd>,
    builder: &QueuePairBuilder<T>,
    capacities: Capacities,
) -> (*mut ibv_qp, Capacities) {
    let options = &builder.options;
    let (mut extended, mut mlx5) = (ibv_qp_init_attr_ex::zeroed(), mlx5dv_qp_init_attr::zeroed());
    extended.qp_type = T::QP_TYPE;
    extended.comp_mask = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0;
    extended.pd = pd.as_ptr();
    extended.send_cq = options.send_cq.as_raw().as_ptr();
    extended.recv_cq = options.receive_cq.as_raw().as_ptr();
    extended.sq_sig_all = builder.signal_all.into();
    extended.cap = ibv_qp_cap {
        max_send_wr: capacities.max_send_wr,
        max_recv_wr: capacities.max_recv_wr,
        max_send_sge: capacities.max_send_sge,
        max_recv_sge: capacities.max_recv_sge,
        max_inline_data: capacities.max_inline_data,
    };
    if let Some(queue) = &options.shared_receives {
        extended.srq = queue.as_raw().as_ptr();
        extended.cap.max_recv_wr = 0;
    }
    if options.max_tso_header != 0 {
        extended.comp_mask |= ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_MAX_TSO_HEADER.0;
        extended.max_tso_header = options.max_tso_header;
    }
    if options.strip_vlan {
        extended.comp_mask |= ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_CREATE_FLAGS.0;
        extended.create_flags = ibv_qp_create_flags::IBV_QP_CREATE_CVLAN_STRIPPING.0;
    }
    let flags = match builder.scatter_to_cqe {
        ScatterToCqe::Never => MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
        ScatterToCqe::Receives => 0,
        ScatterToCqe::Always => MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE,
    };
    if flags != 0 {
        mlx5.comp_mask |= u64::from(MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS);
        mlx5.create_flags = flags;
    }
    if let Some((mask, dc)) = builder.dynamic.initial(T::TRANSPORT_KIND) {
        mlx5.comp_mask |= u64::from(mask);
        mlx5.dc_init_attr = dc;
    }
    let context = options.pd.context().as_raw();
    // SAFETY: the caller keeps PD, CQs and SRQ alive; the attributes live through the call.
    let qp = unsafe { mlx5dv_create_qp(context.as_ptr(), &mut extended, &mut mlx5) };
    (qp, extended.cap.into())
}

/// Returns the number of inline bytes that the longest WQE of a transport has space for.
fn most_inline<T: Transport>() -> u32 {
    let units = MAX_DS as u32 - T::UNITS_BEFORE_PAYLOAD;
    units * SEGMENT_SIZE as u32 - InlineHeader::SIZE as u32
}

/// Returns whether the first port's link is InfiniBand. The ports of a device have one link layer.
fn is_infiniband(context: &Context) -> bool {
    context.port(1).is_ok_and(|port| port.link_layer == LinkLayer::InfiniBand)
}

/// Adds the cause of a refused creation, where it is known.
fn explain<T: Transport>(error: Error, context: &Context) -> Error {
    let cause = match error.errno().map(|errno| errno.0) {
        Some(libc::EOPNOTSUPP)
            if T::TRANSPORT_KIND == TransportKind::RawPacket && is_infiniband(context) =>
        {
            Some(Cause::Known(
                "port 1 is InfiniBand, and raw packets need a port of Ethernet: choose another device \
                 (`mlx5 info`), or change LINK_TYPE_P1 in the settings of its firmware",
            ))
        }
        Some(libc::EOPNOTSUPP) => Some(Cause::Known("the device does not have this transport")),
        Some(libc::EINVAL) => Some(Cause::Known(
            "one send request may not be larger than the device allows: ask for fewer SGEs, less \
             inline data or fewer requests",
        )),
        _ => Cause::memlock(error.errno(), None),
    };
    error.because(cause)
}

impl VerbsOptions {
    /// Checks what is asked for. libmlx5 computes the rings; `ring::send::open` checks what it made.
    fn check<T: Transport>(&self, asked: &Capacities) -> Result<()> {
        let context = self.pd.context();
        self.check_device(context)?;
        if self.shared_receives.as_ref().is_some_and(|queue| queue.xrc_domain().is_some()) {
            return Err(Error::attribute(
                "shared receive queue",
                "one of an XRC domain",
                "requests name those themselves; a queue pair takes from an ordinary one",
            ));
        }
        let limits = context.attributes()?;
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
        // libmlx5 adds the sizes of a request's parts in 32 bits, without a check for overflow.
        let most = most_inline::<T>();
        if asked.max_inline_data > most {
            let rule = format!("a request of transport {} carries up to {most}", T::NAME);
            return Err(Error::attribute("max_inline_data", asked.max_inline_data, rule));
        }
        if asked.max_send_wr == 0 && asked.max_recv_wr == 0 && self.shared_receives.is_none() {
            return Err(Error::attribute("max_send_wr", 0, "max_recv_wr is 0 as well"));
        }
        if T::TRANSPORT_KIND == TransportKind::Dct && self.shared_receives.is_none() {
            return Err(Error::attribute(
                "shared receive queue",
                "none",
                "a target of dynamic connections takes its receives from one",
            ));
        }
        Ok(())
    }

    /// Checks that all objects belong to one opened device.
    fn check_device(&self, context: &Context) -> Result<()> {
        let objects = [
            ("completion queue", Some(self.send_cq.context())),
            ("completion queue", Some(self.receive_cq.context())),
            ("thread domain", self.thread_domain.as_ref().map(ThreadDomain::context)),
            (
                "shared receive queue",
                self.shared_receives.as_ref().map(SharedReceiveQueue::context),
            ),
        ];
        for (object, device) in objects {
            device.map_or(Ok(()), |device| context.require_same(object, device.as_raw()))?;
        }
        Ok(())
    }
}
