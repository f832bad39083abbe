//! Unit tests.

use super::*;

#[test]
fn numbers_are_given_in_turn_and_run_out() {
    let mut table = Table::new(3, 5);
    assert_eq!(table.add('a'), Some(3));
    assert_eq!(table.add('b'), Some(4));
    assert_eq!(table.remove(3), Some('a'));
    assert_eq!(table.add('c'), Some(5));
    assert_eq!(table.add('d'), Some(3));
    assert_eq!(table.add('e'), None);
    assert_eq!(table.remove(4), Some('b'));
    assert_eq!(table.add('f'), Some(4));
    assert_eq!(table.iter().map(|(_, c)| *c).collect::<String>(), "dfc");
}

#[test]
fn a_row_of_numbers_begins_at_a_multiple_of_its_length() {
    let mut table = Table::new(3, 18);
    assert_eq!(table.vacant_row(4), Some(4));
    table.insert(4, 'a');
    assert_eq!(table.vacant_row(4), Some(8));
    (8..12).for_each(|number| table.insert(number, 'b'));
    assert_eq!(table.vacant_row(4), Some(12));
    table.insert(14, 'c');
    assert_eq!((table.vacant_row(4), table.vacant_row(2)), (None, Some(16)));
    // From the start again.
    table.remove(4);
    assert_eq!(table.vacant_row(4), Some(4));
}
