//! Unit tests.

use super::queue_pair_remark;

/// The counters are those of the table in evidence/tables/doorbell-record.csv, and of a ring's wrap.
#[test]
fn a_doorbell_record_behind_the_requests_that_were_sent_is_named() {
    let is_behind = |counters| queue_pair_remark(6, counters).unwrap().contains("is behind");
    for counters in [[7, 24], [8, 16], [12, 16], [0xfff0, 3]] {
        assert!(is_behind(counters), "{counters:?}");
    }
    for counters in [[24, 24], [26, 26], [0, 0], [3, 0xfff0]] {
        assert!(!is_behind(counters), "{counters:?}");
    }
    assert_eq!(queue_pair_remark(3, [7, 24]), None);
}
