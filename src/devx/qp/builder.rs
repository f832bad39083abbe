//! Builder for queue pairs made by command.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use mlx5_sys::ifc::{Field, cmd_hca_cap, cmd_hca_cap_2, create_qp_in, create_qp_out, opcode, qpc};
use mlx5_sys::verbs::ibv_context;
use mlx5_sys::wqe::SEGMENT_SIZE;

use super::shape::Geometry;
use super::{ByCommand, CommandPair, Firmware};
use crate::cqe::TimestampFormat;
use crate::devx::domain::{Domain, Home};
use crate::devx::timestamp::Stamped;
use crate::devx::umem::{Memory, Places, places};
use crate::devx::{Command, DevxXrcd, QueueCounters, Uar, UarKind};
use crate::error::{Error, Result};
use crate::ib::capability::Group;
use crate::ib::{HasQueues, INTERNAL, Rc, Receives, XrcRecv};
use crate::ring::source::{CqObject, CqOwner, ObjectId, SrqOwner};
use crate::ring::{CompletionSource, SharedReceiveSource};
use crate::verbs::{
    Capacities, Context, Pair, PairMaker, QueuePair, QueuePairBuilder, Reset, ScatterToCqe,
};

/// `qp.h`, `MLX5_QP_PM_MIGRATED`
const MIGRATED: u64 = 3;
/// The source of receives (`qp.h`): a ring of its own, a shared receive queue, or none
/// (`MLX5_NON_ZERO_RQ`, `MLX5_SRQ_RQ`, `MLX5_ZERO_LEN_RQ`).
const OWN_RECEIVES: u64 = 0;
const SHARED_RECEIVES: u64 = 1;
const NO_RECEIVES: u64 = 3;
/// No user index: CQEs name the queue pair by its number alone (`mlx5_ib.h`,
/// `MLX5_IB_DEFAULT_UIDX`).
pub(super) const NO_INDEX: u32 = 0xff_ffff;

/// A CQ as the command names it, with its owner.
#[derive(Clone)]
struct Target {
    number: u32,
    cqe_size: u32,
    id: CqObject,
    owner: Arc<dyn CqOwner>,
    device: NonNull<ibv_context>,
}

impl Target {
    fn new<C: CompletionSource>(cq: &C) -> Result<Target> {
        let view = cq.completions()?;
        Ok(Target {
            number: view.cqn,
            cqe_size: view.cqe_size,
            id: view.object,
            owner: cq.owner(INTERNAL),
            device: cq.device(),
        })
    }
}

/// A shared receive queue as the command names it, with its owner.
struct Shared {
    number: u32,
    id: ObjectId,
    owner: Arc<dyn SrqOwner>,
    device: NonNull<ibv_context>,
}

impl Shared {
    fn new<Q: SharedReceiveSource>(queue: &Q) -> Result<Shared> {
        if !queue.is_plain() {
            return Err(Error::attribute(
                "shared receive queue",
                "one of an XRC domain",
                "requests name those themselves; a queue pair takes from an ordinary one",
            ));
        }
        Ok(Shared {
            number: queue.number()?,
            id: queue.id(),
            owner: queue.owner(INTERNAL),
            device: queue.device(),
        })
    }
}

/// Options that only queue pairs by command have.
pub struct CommandOptions {
    context: Context,
    pd: Home,
    send_cq: Result<Target>,
    receive_cq: Option<Result<Target>>,
    recordless: bool,
    shared: Option<Result<Shared>>,
    /// The XRC domain of a target QP.
    domain: Option<DevxXrcd>,
    user_index: u32,
    counters: Option<QueueCounters>,
    uar: Option<Uar>,
    timestamps: Option<TimestampFormat>,
    places: Places,
}

impl QueuePair<Rc, Reset, Firmware> {
    /// Creates a builder for a reliable connection by firmware command, in `pd`, that completes on
    /// `cq`, see [`QueuePairBuilder::by_command`].
    #[doc(alias = "MLX5_CMD_OP_CREATE_QP")]
    pub fn by_command<C: CompletionSource>(
        pd: &dyn Domain,
        cq: &C,
    ) -> QueuePairBuilder<Rc, Firmware> {
        QueuePairBuilder::by_command(pd, cq)
    }
}

