//! The send ring: what send queues of all transports have in common.

use core::mem::offset_of;
use core::ptr::NonNull;

use mlx5_sys::cqe::opcode as cqe_opcode;
use mlx5_sys::verbs::ibv_qp;
use mlx5_sys::wqe::{CE_ALWAYS, CE_MASK, CtrlSeg, SEGMENT_SIZE, WQEBB_SIZE, opcode};

use super::completion::CqId;
use super::credit::Credit;
use super::cursor::{Counter, Cursor, Shape};
use super::ready::Ready;
use super::shadow::{self, Entry, Key, Shadow};
use super::shared::Sequencer;
use super::{PostError, QueueError, scatter};
use crate::cqe::{
    Completion, CqeRef, Failure, QueueKind, SendDone, SendOperation, Status, Unclaimed,
    UnclaimedReason,
};
use crate::doorbell::{Blocks, SendDoorbell};
use crate::timing::Phase;
use crate::verbs::Transport;
use crate::wqe::{Block, Limits, Linear, Operation, PostOn, Segment, Segments, Wrapping};

/// 16-byte units in a 64-byte block.
pub(super) const UNITS: u32 = (WQEBB_SIZE / SEGMENT_SIZE) as u32;

/// What is common to send queues of all transports.
pub(super) struct SendRing {
    pub(super) cursor: Cursor,
    pub(super) buffer: NonNull<u8>,
    pub(super) doorbell: SendDoorbell,
    pub(super) names: Names,
    pub(super) limits: Limits,
    /// The QP was made to signal every request.
    pub(super) signal_all: bool,
    /// Up to this head, from the cursor's own on, one-block WQEs can be posted without a look at
    /// anything else: there are blocks for them, and CQEs if all are signaled. Never more than
    /// that, often less: retiring does not move it, the next post that meets it does.
    pub(super) clear: Counter,
    /// As `clear`, for WQEs that are posted singly and go by BlueFlame word by word; the cursor's
    /// head where the register does not take blocks so.
    pub(super) clear_single: Counter,
    /// An error completion was seen; no more posts until the queue is restarted.
    pub(super) stopped: bool,
    /// Blocks that bring no CQE, posted, and retired: see [`Key::slack`].
    pub(super) slack: u32,
    pub(super) slack_retired: u32,
    pub(super) shadow: Shadow,
    pub(super) credit: Credit,
    pub(super) cq: CqId,
    /// The CQ whose CQEs may be compared with the oldest WQE's entry: `cq`, or none while entries
    /// from the head on may look posted and are not.
    pub(super) expects: CqId,
    /// WQEs that were written ahead and may be posted with nothing looked at.
    pub(super) ready: Ready,
    pub(super) qp: NonNull<ibv_qp>,
}

/// A queue pair's number, ready for use.
#[derive(Clone, Copy)]
pub(super) struct Names {
    /// In bits 31–8, as in the ctrl segment.
    qpn_shifted: u64,
    /// [`Key::base`].
    pub(super) key: u64,
}

impl Names {
    #[inline(always)]
    fn qpn(self) -> u32 {
        (self.qpn_shifted >> 8) as u32
    }

    pub(super) fn new(qpn: u32) -> Self {
        Self { qpn_shifted: u64::from(qpn) << 8, key: Key::base(qpn) }
    }

    /// `opmod_idx_opcode` and `qpn_ds` of a ctrl segment, as one number.
    #[inline(always)]
    pub(super) fn ctrl(self, head: Counter, opcode: u8, ds: u32) -> u64 {
        // What the compiler knows in one term.
        let known = u64::from(opcode) << 32 | u64::from(ds);
        u64::from(head.low16()) << 40 | self.qpn_shifted | known
    }
}

impl SendRing {
    #[inline(always)]
    pub(super) fn qpn(&self) -> u32 {
        self.names.qpn()
    }

