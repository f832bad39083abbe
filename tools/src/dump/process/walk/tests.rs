//! Unit tests.

use super::*;

#[test]
fn numbers_are_tried_from_where_the_last_one_was_found() {
    let mut numbers = Numbers::new([7, 5, 9, 5]);
    let mut asked = Vec::new();
    let mut find = |wanted: u32| {
        let found = numbers.find(|number| {
            asked.push(number);
            Ok((number == wanted).then_some(()))
        });
        found.unwrap().map(|(number, ())| number)
    };
    assert_eq!(find(7), Some(7));
    // After 7 comes 9, then 5 again. No number is tried twice in one call, and a found one is
    // removed.
    assert_eq!(find(5), Some(5));
    assert_eq!(find(7), None);
    assert_eq!(find(9), Some(9));
    assert_eq!(find(9), None);
    assert_eq!(asked, [5, 7, 9, 5, 9, 9]);
}
