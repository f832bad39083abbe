//! Unit tests.

use super::*;
use crate::cqe::Timestamp;

/// A reading: the system's clock before, the PTP clock, the system's clock after, in nanoseconds.
fn reading(times: [u64; 3]) -> [Time; 3] {
    times.map(|at| Time {
        sec: (at / 1_000_000_000) as i64,
        nsec: (at % 1_000_000_000) as u32,
        reserved: 0,
    })
}

/// The offset by one reading, with this time of the system and the offset of the PTP clock.
fn offset(system: u64, ahead: i64) -> PtpOffset {
    let clock = system.checked_add_signed(ahead).unwrap();
    closest([reading([system - 100, clock, system + 100])].into_iter()).unwrap()
}

/// A time in 2023, in nanoseconds.
const NOW: u64 = 1_700_000_000_000_000_000;
const TAI: i64 = 37_000_000_000;

#[test]
fn the_request_has_the_number_of_the_header() {
    assert_eq!(SYS_OFFSET_EXTENDED, 0xc4c0_3d09);
}

#[test]
fn the_closest_reading_counts() {
    let readings = [
        [NOW, NOW + 9_000, NOW + 2_000],
        [NOW + 10_000, NOW + 15_050, NOW + 10_101],
        [NOW + 20_000, NOW + 29_000, NOW + 20_900],
    ];
    let offset = closest(readings.map(reading).into_iter()).unwrap();
    assert_eq!(offset.nanoseconds(), 5_000);
    assert_eq!(offset.uncertainty(), Duration::from_nanos(51));
}

#[test]
fn readings_across_a_clock_that_was_set_back_do_not_count() {
    let back = reading([NOW, NOW, NOW - 1]);
    assert_eq!(closest([back].into_iter()), None);
    let good = reading([NOW, NOW + 57, NOW + 100]);
    assert_eq!(closest([back, good].into_iter()).unwrap().nanoseconds(), 7);
    assert_eq!(closest([].into_iter()), None);
}

#[test]
fn a_clock_that_counts_from_1970_is_not_set() {
    assert!(offset(NOW, TAI).is_set() && offset(NOW, 0).is_set());
    let since_boot = offset(NOW, 3_600_000_000_000 - NOW as i64);
    assert!(!since_boot.is_set());
    assert_eq!(since_boot.nanoseconds(), 3_600_000_000_000 - NOW as i64);
}

#[test]
fn clocks_in_step_keep_their_offset() {
    let bound = Duration::from_micros(1);
    let first = offset(NOW, TAI);
    for (change, in_step) in
        [(0, true), (1_200, true), (-1_200, true), (1_201, false), (-1_201, false)]
    {
        // 1 µs, and 100 ns of each measurement.
        let second = offset(NOW + 1_000_000_000, TAI + change);
        assert_eq!(second.is_in_step_with(&first, bound), in_step, "{change}");
    }
    assert!(!offset(NOW, 0).is_in_step_with(&first, bound), "the clock was set meanwhile");
}

#[test]
fn times_of_the_clock_become_times_of_the_system() {
    let time = Timestamp::from_raw(1_700_000_037 << 32 | 5).real_time().unwrap();
    let system = UNIX_EPOCH + Duration::new(1_700_000_000, 5);
    assert_eq!(offset(NOW, TAI).system_time(time), system);
    assert_eq!(
        offset(NOW, -1_000).system_time(time),
        UNIX_EPOCH + Duration::new(1_700_000_037, 1_005)
    );
}

#[test]
fn the_clock_of_a_folder_is_found() {
    let folder = std::env::temp_dir().join(format!("mlx5-ptp-{}", std::process::id()));
    fs::create_dir_all(folder.join("ptp3")).unwrap();
    assert_eq!(find(&folder).as_deref(), Some("ptp3"));
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(find(&folder), None);
}