    pub(super) fn restart(&mut self) -> Result<(), QueueError> {
        // libmlx5 clears the record on the way through RESET.
        if self.doorbell.record().read() != 0 {
            return Err(QueueError::NotReset);
        }
        self.cursor = Cursor::new(self.cursor.shape(), Counter::default());
        self.shadow.set_tail(self.cursor.tail());
        self.forget_unposted();
        self.set_clear(self.cursor.head());
        self.slack_retired = self.slack;
        self.stopped = false;
        self.doorbell.timing.restart();
        Ok(())
    }

    #[inline(always)]
    pub(super) fn flags<O: Operation>(&self, operation: &O) -> u8 {
        operation.flags() | if self.signal_all { CE_ALWAYS } else { 0 }
    }

    /// After the head was moved.
    #[inline(always)]
    pub(super) fn set_clear(&mut self, clear: Counter) {
        let head = self.cursor.head();
        (self.clear, self.clear_single) =
            (clear, if self.doorbell.takes_words() { clear } else { head });
    }

    /// Before entries from the head on are written that may never be posted: from now on polls take
    /// the longer way, which looks at the head, too.
    #[inline(always)]
    pub(super) fn open(&mut self) {
        if self.expects != self.cq {
            self.forget_unposted();
        }
        self.expects = CqId::NONE;
    }

    /// After all entries that were written since [`open`](Self::open) were posted.
    #[inline(always)]
    pub(super) fn close(&mut self) {
        self.expects = self.cq;
    }

    /// Forgets what was written and not posted. Costs a store per free block.
    #[cold]
    #[inline(never)]
    fn forget_unposted(&mut self) {
        let head = self.cursor.head();
        for ahead in 0..self.cursor.free_from(head) {
            self.shadow.set(head.plus(ahead), Entry::NONE);
        }
        self.expects = self.cq;
    }

    /// Moves `clear` as far as it can be, and forgets what was written and not posted.
    pub(super) fn refill(&mut self) {
        if self.expects != self.cq {
            self.forget_unposted();
        }
        self.set_clear(self.clear_from(self.cursor.head(), self.slack));
    }

    /// What [`clear`](Self::clear) can be when the queue is, provisionally, at these counts.
    #[cold]
    #[inline(never)]
    pub(super) fn clear_from(&self, head: Counter, slack: u32) -> Counter {
        if self.stopped || self.limits.max_sge == 0 {
            return head;
        }
        let signals = self.credit.entries() - self.signals(head, slack);
        head.plus(self.cursor.free_from(head).min(signals))
    }

    /// Signaled WQEs that are outstanding when the queue is, provisionally, at these counts.
    #[inline(always)]
    fn signals(&self, head: Counter, slack: u32) -> u32 {
        head.since(self.cursor.tail()).wrapping_sub(slack.wrapping_sub(self.slack_retired))
    }

    /// Writes a usual WQE at `head`, which is before `clear`. `None`, and nothing is written, if it
    /// is not a usual one.
    #[inline(always)]
    pub(super) fn encode_block<T: Transport, O: PostOn<T>>(
        &mut self,
        names: Names,
        head: Counter,
        slack: u32,
        id: u64,
        operation: &O,
    ) -> Option<(u32, Last, BlockImage)> {
        if O::USUAL_DS == 0 || !operation.is_usual(&self.limits) {
            return None;
        }
        // SAFETY: a usual WQE is no longer than a block, and `check` would pass: a queue without
        // entries has no clear head.
        Some(unsafe { self.encode_one::<O, false>(names, head, slack, id, operation, O::USUAL_DS) })
    }

    /// As [`encode_block`](Self::encode_block), for a WQE whose size is known at run time only, of
    /// which the segments before the payload are kept as words. `None`, and nothing is written, if
    /// it is refused, is longer than a block, or is a ctrl segment only.
    #[inline(always)]
    pub(super) fn encode_short<T: Transport, O: PostOn<T>>(
        &mut self,
        names: Names,
        head: Counter,
        slack: u32,
        id: u64,
        operation: &O,
    ) -> Option<(u32, Last, BlockImage)> {
        if operation.check(&self.limits).is_err() {
            return None;
        }
        let ds = 1 + operation.body_ds();
        if !(2..=UNITS).contains(&ds) {
            return None;
        }
        // SAFETY: as the lines above say.
        Some(unsafe { self.encode_one::<O, true>(names, head, slack, id, operation, ds) })
    }

