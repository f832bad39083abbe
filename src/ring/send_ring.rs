//! The send ring: what send queues of all transports have in common.

use core::mem::offset_of;
use core::ptr::NonNull;
use std::sync::Arc;

use mlx5_diag::lint;
use mlx5_sys::wqe::{
    CE_ALWAYS, CtrlSeg, FENCE_INITIATOR_SMALL, FENCE_MASK, FENCE_NONE, WQEBB_SIZE,
};

use super::PostError;
use super::cq_slots::Reservation;
use super::known::Membership;
use super::own::{InRing, Own, Place};
use super::shadow::{self, Entry, Key};
use super::slots::{Last, Names, Posted, Slots, UNITS, changes_keys, ctrl_segment, is_signaled};
use super::source::{CqId, QueueOwner};
use super::state::{Point, SendState};
use super::written::Written;
use crate::doorbell::{Blocks, SendDoorbell};
use crate::error::QueueError;
use crate::ib::{Counter, Shape, Transport};
use crate::watch::lint::{self as guard, Guard, Refusal};
use crate::watch::timing::Phase;
use crate::wqe::{Block, Code, Limits, Operation, PostOn, Segments};

/// What send queues of all transports have in common: their state, and the memory and registers that
/// it is about.
pub struct SendRing {
    pub(super) state: SendState,
    pub(super) buffer: NonNull<u8>,
    pub(super) doorbell: SendDoorbell,
    pub(super) names: Names,
    pub(super) limits: Limits,
    /// 16-byte units of a READ before its data segments: [`Transport::UNITS_BEFORE_PAYLOAD`].
    ///
    /// [`Transport::UNITS_BEFORE_PAYLOAD`]: crate::ib::Transport::UNITS_BEFORE_PAYLOAD
    pub(super) units_before_payload: u32,
    /// Whether the QP was made to signal every request.
    pub(super) signal_all: bool,
    pub(super) cq_slots: Reservation,
    pub(super) cq: CqId,
    pub(super) owner: Arc<dyn QueueOwner>,
    pub(super) guard: Guard,
    /// Registers the queue with the reader of the CQ.
    pub(super) _member: Option<Membership>,
}

impl SendRing {
    #[inline(always)]
    pub(super) fn qpn(&self) -> u32 {
        self.names.qpn()
    }

    /// Returns the queue's parameters for the lint.
    pub(super) fn facts<T: Transport>(&self) -> Option<lint::Facts> {
        Some(lint::Facts {
            qpn: Some(self.qpn()),
            blocks: Some(self.shape().entries()),
            max_sge: Some(self.limits.max_sge),
            max_inline: Some(self.limits.max_inline),
            cqes: Some(self.state.slots()),
            signal_all: self.signal_all,
            ..lint::Facts::new(guard::transport(T::TRANSPORT_KIND)?)
        })
    }

    /// Shape of the ring.
    #[inline(always)]
    pub(super) fn shape(&self) -> Shape {
        self.state.shape()
    }

    /// Counter of the next WQE to be posted.
    #[inline(always)]
    pub(super) fn head(&self) -> Counter {
        self.state.head()
    }

    /// Returns the point behind all posted WQEs.
    #[inline(always)]
    pub(super) fn end(&self) -> Point {
        self.state.end()
    }

    /// Returns the point behind all retired WQEs.
    #[inline(always)]
    pub(super) fn mark(&self) -> Point {
        self.state.mark()
    }

