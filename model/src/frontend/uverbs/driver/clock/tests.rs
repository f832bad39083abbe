//! Unit tests.

use std::cell::Cell;

use super::*;

/// Nanoseconds that the day is ahead of the card.
const AHEAD: u64 = 1_000_000_000_000;

/// How far apart two clocks are read that go alike, where the thread is away for these times
/// before its reads, in their order, and then for the last of them.
fn error(away: &[u64]) -> u64 {
    let (now, reads) = (Cell::new(0), Cell::new(0));
    let read = || {
        let index: usize = reads.replace(reads.get() + 1);
        now.set(now.get() + away.get(index).or(away.last()).copied().unwrap_or(0));
        now.get()
    };
    let (cycles, day) = at_one_time(read, || read() + AHEAD);
    (day - AHEAD).abs_diff(cycles)
}

#[test]
fn preemption_between_two_reads_does_not_set_the_clocks_apart() {
    assert_eq!(error(&[50]), 0);
    // Away between the first two, between the last two, and in three readings one after another.
    for away in [
        &[50, 3_000_000, 50, 50][..],
        &[50, 50, 4_000_000, 50],
        &[50, 3_000_000, 50, 50, 50, 2_000_000, 50, 9_000_000, 50, 50],
    ] {
        assert!(error(away) <= CLOSE, "{away:?}: {} ns", error(away));
    }
}

#[test]
fn a_machine_that_is_never_fast_enough_gives_the_closest_reading() {
    let mut away = vec![90_000; 3 * TRIES];
    away[40] = 30_000;
    away[41] = 30_000;
    assert!(error(&away) <= 60_000);
    assert!(error(&[1_000_000]) <= 1_000_000, "it ends");
}