    /// Writes a WQE of `ds` units at `head`, which is before `clear`.
    ///
    /// # Safety
    /// It is no longer than a block, and passed its check. It is a usual one, or `SHORT`.
    #[inline(always)]
    unsafe fn encode_one<O: Operation, const SHORT: bool>(
        &mut self,
        names: Names,
        head: Counter,
        slack: u32,
        id: u64,
        operation: &O,
        ds: u32,
    ) -> (u32, Last, BlockImage) {
        let flags = self.flags(operation);
        self.doorbell.timing.stamp(Phase::Reserve);
        let ctrl = ctrl_segment(names.ctrl(head, O::OPCODE, ds), flags, operation.immediate());
        let slot = self.cursor.shape().slot(head);
        // Of the two offsets, the ring's is a multiple of the shadow's that address arithmetic can
        // make from it; the compiler would rather shift twice.
        const { assert!(size_of::<Entry>() == 16 && WQEBB_SIZE == 64) };
        let offset = opaque(slot * size_of::<Entry>());
        // SAFETY: a free block starts there, by `clear`'s meaning; the card does not read it before
        // the producer index covers it, and nobody else writes it (`from_parts`). The WQE is no
        // longer than a block, so it ends before the ring does.
        let image = unsafe {
            let block = self.buffer.byte_add(offset * (WQEBB_SIZE / size_of::<Entry>()));
            let mut writer = Block::new(block.as_ptr());
            writer.put(ctrl);
            if SHORT {
                operation.put_short(&mut writer);
            } else {
                operation.put_usual(&mut writer);
            }
            BlockImage { block: block.cast(), words: writer.words() }
        };
        // SAFETY: an entry of the shadow, which has one for every slot.
        let place = unsafe { self.shadow.first().byte_add(offset) };
        let signaled = flags & CE_MASK == CE_ALWAYS;
        let (slack, key) = if signaled && shadow::may_be_plain(O::OPCODE, ds) {
            (slack, Key::plain(names.key, O::OPCODE, ctrl[0]))
        } else {
            let slack = slack.wrapping_add(u32::from(!signaled));
            (slack, Key::other(O::OPCODE, ds, slack))
        };
        // SAFETY: as above.
        unsafe { place.write(Entry { id, key }) };
        self.doorbell.timing.stamp(Phase::Encode);
        (slack, Last { doorbell: ctrl[0] }, image)
    }

    /// Makes a single WQE of [`encode_block`](Self::encode_block), at the cursor's head, known to
    /// the card by BlueFlame.
    ///
    /// # Safety
    /// As [`Batch::ring`]; the head was before `clear_single`, and the rest is what that returned.
    #[inline(always)]
    pub(super) unsafe fn commit_block(&mut self, slack: u32, image: BlockImage) {
        let head = self.cursor.head().plus(1);
        self.cursor.publish(head);
        self.slack = slack;
        // SAFETY: the WQE was just written to a block of the ring; usual WQEs have more than one
        // unit, and `clear_single` was ahead of the head, so the register takes a block.
        unsafe { self.doorbell.ring_block(head.low16(), image.words, image.block) }
        self.doorbell.timing.rang(head);
    }

