//! Requests that wait for a time.

use super::*;
use crate::identity::Profile;

const WAIT: u8 = 0x0f;
const TIME: u8 = 2;
const SECOND: u64 = 1_000_000_000;
/// Eight seconds of nanoseconds.
const MASK: u64 = (8 << 30) - 1;
/// Eight seconds of seconds and nanoseconds.
const REAL_MASK: u64 = (8 << 32) - 1;

fn wait(condition: u32, time: u64, mask: u64) -> Vec<u8> {
    let mut segments = u64::from(condition).to_be_bytes()[4..].to_vec();
    segments.extend([0; 12]);
    segments.extend(time.to_be_bytes());
    segments.extend(mask.to_be_bytes());
    segments
}

fn real_time(command: Command) -> Command {
    command.set(sqc::TS_FORMAT.within(create_sq_in::CTX), 2u64)
}

/// A side whose clock has a time, with a receive for the packet that is sent by [`Side::packet`].
fn side(sends: Change, now: u64) -> Side {
    let mut side = Side::with(as_is, sends);
    side.rig.card.clock.advance(now);
    let tir = side.tir;
    side.lead(0, 0x0101, &[tir]);
    side.receive(0, 0x400, 0x100);
    side
}

impl Side {
    fn until(&mut self, time: u64, mask: u64) {
        self.post_modified(TIME, WAIT, &wait(5, time, mask));
    }

    fn packet(&mut self) {
        self.send(0, &tcp(0x0101, 40));
    }

    fn has_left(&self) -> bool {
        self.received(0)[63] >> 4 == 2
    }

    /// Lets nanoseconds pass.
    fn pass(&mut self, nanoseconds: u64) {
        self.rig.card.clock.advance(nanoseconds);
        self.rig.card.expire();
        self.run();
    }
}

#[test]
fn what_is_behind_a_wait_leaves_at_its_time_and_not_before() {
    let cases: [(&str, Change, u64, u64, u64); 4] = [
        ("counts", as_is, 100, 700, MASK),
        ("counts that wrap around", as_is, MASK - 99, 500, MASK),
        ("real time", real_time, 3 * SECOND + 100, 3 << 32 | 700, REAL_MASK),
        ("a second later", real_time, 3 * SECOND - 100, 3 << 32 | 500, REAL_MASK),
    ];
    for (name, sends, now, time, mask) in cases {
        let mut side = side(sends, now);
        side.until(time, mask);
        side.packet();
        assert_eq!(side.rig.card.deadline(), Some(now + 600), "{name}");
        side.pass(599);
        assert_eq!(side.sent(0)[63], UNWRITTEN, "{name}");
        assert!(!side.has_left(), "{name}");
        side.pass(1);
        let waited = side.sent(0);
        assert_eq!((waited[63] >> 4, waited[56]), (0, WAIT), "{name}: {waited:02x?}");
        assert_eq!(waited[44..48], [0; 4], "{name}");
        assert_eq!(side.sent(1)[63] >> 4, 0, "{name}");
        assert!(side.has_left(), "{name}");
    }
}

#[test]
fn a_time_that_has_come_or_is_half_a_round_ahead_is_not_waited_for() {
    for time in [1000, 999, 1000 + MASK / 2 + 1, MASK] {
        let mut side = side(as_is, 1000);
        side.until(time, MASK);
        side.packet();
        assert!(side.has_left(), "{time}");
    }
    // Nothing is compared.
    let mut side = side(as_is, 1000);
    side.until(2000, 0);
    assert_eq!(side.sent(0)[63] >> 4, 0);
}

#[test]
fn a_time_that_is_far_ahead_is_looked_at_again() {
    const HOUR: u64 = 3600 * SECOND;
    let far: [(Change, u64); 3] =
        [(as_is, 1 << 62), (as_is, u64::MAX / 2), (real_time, i64::MAX as u64)];
    for (sends, time) in far {
        let mut side = side(sends, 0);
        side.until(time, u64::MAX);
        side.packet();
        for passed in 1..=3 {
            assert_eq!(side.rig.card.deadline(), Some(passed * HOUR), "{time:#x}");
            side.pass(HOUR);
            assert!(!side.has_left(), "{time:#x}");
        }
    }
}

#[test]
fn a_queue_that_waits_is_flushed_and_reset() {
    let mut failed = side(as_is, 0);
    failed.until(700, MASK);
    failed.packet();
    failed.modify_sq(1, 3).unwrap();
    failed.run();
    for slot in 0..2 {
        let cqe = failed.sent(slot);
        assert_eq!((cqe[55], cqe[63] >> 4), (5, 0xd), "{cqe:02x?}");
    }
    failed.pass(1000);
    assert!(!failed.has_left());

    let mut reset = side(as_is, 0);
    reset.until(700, MASK);
    reset.packet();
    for (from, to) in [(1, 3), (3, 0), (0, 1)] {
        reset.modify_sq(from, to).unwrap();
    }
    reset.posted = 0;
    reset.packet();
    assert!(reset.has_left(), "no time from before is waited for");
}

#[test]
fn other_waits_and_those_of_devices_without_the_capability_fail() {
    const QP_OPERATION: u8 = 0x02;
    let fails = |modifier, segments: &[u8], profile| {
        let mut side = side(as_is, 0);
        side.rig.card.identity.profile = profile;
        side.post_modified(modifier, WAIT, segments);
        let cqe = side.sent(0);
        assert_eq!((cqe[55], cqe[63] >> 4), (QP_OPERATION, 0xd), "{segments:02x?}");
    };
    let mut addressed = wait(5, 7, MASK);
    addressed[15] = 8;
    for segments in [wait(4, 7, MASK), addressed, wait(5, 7, MASK)[..16].to_vec()] {
        fails(TIME, &segments, Profile::Complete);
    }
    fails(1, &wait(5, 7, MASK), Profile::Complete);
    fails(0, &[0; 16], Profile::Complete);
    fails(TIME, &wait(5, 7, MASK), Profile::ConnectX6Dx);
}
