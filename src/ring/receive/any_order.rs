//! Shared receive queues, whose WQEs complete in any order: all index arithmetic of their lists.
//!
//! Each WQE has the index of its successor. The HCA follows it, and reads it when it takes the WQE.
//! So a poster must already know which WQE will be posted next: the last free one is never posted.
//! WQEs are posted again in the order in which they became free. That order is in memory that the
//! HCA cannot reach. Each post writes the successor, so a poll does not touch the queue's memory.
//!
//! The HCA takes the WQEs of some shared queues in cyclic order instead. They complete in any order
//! as well, but a WQE is free only after all WQEs posted before it are, and its index in CQEs is
//! that of its position.

use core::mem::offset_of;

use mlx5_sys::wqe::{SEGMENT_SIZE, SrqNextSeg};

use super::core::{Layout, Retired, Wqes};
use crate::cqe::UnexpectedCqeReason;
use crate::ring::opaque::opaque;
use crate::wqe::{Linear, Segments, TERMINATOR};

/// The position of a WQE that is not posted.
const NOWHERE: u64 = u64::MAX;

/// Software's record of a posted receive.
#[derive(Clone, Copy)]
struct Place {
    id: u64,
    /// The position at which it was posted. [`NOWHERE`] before the first post and once it is
    /// retired.
    at: u64,
}

/// How the HCA takes the WQEs of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ring) enum Taking {
    /// Each WQE names its successor, and CQEs name the WQE.
    Linked,
    /// In cyclic order. CQEs name the position.
    Cyclic,
}

/// The layout of a shared receive queue: its WQEs, by the positions at which they are posted. A
/// position is a count since the queue was created, of which the HCA knows the low 16 bits.
pub struct AnyOrder {
    /// Position of the next post.
    head: u64,
    /// First position that may not be posted to, for lack of a free WQE or of a CQ slot.
    limit: u64,
    /// Number of WQEs, a power of two, less one.
    mask: u64,
    /// Index of the WQE to post at `head`.
    next: u16,
    /// By position: index of the WQE posted there.
    order: Box<[u16]>,
    /// By WQE index: one for each WQE in the queue's memory.
    places: Box<[Place]>,
    /// Number of free WQEs behind the limit.
    reserve: u32,
    taking: Taking,
    /// Whether the device failed.
    refuses: bool,
}

impl AnyOrder {
    /// Creates a layout whose WQEs are free, and are taken in the order `order`. The queue's memory
    /// has `wqes` WQEs. `order` names some of them, each once; its length is a power of two.
    /// `start` is the part of the position that the HCA knows.
    pub(in crate::ring) fn new(
        order: Box<[u16]>,
        wqes: usize,
        start: u16,
        taking: Taking,
    ) -> Option<Self> {
        let mut seen = vec![false; wqes];
        for &slot in &order {
            if std::mem::replace(seen.get_mut(usize::from(slot))?, true) {
                return None;
            }
        }
        if !order.len().is_power_of_two() {
            return None;
        }
        let head = u64::from(start);
        // The position stays in step with the ring when the HCA's 16 bits wrap: a ring has at most
        // 2^16 entries.
        let mut turned = order.clone();
        for (at, &slot) in order.iter().enumerate() {
            turned[(usize::from(start) + at) & (order.len() - 1)] = slot;
        }
        Some(Self {
            head,
            next: order[0],
            limit: head + order.len() as u64 - 1,
            reserve: 1,
            mask: order.len() as u64 - 1,
            places: vec![Place { id: 0, at: NOWHERE }; wqes].into(),
            order: turned,
            taking,
            refuses: false,
        })
    }

    /// Lets up to `most` receives be outstanding. `false`, and nothing changes, if more are
    /// already.
    pub(in crate::ring) fn limit_to(&mut self, most: u32) -> bool {
        let most = most.min(self.capacity());
        if most < self.used() {
            return false;
        }
        let end = self.end();
        self.reserve = self.order.len() as u32 - most;
        self.limit = end - u64::from(self.reserve);
        true
    }

