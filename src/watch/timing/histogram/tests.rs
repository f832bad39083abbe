//! Unit tests.

use super::*;
use crate::ring::random::Random;

#[test]
fn buckets_are_in_a_row_and_contain_what_they_say() {
    for at in 0..BUCKETS {
        assert_eq!(bucket(least(at)), at);
        if at + 1 < BUCKETS {
            assert_eq!(bucket(least(at + 1) - 1), at, "no gap behind bucket {at}");
            let width = least(at + 1) - least(at);
            assert!(width == 1 || width * 64 <= least(at), "bucket {at} is {width} wide");
        }
    }
    assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    assert_eq!(bucket(1 << 32), BUCKETS - 1);
}

#[test]
fn quantiles_are_those_of_the_sorted_values() {
    let mut random = Random::from_clock();
    for _ in 0..200 {
        let mut histogram = Histogram::EMPTY;
        let count = 1 + random.below(300) as usize;
        let bits = 1 + random.below(30);
        let mut values: Vec<u64> = (0..count).map(|_| u64::from(random.below(1 << bits))).collect();
        values.iter().for_each(|&value| histogram.add(value));
        values.sort_unstable();
        for (numerator, denominator) in [(0, 1), (1, 2), (9, 10), (99, 100), (1, 1)] {
            let rank = (count * numerator).div_ceil(denominator).max(1);
            let exact = values[rank - 1];
            let found = histogram.quantile(numerator as u64, denominator as u64);
            assert!(
                found <= exact.max(values[0]) && exact - found.min(exact) <= exact / 64,
                "{numerator}/{denominator} of {values:?}: {found}"
            );
        }
        assert_eq!(histogram.count(), count as u64);
        assert_eq!(histogram.min(), values[0]);
        assert_eq!(histogram.max(), values[count - 1]);
        let limit = u64::from(random.below(129));
        let below = values.iter().filter(|&&value| value < limit).count();
        assert_eq!(histogram.below(limit), below as u64);
    }
}

#[test]
fn nothing_is_all_zero() {
    let empty = Histogram::EMPTY;
    let of = (empty.count(), empty.min(), empty.quantile(1, 2), empty.max(), empty.below(128));
    assert_eq!(of, (0, 0, 0, 0, 0));
}

#[test]
fn what_is_too_long_is_counted() {
    let mut histogram = Histogram::EMPTY;
    histogram.add(u64::MAX);
    histogram.add(u64::MAX - 1);
    assert_eq!((histogram.count(), histogram.max()), (2, u64::MAX));
    assert_eq!(histogram.quantile(1, 2), u64::MAX - 1, "not below the least");
}
