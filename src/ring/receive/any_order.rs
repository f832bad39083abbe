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
    /// By position: index of the WQE posted there.
    order: Box<[u16]>,
    /// By WQE index: one for each WQE in the queue's memory.
    places: Box<[Place]>,
    /// Number of free WQEs behind the limit.
    reserve: u32,
    taking: Taking,
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
            limit: head + order.len() as u64 - 1,
            reserve: 1,
            mask: order.len() as u64 - 1,
            places: vec![Place { id: 0, at: NOWHERE }; wqes].into(),
            order: turned,
            taking,
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

    /// Returns the WQE to post at `head`, which is not [full](Layout::is_full_at), and its
    /// successor. Both are WQEs of the queue's memory.
    #[inline(always)]
    fn at(&self, head: u64) -> (u16, u16) {
        (self.slot(head), self.slot(head + 1))
    }

    /// Records the receive to be posted at `head` once the queue's head is behind it.
    #[inline(always)]
    fn remember(&mut self, slot: u16, head: u64, id: u64) {
        // SAFETY: the order names only WQEs of the queue's memory: `new` has checked it, and
        // `retire` preserves it.
        unsafe { *self.places.get_unchecked_mut(usize::from(slot)) = Place { id, at: head } };
    }

    /// Writes the link of the WQE to post at `head`, which is not full, and records the receive.
    /// Returns its slot and its address.
    ///
    /// # Safety
    /// `wqes` are the queue's.
    #[inline(always)]
    unsafe fn link(&mut self, wqes: &Wqes, head: u64, id: u64) -> (usize, *mut u8) {
        /// Offset of the index of the successor (`mlx5dv.h`, `mlx5_wqe_srq_next_seg`).
        const NEXT: usize = offset_of!(SrqNextSeg, next_wqe_index);
        let (slot, next) = self.at(head);
        let wqe = wqes.at(usize::from(slot));
        // SAFETY: the WQE is free: the HCA does not read it before the record covers it, but for
        // its successor's index, which it does not use before.
        unsafe { wqe.add(NEXT).cast::<u16>().write_volatile(next.to_be()) };
        self.remember(slot, head, id);
        (usize::from(slot), wqe)
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
    type Ahead = ();

    const FIRST: usize = SEGMENT_SIZE;

    #[inline(always)]
    fn head(&self) -> u64 {
        self.head
    }

    #[inline(always)]
    fn ahead(&self) {}

    #[inline(always)]
    fn after(head: u64) -> u64 {
        head + 1
    }

    #[inline(always)]
    fn pass((): &mut (), _: *mut u8) {}

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
    unsafe fn open_usual(&mut self, wqes: &Wqes, head: u64, (): (), id: u64) -> Option<*mut u8> {
        if self.is_full_at(head) {
            return None;
        }
        // SAFETY: the WQEs are the queue's, and the head is not full. Each WQE has a segment behind
        // its link, and another one if a receive may have several entries.
        unsafe {
            let (_, wqe) = self.link(wqes, head, id);
            let entry = wqe.add(Self::FIRST);
            if wqes.max_sge != 1 {
                Linear::new(entry.add(SEGMENT_SIZE)).put(TERMINATOR);
            }
            Some(entry)
        }
    }

    unsafe fn open(&mut self, wqes: &Wqes, head: u64, id: u64) -> (usize, ()) {
        // SAFETY: the WQEs are the queue's, and the head is not full.
        let (slot, _) = unsafe { self.link(wqes, head, id) };
        (slot, ())
    }

    #[inline(always)]
    fn post_one(&mut self, _: *mut u8) {
        self.post(self.head + 1, ());
    }

    #[inline(always)]
    fn post(&mut self, head: u64, (): ()) {
        debug_assert!(head - self.head <= self.limit - self.head);
        self.head = head;
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
mod tests {
    use std::collections::{HashMap, VecDeque};

    use super::*;
    use crate::ring::random::{Random, rounds};

    fn list(wqes: usize, start: u16) -> AnyOrder {
        AnyOrder::new((0..wqes as u16).collect(), wqes, start, Taking::Linked).unwrap()
    }

    #[test]
    fn an_order_names_each_wqe_once() {
        let list =
            |order: &[u16], wqes| AnyOrder::new(order.into(), wqes, 0, Taking::Linked).is_some();
        assert!(list(&[0, 1, 2, 3], 4) && list(&[5, 1, 7, 2], 8));
        assert!(!list(&[0, 1, 2, 4], 4), "out of the memory");
        assert!(!list(&[0, 1, 1, 2], 4), "twice");
        assert!(!list(&[0, 1, 2], 4), "no power of two");
    }

    /// The oracle is a deque of posted WQEs, with those marked that completed before their turn.
    #[test]
    fn a_ring_is_free_from_its_oldest_on_whatever_completes_first() {
        let mut random = Random::from_clock();
        for _ in 0..rounds(100) {
            let wqes = 2usize << random.below(6);
            let start = [0, 0xfffe, random.next() as u16][random.below(3) as usize];
            let turned = (0..wqes).map(|at| (usize::from(start) + at) as u16 & (wqes as u16 - 1));
            let mut list = AnyOrder::new(turned.collect(), wqes, start, Taking::Cyclic).unwrap();
            // Position, id, and whether it has completed.
            let mut posted: VecDeque<(u64, u64, bool)> = VecDeque::new();
            for id in 0..u64::from(rounds(600)) {
                assert_eq!(list.used() as usize, posted.len(), "{}", random.seed());
                if random.below(2) == 0 && posted.len() < wqes - 1 {
                    let head = list.head();
                    assert!(!list.is_full_at(head));
                    let (slot, next) = list.at(head);
                    assert_eq!(u64::from(slot), head & (wqes as u64 - 1));
                    assert_eq!(u64::from(next), (head + 1) & (wqes as u64 - 1));
                    list.remember(slot, head, id);
                    list.post(head + 1, ());
                    posted.push_back((head, id, false));
                    continue;
                }
                if posted.is_empty() || random.below(5) == 0 {
                    // A lie: of a turn that was, or is to be, or of what has completed.
                    let counter = random.next() as u16;
                    let open = |p: &&(u64, u64, bool)| p.0 as u16 == counter && !p.2;
                    if posted.iter().find(open).is_none() {
                        assert_eq!(list.place_in_ring(counter), None);
                        assert!(list.retire_any(counter).is_err());
                    }
                    continue;
                }
                let which = random.below(posted.len() as u32) as usize;
                let (position, id, done) = &mut posted[which];
                let expected = (!*done).then_some(*id);
                assert_eq!(list.place_in_ring(*position as u16).is_some(), !*done);
                let retired = list.retire_any(*position as u16).ok();
                assert_eq!(retired.map(|done| done.id), expected, "{}", random.seed());
                *done = true;
                while posted.front().is_some_and(|oldest| oldest.2) {
                    posted.pop_front();
                }
            }
        }
    }

    /// The oracle has the free WQEs in a deque and the posted ones in a map.
    #[test]
    fn agrees_with_a_deque_whatever_the_order_of_completion() {
        let mut random = Random::from_clock();
        for _ in 0..rounds(100) {
            let wqes = 2usize << random.below(6);
            let start = [0, 0xfffe, random.next() as u16][random.below(3) as usize];
            let mut list = list(wqes, start);
            let mut free: VecDeque<u16> = (0..wqes as u16).collect();
            let mut posted = HashMap::new();
            let mut most = wqes - 1;
            for id in 0..u64::from(rounds(600)) {
                assert_eq!((list.used() as usize, list.most() as usize), (posted.len(), most));
                assert_eq!(list.is_full_at(list.head()), posted.len() == most);
                assert_eq!(list.order().is_some(), posted.is_empty());
                match random.below(8) {
                    0 => {
                        let to = random.below(wqes as u32 + 2);
                        let takes = to.min(wqes as u32 - 1) as usize >= posted.len();
                        assert_eq!(list.limit_to(to), takes);
                        if takes {
                            most = (wqes - 1).min(to as usize);
                        }
                    }
                    1..4 if posted.len() < most => {
                        let head = list.head();
                        assert_eq!(list.at(head), (free[0], free[1]), "{}", random.seed());
                        list.remember(free[0], head, id);
                        assert!(list.outstanding(free[0]).is_none(), "it is not posted yet");
                        if random.below(4) != 0 {
                            list.post(head + 1, ());
                            posted.insert(free.pop_front().unwrap(), id);
                        }
                    }
                    _ => {
                        let slot = random.below(wqes as u32 + 3) as u16;
                        assert_eq!(list.outstanding(slot).is_some(), posted.contains_key(&slot));
                        let id = posted.remove(&slot);
                        let retired = list.retire_any(slot).ok().map(|done| done.id);
                        assert_eq!(retired, id, "{}", random.seed());
                        free.extend(id.map(|_| slot));
                    }
                }
            }
            for slot in posted.into_keys() {
                list.retire_any(slot).unwrap();
                free.push_back(slot);
            }
            assert_eq!(list.order().unwrap().to_vec(), Vec::from(free));
        }
    }
}
