//! Rings whose WQEs complete in the order of posting: a queue pair's own, and striding ones.
//!
//! A post first looks at a range of addresses: the WQEs that it may write without a look at
//! anything else. Where the range ends, apart from the hot path, the next range is found. It ends
//! with the ring at the latest, so nothing wraps within it.

use core::mem::offset_of;
use core::ptr::null_mut;

use mlx5_sys::cqe::Cqe64;
use mlx5_sys::wqe::SEGMENT_SIZE;

use super::core::{Layout, Retired, Wqes};
use crate::cqe::{CqeRef, UnexpectedCqeReason};
use crate::error::QueueError;
use crate::ib::{Counter, Shape};
use crate::ring::opaque::opaque;
use crate::wqe::{Linear, Segments, TERMINATOR};

/// The layout of a ring whose WQEs complete in order.
pub struct InOrder {
    shape: Shape,
    head: Counter,
    /// The name of the oldest receive, or of the next one to be posted if none is outstanding. Its
    /// low 16 bits are those of the tail.
    oldest: Name,
    /// Number of the queue pair.
    qpn: u32,
    most: u32,
    /// The WQEs from the queue's head on that can be written at once.
    ahead: Ahead,
    /// Software's record of posted receives, by slot.
    shadow: Box<[Place]>,
    /// Distance from the ring's address to the shadow's. If a WQE has the size of a [`Place`], it
    /// is also the distance from each WQE to its place.
    to_shadow: usize,
}

/// Software's record of a posted receive. It has the size of a WQE of one entry, so that one
/// addition converts between their addresses.
#[derive(Clone, Copy, Default)]
struct Place {
    id: u64,
    _unused: u64,
}

/// WQEs from a head on that can be written without a look at anything else: they are free, there
/// are CQ slots for them, and the ring does not end before them. Often fewer than there are:
/// retiring does not add to them, the next post that has used them up does.
///
/// At most one of the two ends is not null. The head's WQE is at `next` if that is below it.
#[derive(Clone, Copy, Debug)]
pub struct Ahead {
    next: *mut u8,
    /// Their end, if a WQE is one segment.
    narrow: *mut u8,
    /// Their end, if a WQE is longer.
    wide: *mut u8,
}

impl Ahead {
    /// None are known.
    pub(super) const NOTHING: Self =
        Self { next: null_mut(), narrow: null_mut(), wide: null_mut() };
}

impl InOrder {
    /// Creates the layout of a ring of `entries` WQEs, of which up to `most` may be outstanding.
    /// `start` is the producer index in the record, and `qpn` the number in the CQEs.
    pub(in crate::ring) fn new(
        entries: u32,
        most: u32,
        (start, qpn): (u32, u32),
        wqes: &Wqes,
    ) -> Result<Self, QueueError> {
        let Some(shape) = Shape::new(entries).filter(|shape| shape.entries() <= 1 << 15) else {
            return Err(QueueError::Geometry("the receive queue's size is not a power of two"));
        };
        let mut shadow: Box<[Place]> = vec![Place::default(); entries as usize].into();
        let to_shadow = shadow.as_mut_ptr().addr().wrapping_sub(wqes.buffer.addr().get());
        Ok(Self {
            shape,
            head: Counter::new(start & 0xffff),
            oldest: Name::new(qpn, start as u16),
            qpn,
            most: most.min(entries),
            ahead: Ahead::NOTHING,
            shadow,
            to_shadow,
        })
    }

    /// Forgets the outstanding receives, and continues at index 0.
    pub(in crate::ring) fn restart(&mut self) {
        (self.head, self.oldest) = (Counter::default(), Name::new(self.qpn, 0));
        self.ahead = Ahead::NOTHING;
    }

    /// Returns the ring's shape.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the counter of the next receive to be posted.
    #[inline(always)]
    pub(crate) fn head(&self) -> Counter {
        self.head
    }

    /// Returns the counter of the oldest receive that is outstanding.
    #[inline(always)]
    pub(crate) fn tail(&self) -> Counter {
        // Fewer than 2^16 are outstanding.
        let used = self.head.low16().wrapping_sub(self.oldest.index());
        self.head.plus(u32::from(used).wrapping_neg())
    }

