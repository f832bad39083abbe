//! Send queues of Ethernet.

use std::fmt;
use std::sync::Arc;

use mlx5_sys::ifc::{
    Field, create_sq_in, create_sq_out, opcode, per_protocol_networking_offload_caps as caps, sqc,
    wq,
};
use mlx5_sys::wqe::{InlineHeader, MAX_DS, SEGMENT_SIZE, WQEBB_SIZE};

use super::super::domain::Domain;
use super::super::umem::{Memory, Place};
use super::super::{Command, Group, Object, Uar, UarKind, Umem};
use super::Tis;
use super::queue::{Queue, places};
use crate::ib::{RawPacket, Transport};
use crate::ring::CompletionSource;
use crate::ring::SendSource;
use crate::ring::source::handover::Sends;
use crate::ring::source::{QueueOwner, SendView};
use crate::verbs::{Context, Error, Result, WorkQueue};
use crate::wqe::Limits;

/// 16-byte units of a block.
const UNITS: u32 = (WQEBB_SIZE / SEGMENT_SIZE) as u32;
/// Most blocks of a ring, which 16-bit counters go around.
const MOST: u32 = 1 << 15;
/// A ring of WQEs (`mlx5_ifc.h`, `MLX5_WQ_TYPE_CYCLIC`).
const CYCLIC: u64 = 1;

/// A send queue for frames of Ethernet made by command (`CREATE_SQ`), ready to send.
///
/// [`SendQueue`](crate::ring::SendQueue) posts on it as on a queue pair of raw packets, of which it is
/// one half. Completions call it by its [`number`](Self::number).
pub struct Sq {
    queue: Arc<Queue>,
    blocks: u32,
    max_wr: u32,
    limits: Limits,
    uar: Uar,
}

/// What a send queue is to be like, see [`Sq::builder`].
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
    ring: Option<Place>,
    record: Option<Place>,
}

impl Sq {
    /// A queue that sends by an interface and completes on a CQ of either making: 64 requests of one
    /// piece.
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
            ring: None,
            record: None,
        }
    }

    /// Its number. 24 bits.
    pub fn number(&self) -> u32 {
        self.queue.number()
    }

    /// Requests of the largest size that it holds: at least what was asked for.
    pub fn max_wr(&self) -> u32 {
        self.max_wr
    }

    /// What a request may be.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The register that it rings.
    pub fn uar(&self) -> &Uar {
        &self.uar
    }

    /// Takes it through reset to ready, after it has failed: what was posted is gone. The
    /// [`SendQueue`](crate::ring::SendQueue) made of it must be gone before.
    ///
    /// # Errors
    /// [`Error::QueueInUse`] while it is not, those of [`Object::modify`].
    pub fn restart(&self) -> Result<()> {
        self.queue.restart()
    }

    /// Its context as the HCA shows it, laid out as [`sqc`](super::super::ifc::sqc). One call into
    /// the kernel.
    ///
    /// # Errors
    /// Those of [`Object::query`].
    pub fn query(&self) -> Result<Vec<u8>> {
        self.queue.query()
    }

    /// The device it belongs to.
    pub fn context(&self) -> &Context {
        self.queue.context()
    }

    /// The object behind it, for commands that this crate does not wrap.
    pub fn object(&self) -> &Object {
        self.queue.object()
    }
}

impl SqBuilder<'_> {
    /// Requests of the largest size that it holds at least.
    pub fn max_wr(mut self, requests: u32) -> Self {
        self.max_wr = requests;
        self
    }

    /// Pieces of memory of a request.
    pub fn max_sge(mut self, pieces: u32) -> Self {
        self.max_sge = pieces;
        self
    }

    /// Bytes of a frame that may be in the WQE, besides the first 18.
    pub fn max_inline_data(mut self, bytes: u32) -> Self {
        self.max_inline = bytes;
        self
    }

    /// What completions carry for the program, 24 bits. Default: zero.
    pub fn user_index(mut self, index: u32) -> Self {
        self.user_index = index;
        self
    }

    /// The register that it rings. If not called, one of its own, of the first kind of
    /// [`UarKind::ALL`] that is to be had.
    pub fn uar(mut self, uar: &Uar) -> Self {
        self.uar = Some(uar.clone());
        self
    }

    /// Where its ring lies: `offset` bytes into a umem, a multiple of 4096. If not called, in one of
    /// its own.
    pub fn ring(mut self, umem: &Umem, offset: usize) -> Self {
        self.ring = Some(Place { umem: umem.clone(), offset });
        self
    }

    /// Where its doorbell record lies: 8 bytes, `offset` bytes into a umem, a multiple of 8. If not
    /// called, in a umem of its own.
    pub fn record(mut self, umem: &Umem, offset: usize) -> Self {
        self.record = Some(Place { umem: umem.clone(), offset });
        self
    }

    /// Blocks of the largest request, and of the ring.
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

    /// Makes the queue, ready to send. Two or three calls into the kernel, and those for its memory
    /// and register.
    ///
    /// # Errors
    /// [`Error::Attribute`] for what no ring holds, or a place that is not to be had;
    /// [`Error::NoCapability`] on a port that is none of Ethernet; [`Error::NoUar`]; [`Error::Call`]
    /// with the memory lock limit named; those of [`Command::create`].
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
        let memory = Memory::of(context, bytes, self.ring.as_ref(), self.record.as_ref())?;
        // SAFETY: the places were just taken, and no queue is there yet.
        unsafe { memory.record.fill(0) };
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
        // SAFETY: ring and record are parts of umems that nothing else may take while the queue holds
        // them. It keeps all that it names: domain, TIS, UAR and CQ.
        let mut object = unsafe { command.create(context)? };
        object.keep(memory.hold());
        object.keep((self.pd.keep(), self.tis.clone(), uar.clone()));
        let number = object.reply().get(create_sq_out::SQN) as u32;
        let cq = (cq.object, self.cq.owner());
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

// SAFETY: the owner keeps the parts of the umems that the queue lies in, which are taken, so that no
// other queue of this crate lies there, and its register. The claim keeps other writers away, and
// forbids a restart.
unsafe impl Sends for Sq {
    fn owner(&self) -> Arc<dyn QueueOwner> {
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
            recordless: false,
            number: self.number(),
            limits: self.limits,
            max_wr: self.max_wr,
            signal_all: false,
            cq: self.queue.cq(),
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