    pub(super) fn restart(&mut self) -> Result<(), QueueError> {
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
    pub(super) fn expects_cqe(&self, head: Counter) -> bool {
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
        let flags = unsafe { self.slots().block(at).add(FLAGS).read_volatile() };
        self.state.entry(at).key.blocks().is_some() && is_signaled(flags)
    }

    /// Tells timing and flight recorder that the HCA was just told of the WQEs before `head`.
    #[inline(always)]
    pub(super) fn rang(&mut self, head: Counter) {
        self.doorbell.timing.rang(head);
        // SAFETY: the queue's ring, which only its owner writes.
        unsafe { self.doorbell.flight.posted(self.buffer, self.shape(), head) }
    }

    /// Accepts posts again, at the current head, after an error and with nothing outstanding.
    pub(super) fn go_on(&mut self) {
        self.doorbell.flight.restart(self.head());
        self.state.resume();
        self.guard.restart();
        self.refill();
    }

    /// Checks the WQEs that were written up to `next`, before they are rung. On an error, the
    /// caller rings nothing, and leaves the queue as it was.
    #[inline(always)]
    pub(super) fn inspect(&mut self, next: Counter) -> Result<(), Refusal> {
        let head = self.head().low16();
        let blocks = self.shape().entries();
        let written = Written { buffer: self.buffer, blocks, state: &self.state };
        let looked = self.guard.inspect(&written, head, next.low16());
        if looked.is_err() {
            self.state.leave_open();
        }
        looked
    }

    #[inline(always)]
    pub(super) fn flags<O: Operation>(&self, operation: &O) -> u8 {
        operation.flags() | if self.signal_all { CE_ALWAYS } else { 0 }
    }

    /// Lets posts up to `clear` pass without a check.
    #[inline(always)]
    pub(super) fn grant(&mut self, clear: Counter) {
        let single = if self.doorbell.takes_words() { clear } else { self.head() };
        self.state.grant(clear, single);
    }

    /// Grants as much as possible, after everything that was written and not posted is abandoned.
    pub(super) fn refill(&mut self) {
        // The head always passes here before it has gone round the ring.
        self.state.end_run();
        self.state.abandon();
        self.grant_most();
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

    /// Writes a usual WQE at `at`, which is before `clear`. If the operation is not usual, writes
    /// nothing and returns `None`.
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
        if O::USUAL_DS == 0 || !operation.is_usual(&own.limits(self)) {
            return None;
        }
        // SAFETY: a usual WQE is no longer than a block. `check` would pass: a queue without
        // entries has no clear head. `own` is the ring's.
        Some(unsafe { self.encode_one::<O, false>(own, at, id, operation, O::USUAL_DS) })
    }

    /// Writes a WQE whose size is known only at run time, at `at`, which is before `clear`. The
    /// words of the segments before the payload are kept. If the operation is refused, is longer
    /// than a block, or has only a ctrl segment, writes nothing and returns `None`.
    #[inline(always)]
    pub(super) fn encode_short<T: Transport, O: PostOn<T>>(
        &mut self,
        at: Point,
        id: u64,
        operation: &O,
    ) -> Option<(Last, BlockImage)> {
        if operation.check(&self.limits).is_err() {
            return None;
        }
        let ds = 1 + operation.body_ds();
        if !(2..=UNITS).contains(&ds) {
            return None;
        }
        // SAFETY: `check` passed, and 2 to 4 units are no longer than a block.
        Some(unsafe { self.encode_one::<O, true>(InRing, at, id, operation, ds) })
    }

    /// Writes a WQE of `ds` units at `at`, which is before `clear`.
    ///
    /// # Safety
    /// - The WQE is no longer than a block, and passed its check.
    /// - The operation is usual, or `SHORT` is true.
    /// - `own` is this ring's.
    #[inline(always)]
    unsafe fn encode_one<O: Operation, const SHORT: bool>(
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
                own.slots(self).names.ctrl(at.at, code, ds),
                code,
                flags,
                operation.immediate(),
            )
        };
        let slot = own.slots(self).shape.slot(at.at);
        // The ring's offset is a multiple of the shadow's, and one address operation can compute it
        // from there. The compiler would shift twice instead.
        const { assert!(size_of::<Entry>() == 16 && WQEBB_SIZE == 64) };
        let offset = opaque(slot * size_of::<Entry>());
        // SAFETY: by the meaning of `clear`, a free block starts there. The HCA does not read it
        // before the producer index covers it, and nothing else writes it (`from_parts`). The WQE
        // is no longer than a block, so it ends before the ring does.
        let image = unsafe {
            let block = own.slots(self).buffer.byte_add(offset * (WQEBB_SIZE / size_of::<Entry>()));
            let mut writer = Block::new(block.as_ptr());
            writer.put(ctrl);
            let words = if SHORT {
                operation.put_short(&mut writer);
                writer.words()
            } else {
                operation.put_usual(&mut writer);
                writer.padded()
            };
            BlockImage { place: Place(offset), block: block.cast(), words }
        };
        // SAFETY: `offset` is that of the slot's entry. The shadow has an entry for every slot.
        let place = unsafe { own.slots(self).shadow.byte_add(offset) };
        let signaled = is_signaled(flags);
        let Code { opcode, modifier, .. } = operation.code();
        let key = if signaled && shadow::may_be_plain(opcode, modifier, ds) {
            Key::plain(own.slots(self).names.key, opcode, ctrl[0])
        } else {
            Key::other(opcode, ds, at.silent)
        };
        // SAFETY: the entry of the free block that was just written. Polls do not read it before
        // the head covers it.
        unsafe { place.write(Entry { id, key }) };
        self.doorbell.timing.stamp(Phase::Encode);
        (Last { doorbell: ctrl[0] }, image)
    }

    /// Posts the single WQE of [`encode_block`](Self::encode_block) at the cursor's head by
    /// BlueFlame. `head` is the one after the WQE.
    ///
    /// # Safety
    /// - Until the request is retired, the memory that it names stays registered and nothing else
    ///   uses it.
    /// - `image` is what `encode_block` or `encode_short` returned for the WQE at the cursor's head,
    ///   which was before `clear_single`.
    #[inline(always)]
    pub(super) unsafe fn commit_block(
        &mut self,
        head: Counter,
        image: BlockImage,
    ) -> Result<(), Refusal> {
        self.inspect(head)?;
        self.state.posted_block(head);
        // SAFETY: the WQE was just written to a block of the ring; usual WQEs have more than one
        // unit, and `clear_single` was ahead of the head, so the register takes a block.
        unsafe { self.doorbell.ring_block(head.low16(), image.words, image.block) }
        self.rang(head);
        Ok(())
    }

    /// Posts a single WQE by a [plain doorbell](SendDoorbell::ring_plain). `head` is the one after
    /// the WQE.
    ///
    /// # Safety
    /// - Until the request is retired, the memory that it names stays registered and nothing else
    ///   uses it.
    /// - The WQE before `head` was written, and `last` is it.
    /// - The doorbell [rings that way](SendDoorbell::rings_plain).
    #[cold]
    #[inline(always)]
    pub(super) unsafe fn commit_plain(&mut self, head: Counter, last: Last) -> Result<(), Refusal> {
        self.inspect(head)?;
        self.state.posted_block(head);
        // SAFETY: `last` is the last WQE before `head`.
        unsafe { self.doorbell.ring_plain(head.low16(), last.doorbell) }
        self.rang(head);
        Ok(())
    }

    /// Posts a single WQE to a register that takes no WQEs word by word, and that is not rung by a
    /// plain doorbell. `head` is the one after the WQE.
    ///
    /// Kept out of line, and cold for the compiler: inlined, or weighed, beside the other paths it
    /// would cost these registers.
    ///
    /// # Safety
    /// - Until the request is retired, the memory that it names stays registered and nothing else
    ///   uses it.
    /// - The WQE before `head` was written, and `last` is it.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn commit_other(&mut self, head: Counter, last: Last) -> Result<(), Refusal> {
        self.inspect(head)?;
        self.state.posted_block(head);
        let ring = self.blocks();
        // SAFETY: `last` is the last WQE before `head`; its blocks lie in this ring.
        unsafe { self.doorbell.ring_single(head.low16(), last.doorbell, ring) }
        self.rang(head);
        Ok(())
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
    pub(super) fn encode<T: Transport, O: PostOn<T>>(
        &mut self,
        at: Point,
        id: u64,
        operation: &O,
    ) -> Result<(Point, Last), PostError> {
        operation.check(&self.limits)?;
        let ds = 1 + operation.body_ds();
        let blocks = ds.div_ceil(UNITS);
        self.state.check_running()?;
        let flags = self.flags_at(at.at, operation);
        self.check_free(at, blocks, is_signaled(flags))?;

        self.state.note(operation.code().opcode);
        self.doorbell.timing.stamp(Phase::Reserve);
        // SAFETY: the blocks are free. The HCA does not read them before the producer index covers
        // them, and nothing else writes them (`from_parts`). `check` passed.
        let written = unsafe { self.slots().write(at, id, operation, flags, ds) };
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
        let written = unsafe { self.slots().write(at, id, operation, flags, ds) };
        self.doorbell.timing.stamp(Phase::Encode);
        Some(written)
    }

    /// Returns the memory that WQEs are written to.
    #[inline(always)]
    pub(super) fn slots(&self) -> Slots {
        Slots {
            shape: self.shape(),
            buffer: self.buffer,
            shadow: self.state.entries(),
            names: self.names,
        }
    }

    /// Returns the ring, for copying from it to the register.
    #[inline(always)]
    fn blocks(&self) -> Blocks {
        Blocks { start: self.buffer.cast(), count: self.shape().entries() }
    }

    /// Publishes all WQEs before `end` to the HCA, and rings.
    ///
    /// # Safety
    /// - Until each request is retired, the memory that it names stays registered and nothing else
    ///   uses it.
    /// - The WQEs before `end` were written, and `last` is the last of them.
    #[inline(always)]
    pub(super) unsafe fn commit(
        &mut self,
        end: Point,
        last: &Last,
        single: bool,
    ) -> Result<(), Refusal> {
        self.inspect(end.at)?;
        self.state.posted(end);
        let ring = self.blocks();
        // SAFETY: `last` is the last WQE before `end`; its blocks lie in this ring.
        unsafe { self.doorbell.ring(end.at.low16(), last.doorbell, single, ring) }
        self.rang(end.at);
        Ok(())
    }

    /// Posts a single WQE of one block by copying it to the register, whatever its size.
    ///
    /// # Safety
    /// - Until the request is retired, the memory that it names stays registered and nothing else
    ///   uses it.
    /// - The WQE before `end` was written and `last` is it. It has one block, and the register
    ///   takes one.
    pub(super) unsafe fn commit_copied(&mut self, end: Point, last: &Last) {
        self.state.posted(end);
        let ring = self.blocks();
        // The program does not count this as a post of its own.
        self.doorbell.timing.end();
        // SAFETY: `last` is the WQE before `end`, of one block in this ring, which the register
        // takes.
        unsafe { self.doorbell.ring_copied(end.at.low16(), last.doorbell, ring) }
        // SAFETY: the queue's ring, which only its owner writes.
        unsafe { self.doorbell.flight.posted(self.buffer, self.shape(), end.at) }
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
            self.slots().remember(at.at, end.silent, id, last, signaled);
        }
        self.state.posted(end);
        // SAFETY: the queue's ring; nothing writes WQEs that are posted and not retired.
        unsafe { self.doorbell.flight.adopted(self.buffer, self.shape(), end.at) }
    }
}

/// A WQE of one block: its place, its address, and those of its words that are known.
pub(super) struct BlockImage {
    pub(super) place: Place,
    block: NonNull<u64>,
    words: [Option<u64>; 8],
}

/// Returns the same number, but hides from the compiler how it was computed.
#[inline(always)]
pub(super) fn opaque(mut value: usize) -> usize {
    // Miri executes no assembly, and does not optimize.
    if cfg!(miri) {
        return value;
    }
    // SAFETY: the assembly is empty.
    unsafe {
        core::arch::asm!(
            "/* {0} */", inout(reg) value, options(pure, nomem, nostack, preserves_flags)
        );
    }
    value
}
