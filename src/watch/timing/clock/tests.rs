//! Unit tests.

use super::*;

#[test]
fn the_rate_is_that_of_another_clock() {
    let clock = Clock::get();
    println!("{clock}");
    let mut closest = f64::MAX;
    // The two clocks are read one after the other, and the thread may be preempted between.
    for _ in 0..20 {
        let (start, instant) = (ticks(), std::time::Instant::now());
        while instant.elapsed() < Duration::from_millis(5) {}
        let (end, elapsed) = (ticks(), instant.elapsed());
        let ratio = clock.nanoseconds(end - start) / elapsed.as_nanos() as f64;
        closest = closest.min((ratio - 1.0).abs());
    }
    assert!(closest < 0.01, "{clock} is {closest} away");
}

#[test]
fn whole_nanoseconds_are_those_of_floating_point_and_never_overflow() {
    let clock = Clock::get();
    for ticks in [0, 1, 2, 1000, 1 << 32, 1 << 45] {
        let (whole, exact) = (clock.whole_nanoseconds(ticks), clock.nanoseconds(ticks));
        // The scale is rounded to 2^-32, and both are rounded to whole ones.
        let most = 2.0 + ticks as f64 / (1u64 << 32) as f64;
        assert!((whole as f64 - exact).abs() <= most, "{ticks}: {whole} for {exact}");
        let back = clock.ticks_of(exact);
        assert!(back.abs_diff(ticks) <= 1 + ticks / (1 << 40), "{ticks}: {back}");
    }
    clock.whole_nanoseconds(u64::MAX);
}

#[test]
fn the_counter_goes_on() {
    let first = Clock::now();
    assert!(Clock::now() >= first);
    assert!(Clock::get().overhead() < 5000);
}

#[test]
fn a_stated_rate_is_taken_if_it_is_confirmed() {
    let stated = Some((2e9, Source::Crystal));
    assert_eq!(choose(stated, 2.01e9), (2e9, Source::Crystal));
    assert_eq!(choose(stated, 2.1e9), (2.1e9, Source::Measured), "another machine's");
    assert_eq!(choose(None, 2.1e9), (2.1e9, Source::Measured));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn leaves_are_read_as_the_manual_says() {
    // A Skylake client, which states no crystal, a Denverton, and a CPU that states everything.
    assert_eq!(from_leaves([2, 216, 0], 2600), Some((2.6e9, Source::BaseFrequency)));
    assert_eq!(from_leaves([3, 264, 25_000_000], 0), Some((2.2e9, Source::Crystal)));
    assert_eq!(from_leaves([2, 168, 25_000_000], 2000), Some((2.1e9, Source::Crystal)));
    for leaves in [[0, 0, 0], [0, 216, 25_000_000], [2, 0, 25_000_000]] {
        assert_eq!(from_leaves(leaves, 2600), None, "{leaves:?}");
    }
    assert_eq!(from_leaves([2, 216, 0], 0), None);
}
