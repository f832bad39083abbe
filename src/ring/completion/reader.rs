//! The completion queue's reader: taking over, settings, events.

use core::fmt;
use core::ptr::NonNull;

use mlx5_sys::doorbell::{
    ARM_NEXT, ARM_SEQUENCE_SHIFT, ARM_SOLICITED, CQ_ARM_WORD, CQ_CONSUMER_WORD, UAR_CQ_ARM,
};
use mlx5_sys::verbs::ibv_cq;

use super::consumer::{Consumer, Publish};
use super::health::{ARMED, PERIOD, WAITED};
use super::members::Members;
use super::slots::{CqSlots, Demand, Reservation};
use crate::doorbell::{ArmDoorbell, Record};
use crate::error::{PollError, QueueError};
use crate::ib::{Counter, CqeCompression, INTERNAL, Shape};
use crate::ring::observed::observed;
use crate::ring::source::Titles;
use crate::ring::source::UserIndex;
use crate::ring::source::claims::CqKeep;
use crate::ring::source::{CompletionSource, CompletionView, CqId, CqObject, view_cq};
use crate::watch::flight::{self, DoorbellKind, Facts, Queue};
use crate::watch::timing::Recorder;

/// Polls a completion queue directly, without libibverbs.
///
/// A poll that finds no CQE costs one load and a count. A poll that finds one reads the fields it
/// needs, retires the WQE in its queue, and stores the consumer index to the CQ's doorbell record.
/// It does so once per CQE, before the queue may use the CQE's slot for another request.
///
/// # CQ slots
///
/// A CQ that gets more CQEs than it has entries fails. So each queue that completes on it reserves
/// entries when it is taken over, and never has more requests outstanding than that. Unsignaled
/// requests count, too: when a queue pair fails, each of them completes with an error. So neither a
/// failure nor a peer can overrun the CQ.
///
/// - What the configuration states ([`SendConfig::requests`](crate::ring::SendConfig::requests),
///   [`ReceiveConfig::receives`](crate::ring::ReceiveConfig::receives)) is reserved exactly. If
///   fewer entries are free, the queue is refused ([`QueueError::CqFull`], with the numbers).
/// - What it leaves to the default is the size of the queue (`max_send_wr` or `max_recv_wr`), or
///   fewer if fewer are free, but at least one. The first queue of a pair leaves as many as the other one wants, if both complete
///   here, but at most half of those that are free. So either may be taken over first.
///
/// A CQ for n queue pairs with the default of both needs n × (`max_send_wr` + `max_recv_wr`)
/// entries, as granted ([`capacities`](crate::verbs::QueuePair::capacities)). A shared receive queue
/// counts once.
///
/// ```
/// # let rig::Link { memory: _m, mut reader, mut sends, mut receives, sge, .. } = rig::link()?;
/// use mlx5::cqe::Completion;
/// use mlx5::wqe::{Inline, SendMessage};
///
/// // `reader` is `CqReader::new(&cq)?`. Two queues of a queue pair complete on its CQ.
/// // SAFETY: the payload is copied. The receive's memory is read after its completion.
/// unsafe {
///     receives.post(1, sge)?;
///     sends.post(2, SendMessage::new(Inline(b"hello")).signaled())?;
/// }
/// let (mut sent, mut received) = (false, false);
/// while !(sent && received) {
///     match reader.poll(&mut (&mut sends, &mut receives))? {
///         Some(Completion::Send(done)) => sent = done.id == 2,
///         Some(Completion::Receive(done)) => received = done.byte_len == 5,
///         Some(other) => return Err(format!("{other:?}").into()),
///         None => {} // nothing new
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "mlx5dv_cq")]
pub struct CqReader {
    pub(in crate::ring) consumer: Consumer,
    arm: ArmDoorbell,
    /// Number of events taken since the CQ was made, modulo 4. Used without a keep.
    arm_sequence: u32,
    cqn: u32,
    /// Why no CQE comes any more, once that is known.
    pub(in crate::ring) failed: Option<PollError>,
    pub(in crate::ring) slots: CqSlots,
    /// Entries that are kept unreserved: the HCA is told later that they are free, see [`Publish`].
    pub(super) set_aside: Option<Reservation>,
    pub(in crate::ring) id: CqId,
    object: CqObject,
    /// The CQ of libibverbs, where it is one.
    pub(in crate::ring) raw: Option<NonNull<ibv_cq>>,
    /// How CQEs name a shared receive queue of an XRC domain, or one that matches tags, that
    /// completes here. If there are several, the name of one of them.
    pub(super) xrc: Option<UserIndex>,
    pub(in crate::ring) keep: Option<CqKeep>,
    /// The live queues that complete here. `None` for a collapsed CQ, which loses CQEs anyway.
    pub(in crate::ring) members: Option<Members>,
    /// Number of polls without a CQE after which the reader checks whether the CQ failed.
    pub(in crate::ring) period: i32,
    pub(in crate::ring) timing: Recorder,
    pub(in crate::ring) flight: flight::Recorder,
}

