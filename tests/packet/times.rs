//! The times of packets: when one was sent, and when it came.

use std::time::Duration;

use mlx5::cqe::SendOperation;
use mlx5::devx::SendTimes;
use mlx5::endpoint::Outcome;
use mlx5::verbs::DeviceClock;
use mlx5::wqe::{EthSend, Inline};

use crate::{Pair, number};
use rig::until;

#[test]
fn a_packet_has_the_time_when_it_was_sent_and_the_time_when_it_came() {
    let mut pair = Pair::new(0x60, |builder| builder.slots(32));
    let clock = DeviceClock::new(&pair.rig.context).unwrap();
    for id in 0..5 {
        let before = clock.count().unwrap();
        let packet = pair.packet(id, 100);
        pair.sender.post(id, EthSend::new(Inline(&packet)).signaled()).unwrap();
        let (sent, time) = pair.sender.poll_one_timed().unwrap().expect("a completion");
        assert!(matches!(sent.outcome, Outcome::Sent(done) if done.id == id), "{sent:?}");
        let came = pair.receiver.poll(1).next().expect("a packet").unwrap();
        assert_eq!(number(&came), id);
        let after = clock.count().unwrap();
        for time in [time.expect("a time"), came.info().timestamp] {
            assert!(before <= time && time <= after, "{before:?} {time:?} {after:?}");
        }
    }
}

#[test]
fn a_packet_behind_a_wait_leaves_at_its_time() {
    let mut pair = Pair::new(0x61, |builder| builder.slots(32));
    let clock = DeviceClock::new(&pair.rig.context).unwrap();
    let reading = clock.read().unwrap();
    let times = SendTimes::free_running(&pair.rig.context).unwrap();
    let packet = pair.packet(7, 100);
    let later = reading.after(clock.count().unwrap(), Duration::from_millis(50));
    pair.sender.post(0, times.until(later)).unwrap();
    pair.sender.post(1, EthSend::new(Inline(&packet)).signaled()).unwrap();
    // The completion of the packet retires the wait.
    let (waited, _) = until(|| pair.sender.poll_one_timed().unwrap());
    assert_eq!((waited.id, pair.sender.send_queue().is_idle()), (0, false), "{waited:?}");
    let (sent, time) = until(|| pair.sender.poll_one_timed().unwrap());
    assert!(matches!(sent.outcome, Outcome::Sent(done) if done.id == 1), "{sent:?}");
    let came =
        until(|| pair.receiver.poll(1).next().map(|packet| packet.unwrap().info().timestamp));
    for time in [time.expect("a time"), came] {
        assert!(later <= time, "{later:?} {time:?}");
    }
    // A time that has come is not waited for.
    pair.sender.post(2, times.until(later).signaled()).unwrap();
    let waited = until(|| pair.sender.poll_one().unwrap());
    let Outcome::Sent(done) = waited.outcome else { panic!("{waited:?}") };
    assert_eq!((done.id, done.operation), (2, SendOperation::Wait));
}
