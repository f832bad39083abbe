//! Ethernet send queues.

use std::fmt;
use std::sync::Arc;

use mlx5_sys::ifc::{Field, create_sq_in, create_sq_out, opcode, sqc, wq};

use super::super::domain::Domain;
use super::super::ring_spec::{Asked, AskedSends, RingSpec};
use super::super::timestamp::Stamped;
use super::super::umem::{Memory, Places, places};
use super::super::{Command, Object, Uar, UarKind};
use super::Tis;
use super::inline::{needs_header, sends_several};
use super::queue::{Queue, ring};
use crate::cqe::TimestampFormat;
use crate::error::Result;
use crate::ib::{INTERNAL, Internal, RawPacket, Transport as _};
use crate::ring::source::handover::Sends;
use crate::ring::source::{CompletionOrder, QueueOwner, SendView, WorkQueue};
use crate::ring::{CompletionSource, SendSource};
use crate::verbs::Context;
use crate::wqe::{Limits, MAX_PACKETS};

/// The name of the object in errors.
const QUEUE: &str = "a send queue of Ethernet";

/// An Ethernet send queue made by command (`CREATE_SQ`), ready to send.
///
/// [`SendQueue`](crate::ring::SendQueue) posts to it as to a raw packet queue pair. Completions
/// name it by its [`number`](Self::number).
///
/// ```
/// # // SAFETY: no other thread runs yet.
/// # unsafe { std::env::set_var("MLX5_MODEL_LINK", "roce") };
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::devx::{Sq, Tis, TransportDomain};
/// use mlx5::ring::{CqReader, SendConfig, SendQueue};
/// use mlx5::wqe::Nop;
///
/// let tis = Tis::new(&TransportDomain::new(&context)?)?;
/// let sq = Sq::builder(&pd, &tis, &cq).max_wr(64).max_inline_data(64).build()?;
/// let mut reader = CqReader::new(&cq)?;
/// let mut sends = SendQueue::new(&sq, &mut reader, SendConfig::default())?;
/// // SAFETY: the request names no memory.
/// unsafe { sends.post(1, Nop::new().signaled())? };
/// while reader.poll(&mut sends)?.is_none() {}
/// assert!(sends.is_idle());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("MLX5_CMD_OP_CREATE_SQ", "MLX5_CMD_OP_DESTROY_SQ"))]
#[derive(Clone)]
pub struct Sq {
    queue: Arc<Queue>,
    spec: RingSpec,
    max_packets: u32,
    uar: Uar,
}

/// Builder for [`Sq`], see [`Sq::builder`].
///
/// See the example on [`Sq`].
#[must_use = "nothing is made before build"]
pub struct SqBuilder<'a> {
    pd: &'a dyn Domain,
    tis: &'a Tis,
    cq: &'a dyn CompletionSource,
    max_wr: u32,
    max_sge: u32,
    max_inline: u32,
    user_index: u32,
    uar: Option<Uar>,
    timestamps: Option<TimestampFormat>,
    places: Places,
}

impl Sq {
    /// Creates a builder for a queue that sends through a TIS and completes on a CQ made by verbs
    /// or by command. Default: 64 requests of one SGE.
    pub fn builder<'a>(
        pd: &'a dyn Domain,
        tis: &'a Tis,
        cq: &'a dyn CompletionSource,
    ) -> SqBuilder<'a> {
        SqBuilder {
            pd,
            tis,
            cq,
            max_wr: 64,
            max_sge: 1,
            max_inline: 0,
            user_index: 0,
            uar: None,
            timestamps: None,
            places: Places::default(),
        }
    }

    /// Returns its number. 24 bits.
    pub fn number(&self) -> u32 {
        self.queue.number()
    }

    /// Returns how many requests of the largest size it holds: at least what was asked for.
    pub fn max_wr(&self) -> u32 {
        self.spec.max_wr()
    }

    /// Returns the limits of a request.
    pub fn limits(&self) -> Limits {
        Limits {
            max_sge: self.spec.max_sge(),
            max_inline: self.spec.max_inline(),
            max_packets: self.max_packets,
        }
    }

    /// Returns the UAR that it rings.
    pub fn uar(&self) -> &Uar {
        &self.uar
    }

    /// Takes a failed queue through RESET to ready, and discards what was posted. Drop the
    /// [`SendQueue`](crate::ring::SendQueue) that uses it before.
    ///
    /// # Errors
    /// - [`Error::QueueInUse`](crate::Error::QueueInUse) while a `SendQueue` uses it.
    /// - [`Error::Refused`](crate::Error::Refused) by the HCA,
    ///   [`Error::Withheld`](crate::Error::Withheld) by the kernel.
    pub fn restart(&self) -> Result<()> {
        self.queue.restart()
    }

    /// Returns its context from the HCA, laid out as [`sqc`](super::super::ifc::sqc). One call into
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

