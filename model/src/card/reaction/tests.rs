//! Unit tests.

use super::*;

const SOMEBODY: Destination = [1; 16];
const MICROSECOND: u64 = 1_000;

#[test]
fn a_first_notification_halves_the_rate_and_the_next_ones_reduce_it_to_the_least() {
    let mut reaction = Reaction::default();
    assert_eq!(reaction.rate(&SOMEBODY, 0), None);
    reaction.slow_down(SOMEBODY, 0);
    let half = reaction.rate(&SOMEBODY, 0).unwrap();
    assert!(half.abs_diff(Rate::FULL / 2) < Rate::FULL / 500, "{half}");
    // Within the period of one reduction nothing happens.
    reaction.slow_down(SOMEBODY, 3 * MICROSECOND);
    assert_eq!(reaction.rate(&SOMEBODY, 3 * MICROSECOND), Some(half));
    for index in 1..=60 {
        reaction.slow_down(SOMEBODY, index * 4 * MICROSECOND);
    }
    assert_eq!(reaction.rate(&SOMEBODY, 240 * MICROSECOND), Some(125_000), "1 Mb/s, no less");
}

#[test]
fn notifications_from_ever_new_addresses_take_no_more_memory() {
    let mut reaction = Reaction::default();
    for index in 0..2 * DESTINATIONS as u64 {
        let mut address = SOMEBODY;
        address[..8].copy_from_slice(&index.to_be_bytes());
        reaction.slow_down(address, index * MICROSECOND);
        assert!(reaction.rate(&address, index * MICROSECOND).is_some());
    }
    assert_eq!(reaction.rates.len(), DESTINATIONS);
    let mut first = SOMEBODY;
    first[..8].fill(0);
    assert_eq!(reaction.rate(&first, 0), None, "the oldest is forgotten");
}

#[test]
fn rare_notifications_reduce_less() {
    let mut rate = Rate::full(0);
    rate.reduce(0);
    // 400 updates leave less than a tenth of the share.
    let now = 400 * MICROSECOND;
    rate.pass_to(now);
    let before = rate.current;
    rate.reduce(now);
    let lost = before - rate.current;
    assert!((before / 50..before / 20).contains(&lost), "{lost} of {before}");
}

#[test]
fn time_and_bytes_let_a_rate_recover() {
    let mut rate = Rate::full(0);
    (rate.current, rate.target) = (Rate::megabits(1_000), Rate::megabits(1_000));
    // By time alone: 5 Mb/s more in each period.
    rate.pass_to(100 * 300 * MICROSECOND);
    let grown = rate.current - Rate::megabits(1_000);
    assert!(grown.abs_diff(Rate::megabits(500)) < Rate::megabits(10), "{grown}");
    // By bytes as well: 50 Mb/s in each step.
    for _ in 0..2_000 {
        rate.send(p::RPG_BYTE_RESET);
    }
    assert_eq!(rate.current, Rate::FULL);
}

#[test]
fn a_port_tells_once_in_an_interval() {
    let mut reaction = Reaction::default();
    let told = [0, 3, 4, 7, 8, 20].map(|time| reaction.may_notify(time * MICROSECOND));
    assert_eq!(told, [true, false, true, false, true, true]);
}
