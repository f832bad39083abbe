//! Tests of what a post costs.

use super::stations;
use crate::clock::READINGS;
use crate::transport::test::Setup;

#[test]
fn a_post_reads_the_clock_twice() {
    let [mut one, other] = stations(Setup::default());
    let post = one.write(64, other.side.key);
    let readings = (0..8).map(|_| {
        let before = READINGS.get();
        one.post(&post);
        let readings = READINGS.get() - before;
        assert_eq!(one.wait(0).syndrome, 0);
        readings
    });
    // For packets that may wait, and for the end of the wait for an acknowledge. Another reading is
    // due when the thread's timer is set anew.
    assert_eq!(readings.min(), Some(2));
}
