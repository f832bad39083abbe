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
