//! The send ring: what send queues of all transports have in common.

use core::mem::offset_of;
use core::ptr::NonNull;
use std::sync::Arc;

use mlx5_diag::lint;
use mlx5_sys::wqe::{
    CE_ALWAYS, CtrlSeg, FENCE_INITIATOR_SMALL, FENCE_MASK, FENCE_NONE, WQEBB_SIZE,
};

use super::own::{Own, Place};
use super::shadow::{self, Entry, Key};
use super::state::{Point, SendState};
use super::wqes::{Last, Names, Posted, UNITS, Wqes, changes_keys, ctrl_segment, is_signaled};
use crate::doorbell::SendDoorbell;
use crate::error::QueueError;
use crate::ib::{Counter, Shape, Transport};
use crate::ring::PostError;
use crate::ring::completion::members::Membership;
use crate::ring::completion::slots::Reservation;
use crate::ring::opaque::opaque;
use crate::ring::source::{CqId, QueueOwner};
use crate::watch::lint::{self as guard, Guard};
use crate::watch::timing::Phase;
use crate::wqe::error::check_hot;
use crate::wqe::{Block, Code, Limits, Operation, PostOn, Segments};

/// What send queues of all transports have in common: their state, and the memory and registers that
/// it is about.
pub struct SendRing {
    pub(in crate::ring) state: SendState,
    pub(in crate::ring) buffer: NonNull<u8>,
    pub(in crate::ring) doorbell: SendDoorbell,
    pub(super) names: Names,
    pub(in crate::ring) limits: Limits,
    /// 16-byte units of a READ before its data segments: [`Transport::UNITS_BEFORE_PAYLOAD`].
    ///
    /// [`Transport::UNITS_BEFORE_PAYLOAD`]: crate::ib::Transport::UNITS_BEFORE_PAYLOAD
    pub(super) units_before_payload: u32,
    /// Whether the QP was made to signal every request.
    pub(in crate::ring) signal_all: bool,
    pub(in crate::ring) cq_slots: Reservation,
    pub(in crate::ring) cq: CqId,
    pub(in crate::ring) owner: Arc<dyn QueueOwner>,
    pub(super) guard: Guard,
    /// Registers the queue with the reader of the CQ.
    pub(in crate::ring) _member: Option<Membership>,
}

impl SendRing {
    #[inline(always)]
    pub(in crate::ring) fn qpn(&self) -> u32 {
        self.names.qpn()
    }

    /// Returns the queue's parameters for the lint.
    pub(in crate::ring) fn facts<T: Transport>(&self) -> Option<lint::Facts> {
        Some(lint::Facts {
            qpn: Some(self.qpn()),
            blocks: Some(self.shape().entries()),
            max_sge: Some(self.limits.max_sge),
            max_inline: Some(self.limits.max_inline),
            cqes: Some(self.state.slots()),
            signal_all: self.signal_all,
            capabilities: match self.limits.max_packets {
                0 => lint::Capabilities::all() - lint::Capabilities::MULTI_PACKET,
                _ => lint::Capabilities::all(),
            },
            ..lint::Facts::new(guard::transport(T::TRANSPORT_KIND)?)
        })
    }

    /// Shape of the ring.
    #[inline(always)]
    pub(in crate::ring) fn shape(&self) -> Shape {
        self.state.shape()
    }

    /// Counter of the next WQE to be posted.
    #[inline(always)]
    pub(in crate::ring) fn head(&self) -> Counter {
        self.state.head()
    }

    /// Returns the point behind all posted WQEs.
    #[inline(always)]
    pub(in crate::ring) fn end(&self) -> Point {
        self.state.end()
    }

    /// Returns the point behind all retired WQEs.
    #[inline(always)]
    pub(in crate::ring) fn mark(&self) -> Point {
        self.state.mark()
    }

