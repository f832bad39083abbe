//! Dynamic connections (DC): initiators, whose requests each name their target, and targets. Any
//! initiator that knows a target's number and access key may send to it.
//!
//! Verbs have them as queue pairs of the provider's own type, made by `mlx5dv_create_qp`. A target
//! has no queues: its receives come from a shared receive queue. It has a number only from RTR on,
//! which is its last state.

use mlx5_sys::dv;
use mlx5_sys::verbs::{ibv_qp_attr, ibv_qp_attr_mask as bit};

use super::attributes::{Attributes, check_mtu};
use super::transition::Moved;
use super::{
    AddressVector, Change, Init, InitAttributes, Makes, QueuePair, QueuePairBuilder, Reset, Rtr,
    Rts, RtsAttributes,
};
use crate::error::{Result, check};
use crate::ib::{Access, Dci, Dct, TransportKind};
use crate::ring::source::CompletionOrder;
use crate::verbs::{
    CompletionQueue, Context, Mtu, ProtectionDomain, RnrTimer, SharedReceiveQueue, Zeroed,
};

/// Streams of an initiator, as powers of two.
///
/// Requests of one stream are executed in order. A failure of one stream does not stop the others.
/// Requests of different streams may complete in any order. So every request of an initiator with
/// streams is signaled, whether it asks for that or not, and its completion retires it alone. The
/// blocks of the send queue become free in the order of posting.
/// `mlx5dv_query_device` reports which streams a device supports.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::ib::Dci;
/// use mlx5::verbs::attr::DciStreams;
/// use mlx5::verbs::QueuePairBuilder;
///
/// // 16 streams. A target that fails requests stops its stream, and no other, up to 4 of them.
/// let streams = DciStreams { log_concurrent: 4, log_errored: 2 };
/// let qp = QueuePairBuilder::<Dci>::new(&pd, &cq).streams(streams).build()?;
/// assert!(qp.number() > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "mlx5dv_dci_streams")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DciStreams {
    /// log2 of the streams that the HCA executes at a time. A request may name any stream.
    pub log_concurrent: u8,
    /// log2 of the streams that may be failed, without a [reset](QueuePair::reset_stream), before
    /// the queue pair fails.
    pub log_errored: u8,
}

/// Attributes that only dynamic connections have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dynamic {
    pub(crate) streams: Option<DciStreams>,
    pub(crate) access_key: u64,
}

impl Dynamic {
    /// Returns the order in which requests complete.
    pub(crate) fn order(&self) -> CompletionOrder {
        if self.streams.is_some() { CompletionOrder::Any } else { CompletionOrder::Posting }
    }

    /// Returns libmlx5's attributes of an end of dynamic connections, with their bits of the mask.
    pub(super) fn initial(&self, kind: TransportKind) -> Option<(u32, dv::mlx5dv_dc_init_attr)> {
        let mut mask = dv::MLX5DV_QP_INIT_ATTR_MASK_DC;
        let mut dc = no_dc();
        match kind {
            TransportKind::Dci => {
                dc.dc_type = dv::MLX5DV_DCTYPE_DCI;
                if let Some(streams) = self.streams {
                    mask |= dv::MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
                    dc.__bindgen_anon_1.dci_streams = dv::mlx5dv_dci_streams {
                        log_num_concurent: streams.log_concurrent,
                        log_num_errored: streams.log_errored,
                    };
                }
            }
            TransportKind::Dct => {
                dc.dc_type = dv::MLX5DV_DCTYPE_DCT;
                dc.__bindgen_anon_1.dct_access_key = self.access_key;
            }
            _ => return None,
        }
        Some((mask, dc))
    }
}

fn no_dc() -> dv::mlx5dv_dc_init_attr {
    Zeroed::zeroed()
}

impl<B: Makes<Dci>> QueuePairBuilder<Dci, B> {
    /// Gives the initiator streams, which fail independently. Every request is then signaled, see
    /// [`DciStreams`].
    pub fn streams(mut self, streams: DciStreams) -> Self {
        self.dynamic.streams = Some(streams);
        self
    }
}

