//! Unit tests.

use super::*;

#[test]
fn the_oldest_entry_that_matches_is_found_and_keeps_its_index() {
    let mut list = TagList::new(3);
    assert!(list.append(5, 0x12, 0xff, vec![]));
    assert!(list.append(1, 0x12, 0x0f, vec![]));
    assert!(list.append(9, 0x33, !0, vec![]));
    assert!(!list.append(7, 0, 0, vec![]));
    let found = |list: &TagList, tag| list.find(tag).map(|entry| entry.index);
    assert_eq!(found(&list, 0xff12), Some(0));
    assert_eq!(found(&list, 0xff02), Some(5));
    assert_eq!(found(&list, 0xff33), None);
    assert_eq!(found(&list, 0x33), Some(1));
    assert!(list.remove(0) && !list.remove(0));
    assert_eq!(found(&list, 0xff12), Some(5));
    assert_eq!(list.next(), 9);
}

#[test]
fn entries_wait_until_software_knows_of_every_message_for_none() {
    let mut list = TagList::new(8);
    list.append(1, 1, !0, vec![]);
    list.unexpected();
    list.append(2, 2, !0, vec![]);
    assert!(list.find(1).is_some() && list.find(2).is_none());
    list.know(0);
    assert!(list.find(2).is_none());
    list.know(1);
    assert!(list.find(2).is_some());
}
