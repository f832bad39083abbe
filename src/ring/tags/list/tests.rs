//! Unit tests.

use super::*;
use crate::ring::random::{Random, rounds};

fn append(list: &mut List, id: u64, reported: bool) -> TagHandle {
    let (index, _) = list.next().expect("room");
    list.append(index, id, Sge::new(0, 0, 0), reported)
}

#[test]
fn an_index_is_used_again_when_nothing_is_to_be_said_of_it() {
    let mut list = List::new(vec![0, 1, 2], 2).unwrap();
    assert_eq!((list.capacity(), list.next()), (2, Some((0, 1))));
    let first = append(&mut list, 7, true);
    let second = append(&mut list, 8, false);
    assert_eq!(list.next(), None);
    // Reported as appended, taken, and here.
    assert_eq!(list.changed(0), Some((7, first)));
    assert_eq!(list.changed(0), None);
    assert_eq!(list.take(0).map(|told| told.id), Some(7));
    assert_eq!((list.take(0), list.holds(first)), (None, false));
    assert_eq!(list.end(0).map(|told| told.handle), Some(first));
    assert_eq!((list.end(0), list.next()), (None, Some((2, 0))));
    // Taken by a message while it is asked to leave.
    assert!(list.leave(second).is_some() && list.leave(second).is_none());
    assert!(list.end(1).is_some());
    assert_eq!(list.used(), 1);
    assert_eq!(list.changed(1), Some((8, second)));
    assert_eq!(list.order(), Some(vec![2, 0, 1]));
    // A handle of the former entry names none.
    for _ in 0..3 {
        let again = append(&mut list, 9, false);
        assert!(list.holds(again) && !list.holds(first) && !list.holds(second));
        list.end(again.index);
    }
    assert_eq!((list.take(3), list.end(9), list.changed(u16::MAX)), (None, None, None));
}

#[test]
fn an_order_names_every_index_once() {
    assert!(List::new(vec![0, 1, 1], 2).is_none());
    assert!(List::new(vec![0, 1, 3], 2).is_none());
    assert_eq!(List::new((0..8).collect(), 3).unwrap().capacity(), 3);
}

#[test]
fn any_reports_leave_every_index_free_or_in_use() {
    let mut random = Random::from_clock();
    for _ in 0..rounds(50) {
        let mut list = List::new((0..9).collect(), 8).unwrap();
        let mut handles = Vec::new();
        for id in 0..u64::from(rounds(400)) {
            let index = random.below(11) as u16;
            match random.below(6) {
                0 | 1 if list.next().is_some() => {
                    let reported = random.below(2) == 0;
                    handles.push(append(&mut list, id, reported));
                }
                2 => {
                    if let Some(handle) = handles.pop() {
                        list.leave(handle);
                    }
                }
                3 => drop(list.take(index)),
                4 => drop(list.end(index)),
                _ => drop(list.changed(index)),
            }
            let mut free: Vec<_> = (list.position..list.end).map(|at| list.at(at)).collect();
            let count = free.len();
            free.sort_unstable();
            free.dedup();
            assert_eq!(free.len(), count, "{}", random.seed());
            let used = list.entries.iter().filter(|entry| entry.state != State::Free).count();
            assert_eq!(used, list.used());
            assert!(!free.is_empty());
        }
    }
}