impl QueuePair<Dct, Reset> {
    /// Creates a builder for a target in `pd`. Its receives come from `receives` and complete on
    /// `cq`. It accepts requests that carry `access_key`.
    #[doc(alias("mlx5dv_create_qp", "MLX5DV_DCTYPE_DCT"))]
    pub fn dc_target(
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        receives: &SharedReceiveQueue,
        access_key: u64,
    ) -> QueuePairBuilder<Dct> {
        let mut builder = QueuePairBuilder::new(pd, cq).shared_receive_queue(receives);
        builder.dynamic.access_key = access_key;
        builder
    }
}

impl<B: Makes<Dci>> QueuePair<Dci, Reset, B> {
    /// RESET to INIT. An initiator answers nothing, so no rights are passed on.
    ///
    /// # Errors
    /// [`Error::NoSuchPort`](crate::Error::NoSuchPort),
    /// [`Error::Attribute`](crate::Error::Attribute); [`Error::Call`](crate::Error::Call) by verbs,
    /// [`Error::Refused`](crate::Error::Refused) by command.
    #[doc(alias = "ibv_modify_qp")]
    pub fn init(self, attributes: &InitAttributes) -> Moved<Dci, Init, Reset, B> {
        let mut change = Change::to::<Reset, Init>();
        attributes.set_port(&mut change);
        let checked = attributes.check(self.context());
        self.step(checked, change)
    }
}

impl<B: Makes<Dci>> QueuePair<Dci, Init, B> {
    /// INIT to RTR. `path_mtu` is the largest payload of a packet, which must equal its targets'.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call) by verbs, [`Error::Refused`](crate::Error::Refused) by
    /// command.
    #[doc(alias = "ibv_modify_qp")]
    pub fn rtr(self, path_mtu: Mtu) -> Moved<Dci, Rtr, Init, B> {
        let mut change = Change::to::<Init, Rtr>();
        change.attr.path_mtu = path_mtu.code().into();
        change.mask = bit::IBV_QP_PATH_MTU.0;
        self.step(Ok(()), change)
    }
}

impl<B: Makes<Dci>> QueuePair<Dci, Rtr, B> {
    /// RTR to RTS. From now on requests can be sent.
    ///
    /// # Errors
    /// [`Error::Attribute`](crate::Error::Attribute); [`Error::Call`](crate::Error::Call) by verbs,
    /// [`Error::Refused`](crate::Error::Refused) by command.
    #[doc(alias = "ibv_modify_qp")]
    pub fn rts(self, attributes: &RtsAttributes) -> Moved<Dci, Rts, Rtr, B> {
        let mut change = Change::to::<Rtr, Rts>();
        change.mask = attributes.set(&mut change.attr);
        let checked = attributes.check(self.context());
        self.step(checked, change)
    }
}

impl QueuePair<Dci, Rts> {
    /// Resumes a stream that has failed. The send queue ([`SendQueue`](crate::ring::SendQueue::go_on),
    /// [`Endpoint`](crate::endpoint::Endpoint::go_on)) needs a call, too. A firmware command; the context must [allow
    /// them](crate::verbs::Context::devx).
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call): the stream has not failed, there are no streams, or the
    /// queue pair has failed.
    #[doc(alias = "mlx5dv_dci_stream_id_reset")]
    pub fn reset_stream(&self, stream: u16) -> Result<()> {
        // SAFETY: the queue pair is alive.
        let result = unsafe { dv::mlx5dv_dci_stream_id_reset(self.as_raw().as_ptr(), stream) };
        check("mlx5dv_dci_stream_id_reset", result)
    }
}

