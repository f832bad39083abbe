//! The part that all receive queues share: writing WQEs, the doorbell record, and finding the
//! receive that a CQE completes.

use core::fmt;
use core::hint::black_box;
use core::ptr::NonNull;

use mlx5_sys::cqe::opcode as cqe_opcode;
use mlx5_sys::wqe::SEGMENT_SIZE;

use crate::cqe::{CqeRef, Failure, QueueKind, Status, UnexpectedCqeReason};
use crate::doorbell::Lent;
use crate::doorbell::Record;
use crate::error::QueueError;
use crate::ring::PostError;
use crate::ring::completion::scatter;
use crate::watch::flight::{self, DoorbellKind};
use crate::watch::timing::{Phase, Recorder};
use crate::wqe::error::check_hot;
use crate::wqe::{Limits, Linear, Segments, SgeList, TERMINATOR};

/// The layout of a receive queue: the places of its WQEs, the free ones among them, and the ids of
/// the posted ones.
///
/// A head is the WQE to be written next: the queue's own, or that of a batch. What a layout knows
/// of posted WQEs is in memory that the HCA cannot reach.
pub trait Layout {
    /// The position of a head.
    type Head: Copy;
    /// The state of the WQEs from a head on.
    type Ahead: Copy;

    /// Offset of the first data segment in a WQE.
    const FIRST: usize;

    /// Returns the queue's head.
    fn head(&self) -> Self::Head;

    /// Returns what is ahead of the queue's head.
    fn ahead(&self) -> Self::Ahead;

    /// Returns the head after `head`.
    fn after(head: Self::Head) -> Self::Head;

    /// Lets no further receive be outstanding, because the device failed.
    fn refuse(&mut self);

    /// Returns whether [`refuse`](Self::refuse) was called.
    fn refuses(&self) -> bool;

    /// Returns the low 16 bits of the queue's head, as in the doorbell record.
    fn index(&self) -> u16;

    /// Moves what is ahead behind a WQE that [`open_usual`](Self::open_usual) began, and that ends at
    /// `end`.
    fn pass(ahead: &mut Self::Ahead, end: *mut u8);

    /// Returns the number of WQEs from the queue's head to `head`.
    fn len_to(&self, head: Self::Head) -> u32;

    /// Returns the number of receives that the queue holds.
    fn capacity(&self) -> u32;

    /// Returns the number of receives that may be outstanding: at most the capacity, and at most
    /// the reserved CQ slots.
    fn most(&self) -> u32;

    /// Returns the number of outstanding receives.
    fn used(&self) -> u32;

    /// Returns whether no receive may be posted at `head`.
    fn is_full_at(&self, head: Self::Head) -> bool;

    /// Begins a receive of one entry at `head`: records its id, and writes all of the WQE but the
    /// entry. Returns the place of the entry, and leaves in `ahead` what [`pass`](Self::pass) needs.
    /// `None`, and nothing is written, if only [`open`](Self::open) can tell whether the WQE is free,
    /// or it is not.
    ///
    /// # Safety
    /// Head and `ahead` are the queue's own, or of a batch on this queue. `wqes` are the queue's.
    unsafe fn open_usual(
        &mut self,
        wqes: &Wqes,
        head: Self::Head,
        ahead: &mut Self::Ahead,
        id: u64,
    ) -> Option<*mut u8>;

    /// Begins any receive at `head`, which is not [full](Self::is_full_at): records its id, and
    /// writes what is before its entries. Returns the slot of the WQE and what is ahead after it.
    ///
    /// # Safety
    /// The head is the queue's own, or of a batch on this queue. `wqes` are the queue's.
    unsafe fn open(&mut self, wqes: &Wqes, head: Self::Head, id: u64) -> (usize, Self::Ahead);

    /// Moves the queue's head behind one WQE, which was [passed](Self::pass): it is posted.
    fn post_one(&mut self, ahead: Self::Ahead);

    /// Moves the queue's head: all receives before it are posted.
    fn post(&mut self, head: Self::Head, ahead: Self::Ahead);

