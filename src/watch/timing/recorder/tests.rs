//! Unit tests.

use super::*;

fn counts(recorder: &Recorder) -> Vec<(Phase, u64)> {
    let report = recorder.report();
    report.phases().iter().map(|phase| (phase.phase, phase.count)).collect()
}

/// Waits at least `wait` ticks.
fn pass(wait: u64) {
    let start = ticks();
    while ticks() - start < wait {}
}

#[test]
fn phases_take_what_lies_between_their_stamps() {
    let mut recorder = Recorder::new();
    let long = 100_000;
    for _ in 0..9 {
        recorder.begin();
        pass(long);
        recorder.stamp(Phase::Encode);
        recorder.stamp(Phase::Record);
        recorder.settle();
    }
    let report = recorder.report();
    let [encode, record] = report.phases() else { panic!("{report}") };
    assert_eq!((encode.phase, encode.count), (Phase::Encode, 9));
    assert_eq!((record.phase, record.count), (Phase::Record, 9));
    assert!(encode.min + report.overhead() >= long, "{report}");
    assert!(encode.last + report.overhead() >= long, "{report}");
    assert!(record.median < long / 100, "nothing lies between two stamps: {report}");
}

#[test]
fn outside_of_a_call_nothing_is_recorded() {
    let mut recorder = Recorder::new();
    recorder.stamp(Phase::Flush);
    assert_eq!(counts(&recorder), []);
    recorder.begin();
    recorder.stamp(Phase::Record);
    recorder.rang(Counter::new(1));
    recorder.stamp(Phase::Flush);
    assert_eq!(counts(&recorder), [(Phase::Record, 1)], "after one, neither");
}

#[test]
fn a_phase_that_ends_twice_took_the_sum_and_the_next_call_starts_at_nothing() {
    let mut recorder = Recorder::new();
    for _ in 0..2 {
        recorder.begin();
        recorder.last = 1000;
        recorder.stamp_at(Phase::Sight, Stamp(1100));
        recorder.stamp_at(Phase::Decode, Stamp(1300));
        recorder.stamp_at(Phase::Sight, Stamp(1700));
        recorder.settle();
        assert_eq!(recorder.totals.last[Phase::Sight as usize], 500);
        assert_eq!(recorder.totals.last[Phase::Decode as usize], 200);
    }
    assert_eq!(counts(&recorder), [(Phase::Sight, 2), (Phase::Decode, 2)]);
    assert_eq!(recorder.totals.histograms[Phase::Sight as usize].max(), 500);
}

#[test]
fn a_counter_that_jumps_back_gives_no_duration() {
    let mut recorder = Recorder::new();
    recorder.last = 1000;
    recorder.stamp_at(Phase::Sight, Stamp(900));
    recorder.stamp_at(Phase::Decode, Stamp(950));
    recorder.settle();
    assert_eq!(recorder.totals.last[Phase::Sight as usize], 0);
    assert_eq!(recorder.totals.last[Phase::Decode as usize], 50);
}

#[test]
fn a_flight_is_of_the_wqe_that_rang_and_counted_once() {
    let shape = Shape::new(4).unwrap();
    let mut recorder = Recorder::of_ring(shape);
    let ring = |recorder: &mut Recorder, wqe, at| {
        recorder.last = at - 10;
        recorder.stamp_at(Phase::Flush, Stamp(at));
        recorder.rang(Counter::new(wqe));
    };
    let flights = |recorder: &mut Recorder| {
        recorder.settle();
        let histogram = &recorder.totals.histograms[Phase::Flight as usize];
        (histogram.count(), recorder.totals.last[Phase::Flight as usize])
    };
    ring(&mut recorder, 1, 1000);
    recorder.arrived(Counter::new(5), Stamp(1100));
    assert_eq!(flights(&mut recorder), (0, 0), "the same slot, another lap");
    recorder.arrived(Counter::new(2), Stamp(1100));
    assert_eq!(flights(&mut recorder), (0, 0), "rang no doorbell");
    recorder.arrived(Counter::new(1), Stamp(1300));
    assert_eq!(flights(&mut recorder), (1, 300));
    recorder.arrived(Counter::new(1), Stamp(1400));
    assert_eq!(flights(&mut recorder), (1, 300), "once");
    ring(&mut recorder, 3, 2000);
    ring(&mut recorder, 7, 3000);
    recorder.arrived(Counter::new(3), Stamp(4000));
    assert_eq!(flights(&mut recorder), (1, 300), "its place was taken");
    recorder.arrived(Counter::new(7), Stamp(4000));
    assert_eq!(flights(&mut recorder), (2, 1000));
    // Before the next call begins, any number may end.
    for wqe in 9..12 {
        ring(&mut recorder, wqe, 5000);
    }
    for wqe in 9..12 {
        recorder.arrived(Counter::new(wqe), Stamp(5000 + u64::from(wqe)));
    }
    recorder.begin();
    assert_eq!(recorder.totals.histograms[Phase::Flight as usize].count(), 5);
    assert_eq!(flights(&mut recorder), (5, 11));
    ring(&mut recorder, 2, 5000);
    recorder.restart();
    recorder.arrived(Counter::new(2), Stamp(6000));
    assert_eq!(flights(&mut recorder), (5, 11), "of a former life");
    recorder.clear();
    assert_eq!(counts(&recorder), []);
}

#[test]
fn the_overhead_is_that_of_a_stamp() {
    let overhead = Clock::get().overhead();
    assert!(overhead > 0 && overhead < 5000, "{overhead}");
    // Phases without anything in them are shown as nothing, or nearly: the median of many is
    // at most a small multiple of the cost of a stamp.
    let mut recorder = Recorder::new();
    for _ in 0..1001 {
        recorder.begin();
        recorder.stamp(Phase::Fence);
        recorder.stamp(Phase::Record);
        recorder.settle();
    }
    let report = recorder.report();
    assert!(report.phase(Phase::Record).unwrap().median <= 4 * overhead, "{report}");
}
