//! The send ring: what send queues of all transports have in common.

use core::mem::offset_of;
use core::ptr::NonNull;

use mlx5_sys::cqe::opcode as cqe_opcode;
use mlx5_sys::verbs::ibv_qp;
use mlx5_sys::wqe::{CE_ALWAYS, CE_MASK, CtrlSeg, SEGMENT_SIZE, WQEBB_SIZE, opcode};

use super::completion::CqId;
use super::credit::Credit;
use super::cursor::{Counter, Cursor};
use super::{PostError, QueueError, scatter};
use crate::cqe::{
    Completion, CqeRef, Failure, QueueKind, SendDone, SendOperation, Status, Unclaimed,
    UnclaimedReason,
};
use crate::doorbell::{Image, SendDoorbell};
use crate::verbs::Transport;
use crate::wqe::{Limits, Linear, Operation, PostOn, Segment, Segments, Wrapping};

/// 16-byte units in a 64-byte block.
pub(super) const UNITS: u32 = (WQEBB_SIZE / SEGMENT_SIZE) as u32;

/// What is common to send queues of all transports.
pub(super) struct SendRing {
    pub(super) cursor: Cursor,
    pub(super) buffer: NonNull<u8>,
    pub(super) doorbell: SendDoorbell,
    /// QP number in bits 31–8, as in the ctrl segment.
    pub(super) qpn_shifted: u32,
    pub(super) limits: Limits,
    /// Set in every WQE's flags: [`CE_ALWAYS`] if the QP was made to signal every request.
    pub(super) always: u8,
    /// An error completion was seen; no more posts until the queue is restarted.
    pub(super) stopped: bool,
    /// Signaled WQEs posted, and retired.
    pub(super) signaled: u32,
    pub(super) signals_retired: u32,
    /// By slot of a WQE's first block.
    pub(super) shadow: Box<[Entry]>,
    pub(super) credit: Credit,
    pub(super) cq: CqId,
    pub(super) qp: NonNull<ibv_qp>,
}

/// What software must remember of a posted WQE; the card cannot reach it.
#[derive(Clone, Copy, Default)]
pub(super) struct Entry {
    id: u64,
    /// [`SendRing::signaled`] after this WQE.
    signaled: u32,
    /// 0: a block inside a WQE, which no CQE names.
    ds: u8,
    opcode: u8,
}

impl Entry {
    #[inline(always)]
    fn blocks(&self) -> u32 {
        u32::from(self.ds).div_ceil(UNITS)
    }
}

impl SendRing {
    #[inline(always)]
    pub(super) fn qpn(&self) -> u32 {
        self.qpn_shifted >> 8
    }

    pub(super) fn restart(&mut self) -> Result<(), QueueError> {
        // libmlx5 clears the record on the way through RESET.
        if self.doorbell.record().read() != 0 {
            return Err(QueueError::NotReset);
        }
        self.cursor = Cursor::new(self.cursor.shape(), Counter::default());
        self.signals_retired = self.signaled;
        self.stopped = false;
        Ok(())
    }

    /// Writes a WQE at `head`, which is at or after the cursor's own. Returns the head after it,
    /// the signal count after it, and what its doorbell needs.
    #[inline(always)]
    pub(super) fn encode<T: Transport, O: PostOn<T>>(
        &mut self,
        head: Counter,
        signaled: u32,
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
        let flags = operation.flags() | self.always;
        let signaled = signaled.wrapping_add(u32::from(flags & CE_MASK == CE_ALWAYS));
        if signaled.wrapping_sub(self.signals_retired) > self.credit.entries() {
            return Err(PostError::CqOverrun);
        }

        let first = u32::from(head.low16()) << 8 | u32::from(O::OPCODE);
        let ctrl = ctrl_segment(first, self.qpn_shifted | ds, flags, operation.immediate());
        let slot = self.cursor.shape().slot(head);
        let offset = slot * WQEBB_SIZE;
        let size = self.cursor.shape().entries() as usize * WQEBB_SIZE;
        // SAFETY: `blocks` free blocks start at `offset`; the card does not read them before the
        // producer index covers them, and nobody else writes them (`from_parts`). A WQE that ends
        // before the ring does is written in a line.
        unsafe {
            if offset + ds as usize * SEGMENT_SIZE <= size {
                let mut writer = Linear::new(self.buffer.as_ptr().add(offset));
                writer.put(ctrl);
                operation.put(&mut writer);
            } else {
                encode_wrapping(self.buffer, size, offset, ctrl, operation);
            }
        }
        let entry = Entry { id, signaled, ds: ds as u8, opcode: O::OPCODE };
        // SAFETY: a slot is less than the number of entries, which is the shadow's length.
        *unsafe { self.shadow.get_unchecked_mut(slot) } = entry;
        for block in 1..blocks {
            // A former WQE, or one of a batch that was dropped, may have begun here.
            let slot = self.cursor.shape().slot(head.plus(block));
            // SAFETY: as above.
            unsafe { self.shadow.get_unchecked_mut(slot) }.ds = 0;
        }
        Ok((head.plus(blocks), signaled, Last { doorbell: ctrl[0], slot: slot as u32, ds }))
    }