    /// Calls `each` with the slots of the receives posted since the queue's head was `before`, and
    /// with their indices in CQEs.
    fn each_since(&self, before: Self::Head, each: impl FnMut(usize, u16));

    /// Returns the slot of the receive that a CQE with this index may complete. `None` if no such
    /// receive is outstanding, or only [`retire_any`](Self::retire_any) finds it.
    fn outstanding(&self, index: u16) -> Option<usize>;

    /// Retires the receive in `slot`, and returns its id.
    ///
    /// # Safety
    /// [`outstanding`](Self::outstanding) returned the slot, and nothing was retired since.
    unsafe fn retire(&mut self, slot: usize) -> u64;

    /// Retires the receive that a CQE with this index completes.
    ///
    /// # Errors
    /// The index names no receive that may complete now. Nothing is changed then.
    fn retire_any(&mut self, index: u16) -> Result<Retired, UnexpectedCqeReason>;
}

/// A retired receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retired {
    pub(in crate::ring) id: u64,
    /// The slot of its WQE.
    pub(in crate::ring) slot: usize,
}

/// The memory of a receive queue's WQEs.
#[derive(Clone, Copy, Debug)]
pub struct Wqes {
    pub(super) buffer: NonNull<u8>,
    /// Bytes of a WQE.
    pub(super) stride: usize,
    /// Maximum number of entries of a receive, at least one.
    pub(super) max_sge: u32,
}

impl Wqes {
    /// Describes the memory of WQEs of `stride` bytes, with data segments from `first` on.
    ///
    /// # Errors
    /// [`QueueError::Geometry`] unless the stride is whole segments, of which one is a data
    /// segment.
    pub(in crate::ring) fn new(
        buffer: NonNull<u8>,
        stride: u32,
        first: usize,
    ) -> Result<Self, QueueError> {
        let stride = stride as usize;
        if stride % SEGMENT_SIZE != 0 || stride < first + SEGMENT_SIZE {
            return Err(QueueError::Geometry("the stride of the receive WQEs is not segments"));
        }
        Ok(Self { buffer, stride, max_sge: ((stride - first) / SEGMENT_SIZE) as u32 })
    }

    /// Returns the address of the WQE in `slot`, which is less than the number of WQEs.
    #[inline(always)]
    pub(super) fn at(&self, slot: usize) -> *mut u8 {
        // SAFETY: the memory has a WQE of `stride` bytes for each slot.
        unsafe { self.buffer.as_ptr().add(slot * self.stride) }
    }

    #[inline(always)]
    fn limits(&self) -> Limits {
        Limits { max_sge: self.max_sge, max_inline: 0, max_packets: 0 }
    }
}

/// The WQEs of a receive queue with its doorbell record.
pub struct ReceiveRing<L> {
    pub(crate) layout: L,
    pub(super) wqes: Wqes,
    record: Record,
    pub(in crate::ring) timing: Recorder,
    pub(in crate::ring) flight: flight::Recorder,
}

impl<L: Layout> ReceiveRing<L> {
    /// # Safety
    /// - `wqes` has a WQE for each slot of `layout`, which only the result writes.
    /// - `record` belongs to the result. Both live as long as the result.
    /// - None of the WQEs is outstanding.
    pub(in crate::ring) unsafe fn new(
        layout: L,
        wqes: Wqes,
        record: Record,
        flight: flight::Recorder,
    ) -> Self {
        Self { layout, wqes, record, timing: Recorder::new(), flight }
    }

    pub(in crate::ring) fn max_sge(&self) -> u32 {
        self.wqes.max_sge
    }

    /// Returns the number of receives that can still be posted.
    pub(in crate::ring) fn free(&self) -> u32 {
        self.layout.most().saturating_sub(self.layout.used())
    }

    /// Refuses posts from now on, because the device failed.
    #[cold]
    pub(in crate::ring) fn device_failed(&mut self) {
        self.layout.refuse();
    }

    /// Returns the producer index in the doorbell record.
    pub(in crate::ring) fn recorded(&self) -> u32 {
        self.record.read()
    }