/// Parts of a completion reader.
pub(in crate::ring) struct CqParts {
    pub(in crate::ring) buffer: NonNull<u8>,
    pub(in crate::ring) cqe_count: u32,
    pub(in crate::ring) cqe_size: u32,
    pub(in crate::ring) record: Record,
    pub(in crate::ring) arm: ArmDoorbell,
    pub(in crate::ring) cqn: u32,
    pub(in crate::ring) object: CqObject,
    pub(in crate::ring) compression: CqeCompression,
    /// Whether compressed CQEs have the enhanced layout.
    pub(in crate::ring) enhanced: bool,
}

// SAFETY: no other code accesses the CQ's consumer side: `new` claims it, and `from_raw`'s contract
// excludes others. The reader holds no thread-local state, so it may move to another thread.
unsafe impl Send for CqReader {}

impl CqReader {
    /// Takes over a CQ, and keeps it alive. The CQ can be taken over again after the result and all
    /// queues that complete on it were dropped, the queues first.
    ///
    /// # Errors
    /// [`Error::QueueInUse`](crate::Error::QueueInUse), [`Error::Queue`](crate::Error::Queue).
    #[doc(alias("mlx5dv_init_obj", "MLX5DV_OBJ_CQ"))]
    pub fn new<C: CompletionSource>(cq: &C) -> crate::error::Result<Self> {
        let keep = CqKeep::new(cq.owner(INTERNAL))?;
        let view = cq.completions()?;
        if view.collapsed {
            return Err(QueueError::Collapsed.into());
        }
        // SAFETY: the keep owns the CQ, so it stays alive as long as the result, and has claimed
        // its consumer side, so no other reader exists and the CQ is not resized.
        let mut reader = unsafe { Self::take_over(view)? };
        if reader.consumer.titles().is_some() {
            reader.consumer.enhance(keep.titles());
        }
        reader.keep = Some(keep);
        Ok(reader)
    }

    /// Takes over a CQ. Reading continues at the index in its doorbell record, so a CQ that was
    /// polled before can be taken over at any time.
    ///
    /// A queue belongs to the reader that it was taken over with. If a CQ is taken over a second
    /// time, the second reader reports CQEs of the first reader's queues as
    /// [`UnexpectedCqe`](crate::cqe::Completion::UnexpectedCqe). Drop those queues, and take them
    /// over again.
    ///
    /// From here on libmlx5 does not touch the CQ: it removes no CQEs of QPs that are reset or
    /// destroyed. A queue that is taken over or restarted drops its own old CQEs.
    ///
    /// # Errors
    /// [`QueueError`]: the CQ is not of libmlx5, or has an impossible geometry.
    ///
    /// # Safety
    /// - `cq` stays alive as long as the result, and is not resized.
    /// - Until the result is dropped, nothing else polls or arms it (`ibv_poll_cq`,
    ///   `ibv_req_notify_cq`, another reader), and no event of it is waiting to be taken, or was taken
    ///   and not acknowledged (`ibv_ack_cq_events`).
    #[doc(alias("mlx5dv_init_obj", "MLX5DV_OBJ_CQ"))]
    pub unsafe fn from_raw(cq: NonNull<ibv_cq>) -> Result<Self, QueueError> {
        // SAFETY: the caller keeps the CQ alive and unresized, and lets nothing else poll or arm
        // it, until the result is dropped.
        let mut reader = unsafe { Self::take_over(view_cq(cq)?)? };
        // SAFETY: the CQ is alive, and no event of it is taken or acknowledged meanwhile.
        let acknowledged = unsafe { (*cq.as_ptr()).comp_events_completed };
        // The record has the number of the last request. The HCA ignores another one with it after
        // its event, which is one at most.
        if acknowledged.wrapping_sub(reader.arm_sequence) & 3 == 1 {
            reader.event_taken();
        }
        Ok(reader)
    }

