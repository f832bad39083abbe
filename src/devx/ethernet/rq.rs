//! Receive queues of Ethernet.

use std::fmt;
use std::sync::Arc;

use mlx5_sys::ifc::{
    Field, cmd_hca_cap, create_rq_in, create_rq_out, modify_rq_in, opcode,
    per_protocol_networking_offload_caps as caps, rqc, wq,
};
use mlx5_sys::wqe::SEGMENT_SIZE;

use super::super::domain::Domain;
use super::super::umem::{Memory, Place};
use super::super::{Command, Group, Object, QueueCounters, Umem};
use super::queue::{Queue, places};
use crate::ib::RawPacket;
use crate::ring::source::handover::Receives;
use crate::ring::source::{Member, QueueOwner, ReceiveView};
use crate::ring::{CompletionSource, ReceiveSource};
use crate::verbs::{Context, DomainId, Error, Result, WorkQueue};

/// A ring of WQEs (`mlx5_ifc.h`, `MLX5_WQ_TYPE_CYCLIC`).
const CYCLIC: u64 = 1;
/// Most WQEs of a ring, which 16-bit counters go around.
const MOST: u32 = 1 << 15;
/// State that `MODIFY_RQ` names, `MLX5_RQC_STATE_RDY`.
const RDY: u64 = 1;

/// A receive queue for frames of Ethernet made by command (`CREATE_RQ`), ready to receive what a
/// [`Tir`](super::Tir) leads to it.
///
/// [`FrameReceives`](crate::ring::FrameReceives) posts to it, with the CQ that it completes on, as to
/// a queue pair of raw packets, of which it is one half.
///
/// Clones are cheap and name the same queue, which goes when the last of them, and the last that
/// leads to it, is gone.
#[derive(Clone)]
pub struct Rq {
    queue: Arc<Queue>,
    /// Its protection domain, which the queue's object keeps.
    pd: DomainId,
    entries: u32,
    stride: u32,
}

/// What a receive queue is to be like, see [`Rq::builder`].
#[must_use = "nothing is made before build"]
pub struct RqBuilder<'a> {
    pd: &'a dyn Domain,
    cq: &'a dyn CompletionSource,
    max_wr: u32,
    max_sge: u32,
    user_index: u32,
    strip_vlan: bool,
    counters: Option<QueueCounters>,
    ring: Option<Place>,
    record: Option<Place>,
}

impl Rq {
    /// A queue that completes on a CQ of either making, which should be its own: 64 receives of one
    /// piece, which leaves VLAN tags in frames.
    pub fn builder<'a>(pd: &'a dyn Domain, cq: &'a dyn CompletionSource) -> RqBuilder<'a> {
        RqBuilder {
            pd,
            cq,
            max_wr: 64,
            max_sge: 1,
            user_index: 0,
            strip_vlan: false,
            counters: None,
            ring: None,
            record: None,
        }
    }

    /// Its number. 24 bits.
    pub fn number(&self) -> u32 {
        self.queue.number()
    }

    /// Receives that it holds: a power of two, at least what was asked for.
    pub fn max_wr(&self) -> u32 {
        self.entries
    }

    /// Pieces of memory of a receive.
    pub fn max_sge(&self) -> u32 {
        self.stride / SEGMENT_SIZE as u32
    }

    /// Has it count in another set from now on, or in none. One call into the kernel.
    ///
    /// The set must outlive that: while the queue names it, it refuses to go.
    ///
    /// # Errors
    /// [`Error::NoCapability`], those of [`Object::modify`].
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
        // SAFETY: the queue stays in RDY, and the only field that is selected names its counters,
        // which the HCA does not let go while they are named.
        unsafe { self.object().modify(&command) }.map(|_| ())
    }

    /// Takes it through reset to ready, after it has failed: what was posted is gone. The
    /// [`FrameReceives`](crate::ring::FrameReceives) made of it must be gone before.
    ///
    /// # Errors
    /// [`Error::QueueInUse`] while it is not, those of [`Object::modify`].
    pub fn restart(&self) -> Result<()> {
        self.queue.restart()
    }

    /// Its context as the HCA shows it, laid out as [`rqc`](super::super::ifc::rqc). One call into
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