    pub(in crate::ring) fn restart(&mut self) -> Result<(), QueueError> {
        // libmlx5 clears the record on the way through RESET.
        if self.doorbell.record().read() != 0 {
            return Err(QueueError::NotReset);
        }
        self.doorbell.enter();
        self.state.restart();
        self.guard.restart();
        self.doorbell.timing.restart();
        self.doorbell.flight.restart(self.head());
        Ok(())
    }

    /// Returns whether a WQE before `head` that is not retired is signaled.
    pub(in crate::ring) fn expects_cqe(&self, head: Counter) -> bool {
        self.last_signaled(head).is_some()
    }

    /// Returns the counter of the last signaled WQE before `head`, if it is not retired. Costs up
    /// to two loads per block after it.
    pub(super) fn last_signaled(&self, head: Counter) -> Option<Counter> {
        let tail = self.state.tail();
        (0..head.since(tail)).rev().map(|ahead| tail.plus(ahead)).find(|at| self.asks_for_cqe(*at))
    }

    /// Returns whether a WQE begins in this block and asks for a CQE, according to the WQE.
    fn asks_for_cqe(&self, at: Counter) -> bool {
        const FLAGS: usize = offset_of!(CtrlSeg, fm_ce_se);
        // SAFETY: a byte of a block of the ring, which lives as long as this structure.
        let flags = unsafe { self.wqes().block(at).add(FLAGS).read_volatile() };
        self.state.entry(at).key.blocks().is_some() && is_signaled(flags)
    }

    /// Accepts posts again, at the current head, after an error and with nothing outstanding.
    pub(in crate::ring) fn go_on(&mut self) {
        self.doorbell.flight.restart(self.head());
        self.state.resume();
        self.guard.restart();
        self.refill();
    }

    #[inline(always)]
    pub(in crate::ring) fn flags<O: Operation>(&self, operation: &O) -> u8 {
        operation.flags() | if self.signal_all { CE_ALWAYS } else { 0 }
    }

    /// Lets posts up to `clear` pass without a check.
    #[inline(always)]
    pub(super) fn grant(&mut self, clear: Counter) {
        let single = if self.doorbell.takes_words() { clear } else { self.head() };
        self.state.grant(clear, single);
    }

    /// Grants as much as possible, after everything that was written and not posted is abandoned.
    pub(in crate::ring) fn refill(&mut self) {
        self.settle();
        self.grant_most();
    }

    /// Ends a run of key changes, and abandons everything that was written and not posted.
    pub(super) fn settle(&mut self) {
        // The head always passes here before it has gone round the ring.
        self.state.end_run();
        self.state.abandon();
    }

    /// Grants all free blocks and slots, where the next or the last request is signaled.
    pub(super) fn grant_all(&mut self) {
        self.grant(self.state.clear_keeping(self.end(), 0));
    }

    /// Grants as much as possible.
    #[cold]
    #[inline(never)]
    pub(super) fn grant_most(&mut self) {
        let end = self.end();
        self.grant(self.state.clear_from(end, || self.expects_cqe(end.at)));
    }

    /// Checks that there are blocks and a CQ slot for a request at `at`, see
    /// [`SendState::check_free`].
    #[inline(always)]
    fn check_free(&self, at: Point, blocks: u32, signaled: bool) -> Result<(), PostError> {
        self.state.check_free(at, blocks, signaled, || self.expects_cqe(at.at))
    }

    /// Returns `fm_ce_se` of a WQE at `head`: the operation's flags, and the small fence after a
    /// key change. A request's own fence includes the small fence.
    #[inline(always)]
    fn flags_at<O: Operation>(&self, head: Counter, operation: &O) -> u8 {
        let flags = self.flags(operation);
        let waits = flags & FENCE_MASK == FENCE_NONE && self.state.follows_key_change(head);
        flags | if waits { FENCE_INITIATOR_SMALL } else { FENCE_NONE }
    }

