//! Unit tests.

use mlx5_sys::dv::{mlx5dv_clock_info, mlx5dv_ts_to_ns};

use super::*;
use crate::ring::random::Random;

#[test]
fn counts_are_converted_as_by_libmlx5() {
    let mut random = Random::from_clock();
    for _ in 0..10_000 {
        let (mask, shift) = ((1u64 << 41) - 1, 4 + random.below(20));
        let reading = ClockReading {
            nsec: 1 << 60,
            cycles: random.next() & mask,
            frac: random.next() & ((1 << shift) - 1),
            mult: 1 + random.below(1 << 20),
            shift,
            mask,
            overflow_period: 0,
        };
        // Not so far away that libmlx5's product has more than 64 bits.
        let away = u64::from(random.below(u32::MAX)) + u64::from(reading.frac != 0);
        let info = mlx5dv_clock_info {
            nsec: reading.nsec,
            last_cycles: reading.cycles,
            frac: reading.frac,
            mult: reading.mult,
            shift: reading.shift,
            mask,
        };
        let scaled = u128::from(away) << shift;
        let later = reading.after(Timestamp::from_raw(reading.cycles), Duration::from_nanos(away));
        let counts = u128::from(later.raw().wrapping_sub(reading.cycles) & mask);
        if scaled.div_ceil(reading.mult.into()) <= mask.into() {
            let passed = |counts: u128| counts * u128::from(reading.mult);
            assert!(passed(counts) >= scaled, "{reading:?}");
            assert!(counts == 0 || passed(counts - 1) < scaled, "{reading:?}");
        }
        for count in [reading.cycles.wrapping_add(away), reading.cycles.wrapping_sub(away)] {
            let count = count & mask;
            let before = (reading.cycles.wrapping_sub(count) & mask) <= mask / 2;
            if before && away * u64::from(reading.mult) < reading.frac {
                // There libmlx5's difference is negative, and the result centuries off.
                continue;
            }
            let here = reading.nanoseconds(Timestamp::from_raw(count));
            assert_eq!(here, mlx5dv_ts_to_ns(&info, count), "{reading:?}");
        }
    }
}

#[test]
fn the_time_between_counts_is_scaled_and_never_negative() {
    // A count is 6.5 ns.
    let (mult, shift, mask) = (13, 1, u64::MAX >> 1);
    let reading = ClockReading {
        nsec: 1 << 60,
        cycles: 1_000,
        frac: 0,
        mult,
        shift,
        mask,
        overflow_period: 0,
    };
    let [early, late] = [900, 1_100].map(Timestamp::from_raw);
    assert_eq!(reading.between(early, late), Duration::from_nanos(1_300));
    assert_eq!(reading.between(late, early), Duration::ZERO);
}

#[test]
fn a_page_that_is_being_written_is_not_read() {
    let page = Page {
        sign: AtomicU32::new(0),
        reserved: 0,
        nsec: AtomicU64::new(0),
        cycles: AtomicU64::new(0),
        frac: AtomicU64::new(0),
        mult: AtomicU32::new(1),
        shift: AtomicU32::new(0),
        mask: AtomicU64::new(u64::MAX),
        overflow_period: AtomicU64::new(0),
    };
    let _ = page.reserved;
    // Both fields are always the same: a reading in which they are not is torn.
    let stop = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sign = 0u32;
            for value in 1..20_000u64 {
                page.sign.store(sign | UPDATING, Ordering::Relaxed);
                fence(Ordering::Release);
                page.nsec.store(value, Ordering::Relaxed);
                page.cycles.store(value, Ordering::Relaxed);
                sign = (sign | UPDATING).wrapping_add(1);
                page.sign.store(sign, Ordering::Release);
            }
            stop.store(1, Ordering::Release);
        });
        while stop.load(Ordering::Acquire) == 0 {
            let reading = read(&page);
            assert!(reading.is_none_or(|it| it.nsec == it.cycles), "{reading:?}");
        }
    });
    page.sign.store(UPDATING, Ordering::Relaxed);
    assert_eq!(read(&page), None);
}
