//! Data that becomes visible out of order.

use super::destroyed::destroy_key;
use super::side::{Post, Side};
use super::{Pair, Setup};
use crate::card::Placement;
use crate::clock::Random;
use crate::object::Service;
use crate::transport::QueuePair;

const WRITE: u8 = 0x08;
const WRITE_IMMEDIATE: u8 = 0x09;
const SEND: u8 = 0x0a;
const READ: u8 = 0x10;
const FAA: u8 = 0x12;

const OLD: u8 = 0x11;
const NEW: u8 = 0x22;
/// Bytes of a line that becomes visible at once.
const LINE: usize = 64;
const LINES: usize = 40;
/// Bytes of messages of three packets.
const LENGTH: usize = LINES * LINE;
/// Where data goes to.
const DATA: u64 = 64 << 10;
/// Where a flag behind the data, and the answer of an atomic, go to.
const FLAG: u64 = 96 << 10;
const SEEDS: u64 = 32;

/// Two sides. With a seed, data becomes visible out of order on both.
fn pair(seed: Option<u64>, setup: Setup) -> Pair {
    let mut pair = Pair::new(setup);
    for side in &mut pair.sides {
        side.rig.card.placement = seed.map(Placement::seeded);
        side.put(0, &[NEW; LENGTH]);
        side.put(DATA, &[OLD; LENGTH]);
        side.put(FLAG, &[OLD; 8]);
    }
    pair
}

/// A request of all data.
fn all_data(opcode: u8, own: &Side, peer: &Side) -> Post {
    let mut post = Post::new(opcode);
    let (local, remote) = if opcode == READ { (DATA, 0) } else { (0, DATA) };
    post.data = vec![(local, LENGTH as u32, own.key)];
    post.remote = (Side::address(remote), peer.key);
    post
}

/// A WRITE of one byte to the place behind the data.
fn flag(own: &Side, peer: &Side) -> Post {
    let mut post = Post::new(WRITE);
    post.data = vec![(0, 1, own.key)];
    post.remote = (Side::address(FLAG), peer.key);
    post
}

/// Which lines of the data are there.
fn lines(side: &Side) -> Vec<bool> {
    let bytes = side.get(DATA, LENGTH);
    bytes
        .chunks(LINE)
        .map(|line| {
            assert!(line.iter().all(|byte| *byte == line[0]), "a line comes as a whole: {line:?}");
            line[0] == NEW
        })
        .collect()
}

fn is_whole(side: &Side) -> bool {
    lines(side).iter().all(|is_there| *is_there)
}

/// Returns whether a line is there before an earlier one.
fn is_out_of_order(lines: &[bool]) -> bool {
    !lines.is_sorted_by(|earlier, later| earlier >= later)
}

/// Lets time pass until no timer is left.
fn finish(pair: &mut Pair) {
    pair.run(100, |pair| pair.sides.iter().all(|side| side.rig.card.deadline().is_none()));
    assert!(pair.sides.iter().all(|side| side.rig.card.placement_deadline().is_none()));
}

/// Posts a WRITE and does not let time pass. Returns the lines that are there then.
fn written(seed: Option<u64>) -> Vec<bool> {
    let mut pair = pair(seed, Setup::default());
    let [own, peer] = &mut pair.sides;
    let post = all_data(WRITE, own, peer);
    let index = own.post(&post);
    pair.settle();
    let seen = lines(&pair.sides[1]);
    let done = pair.sides[0].outcomes(0);
    assert_eq!(done.is_empty(), seen.contains(&false), "completes when all is there");
    finish(&mut pair);
    assert!(is_whole(&pair.sides[1]));
    assert_eq!([done, pair.sides[0].outcomes(0)].concat(), [(index, 0)]);
    seen
}

#[test]
fn the_last_line_of_a_write_may_come_before_earlier_ones() {
    assert_eq!(written(None), [true; LINES]);
    let early = |seed| {
        let seen = written(Some(seed));
        seen[LINES - 1] && seen.contains(&false)
    };
    assert!((0..SEEDS).any(early));
}

#[test]
fn a_seed_repeats_its_order_and_another_one_has_its_own() {
    assert_eq!(written(Some(1)), written(Some(1)));
    assert_ne!(written(Some(1)), written(Some(2)));
}

