//! Taking a send queue over: from the view of a queue pair to the ring's state.

use core::marker::PhantomData;
use core::ptr::NonNull;
use std::sync::Arc;

use mlx5_sys::doorbell::SEND_WORD;
use mlx5_sys::wqe::{InlineHeader, MAX_DS, SEGMENT_SIZE, WQEBB_SIZE};

use super::config::{RegisterUse, SendConfig};
use super::queue::SendQueue;
use super::ring::SendRing;
use super::state::{SendState, Start};
use super::wqes::{Names, UNITS};
use crate::cqe::QueueKind;
use crate::doorbell::{Record, SendDoorbell};
use crate::error::QueueError;
use crate::ib::{Counter, INTERNAL, Shape, Transport};
use crate::ring::completion::members::Name;
use crate::ring::completion::reader::CqReader;
use crate::ring::completion::slots::Reservation;
use crate::ring::source::claims::QueueKeep;
use crate::ring::source::{CompletionOrder, CqId, QueueOwner, SendSource, SendView};
use crate::watch::flight::{self, Queue};
use crate::watch::lint::Guard;
use crate::watch::timing::Recorder;
use crate::wqe::Limits;

/// Parts of a send queue. [`SendQueue::from_raw`] and tests of the writer build queues from it.
pub(in crate::ring) struct SendParts {
    pub(in crate::ring) buffer: NonNull<u8>,
    pub(in crate::ring) blocks: u32,
    pub(in crate::ring) doorbell: SendDoorbell,
    pub(in crate::ring) qpn: u32,
    pub(in crate::ring) limits: Limits,
    pub(in crate::ring) signal_all: bool,
    pub(in crate::ring) order: CompletionOrder,
    pub(in crate::ring) start: Counter,
    pub(in crate::ring) cq_slots: Reservation,
    pub(in crate::ring) cq: CqId,
    pub(in crate::ring) owner: Arc<dyn QueueOwner>,
}

impl<T: Transport> SendQueue<T> {
    /// Takes over a send queue like [`new`](Self::new), but without a claim to the register. The
    /// caller ensures that no other queue stores to the register while this queue copies WQEs
    /// there.
    pub(in crate::ring) fn unclaimed<Q: SendSource<Transport = T>>(
        qp: &Q,
        completions: &mut CqReader,
        config: SendConfig,
    ) -> crate::error::Result<Self> {
        let keep = QueueKeep::send(qp.owner(INTERNAL))?;
        let (view, owner) = (qp.sends()?, Arc::clone(keep.owner()));
        // SAFETY: the result holds the owner, which keeps QP and CQ alive. It also holds the claim
        // on the send queue, which keeps other writers away. The caller claims the register before
        // it posts.
        let mut queue = unsafe { Self::take_over(view, owner, completions, config)? };
        queue.keep = Some(keep);
        completions.discard(queue.qpn(), QueueKind::Send);
        Ok(queue)
    }

    /// Takes over the send queue of a view. Does not drop its old CQEs.
    ///
    /// # Safety
    /// - `view` is of a QP in RTS that `owner` keeps alive, and all its send WQEs are complete.
    /// - Until the result is dropped, nothing else posts to the send queue, and the QP is not moved
    ///   to RESET, except for [`restart`](Self::restart).
    /// - With [`RegisterUse::Own`], nothing else stores to its doorbell register after the first
    ///   post.
    pub(super) unsafe fn take_over(
        view: SendView,
        owner: Arc<dyn QueueOwner>,
        completions: &mut CqReader,
        config: SendConfig,
    ) -> Result<Self, QueueError> {
        if !completions.reads(view.cq) {
            return Err(QueueError::CqMismatch);
        }
        // SAFETY: the record of a live QP. Only this queue posts, so only it writes the send word.
        let record = unsafe { Record::new(view.record, SEND_WORD) };
        let start = Counter::new(record.read() & 0xffff);
        let own = config.register == RegisterUse::Own;
        // SAFETY: register and size are the live QP's; the size is 0 where BlueFlame must not be
        // used. With `own`, the caller guarantees that nothing else stores to the register.
        let mut doorbell = unsafe {
            match view.recordless {
                false => SendDoorbell::new(record, view.register, view.half, own),
                true => SendDoorbell::without_record(record, view.register),
            }
        };
        doorbell.set_copy(config.copy)?;
        if config.copy_last {
            doorbell.copy_last();
        }
        if view.memory.is_uncached() || config.memory.is_uncached() {
            // SAFETY: the UAR was mapped that way, or `UarMapping::uncached`'s caller promises it.
            unsafe { doorbell.set_uncached() };
        }
        let wanted = (config.requests, view.max_wr);
        let cq_slots = completions.reserve(view.number, QueueKind::Send, wanted, view.partner)?;
        let parts = SendParts {
            buffer: view.buffer,
            blocks: view.blocks,
            doorbell,
            qpn: view.number,
            limits: view.limits,
            signal_all: view.signal_all,
            order: view.order,
            start,
            cq_slots,
            cq: completions.id(),
            owner,
        };
        // SAFETY: ring and doorbell are the live QP's, and nothing else posts to it.
        let mut queue = unsafe { Self::from_parts(parts)? };
        queue.ring.doorbell.flight.completes_on(completions.cqn());
        queue.ring._member = completions.admit(Name::Queue(queue.qpn(), QueueKind::Send), None);
        queue.ring.guard = Guard::new(|| queue.facts());
        Ok(queue)
    }

    /// # Safety
    /// `buffer` is a ring of `blocks` blocks that only the result writes, and the doorbell is its
    /// own; both live as long as the result.
    pub(in crate::ring) unsafe fn from_parts(mut parts: SendParts) -> Result<Self, QueueError> {
        let Some(shape) = Shape::new(parts.blocks).filter(|shape| shape.entries() <= 1 << 15)
        else {
            return Err(QueueError::Geometry("the send queue's size is not a power of two"));
        };
        // With the limits kept to what is left for the payload, every WQE that passes them fits
        // `ds` and the ring.
        let max_ds = (parts.blocks * UNITS).min(MAX_DS as u32);
        let payload = max_ds.saturating_sub(T::UNITS_BEFORE_PAYLOAD);
        let inline = (payload * SEGMENT_SIZE as u32).saturating_sub(InlineHeader::SIZE as u32);
        let limits = Limits {
            max_sge: parts.limits.max_sge.min(payload),
            max_inline: parts.limits.max_inline.min(inline),
            max_packets: parts.limits.max_packets.min(payload),
        };
        parts.doorbell.timing = Recorder::of_ring(shape);
        let facts = flight::Facts {
            queue: Queue::Send,
            number: parts.qpn,
            transport: T::NAME,
            cqn: 0,
            entries: parts.blocks,
            stride: WQEBB_SIZE as u32,
        };
        parts.doorbell.flight = flight::Recorder::new(facts, parts.start);
        let state = SendState::new(Start {
            shape,
            at: parts.start,
            slots: parts.cq_slots.entries(),
            order: parts.order,
            no_entries: limits.max_sge == 0,
        });
        let ring = SendRing {
            state,
            buffer: parts.buffer,
            doorbell: parts.doorbell,
            names: Names::new(parts.qpn),
            limits,
            units_before_payload: T::UNITS_BEFORE_PAYLOAD,
            // If requests complete in any order, each needs a completion of its own.
            signal_all: parts.signal_all || parts.order == CompletionOrder::Any,
            cq_slots: parts.cq_slots,
            cq: parts.cq,
            owner: parts.owner,
            guard: Guard::new(|| None),
            _member: None,
        };
        Ok(Self { ring, keep: None, transport: PhantomData })
    }
}
