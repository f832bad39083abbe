//! Striding receive queues: each WQE takes many packets.

use core::fmt;
use core::ptr::NonNull;
use std::sync::Arc;

use mlx5_sys::cqe::{MPRQ_BYTES_MASK, MPRQ_FILLER, MPRQ_STRIDES_SHIFT, opcode as cqe_opcode};
use mlx5_sys::doorbell::RECEIVE_WORD;
use mlx5_sys::wqe::SEGMENT_SIZE;

use super::core::{Layout, ReceiveRing, Wqes, failure};
use super::packet::{FoundPacket, next_event};
use super::{InOrder, Packet, PacketEvent};
use crate::cqe::{CqeRef, PacketWords, UnexpectedCqeReason};
use crate::doorbell::Lent;
use crate::doorbell::Record;
use crate::error::QueueError;
use crate::ring::completion::slots::{Demand, Reservation};
use crate::ring::{CqReader, PollError, PostError};
use crate::watch::flight;
use crate::wqe::{Linear, Segments, Sge, data_segment};

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
///
/// ```
/// # // SAFETY: no other thread runs yet.
/// # unsafe { std::env::set_var("MLX5_MODEL_LINK", "roce") };
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::ib::Access;
/// use mlx5::ring::StridingRq;
/// use mlx5::verbs::StridingQueue;
///
/// let memory = pd.allocate(4096, Access::LOCAL_WRITE)?;
/// let queue = StridingQueue::builder(&pd, &cq).wqes(4).stride(64).strides(8).build()?;
/// let mut receives = StridingRq::new(&queue, &cq)?;
/// let wqe = receives.wqe_bytes();
/// // SAFETY: the memory stays registered, and is read where packets have arrived.
/// unsafe { receives.post(1, memory.sge(0, wqe as usize)?)? };
/// assert!(receives.poll()?.is_none()); // packets come by a `Flow` to `RssQueues` of the queue
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "mlx5dv_rwq")]
pub struct StridingRq {
    ring: ReceiveRing<InOrder>,
    /// Number of strides of the oldest WQE that are taken.
    used: u32,
    /// CQ slots: one for each stride of each WQE.
    cq_slots: Reservation,
    completions: CqReader,
    strides: Strides,
    /// Keeps the queue alive. Dropped after everything that works on its memory.
    _owner: Box<dyn Send>,
}

// SAFETY: only this queue reaches the ring's memory, which the contract of `take_over` ensures, and
// the HCA accepts stores from any thread.
unsafe impl Send for StridingRq {}

