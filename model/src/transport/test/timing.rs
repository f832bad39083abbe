//! Waits and retries, measured on the manual clock.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::side::Side;
use super::{Pair, Setup};
use crate::card::{Link, Timeouts};
use crate::object::State;
use crate::transport::timing::rnr_wait;
use crate::wire::{Acknowledge, Header, NakCode, Opcode};

const RNR_EXCEEDED: u8 = 0x16;
/// The laws that a device may follow.
const LAWS: [Timeouts; 2] = [Timeouts::Measured, Timeouts::SPECIFICATION];

fn opcode_of(pair: &Setup, frame: &crate::wire::Frame) -> Header {
    Header::decode(pair.link, &frame.0).expect("a packet").0
}

#[test]
fn a_receiver_that_is_not_ready_is_waited_for_as_long_as_it_says() {
    for (timeouts, code) in LAWS.into_iter().flat_map(|law| (0..32).map(move |code| (law, code))) {
        let rnr_wait = |code| rnr_wait(timeouts, Link::InfiniBand, code);
        let setup = Setup { rnr_timer: code, rnr_retries: 7, timeouts, ..Setup::default() };
        let mut pair = Pair::new(setup);
        let tries = Rc::new(Cell::new(0));
        let seen = tries.clone();
        pair.drop = Box::new(move |from, _| {
            seen.set(seen.get() + u64::from(from == 0));
            false
        });
        pair.sides[0].send(8);
        for round in 0..4 {
            assert!(pair.run(100, |_| tries.get() == round + 1));
            assert_eq!(pair.now(), round * rnr_wait(code as u8), "timer code {code}");
        }
        let [own, peer] = &mut pair.sides;
        assert_eq!(own.outcomes(0), []);
        peer.receive(&[(0, 8, peer.key)]);
        assert!(pair.run(100, |pair| pair.sides[0].outcomes(0) == [(0, 0)]));
        assert_eq!(pair.now(), 4 * rnr_wait(code as u8));
        assert_eq!(pair.sides[1].outcomes(1), [(0, 0)]);
    }
}

#[test]
fn a_receiver_that_is_never_ready_is_given_up() {
    for (timeouts, retries) in
        LAWS.into_iter().flat_map(|law| (0..7).map(move |count| (law, count)))
    {
        let rnr_wait = |code| rnr_wait(timeouts, Link::InfiniBand, code);
        let setup = Setup { rnr_timer: 5, rnr_retries: retries, timeouts, ..Setup::default() };
        let mut pair = Pair::new(setup);
        pair.sides[0].send(8);
        pair.sides[0].send(8);
        assert!(pair.run(20, |pair| pair.sides[0].state() == State::Error));
        assert_eq!(pair.now(), u64::from(retries) * rnr_wait(5));
        assert_eq!(pair.sides[0].outcomes(0), [(0, RNR_EXCEEDED), (1, 5)]);
        assert_eq!(pair.sides[1].state(), State::Rts, "the receiver did nothing wrong");
    }
}

#[test]
fn a_write_with_immediate_waits_with_its_last_packet() {
    let mut pair = Pair::new(Setup { mtu: 256, ..Setup::default() });
    let [own, peer] = &mut pair.sides;
    own.put(0, &[9; 1000]);
    let mut post = super::side::Post::new(0x09);
    post.data = vec![(0, 1000, own.key)];
    post.remote = (Side::address(0), peer.key);
    own.post(&post);
    pair.settle();
    let [own, peer] = &mut pair.sides;
    assert_eq!(peer.get(0, 768), [9; 768]);
    assert_eq!((own.poll(0), peer.poll(1)), (None, None));
    peer.receive(&[]);
    assert!(pair.run(1, |pair| pair.sides[0].outcomes(0) == [(0, 0)]));
    assert_eq!(pair.sides[1].outcomes(1), [(0, 0)]);
    assert_eq!(pair.sides[1].get(0, 1000), [9; 1000]);
}

#[test]
fn a_timeout_is_as_short_as_the_floor_allows() {
    for (floor, code, waits) in [(12, 5, 12), (0, 5, 5), (7, 5, 7), (0, 1, 1), (16, 14, 16)] {
        let setup = Setup { timeout: code, ..Setup::default() };
        let mut sides = [Side::new(setup, 0), Side::new(setup, 1)];
        sides[0].rig.card.set_timeouts(Timeouts::Specification { floor });
        Pair::connect(&mut sides, [setup; 2]);
        let mut pair = Pair::between(sides);
        pair.drop = Box::new(|from, _| from == 0);
        let [own, peer] = &mut pair.sides;
        own.write_to(0, 8, peer.key);
        pair.settle();
        assert_eq!(pair.tick(), Some(4096 << waits), "floor {floor}, code {code}");
    }
}

#[test]
fn without_a_timeout_a_loss_waits_for_ever() {
    let mut pair = Pair::new(Setup { timeout: 0, ..Setup::default() });
    pair.drop = Box::new(|_, _| true);
    let [own, peer] = &mut pair.sides;
    own.write_to(0, 8, peer.key);
    pair.settle();
    assert_eq!(pair.tick(), None);
    assert_eq!(pair.sides[0].state(), State::Rts);
}