    /// As [`commit_block`](Self::commit_block), for a register that takes WQEs in another way than word
    /// by word, or not at all; `head` is the one after the WQE.
    ///
    /// A call of its own, and a cold one to the compiler: inlined, or weighed, beside the other
    /// path it would cost that one registers.
    ///
    /// # Safety
    /// As [`Batch::ring`]; the WQE before `head` was written, `last` is it.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn commit_plain(&mut self, head: Counter, slack: u32, last: Last) {
        self.clear_single = head;
        // SAFETY: passed on.
        unsafe { self.commit(head, slack, &last, true) }
    }

    /// [`encode`](Self::encode), apart from the hot path, and what `clear` is afterwards.
    #[cold]
    #[inline(never)]
    pub(super) fn encode_any<T: Transport, O: PostOn<T>>(
        &mut self,
        head: Counter,
        slack: u32,
        id: u64,
        operation: &O,
    ) -> Result<(Counter, u32, Last, Counter), PostError> {
        let (head, slack, last) = self.encode::<T, O>(head, slack, id, operation)?;
        Ok((head, slack, last, self.clear_from(head, slack)))
    }

    /// Writes a WQE at `head`, which is at or after the cursor's own. Returns the head after it,
    /// the slack after it, and what its doorbell needs.
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
            return Err(PostError::WrongState);
        }
        if blocks > self.cursor.free_from(head) {
            return Err(PostError::QueueFull);
        }
        let flags = self.flags(operation);
        let signaled = flags & CE_MASK == CE_ALWAYS;
        if signaled && self.signals(head, slack) >= self.credit.entries() {
            return Err(PostError::CqOverrun);
        }

        let slack = slack.wrapping_add(blocks - u32::from(signaled));
        self.doorbell.timing.stamp(Phase::Reserve);
        // SAFETY: the blocks are free; the card does not read them before the producer index covers
        // them, and nobody else writes them (`from_parts`). `check` passed.
        let last = unsafe { self.slots().write(head, slack, id, operation, flags, ds) };
        self.doorbell.timing.stamp(Phase::Encode);
        Ok((head.plus(blocks), slack, last))
    }

    /// As [`encode`](Self::encode), for WQEs of any size that fit before `clear`, at no further look
    /// at anything but the operation. `None`, and nothing is written, if it does not, or is refused.
    #[inline(always)]
    pub(super) fn encode_sized<T: Transport, O: PostOn<T>>(
        &mut self,
        head: Counter,
        clear: Counter,
        slack: u32,
        id: u64,
        operation: &O,
    ) -> Option<(Counter, u32, Last)> {
        if operation.check(&self.limits).is_err() {
            return None;
        }
        let ds = 1 + operation.body_ds();
        let blocks = ds.div_ceil(UNITS);
        // A block before `clear` is also a CQE, and a WQE has no more of these than blocks.
        if blocks > clear.since(head) {
            return None;
        }
        let flags = self.flags(operation);
        let slack = slack.wrapping_add(blocks - u32::from(flags & CE_MASK == CE_ALWAYS));
        self.doorbell.timing.stamp(Phase::Reserve);
        // SAFETY: as in `encode`.
        let last = unsafe { self.slots().write(head, slack, id, operation, flags, ds) };
        self.doorbell.timing.stamp(Phase::Encode);
        Some((head.plus(blocks), slack, last))
    }

    /// Where WQEs go.
    #[inline(always)]
    pub(super) fn slots(&self) -> Slots {
        Slots {
            shape: self.cursor.shape(),
            buffer: self.buffer,
            shadow: self.shadow.first(),
            names: self.names,
        }
    }

    /// Makes everything before `head` known to the card.
    ///
    /// # Safety
    /// As [`Batch::ring`]; the WQEs before `head` were written, `last` is the last of them.
    #[inline(always)]
    pub(super) unsafe fn commit(&mut self, head: Counter, slack: u32, last: &Last, single: bool) {
        self.cursor.publish(head);
        self.slack = slack;
        let ring = Blocks { start: self.buffer.cast(), count: self.cursor.shape().entries() };
        // SAFETY: `last` is the last WQE before `head`; its blocks lie in this ring.
        unsafe { self.doorbell.ring(head.low16(), last.doorbell, single, ring) }
        self.doorbell.timing.rang(head);
    }

    /// As [`commit`](Self::commit), of a single WQE of one block, which is copied to the register,
    /// whatever its size.
    ///
    /// # Safety
    /// As there; the register takes a block.
    pub(super) unsafe fn commit_copied(&mut self, head: Counter, slack: u32, last: &Last) {
        self.cursor.publish(head);
        self.slack = slack;
        let ring = Blocks { start: self.buffer.cast(), count: self.cursor.shape().entries() };
        // Not a post of the program's.
        self.doorbell.timing.end();
        // SAFETY: as there.
        unsafe { self.doorbell.ring_copied(head.low16(), last.doorbell, ring) }
    }

    /// Counts a WQE as posted, at the head, that producers of a shared queue wrote and rang.
    #[inline(always)]
    pub(super) fn adopt(&mut self, posted: &Posted) {
        let head = self.cursor.head();
        let (opcode, ds) = posted.last.opcode_and_ds();
        let blocks = ds.div_ceil(UNITS);
        self.slack = self.slack.wrapping_add(blocks - u32::from(posted.signaled));
        // SAFETY: a shared queue's shadow is its retirer's alone, and the WQE is posted.
        unsafe {
            let Posted { id, last, signaled } = *posted;
            self.slots().remember(head, self.slack, id, last, opcode, signaled, ds);
        }
        self.cursor.publish(head.plus(blocks));
    }

    /// Tells producers of a shared queue what is retired.
    #[inline(always)]
    fn tell(&self, retired: Option<&Sequencer>) {
        if let Some(retired) = retired {
            let tail = self.cursor.tail().since(Counter::default());
            retired.retire(tail, tail.wrapping_sub(self.slack_retired) as u16);
        }
    }

    /// Retires the outstanding plain WQE that a CQE of the CQ `cq` with these last eight bytes
    /// reports, and all before it. Without `LATER`, if it is the oldest.
    #[inline(always)]
    fn retire_plain<const LATER: bool>(&mut self, cq: CqId, end: u64) -> Option<Entry> {
        if self.expects != cq {
            return None;
        }
        if let Some(entry) = self.shadow.retire_oldest(end) {
            // An entry that looks posted is, as `expects` says; so the queue is not empty.
            self.cursor.retire_known(self.cursor.tail().plus(1));
            return Some(entry);
        }
        if LATER { self.retire_later(Key::reported(end)).copied() } else { None }
    }

    /// [`retire_plain`](Self::retire_plain) of one that is not the oldest, or begins a lap: a call of
    /// its own, for which the other case needs no registers.
    #[inline(never)]
    fn retire_later(&mut self, reported: Key) -> Option<&Entry> {
        let counter = self.cursor.outstanding(reported.index())?;
        if self.shadow.get(counter).key != reported {
            return None;
        }
        // Who posts others than plain ones now and then has one just before the one that is signaled.
        let before = counter.plus(1u32.wrapping_neg());
        match self.shadow.get(before).key.slack() {
            _ if counter == self.cursor.tail() => {}
            Some(slack) => self.slack_retired = slack,
            None => return self.retire_any(counter),
        }
        self.cursor.retire_known(counter.plus(1));
        self.shadow.set_tail(self.cursor.tail());
        Some(self.shadow.entry(counter))
    }

    /// Retires everything up to the end of the WQE that begins at `counter`, which is outstanding;
    /// `None`, and nothing changes, if none begins there.
    #[cold]
    #[inline(never)]
    fn retire_any(&mut self, counter: Counter) -> Option<&Entry> {
        // Every posted WQE wrote the entries of all its blocks, and a batch that was dropped wrote
        // only those behind the head. So a WQE that begins here was posted, as a whole.
        let blocks = self.shadow.get(counter).key.blocks()?;
        let tail = self.cursor.tail();
        for ahead in (0..=counter.since(tail)).rev() {
            // Plain WQEs do not know the slack, and do not add to it.
            if let Some(slack) = self.shadow.get(tail.plus(ahead)).key.slack() {
                self.slack_retired = slack;
                break;
            }
        }
        self.cursor.retire_known(counter.plus(blocks));
        self.shadow.set_tail(self.cursor.tail());
        Some(self.shadow.entry(counter))
    }

    /// Retires the outstanding WQE that a CQE names, and all before it.
    fn retire(&mut self, named: u16) -> Option<Counter> {
        let counter = self.cursor.outstanding(named)?;
        self.retire_any(counter)?;
        Some(counter)
    }

    /// Puts a READ's or atomic's data, which came in the CQE, where the WQE says.
    #[cold]
    fn scatter(&self, entry: &Entry, counter: Counter, cqe: &CqeRef<'_>, length: u32) -> bool {
        let first = match entry.operation() {
            SendOperation::Read => 2,
            SendOperation::CompareSwap | SendOperation::FetchAdd => 3,
            _ => return false,
        };
        let Some(data) = cqe.inline_data(length) else { return false };
        let shape = self.cursor.shape();
        let size = shape.entries() as usize * WQEBB_SIZE;
        let start = shape.slot(counter) * WQEBB_SIZE;
        let segments = (first..entry.key.ds() as usize).map(|unit| {
            let offset = (start + unit * SEGMENT_SIZE) % size;
            // SAFETY: a multiple of 16 within the ring.
            unsafe { scatter::Segment::read(self.buffer.as_ptr().add(offset)) }
        });
        // SAFETY: the WQE was outstanding until now, so its memory is writable, by the contract of
        // `Batch::ring`, until this completion is reported.
        unsafe { scatter::scatter(data.bytes(), segments) }
    }
}

