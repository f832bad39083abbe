//! Striding receive queues: each WQE takes many packets.

use core::fmt;
use core::ptr::NonNull;

use mlx5_sys::cqe::{
    Cqe64, MPRQ_BYTES_MASK, MPRQ_FILLER, MPRQ_STRIDES_SHIFT, opcode as cqe_opcode,
};
use mlx5_sys::doorbell::RECEIVE_WORD;
use mlx5_sys::wqe::SEGMENT_SIZE;
use zerocopy::FromBytes;

use super::completion::CqReader;
use super::credit::Credit;
use super::cursor::Cursor;
use super::{PollError, PostError};
use crate::cqe::{Failure, FrameInfo, QueueKind, Status, UnexpectedCqe, UnexpectedCqeReason};
use crate::doorbell::Record;
use crate::error::QueueError;
use crate::ib::{Counter, Shape};
use crate::wqe::{Segment, Sge, data_segment};

/// The posting and polling side of a [`StridingQueue`](crate::verbs::StridingQueue), with the CQ of
/// its own on which it completes.
///
/// A WQE is one buffer of [`wqe_bytes`](Self::wqe_bytes). Each packet takes as many of its strides
/// as it needs. If a packet does not fit the remaining strides, these are skipped. A post costs two
/// segments and the store to the doorbell record. It rings no register.
///
/// Layout of the WQE: an unused segment, where list queues have the next WQE's number, then the
/// pointer (DPDK `mlx5_prm.h`, `mlx5_wqe_mprq`; Linux `mlx5/core/en.h`, `mlx5e_rx_wqe_ll`).
/// libmlx5's own posting leaves the first segment out.
pub struct StridingRq {
    cursor: Cursor,
    buffer: NonNull<u8>,
    stride: usize,
    record: Record,
    ids: Box<[u64]>,
    /// Number of strides of the oldest WQE that are taken.
    used: u32,
    credit: Credit,
    completions: CqReader,
    strides: Strides,
    /// Keeps the queue alive. Dropped after everything that works on its memory.
    _owner: Box<dyn Send>,
}

// SAFETY: only this queue reaches the ring's memory, which the contract of `take_over` ensures, and
// the HCA accepts stores from any thread.
unsafe impl Send for StridingRq {}

/// The result of a poll of [`StridingRq`].
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
    UnexpectedCqe(UnexpectedCqe),
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

/// The strides of a queue's WQEs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strides {
    /// Number of the work queue.
    pub(crate) number: u32,
    /// Bytes of a stride.
    pub(crate) bytes: u32,
    /// Strides of a WQE.
    pub(crate) count: u32,
    /// Offset of packets in their first stride, in bytes.
    pub(crate) shift: u32,
}

/// The view of a striding receive queue.
pub(crate) struct StridingView {
    /// Its ring.
    pub(crate) buffer: NonNull<u8>,
    /// WQEs of the ring.
    pub(crate) entries: u32,
    /// Bytes of a WQE.
    pub(crate) wqe_stride: u32,
    /// The record: two words.
    pub(crate) record: NonNull<u32>,
    /// The strides of its WQEs.
    pub(crate) strides: Strides,
}

impl StridingRq {
    /// Takes over the queue of a view. `claim` claims the queue. It returns whether this is the
    /// first claim.
    ///
    /// # Safety
    /// - The queue completes on the CQ of `completions`, and on no other.
    /// - As long as `owner` exists, the view's memory stays where it is, and the HCA uses it for
    ///   this queue.
    /// - If `claim` returns true, nothing else posts to the queue from then on.
    pub(crate) unsafe fn take_over(
        view: &StridingView,
        mut completions: CqReader,
        claim: impl FnOnce() -> bool,
        owner: Box<dyn Send>,
    ) -> Result<Self, QueueError> {
        let Some(shape) = Shape::new(view.entries).filter(|shape| shape.entries() <= 1 << 15)
        else {
            return Err(QueueError::Geometry("the receive queue's size is not a power of two"));
        };
        let stride = view.wqe_stride as usize;
        if stride < 2 * SEGMENT_SIZE || stride % SEGMENT_SIZE != 0 {
            return Err(QueueError::Geometry("a WQE has no room for its segments"));
        }
        let strides = view.strides;
        let wanted = shape.entries().saturating_mul(strides.count);
        let credit = completions.reserve_shared(wanted)?;
        if credit.entries() < strides.count {
            return Err(QueueError::CqFull { cqes: credit.entries() });
        }
        if !claim() {
            return Err(QueueError::NotIdle);
        }
        // SAFETY: by this function's contract, the view has the queue's record, and only this value
        // uses the queue.
        let record = unsafe { Record::new(view.record, RECEIVE_WORD) };
        let start = Counter::new(record.read() & 0xffff);
        Ok(Self {
            cursor: Cursor::new(shape, start),
            buffer: view.buffer,
            stride,
            record,
            ids: vec![0; shape.entries() as usize].into(),
            used: 0,
            credit,
            completions,
            strides,
            _owner: owner,
        })
    }

