//! Unit tests.

use super::*;

const EXACT: Timeouts = Timeouts::Specification { floor: 12 };

fn rnr(code: u8) -> u64 {
    rnr_wait(EXACT, Link::InfiniBand, code)
}

fn timeout(code: u32, floor: u8) -> Option<u64> {
    let timeouts = Timeouts::Specification { floor };
    let schedule = Schedule::of(timeouts, Link::InfiniBand, code, 7, 0)?;
    Some(schedule.wait(0, 7))
}

#[test]
fn codes_are_the_specifications() {
    assert_eq!(rnr(0), 655_360_000);
    assert_eq!(rnr(1), 10_000);
    assert_eq!(rnr(18), 5_120_000);
    assert_eq!(rnr(31), 491_520_000);
    assert_eq!(timeout(0, 12), None);
    assert_eq!(timeout(1, 12), timeout(12, 12));
    assert_eq!(timeout(1, 0), Some(8_192));
    assert_eq!(timeout(14, 12), Some(67_108_864));
    assert_eq!(timeout(14, 16), timeout(16, 0));
    assert_eq!(timeout(31, 12), Some(4096 << 31));
}

#[test]
fn every_draw_has_a_schedule_that_ends() {
    for timeouts in [Timeouts::Measured, Timeouts::FloorOff, EXACT] {
        for link in [Link::InfiniBand, Link::Roce] {
            for code in 1..32 {
                for (retries, draw) in (0..8).flat_map(|retries| (0..8).map(move |d| (retries, d)))
                {
                    let schedule = Schedule::of(timeouts, link, code, retries, draw).unwrap();
                    let (mut passed, mut left) = (0, retries);
                    while !schedule.gives_up(passed, left) {
                        assert!(schedule.wait(passed, left) > 0);
                        if matches!(schedule.kind(passed), Kind::Regular | Kind::LastAdaptive) {
                            left = left.saturating_sub(1);
                        }
                        passed += 1;
                        assert!(passed < 64, "{schedule:?}");
                    }
                }
            }
        }
    }
}
