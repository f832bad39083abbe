//! Unit tests.

use super::*;

#[test]
fn runs_are_taken_where_there_is_room() {
    let mut memic = Memic::at(0x1000);
    let run = |length| Run { uid: 0, length };
    let all = Memic::WINDOW..Memic::WINDOW + (Memic::PAGES << 12);
    assert_eq!(memic.take(all.clone(), 64, run(64)), Some(all.start));
    assert_eq!(memic.take(all.clone(), 64, run(128)), Some(all.start + 64));
    assert_eq!(memic.take(all.clone(), 256, run(64)), Some(all.start + 256));
    assert_eq!(memic.run_of(all.start + 65, 127), Some(&run(128)));
    for (address, length) in [(all.start + 65, 128), (all.start + 192, 1), (0, 1)] {
        assert_eq!(memic.run_of(address, length), None);
    }
    memic.give(all.start);
    assert_eq!(memic.take(all.clone(), 64, run(64)), Some(all.start));
    assert_eq!(memic.take(all.start..all.start + 64, 64, run(64)), None);
    // Beyond what there is in all, however long the window.
    assert_eq!(memic.take(all.clone(), 64, run(Memic::SIZE - 255)), None);
    assert!(memic.take(all.clone(), 64, run(Memic::SIZE - 256)).is_some());
    assert_eq!(memic.bus(all.start + 5), Some(0x1005));
    assert_eq!(memic.bus(all.start - 1), None);
    assert_eq!(memic.bus(all.end), None);
    assert_eq!(Memic::default().bus(all.start), None);
}