    /// Returns the order in which the HCA takes the WQEs next, if none is outstanding.
    pub(in crate::ring) fn order(&self) -> Option<Box<[u16]>> {
        let entries = self.order.len() as u64;
        (self.used() == 0).then(|| (0..entries).map(|at| self.slot(self.head + at)).collect())
    }

    #[inline(always)]
    fn slot(&self, position: u64) -> u16 {
        // SAFETY: the length is a power of two, so what is masked is less.
        unsafe { *self.order.get_unchecked((position & self.mask) as usize) }
    }

    /// Returns the position behind the last free WQE.
    #[inline(always)]
    fn end(&self) -> u64 {
        self.limit + u64::from(self.reserve)
    }

    /// Returns the first position of a cyclic queue that is not free.
    fn tail(&self) -> u64 {
        self.end() - self.order.len() as u64
    }

    /// Records the receive to be posted at `head` once the queue's head is behind it.
    #[inline(always)]
    fn remember(&mut self, slot: u16, head: u64, id: u64) {
        // SAFETY: the order names only WQEs of the queue's memory: `new` has checked it, and
        // `retire` preserves it.
        unsafe { *self.places.get_unchecked_mut(usize::from(slot)) = Place { id, at: head } };
    }

    /// Writes the link of the WQE to post at `head`, which is not full, and records the receive.
    /// Returns its address, and the slot of its successor.
    ///
    /// # Safety
    /// `wqes` are the queue's, and `slot` is that of the WQE to post at `head`.
    #[inline(always)]
    unsafe fn link(&mut self, wqes: &Wqes, head: u64, slot: u16, id: u64) -> (*mut u8, u16) {
        /// Offset of the index of the successor (`mlx5dv.h`, `mlx5_wqe_srq_next_seg`).
        const NEXT: usize = offset_of!(SrqNextSeg, next_wqe_index);
        let next = self.slot(head + 1);
        let wqe = wqes.at(usize::from(slot));
        // SAFETY: the WQE is free: the HCA does not read it before the record covers it, but for
        // its successor's index, which it does not use before.
        unsafe { wqe.add(NEXT).cast::<u16>().write_volatile(next.to_be()) };
        self.remember(slot, head, id);
        (wqe, next)
    }

    /// Returns the slot of an outstanding receive of a cyclic queue, by the low 16 bits of the
    /// position at which it was posted.
    fn place_in_ring(&self, counter: u16) -> Option<usize> {
        let slot = usize::from(counter) & self.mask as usize;
        let place = self.places.get(slot)?;
        (place.at < self.head && place.at as u16 == counter).then_some(slot)
    }

    /// Retires a receive of a cyclic queue.
    fn retire_in_ring(&mut self, counter: u16) -> Option<Retired> {
        let slot = self.place_in_ring(counter)?;
        let place = &mut self.places[slot];
        place.at = NOWHERE;
        let id = place.id;
        // Frees positions from the oldest one on that was not free.
        while self.tail() < self.head {
            let slot = self.slot(self.tail());
            if self.places[usize::from(slot)].at != NOWHERE {
                break;
            }
            self.limit += 1;
        }
        Some(Retired { id, slot })
    }
}

impl Layout for AnyOrder {
    /// A position.
    type Head = u64;
    /// Index of the WQE to post at the head. Its successor is known, since the last free WQE is never
    /// posted, and stays the same whatever is retired.
    type Ahead = u16;

    const FIRST: usize = SEGMENT_SIZE;

    #[inline(always)]
    fn head(&self) -> u64 {
        self.head
    }

    #[inline(always)]
    fn ahead(&self) -> u16 {
        self.next
    }

    #[inline(always)]
    fn after(head: u64) -> u64 {
        // The compiler would compute it from the start of a batch each time.
        opaque(head as usize + 1) as u64
    }

    /// [`open_usual`](Self::open_usual) has moved it.
    #[inline(always)]
    fn pass(_: &mut u16, _: *mut u8) {}

