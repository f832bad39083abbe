//! Tests of masked atomics, DMA memcpy, and queues that wait for others.

use mlx5_sys::ifc::qpc;

use super::side::{Post, Side};
use super::{Pair, Setup};
use crate::card::{Feature, Profile};
use crate::object::{Service, State};

const LOCAL_QP_OPERATION: u8 = 0x02;
const LOCAL_PROTECTION: u8 = 0x04;
const LOCAL_LENGTH: u8 = 0x01;
const INVALID_REQUEST: u8 = 0x12;
const REMOTE_ACCESS: u8 = 0x13;

/// How a request is spoiled, and how it then ends.
type Spoiled<'a> = (&'a dyn Fn(&mut Post), u8);

/// An atomic under masks of `size` bytes at the peer's `at`, with the old value to `to`.
pub fn masked(own: &Side, key: u32, (size, at, to): (u32, u64, u64), operands: &[u128]) -> Post {
    let swap = operands.len() == 4;
    let mut post = Post::new(if swap { 0x14 } else { 0x15 });
    post.modifier = 8 | (size.ilog2() - 2) as u8;
    post.address = [&Side::address(at).to_be_bytes()[..], &key.to_be_bytes(), &[0; 4]].concat();
    for operand in operands {
        post.address.resize(post.address.len() + (size as usize).saturating_sub(16), 0);
        post.address.extend_from_slice(&operand.to_be_bytes()[16 - size.min(16) as usize..]);
    }
    post.address.resize(post.address.len().next_multiple_of(16), 0);
    post.data = vec![(to, size, own.key)];
    post
}

#[test]
fn every_size_is_swapped_and_added_once_whatever_the_wire_does() {
    for (service, rate) in [(Service::Rc, 0), (Service::Rc, 100)] {
        let setup = Setup { service, retries: 7, ..Setup::default() };
        let mut pair = Pair::lossy(setup, 7, rate);
        let key = pair.sides[1].key;
        let number = |side: &Side, at, size: usize| {
            let mut bytes = side.get(at, size);
            // Four bytes are in the host's order where they are changed alone.
            if size == 8 || size == 4 && at < 4096 {
                bytes.reverse();
            }
            bytes.iter().fold(0u128, |all, byte| all << 8 | u128::from(*byte))
        };
        for (slot, size) in [4u32, 8, 16, 32].into_iter().enumerate() {
            let (at, to) = (slot as u64 * 64, 4096 + slot as u64 * 64);
            for round in 0..20u128 {
                let [own, _] = &mut pair.sides;
                let add = masked(own, key, (size, at, to), &[3, 0]);
                own.post(&add);
                assert!(pair.run(1000, |pair| pair.sides[0].poll(0).is_some_and(|cqe| {
                    assert_eq!((cqe.opcode, cqe.syndrome, cqe.length), (0, 0, size));
                    true
                })));
                assert_eq!(number(&pair.sides[0], to, size as usize), 3 * round);
            }
            // The lowest byte becomes 1 if the second lowest is 0.
            let [own, _] = &mut pair.sides;
            own.post(&masked(own, key, (size, at, to), &[1, 0, 0xff, 0xff00]));
            assert!(pair.run(1000, |pair| pair.sides[0].poll(0).is_some()));
            assert_eq!(number(&pair.sides[0], to, size as usize), 60);
            assert_eq!(number(&pair.sides[1], at, size as usize), 1);
        }
        // What lies beside the four bytes stayed.
        assert_eq!(pair.sides[1].get(4, 60), [0; 60]);
    }
}

#[test]
fn atomics_that_may_not_be_are_refused() {
    let cases: [Spoiled<'_>; 5] = [
        // Not a multiple of the size.
        (&|post| post.address[7] |= 8, INVALID_REQUEST),
        (&|post| post.address[8] ^= 1, REMOTE_ACCESS),
        (&|post| post.modifier = 0, LOCAL_QP_OPERATION),
        (&|post| post.modifier = 12, LOCAL_QP_OPERATION),
        (&|post| post.data[0].1 = 8, LOCAL_LENGTH),
    ];
    for (spoil, syndrome) in cases {
        let mut pair = Pair::new(Setup::default());
        let key = pair.sides[1].key;
        let [own, _] = &mut pair.sides;
        let mut post = masked(own, key, (16, 0, 0), &[1, 0]);
        spoil(&mut post);
        own.post(&post);
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), [(0, syndrome)]);
        assert_eq!(pair.sides[1].get(0, 16), [0; 16]);
    }
    // A queue pair whose peer may do no atomics, and one that never can.
    let no = Setup { access: [true, true, false], ..Setup::default() };
    let mut pair = Pair::new(no);
    let key = pair.sides[1].key;
    let [own, _] = &mut pair.sides;
    own.post(&masked(own, key, (8, 0, 0), &[1, 0]));
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [(0, INVALID_REQUEST)]);
    let mut pair = Pair::new(Setup { service: Service::Uc, ..Setup::default() });
    let key = pair.sides[1].key;
    let [own, _] = &mut pair.sides;
    own.post(&masked(own, key, (8, 0, 0), &[1, 0]));
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [(0, LOCAL_QP_OPERATION)]);
}

#[test]
fn a_long_copy_takes_turns() {
    let mut pair = Pair::new(Setup::default());
    let [own, _] = &mut pair.sides;
    // From and to the key of no memory.
    let mut post = copy(own, 0, 0, 1 << 30);
    for segment in [16, 32] {
        post.address[segment + 4..segment + 8].copy_from_slice(&0x300u32.to_be_bytes());
    }
    own.post(&post);
    let card = &mut own.rig.card;
    assert!(card.pump());
    assert!(!card.settle(), "1 GiB was copied at once");
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [(0, 0)]);
}