/// Posts data and a WRITE of a flag behind it. Returns whether the flag overtakes the data.
fn overtaken(seed: Option<u64>, service: Service) -> bool {
    let mut pair = pair(seed, Setup { service, ..Setup::default() });
    let [own, peer] = &mut pair.sides;
    for post in [all_data(WRITE, own, peer), flag(own, peer)] {
        own.post(&post);
    }
    pair.settle();
    let peer = &pair.sides[1];
    let overtaken = peer.get(FLAG, 1) == [NEW] && !is_whole(peer);
    finish(&mut pair);
    assert_eq!(pair.sides[1].get(FLAG, 1), [NEW]);
    assert!(is_whole(&pair.sides[1]));
    overtaken
}

#[test]
fn a_write_may_overtake_the_write_before_it() {
    for service in [Service::Rc, Service::Uc] {
        assert!(!overtaken(None, service));
        assert!((0..SEEDS).any(|seed| overtaken(Some(seed), service)), "{service:?}");
    }
}

#[test]
fn writes_to_the_same_bytes_end_with_the_last_one() {
    for seed in 0..SEEDS {
        let mut pair = pair(Some(seed), Setup::default());
        for round in 0..8 {
            let [own, peer] = &mut pair.sides;
            let mut post = Post::new(WRITE);
            post.inline = Some(vec![round; 100]);
            post.remote = (Side::address(DATA + u64::from(round) % 3), peer.key);
            own.post(&post);
            pair.settle();
        }
        finish(&mut pair);
        assert_eq!(pair.sides[1].get(DATA + 1, 100), [7; 100], "seed {seed}");
    }
}

#[test]
fn a_completion_at_the_peer_says_that_all_data_before_it_is_there() {
    let ways = [Service::Rc, Service::Uc].map(|service| Setup { service, ..Setup::default() });
    let ways = ways.map(|setup| [SEND, WRITE_IMMEDIATE, WRITE].map(|opcode| (setup, opcode)));
    for ((setup, opcode), seed) in
        ways.as_flattened().iter().flat_map(|way| (0..SEEDS).map(move |seed| (*way, seed)))
    {
        let mut pair = pair(Some(seed), setup);
        let [own, peer] = &mut pair.sides;
        let key = peer.key;
        peer.receive(&[(if opcode == SEND { DATA } else { FLAG }, LENGTH as u32, key)]);
        let data = all_data(opcode, own, peer);
        own.post(&data);
        if opcode == WRITE {
            let message = Post { opcode: SEND, ..flag(own, peer) };
            own.post(&message);
        }
        let arrived = pair.run(100, |pair| {
            let cqe = pair.sides[1].poll(1);
            cqe.is_some_and(|cqe| {
                assert_eq!(cqe.syndrome, 0);
                assert!(is_whole(&pair.sides[1]), "seed {seed}, {opcode:#x}");
                true
            })
        });
        assert!(arrived, "seed {seed}, {opcode:#x}");
    }
}

#[test]
fn a_read_and_an_atomic_see_all_data_before_them() {
    for seed in 0..SEEDS {
        let mut pair = pair(Some(seed), Setup::default());
        let [own, peer] = &mut pair.sides;
        own.put(0, &[1; LENGTH]);
        peer.put(DATA, &[0; LENGTH]);
        let data = all_data(WRITE, own, peer);
        own.post(&data);
        let mut add = Post::new(FAA);
        add.remote = (Side::address(DATA + 8 * seed), peer.key);
        add.data = vec![(FLAG, 8, own.key)];
        add.operands = (1, 0);
        own.post(&add);
        let mut read = Post::new(READ);
        read.remote = (Side::address(DATA), peer.key);
        read.data = vec![(DATA, LENGTH as u32, own.key)];
        let last = own.post(&read);
        let mut done = Vec::new();
        assert!(pair.run(100, |pair| {
            done.extend(pair.sides[0].outcomes(0));
            done.last() == Some(&(last, 0))
        }));
        let own = &pair.sides[0];
        assert_eq!(own.get(FLAG, 8), [1; 8], "seed {seed}");
        let mut wanted = vec![1; LENGTH];
        wanted[8 * seed as usize] += 1;
        assert_eq!(own.get(DATA, LENGTH), wanted, "seed {seed}");
    }
}