    /// Returns the ids of the outstanding receives, oldest first.
    pub(crate) fn outstanding_ids(&self) -> impl Iterator<Item = u64> {
        let slot = |ahead| self.shape.slot(self.tail().plus(ahead));
        (0..self.used()).map(move |ahead| self.shadow[slot(ahead)].id)
    }

    /// Returns the id that the receive in a slot was posted with.
    #[inline(always)]
    pub(super) fn id(&self, slot: usize) -> u64 {
        self.shadow[slot].id
    }

    /// Returns the oldest outstanding receive.
    #[inline(always)]
    pub(super) fn oldest(&self) -> Option<Retired> {
        if self.used() == 0 {
            return None;
        }
        let slot = self.shape.slot(self.tail());
        Some(Retired { id: self.shadow[slot].id, slot })
    }

    /// Returns the outstanding receive that a CQE with this index names: the oldest.
    ///
    /// # Errors
    /// There is none, or the index is not the oldest's.
    pub(super) fn named(&self, index: u16) -> Result<Retired, UnexpectedCqeReason> {
        let oldest = self.oldest().ok_or(UnexpectedCqeReason::NotOutstanding)?;
        let tail = self.oldest.index();
        if tail != index {
            return Err(UnexpectedCqeReason::NotOldest { oldest: tail, named: index });
        }
        Ok(oldest)
    }

    /// Retires the oldest receive, which there is.
    #[inline(always)]
    pub(super) fn retire_oldest(&mut self) {
        self.oldest = self.oldest.next();
    }

    /// Returns whether the oldest receive is the one of this name. False also if that is not known
    /// at once.
    #[inline(always)]
    fn is_next(&self, named: Name) -> bool {
        // If none is outstanding, the oldest is the next one to be posted.
        named == self.oldest && named.index() != self.head.low16()
    }

    #[inline(always)]
    fn slot(&self, named: Name) -> usize {
        named.0 as usize & self.shape.last()
    }

    /// Returns the slot of the oldest receive, if it is the one of this name. `None` also if that is
    /// not known at once.
    #[inline(always)]
    pub(super) fn next(&self, named: Name) -> Option<usize> {
        self.is_next(named).then(|| self.slot(named))
    }

    /// Retires the oldest receive, if it is the one of this name, and returns its id. `None`, and
    /// nothing changes, also if that is not known at once.
    #[inline(always)]
    pub(super) fn retire_next(&mut self, named: Name) -> Option<u64> {
        if !self.is_next(named) {
            return None;
        }
        self.oldest = named.next();
        // SAFETY: a slot is less than the number of entries. That is the shadow's length.
        Some(unsafe { self.shadow.get_unchecked(self.slot(named)) }.id)
    }
}

/// How a CQE names a receive: the number of the queue pair and, in the low 16 bits, the index of
/// the WQE.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Name(u64);

impl Name {
    #[inline(always)]
    fn new(qpn: u32, index: u16) -> Self {
        Self(u64::from(qpn) << 16 | u64::from(index))
    }

    /// Returns the name in a responder's CQE.
    #[inline(always)]
    pub(super) fn of(cqe: &CqeRef<'_>) -> Self {
        const {
            assert!(offset_of!(Cqe64, sop_drop_qpn) == 56 && offset_of!(Cqe64, wqe_counter) == 60);
            assert!(size_of::<usize>() == size_of::<u64>());
        }
        // Drops the byte before the number, and the two bytes behind the index. By shifts alone: the
        // compiler would load a mask.
        Self(opaque((u64::from_be(cqe.end()) << 8) as usize) as u64 >> 24)
    }

    /// Returns the name of the receive behind it. The index wraps within its 16 bits: a carry would
    /// give the name of a receive of another queue pair.
    #[inline(always)]
    fn next(self) -> Self {
        // The compiler would take the two parts apart and put them together again.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let mut name = self.0;
            // SAFETY: adds one to the low 16 bits of a register, and accesses no memory.
            unsafe {
                core::arch::asm!("inc {0:x}", inout(reg) name, options(pure, nomem, nostack));
            }
            Self(name)
        }
        #[cfg(any(not(target_arch = "x86_64"), miri))]
        Self(self.0 & !0xffff | u64::from(self.index().wrapping_add(1)))
    }

    #[inline(always)]
    fn index(self) -> u16 {
        self.0 as u16
    }
}

impl Layout for InOrder {
    type Head = Counter;
    type Ahead = Ahead;

    const FIRST: usize = 0;

