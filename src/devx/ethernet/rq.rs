//! Ethernet receive queues.

use std::fmt;
use std::sync::Arc;

use mlx5_sys::ifc::{
    Field, cmd_hca_cap, create_rq_in, create_rq_out, modify_rq_in, opcode, rqc, wq,
};

use super::super::domain::Domain;
use super::super::ring_spec::{Asked, AskedReceives, RingSpec};
use super::super::timestamp::Stamped;
use super::super::umem::{Memory, Places, places};
use super::super::{Command, Object, QueueCounters};
use super::inline::needs_header;
use super::queue::{Queue, ring};
use crate::cqe::TimestampFormat;
use crate::error::Result;
use crate::ib::capability::Group;
use crate::ib::{INTERNAL, Internal, RawPacket};
use crate::ring::source::handover::Receives;
use crate::ring::source::{DomainId, Member, QueueOwner, ReceiveIndex, ReceiveView, WorkQueue};
use crate::ring::{CompletionSource, ReceiveSource};
use crate::verbs::Context;

/// The name of the object in errors.
const QUEUE: &str = "a receive queue of Ethernet";
/// The state RDY in `MODIFY_RQ`, `MLX5_RQC_STATE_RDY`.
const RDY: u64 = 1;

/// An Ethernet receive queue made by command (`CREATE_RQ`), ready to receive. A [`Tir`](super::Tir)
/// steers packets to it.
///
/// [`PacketRq`](crate::ring::PacketRq) posts to it, and polls its CQ, as for a raw packet
/// queue pair.
///
/// Clones are cheap and name the same queue. It is destroyed after its last clone, and the last
/// object that steers to it, are dropped.
///
/// ```
/// # // SAFETY: no other thread runs yet.
/// # unsafe { std::env::set_var("MLX5_MODEL_LINK", "roce") };
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::devx::{Rq, Tir, TransportDomain};
/// use mlx5::ring::{PacketRq, ReceiveConfig};
/// use mlx5::verbs::Flow;
///
/// let rq = Rq::builder(&pd, &cq).max_wr(16).build()?;
/// let mut packets = PacketRq::new(&rq, &cq, ReceiveConfig::default())?;
/// // Packets to this MAC address come to the queue, until the rule is dropped.
/// let tir = Tir::direct(&TransportDomain::new(&context)?, &rq)?;
/// let _flow = Flow::builder(1).destination([2, 0, 0, 0, 0, 7]).build(&tir)?;
/// assert!(packets.poll()?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("MLX5_CMD_OP_CREATE_RQ", "MLX5_CMD_OP_DESTROY_RQ"))]
#[derive(Clone)]
pub struct Rq {
    queue: Arc<Queue>,
    /// Its protection domain, which the queue's object keeps alive.
    pd: DomainId,
    spec: RingSpec,
    user_index: u32,
}

/// Builder for [`Rq`], see [`Rq::builder`].
///
/// See the example on [`Rq`].
#[must_use = "nothing is made before build"]
pub struct RqBuilder<'a> {
    pd: &'a dyn Domain,
    cq: &'a dyn CompletionSource,
    max_wr: u32,
    max_sge: u32,
    user_index: u32,
    strip_vlan: bool,
    counters: Option<QueueCounters>,
    timestamps: Option<TimestampFormat>,
    places: Places,
}

impl Rq {
    /// Creates a builder for a queue that completes on a CQ made by verbs or by command, which no
    /// other queue should use. Default: 64 receives of one SGE; VLAN tags stay in packets.
    pub fn builder<'a>(pd: &'a dyn Domain, cq: &'a dyn CompletionSource) -> RqBuilder<'a> {
        RqBuilder {
            pd,
            cq,
            max_wr: 64,
            max_sge: 1,
            user_index: 0,
            strip_vlan: false,
            counters: None,
            timestamps: None,
            places: Places::default(),
        }
    }

    /// Returns its number. 24 bits.
    pub fn number(&self) -> u32 {
        self.queue.number()
    }

    /// Returns how many receives it holds: a power of two, at least what was asked for.
    pub fn max_wr(&self) -> u32 {
        self.spec.entries()
    }

    /// Returns the number of scatter/gather entries of a receive.
    pub fn max_sge(&self) -> u32 {
        self.spec.max_sge()
    }