fn segment(at: u64, length: u32, key: u32) -> Vec<u8> {
    [&length.to_be_bytes()[..], &key.to_be_bytes(), &Side::address(at).to_be_bytes()].concat()
}

/// A copy by the card, with its notes at the end of the region.
pub fn copy(own: &Side, from: u64, to: u64, length: u32) -> Post {
    let mut post = Post::new(0x2f);
    post.modifier = 1;
    post.address = [
        segment(super::side::REGION as u64 - 64, 0, own.key),
        segment(from, length, own.key),
        segment(to, length, own.key),
    ]
    .concat();
    post
}

#[test]
fn the_card_copies_in_the_order_it_was_told() {
    let mut pair = Pair::new(Setup::default());
    let [own, peer] = &mut pair.sides;
    let bytes: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
    own.put(0, &bytes);
    peer.put(0, b"fetched");
    own.post(&copy(own, 0, 200_000, 100_000));
    // A fence holds the copy back until what it copies has come.
    let mut read = Post::new(0x10);
    read.data = vec![(300, 7, own.key)];
    read.remote = (Side::address(0), peer.key);
    own.post(&read);
    let mut then = copy(own, 300, 400_000, 7);
    then.fence = 4;
    own.post(&then);
    pair.settle();
    let [own, _] = &mut pair.sides;
    assert_eq!(own.outcomes(0), [(0, 0), (1, 0), (2, 0)]);
    assert_eq!(own.get(200_000, 100_000), bytes);
    assert_eq!(own.get(400_000, 7), b"fetched");
}

#[test]
fn a_device_of_a_profile_without_copies_makes_none() {
    for profile in Profile::ALL {
        let mut pair = Pair::new(Setup::default());
        let [own, _] = &mut pair.sides;
        own.rig.card.identity.profile = profile;
        own.put(0, &[7; 64]);
        own.post(&copy(own, 0, 4096, 64));
        pair.settle();
        let copies = profile.has(Feature::DmaCopy);
        let syndrome = if copies { 0 } else { LOCAL_QP_OPERATION };
        assert_eq!(pair.sides[0].outcomes(0), [(0, syndrome)], "{profile:?}");
        assert_eq!(pair.sides[0].get(4096, 64), [if copies { 7 } else { 0 }; 64], "{profile:?}");
    }
}

#[test]
fn copies_to_where_they_may_not_fail() {
    let cases: [Spoiled<'_>; 5] = [
        (&|post| post.address[16 + 7] ^= 1, LOCAL_PROTECTION),
        (&|post| post.address[32 + 7] ^= 1, LOCAL_PROTECTION),
        // Notes without a key.
        (&|post| post.address[7] ^= 1, LOCAL_PROTECTION),
        (&|post| post.address[16 + 3] ^= 1, LOCAL_LENGTH),
        (&|post| post.modifier = 2, LOCAL_QP_OPERATION),
    ];
    for (spoil, syndrome) in cases {
        let mut pair = Pair::new(Setup::default());
        let [own, _] = &mut pair.sides;
        own.put(0, &[7; 64]);
        let mut post = copy(own, 0, 4096, 64);
        spoil(&mut post);
        own.post(&post);
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), [(0, syndrome)]);
        assert_eq!(pair.sides[0].get(4096, 64), [0; 64]);
    }
}

/// Makes the side's queue pair one that steers others.
fn master(side: &mut Side) -> u32 {
    let qp = side.rig.card.objects.qps.get_mut(&side.qp).unwrap();
    qpc::CD_MASTER.set(&mut qp.context[..], 1);
    qp.get(qpc::CQN_RCV)
}

/// A request that waits until a CQ has so many completions.
pub fn wait(queue: u32, index: u32) -> Post {
    let mut post = Post::new(0x0f);
    post.address = [&[0; 8][..], &index.to_be_bytes(), &queue.to_be_bytes()].concat();
    post
}

#[test]
fn a_request_waits_for_completions_of_another_queue() {
    for service in [Service::Rc, Service::Uc] {
        let mut pair = Pair::new(Setup { service, ..Setup::default() });
        let cq = master(&mut pair.sides[0]);
        let [own, peer] = &mut pair.sides;
        for _ in 0..2 {
            own.receive(&[(0, 64, own.key)]);
        }
        peer.receive(&[(0, 64, peer.key)]);
        // Sent on when two messages have come.
        own.post(&wait(cq, 2));
        let mut answer = Post::new(0x0a);
        answer.data = vec![(0, 8, own.key)];
        own.post(&answer);
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), []);
        for (round, waited) in [(1u8, true), (2, false)] {
            let [_, peer] = &mut pair.sides;
            peer.put(4096, &[round; 8]);
            let mut send = Post::new(0x0a);
            send.data = vec![(4096, 8, peer.key)];
            peer.post(&send);
            pair.settle();
            assert_eq!(pair.sides[0].outcomes(0).is_empty(), waited, "{service:?} {round}");
        }
        assert_eq!(pair.sides[1].get(0, 8), [2; 8]);
        assert_eq!(pair.sides[1].outcomes(1), [(0, 0)]);
    }
}

#[test]
fn only_queues_made_for_it_wait_and_only_for_what_is_there() {
    let mut pair = Pair::new(Setup::default());
    let [own, _] = &mut pair.sides;
    own.post(&wait(1, 0));
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [(0, LOCAL_QP_OPERATION)]);
    for opcode in [0x0f, 0x17] {
        let mut pair = Pair::new(Setup::default());
        master(&mut pair.sides[0]);
        let mut post = wait(0xff_fff0, 0);
        post.opcode = opcode;
        pair.sides[0].post(&post);
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), [(0, LOCAL_QP_OPERATION)]);
        assert_eq!(pair.sides[0].state(), State::Error);
    }
}