    /// Returns why no receive can be posted at a head that is [full](Layout::is_full_at).
    #[cold]
    fn full(&self) -> PostError {
        if self.layout.refuses() {
            return PostError::DeviceFailed;
        }
        let (most, entries) = (self.layout.most(), self.layout.capacity());
        if most == entries {
            PostError::QueueFull { free: 0 }
        } else {
            PostError::CqFull { slots: most }
        }
    }

    /// Writes a receive of one entry that is not empty at `head`, and moves `ahead` behind it.
    /// Returns false, and writes nothing, if it is another one, or the layout does not know at once
    /// that the WQE is free.
    ///
    /// # Safety
    /// The first argument has the parts of a queue. Head and `ahead` are the queue's own, or of a
    /// batch on this queue.
    #[inline(always)]
    pub(super) unsafe fn put_usual<P: SgeList>(
        (layout, wqes, timing): (&mut L, &Wqes, &mut Recorder),
        head: L::Head,
        ahead: &mut L::Ahead,
        id: u64,
        list: &P,
    ) -> bool {
        timing.begin();
        // Every queue takes one entry.
        if P::USUAL_DS != 1 || !list.is_usual(&wqes.limits()) {
            return false;
        }
        // SAFETY: head, `ahead` and `wqes` are as the caller says.
        let entry = unsafe { layout.open_usual(wqes, head, ahead, id) };
        let Some(entry) = entry else { return false };
        timing.stamp(Phase::Reserve);
        // SAFETY: `open_usual` returned the place of the entry in a free WQE. The HCA reads the WQE
        // only when the record covers it. The WQE ends within the queue's memory.
        unsafe {
            list.put_usual(&mut Linear::new(entry));
            L::pass(ahead, entry.add(wqes.stride - L::FIRST));
        }
        timing.stamp(Phase::Encode);
        true
    }

    /// Writes any receive at `head`. Returns what is ahead after it.
    ///
    /// # Safety
    /// The head is the queue's own, or of a batch on this queue.
    #[inline(never)]
    pub(super) unsafe fn put_any<P: SgeList>(
        &mut self,
        head: L::Head,
        id: u64,
        list: &P,
    ) -> Result<L::Ahead, PostError> {
        // SAFETY: the head is as the caller says.
        unsafe { self.put_list(head, id, list) }
    }

    /// See [`put_any`](Self::put_any). Not a call of its own.
    #[inline(always)]
    unsafe fn put_list<P: SgeList>(
        &mut self,
        head: L::Head,
        id: u64,
        list: &P,
    ) -> Result<L::Ahead, PostError> {
        check_hot(|| list.check(&self.wqes.limits()))?;
        // SAFETY: the head is as the caller says. The list fits the WQE, as was checked, and the
        // terminator is only added to a shorter one.
        unsafe {
            self.put_at(head, id, |wqes, wqe| {
                let mut writer = Linear::new(wqe.add(L::FIRST));
                list.put(&mut writer);
                if list.ds() < wqes.max_sge {
                    writer.put(TERMINATOR);
                }
            })
        }
    }

    /// Writes a receive at `head` by `write`, which gets the address of a free WQE. Returns what is
    /// ahead after it.
    ///
    /// # Safety
    /// - The head is the queue's own, or of a batch on this queue.
    /// - `write` writes only the WQE.
    #[inline(always)]
    pub(super) unsafe fn put_at(
        &mut self,
        head: L::Head,
        id: u64,
        write: impl FnOnce(&Wqes, *mut u8),
    ) -> Result<L::Ahead, PostError> {
        if self.layout.is_full_at(head) {
            return Err(self.full());
        }
        // SAFETY: the head is as the caller says and not full, and the WQEs are the queue's.
        let (slot, ahead) = unsafe { self.layout.open(&self.wqes, head, id) };
        self.timing.stamp(Phase::Reserve);
        write(&self.wqes, self.wqes.at(slot));
        self.timing.stamp(Phase::Encode);
        Ok(ahead)
    }