/// Where the WQEs of a send queue go, and what they have in common: enough to write one into blocks
/// that are the writer's own.
#[derive(Clone, Copy)]
pub(super) struct Slots {
    shape: Shape,
    buffer: NonNull<u8>,
    /// [`SendRing::shadow`], one entry per block.
    shadow: NonNull<Entry>,
    names: Names,
}

impl Slots {
    /// Writes a WQE of `ds` units at `head`, and what is remembered of it. `slack` counts it in.
    ///
    /// # Safety
    /// Its blocks are free, and nobody else reads or writes them, or their shadow entries, until
    /// the producer index covers them. `ds` is the operation's, and the operation passed its check
    /// against the queue's limits. As long as it may look posted and is not, or entries are written
    /// while polls retire others, the queue is [open](SendRing::open).
    #[inline(always)]
    pub(super) unsafe fn write<O: Operation>(
        self,
        head: Counter,
        slack: u32,
        id: u64,
        operation: &O,
        flags: u8,
        ds: u32,
    ) -> Last {
        // SAFETY: passed on.
        unsafe {
            let last = self.put(head, operation, flags, ds);
            self.remember(head, slack, id, last, O::OPCODE, is_signaled(flags), ds);
            last
        }
    }

    /// Writes a WQE of `ds` units at `head`.
    ///
    /// # Safety
    /// As [`write`](Self::write), but for the shadow.
    #[inline(always)]
    pub(super) unsafe fn put<O: Operation>(
        self,
        head: Counter,
        operation: &O,
        flags: u8,
        ds: u32,
    ) -> Last {
        let ctrl = ctrl_segment(self.names.ctrl(head, O::OPCODE, ds), flags, operation.immediate());
        let slot = self.shape.slot(head);
        let offset = slot * WQEBB_SIZE;
        let size = self.shape.entries() as usize * WQEBB_SIZE;
        // SAFETY: the WQE's blocks start at `offset`, and are the caller's. A WQE that ends before
        // the ring does is written in a line.
        unsafe {
            if offset + ds as usize * SEGMENT_SIZE <= size {
                let mut writer = Linear::new(self.buffer.as_ptr().add(offset));
                writer.put(ctrl);
                operation.put(&mut writer);
            } else {
                encode_wrapping(self.buffer, size, offset, ctrl, operation);
            }
        }
        Last { doorbell: ctrl[0] }
    }

