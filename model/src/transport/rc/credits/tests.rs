//! Unit tests.

use super::*;

#[test]
fn a_code_never_tells_of_more_receives_than_there_are() {
    for receives in 0..40_000 {
        let told = credits(code(receives)).unwrap();
        assert!(told <= receives && receives < (2 * told).clamp(told + 1, 65536));
    }
    assert_eq!(credits(NOT_COUNTED), None);
}
