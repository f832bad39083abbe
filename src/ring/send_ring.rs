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
use super::cursor::Cursor;
use super::keys::Run;
use super::known::Membership;
use super::own::{InRing, Own, Place};
use super::prepared::Ready;
use super::shadow::{self, Entry, Key, Shadow};
use super::slots::{self, Last, Names, Posted, Slots, UNITS, ctrl_segment, is_signaled};
use super::source::{CompletionOrder, CqId, QueueOwner};
use super::written::Written;
use crate::doorbell::{Blocks, SendDoorbell};
use crate::error::QueueError;
use crate::ib::{Counter, Transport};
use crate::watch::lint::{self as guard, Guard, Refusal};
use crate::watch::timing::Phase;
use crate::wqe::{Block, Code, Limits, Operation, PostOn, Segments};

/// The state that send queues of all transports have in common.
pub struct SendRing {
    pub(crate) cursor: Cursor,
    pub(super) buffer: NonNull<u8>,
    pub(crate) doorbell: SendDoorbell,
    pub(super) names: Names,
    pub(super) limits: Limits,
    /// 16-byte units of a READ before its data segments: [`Transport::UNITS_BEFORE_PAYLOAD`].
    ///
    /// [`Transport::UNITS_BEFORE_PAYLOAD`]: crate::ib::Transport::UNITS_BEFORE_PAYLOAD
    pub(super) units_before_payload: u32,
    /// Whether the QP was made to signal every request.
    pub(super) signal_all: bool,
    /// Up to this head, counted from the cursor's own, one-block WQEs can be posted without further
    /// checks: there are enough blocks and CQ slots. It may be too low: retiring does not move it.
    /// The next post that reaches it does.
    pub(super) clear: Counter,
    /// Like `clear`, for single WQEs that go by BlueFlame word by word. At or before the cursor's
    /// head if the register does not take blocks this way.
    pub(super) clear_single: Counter,
    /// An error completion was seen, or the device failed. No more posts until the queue is
    /// restarted.
    pub(super) stopped: bool,
    /// The device failed. No more posts.
    pub(super) device_failed: bool,
    /// Whether posts need further checks even if all is well: requests cannot have entries, or some
    /// have changed keys.
    pub(super) careful: bool,
    /// A run of consecutive key changes.
    pub(super) run: Run,
    /// Number of blocks, posted and retired, in which no WQE begins: see [`Key::slack`].
    pub(super) slack: u32,
    pub(super) slack_retired: u32,
    pub(crate) shadow: Shadow,
    pub(super) cq_slots: Reservation,
    pub(super) cq: CqId,
    /// The order in which requests complete. If it is any, a comparison with the oldest WQE's entry
    /// does not suffice to retire it, and the shadow expects nothing.
    pub(super) order: CompletionOrder,
    /// The WQE that was retired last, if requests complete in any order.
    pub(super) last: Counter,
    /// Prepared WQEs that may be fired without further checks.
    pub(super) ready: Ready,
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
            blocks: Some(self.cursor.shape().entries()),
            max_sge: Some(self.limits.max_sge),
            max_inline: Some(self.limits.max_inline),
            cqes: Some(self.cq_slots.entries()),
            signal_all: self.signal_all,
            ..lint::Facts::new(guard::transport(T::TRANSPORT_KIND)?)
        })
    }

    pub(super) fn restart(&mut self) -> Result<(), QueueError> {
        // libmlx5 clears the record on the way through RESET.
        if self.doorbell.record().read() != 0 {
            return Err(QueueError::NotReset);
        }
        self.doorbell.enter();
        self.cursor = Cursor::new(self.cursor.shape(), Counter::default());
        if self.order == CompletionOrder::Posting {
            self.shadow.set_tail(self.cursor.tail());
        }
        self.forget_unposted();
        self.set_clear(self.cursor.head());
        self.run = Run::none(self.cursor.head());
        self.slack_retired = self.slack;
        self.stopped = false;
        self.guard.restart();
        self.doorbell.timing.restart();
        self.doorbell.flight.restart(self.cursor.head());
        Ok(())
    }

    /// Returns whether a WQE before `head` that is not retired is signaled.
    pub(super) fn expects_cqe(&self, head: Counter) -> bool {
        self.last_signaled(head).is_some()
    }

    /// Returns the counter of the last signaled WQE before `head`, if it is not retired. Costs up
    /// to two loads per block after it.
    pub(super) fn last_signaled(&self, head: Counter) -> Option<Counter> {
        let tail = self.cursor.tail();
        (0..head.since(tail)).rev().map(|ahead| tail.plus(ahead)).find(|at| self.asks_for_cqe(*at))
    }

    /// Returns whether a WQE begins in this block and asks for a CQE, according to the WQE.
    fn asks_for_cqe(&self, at: Counter) -> bool {
        const FLAGS: usize = offset_of!(CtrlSeg, fm_ce_se);
        // SAFETY: a byte of a block of the ring, which lives as long as this structure.
        let flags = unsafe { self.slots().block(at).add(FLAGS).read_volatile() };
        self.shadow.get(at).key.blocks().is_some() && is_signaled(flags)
    }

    /// Tells timing and flight recorder that the HCA was just told of the WQEs before `head`.
    #[inline(always)]
    pub(super) fn rang(&mut self, head: Counter) {
        self.doorbell.timing.rang(head);
        // SAFETY: the queue's ring, which only its owner writes.
        unsafe { self.doorbell.flight.posted(self.buffer, self.cursor.shape(), head) }
    }

    /// Accepts posts again, at the current head, after an error and with nothing outstanding.
    pub(super) fn go_on(&mut self) {
        self.doorbell.flight.restart(self.cursor.head());
        self.forget_unposted();
        self.slack_retired = self.slack;
        self.stopped = false;
        self.guard.restart();
        self.set_clear(self.cursor.head());
    }

    /// Checks the WQEs that were written up to `next`, before they are rung. On an error, the
    /// caller rings nothing, and leaves the queue as it was.
    #[inline(always)]
    pub(super) fn inspect(&mut self, next: Counter) -> Result<(), Refusal> {
        let head = self.cursor.head().low16();
        let shape = self.cursor.shape();
        let written =
            Written { buffer: self.buffer, blocks: shape.entries(), shadow: &self.shadow };
        let looked = self.guard.inspect(&written, head, next.low16());
        if looked.is_err() {
            // WQEs that are written and not posted must not look posted to polls.
            self.shadow.pause();
            self.run.end();
        }
        looked
    }

    #[inline(always)]
    pub(super) fn flags<O: Operation>(&self, operation: &O) -> u8 {
        operation.flags() | if self.signal_all { CE_ALWAYS } else { 0 }
    }

    /// Sets `clear` after the head was moved.
    #[inline(always)]
    pub(super) fn set_clear(&mut self, clear: Counter) {
        let head = self.cursor.head();
        (self.clear, self.clear_single) =
            (clear, if self.doorbell.takes_words() { clear } else { head });
    }

    /// Called before entries from the head on are written that may never be posted. From now on
    /// polls take the slow path, which checks the head, too.
    #[inline(always)]
    pub(super) fn open(&mut self) {
        if self.is_open() {
            self.forget_unposted();
        }
        self.shadow.pause();
        self.run.end();
    }

    /// Called after all entries that were written since [`open`](Self::open) were posted.
    #[inline(always)]
    pub(super) fn close(&mut self) {
        self.shadow.resume();
    }

    /// Returns whether entries from the head on may look posted and are not.
    #[inline(always)]
    pub(super) fn is_open(&self) -> bool {
        self.shadow.is_paused()
    }

    /// Clears entries that were written and not posted. Costs a store per free block.
    #[cold]
    #[inline(never)]
    fn forget_unposted(&mut self) {
        let head = self.cursor.head();
        for ahead in 0..self.cursor.free_from(head) {
            self.shadow.set(head.plus(ahead), Entry::NONE);
        }
        self.close();
    }

    /// Moves `clear` as far as possible, and clears entries that were written and not posted.
    pub(super) fn refill(&mut self) {
        // The head always passes here before it has gone round the ring.
        self.run = Run::none(self.cursor.head());
        if self.is_open() {
            self.forget_unposted();
        }
        self.set_clear(self.clear_from(self.cursor.head(), self.slack));
    }

    /// Returns the furthest [`clear`](Self::clear) for a queue that is, provisionally, at these
    /// counts.
    #[cold]
    #[inline(never)]
    pub(super) fn clear_from(&self, head: Counter, slack: u32) -> Counter {
        let clear = self.clear_keeping(head, slack, 1);
        // Asked only for the last block or slot: it looks at all outstanding requests if none is
        // signaled.
        if clear == head && self.expects_cqe(head) {
            return self.clear_keeping(head, slack, 0);
        }
        clear
    }

    /// Returns the furthest [`clear`](Self::clear) that leaves `kept` blocks and CQ slots free.
    fn clear_keeping(&self, head: Counter, slack: u32, kept: u32) -> Counter {
        if self.stopped || self.careful && !self.may_be_clear(head) {
            return head;
        }
        let (free, slots) = self.free(head, slack);
        head.plus(free.min(slots).saturating_sub(kept))
    }

    /// Returns the numbers of free blocks and of free CQ slots for a queue that is, provisionally,
    /// at these counts.
    #[inline(always)]
    pub(super) fn free(&self, head: Counter, slack: u32) -> (u32, u32) {
        let slots = self.cq_slots.entries() - self.requests(head, slack);
        (self.cursor.free_from(head), slots)
    }

    /// Returns why the queue is stopped.
    #[cold]
    pub(super) fn why_stopped(&self) -> PostError {
        if self.device_failed { PostError::DeviceFailed } else { PostError::WrongState }
    }

    /// Checks that there are blocks and a CQ slot for a request at `head`. While no signaled
    /// request is outstanding, the last block and the last slot stay free for one: its completion
    /// retires the others. Otherwise the completion of the signaled one makes both free.
    #[inline(always)]
    fn check_free(
        &self,
        head: Counter,
        slack: u32,
        blocks: u32,
        signaled: bool,
    ) -> Result<(), PostError> {
        let (free, slots) = self.free(head, slack);
        if blocks < free && slots > 1 {
            return Ok(());
        }
        self.check_last(head, (free, slots), blocks, signaled)
    }

    /// Handles [`check_free`](Self::check_free) for a request that would take the last free block
    /// or slot, or more.
    #[cold]
    #[inline(never)]
    fn check_last(
        &self,
        head: Counter,
        (free, slots): (u32, u32),
        blocks: u32,
        signaled: bool,
    ) -> Result<(), PostError> {
        let fits = blocks <= free && slots != 0;
        if fits && (signaled || self.expects_cqe(head)) {
            return Ok(());
        }
        Err(if !self.expects_cqe(head) {
            PostError::NothingSignaled { outstanding: head.since(self.cursor.tail()) }
        } else if blocks > free {
            PostError::QueueFull { free }
        } else {
            PostError::CqFull { slots: self.cq_slots.entries() }
        })
    }

    /// Returns whether a request at `head` may be posted without further checks.
    #[cold]
    fn may_be_clear(&self, head: Counter) -> bool {
        self.limits.max_sge != 0 && !self.follows_key_change(head)
    }

    /// Returns whether the WQE before `head` changes keys. The WQE at `head` then waits for it, as
    /// with libmlx5.
    #[inline(always)]
    fn follows_key_change(&self, head: Counter) -> bool {
        let before = head.plus(1u32.wrapping_neg());
        self.careful && slots::changes_keys(self.shadow.get(before).key.opcode())
    }

    /// Returns `fm_ce_se` of a WQE at `head`: the operation's flags, and the small fence after a
    /// key change. A request's own fence includes the small fence.
    #[inline(always)]
    fn flags_at<O: Operation>(&self, head: Counter, operation: &O) -> u8 {
        let flags = self.flags(operation);
        let waits = flags & FENCE_MASK == FENCE_NONE && self.follows_key_change(head);
        flags | if waits { FENCE_INITIATOR_SMALL } else { FENCE_NONE }
    }

    /// Returns the number of outstanding WQEs if the queue is, provisionally, at these counts. A
    /// queue pair that fails writes a CQE for each, signaled or not.
    #[inline(always)]
    pub(super) fn requests(&self, head: Counter, slack: u32) -> u32 {
        head.since(self.cursor.tail()).wrapping_sub(slack.wrapping_sub(self.slack_retired))
    }

    /// Writes a usual WQE at `head`, which is before `clear`. If the operation is not usual, writes
    /// nothing and returns `None`.
    ///
    /// # Safety
    /// `own` is this ring's.
    #[inline(always)]
    pub(super) unsafe fn encode_block<T: Transport, O: PostOn<T>>(
        &mut self,
        own: impl Own,
        head: Counter,
        slack: u32,
        id: u64,
        operation: &O,
    ) -> Option<(Last, BlockImage)> {
        if O::USUAL_DS == 0 || !operation.is_usual(&own.limits(self)) {
            return None;
        }
        // SAFETY: a usual WQE is no longer than a block. `check` would pass: a queue without
        // entries has no clear head. `own` is the ring's.
        Some(unsafe { self.encode_one::<O, false>(own, head, slack, id, operation, O::USUAL_DS) })
    }

    /// Writes a WQE whose size is known only at run time, at `head`, which is before `clear`. The
    /// words of the segments before the payload are kept. If the operation is refused, is longer
    /// than a block, or has only a ctrl segment, writes nothing and returns `None`.
    #[inline(always)]
    pub(super) fn encode_short<T: Transport, O: PostOn<T>>(
        &mut self,
        head: Counter,
        slack: u32,
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
        Some(unsafe { self.encode_one::<O, true>(InRing, head, slack, id, operation, ds) })
    }

    /// Writes a WQE of `ds` units at `head`, which is before `clear`.
    ///
    /// # Safety
    /// - The WQE is no longer than a block, and passed its check.
    /// - The operation is usual, or `SHORT` is true.
    /// - `own` is this ring's.
    #[inline(always)]
    unsafe fn encode_one<O: Operation, const SHORT: bool>(
        &mut self,
        own: impl Own,
        head: Counter,
        slack: u32,
        id: u64,
        operation: &O,
        ds: u32,
    ) -> (Last, BlockImage) {
        let flags = self.flags(operation);
        self.doorbell.timing.stamp(Phase::Reserve);
        let ctrl = {
            let code = operation.code();
            ctrl_segment(
                own.slots(self).names.ctrl(head, code, ds),
                code,
                flags,
                operation.immediate(),
            )
        };
        let slot = own.slots(self).shape.slot(head);
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
            Key::other(opcode, ds, slack)
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
        self.cursor.publish(head);
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
        self.cursor.publish(head);
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
        self.cursor.publish(head);
        let ring = Blocks { start: self.buffer.cast(), count: self.cursor.shape().entries() };
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
        head: Counter,
        slack: u32,
        id: u64,
        operation: &O,
    ) -> Result<(Counter, u32, Last, Counter), PostError> {
        self.run = Run::none(self.cursor.head());
        let (head, slack, last) = self.encode::<T, O>(head, slack, id, operation)?;
        Ok((head, slack, last, self.clear_keeping(head, slack, 1)))
    }

    /// Writes a WQE at `head`, which is at or after the cursor's own. Returns the head after it,
    /// the slack after it, and the data for its doorbell.
    #[inline(always)]
    pub(super) fn encode<T: Transport, O: PostOn<T>>(
        &mut self,
        head: Counter,
        slack: u32,
        id: u64,
        operation: &O,
    ) -> Result<(Counter, u32, Last), PostError> {
        operation.check(&self.limits)?;
        let ds = 1 + operation.body_ds();
        let blocks = ds.div_ceil(UNITS);
        if self.stopped {
            return Err(self.why_stopped());
        }
        let flags = self.flags_at(head, operation);
        self.check_free(head, slack, blocks, is_signaled(flags))?;

        self.careful |= slots::changes_keys(operation.code().opcode);
        let slack = slack.wrapping_add(blocks - 1);
        self.doorbell.timing.stamp(Phase::Reserve);
        // SAFETY: the blocks are free. The HCA does not read them before the producer index covers
        // them, and nothing else writes them (`from_parts`). `check` passed.
        let last = unsafe { self.slots().write(head, slack, id, operation, flags, ds) };
        self.doorbell.timing.stamp(Phase::Encode);
        Ok((head.plus(blocks), slack, last))
    }

    /// Writes a WQE of any size if it fits before `clear`. Checks only the operation. If the WQE
    /// does not fit or is refused, writes nothing and returns `None`.
    #[inline(always)]
    pub(super) fn encode_sized<T: Transport, O: PostOn<T>>(
        &mut self,
        head: Counter,
        clear: Counter,
        slack: u32,
        id: u64,
        operation: &O,
    ) -> Option<(Counter, u32, Last)> {
        // A WQE that changes keys moves `clear` back to the head after it.
        if slots::changes_keys(operation.code().opcode) || operation.check(&self.limits).is_err() {
            return None;
        }
        let ds = 1 + operation.body_ds();
        let blocks = ds.div_ceil(UNITS);
        // Each block before `clear` also stands for a CQ slot, and a WQE needs no more slots than
        // blocks.
        if blocks > clear.since(head) {
            return None;
        }
        let flags = self.flags(operation);
        let slack = slack.wrapping_add(blocks - 1);
        self.doorbell.timing.stamp(Phase::Reserve);
        // SAFETY: the blocks before `clear` are free. The HCA does not read them before the
        // producer index covers them, and nothing else writes them (`from_parts`). `check` passed.
        let last = unsafe { self.slots().write(head, slack, id, operation, flags, ds) };
        self.doorbell.timing.stamp(Phase::Encode);
        Some((head.plus(blocks), slack, last))
    }

    /// Returns the memory that WQEs are written to.
    #[inline(always)]
    pub(super) fn slots(&self) -> Slots {
        Slots {
            shape: self.cursor.shape(),
            buffer: self.buffer,
            shadow: self.shadow.first(),
            names: self.names,
        }
    }

    /// Publishes the producer index `head` to the HCA, and rings.
    ///
    /// # Safety
    /// - Until each request is retired, the memory that it names stays registered and nothing else
    ///   uses it.
    /// - The WQEs before `head` were written, and `last` is the last of them.
    #[inline(always)]
    pub(super) unsafe fn commit(
        &mut self,
        head: Counter,
        slack: u32,
        last: &Last,
        single: bool,
    ) -> Result<(), Refusal> {
        self.inspect(head)?;
        self.cursor.publish(head);
        self.slack = slack;
        let ring = Blocks { start: self.buffer.cast(), count: self.cursor.shape().entries() };
        // SAFETY: `last` is the last WQE before `head`; its blocks lie in this ring.
        unsafe { self.doorbell.ring(head.low16(), last.doorbell, single, ring) }
        self.rang(head);
        Ok(())
    }

    /// Posts a single WQE of one block by copying it to the register, whatever its size.
    ///
    /// # Safety
    /// - Until the request is retired, the memory that it names stays registered and nothing else
    ///   uses it.
    /// - The WQE before `head` was written and `last` is it. It has one block, and the register
    ///   takes one.
    pub(super) unsafe fn commit_copied(&mut self, head: Counter, slack: u32, last: &Last) {
        self.cursor.publish(head);
        self.slack = slack;
        let ring = Blocks { start: self.buffer.cast(), count: self.cursor.shape().entries() };
        // The program does not count this as a post of its own.
        self.doorbell.timing.end();
        // SAFETY: `last` is the WQE before `head`, of one block in this ring, which the register
        // takes.
        unsafe { self.doorbell.ring_copied(head.low16(), last.doorbell, ring) }
        // SAFETY: the queue's ring, which only its owner writes.
        unsafe { self.doorbell.flight.posted(self.buffer, self.cursor.shape(), head) }
    }

    /// Counts a WQE that producers of a shared queue wrote and rang at the head as posted.
    #[inline(always)]
    pub(super) fn adopt(&mut self, posted: &Posted) {
        let head = self.cursor.head();
        let (_, ds) = posted.last.code_and_ds();
        let blocks = ds.div_ceil(UNITS);
        self.slack = self.slack.wrapping_add(blocks - 1);
        // SAFETY: only the retirer uses a shared queue's shadow, and the WQE is posted.
        unsafe {
            let Posted { id, last, signaled } = *posted;
            self.slots().remember(head, self.slack, id, last, signaled);
        }
        let head = head.plus(blocks);
        self.cursor.publish(head);
        // SAFETY: the queue's ring; nothing writes WQEs that are posted and not retired.
        unsafe { self.doorbell.flight.adopted(self.buffer, self.cursor.shape(), head) }
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