impl RqBuilder<'_> {
    /// Receives that it holds at least.
    pub fn max_wr(mut self, receives: u32) -> Self {
        self.max_wr = receives;
        self
    }

    /// Pieces of memory of a receive.
    pub fn max_sge(mut self, pieces: u32) -> Self {
        self.max_sge = pieces;
        self
    }

    /// What completions carry for the program, 24 bits. Default: zero.
    pub fn user_index(mut self, index: u32) -> Self {
        self.user_index = index;
        self
    }

    /// Has VLAN tags taken out of frames and told in completions.
    pub fn strip_vlan(mut self, strip: bool) -> Self {
        self.strip_vlan = strip;
        self
    }

    /// The set of counters that counts what is lost for want of a receive. It keeps the set.
    pub fn counters(mut self, counters: &QueueCounters) -> Self {
        self.counters = Some(counters.clone());
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

    /// Makes the queue, ready to receive. Two or three calls into the kernel, and those for its
    /// memory.
    ///
    /// # Errors
    /// [`Error::Attribute`] for what no ring holds, or a place that is not to be had;
    /// [`Error::NoCapability`] on a port that is none of Ethernet; [`Error::Call`] with the memory lock
    /// limit named; those of [`Command::create`].
    pub fn build(self) -> Result<Rq> {
        let context = self.pd.context();
        context.capabilities().require_at_least(
            Group::Ethernet,
            caps::WQE_INLINE_MODE,
            0,
            "a receive queue of Ethernet",
        )?;
        let pieces = self.max_sge.max(1).checked_next_power_of_two().filter(|it| *it <= 128);
        let Some(pieces) = pieces else {
            let rule = "a receive has up to 128 pieces";
            return Err(Error::attribute("max_sge", self.max_sge, rule));
        };
        let entries = self.max_wr.max(1).checked_next_power_of_two().filter(|it| *it <= MOST);
        let Some(entries) = entries else {
            let rule = format!("a receive queue has up to {MOST} WQEs");
            return Err(Error::attribute("max_wr", self.max_wr, rule));
        };
        let stride = pieces * SEGMENT_SIZE as u32;
        let bytes = entries as usize * stride as usize;
        let memory = Memory::of(context, bytes, self.ring.as_ref(), self.record.as_ref())?;
        // SAFETY: the places were just taken, and no queue is there yet.
        unsafe { memory.record.fill(0) };
        let cq = self.cq.completions()?;
        let set = self.counters.as_ref().map_or(0, QueueCounters::number);
        let own: [(Field, u64); 6] = [
            (rqc::FLUSH_IN_ERROR_EN, 1),
            (rqc::VSD, (!self.strip_vlan).into()),
            (rqc::USER_INDEX, self.user_index.into()),
            (rqc::CQN, cq.cqn.into()),
            (rqc::COUNTER_SET_ID, set.into()),
            (rqc::STATE, 0),
        ];
        let ring: [(Field, u64); 4] = [
            (wq::WQ_TYPE, CYCLIC),
            (wq::PD, self.pd.number()?.into()),
            (wq::LOG_WQ_STRIDE, stride.ilog2().into()),
            (wq::LOG_WQ_SZ, entries.ilog2().into()),
        ];
        let inner = rqc::WQ.within(create_rq_in::CTX);
        let command = Command::new(opcode::CREATE_RQ, create_rq_in::SIZE)
            .fields(create_rq_in::CTX, own)
            .fields(inner, ring)
            .fields(inner, places(&memory))
            .reply(create_rq_out::SIZE);
        // SAFETY: ring and record are parts of umems that nothing else may take while the queue holds
        // them. It keeps all that it names: domain, counters and CQ.
        let mut object = unsafe { command.create(context)? };
        object.keep(memory.hold());
        object.keep((self.pd.keep(), self.counters));
        let number = object.reply().get(create_rq_out::RQN) as u32;
        let cq = (cq.object, self.cq.owner());
        let queue = Queue::new(object, number, WorkQueue::Receive, cq, memory)?;
        Ok(Rq { queue: Arc::new(queue), pd: self.pd.id(), entries, stride })
    }
}

// SAFETY: the owner keeps the parts of the umems that the queue lies in, which no other queue or key
// gets meanwhile, and its CQ. The claim keeps other writers away and forbids `restart`.
unsafe impl Receives for Rq {
    fn owner(&self) -> Arc<dyn QueueOwner> {
        Arc::<Queue>::clone(&self.queue)
    }

    fn receives(&self) -> Result<ReceiveView> {
        self.queue.require_ready()?;
        let memory = self.queue.memory();
        Ok(ReceiveView {
            buffer: memory.ring.start(),
            entries: self.entries,
            stride: self.stride,
            record: memory.record.start().cast(),
            number: self.number(),
            cq: self.queue.cq(),
        })
    }

    fn domain(&self) -> Option<DomainId> {
        Some(self.pd)
    }

    fn member(&self) -> Member {
        Member { number: self.number(), cq: self.queue.cq(), srq: None }
    }
}

impl ReceiveSource for Rq {
    type Transport = RawPacket;
}

impl fmt::Debug for Rq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rq")
            .field("number", &format_args!("{:#x}", self.number()))
            .field("max_wr", &self.entries)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RqBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RqBuilder").field("max_wr", &self.max_wr).finish_non_exhaustive()
    }
}