impl QueuePair<XrcRecv, Reset, Firmware> {
    /// Creates the answering end of an extended reliable connection by firmware command, in state
    /// RESET. Each arriving request names a [shared receive
    /// queue](crate::verbs::SharedReceiveQueueBuilder::xrc) of `domain`, which gets the message.
    /// The context must name a protection domain and a CQ. The HCA does not use them. CREATE_QP.
    ///
    /// # Errors
    /// - [`Error::NoUar`]: no doorbell register is available.
    /// - [`Error::Attribute`]: `cq` belongs to another opened device.
    /// - [`Error::Call`] with the memory lock limit named.
    /// - [`Error::Refused`], [`Error::Withheld`], [`Error::NoDevx`].
    pub fn target_by_command<C: CompletionSource>(
        pd: &dyn Domain,
        domain: &DevxXrcd,
        cq: &C,
    ) -> Result<QueuePair<XrcRecv, Reset, Firmware>> {
        // It rings nothing: the register that all share will do.
        let uar = Uar::first_of(pd.context(), &[UarKind::NonCached, UarKind::BlueFlame])?.uar;
        let mut options = CommandOptions::new(pd, cq);
        options.uar = Some(uar);
        options.domain = Some(domain.clone());
        QueuePairBuilder::with(Capacities::NONE, options).build()
    }
}

impl<T: Receives + ByCommand> QueuePairBuilder<T, Firmware> {
    /// Sets the CQ of receives, if it differs from the CQ of sends.
    pub fn receive_cq<C: CompletionSource>(mut self, cq: &C) -> Self {
        self.options.receive_cq = Some(Target::new(cq));
        self
    }

    /// Sets the shared receive queue from which it takes receives, made by verbs or by command. It
    /// then has no receive queue of its own.
    pub fn shared_receive_queue<Q: SharedReceiveSource>(mut self, queue: &Q) -> Self {
        self.options.shared = Some(Shared::new(queue));
        self.capacities.max_recv_wr = 0;
        self
    }
}

impl<T: HasQueues + ByCommand> QueuePairBuilder<T, Firmware> {
    /// Creates a builder for a queue pair of transport `T` by firmware command, in `pd`, that
    /// completes on `cq`. Both may be made by verbs or by command. Defaults as with
    /// [`new`](QueuePairBuilder::new): 64 sends, 64 receives (if the transport has any), one SGE
    /// each, no inline data, and completions only for signaled requests.
    ///
    /// `QueuePairBuilder::<Ud, Firmware>::by_command(&pd, &cq).max_recv_wr(512).build()?`
    pub fn by_command<C: CompletionSource>(pd: &dyn Domain, cq: &C) -> Self {
        Self::with(Capacities::usual::<T>(), CommandOptions::new(pd, cq))
    }
}

impl CommandOptions {
    fn new<C: CompletionSource>(pd: &dyn Domain, cq: &C) -> Self {
        Self {
            context: pd.context().clone(),
            pd: Home::of(pd),
            send_cq: Target::new(cq),
            receive_cq: None,
            recordless: false,
            shared: None,
            domain: None,
            user_index: NO_INDEX,
            counters: None,
            uar: None,
            timestamps: None,
            places: Places::default(),
        }
    }
}

impl<T: ByCommand> QueuePairBuilder<T, Firmware> {
    /// Sets the counters for arriving packets and errors. The queue pair keeps them.
    pub fn counters(mut self, counters: &QueueCounters) -> Self {
        self.options.counters = Some(counters.clone());
        self
    }

    /// Makes the HCA read the producer index from the doorbell, without a doorbell record of the
    /// send queue. A post needs one store less, and the HCA reads no host memory before the WQE.
    /// The doorbell register then takes eight bytes, never a whole WQE (BlueFlame).
    pub fn without_send_record(mut self) -> Self {
        self.options.recordless = true;
        self
    }

    /// Sets the user index in CQEs of version 1, 24 bits; no index if not called. Rings use the QP
    /// number.
    pub fn user_index(mut self, index: u32) -> Self {
        self.options.user_index = index;
        self
    }

    /// Sets the format of the times in its CQEs. If not called: free running, or the default on
    /// devices that do not have that. `build` fails with [`Error::NoCapability`] for real time where
    /// the device does not offer it.
    ///
    /// ```
    /// # // SAFETY: no other thread runs yet.
    /// # unsafe { std::env::set_var("MLX5_MODEL_LINK", "roce") };
    /// # use mlx5_model as _;
    /// # let context = mlx5::verbs::Context::open_first()?;
    /// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
    /// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
    /// use mlx5::cqe::TimestampFormat;
    /// use mlx5::devx::CommandTarget;
    /// use mlx5::verbs::QueuePair;
    ///
    /// let builder = QueuePair::by_command(&pd, &cq).timestamps(TimestampFormat::RealTime);
    /// match builder.build() {
    ///     Ok(qp) => {
    ///         let format = qp.object().object_context()?.timestamp_format();
    ///         assert_eq!(format, Some(TimestampFormat::RealTime));
    ///     }
    ///     Err(error @ mlx5::Error::NoCapability(_)) => eprintln!("{error}"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn timestamps(mut self, format: TimestampFormat) -> Self {
        self.options.timestamps = Some(format);
        self
    }

    /// Sets the UAR that it rings. If not called, it has one of its own, of the first kind of
    /// [`UarKind::ALL`] that is available.
    pub fn uar(mut self, uar: &Uar) -> Self {
        self.options.uar = Some(uar.clone());
        self
    }

    places!(options.places);

    /// Returns the size of its rings in bytes, which a umem needs from their offset on.
    ///
    /// # Errors
    /// [`Error::Attribute`] for capacities that no ring can have.
    pub fn ring_bytes(&self) -> Result<usize> {
        Ok(Geometry::new(self.capacities, T::UNITS_BEFORE_DATA)?.bytes())
    }
}

