use super::*;

const LONE: Activity = Activity { frames: 1, bundles: 1, entries: 0 };
const PASSIVE: Activity = Activity { frames: 4, bundles: 4, entries: 0 };
const SENDING: Activity = Activity { frames: 1, bundles: 1, entries: 5 };
/// A round of a ping-pong: an acknowledge, the answer, and the next request.
const ROUND: Activity = Activity { frames: 2, bundles: 2, entries: 1 };

/// Returns how many of a run of rests are naps, if each has this activity.
fn naps(pace: &mut Pace, rests: usize, activity: Activity) -> usize {
    (0..rests).filter(|_| pace.next(activity) == Rest::Nap).count()
}

#[test]
fn streams_are_taken_after_naps() {
    for activity in [PASSIVE, SENDING] {
        assert_eq!(naps(&mut Pace::new(), 100, activity), 100, "{activity:?}");
    }
}

#[test]
fn packets_that_are_waited_for_are_hardly_delayed() {
    for activity in [LONE, ROUND] {
        let mut pace = Pace::new();
        naps(&mut pace, 5000, activity);
        assert!(naps(&mut pace, 10_000, activity) <= 10, "{activity:?}");
        // Some time after a stream has begun, naps are tried, and go on.
        let waits = (0..).take_while(|_| pace.next(PASSIVE) == Rest::Wait).count();
        assert!(waits <= LONGEST as usize);
        assert_eq!(naps(&mut pace, 100, PASSIVE), 100);
    }
}

#[test]
fn a_round_that_began_before_a_nap_is_no_stream() {
    let request = Activity { frames: 1, bundles: 1, entries: 1 };
    let answers = Activity { frames: 2, bundles: 2, entries: 0 };
    let nothing = Activity::default();
    for round in [&[request, answers][..], &[request, nothing, answers], &[answers, request]] {
        let mut pace = Pace::new();
        let mut naps = |rounds: usize| {
            let rests = round.iter().cycle().take(rounds * round.len());
            rests.filter(|activity| pace.next(**activity) == Rest::Nap).count()
        };
        naps(5000);
        assert!(naps(5000) <= 10, "{round:?}");
    }
}

#[test]
fn many_frames_at_a_time_and_timers_cause_no_naps() {
    let mut pace = Pace::new();
    let bulk = Activity { frames: MANY, bundles: 3, entries: 0 };
    assert_eq!(naps(&mut pace, 100, bulk), 0);
    assert_eq!(naps(&mut pace, 100, Activity::default()), 0);
    assert_eq!(pace.next(PASSIVE), Rest::Nap);
    assert_eq!(pace.next(bulk), Rest::Wait);
}
