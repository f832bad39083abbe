//! Unit tests.

use super::*;

#[test]
fn a_rate_halves_at_first_and_recovers_in_steps() {
    let mut rate = Rate::full(0);
    rate.reduce(0);
    assert_eq!((rate.current, rate.target), (Rate::FULL / 2, Rate::FULL));
    // Half of what was lost returns in each period.
    rate.recover(Rate::PERIOD);
    assert_eq!(rate.current, Rate::FULL / 4 * 3);
    for index in 1..=40 {
        rate.reduce(Rate::PERIOD + index * INTERVAL);
    }
    assert_eq!(rate.current, Rate::LEAST, "no less");
    let stopped = rate.since;
    rate.recover(stopped + u64::from(Rate::RECOVERY) * Rate::PERIOD);
    assert!(rate.current < rate.target + 1 && rate.target <= 2 * Rate::LEAST);
    rate.recover(stopped + 100 * Rate::PERIOD);
    assert!((90 * Rate::STEP..100 * Rate::STEP).contains(&rate.current), "{rate:?}");
    rate.recover(stopped + 2_600 * Rate::PERIOD);
    assert_eq!(rate.current, Rate::FULL);
}

#[test]
fn rare_notifications_reduce_less() {
    let mut rate = Rate::full(0);
    for index in 0..40 {
        rate.reduce(index * INTERVAL);
    }
    let now = rate.since + 200 * Rate::PERIOD;
    rate.recover(now);
    let before = rate.current;
    rate.reduce(now);
    let lost = before - rate.current;
    assert!(lost < before / 4 && lost > before / 5, "{lost} of {before}");
}
