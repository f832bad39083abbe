use super::*;

/// Returns how many of a run of rests are naps, if each brings so many frames.
fn naps(pace: &mut Pace, rests: usize, frames: usize) -> usize {
    (0..rests).filter(|_| pace.next(frames) == Rest::Nap).count()
}

#[test]
fn steady_packets_are_taken_after_naps() {
    let mut pace = Pace::new();
    assert_eq!(naps(&mut pace, 100, 4), 100);
}

#[test]
fn packets_that_come_alone_are_hardly_delayed() {
    let mut pace = Pace::new();
    naps(&mut pace, 5000, 1);
    assert!(naps(&mut pace, 10_000, 1) <= 10);
    // The first nap that pays starts a run of naps.
    let mut rests = 0;
    while pace.next(4) == Rest::Wait {
        rests += 1;
        assert!(rests <= LONGEST);
    }
    assert_eq!(naps(&mut pace, 100, 4), 100);
}

#[test]
fn many_packets_at_a_time_and_timers_cause_no_naps() {
    let mut pace = Pace::new();
    assert_eq!(naps(&mut pace, 100, MANY), 0);
    assert_eq!(naps(&mut pace, 100, 0), 0);
}