impl<T: ByCommand> PairMaker<T> for Firmware {
    type Object = CommandPair;
    type Options = CommandOptions;

    /// CREATE_QP.
    fn build(builder: QueuePairBuilder<T, Firmware>) -> Result<QueuePair<T, Reset, Firmware>> {
        let QueuePairBuilder { capacities: asked, signal_all, scatter_to_cqe, dynamic, options } =
            builder;
        let order = dynamic.order();
        let streams = dynamic.streams.unwrap_or_default();
        let geometry = Geometry::new(asked, T::UNITS_BEFORE_DATA)?;
        let shared = options.shared.transpose()?;
        if geometry.bytes() == 0 && shared.is_none() && options.domain.is_none() {
            return Err(Error::attribute("max_send_wr", 0, "max_recv_wr is 0 as well"));
        }
        let send_cq = options.send_cq?;
        let receive_cq = options.receive_cq.unwrap_or_else(|| Ok(send_cq.clone()))?;
        let context = &options.context;
        for (object, device) in [
            ("completion queue", Some(send_cq.device)),
            ("completion queue", Some(receive_cq.device)),
            ("shared receive queue", shared.as_ref().map(|shared| shared.device)),
            ("XRC domain", options.domain.as_ref().map(|domain| domain.context().as_raw())),
            ("register", options.uar.as_ref().map(|uar| uar.context().as_raw())),
            ("counter set", options.counters.as_ref().map(|set| set.context().as_raw())),
        ] {
            device.map_or(Ok(()), |device| context.require_same(object, device))?;
        }
        geometry.check(context, asked)?;
        if let Some(capability) = T::CAPABILITY {
            let capabilities = context.capabilities();
            capabilities.require(Group::General, capability, "a queue pair of this transport")?;
        }
        if options.recordless {
            check_recordless(context, geometry.sends.entries())?;
        }
        if options.user_index >= 1 << 24 {
            let value = format_args!("{:#x}", options.user_index).to_string();
            return Err(Error::attribute("user index", value, "it has 24 bits"));
        }
        let uar = match &options.uar {
            Some(uar) => uar.clone(),
            None => Uar::first_of(context, &UarKind::ALL)?.uar,
        };
        let bytes = geometry.bytes();
        let memory = Memory::of(context, bytes, &options.places)?;
        // SAFETY: this call has just taken both parts, and the queue pair does not exist yet.
        unsafe {
            memory.ring.fill(0);
            memory.record.fill(0);
        }
        let sizes = (send_cq.cqe_size, receive_cq.cqe_size);
        let (requests, responses) =
            payload_in_cqes::<T>(context, scatter_to_cqe, signal_all, sizes)?;
        let receives = match (&shared, &options.domain) {
            _ if !geometry.receives.is_none() => OWN_RECEIVES,
            // In an XRC domain, each request names the shared receive queue.
            (Some(_), _) | (None, Some(_)) => SHARED_RECEIVES,
            (None, None) => NO_RECEIVES,
        };
        let timestamps = Stamped::Pair.format(context, options.timestamps)?;
        let fields: [(Field, u64); 24] = [
            (qpc::ST, T::ST.into()),
            (qpc::PM_STATE, MIGRATED),
            (qpc::PD, options.pd.number?.into()),
            (qpc::LATENCY_SENSITIVE, 1),
            (qpc::RQ_TYPE, receives),
            (qpc::SRQN_RMPN_XRQN, shared.as_ref().map_or(0, |shared| shared.number.into())),
            (qpc::XRCD, options.domain.as_ref().map_or(0, DevxXrcd::number).into()),
            (qpc::LOG_NUM_DCI_STREAM_CHANNELS, streams.log_concurrent.into()),
            (qpc::LOG_NUM_DCI_ERRORED_STREAMS, streams.log_errored.into()),
            (qpc::LOG_RQ_SIZE, geometry.receives.log_entries().into()),
            // It counts from 16 bytes.
            (qpc::LOG_RQ_STRIDE, (geometry.receives.log_stride() - SEGMENT_SIZE.ilog2()).into()),
            (qpc::NO_SQ, geometry.sends.is_none().into()),
            (qpc::LOG_SQ_SIZE, geometry.sends.log_entries().into()),
            (qpc::TS_FORMAT, timestamps),
            (qpc::UAR_PAGE, uar.page_id().into()),
            // `NO_DBR_EXT`: software rings.
            (qpc::SEND_DBR_MODE, options.recordless.into()),
            (qpc::USER_INDEX, options.user_index.into()),
            (qpc::CQN_SND, send_cq.number.into()),
            (qpc::CQN_RCV, receive_cq.number.into()),
            (qpc::CS_REQ, requests),
            (qpc::CS_RES, responses),
            (qpc::DBR_UMEM_VALID, 1),
            (qpc::DBR_UMEM_ID, memory.record.umem().into()),
            (qpc::DBR_ADDR, memory.record.offset()),
        ];
        let command = Command::new(opcode::CREATE_QP, create_qp_in::SIZE)
            .fields(create_qp_in::QPC, fields)
            .set(create_qp_in::WQ_UMEM_VALID, 1u32)
            .set(create_qp_in::WQ_UMEM_ID, memory.ring.umem())
            .set(create_qp_in::WQ_UMEM_OFFSET, memory.ring.offset())
            .reply(create_qp_out::SIZE);
        // SAFETY: rings and doorbell record are parts of umems that no other user can take while
        // `CommandPair` holds them. It keeps all that the command names: domains, CQs, shared
        // receive queue, UAR.
        let mut object = unsafe { command.create(context)? };
        object.keep(memory.hold());
        if let Some(domain) = options.domain {
            object.keep(domain);
        }
        let number = object.reply().get(create_qp_out::QPN) as u32;
        let pair = CommandPair {
            object: Some(object),
            service: T::ST,
            signal_all,
            user_index: options.user_index,
            order,
            recordless: options.recordless,
            access: AtomicU32::new(0),
            geometry,
            send_cq: (send_cq.id, send_cq.owner),
            receive_cq: (receive_cq.id, receive_cq.owner),
            shared: shared.map(|shared| (shared.id, shared.owner)),
            uar,
            counters: options.counters,
            memory,
            pd: options.pd.id,
            _pd: options.pd.owner,
        };
        Ok(QueuePair::new(Pair::new(number, geometry.capacities(), pair)))
    }
}

