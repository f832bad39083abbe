//! Striding receive queues: each WQE takes many packets.

use core::fmt;
use core::ptr::NonNull;

use mlx5_sys::cqe::{
    Cqe64, MPRQ_BYTES_MASK, MPRQ_FILLER, MPRQ_STRIDES_SHIFT, opcode as cqe_opcode,
};
use mlx5_sys::doorbell::RECEIVE_WORD;
use mlx5_sys::wqe::SEGMENT_SIZE;
use zerocopy::FromBytes;

use super::completion::Completions;
use super::credit::Credit;
use super::cursor::Cursor;
use super::{PollError, PostError, QueueError};
use crate::cqe::{Failure, FrameInfo, QueueKind, Status, Unclaimed, UnclaimedReason};
use crate::doorbell::Record;
use crate::ib::{Counter, Shape};
use crate::verbs::{CompletionQueue, StridingQueue};
use crate::wqe::{Segment, Sge, data_segment};

/// The posting and polling side of a [`StridingQueue`], with the CQ of its own on which it
/// completes.
///
/// A WQE is one buffer of [`StridingQueue::wqe_bytes`]. Each packet takes as many of its strides as
/// it needs. If a packet does not fit the remaining strides, these are skipped. A post costs two
/// segments and the store to the doorbell record. It rings no register.
///
/// Layout of the WQE: an unused segment, where list queues have the next WQE's number, then the
/// pointer (DPDK `mlx5_prm.h`, `mlx5_wqe_mprq`; Linux `mlx5/core/en.h`, `mlx5e_rx_wqe_ll`).
/// libmlx5's own posting leaves the first segment out.
pub struct StridingReceives {
    cursor: Cursor,
    buffer: NonNull<u8>,
    stride: usize,
    record: Record,
    ids: Box<[u64]>,
    /// Number of strides of the oldest WQE that are taken.
    used: u32,
    credit: Credit,
    completions: Completions,
    /// Dropped after everything that works on its memory.
    queue: StridingQueue,
}

// SAFETY: only this queue reaches the ring's memory, which `StridingQueue::take` ensures, and the
// HCA accepts stores from any thread.
unsafe impl Send for StridingReceives {}

/// The result of a poll of [`StridingReceives`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a completion says where a frame is, or that a WQE is used up or failed"]
pub enum StridingEvent {
    /// A packet has arrived.
    Packet(Packet),
    /// The remaining strides of this WQE were skipped. The WQE is used up.
    UsedUp {
        /// The id that the WQE was posted with.
        id: u64,
    },
    /// A WQE failed, or was flushed because an earlier one had failed.
    Failed(Failure),
    /// A CQE that is not of this queue, or contradicts its state.
    Unclaimed(Unclaimed),
}

/// A packet in a WQE's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The id that the WQE was posted with.
    pub id: u64,
    /// The first of the WQE's strides that hold the packet.
    pub first: u32,
    /// Number of strides that the packet takes.
    pub strides: u32,
    /// Offset of the packet in the WQE's memory, in bytes.
    pub offset: u32,
    /// Length of the packet in bytes.
    pub byte_len: u32,
    /// Whether the WQE is used up: no other packet comes to its memory.
    pub last: bool,
    /// The HCA's results for its headers.
    pub info: FrameInfo,
}

/// The content of a CQE about a WQE's strides.
enum Part {
    Packet(Packet),
    Filler,
}

impl StridingReceives {
    /// Takes over a queue permanently, with the CQ that it completes on. Reserves one CQ slot for
    /// each stride of each WQE that may be outstanding.
    ///
    /// # Errors
    /// [`Error::QueueInUse`](crate::Error::QueueInUse), [`Error::Queue`](crate::Error::Queue): the
    /// queue was taken over before, it completes on another CQ, or the CQ has fewer entries than a
    /// WQE has strides.
    pub fn new(queue: &StridingQueue, cq: &CompletionQueue) -> crate::Result<Self> {
        if cq.as_raw() != queue.cq().as_raw() {
            return Err(QueueError::ForeignCq.into());
        }
        let mut completions = Completions::new(cq)?;
        let memory = queue.memory()?;
        let (Some(buffer), Some(base)) =
            (NonNull::new(memory.buf.cast::<u8>()), NonNull::new(memory.dbrec))
        else {
            return Err(QueueError::NoQueue.into());
        };
        let Some(shape) = Shape::new(memory.wqe_cnt).filter(|shape| shape.entries() <= 1 << 15)
        else {
            let error = QueueError::Geometry("the receive queue's size is not a power of two");
            return Err(error.into());
        };
        let stride = memory.stride as usize;
        if stride < 2 * SEGMENT_SIZE || stride % SEGMENT_SIZE != 0 {
            return Err(QueueError::Geometry("a WQE has no room for its segments").into());
        }
        let wanted = shape.entries().saturating_mul(queue.strides());
        let credit = completions.promise_shared(wanted)?;
        if credit.entries() < queue.strides() {
            return Err(QueueError::CqFull { cqes: credit.entries() }.into());
        }
        if !queue.take() {
            return Err(QueueError::Outstanding.into());
        }
        // SAFETY: the library returned the queue's record, and only this value uses the queue.
        let record = unsafe { Record::new(base, RECEIVE_WORD) };
        let start = Counter::new(record.read() & 0xffff);
        Ok(Self {
            cursor: Cursor::new(shape, start),
            buffer,
            stride,
            record,
            ids: vec![0; shape.entries() as usize].into(),
            used: 0,
            credit,
            completions,
            queue: queue.clone(),
        })
    }

    /// Returns the queue.
    pub fn queue(&self) -> &StridingQueue {
        &self.queue
    }

