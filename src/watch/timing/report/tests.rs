//! Unit tests.

use super::*;

#[test]
fn the_overhead_is_taken_off_and_never_more_than_there_is() {
    let clock = Clock::get();
    let overhead = clock.overhead();
    let mut histograms = [const { Histogram::EMPTY }; Phase::COUNT];
    let mut last = [0; Phase::COUNT];
    for ticks in [0, overhead - 1, overhead, overhead + 10] {
        histograms[Phase::Flush as usize].add(ticks);
    }
    last[Phase::Flush as usize] = overhead + 10;
    histograms[Phase::Sight as usize].add(0);
    let report = Report::new(clock, &histograms, &last);
    let expected = PhaseReport {
        phase: Phase::Flush,
        count: 4,
        below: 2,
        min: 0,
        median: 0,
        p99: 10,
        max: 10,
        last: 10,
    };
    assert_eq!(report.phase(Phase::Flush), Some(&expected));
    let sight = report.phase(Phase::Sight).unwrap();
    assert_eq!((sight.below, sight.median, sight.max), (1, 0, 0));
    assert_eq!(report.phase(Phase::Encode), None);

    let text = report.to_string();
    let line = text.lines().find(|line| line.starts_with("flush")).unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words[1..7], ["4", "0", "0", "10", "10", "10"], "{text}");
    assert_eq!(words[9], "2", "{text}");
}