    /// Writes what is remembered of a WQE.
    ///
    /// # Safety
    /// As [`write`](Self::write), of the shadow.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "all of them make the entry")]
    unsafe fn remember(
        self,
        head: Counter,
        slack: u32,
        id: u64,
        last: Last,
        opcode: u8,
        signaled: bool,
        ds: u32,
    ) {
        let slot = self.shape.slot(head);
        let key = if signaled && shadow::may_be_plain(opcode, ds) {
            Key::plain(self.names.key, opcode, last.doorbell)
        } else {
            Key::other(opcode, ds, slack)
        };
        // SAFETY: the shadow has an entry for every slot; this one is the caller's.
        unsafe { self.shadow.add(slot).write(Entry { id, key }) };
        for block in 1..ds.div_ceil(UNITS) {
            // A former WQE, or one of a batch that was dropped, may have begun here.
            let slot = self.shape.slot(head.plus(block));
            // SAFETY: as above.
            unsafe { self.shadow.add(slot).write(Entry { id: 0, key: Key::inside(slack) }) };
        }
    }

    /// Number of the queue pair.
    #[inline(always)]
    pub(super) fn qpn(&self) -> u32 {
        self.names.qpn()
    }

    /// The block at `head`.
    #[inline(always)]
    pub(super) fn block(&self, head: Counter) -> NonNull<u8> {
        // SAFETY: a slot lies in the ring.
        unsafe { self.buffer.add(self.shape.slot(head) * WQEBB_SIZE) }
    }
}