/// Offset of the pointer in a WQE.
const DATA: usize = SEGMENT_SIZE;

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
        // libmlx5 gives a WQE that is not striding one segment less.
        let wqes =
            Wqes::new(view.buffer, view.wqe_stride, DATA).map_err(|_| QueueError::NotStriding)?;
        let strides = view.strides;
        let cq_slots = completions
            .reserve_shared(Demand::up_to(view.entries.saturating_mul(strides.count)))?;
        let (free, needed) = (cq_slots.entries(), strides.count);
        let most = free / needed;
        if most == 0 {
            return Err(QueueError::CqFull { cqes: completions.capacity(), free, needed });
        }
        if !claim() {
            return Err(QueueError::NotIdle);
        }
        // SAFETY: by this function's contract, the view has the queue's record, and only this value
        // uses the queue.
        let record = unsafe { Record::new(view.record, RECEIVE_WORD) };
        let layout = InOrder::new(view.entries, most, (record.read(), strides.number), &wqes)?;
        // SAFETY: by this function's contract, the view is of the queue, whose memory stays where
        // it is, and only this value uses the queue. It was not posted to before.
        let ring = unsafe { ReceiveRing::new(layout, wqes, record, flight::Recorder::none()) };
        Ok(Self { ring, used: 0, cq_slots, completions, strides, _owner: owner })
    }

    /// Returns the size of a WQE's memory in bytes.
    pub fn wqe_bytes(&self) -> u32 {
        self.strides.bytes * self.strides.count
    }

    /// Returns the number of WQEs that the queue holds.
    pub fn capacity(&self) -> u32 {
        self.ring.layout.capacity()
    }

    /// Returns the number of WQEs that can still be posted.
    pub fn free(&self) -> u32 {
        self.ring.free()
    }

    /// Returns the number of WQEs that are posted and not used up.
    pub fn outstanding(&self) -> u32 {
        self.ring.layout.used()
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
    #[doc(alias = "ibv_post_wq_recv")]
    pub unsafe fn post(&mut self, id: u64, memory: Sge) -> Result<(), PostError> {
        self.ring.timing.begin();
        self.write(0, id, memory)?;
        // SAFETY: the WQE was written, where there was room for it. The caller keeps the memory
        // registered until the WQE is used up or failed.
        unsafe { self.ring.post_written(Lent::promised(), 1) };
        Ok(())
    }

    /// Starts a batch of WQEs. Dropping it posts nothing.
    #[doc(alias = "ibv_post_wq_recv")]
    pub fn batch(&mut self) -> StridingBatch<'_> {
        StridingBatch { queue: self, count: 0 }
    }

    /// Returns the ring.
    #[inline(always)]
    pub(crate) fn ring(&self) -> &ReceiveRing<InOrder> {
        &self.ring
    }

    /// Writes a WQE in the place `ahead` of the next post, and does not post it.
    ///
    /// # Errors
    /// Those of [`post`](Self::post); nothing is written then.
    pub(crate) fn write(&mut self, ahead: u32, id: u64, memory: Sge) -> Result<(), PostError> {
        let length = self.wqe_bytes();
        if memory.length < length {
            return Err(PostError::ReceiveTooShort { needed: length });
        }
        let pointer = data_segment(&Sge { length, ..memory });
        let ring = &mut self.ring;
        // SAFETY: the head of a batch on this queue. A WQE has both segments, as `take_over` checked.
        unsafe {
            ring.put_at(ring.layout.head().plus(ahead), id, |_, wqe| {
                let mut writer = Linear::new(wqe);
                writer.put([0; 2]);
                writer.put(pointer);
            })?;
        }
        Ok(())
    }

    /// Posts the next `count` WQEs as they are written in the ring.
    ///
    /// # Safety
    /// As many can be posted, and each of their places was written. For the memory of each, that of
    /// [`post`](Self::post).
    #[inline(always)]
    pub(crate) unsafe fn post_written(&mut self, count: u32) {
        self.ring.timing.begin();
        // SAFETY: this function's contract.
        unsafe { self.ring.post_written(Lent::promised(), count) }
    }

    /// Returns the next packet, if one has arrived.
    ///
    /// # Errors
    /// [`PollError`].
    #[doc(alias = "ibv_poll_cq")]
    #[inline]
    pub fn poll(&mut self) -> Result<Option<PacketEvent>, PollError> {
        match self.find() {
            FoundPacket::Packet(packet) => Ok(Some(PacketEvent::Packet(packet))),
            FoundPacket::Nothing => Ok(None),
            FoundPacket::Other => self.poll_any(),
        }
    }

    /// Takes the next packet, if it continues the oldest WQE.
    // Always: as a call, with the packet in memory, a packet would cost twice as much.
    #[inline(always)]
    pub(crate) fn find(&mut self) -> FoundPacket {
        let Self { ring, used, strides, completions, .. } = self;
        let wqes = &mut ring.layout;
        let Some(cqe) = completions.find_arrived() else {
            let nothing = completions.finds_nothing();
            return if nothing { FoundPacket::Nothing } else { FoundPacket::Other };
        };
        let Some(slot) = wqes.outstanding(cqe.wqe_id()) else { return FoundPacket::Other };
        let Some((Part::Packet { offset, byte_len }, taken)) = part_of(&cqe, *used, strides) else {
            return FoundPacket::Other;
        };
        *used += taken;
        let last = *used == strides.count;
        let id = wqes.id(slot);
        if last {
            wqes.retire_oldest();
            *used = 0;
        }
        let packet = Packet { id, offset, byte_len, last, words: PacketWords::of(&cqe) };
        // SAFETY: the last call on the reader found this CQE.
        unsafe { completions.take_found() };
        FoundPacket::Packet(packet)
    }

    /// Polls where [`find`](Self::find) may have passed something over.
    #[cold]
    #[inline(never)]
    pub(crate) fn poll_any(&mut self) -> Result<Option<PacketEvent>, PollError> {
        let Self { ring, used, strides, completions, .. } = self;
        let wqes = &mut ring.layout;
        let event = next_event(completions, |cqe| match cqe.opcode() {
            cqe_opcode::RESP_ERR => {
                // In the CQE of an error, the WQE's index is not where that of a packet has it.
                let id = wqes.oldest().ok_or(UnexpectedCqeReason::NotOutstanding)?.id;
                wqes.retire_oldest();
                *used = 0;
                Ok(PacketEvent::Failed(failure(id, strides.number, cqe)))
            }
            cqe_opcode::RESP_SEND => {
                let id = wqes.named(cqe.wqe_id())?.id;
                let part = part_of(cqe, *used, strides);
                let (part, taken) = part.ok_or(UnexpectedCqeReason::NotOutstanding)?;
                *used += taken;
                let last = *used == strides.count;
                if last {
                    wqes.retire_oldest();
                    *used = 0;
                }
                Ok(match part {
                    Part::Filler => PacketEvent::UsedUp { id },
                    Part::Packet { offset, byte_len } => {
                        let words = PacketWords::of(cqe);
                        PacketEvent::Packet(Packet { id, offset, byte_len, last, words })
                    }
                })
            }
            _ => Err(UnexpectedCqeReason::UnknownQueue),
        });
        if event == Err(PollError::DeviceFailed) {
            ring.device_failed();
        }
        event
    }

    /// Returns whether a CQE is there.
    pub(crate) fn is_ready(&mut self) -> Result<bool, PollError> {
        Ok(self.completions.peek()?.is_some())
    }

    /// Requests an event at the next packet, see [`CqReader::arm`].
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&mut self) {
        self.completions.arm();
    }

    /// Counts an event of the CQ, see [`CqReader::event_taken`].
    pub fn event_taken(&mut self) {
        self.completions.event_taken();
    }
}