    /// Returns the number of WQEs that can still be posted.
    pub fn free(&self) -> u32 {
        let posted = self.cursor.used();
        let reported = self.credit.entries() / self.queue.strides();
        self.cursor.free_from(self.cursor.head()).min(reported.saturating_sub(posted))
    }

    /// Returns the number of WQEs that are posted and not used up.
    pub fn outstanding(&self) -> u32 {
        self.cursor.used()
    }

    /// Posts a WQE over the first [`StridingQueue::wqe_bytes`] bytes of `memory`. `id` comes back
    /// with each of its packets.
    ///
    /// # Errors
    /// [`PostError::QueueFull`], [`PostError::CqOverrun`], [`PostError::ReceiveTooShort`]; nothing
    /// is posted then.
    ///
    /// # Safety
    /// Until the WQE is used up or failed, or the queue is destroyed:
    /// - The memory stays registered with local write access.
    /// - Nothing else accesses those of its bytes in which no packet has been reported.
    pub unsafe fn post(&mut self, id: u64, memory: Sge) -> Result<(), PostError> {
        let head = self.cursor.head();
        if memory.length < self.queue.wqe_bytes() {
            return Err(PostError::ReceiveTooShort);
        }
        if self.cursor.free_from(head) == 0 {
            return Err(PostError::QueueFull);
        }
        if self.free() == 0 {
            return Err(PostError::CqOverrun);
        }
        let slot = self.cursor.shape().slot(head);
        let pointer = data_segment(&Sge { length: self.queue.wqe_bytes(), ..memory });
        let unused: Segment = [0; 2];
        // SAFETY: a slot of the ring, which fits both segments. It is free, so the HCA does not
        // read it before the record covers it.
        unsafe {
            let at = self.buffer.as_ptr().add(slot * self.stride).cast::<Segment>();
            at.write_volatile(unused);
            at.add(1).write_volatile(pointer);
        }
        self.ids[slot] = id;
        self.cursor.publish(head.plus(1));
        self.record.publish(u32::from(head.plus(1).low16()));
        Ok(())
    }

    /// Returns the next packet, if one has arrived.
    ///
    /// # Errors
    /// [`PollError`].
    pub fn poll(&mut self) -> Result<Option<StridingEvent>, PollError> {
        let Self { cursor, ids, used, queue, completions, .. } = self;
        completions.take_cqe(|cqe, _| {
            let unclaimed = |reason| StridingEvent::Unclaimed(Unclaimed::new(reason, cqe));
            let bytes = cqe.bytes();
            let tail = cursor.tail();
            let id = ids[cursor.shape().slot(tail)];
            let empty = cursor.used() == 0;
            let mut retire = |used: &mut u32| {
                *used = 0;
                cursor.retire(tail.plus(1))
            };
            match cqe.opcode() {
                cqe_opcode::RESP_ERR if retire(used) => StridingEvent::Failed(Failure {
                    id,
                    qpn: queue.number(),
                    queue: QueueKind::Receive,
                    status: Status::from_syndrome(cqe.syndrome()),
                    vendor_error: cqe.vendor_syndrome(),
                    wqe_index: cqe.wqe_counter(),
                    opcode: 0,
                }),
                cqe_opcode::RESP_SEND => {
                    let Ok(cqe) = Cqe64::read_from_bytes(&bytes) else {
                        return unclaimed(UnclaimedReason::UnknownOpcode);
                    };
                    let (oldest, named) = (tail.low16(), cqe.wqe_id.get());
                    if empty {
                        return unclaimed(UnclaimedReason::NotOutstanding);
                    }
                    if named != oldest {
                        return unclaimed(UnclaimedReason::NotOldest { oldest, named });
                    }
                    let part = part_of(&cqe, id, *used, queue);
                    let Some((part, strides)) = part else {
                        return unclaimed(UnclaimedReason::NotOutstanding);
                    };
                    *used += strides;
                    let last = *used == queue.strides();
                    if last && !retire(used) {
                        return unclaimed(UnclaimedReason::NotOutstanding);
                    }
                    match part {
                        Part::Packet(packet) => StridingEvent::Packet(Packet { last, ..packet }),
                        Part::Filler => StridingEvent::UsedUp { id },
                    }
                }
                cqe_opcode::RESP_ERR => unclaimed(UnclaimedReason::NotOutstanding),
                _ => unclaimed(UnclaimedReason::UnknownQueue),
            }
        })
    }

    /// Requests an event at the next packet, see [`Completions::arm`].
    pub fn arm(&mut self) {
        self.completions.arm(false);
    }
}

/// Decodes a CQE of the oldest WQE. `None` unless it continues where the last one ended, with no
/// more strides than the WQE has left, and a packet that fits them. The HCA's data is not trusted
/// beyond that.
fn part_of(cqe: &Cqe64, id: u64, used: u32, queue: &StridingQueue) -> Option<(Part, u32)> {
    let count = cqe.byte_cnt.get();
    let strides = (count & !MPRQ_FILLER) >> MPRQ_STRIDES_SHIFT;
    let byte_len = count & MPRQ_BYTES_MASK;
    let first = u32::from(cqe.wqe_counter.get());
    let left = queue.strides().checked_sub(used)?;
    if first != used || !(1..=left).contains(&strides) {
        return None;
    }
    if count & MPRQ_FILLER != 0 {
        return (strides == left).then_some((Part::Filler, strides));
    }
    if queue.shift() + byte_len > strides * queue.stride() {
        return None;
    }
    let offset = first * queue.stride() + queue.shift();
    let info = FrameInfo::decode(cqe);
    let packet = Packet { id, first, strides, offset, byte_len, last: false, info };
    Some((Part::Packet(packet), strides))
}

impl fmt::Debug for StridingReceives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StridingReceives")
            .field("queue", &self.queue)
            .field("cursor", &self.cursor)
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}