impl SqBuilder<'_> {
    /// Sets how many requests of the largest size it holds at least.
    pub fn max_wr(mut self, requests: u32) -> Self {
        self.max_wr = requests;
        self
    }

    /// Sets the number of scatter/gather entries of a request.
    pub fn max_sge(mut self, pieces: u32) -> Self {
        self.max_sge = pieces;
        self
    }

    /// Sets how many bytes of a packet a WQE may carry inline, besides the first 18.
    pub fn max_inline_data(mut self, bytes: u32) -> Self {
        self.max_inline = bytes;
        self
    }

    /// Sets the user index in its completions, 24 bits. Default: zero.
    pub fn user_index(mut self, index: u32) -> Self {
        self.user_index = index;
        self
    }

    /// Sets the UAR that it rings. If not called, it has one of its own, of the first kind of
    /// [`UarKind::ALL`] that is available.
    pub fn uar(mut self, uar: &Uar) -> Self {
        self.uar = Some(uar.clone());
        self
    }

    /// Sets the format of the times in its completions, see
    /// [`QueuePairBuilder::timestamps`](crate::verbs::QueuePairBuilder::timestamps).
    pub fn timestamps(mut self, format: TimestampFormat) -> Self {
        self.timestamps = Some(format);
        self
    }

    places!(places);

    /// Creates the queue, ready to send. Two or three calls into the kernel, besides those for its
    /// memory and UAR.
    ///
    /// # Errors
    /// - [`Error::Attribute`](crate::Error::Attribute): a capacity that no ring can have, or a
    ///   place that is in use, misaligned or out of range.
    /// - [`Error::NoCapability`](crate::Error::NoCapability) on a port that is not Ethernet;
    ///   [`Error::NoUar`](crate::Error::NoUar).
    /// - [`Error::Call`](crate::Error::Call) with the memory lock limit named.
    /// - [`Error::Refused`](crate::Error::Refused) by the HCA,
    ///   [`Error::Withheld`](crate::Error::Withheld) by the kernel.
    /// - [`Error::NoDevx`](crate::Error::NoDevx) if the context may give no commands.
    pub fn build(self) -> Result<Sq> {
        let context = self.pd.context();
        let needs_header = needs_header(context, QUEUE)?;
        let sends_several = sends_several(context, QUEUE)?;
        let asked = AskedSends {
            wr: Asked("max_wr", self.max_wr),
            sge: Asked("max_sge", self.max_sge),
            inline: Asked("max_inline_data", self.max_inline),
        };
        let spec = RingSpec::sends(asked, RawPacket::UNITS_BEFORE_PAYLOAD)?;
        spec.require_wqes(context, (WorkQueue::Send, QUEUE), (asked.wr, asked.sge))?;
        let uar = match &self.uar {
            Some(uar) => uar.clone(),
            None => Uar::first_of(context, &UarKind::ALL)?.uar,
        };
        let timestamps = Stamped::Send.format(context, self.timestamps)?;
        let memory = Memory::of(context, spec.bytes(), &self.places)?;
        // SAFETY: this call has just taken the part, and the queue does not exist yet.
        unsafe { memory.record.fill(0) };
        context.require_same("completion queue", self.cq.device())?;
        context.require_same("TIS", self.tis.context().as_raw())?;
        context.require_same("register", uar.context().as_raw())?;
        let cq = self.cq.completions()?;
        let own: [(Field, u64); 9] = [
            (sqc::FLUSH_IN_ERROR_EN, 1),
            (sqc::ALLOW_MULTI_PKT_SEND_WQE, sends_several.into()),
            // `MLX5_INLINE_MODE_NONE`, `MLX5_INLINE_MODE_L2`
            (sqc::MIN_WQE_INLINE_MODE, needs_header.into()),
            (sqc::USER_INDEX, self.user_index.into()),
            (sqc::CQN, cq.cqn.into()),
            (sqc::TIS_LST_SZ, 1),
            (sqc::TIS_NUM_0, self.tis.number().into()),
            (sqc::TS_FORMAT, timestamps),
            (sqc::STATE, 0),
        ];
        let belongs: [(Field, u64); 2] =
            [(wq::PD, self.pd.number()?.into()), (wq::UAR_PAGE, uar.page_id().into())];
        let inner = sqc::WQ.within(create_sq_in::CTX);
        let command = Command::new(opcode::CREATE_SQ, create_sq_in::SIZE)
            .fields(create_sq_in::CTX, own)
            .fields(inner, belongs)
            .fields(inner, ring(spec, &memory))
            .reply(create_sq_out::SIZE);
        // SAFETY: ring and doorbell record are parts of umems that no other user can take while the
        // queue holds them. The queue keeps all that the command names: domain, TIS, UAR and CQ.
        let mut object = unsafe { command.create(context)? };
        object.keep(memory.hold());
        object.keep((self.pd.keep(), self.tis.clone(), uar.clone()));
        let number = object.reply().get(create_sq_out::SQN) as u32;
        let cq = (cq.object, self.cq.owner(INTERNAL));
        let queue = Queue::new(object, number, WorkQueue::Send, cq, memory)?;
        let max_packets = if sends_several { MAX_PACKETS } else { 0 };
        Ok(Sq { queue: Arc::new(queue), spec, max_packets, uar })
    }
}

// SAFETY: the owner keeps the UAR and the queue's parts of umems. The parts are taken, so no other
// queue of this crate lies there. The claim keeps other writers away, and forbids a restart.
unsafe impl Sends for Sq {
    fn owner(&self, _: Internal) -> Arc<dyn QueueOwner> {
        Arc::<Queue>::clone(&self.queue)
    }

    fn sends(&self) -> Result<SendView> {
        self.queue.require_ready()?;
        let memory = self.queue.memory();
        Ok(SendView {
            buffer: memory.ring.start(),
            blocks: self.spec.entries(),
            record: memory.record.start().cast(),
            register: self.uar.register(),
            half: self.uar.blue_flame(),
            memory: self.uar.memory(),
            recordless: false,
            number: self.number(),
            limits: self.limits(),
            max_wr: self.max_wr(),
            signal_all: false,
            order: CompletionOrder::Posting,
            cq: self.queue.cq(),
            partner: 0,
        })
    }
}

impl SendSource for Sq {
    type Transport = RawPacket;
}

impl fmt::Debug for Sq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sq")
            .field("number", &format_args!("{:#x}", self.number()))
            .field("max_wr", &self.max_wr())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SqBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqBuilder").field("max_wr", &self.max_wr).finish_non_exhaustive()
    }
}
