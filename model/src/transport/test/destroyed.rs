//! Requests to keys and queue pairs that the peer has destroyed, on the manual clock.

use std::cell::Cell;
use std::rc::Rc;

use mlx5_sys::ifc::{destroy_mkey_in, destroy_qp_in, opcode};

use super::counters::{counts, sets};
use super::measured::roce;
use super::side::{Post, Side};
use super::{Pair, Setup};
use crate::card::Timeouts;
use crate::command::test::Command;
use crate::object::State;

const FLUSHED: u8 = 0x05;
const REMOTE_ACCESS: u8 = 0x13;
const NO_ANSWER: u8 = 0x15;
const ACCESS_EVENT: u8 = 0x11;

/// Devices that each draw other numbers.
const SEEDS: u64 = 12;
/// Nanoseconds between which a destroyed key was refused (evidence E103).
const DELAY: std::ops::RangeInclusive<u64> = 1_000_000..=2_200_000;

/// Two sides. The second one responds, and draws its numbers from this seed.
fn responding(setup: Setup, seed: u64) -> Pair {
    let mut sides = [Side::new(setup, 0), Side::new(setup, 1)];
    sides[1].rig.card.identity.seed = seed;
    Pair::connect(&mut sides, [setup; 2]);
    Pair::between(sides)
}

pub(super) fn destroy_key(side: &mut Side) {
    let destroy = Command::new(opcode::DESTROY_MKEY, 0x10);
    let destroy = destroy.set(destroy_mkey_in::MKEY_INDEX, side.key >> 8);
    side.rig.run(&destroy).expect("accepted");
}

/// Counts the packets that the responder sends.
fn count_answers(pair: &mut Pair) -> Rc<Cell<u64>> {
    let answers = Rc::new(Cell::new(0));
    let seen = answers.clone();
    pair.drop = Box::new(move |from, _| {
        seen.set(seen.get() + u64::from(from == 1));
        false
    });
    answers
}

/// Measured with WRITEs in 90 of 90 runs (evidence E103): no counter of a repetition moves.
#[test]
fn a_key_destroyed_under_traffic_is_refused_late_as_measured_on_roce() {
    let times: Vec<u64> = (0..SEEDS)
        .map(|seed| {
            let mut pair = responding(roce(Timeouts::Measured, 14, 7), seed);
            let sets = sets(&mut pair);
            let [own, peer] = &mut pair.sides;
            own.write_to(0, 8, peer.key);
            pair.settle();
            let [own, peer] = &mut pair.sides;
            assert_eq!(own.outcomes(0), [(0, 0)]);
            destroy_key(peer);
            for _ in 0..3 {
                own.write_to(0, 8, peer.key);
            }
            let answers = count_answers(&mut pair);
            pair.settle();
            assert_eq!((pair.now(), answers.get()), (0, 0));
            let states = pair.sides.each_ref().map(Side::state);
            assert_eq!(states, [State::Rts; 2]);
            assert!(pair.run(1, |pair| pair.sides[0].state() == State::Error), "the next timer");
            assert_eq!(answers.get(), 1, "the NAK");
            let [own, peer] = &mut pair.sides;
            assert_eq!(own.outcomes(0), [(1, REMOTE_ACCESS), (2, FLUSHED), (3, FLUSHED)]);
            assert_eq!((peer.state(), peer.take_events()), (State::Error, vec![ACCESS_EVENT]));
            for (side, set) in sets.into_iter().enumerate() {
                let moved = counts(&mut pair.sides[side], set);
                let names: Vec<&str> = moved.iter().map(|(name, _)| *name).collect();
                for name in [
                    "PACKET_SEQ_ERR",
                    "IMPLIED_NAK_SEQ_ERR",
                    "LOCAL_ACK_TIMEOUT_ERR",
                    "ROCE_ADP_RETRANS",
                    "OUT_OF_SEQUENCE",
                    "DUPLICATE_REQUEST",
                ] {
                    assert!(!names.contains(&name), "{moved:?}");
                }
            }
            assert!(DELAY.contains(&pair.now()), "{} ns", pair.now());
            pair.now()
        })
        .collect();
    assert!(times.iter().any(|time| *time != times[0]), "devices differ: {times:?}");
}

