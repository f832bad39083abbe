//! Unit tests.

use std::collections::{HashMap, VecDeque};

use super::*;
use crate::ring::random::{Random, rounds};

fn list(wqes: usize, start: u16) -> AnyOrder {
    AnyOrder::new((0..wqes as u16).collect(), wqes, start, Taking::Linked).unwrap()
}

#[test]
fn an_order_names_each_wqe_once() {
    let list = |order: &[u16], wqes| AnyOrder::new(order.into(), wqes, 0, Taking::Linked).is_some();
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
                let (slot, next) = (list.ahead(), list.slot(head + 1));
                assert_eq!(u64::from(slot), head & (wqes as u64 - 1));
                assert_eq!(u64::from(next), (head + 1) & (wqes as u64 - 1));
                list.remember(slot, head, id);
                list.post(head + 1, next);
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
                    let next = list.slot(head + 1);
                    assert_eq!((list.ahead(), next), (free[0], free[1]), "{}", random.seed());
                    list.remember(free[0], head, id);
                    assert!(list.outstanding(free[0]).is_none(), "it is not posted yet");
                    if random.below(4) != 0 {
                        list.post(head + 1, next);
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