    /// Posts one receive.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    #[inline(always)]
    pub(in crate::ring) fn post<P: SgeList>(
        &mut self,
        lent: Lent,
        id: u64,
        list: P,
    ) -> Result<(), PostError> {
        if self.post_usual(lent, id, &list) {
            return Ok(());
        }
        // `black_box` makes it another list for the compiler, so that only this path needs it in
        // memory.
        let rest = black_box(list);
        self.post_any(lent, id, &rest)
    }

    /// Posts a usual receive, if there is known to be room for it. Returns whether it did.
    #[inline(always)]
    pub(in crate::ring) fn post_usual<P: SgeList>(
        &mut self,
        lent: Lent,
        id: u64,
        list: &P,
    ) -> bool {
        let Self { layout, wqes, timing, .. } = self;
        let (head, mut ahead) = (layout.head(), layout.ahead());
        // SAFETY: this queue's parts, its own head and what is ahead of it. `put_usual` wrote the
        // receive at the head.
        unsafe {
            if !Self::put_usual((layout, wqes, timing), head, &mut ahead, id, list) {
                return false;
            }
            self.commit_one(lent, ahead);
        }
        true
    }

    /// Posts any receive.
    #[inline(never)]
    pub(in crate::ring) fn post_any<P: SgeList>(
        &mut self,
        lent: Lent,
        id: u64,
        list: &P,
    ) -> Result<(), PostError> {
        // SAFETY: the queue's own head.
        unsafe {
            let head = self.layout.head();
            let ahead = self.put_list(head, id, list)?;
            self.commit(lent, L::after(head), ahead);
        }
        Ok(())
    }

    /// Posts the usual receive that was written at the queue's head.
    ///
    /// # Safety
    /// [`put_usual`](Self::put_usual) wrote it, and moved `ahead`, from the queue's head on.
    #[inline(always)]
    unsafe fn commit_one(&mut self, _: Lent, ahead: L::Ahead) {
        let before = self.layout.head();
        self.layout.post_one(ahead);
        self.tell(before);
    }

    /// Posts the receives before `head`.
    ///
    /// # Safety
    /// The receives before `head` were written, and `ahead` is of `head`.
    #[inline(always)]
    pub(super) unsafe fn commit(&mut self, _: Lent, head: L::Head, ahead: L::Ahead) {
        let before = self.layout.head();
        self.layout.post(head, ahead);
        self.tell(before);
    }

    /// Stores the producer index to the doorbell record. The queue's head was `before`.
    #[inline(always)]
    fn tell(&mut self, before: L::Head) {
        self.record.publish(self.layout.index().into());
        self.timing.stamp(Phase::Record);
        if flight::Recorder::ON {
            self.record_flight(before);
        }
    }

    /// Records the receives posted since the head was `before`, and the store to the doorbell
    /// record.
    #[cold]
    #[inline(never)]
    fn record_flight(&mut self, before: L::Head) {
        let Self { layout, wqes, flight, .. } = self;
        layout.each_since(before, |slot, index| {
            // SAFETY: a WQE of the queue's memory, of whole segments, which only this queue writes.
            unsafe { flight.receive(wqes.at(slot), wqes.stride, index) }
        });
        flight.rang(DoorbellKind::RecordOnly, layout.index().into(), None);
    }

    /// Retires the receive that a CQE of this queue completes, and returns its id. The CQE reports
    /// success, and the message is in the receive's memory. `None`, and nothing changes, if no such
    /// receive is outstanding, or only [`take`](Self::take) finds it.
    #[inline(always)]
    pub(super) fn retire_plain(&mut self, cqe: &CqeRef<'_>) -> Option<u64> {
        let slot = self.layout.outstanding(cqe.wqe_counter())?;
        // SAFETY: `outstanding` has just returned the slot.
        let id = unsafe { self.layout.retire(slot) };
        self.flight.cqe(cqe);
        Some(id)
    }