/// Whether a WQE whose ctrl segment has these flags brings a CQE, if it succeeds.
#[inline(always)]
pub(super) fn is_signaled(flags: u8) -> bool {
    flags & CE_MASK == CE_ALWAYS
}

/// A WQE of one block, where it is, and its words that are known.
pub(super) struct BlockImage {
    block: NonNull<u64>,
    words: [Option<u64>; 8],
}

/// The same number, of which the compiler does not know how it was made.
#[inline(always)]
fn opaque(mut value: usize) -> usize {
    // SAFETY: an empty block.
    unsafe {
        core::arch::asm!(
            "/* {0} */", inout(reg) value, options(pure, nomem, nostack, preserves_flags)
        );
    }
    value
}

/// Writes a WQE that runs past the end of the ring.
///
/// # Safety
/// As [`Wrapping::new`]; the WQE's blocks are free.
#[cold]
#[inline(never)]
unsafe fn encode_wrapping<O: Operation>(
    ring: NonNull<u8>,
    size: usize,
    offset: usize,
    ctrl: Segment,
    operation: &O,
) {
    // SAFETY: passed on.
    unsafe {
        let mut writer = Wrapping::new(ring.as_ptr(), size, offset);
        writer.put(ctrl);
        operation.put(&mut writer);
    }
}

/// A [`CtrlSeg`] without signature and stream, as two words that can be stored, and copied to a
/// BlueFlame buffer, eight bytes at a time. The first one is the doorbell.
#[inline(always)]
pub(super) fn ctrl_segment(first: u64, fm_ce_se: u8, imm: u32) -> Segment {
    const {
        assert!(offset_of!(CtrlSeg, opmod_idx_opcode) == 0 && offset_of!(CtrlSeg, qpn_ds) == 4);
        assert!(offset_of!(CtrlSeg, fm_ce_se) == 11 && offset_of!(CtrlSeg, imm) == 12);
    }
    let second = u64::from(fm_ce_se) << 32 | u64::from(imm);
    [first.to_be(), second.to_be()]
}

/// What the doorbell needs to know of the last WQE of a batch.
#[derive(Clone, Copy, Default)]
pub(super) struct Last {
    /// The first eight bytes of the ctrl segment, as they lie in memory.
    pub(super) doorbell: u64,
}

impl Last {
    /// The first eight bytes of the WQE.
    #[inline(always)]
    pub(super) fn doorbell(self) -> u64 {
        self.doorbell
    }

    #[inline(always)]
    fn opcode_and_ds(self) -> (u8, u32) {
        let words = u64::from_be(self.doorbell);
        ((words >> 32) as u8, words as u32 & 0x3f)
    }
}

/// What a producer of a shared queue tells of a WQE that it wrote.
#[derive(Clone, Copy, Default)]
pub(super) struct Posted {
    pub(super) id: u64,
    pub(super) last: Last,
    pub(super) signaled: bool,
}

/// A send queue as a poll sees it, see [`Queues`](super::Queues).
pub struct SendSide<'a> {
    pub(super) ring: &'a mut SendRing,
    /// Of a shared queue: where its producers learn what is retired.
    pub(super) shared: Option<&'a Sequencer>,
}