    /// Sets the counters that the queue uses from now on, or none. One call into the kernel.
    ///
    /// The counters must outlive that use: they cannot be freed while the queue names them.
    ///
    /// # Errors
    /// - [`Error::NoCapability`](crate::Error::NoCapability) if the HCA cannot change the counters
    ///   of a queue.
    /// - [`Error::Refused`](crate::Error::Refused) by the HCA,
    ///   [`Error::Withheld`](crate::Error::Withheld) by the kernel.
    pub fn count_in(&self, counters: Option<&QueueCounters>) -> Result<()> {
        /// `MLX5_MODIFY_RQ_IN_MODIFY_BITMASK_RQ_COUNTER_SET_ID`
        const COUNTER_SET: u64 = 1 << 3;
        self.context().capabilities().require(
            Group::General,
            cmd_hca_cap::MODIFY_RQ_COUNTER_SET_ID,
            "another set of counters of a receive queue",
        )?;
        let number = counters.map_or(0, QueueCounters::number);
        let command = Command::new(opcode::MODIFY_RQ, modify_rq_in::SIZE)
            .set(modify_rq_in::RQN, self.number())
            .set(modify_rq_in::RQ_STATE, RDY)
            .set(modify_rq_in::MODIFY_BITMASK, COUNTER_SET)
            .set(rqc::STATE.within(modify_rq_in::CTX), RDY)
            .set(rqc::COUNTER_SET_ID.within(modify_rq_in::CTX), number);
        // SAFETY: the queue stays in RDY. The only selected field names its counters, which the HCA
        // does not free while they are named.
        unsafe { self.object().modify(&command) }.map(|_| ())
    }

    /// Takes a failed queue through RESET to ready, and discards what was posted. Drop the
    /// [`PacketRq`](crate::ring::PacketRq) that uses it before.
    ///
    /// # Errors
    /// - [`Error::QueueInUse`](crate::Error::QueueInUse) while a `PacketRq` uses it.
    /// - [`Error::Refused`](crate::Error::Refused) by the HCA,
    ///   [`Error::Withheld`](crate::Error::Withheld) by the kernel.
    pub fn restart(&self) -> Result<()> {
        self.queue.restart()
    }

    /// Returns its context from the HCA, laid out as [`rqc`](super::super::ifc::rqc). One call into
    /// the kernel.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused) by the HCA,
    /// [`Error::Withheld`](crate::Error::Withheld) by the kernel.
    pub fn query(&self) -> Result<Vec<u8>> {
        self.queue.query()
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        self.queue.context()
    }

    /// Returns the object behind it, for commands that this crate does not wrap.
    pub fn object(&self) -> &Object {
        self.queue.object()
    }
}