    /// Copies the message of up to 32 bytes that a CQE of this queue holds to the memory of the
    /// receive that [`retire_plain`](Self::retire_plain) would retire. Returns false, and copies
    /// nothing, if that would retire none, or the receive is not one entry that is long enough.
    #[inline(always)]
    pub(super) fn deliver(&self, cqe: &CqeRef<'_>) -> bool {
        let slot = self.layout.outstanding(cqe.wqe_counter());
        slot.is_some_and(|slot| self.deliver_to(slot, cqe))
    }

    /// Copies the message of up to 32 bytes that a CQE holds to the memory of the receive in `slot`.
    /// Returns false, and copies nothing, if that is not one entry that is long enough.
    #[inline(always)]
    pub(super) fn deliver_to(&self, slot: usize, cqe: &CqeRef<'_>) -> bool {
        // SAFETY: the first data segment of a WQE of the queue's memory.
        let segment = unsafe { scatter::Segment::read(self.wqes.at(slot).add(L::FIRST)) };
        let Some((message, length)) = cqe.short_data() else { return false };
        // SAFETY: if a QP puts payload into CQEs, the contract of posting guarantees that the
        // entry's memory is mapped at its address and unused until this completion is reported.
        // `short_data` gives 32 bytes of the CQE at most, which the HCA does not write meanwhile.
        unsafe { segment.put_short(message, length) }
    }

    /// Retires the receive that any CQE of this queue completes. Records the CQE, and the WQE if it
    /// failed.
    ///
    /// # Errors
    /// The CQE names no receive that may complete now. Nothing is changed then.
    pub(super) fn retire_any(&mut self, cqe: &CqeRef<'_>) -> Result<Retired, UnexpectedCqeReason> {
        let index = cqe.wqe_counter();
        let retired = self.layout.retire_any(index)?;
        if flight::Recorder::ON && cqe.opcode() == cqe_opcode::RESP_ERR {
            let (wqe, size) = (self.wqes.at(retired.slot), self.wqes.stride);
            // SAFETY: a WQE of the queue's memory, of whole segments, which only this queue writes.
            unsafe { self.flight.found_receive(wqe, size, index) }
        }
        self.flight.cqe(cqe);
        Ok(retired)
    }

    /// Retires a receive like [`retire_any`](Self::retire_any), and copies a message in the CQE to
    /// the receive's memory. Returns the id, and whether the message did fit.
    pub(super) fn take(&mut self, cqe: &CqeRef<'_>) -> Result<(u64, bool), UnexpectedCqeReason> {
        let Retired { id, slot } = self.retire_any(cqe)?;
        let inside = cqe.opcode() != cqe_opcode::RESP_ERR && cqe.has_inline_data();
        Ok((id, !inside || self.scatter(slot, cqe)))
    }

    /// Copies a message that came in the CQE to the memory that the receive names.
    #[cold]
    fn scatter(&self, slot: usize, cqe: &CqeRef<'_>) -> bool {
        let Some(data) = cqe.inline_data(cqe.byte_count()) else { return false };
        let segments = (0..self.wqes.max_sge as usize).map(|unit| {
            // SAFETY: a data segment of this WQE.
            unsafe {
                let first = self.wqes.at(slot).add(L::FIRST);
                scatter::Segment::read(first.add(unit * SEGMENT_SIZE))
            }
        });
        // SAFETY: if a QP puts payload into CQEs, the contract of posting guarantees that the
        // entries' memory is mapped at their addresses and unused until this completion is
        // reported.
        unsafe { scatter::scatter(data.bytes(), segments) }
    }
}

/// Returns the failure of a receive, as its CQE reports it.
pub(super) fn failure(id: u64, qpn: u32, cqe: &CqeRef<'_>) -> Failure {
    Failure {
        id,
        qpn,
        queue: QueueKind::Receive,
        status: Status::from_syndrome(cqe.syndrome()),
        vendor_error: cqe.vendor_syndrome(),
        wqe_index: cqe.wqe_counter(),
        opcode: 0,
    }
}

impl<L: Layout> fmt::Debug for ReceiveRing<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveRing")
            .field("capacity", &self.layout.capacity())
            .field("outstanding", &self.layout.used())
            .field("max_sge", &self.wqes.max_sge)
            .finish_non_exhaustive()
    }
}