/// INIT to RTR of a target: how it responds.
///
/// `DctRtrAttributes { path_mtu: Mtu::Mtu4096, ..DctRtrAttributes::new(own_address) }`
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::connect::LocalPort;
/// use mlx5::verbs::attr::DctRtrAttributes;
/// use mlx5::verbs::{QueuePair, SharedReceiveQueue};
///
/// const KEY: u64 = 0x1234; // initiators name it
///
/// let local = LocalPort::new(&context, 1, None)?;
/// let srq = SharedReceiveQueue::builder(&pd).build()?;
/// let target = QueuePair::dc_target(&pd, &cq, &srq, KEY).build()?.init(&local.init())?;
/// let own = local.address(&local.connection_data(&target));
/// let target = target.rtr(&DctRtrAttributes::new(own))?;
/// assert!(target.number() > 0); // the number under which initiators reach it
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_qp_attr")]
#[derive(Clone, Copy, Debug)]
pub struct DctRtrAttributes {
    /// The largest payload of a packet, which must equal its initiators'.
    pub path_mtu: Mtu,
    /// The time that an initiator waits when no receive is posted.
    pub min_rnr_timer: RnrTimer,
    /// The port, the source GID of responses, hop limit and traffic class. Each request names the
    /// destination of its response.
    pub address: AddressVector,
}

impl DctRtrAttributes {
    /// Returns the attributes with MTU 1024 and an RNR timer of 640 µs.
    pub fn new(address: AddressVector) -> DctRtrAttributes {
        DctRtrAttributes { path_mtu: Mtu::Mtu1024, min_rnr_timer: RnrTimer::default(), address }
    }
}

impl Attributes for DctRtrAttributes {
    fn check(&self, context: &Context) -> Result<()> {
        check_mtu(self.path_mtu, &self.address.check(context)?)
    }

    fn set(&self, attr: &mut ibv_qp_attr) -> u32 {
        attr.path_mtu = self.path_mtu.code().into();
        attr.min_rnr_timer = self.min_rnr_timer.code();
        attr.ah_attr = self.address.to_raw();
        bit::IBV_QP_MIN_RNR_TIMER.0 | bit::IBV_QP_AV.0 | bit::IBV_QP_PATH_MTU.0
    }
}

impl<B: Makes<Dct>> QueuePair<Dct, Reset, B> {
    /// RESET to INIT: sets the port and the rights of initiators.
    ///
    /// # Errors
    /// [`Error::NoSuchPort`](crate::Error::NoSuchPort),
    /// [`Error::Attribute`](crate::Error::Attribute); [`Error::Call`](crate::Error::Call) by verbs;
    /// by command, the errors of querying the capabilities of atomics if initiators may execute
    /// them.
    #[doc(alias = "ibv_modify_qp")]
    pub fn init(self, attributes: &InitAttributes) -> Moved<Dct, Init, Reset, B> {
        let mut change = Change::to::<Reset, Init>();
        attributes.set(&mut change, Access::all());
        let checked = attributes.check(self.context());
        self.step(checked, change)
    }
}

impl<B: Makes<Dct>> QueuePair<Dct, Init, B> {
    /// INIT to RTR. From now on it has a [number](QueuePair::number), by which initiators find it.
    ///
    /// # Errors
    /// [`Error::PortNotActive`](crate::Error::PortNotActive),
    /// [`Error::GidRequired`](crate::Error::GidRequired),
    /// [`Error::GidEmpty`](crate::Error::GidEmpty), [`Error::GidKind`](crate::Error::GidKind),
    /// [`Error::Attribute`](crate::Error::Attribute); [`Error::Call`](crate::Error::Call) by verbs,
    /// [`Error::Refused`](crate::Error::Refused) by command.
    #[doc(alias = "ibv_modify_qp")]
    pub fn rtr(self, attributes: &DctRtrAttributes) -> Moved<Dct, Rtr, Init, B> {
        let mut change = Change::to::<Init, Rtr>();
        change.mask = attributes.set(&mut change.attr);
        let checked = attributes.check(self.context());
        self.step(checked, change)
    }
}
