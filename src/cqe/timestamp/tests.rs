use super::*;

#[test]
fn real_time_is_seconds_above_nanoseconds() {
    let time = Timestamp::from_raw(5 << 32 | 999_999_999).real_time().unwrap();
    assert_eq!((time.seconds(), time.nanoseconds()), (5, 999_999_999));
    assert_eq!(time.since_epoch(), Duration::from_nanos(5_999_999_999));
    assert_eq!(time.system_time(), UNIX_EPOCH + time.since_epoch());
}

#[test]
fn a_count_with_too_many_nanoseconds_is_no_real_time() {
    assert_eq!(Timestamp::from_raw(1_000_000_000).real_time(), None);
    assert_eq!(Timestamp::from_raw(u64::MAX).real_time(), None);
}

#[test]
fn a_later_time_is_no_counts_ago() {
    let (first, second) = (Timestamp::from_raw(7), Timestamp::from_raw(9));
    assert_eq!((second.counts_since(first), first.counts_since(second)), (2, 0));
}
