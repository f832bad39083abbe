//! Ethernet send queues.

use std::fmt;
use std::sync::Arc;

use mlx5_sys::ifc::{
    Field, create_sq_in, create_sq_out, opcode, per_protocol_networking_offload_caps as caps, sqc,
    wq,
};
use mlx5_sys::wqe::{InlineHeader, MAX_DS, SEGMENT_SIZE, WQEBB_SIZE};

use super::super::domain::Domain;
use super::super::umem::{Memory, Places, places};
use super::super::{Command, Object, Uar, UarKind};
use super::Tis;
use super::queue::{Queue, places};
use crate::error::{Error, Result};
use crate::ib::capability::Group;
use crate::ib::{INTERNAL, Internal, RawPacket, Transport};
use crate::ring::source::handover::Sends;
use crate::ring::source::{CompletionOrder, QueueOwner, SendView, WorkQueue};
use crate::ring::{CompletionSource, SendSource};
use crate::verbs::Context;
use crate::wqe::Limits;

/// 16-byte units of a block.
const UNITS: u32 = (WQEBB_SIZE / SEGMENT_SIZE) as u32;
/// The most blocks of a ring: 16-bit counters wrap around it.
const MOST: u32 = 1 << 15;
/// A ring of WQEs (`mlx5_ifc.h`, `MLX5_WQ_TYPE_CYCLIC`).
const CYCLIC: u64 = 1;

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
    blocks: u32,
    max_wr: u32,
    limits: Limits,
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
            places: Places::default(),
        }
    }

    /// Returns its number. 24 bits.
    pub fn number(&self) -> u32 {
        self.queue.number()
    }

    /// Returns how many requests of the largest size it holds: at least what was asked for.
    pub fn max_wr(&self) -> u32 {
        self.max_wr
    }

    /// Returns the limits of a request.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns the UAR that it rings.
    pub fn uar(&self) -> &Uar {
        &self.uar
    }

    /// Takes a failed queue through RESET to ready, and discards what was posted. Drop the
    /// [`SendQueue`](crate::ring::SendQueue) that uses it before.
    ///
    /// # Errors
    /// - [`Error::QueueInUse`] while a `SendQueue` uses it.
    /// - [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel.
    pub fn restart(&self) -> Result<()> {
        self.queue.restart()
    }

    /// Returns its context from the HCA, laid out as [`sqc`](super::super::ifc::sqc). One call into
    /// the kernel.
    ///
    /// # Errors
    /// [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel.
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

    places!(places);

    /// Returns the blocks of the largest request, and of the ring.
    fn shape(&self) -> Result<(u32, u32)> {
        let before = RawPacket::UNITS_BEFORE_PAYLOAD;
        let inline = match self.max_inline {
            0 => 0,
            bytes => bytes.saturating_add(InlineHeader::SIZE as u32).div_ceil(SEGMENT_SIZE as u32),
        };
        for (attribute, value, units) in
            [("max_sge", self.max_sge, self.max_sge), ("max_inline_data", self.max_inline, inline)]
        {
            if units > MAX_DS as u32 - before {
                let rule = format!(
                    "a WQE has {MAX_DS} units of 16 bytes, {before} of them before its payload"
                );
                return Err(Error::attribute(attribute, value, rule));
            }
        }
        let request = (before + self.max_sge.max(inline)).div_ceil(UNITS);
        let blocks = self.max_wr.max(1).checked_mul(request);
        let blocks = blocks.and_then(u32::checked_next_power_of_two).filter(|it| *it <= MOST);
        let blocks = blocks.ok_or_else(|| {
            let rule = format!(
                "a send queue has up to {MOST} blocks of 64 bytes, of which each request takes \
                 {request}"
            );
            Error::attribute("max_wr", self.max_wr, rule)
        })?;
        Ok((request, blocks))
    }

    /// Creates the queue, ready to send. Two or three calls into the kernel, besides those for its
    /// memory and UAR.
    ///
    /// # Errors
    /// - [`Error::Attribute`]: a capacity that no ring can have, or a place that is in use,
    ///   misaligned or out of range.
    /// - [`Error::NoCapability`] on a port that is not Ethernet; [`Error::NoUar`].
    /// - [`Error::Call`] with the memory lock limit named.
    /// - [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel.
    /// - [`Error::NoDevx`] if the context may give no commands.
    pub fn build(self) -> Result<Sq> {
        let context = self.pd.context();
        let mode = context.capabilities().require_at_least(
            Group::Ethernet,
            caps::WQE_INLINE_MODE,
            0,
            "a send queue of Ethernet",
        )?;
        let (request, blocks) = self.shape()?;
        let uar = match &self.uar {
            Some(uar) => uar.clone(),
            None => Uar::first_of(context, &UarKind::ALL)?.uar,
        };
        let bytes = blocks as usize * WQEBB_SIZE;
        let memory = Memory::of(context, bytes, &self.places)?;
        // SAFETY: this call has just taken the part, and the queue does not exist yet.
        unsafe { memory.record.fill(0) };
        context.require_same("completion queue", self.cq.device())?;
        context.require_same("TIS", self.tis.context().as_raw())?;
        context.require_same("register", uar.context().as_raw())?;
        let cq = self.cq.completions()?;
        // `MLX5_CAP_INLINE_MODE_NOT_REQUIRED`, `MLX5_INLINE_MODE_L2`
        let least_inline: u64 = if mode == 2 { 0 } else { 1 };
        let own: [(Field, u64); 7] = [
            (sqc::FLUSH_IN_ERROR_EN, 1),
            (sqc::MIN_WQE_INLINE_MODE, least_inline),
            (sqc::USER_INDEX, self.user_index.into()),
            (sqc::CQN, cq.cqn.into()),
            (sqc::TIS_LST_SZ, 1),
            (sqc::TIS_NUM_0, self.tis.number().into()),
            (sqc::STATE, 0),
        ];
        let ring: [(Field, u64); 5] = [
            (wq::WQ_TYPE, CYCLIC),
            (wq::PD, self.pd.number()?.into()),
            (wq::UAR_PAGE, uar.page_id().into()),
            (wq::LOG_WQ_STRIDE, WQEBB_SIZE.ilog2().into()),
            (wq::LOG_WQ_SZ, blocks.ilog2().into()),
        ];
        let inner = sqc::WQ.within(create_sq_in::CTX);
        let command = Command::new(opcode::CREATE_SQ, create_sq_in::SIZE)
            .fields(create_sq_in::CTX, own)
            .fields(inner, ring)
            .fields(inner, places(&memory))
            .reply(create_sq_out::SIZE);
        // SAFETY: ring and doorbell record are parts of umems that no other user can take while the
        // queue holds them. The queue keeps all that the command names: domain, TIS, UAR and CQ.
        let mut object = unsafe { command.create(context)? };
        object.keep(memory.hold());
        object.keep((self.pd.keep(), self.tis.clone(), uar.clone()));
        let number = object.reply().get(create_sq_out::SQN) as u32;
        let cq = (cq.object, self.cq.owner(INTERNAL));
        let queue = Queue::new(object, number, WorkQueue::Send, cq, memory)?;
        let room = request * UNITS - RawPacket::UNITS_BEFORE_PAYLOAD;
        let inline = (room * SEGMENT_SIZE as u32).saturating_sub(InlineHeader::SIZE as u32);
        Ok(Sq {
            queue: Arc::new(queue),
            blocks,
            max_wr: blocks / request,
            limits: Limits { max_sge: room, max_inline: inline },
            uar,
        })
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
            blocks: self.blocks,
            record: memory.record.start().cast(),
            register: self.uar.register(),
            half: self.uar.blue_flame(),
            memory: self.uar.memory(),
            recordless: false,
            number: self.number(),
            limits: self.limits,
            max_wr: self.max_wr,
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
            .field("max_wr", &self.max_wr)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SqBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqBuilder").field("max_wr", &self.max_wr).finish_non_exhaustive()
    }
}