/// Returns the values of `cs_req` and `cs_res`: how many bytes of payload the CQEs of requests and
/// of receives may hold. `sizes` are the bytes of a CQE of each.
fn payload_in_cqes<T: ByCommand>(
    context: &Context,
    asked: ScatterToCqe,
    signal_all: bool,
    sizes: (u32, u32),
) -> Result<(u64, u64)> {
    if asked == ScatterToCqe::Never || !scatters::<T>(context)? {
        return Ok((0, 0));
    }
    // `qp.h`: the payload bytes that a CQE holds, 32 or 64, for each kind.
    let room = |cqe_size| if cqe_size == 128 { 2 } else { 1 };
    // Only signaled requests have a CQE that could carry payload.
    let answers = T::ST == 0 && (signal_all || asked == ScatterToCqe::Always);
    Ok((if answers { room(sizes.0) * 0x11 } else { 0 }, room(sizes.1)))
}

/// Checks that the HCA supports send queues of `blocks` blocks without a doorbell record.
fn check_recordless(context: &Context, blocks: u32) -> Result<()> {
    const WHAT: &str = "a send queue without a doorbell record";
    let capabilities = context.capabilities();
    capabilities.require(Group::General2, cmd_hca_cap_2::SEND_DBR_MODE_NO_DBR_EXT, WHAT)?;
    let most = cmd_hca_cap_2::LOG_MAX_SEND_DBR_LESS_QP_SQ;
    let log_most = capabilities.current(Group::General2, most)?.unwrap_or(0);
    if blocks == 0 || u64::from(blocks) > 1 << log_most {
        let rule = format!("{WHAT} has 1 to {} of this device", 1u64 << log_most);
        return Err(Error::attribute("blocks of the send queue", blocks, rule));
    }
    Ok(())
}

/// Returns whether the HCA puts short messages of the transport into CQEs. Datagrams have a header
/// in front of their payload.
fn scatters<T: ByCommand>(context: &Context) -> Result<bool> {
    let able = context.capabilities().current(Group::General, cmd_hca_cap::SCTR_DATA_CQE)?;
    Ok(able == Some(1) && T::ST <= 1)
}