    /// # Safety
    /// Until the result is dropped, the CQ that the view was taken of stays alive and is not
    /// resized, and nothing else polls or arms it.
    unsafe fn take_over(view: CompletionView) -> Result<Self, QueueError> {
        // SAFETY: the record has two words and the page an arm register, and they live as long as
        // the CQ. The caller lets nothing else poll or arm it, so only this reader writes the
        // record.
        let (record, arm) = unsafe {
            let arm = Record::new(view.record, CQ_ARM_WORD);
            (Record::new(view.record, CQ_CONSUMER_WORD), ArmDoorbell::new(arm, view.page))
        };
        let parts = CqParts {
            buffer: view.buffer,
            cqe_count: view.cqe_count,
            cqe_size: view.cqe_size,
            record,
            arm,
            cqn: view.cqn,
            object: view.object,
            compression: view.compression,
            enhanced: view.enhanced,
        };
        // SAFETY: the view describes the ring of the CQ, which lives until the result is dropped;
        // the caller lets nothing else read it until then.
        let mut reader = unsafe { Self::from_parts(parts)? };
        reader.raw = view.raw;
        Ok(reader)
    }

    /// # Safety
    /// - `buffer` is a ring of `cqe_count` CQEs of `cqe_size` bytes, aligned to 64, that lives as
    ///   long as the result.
    /// - The doorbells belong to the result.
    pub(in crate::ring) unsafe fn from_parts(parts: CqParts) -> Result<Self, QueueError> {
        // In a larger CQ, the 24 bits of the record would not identify the lap.
        let Some(shape) = Shape::new(parts.cqe_count).filter(|shape| shape.entries() < 1 << 24)
        else {
            return Err(QueueError::Geometry("the completion queue's size is not a power of two"));
        };
        if !matches!(parts.cqe_size, 64 | 128) {
            return Err(QueueError::Geometry("a CQE is neither 64 nor 128 bytes"));
        }
        let wide = parts.cqe_size == 128;
        // SAFETY: by this function's contract, the ring has this shape and the record is the
        // reader's own, and both live as long as the result.
        let mut consumer =
            unsafe { Consumer::new(parts.buffer, shape, wide, parts.record, parts.compression) };
        if parts.enhanced {
            consumer.enhance(Titles::default());
        }
        let facts = Facts {
            queue: Queue::Completion,
            number: parts.cqn,
            transport: "",
            cqn: parts.cqn,
            entries: parts.cqe_count,
            stride: parts.cqe_size,
        };
        Ok(Self {
            consumer,
            arm_sequence: parts.arm.record().read() >> ARM_SEQUENCE_SHIFT & 3,
            arm: parts.arm,
            cqn: parts.cqn,
            failed: None,
            slots: CqSlots::new(shape.entries()),
            set_aside: None,
            id: CqId::next(),
            object: parts.object,
            raw: None,
            xrc: None,
            keep: None,
            members: Some(Members::default()),
            period: PERIOD,
            timing: Recorder::new(),
            flight: flight::Recorder::new(facts, Counter::default()),
        })
    }

    /// Makes this the reader of a collapsed CQ, with the CQ slots of `slots`.
    pub(in crate::ring) fn adopt_collapsed(&mut self, keep: CqKeep, slots: CqSlots) {
        (self.keep, self.slots, self.members) = (Some(keep), slots, None);
    }

    pub(crate) fn id(&self) -> CqId {
        self.id
    }

    /// Returns whether `cq`, an object that exists, is the CQ that this reader polls.
    pub(in crate::ring) fn reads(&self, cq: CqObject) -> bool {
        self.object == cq
    }

    /// Number of the CQ.
    pub fn cqn(&self) -> u32 {
        self.cqn
    }

    /// Returns the number of CQEs that the ring holds.
    pub fn capacity(&self) -> u32 {
        self.consumer.shape().entries()
    }

    /// Sets when polls publish the consumer index to the HCA. Default: every poll.
    ///
    /// # Errors
    /// [`QueueError::CqFull`] if the CQ has too few free slots to set aside: call this before
    /// queues are taken over. [`QueueError::OverrunChecked`] for [`Publish::Never`] on a CQ that
    /// this crate did not make to ignore overruns. Nothing is changed then.
    pub fn publish(&mut self, when: Publish) -> Result<(), QueueError> {
        let most = match when {
            Publish::EveryPoll => None,
            Publish::Every(cqes) => Some(cqes),
            Publish::Never if self.keep.as_ref().is_some_and(CqKeep::ignores_overrun) => {
                Some(u32::MAX)
            }
            Publish::Never => return Err(QueueError::OverrunChecked),
        };
        let wanted = if let Publish::Every(cqes) = when { cqes.max(1) } else { 0 };
        let before = self.set_aside.as_ref().map_or(0, Reservation::entries);
        self.collect();
        if wanted > before {
            // Checks that so many more are free. Then they can be reserved together with the old
            // ones.
            drop(self.slots.reserve(Demand::exactly(wanted - before))?);
        }
        self.set_aside = None;
        if wanted != 0 {
            self.set_aside = Some(self.slots.reserve(Demand::exactly(wanted))?);
        }
        self.consumer.set_reserve(most);
        Ok(())
    }