/// WQEs that are written to a striding receive queue and not yet known to the HCA. Dropping the batch
/// posts nothing.
///
/// Made by [`StridingRq::batch`]. [`ReceiveBatch`](super::ReceiveBatch) is that of other receive queues.
///
/// ```
/// # // SAFETY: no other thread runs yet.
/// # unsafe { std::env::set_var("MLX5_MODEL_LINK", "roce") };
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// # let memory = pd.allocate(4096, mlx5::ib::Access::LOCAL_WRITE)?;
/// # let queue = mlx5::verbs::StridingQueue::builder(&pd, &cq).wqes(4).strides(8).build()?;
/// # let mut receives = mlx5::ring::StridingRq::new(&queue, &cq)?;
/// let wqe = receives.wqe_bytes() as usize;
/// let mut batch = receives.batch();
/// for at in 0..4 {
///     batch.append(at as u64, memory.sge(at * wqe, wqe)?)?;
/// }
/// // SAFETY: the memory stays registered, and is read where packets have arrived.
/// unsafe { batch.ring() };
/// assert_eq!((receives.outstanding(), receives.free()), (4, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a batch posts nothing until it is rung"]
pub struct StridingBatch<'q> {
    queue: &'q mut StridingRq,
    count: u32,
}

impl StridingBatch<'_> {
    /// Writes a WQE after those already in the batch, see [`StridingRq::post`].
    ///
    /// # Errors
    /// [`PostError::QueueFull`], [`PostError::CqFull`], [`PostError::ReceiveTooShort`]; the batch
    /// stays as it was, and can still be rung.
    pub fn append(&mut self, id: u64, memory: Sge) -> Result<(), PostError> {
        self.queue.write(self.count, id, memory)?;
        self.count += 1;
        Ok(())
    }

    /// Returns the size of a WQE's memory in bytes.
    pub fn wqe_bytes(&self) -> u32 {
        self.queue.wqe_bytes()
    }

    /// Returns the number of WQEs in the batch.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Returns whether nothing was appended.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Posts the batch: one store to the doorbell record.
    ///
    /// # Safety
    /// For each WQE, until it is used up or failed, or the queue is destroyed:
    /// - The memory stays registered with local write access.
    /// - Nothing else accesses those of its bytes in which no packet has been reported.
    pub unsafe fn ring(self) {
        if !self.is_empty() {
            // SAFETY: this function's contract. `append` wrote the WQEs, for which there was room.
            unsafe { self.queue.post_written(self.count) }
        }
    }
}

impl fmt::Debug for StridingBatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StridingBatch").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// What a CQE says of its strides.
enum Part {
    /// They are skipped, up to the end of the WQE.
    Filler,
    Packet {
        offset: u32,
        byte_len: u32,
    },
}

/// Decodes a CQE of the oldest WQE, of which `used` strides are taken. Returns the number of
/// strides that it takes. `None` unless it continues where the last one ended, with no more strides
/// than the WQE has left, and a packet that fits them. The HCA's data is not trusted beyond that.
#[inline(always)]
fn part_of(cqe: &CqeRef<'_>, used: u32, shape: &Strides) -> Option<(Part, u32)> {
    let count = cqe.byte_count();
    let strides = (count & !MPRQ_FILLER) >> MPRQ_STRIDES_SHIFT;
    let byte_len = count & MPRQ_BYTES_MASK;
    let first = u32::from(cqe.wqe_counter());
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
    Some((Part::Packet { offset, byte_len }, strides))
}

impl Drop for StridingRq {
    fn drop(&mut self) {
        // Packets may still come for the WQEs that are posted, so that no other reader may take the
        // CQ over. Their CQEs have the tags of flows, and name no queue.
        if self.outstanding() != 0 {
            self.cq_slots.keep_shared(Vec::new(), None, None, Arc::default());
        }
    }
}

impl fmt::Debug for StridingRq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StridingRq")
            .field("strides", &self.strides)
            .field("ring", &self.ring)
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}