/// The delay is that of the law which RoCE was measured to follow, and begins with the command.
#[test]
fn a_key_is_refused_at_once_without_the_measured_law_and_later() {
    let infiniband = Setup::default();
    let specification = roce(Timeouts::SPECIFICATION, 14, 7);
    let late = roce(Timeouts::Measured, 14, 7);
    for (setup, pause) in [(infiniband, 0), (specification, 0), (late, *DELAY.end())] {
        let mut pair = responding(setup, 0);
        let [own, peer] = &mut pair.sides;
        destroy_key(peer);
        for side in [&mut *own, &mut *peer] {
            side.rig.card.clock.advance(pause);
        }
        own.write_to(0, 8, peer.key);
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), [(0, REMOTE_ACCESS)], "{setup:?}");
    }
}

#[test]
fn reads_and_atomics_are_refused_as_late() {
    for opcode in [0x10, 0x11, 0x12] {
        let mut pair = responding(roce(Timeouts::Measured, 14, 7), 1);
        let [own, peer] = &mut pair.sides;
        destroy_key(peer);
        let mut post = Post::new(opcode);
        (post.data, post.remote) = (vec![(0, 8, own.key)], (Side::address(0), peer.key));
        own.post(&post);
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), []);
        assert!(pair.run(1, |pair| pair.sides[0].outcomes(0) == [(0, REMOTE_ACCESS)]));
        assert!(DELAY.contains(&pair.now()), "{} ns", pair.now());
    }
}

#[test]
fn a_queue_pair_that_fails_before_the_refusal_sends_none_and_flushes_its_receive() {
    let setup = roce(Timeouts::Measured, 14, 7);
    let mut pair = responding(setup, 0);
    let [own, peer] = &mut pair.sides;
    peer.receive(&[(0, 8, peer.key)]);
    let mut post = Post::new(0x09);
    post.data = vec![(0, setup.mtu + 8, own.key)];
    post.remote = (Side::address(0), peer.key);
    own.post(&post);
    own.rig.card.pump();
    let packets: Vec<_> = std::iter::from_fn(|| own.rig.card.take_frame()).collect();
    assert_eq!(packets.len(), 2);
    peer.rig.card.receive(&packets[0]);
    destroy_key(peer);
    // It takes the receive before its key is looked up.
    peer.rig.card.receive(&packets[1]);
    peer.rig.card.pump();
    peer.rig.card.settle();
    assert_eq!((peer.state(), peer.outcomes(1)), (State::Rts, vec![]));
    peer.break_off();
    let answers = count_answers(&mut pair);
    pair.settle();
    assert_eq!(pair.sides[1].outcomes(1), [(0, FLUSHED)]);
    while pair.sides[0].state() == State::Rts {
        assert!(pair.tick().is_some());
    }
    assert_eq!(pair.sides[0].outcomes(0), [(0, NO_ANSWER)]);
    assert_eq!(answers.get(), 0);
}

/// 20 of 20 runs took 3.64 s (evidence E104), as with any peer that does not answer.
#[test]
fn a_destroyed_queue_pair_is_given_up_when_it_was_measured_on_roce() {
    let mut pair = responding(roce(Timeouts::Measured, 14, 7), 0);
    let peer = &mut pair.sides[1];
    let destroy = Command::new(opcode::DESTROY_QP, 0x10).set(destroy_qp_in::QPN, peer.qp);
    peer.rig.run(&destroy).expect("accepted");
    let [own, peer] = &mut pair.sides;
    own.write_to(0, 8, peer.key);
    assert!(pair.run(40, |pair| pair.sides[0].state() == State::Error));
    assert_eq!(pair.sides[0].outcomes(0), [(0, NO_ANSWER)]);
    let time = pair.now() / 1_000_000;
    assert!((3500..=3760).contains(&time), "{time} ms");
}