#[test]
fn the_answer_of_a_read_is_there_when_it_completes() {
    let mut early = false;
    for seed in 0..SEEDS {
        let mut pair = pair(Some(seed), Setup::default());
        let [own, peer] = &mut pair.sides;
        let read = all_data(READ, own, peer);
        let index = own.post(&read);
        // Its packets one by one.
        let sides = &mut pair.sides;
        sides[0].rig.card.pump();
        let request = sides[0].rig.card.take_frame().expect("a request");
        sides[1].rig.card.receive(&request);
        sides[1].rig.card.pump();
        while let Some(frame) = sides[1].rig.card.take_frame() {
            sides[0].rig.card.receive(&frame);
            early |= is_out_of_order(&lines(&sides[0]));
        }
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), [(index, 0)]);
        assert!(is_whole(&pair.sides[0]), "seed {seed}");
    }
    assert!(early, "no line came before an earlier one");
}

/// A program gives memory back by a command, and the device may not write there any more.
#[test]
fn nothing_is_written_after_a_command() {
    let mut waited = false;
    for seed in 0..SEEDS {
        let mut pair = pair(Some(seed), Setup::default());
        let [own, peer] = &mut pair.sides;
        let post = all_data(WRITE, own, peer);
        let index = own.post(&post);
        pair.settle();
        waited |= !is_whole(&pair.sides[1]);
        destroy_key(&mut pair.sides[1]);
        assert!(is_whole(&pair.sides[1]), "seed {seed}");
        // The memory has another use now.
        pair.sides[1].put(DATA, &[OLD; LENGTH]);
        finish(&mut pair);
        assert_eq!(pair.sides[1].get(DATA, LENGTH), [OLD; LENGTH], "seed {seed}");
        assert_eq!(pair.sides[0].outcomes(0), [(index, 0)], "the acknowledge still comes");
    }
    assert!(waited, "no data waited for the command");
}

#[test]
fn a_reset_places_what_waits() {
    for seed in 0..SEEDS {
        let mut pair = pair(Some(seed), Setup::default());
        let [own, peer] = &mut pair.sides;
        let post = all_data(WRITE, own, peer);
        own.post(&post);
        pair.settle();
        let card = &mut pair.sides[1].rig.card;
        card.reset();
        card.clock.advance(1_000_000);
        let before = pair.sides[1].get(DATA, LENGTH);
        pair.sides[1].rig.card.expire();
        assert_eq!(before, vec![NEW; LENGTH]);
        pair.sides[1].put(DATA, &[OLD; LENGTH]);
        pair.sides[1].rig.card.expire();
        assert_eq!(pair.sides[1].get(DATA, LENGTH), [OLD; LENGTH]);
    }
}

/// Memory that is gone refuses the packet, as in the order of arrival.
#[test]
fn data_for_memory_that_does_not_answer_is_refused() {
    for seed in [None, Some(0)] {
        let mut pair = pair(seed, Setup::default());
        let [own, peer] = &mut pair.sides;
        let key = peer.key_over_nothing();
        let mut post = all_data(WRITE, own, peer);
        post.remote.1 = key;
        let index = own.post(&post);
        finish(&mut pair);
        assert_eq!(pair.sides[0].outcomes(0), [(index, 0x13)], "{seed:?}");
    }
}

/// Everything moves as ever, with losses and repetitions.
#[test]
fn a_bad_wire_loses_no_data_that_waits() {
    let mut random = Random::seeded(1);
    for seed in 0..8 {
        let mut pair = Pair::lossy(Setup::default(), seed, 20);
        for side in &mut pair.sides {
            side.rig.card.placement = Some(Placement::seeded(seed));
        }
        for _ in 0..4 {
            let [own, peer] = &mut pair.sides;
            let bytes: Vec<u8> = (0..LENGTH).map(|_| random.draw() as u8).collect();
            own.put(0, &bytes);
            let post = all_data(WRITE, own, peer);
            let index = own.post(&post);
            let mut done = Vec::new();
            assert!(pair.run(1000, |pair| {
                done.extend(pair.sides[0].outcomes(0));
                !done.is_empty()
            }));
            assert_eq!(done, [(index, 0)]);
            assert_eq!(pair.sides[1].get(DATA, LENGTH), bytes, "seed {seed}");
        }
        for side in &pair.sides {
            let qp = &side.rig.card.objects.qps[&side.qp];
            assert!(QueuePair::of(qp).unwrap().is_idle());
        }
    }
}