    fn refuse(&mut self) {
        self.reserve += (self.limit - self.head) as u32;
        (self.limit, self.refuses) = (self.head, true);
    }

    fn refuses(&self) -> bool {
        self.refuses
    }

    #[inline(always)]
    fn index(&self) -> u16 {
        self.head as u16
    }

    #[inline(always)]
    fn len_to(&self, head: u64) -> u32 {
        (head - self.head) as u32
    }

    fn capacity(&self) -> u32 {
        self.order.len() as u32 - 1
    }

    fn most(&self) -> u32 {
        self.order.len() as u32 - self.reserve
    }

    fn used(&self) -> u32 {
        self.most() - (self.limit - self.head) as u32
    }

    #[inline(always)]
    fn is_full_at(&self, head: u64) -> bool {
        head == self.limit
    }

    #[inline(always)]
    unsafe fn open_usual(
        &mut self,
        wqes: &Wqes,
        head: u64,
        ahead: &mut u16,
        id: u64,
    ) -> Option<*mut u8> {
        if self.is_full_at(head) {
            return None;
        }
        // SAFETY: the WQEs are the queue's, and the head is not full. Each WQE has a segment behind
        // its link, and another one if a receive may have several entries.
        unsafe {
            let wqe;
            (wqe, *ahead) = self.link(wqes, head, *ahead, id);
            let entry = wqe.add(Self::FIRST);
            if wqes.max_sge != 1 {
                Linear::new(entry.add(SEGMENT_SIZE)).put(TERMINATOR);
            }
            Some(entry)
        }
    }

    unsafe fn open(&mut self, wqes: &Wqes, head: u64, id: u64) -> (usize, u16) {
        let slot = self.slot(head);
        // SAFETY: the WQEs are the queue's, and the head is not full.
        let (_, next) = unsafe { self.link(wqes, head, slot, id) };
        (slot.into(), next)
    }

    #[inline(always)]
    fn post_one(&mut self, ahead: u16) {
        self.post(self.head + 1, ahead);
    }

    #[inline(always)]
    fn post(&mut self, head: u64, ahead: u16) {
        debug_assert!(head - self.head <= self.limit - self.head);
        debug_assert_eq!(ahead, self.slot(head));
        (self.head, self.next) = (head, ahead);
    }

    fn each_since(&self, before: u64, mut each: impl FnMut(usize, u16)) {
        for at in before..self.head {
            let slot = self.slot(at);
            let index = match self.taking {
                Taking::Linked => slot,
                Taking::Cyclic => at as u16,
            };
            each(usize::from(slot), index);
        }
    }

    /// For linked queues only.
    #[inline(always)]
    fn outstanding(&self, index: u16) -> Option<usize> {
        let slot = usize::from(index);
        // Entries of a dropped batch are at the head or behind it.
        self.places.get(slot).is_some_and(|place| place.at < self.head).then_some(slot)
    }

    /// For linked queues only.
    #[inline(always)]
    unsafe fn retire(&mut self, slot: usize) -> u64 {
        let at = self.end() & self.mask;
        // SAFETY: `outstanding` has checked the slot. The length of the order is a power of two and
        // `at` is masked, so it is less. The entry is free: its WQE was posted a lap ago.
        let place = unsafe {
            *self.order.get_unchecked_mut(at as usize) = slot as u16;
            self.places.get_unchecked_mut(slot)
        };
        self.limit += 1;
        place.at = NOWHERE;
        place.id
    }

    fn retire_any(&mut self, index: u16) -> Result<Retired, UnexpectedCqeReason> {
        let retired = match self.taking {
            Taking::Linked => self.outstanding(index).map(|slot| {
                // SAFETY: `outstanding` has just returned the slot.
                Retired { id: unsafe { self.retire(slot) }, slot }
            }),
            Taking::Cyclic => self.retire_in_ring(index),
        };
        retired.ok_or(UnexpectedCqeReason::NotOutstanding)
    }
}

#[cfg(test)]
mod tests;
