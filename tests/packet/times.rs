//! The times of packets: when one was sent, and when it came.

use mlx5::endpoint::Outcome;
use mlx5::verbs::DeviceClock;
use mlx5::wqe::{EthSend, Inline};

use crate::{Pair, number};

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