impl SendSide<'_> {
    /// Number of the queue pair.
    #[inline(always)]
    pub fn qpn(&self) -> u32 {
        self.ring.qpn()
    }

    /// Retires what a success without data in the CQE, of the CQ `cq`, completes, if that is a plain
    /// request; without `LATER`, if it is the oldest one. `None`, and nothing changes, if it is not,
    /// or not of this queue.
    #[inline(always)]
    pub(super) fn retire_plain<const LATER: bool>(
        &mut self,
        cq: CqId,
        cqe: &CqeRef<'_>,
    ) -> Option<Entry> {
        let entry = self.ring.retire_plain::<LATER>(cq, cqe.end())?;
        self.ring.tell(self.shared);
        Some(entry)
    }

    /// What is said of a request that was retired.
    #[inline(always)]
    pub(super) fn done(self, entry: &Entry, cqe: &CqeRef<'_>) -> SendDone {
        self.ring.done(entry, cqe)
    }

    /// As [`complete`](Self::complete), for a success without data in the CQE; `None`, and nothing
    /// changes, if it is not one of this queue's.
    #[inline(always)]
    pub(super) fn complete_plain(self, cq: CqId, qpn: u32, cqe: &CqeRef<'_>) -> Option<SendDone> {
        let ring = self.ring;
        if ring.cq != cq || ring.qpn() != qpn {
            return None;
        }
        let entry = match ring.retire_plain::<true>(cq, cqe.end()) {
            Some(entry) => entry,
            None => {
                let counter = ring.retire(cqe.wqe_counter())?;
                ring.shadow.get(counter)
            }
        };
        ring.tell(self.shared);
        Some(ring.done(&entry, cqe))
    }

    /// What a requester's CQE, of the CQ `cq`, completes.
    pub(super) fn complete(self, cq: CqId, cqe: &CqeRef<'_>) -> Completion {
        let completion = self.ring.complete(cq, cqe);
        if let Some(shared) = self.shared.filter(|_| self.ring.stopped) {
            shared.stop();
        }
        self.ring.tell(self.shared);
        completion
    }
}

impl SendRing {
    #[inline(always)]
    fn complete(&mut self, cq: CqId, cqe: &CqeRef<'_>) -> Completion {
        let ring = self;
        if ring.cq != cq || cqe.qpn() != ring.qpn() {
            return Completion::Unclaimed(Unclaimed::new(UnclaimedReason::UnknownQueue, cqe));
        }
        let Some(counter) = ring.retire(cqe.wqe_counter()) else {
            return Completion::Unclaimed(Unclaimed::new(UnclaimedReason::NotOutstanding, cqe));
        };
        let entry = ring.shadow.get(counter);
        if cqe.opcode() != cqe_opcode::REQ {
            return ring.fail(&entry, cqe);
        }
        let done = ring.done(&entry, cqe);
        if cqe.has_inline_data() && !ring.scatter(&entry, counter, cqe, done.byte_len) {
            let failure = Failure {
                id: entry.id,
                qpn: done.qpn,
                queue: QueueKind::Send,
                status: Status::LocalLength,
                vendor_error: 0,
                wqe_index: counter.low16(),
                opcode: entry.key.opcode(),
            };
            return Completion::Failed(failure);
        }
        Completion::Send(done)
    }

    #[inline(always)]
    fn done(&mut self, entry: &Entry, cqe: &CqeRef<'_>) -> SendDone {
        self.doorbell.timing.arrived(self.cursor.tail(), cqe.seen());
        let code = entry.key.opcode();
        // Those that fetch nothing, first: most of them have lower opcodes.
        let byte_len = match code {
            ..opcode::RDMA_READ => 0,
            opcode::RDMA_READ => cqe.byte_count(),
            opcode::ATOMIC_CS | opcode::ATOMIC_FA => 8,
            _ => 0,
        };
        SendDone { id: entry.id, qpn: self.qpn(), operation: entry.operation(), byte_len }
    }

    #[cold]
    fn fail(&mut self, entry: &Entry, cqe: &CqeRef<'_>) -> Completion {
        self.stopped = true;
        self.set_clear(self.cursor.head());
        self.ready.clear();
        Completion::Failed(Failure {
            id: entry.id,
            qpn: self.qpn(),
            queue: QueueKind::Send,
            status: Status::from_syndrome(cqe.syndrome()),
            vendor_error: cqe.vendor_syndrome(),
            wqe_index: cqe.wqe_counter(),
            opcode: entry.key.opcode(),
        })
    }
}