    /// Writes a WQE of one block at `at`, which is before `clear`. If the operation is not usual, or
    /// has a size that is known only at run time and is refused, longer than a block or without a
    /// payload, writes nothing and returns `None`.
    ///
    /// # Safety
    /// `own` is this ring's.
    #[inline(always)]
    pub(super) unsafe fn encode_block<T: Transport, O: PostOn<T>>(
        &mut self,
        own: impl Own,
        at: Point,
        id: u64,
        operation: &O,
    ) -> Option<(Last, BlockImage)> {
        if O::USUAL_DS != 0 {
            if !operation.is_usual(&own.limits(self)) {
                return None;
            }
            // SAFETY: a usual WQE is no longer than a block. `check` would pass: a queue without
            // entries has no clear head. `own` is the ring's.
            return Some(unsafe {
                self.encode_one::<O, false>(own, at, id, operation, O::USUAL_DS)
            });
        }
        if operation.check(&self.limits).is_err() {
            return None;
        }
        let ds = 1 + operation.body_ds();
        if !(2..=UNITS).contains(&ds) {
            return None;
        }
        // SAFETY: `check` passed, and 2 to 4 units are no longer than a block. `own` is the ring's.
        Some(unsafe { self.encode_one::<O, true>(own, at, id, operation, ds) })
    }

    /// Writes a WQE of `ds` units at `at`, which is before `clear`.
    ///
    /// # Safety
    /// - The WQE is no longer than a block, and passed its check.
    /// - The operation is usual, or `MEASURED` is true: its size was computed.
    /// - `own` is this ring's.
    #[inline(always)]
    unsafe fn encode_one<O: Operation, const MEASURED: bool>(
        &mut self,
        own: impl Own,
        at: Point,
        id: u64,
        operation: &O,
        ds: u32,
    ) -> (Last, BlockImage) {
        let flags = self.flags(operation);
        self.doorbell.timing.stamp(Phase::Reserve);
        let ctrl = {
            let code = operation.code();
            ctrl_segment(
                own.wqes(self).names.ctrl(at.at, code, ds),
                code,
                flags,
                operation.immediate(),
            )
        };
        let slot = own.wqes(self).shape.slot(at.at);
        // The ring's offset is a multiple of the shadow's, and one address operation can compute it
        // from there. The compiler would shift twice instead.
        const { assert!(size_of::<Entry>() == 16 && WQEBB_SIZE == 64) };
        let offset = opaque(slot * size_of::<Entry>());
        // SAFETY: by the meaning of `clear`, a free block starts there. The HCA does not read it
        // before the producer index covers it, and nothing else writes it (`from_parts`). The WQE
        // is no longer than a block, so it ends before the ring does.
        let image = unsafe {
            let block = own.wqes(self).buffer.byte_add(offset * (WQEBB_SIZE / size_of::<Entry>()));
            let mut writer = Block::new(block.as_ptr());
            writer.put(ctrl);
            let words = if MEASURED {
                operation.put_short(&mut writer);
                writer.words()
            } else {
                operation.put_usual(&mut writer);
                writer.padded()
            };
            BlockImage { place: Place(offset), block: block.cast(), words }
        };
        // SAFETY: `offset` is that of the slot's entry. The shadow has an entry for every slot.
        let place = unsafe { own.wqes(self).shadow.byte_add(offset) };
        let signaled = is_signaled(flags);
        let Code { opcode, modifier, .. } = operation.code();
        let key = if signaled && shadow::may_be_plain(opcode, modifier, ds) {
            Key::plain(own.wqes(self).names.key, opcode, ctrl[0])
        } else {
            Key::other(opcode, ds, at.silent)
        };
        // SAFETY: the entry of the free block that was just written. Polls do not read it before
        // the head covers it.
        unsafe { place.write(Entry { id, key }) };
        self.doorbell.timing.stamp(Phase::Encode);
        (Last { doorbell: ctrl[0] }, image)
    }