impl RqBuilder<'_> {
    /// Sets how many receives it holds at least.
    pub fn max_wr(mut self, receives: u32) -> Self {
        self.max_wr = receives;
        self
    }

    /// Sets the number of scatter/gather entries of a receive.
    pub fn max_sge(mut self, pieces: u32) -> Self {
        self.max_sge = pieces;
        self
    }

    /// Sets the user index in its completions, 24 bits. Default: zero.
    pub fn user_index(mut self, index: u32) -> Self {
        self.user_index = index;
        self
    }

    /// Removes VLAN tags from packets and reports them in completions.
    pub fn strip_vlan(mut self, strip: bool) -> Self {
        self.strip_vlan = strip;
        self
    }

    /// Sets the counters for packets that are lost because no receive is posted. The queue keeps
    /// them.
    pub fn counters(mut self, counters: &QueueCounters) -> Self {
        self.counters = Some(counters.clone());
        self
    }

    /// Sets the format of the times in its completions, see
    /// [`QueuePairBuilder::timestamps`](crate::verbs::QueuePairBuilder::timestamps).
    pub fn timestamps(mut self, format: TimestampFormat) -> Self {
        self.timestamps = Some(format);
        self
    }

    places!(places);

    /// Creates the queue, ready to receive. Two or three calls into the kernel, besides those for
    /// its memory.
    ///
    /// # Errors
    /// - [`Error::Attribute`](crate::Error::Attribute): a capacity that no ring can have, or a
    ///   place that is in use, misaligned or out of range.
    /// - [`Error::NoCapability`](crate::Error::NoCapability) on a port that is not Ethernet.
    /// - [`Error::Call`](crate::Error::Call) with the memory lock limit named.
    /// - [`Error::Refused`](crate::Error::Refused) by the HCA,
    ///   [`Error::Withheld`](crate::Error::Withheld) by the kernel.
    /// - [`Error::NoDevx`](crate::Error::NoDevx) if the context may give no commands.
    pub fn build(self) -> Result<Rq> {
        let context = self.pd.context();
        needs_header(context, QUEUE)?;
        let asked =
            AskedReceives { wr: Asked("max_wr", self.max_wr), sge: Asked("max_sge", self.max_sge) };
        let spec = RingSpec::receives(asked, 1)?;
        spec.require_wqes(context, (WorkQueue::Receive, QUEUE), (asked.wr, asked.sge))?;
        let timestamps = Stamped::Receive.format(context, self.timestamps)?;
        let memory = Memory::of(context, spec.bytes(), &self.places)?;
        // SAFETY: this call has just taken the part, and the queue does not exist yet.
        unsafe { memory.record.fill(0) };
        context.require_same("completion queue", self.cq.device())?;
        if let Some(counters) = &self.counters {
            context.require_same("counter set", counters.context().as_raw())?;
        }
        let cq = self.cq.completions()?;
        let set = self.counters.as_ref().map_or(0, QueueCounters::number);
        let own: [(Field, u64); 7] = [
            (rqc::FLUSH_IN_ERROR_EN, 1),
            (rqc::VSD, (!self.strip_vlan).into()),
            (rqc::USER_INDEX, self.user_index.into()),
            (rqc::CQN, cq.cqn.into()),
            (rqc::COUNTER_SET_ID, set.into()),
            (rqc::TS_FORMAT, timestamps),
            (rqc::STATE, 0),
        ];
        let inner = rqc::WQ.within(create_rq_in::CTX);
        let command = Command::new(opcode::CREATE_RQ, create_rq_in::SIZE)
            .fields(create_rq_in::CTX, own)
            .set(wq::PD.within(inner), self.pd.number()?)
            .fields(inner, ring(spec, &memory))
            .reply(create_rq_out::SIZE);
        // SAFETY: ring and doorbell record are parts of umems that no other user can take while the
        // queue holds them. The queue keeps all that the command names: domain, counters and CQ.
        let mut object = unsafe { command.create(context)? };
        object.keep(memory.hold());
        object.keep((self.pd.keep(), self.counters));
        let number = object.reply().get(create_rq_out::RQN) as u32;
        let cq = (cq.object, self.cq.owner(INTERNAL));
        let queue = Queue::new(object, number, WorkQueue::Receive, cq, memory)?;
        let (pd, user_index) = (self.pd.id(), self.user_index);
        Ok(Rq { queue: Arc::new(queue), pd, spec, user_index })
    }
}

// SAFETY: the owner keeps the CQ and the queue's parts of umems, which no other queue or key can
// take meanwhile. The claim keeps other writers away and forbids `restart`.
unsafe impl Receives for Rq {
    fn owner(&self, _: Internal) -> Arc<dyn QueueOwner> {
        Arc::<Queue>::clone(&self.queue)
    }

    fn receives(&self) -> Result<ReceiveView> {
        self.queue.require_ready()?;
        let memory = self.queue.memory();
        Ok(ReceiveView {
            buffer: memory.ring.start(),
            entries: self.spec.entries(),
            stride: self.spec.stride(),
            record: memory.record.start().cast(),
            number: self.number(),
            cq: self.queue.cq(),
            index: ReceiveIndex::Given(self.user_index),
            partner: 0,
        })
    }

    fn domain(&self) -> Option<DomainId> {
        Some(self.pd)
    }

    fn member(&self) -> Member {
        let index = ReceiveIndex::Given(self.user_index);
        Member { number: self.number(), cq: self.queue.cq(), index, srq: None }
    }
}

impl ReceiveSource for Rq {
    type Transport = RawPacket;
}

impl fmt::Debug for Rq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rq")
            .field("number", &format_args!("{:#x}", self.number()))
            .field("max_wr", &self.max_wr())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RqBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RqBuilder").field("max_wr", &self.max_wr).finish_non_exhaustive()
    }
}
