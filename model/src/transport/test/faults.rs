//! Faults of devices by rule, and their effect on queue pairs.

use super::side::{Post, Side};
use super::{Pair, Setup};
use crate::fault::Tally;
use crate::object::State;

const SEND: u8 = 0x0a;
const CATASTROPHIC: u8 = 0x05;
const MS: u64 = 1_000_000;

fn advance(pair: &mut Pair, time: u64) {
    for side in &mut pair.sides {
        side.rig.card.clock.advance(time);
        side.rig.card.expire();
    }
    pair.settle();
}

/// Sends a message from side 0 to side 1.
fn send(pair: &mut Pair) -> u16 {
    let [own, peer] = &mut pair.sides;
    peer.receive(&[(0, 64, peer.key)]);
    let mut post = Post::new(SEND);
    post.data = vec![(0, 8, own.key)];
    let index = own.post(&post);
    pair.settle();
    index
}

#[test]
fn a_link_that_flaps_loses_packets_until_it_is_up_again() {
    let mut pair = Pair::new(Setup::default());
    pair.set_faults("device 1 flap at 2ms for 200ms");
    let first = send(&mut pair);
    assert_eq!(pair.sides[0].outcomes(0), [(first, 0)]);
    advance(&mut pair, 2 * MS);
    assert!(!pair.sides[1].rig.card.port_up() && pair.sides[0].rig.card.port_up());
    let second = send(&mut pair);
    assert_eq!(pair.sides[0].outcomes(0), []);
    let done = pair.run(100, |pair| pair.sides[1].rig.card.port_up());
    assert!(done && pair.now() == 202 * MS, "{}", pair.now());
    let mut got = vec![];
    assert!(pair.run(100, |pair| {
        got.extend(pair.sides[0].outcomes(0));
        !got.is_empty()
    }));
    assert_eq!(got, [(second, 0)]);
}

#[test]
fn packets_that_are_delayed_arrive_at_their_time() {
    let mut pair = Pair::new(Setup::default());
    pair.set_faults("device 1 in delay 3ms; device 1 out delay 2ms");
    let index = send(&mut pair);
    advance(&mut pair, 3 * MS - 1);
    assert_eq!(pair.sides[1].outcomes(1), []);
    advance(&mut pair, 1);
    assert_eq!(pair.sides[1].outcomes(1), [(0, 0)]);
    assert_eq!(pair.sides[0].outcomes(0), []);
    advance(&mut pair, 2 * MS);
    assert_eq!(pair.sides[0].outcomes(0), [(index, 0)]);
    assert_eq!(pair.sides[1].rig.card.fault_tallies(), [Tally { matched: 1, struck: 1 }; 2]);
    // What the rules keep passes when they end.
    let last = send(&mut pair);
    pair.set_faults("");
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [(last, 0)]);
}

#[test]
fn a_cq_that_overruns_fails_its_queue_pair() {
    let mut pair = Pair::new(Setup::default());
    pair.set_faults("device 0 overrun cq at 1ms");
    send(&mut pair);
    assert_eq!(pair.sides[0].outcomes(0).len(), 1);
    advance(&mut pair, MS);
    let [own, peer] = &mut pair.sides;
    assert_eq!((own.state(), peer.state()), (State::Error, State::Rts));
    // Both of its CQs are the queue pair's. It fails once.
    assert_eq!(own.take_events(), [CATASTROPHIC]);
    own.send(8);
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [], "no completion any more");
}

#[test]
fn an_eq_that_overruns_gets_no_event() {
    let mut pair = Pair::new(Setup::default());
    pair.set_faults("device 0 overrun eq; device 0 overrun cq at 1ms");
    advance(&mut pair, MS);
    let own = &mut pair.sides[0];
    assert_eq!((own.state(), own.take_events()), (State::Error, vec![]));
}

#[test]
fn a_device_whose_firmware_stops_does_nothing_any_more() {
    let mut pair = Pair::new(Setup::default());
    pair.set_faults("device 1 fatal at 1ms");
    send(&mut pair);
    let [own, peer] = &mut pair.sides;
    assert_eq!((own.outcomes(0).len(), peer.outcomes(1).len()), (1, 1));
    advance(&mut pair, MS);
    let peer = &mut pair.sides[1];
    assert!(peer.rig.card.is_stopped());
    assert_eq!(peer.rig.card.take_interrupt(), Some(0));
    peer.write_to(0, 8, 1);
    send(&mut pair);
    let [_, peer] = &mut pair.sides;
    assert_eq!((peer.outcomes(0), peer.outcomes(1)), (vec![], vec![]));
    assert_eq!((peer.rig.card.deadline(), peer.take_events()), (None, vec![]));
    // The other side notices that nobody answers.
    let mut lost = vec![];
    assert!(pair.run(100, |pair| {
        lost.extend(pair.sides[0].outcomes(0));
        !lost.is_empty()
    }));
    assert_eq!(lost[0].1, 0x15);
}

#[test]
fn a_command_is_not_answered_or_meets_a_device_that_has_stopped() {
    use super::super::faults::Unanswered;
    const CREATE_QP: u16 = 0x500;
    let mut side = Side::new(Setup::default(), 0);
    let card = &mut side.rig.card;
    card.set_faults(&"command create_qp 2 timeout; command 4 fatal".parse().unwrap(), 0);
    let answers = [CREATE_QP, CREATE_QP, CREATE_QP, 0x100, CREATE_QP]
        .map(|opcode| card.command_faults(opcode));
    let stopped = Err(Unanswered::Stopped);
    assert_eq!(answers, [Ok(()), Err(Unanswered::TimedOut), Ok(()), stopped, stopped]);
}