    /// Writes a WQE by [`encode`](Self::encode), outside of the hot path. Also returns the new
    /// `clear`, which keeps the last block and slot: no other WQE is read for it.
    #[cold]
    #[inline(never)]
    pub(super) fn encode_any<T: Transport, O: PostOn<T>>(
        &mut self,
        at: Point,
        id: u64,
        operation: &O,
    ) -> Result<(Point, Last, Counter), PostError> {
        self.state.end_run();
        let (end, last) = self.encode::<T, O>(at, id, operation)?;
        Ok((end, last, self.state.clear_keeping(end, 1)))
    }

    /// Writes a WQE at `at`, which is the end of the posted ones or after it. Returns the point behind
    /// it, and the data for its doorbell.
    #[inline(always)]
    pub(in crate::ring) fn encode<T: Transport, O: PostOn<T>>(
        &mut self,
        at: Point,
        id: u64,
        operation: &O,
    ) -> Result<(Point, Last), PostError> {
        check_hot(|| operation.check(&self.limits))?;
        let ds = 1 + operation.body_ds();
        let blocks = ds.div_ceil(UNITS);
        self.state.check_running()?;
        let flags = self.flags_at(at.at, operation);
        self.check_free(at, blocks, is_signaled(flags))?;

        self.state.note(operation.code().opcode);
        self.doorbell.timing.stamp(Phase::Reserve);
        // SAFETY: the blocks are free. The HCA does not read them before the producer index covers
        // them, and nothing else writes them (`from_parts`). `check` passed.
        let written = unsafe { self.wqes().write(at, id, operation, flags, ds) };
        self.doorbell.timing.stamp(Phase::Encode);
        Ok(written)
    }

    /// Writes a WQE of any size if it fits before `clear`. Checks only the operation. If the WQE
    /// does not fit or is refused, writes nothing and returns `None`.
    #[inline(always)]
    pub(super) fn encode_sized<T: Transport, O: PostOn<T>>(
        &mut self,
        at: Point,
        clear: Counter,
        id: u64,
        operation: &O,
    ) -> Option<(Point, Last)> {
        // A WQE that changes keys moves `clear` back to the head after it.
        if changes_keys(operation.code().opcode) || operation.check(&self.limits).is_err() {
            return None;
        }
        let ds = 1 + operation.body_ds();
        let blocks = ds.div_ceil(UNITS);
        // Each block before `clear` also stands for a CQ slot, and a WQE needs no more slots than
        // blocks.
        if blocks > clear.since(at.at) {
            return None;
        }
        let flags = self.flags(operation);
        self.doorbell.timing.stamp(Phase::Reserve);
        // SAFETY: the blocks before `clear` are free. The HCA does not read them before the
        // producer index covers them, and nothing else writes them (`from_parts`). `check` passed.
        let written = unsafe { self.wqes().write(at, id, operation, flags, ds) };
        self.doorbell.timing.stamp(Phase::Encode);
        Some(written)
    }

    /// Returns the memory that WQEs are written to.
    #[inline(always)]
    pub(super) fn wqes(&self) -> Wqes {
        Wqes {
            shape: self.shape(),
            buffer: self.buffer,
            shadow: self.state.entries(),
            names: self.names,
        }
    }

    /// Counts a WQE that producers of a shared queue wrote and rang at the head as posted.
    #[inline(always)]
    pub(super) fn adopt(&mut self, posted: &Posted) {
        let at = self.end();
        let (_, ds) = posted.last.code_and_ds();
        let end = at.behind(ds.div_ceil(UNITS));
        // SAFETY: only the retirer uses a shared queue's shadow, and the WQE is posted.
        unsafe {
            let Posted { id, last, signaled } = *posted;
            self.wqes().remember(at.at, end.silent, id, last, signaled);
        }
        self.state.posted(end);
        // SAFETY: the queue's ring; nothing writes WQEs that are posted and not retired.
        unsafe { self.doorbell.flight.adopted(self.buffer, self.shape(), end.at) }
    }
}

/// A WQE of one block: its place, its address, and those of its words that are known.
pub(super) struct BlockImage {
    pub(in crate::ring) place: Place,
    pub(super) block: NonNull<u64>,
    pub(super) words: [Option<u64>; 8],
}