    #[inline(always)]
    fn head(&self) -> Counter {
        self.head
    }

    #[inline(always)]
    fn ahead(&self) -> Ahead {
        self.ahead
    }

    #[inline(always)]
    fn after(head: Counter) -> Counter {
        head.plus(1)
    }

    fn refuse(&mut self) {
        (self.most, self.ahead) = (0, Ahead::NOTHING);
    }

    fn refuses(&self) -> bool {
        self.most == 0
    }

    #[inline(always)]
    fn pass(ahead: &mut Ahead, end: *mut u8) {
        ahead.next = end;
    }

    #[inline(always)]
    fn index(&self) -> u16 {
        self.head.low16()
    }

    #[inline(always)]
    fn len_to(&self, head: Counter) -> u32 {
        head.since(self.head)
    }

    fn capacity(&self) -> u32 {
        self.shape.entries()
    }

    fn most(&self) -> u32 {
        self.most
    }

    fn used(&self) -> u32 {
        self.head.since(self.tail())
    }

    fn is_full_at(&self, head: Counter) -> bool {
        head.since(self.tail()) >= self.most
    }

    #[inline(always)]
    unsafe fn open_usual(
        &mut self,
        _: &Wqes,
        head: Counter,
        ahead: &mut Ahead,
        id: u64,
    ) -> Option<*mut u8> {
        const { assert!(size_of::<Place>() == SEGMENT_SIZE) };
        let shadow = self.shadow.as_mut_ptr();
        let wqe = ahead.next;
        if wqe < ahead.narrow {
            // The same slot: both rings have entries of one segment.
            let place = shadow.with_addr(wqe.addr().wrapping_add(self.to_shadow));
            // In each of the ways, so that this one's address is part of the store.
            // SAFETY: the shadow has a place for each slot.
            unsafe { (*place).id = id };
        } else if wqe < ahead.wide {
            // SAFETY: the WQE is free, since `ahead` covers it, and has a second segment. A slot is
            // less than the number of entries, which is the shadow's length.
            unsafe {
                Linear::new(wqe.add(SEGMENT_SIZE)).put(TERMINATOR);
                let place = shadow.add(self.shape.slot(head));
                (*place).id = id;
            }
        } else {
            return None;
        }
        Some(wqe)
    }

    unsafe fn open(&mut self, wqes: &Wqes, head: Counter, id: u64) -> (usize, Ahead) {
        let slot = self.shape.slot(head);
        self.shadow[slot].id = id;
        let left = self.most - head.since(self.tail());
        let count = left.min(self.capacity() - slot as u32) as usize;
        let (wqe, stride) = (wqes.at(slot), wqes.stride);
        // SAFETY: this WQE and those up to the ring's end.
        let (next, end) = unsafe { (wqe.add(stride), wqe.add(count * stride)) };
        let (narrow, wide) =
            if stride == SEGMENT_SIZE { (end, null_mut()) } else { (null_mut(), end) };
        (slot, Ahead { next, narrow, wide })
    }

    #[inline(always)]
    fn post_one(&mut self, ahead: Ahead) {
        // A WQE that was passed leaves the ends as they are.
        self.ahead.next = ahead.next;
        self.head = self.head.plus(1);
    }

    #[inline(always)]
    fn post(&mut self, head: Counter, ahead: Ahead) {
        self.ahead = ahead;
        self.head = head;
    }

    fn each_since(&self, before: Counter, mut each: impl FnMut(usize, u16)) {
        for ahead in 0..self.head.since(before) {
            let at = before.plus(ahead);
            each(self.shape.slot(at), at.low16());
        }
    }

    #[inline(always)]
    fn outstanding(&self, index: u16) -> Option<usize> {
        let is = self.oldest.index() == index && self.head.low16() != index;
        is.then_some(usize::from(index) & self.shape.last())
    }

    #[inline(always)]
    unsafe fn retire(&mut self, slot: usize) -> u64 {
        self.retire_oldest();
        // SAFETY: `outstanding` returned the slot, which is less than the number of entries. That
        // is the shadow's length.
        unsafe { self.shadow.get_unchecked(slot) }.id
    }

    fn retire_any(&mut self, index: u16) -> Result<Retired, UnexpectedCqeReason> {
        let retired = self.named(index)?;
        self.retire_oldest();
        Ok(retired)
    }
}