    /// Makes everything before `head` known to the card.
    ///
    /// # Safety
    /// As [`Batch::ring`]; the WQEs before `head` were written, `last` is the last of them.
    #[inline(always)]
    pub(super) unsafe fn commit(
        &mut self,
        head: Counter,
        signaled: u32,
        last: &Last,
        single: bool,
    ) {
        self.cursor.publish(head);
        self.signaled = signaled;
        let image = (single && self.doorbell.takes(last.ds)).then(|| Image {
            ring: self.buffer,
            blocks: self.cursor.shape().entries() as usize,
            first: last.slot as usize,
            count: last.ds.div_ceil(UNITS) as usize,
        });
        // SAFETY: `last` is the last WQE before `head`; its blocks lie in this ring.
        unsafe { self.doorbell.ring(head.low16(), last.doorbell, image) }
    }

    /// The entry of the outstanding WQE that a CQE names; it and all before it are retired.
    #[inline(always)]
    fn retire(&mut self, named: u16) -> Option<(Entry, Counter)> {
        let counter = self.cursor.outstanding(named)?;
        // SAFETY: a slot is less than the number of entries, which is the shadow's length.
        let entry = *unsafe { self.shadow.get_unchecked(self.cursor.shape().slot(counter)) };
        if entry.ds == 0 || !self.cursor.retire(counter.plus(entry.blocks())) {
            return None;
        }
        self.signals_retired = entry.signaled;
        Some((entry, counter))
    }

    /// Puts a READ's or atomic's data, which came in the CQE, where the WQE says.
    #[cold]
    fn scatter(&self, entry: Entry, counter: Counter, cqe: &CqeRef<'_>, length: u32) -> bool {
        let first = match entry.opcode {
            opcode::RDMA_READ => 2,
            opcode::ATOMIC_CS | opcode::ATOMIC_FA => 3,
            _ => return false,
        };
        let Some(data) = cqe.inline_data(length) else { return false };
        let shape = self.cursor.shape();
        let size = shape.entries() as usize * WQEBB_SIZE;
        let start = shape.slot(counter) * WQEBB_SIZE;
        let segments = (first..usize::from(entry.ds)).map(|unit| {
            let offset = (start + unit * SEGMENT_SIZE) % size;
            // SAFETY: a multiple of 16 within the ring.
            unsafe { scatter::Segment::read(self.buffer.as_ptr().add(offset)) }
        });
        // SAFETY: the WQE was outstanding until now, so its memory is writable, by the contract of
        // `Batch::ring`, until this completion is reported.
        unsafe { scatter::scatter(data.bytes(), segments) }
    }
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
fn ctrl_segment(opmod_idx_opcode: u32, qpn_ds: u32, fm_ce_se: u8, imm: u32) -> Segment {
    const {
        assert!(offset_of!(CtrlSeg, opmod_idx_opcode) == 0 && offset_of!(CtrlSeg, qpn_ds) == 4);
        assert!(offset_of!(CtrlSeg, fm_ce_se) == 11 && offset_of!(CtrlSeg, imm) == 12);
    }
    let first = u64::from(opmod_idx_opcode) << 32 | u64::from(qpn_ds);
    let second = u64::from(fm_ce_se) << 32 | u64::from(imm);
    [first.to_be(), second.to_be()]
}

/// What the doorbell needs to know of the last WQE of a batch.
#[derive(Clone, Copy, Default)]
pub(super) struct Last {
    /// The first eight bytes of the ctrl segment, as they lie in memory.
    doorbell: u64,
    slot: u32,
    ds: u32,
}

/// A send queue as a poll sees it, see [`Queues`](super::Queues).
pub struct SendSide<'a> {
    pub(super) ring: &'a mut SendRing,
}

impl SendSide<'_> {
    /// Number of the queue pair.
    #[inline(always)]
    pub fn qpn(&self) -> u32 {
        self.ring.qpn()
    }

    /// What a requester's CQE, of the CQ `cq`, completes.
    #[inline(always)]
    pub(super) fn complete(self, cq: CqId, cqe: &CqeRef<'_>) -> Completion {
        let ring = self.ring;
        let qpn = ring.qpn();
        if ring.cq != cq || cqe.qpn() != qpn {
            return Completion::Unclaimed(Unclaimed::new(UnclaimedReason::UnknownQueue, cqe));
        }
        let Some((entry, counter)) = ring.retire(cqe.wqe_counter()) else {
            return Completion::Unclaimed(Unclaimed::new(UnclaimedReason::NotOutstanding, cqe));
        };
        if cqe.opcode() != cqe_opcode::REQ {
            return ring.fail(entry, cqe);
        }
        let byte_len = match entry.opcode {
            opcode::RDMA_READ => cqe.byte_count(),
            opcode::ATOMIC_CS | opcode::ATOMIC_FA => 8,
            _ => 0,
        };
        if cqe.has_inline_data() && !ring.scatter(entry, counter, cqe, byte_len) {
            let failure = Failure {
                id: entry.id,
                qpn,
                queue: QueueKind::Send,
                status: Status::LocalLength,
                vendor_error: 0,
                wqe_index: counter.low16(),
                opcode: entry.opcode,
            };
            return Completion::Failed(failure);
        }
        let operation = SendOperation::from_opcode(entry.opcode);
        Completion::Send(SendDone { id: entry.id, qpn, operation, byte_len })
    }
}

impl SendRing {
    #[cold]
    fn fail(&mut self, entry: Entry, cqe: &CqeRef<'_>) -> Completion {
        self.stopped = true;
        Completion::Failed(Failure {
            id: entry.id,
            qpn: self.qpn(),
            queue: QueueKind::Send,
            status: Status::from_syndrome(cqe.syndrome()),
            vendor_error: cqe.vendor_syndrome(),
            wqe_index: cqe.wqe_counter(),
            opcode: entry.opcode,
        })
    }
}