    /// Returns the size of a WQE's memory in bytes.
    pub fn wqe_bytes(&self) -> u32 {
        self.strides.bytes * self.strides.count
    }

    /// Returns the number of WQEs that can still be posted.
    pub fn free(&self) -> u32 {
        let posted = self.cursor.used();
        let reported = self.credit.entries() / self.strides.count;
        self.cursor.free_from(self.cursor.head()).min(reported.saturating_sub(posted))
    }

    /// Returns the number of WQEs that are posted and not used up.
    pub fn outstanding(&self) -> u32 {
        self.cursor.used()
    }

    /// Posts a WQE over the first [`wqe_bytes`](Self::wqe_bytes) bytes of `memory`. `id` comes back
    /// with each of its packets.
    ///
    /// # Errors
    /// [`PostError::QueueFull`], [`PostError::CqFull`], [`PostError::ReceiveTooShort`]; nothing
    /// is posted then.
    ///
    /// # Safety
    /// Until the WQE is used up or failed, or the queue is destroyed:
    /// - The memory stays registered with local write access.
    /// - Nothing else accesses those of its bytes in which no packet has been reported.
    pub unsafe fn post(&mut self, id: u64, memory: Sge) -> Result<(), PostError> {
        let head = self.cursor.head();
        if memory.length < self.wqe_bytes() {
            return Err(PostError::ReceiveTooShort);
        }
        if self.cursor.free_from(head) == 0 {
            return Err(PostError::QueueFull);
        }
        if self.free() == 0 {
            return Err(PostError::CqFull);
        }
        let slot = self.cursor.shape().slot(head);
        let pointer = data_segment(&Sge { length: self.wqe_bytes(), ..memory });
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
        let Self { cursor, ids, used, strides, completions, .. } = self;
        completions.take_cqe(|cqe, _| {
            let unexpected = |reason| StridingEvent::UnexpectedCqe(UnexpectedCqe::new(reason, cqe));
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
                    qpn: strides.number,
                    queue: QueueKind::Receive,
                    status: Status::from_syndrome(cqe.syndrome()),
                    vendor_error: cqe.vendor_syndrome(),
                    wqe_index: cqe.wqe_counter(),
                    opcode: 0,
                }),
                cqe_opcode::RESP_SEND => {
                    let Ok(cqe) = Cqe64::read_from_bytes(&bytes) else {
                        return unexpected(UnexpectedCqeReason::UnknownOpcode);
                    };
                    let (oldest, named) = (tail.low16(), cqe.wqe_id.get());
                    if empty {
                        return unexpected(UnexpectedCqeReason::NotOutstanding);
                    }
                    if named != oldest {
                        return unexpected(UnexpectedCqeReason::NotOldest { oldest, named });
                    }
                    let part = part_of(&cqe, id, *used, strides);
                    let Some((part, taken)) = part else {
                        return unexpected(UnexpectedCqeReason::NotOutstanding);
                    };
                    *used += taken;
                    let last = *used == strides.count;
                    if last && !retire(used) {
                        return unexpected(UnexpectedCqeReason::NotOutstanding);
                    }
                    match part {
                        Part::Packet(packet) => StridingEvent::Packet(Packet { last, ..packet }),
                        Part::Filler => StridingEvent::UsedUp { id },
                    }
                }
                cqe_opcode::RESP_ERR => unexpected(UnexpectedCqeReason::NotOutstanding),
                _ => unexpected(UnexpectedCqeReason::UnknownQueue),
            }
        })
    }

    /// Requests an event at the next packet, see [`CqReader::arm`].
    pub fn arm(&mut self) {
        self.completions.arm(false);
    }
}

/// Decodes a CQE of the oldest WQE. `None` unless it continues where the last one ended, with no
/// more strides than the WQE has left, and a packet that fits them. The HCA's data is not trusted
/// beyond that.
fn part_of(cqe: &Cqe64, id: u64, used: u32, shape: &Strides) -> Option<(Part, u32)> {
    let count = cqe.byte_cnt.get();
    let strides = (count & !MPRQ_FILLER) >> MPRQ_STRIDES_SHIFT;
    let byte_len = count & MPRQ_BYTES_MASK;
    let first = u32::from(cqe.wqe_counter.get());
    let left = shape.count.checked_sub(used)?;
    if first != used || !(1..=left).contains(&strides) {
        return None;
    }
    if count & MPRQ_FILLER != 0 {
        return (strides == left).then_some((Part::Filler, strides));
    }
    if shape.shift + byte_len > strides * shape.bytes {
        return None;
    }
    let offset = first * shape.bytes + shape.shift;
    let info = FrameInfo::decode(cqe);
    let packet = Packet { id, first, strides, offset, byte_len, last: false, info };
    Some((Part::Packet(packet), strides))
}

impl fmt::Debug for StridingRq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StridingRq")
            .field("strides", &self.strides)
            .field("cursor", &self.cursor)
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}
