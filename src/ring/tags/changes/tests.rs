//! Unit tests.

use super::*;

fn change(what: What, report: Report) -> Change {
    Change { what, report, id: 0, known: 0 }
}

#[test]
fn reports_are_of_the_oldest_that_was_asked_for() {
    let start = Counter::new(0xfffe);
    let mut changes = Changes::new(Shape::new(8).unwrap(), 8, start);
    changes.post(change(What::Append(0), Report::Nobody));
    changes.post(change(What::Append(1), Report::Program));
    changes.post(change(What::Remove(1), Report::Program));
    assert!(!changes.is_due());
    changes.post(change(What::Append(2), Report::Nobody));
    changes.post(change(What::Append(3), Report::Nobody));
    assert!(changes.is_due() && changes.reports() == 2);
    assert_eq!(changes.report(|what| matches!(what, What::Remove(_))), None);
    let (at, done) = changes.report(|what| matches!(what, What::Append(_))).unwrap();
    assert_eq!((at.low16(), done.what), (0xffff, What::Append(1)));
    let (at, _) = changes.report(|_| true).unwrap();
    assert_eq!((at.low16(), changes.reports()), (0, 0));
    assert_eq!(changes.report(|_| true), None);
    // The second of those left fails; the first was made.
    let mut told = vec![];
    changes.fail(7, |_, _| panic!("none of these is under way"));
    changes.fail(2, |change, made| told.push((change.what, made)));
    assert_eq!(told, [(What::Append(2), true), (What::Append(3), false)]);
    assert_eq!((changes.head, changes.reports()), (changes.tail, 0));
}