    /// Requests an event on the CQ's completion channel at the next completion. Poll once more
    /// afterwards: a completion that came before may have raised no event. Costs one store to the
    /// record, one to a register, and two store fences.
    ///
    /// The HCA tells late requests from new ones by the number of events taken. For this crate's
    /// CQs, [`CompletionChannel::get_event`](crate::verbs::CompletionChannel::get_event) counts
    /// them. For others, [`event_taken`](Self::event_taken) does.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&mut self) {
        self.request_event(ARM_NEXT);
    }

    /// Requests an event like [`arm`](Self::arm), at the next solicited completion or error.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm_solicited(&mut self) {
        self.request_event(ARM_SOLICITED);
    }

    fn request_event(&mut self, command: u32) {
        self.consumer.flush();
        self.consumer.age(ARMED);
        let events = self.keep.as_ref().map_or(self.arm_sequence, CqKeep::events);
        let word = (events & 3) << ARM_SEQUENCE_SHIFT | command | self.consumer.index().low24();
        self.arm.arm(word, self.cqn);
        self.flight.rang(DoorbellKind::Arm, word, Some(UAR_CQ_ARM as u16));
    }

    /// Counts an event taken from the channel of a CQ that was taken over by
    /// [`from_raw`](Self::from_raw). Call it before [`arm`](Self::arm) is called again. Does
    /// nothing to a reader that was made by [`new`](Self::new).
    pub fn event_taken(&mut self) {
        self.arm_sequence = (self.arm_sequence + 1) & 3;
    }

    /// Reports that the HCA failed the CQ (`IBV_EVENT_CQ_ERR`). CQEs that are still in the CQ can
    /// be polled. Then every poll fails with [`PollError::Overrun`](crate::ring::PollError::Overrun).
    ///
    /// Polls detect this themselves, but only after some million polls without a completion. They
    /// do not detect it on contexts that [may not give firmware
    /// commands](crate::verbs::Context::devx) if the program reads their events by other means than
    /// this crate's. A program that reads the event calls this method to make it known at once.
    pub fn overrun(&mut self) {
        self.fail(PollError::Overrun);
    }

    /// Makes every later poll that finds no CQE return `error`.
    pub(in crate::ring) fn fail(&mut self, error: PollError) {
        self.failed = Some(error);
        self.consumer.watch(true);
    }

    /// Counts a poll that found no CQE, after which a wait lets other threads run.
    pub(in crate::ring) fn waited(&mut self) {
        self.consumer.age(WAITED);
    }

    /// Sets the content of mini CQEs of a CQ that was taken over by [`from_raw`](Self::from_raw)
    /// and compresses. If not called: [`CqeCompression::Hash`]. [`new`](Self::new) sets it by
    /// itself.
    ///
    /// # Safety
    /// The CQ compresses to this format, or not at all. Polls would otherwise take other bytes for
    /// the WQE that completed.
    pub unsafe fn expect_compression(&mut self, format: CqeCompression) {
        self.consumer.set_format(format);
    }

    /// Makes every poll take the slow path (`held`), or no longer.
    pub(crate) fn hold(&mut self, held: bool) {
        self.consumer.hold(held);
    }

    /// Makes every poll that finds no CQE take the slow path (`watched`), or no longer.
    pub(crate) fn watch(&mut self, watched: bool) {
        self.consumer.watch(watched || self.failed.is_some());
    }
}

observed!([] CqReader);

impl Drop for CqReader {
    fn drop(&mut self) {
        // The next reader does not know the compressed block.
        self.consumer.unfold();
        if let (Some(keep), Some(titles)) = (&self.keep, self.consumer.titles()) {
            keep.leave(titles);
        }
        self.consumer.flush();
        self.collect();
        self.set_aside = None;
        if let Some(keep) = &mut self.keep {
            keep.reusable = self.slots.is_unreserved();
        }
    }
}

impl fmt::Debug for CqReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CqReader")
            .field("cqn", &self.cqn)
            .field("consumer", &self.consumer.index())
            .field("capacity", &self.capacity())
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}