#[test]
fn a_gap_is_repeated_at_once() {
    let setup = Setup { mtu: 256, ..Setup::default() };
    let mut pair = Pair::new(setup);
    let mut lost = false;
    let mut naks = 0;
    pair.drop = Box::new(move |from, frame| {
        let header = opcode_of(&setup, frame);
        if from == 1 {
            let sequence = Acknowledge::Nak(NakCode::Sequence);
            naks += u32::from(header.aeth.is_some_and(|aeth| aeth.syndrome == sequence));
            assert!(naks <= 1, "one NAK for one gap");
        }
        let hit = !lost && from == 0 && header.psn == 0x123 + 3;
        lost |= hit;
        hit
    });
    let [own, peer] = &mut pair.sides;
    own.put(0, &[7; 5000]);
    own.write_to(0, 5000, peer.key);
    pair.settle();
    assert_eq!(pair.now(), 0, "no timer was needed");
    let [own, peer] = &mut pair.sides;
    assert_eq!(own.outcomes(0), [(0, 0)]);
    assert_eq!(peer.get(0, 5000), [7; 5000]);
}

#[test]
fn an_atomic_whose_answer_is_lost_is_not_done_twice() {
    let setup = Setup { timeouts: Timeouts::SPECIFICATION, ..Setup::default() };
    let mut pair = Pair::new(setup);
    let mut lost = 0;
    pair.drop = Box::new(move |from, frame| {
        let hit = from == 1 && opcode_of(&setup, frame).opcode == Opcode::AtomicAcknowledge;
        lost += u32::from(hit);
        hit && lost <= 3
    });
    let [own, peer] = &mut pair.sides;
    peer.put(64, &40u64.to_le_bytes());
    let mut post = super::side::Post::new(0x12);
    post.data = vec![(0, 8, own.key)];
    post.remote = (Side::address(64), peer.key);
    post.operands = (2, 0);
    own.post(&post);
    assert!(pair.run(5, |pair| pair.sides[0].outcomes(0) == [(0, 0)]));
    assert_eq!(pair.now(), 3 * (4096 << 14));
    assert_eq!(pair.sides[1].get(64, 8), 42u64.to_le_bytes());
    assert_eq!(pair.sides[0].get(0, 8), 40u64.to_le_bytes());
}

#[test]
fn a_read_continues_where_its_answer_was_lost() {
    let setup = Setup { mtu: 256, ..Setup::default() };
    let mut pair = Pair::new(setup);
    let mut lost = false;
    let mut requests = vec![];
    let seen = Rc::new(RefCell::new(vec![]));
    let log = seen.clone();
    pair.drop = Box::new(move |from, frame| {
        let header = opcode_of(&setup, frame);
        if from == 0 {
            requests.push(header.psn);
            *log.borrow_mut() = requests.clone();
        }
        let hit = !lost && from == 1 && header.psn == 0x123 + 5;
        lost |= hit;
        hit
    });
    let [own, peer] = &mut pair.sides;
    peer.put(0, &[3; 4000]);
    let mut post = super::side::Post::new(0x10);
    post.data = vec![(0, 4000, own.key)];
    post.remote = (Side::address(0), peer.key);
    own.post(&post);
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [(0, 0)]);
    assert_eq!(pair.sides[0].get(0, 4000), [3; 4000]);
    assert_eq!(*seen.borrow(), [0x123, 0x123 + 5]);
    assert_eq!(pair.now(), 0);
}

#[test]
fn a_fence_waits_for_the_read_before_it() {
    for fence in [false, true] {
        let mut pair = Pair::new(Setup { mtu: 256, ..Setup::default() });
        let [own, peer] = &mut pair.sides;
        let mut read = super::side::Post::new(0x10);
        read.data = vec![(0, 4000, own.key)];
        read.remote = (Side::address(0), peer.key);
        own.write(&read);
        let mut write = super::side::Post::new(0x08);
        write.data = vec![(0, 8, own.key)];
        write.remote = (Side::address(0), peer.key);
        write.fence = u8::from(fence) * 4;
        own.post(&write);
        own.rig.card.pump();
        let packets = own.rig.card.outbox.len();
        assert_eq!(packets, if fence { 1 } else { 2 });
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), [(0, 0), (1, 0)]);
    }
}

#[test]
fn the_acknowledge_leaves_before_the_completion_is_seen() {
    let mut pair = Pair::new(Setup::default());
    let [own, peer] = &mut pair.sides;
    peer.receive(&[(0, 8, peer.key)]);
    own.send(8);
    own.rig.card.pump();
    let frame = own.rig.card.outbox.pop_front().expect("a packet");
    peer.rig.card.receive(&frame);
    assert!(!peer.rig.card.settle());
    assert_eq!(peer.poll(1), None);
    peer.rig.card.pump();
    assert_eq!(peer.poll(1), None);
    assert_eq!(peer.rig.card.outbox.len(), 1, "the acknowledge");
    peer.rig.card.settle();
    assert!(peer.poll(1).is_some());
}

#[test]
fn acknowledges_are_coalesced() {
    let mut pair = Pair::new(Setup::default());
    let [own, peer] = &mut pair.sides;
    for _ in 0..10 {
        own.write_to(0, 8, peer.key);
    }
    own.rig.card.pump();
    for frame in std::mem::take(&mut own.rig.card.outbox) {
        peer.rig.card.receive(&frame);
    }
    peer.rig.card.pump();
    assert_eq!(peer.rig.card.outbox.len(), 1);
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0).len(), 10);
}
