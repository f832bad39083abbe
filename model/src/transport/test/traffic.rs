//! Tests of every operation, whatever the wire does.

use super::side::{Post, REGION, Side};
use super::{Pair, Setup};
use crate::card::Link;
use crate::clock::Random;
use crate::transport::QueuePair;

const WRITE: u8 = 0x08;
const WRITE_IMMEDIATE: u8 = 0x09;
const SEND: u8 = 0x0a;
const SEND_IMMEDIATE: u8 = 0x0b;
const READ: u8 = 0x10;
const CAS: u8 = 0x11;
const FAA: u8 = 0x12;
/// CQE opcodes.
const CQE_WRITE_IMMEDIATE: u8 = 1;
const CQE_SEND: u8 = 2;
const CQE_SEND_IMMEDIATE: u8 = 3;

pub fn noise(random: &mut Random, length: usize) -> Vec<u8> {
    (0..length).map(|_| random.draw() as u8).collect()
}

fn sizes(mtu: u32) -> Vec<u32> {
    let m = mtu;
    vec![0, 1, 3, 4, m - 1, m, m + 1, 2 * m - 1, 2 * m, 2 * m + 1, 7 * m + 5, 130 * m, 150 * m + 1]
        .into_iter()
        .filter(|size| *size <= 200 << 10)
        .collect()
}

/// Moves one message with each operation and each size, one at a time.
fn one_by_one(setup: Setup) {
    let mut pair = Pair::new(setup);
    let mut random = Random::seeded(setup.mtu.into());
    for size in sizes(setup.mtu) {
        for opcode in [WRITE, WRITE_IMMEDIATE, SEND, SEND_IMMEDIATE, READ] {
            let [own, peer] = &mut pair.sides;
            let bytes = noise(&mut random, size as usize);
            let (from, to) = (7, 300 << 10);
            if opcode == READ {
                peer.put(from, &bytes);
            } else {
                own.put(from, &bytes);
            }
            let receiver = if opcode == READ { &mut *own } else { &mut *peer };
            receiver.put(to, &vec![0xee; size as usize + 8]);
            let mut post = Post::new(opcode);
            post.immediate = 0x0102_0304;
            let split = size / 3;
            post.data = match (opcode, size) {
                (_, 0) => vec![],
                (READ, _) => {
                    let rest = u64::from(split) + to;
                    vec![
                        (to, split.max(1), own.key),
                        (rest.max(to + 1), size - split.max(1), own.key),
                    ]
                }
                _ => vec![
                    (from, split.max(1), own.key),
                    (from + u64::from(split.max(1)), size - split.max(1), own.key),
                ],
            };
            // A byte count of zero stands for 2 GiB.
            post.data.retain(|piece| piece.1 != 0);
            post.remote = match opcode {
                READ => (Side::address(from), peer.key),
                _ => (Side::address(to), peer.key),
            };
            if matches!(opcode, SEND | SEND_IMMEDIATE | WRITE_IMMEDIATE) {
                let list = [(to, size + 1, peer.key)];
                peer.receive(&list[..usize::from(opcode != WRITE_IMMEDIATE)]);
            }
            let index = own.post(&post);
            pair.settle();
            let [own, peer] = &mut pair.sides;
            let sent = own.poll(0).unwrap_or_else(|| panic!("{opcode:#x} of {size} did not end"));
            assert_eq!((sent.opcode, sent.syndrome, sent.wqe), (0, 0, index), "{opcode:#x} {size}");
            let receiver = if opcode == READ { &*own } else { &*peer };
            assert_eq!(receiver.get(to, size as usize), bytes, "{opcode:#x} of {size}");
            assert_eq!(receiver.get(to + u64::from(size), 8), [0xee; 8]);
            let received = peer.poll(1);
            let expected = match opcode {
                SEND => Some((CQE_SEND, [0; 4])),
                SEND_IMMEDIATE => Some((CQE_SEND_IMMEDIATE, [1, 2, 3, 4])),
                WRITE_IMMEDIATE => Some((CQE_WRITE_IMMEDIATE, [1, 2, 3, 4])),
                _ => None,
            };
            let got = received.as_ref().map(|cqe| (cqe.opcode, cqe.immediate));
            assert_eq!(got, expected, "{opcode:#x} of {size}");
            if let Some(cqe) = received {
                assert_eq!(cqe.length, size);
            }
            assert_eq!((own.poll(0), peer.poll(1)), (None, None));
        }
    }
}

#[test]
fn each_operation_moves_each_size() {
    for mtu in [256, 512, 1024, 2048, 4096] {
        one_by_one(Setup { mtu, ..Setup::default() });
    }
}

#[test]
fn each_operation_moves_each_size_on_other_routes() {
    one_by_one(Setup { grh: true, ..Setup::default() });
    one_by_one(Setup { link: Link::Roce, ..Setup::default() });
}

#[test]
fn each_operation_moves_each_size_from_a_shared_queue() {
    one_by_one(Setup { shared_receive: true, ..Setup::default() });
    one_by_one(Setup { shared_receive: true, mtu: 256, ..Setup::default() });
}

#[test]
fn each_operation_moves_each_size_where_psns_wrap() {
    one_by_one(Setup { psn: [0xff_fffe, 0xff_fff0], mtu: 256, ..Setup::default() });
}

#[test]
fn a_message_fills_no_more_memory_than_the_window() {
    let mut pair = Pair::new(Setup { mtu: 256, ..Setup::default() });
    let [own, peer] = &mut pair.sides;
    let mut post = Post::new(WRITE);
    post.data = vec![(0, REGION as u32 / 2, own.key)];
    post.remote = (Side::address(0), peer.key);
    own.post(&post);
    let mut made = 0;
    while own.rig.card.pump() && made < 2000 {
        made += own.rig.card.outbox.len();
        own.rig.card.outbox.clear();
    }
    assert_eq!(made, 128, "packets without an acknowledge");

    let mut pair = Pair::new(Setup { mtu: 256, ..Setup::default() });
    let [own, peer] = &mut pair.sides;
    let mut post = Post::new(READ);
    post.data = vec![(0, REGION as u32 / 2, own.key)];
    post.remote = (Side::address(0), peer.key);
    own.post(&post);
    own.rig.card.pump();
    let request = own.rig.card.outbox.pop_front().expect("a request");
    peer.rig.card.receive(&request);
    peer.rig.card.pump();
    assert!(peer.rig.card.outbox.len() < 128, "{} packets", peer.rig.card.outbox.len());
}

#[test]
fn small_payloads_go_into_cqes_where_the_queue_says_so() {
    let mut pair = Pair::new(Setup { scatter_to_cqe: true, ..Setup::default() });
    let [own, peer] = &mut pair.sides;
    own.put(0, b"in the CQE itself");
    peer.put(4096, b"so is an answer");
    peer.receive(&[(100, 64, peer.key)]);
    let mut post = Post::new(SEND);
    post.data = vec![(0, 17, own.key)];
    own.post(&post);
    let mut post = Post::new(READ);
    post.data = vec![(200, 15, own.key)];
    post.remote = (Side::address(4096), peer.key);
    own.post(&post);
    pair.settle();
    let [own, peer] = &mut pair.sides;
    assert_eq!(peer.poll(1).unwrap().inline.as_deref(), Some(&b"in the CQE itself"[..]));
    assert_eq!(own.poll(0).unwrap().inline, None);
    assert_eq!(own.poll(0).unwrap().inline.as_deref(), Some(&b"so is an answer"[..]));
    assert_eq!(peer.get(100, 17), [0; 17]);
    assert_eq!(own.get(200, 15), [0; 15]);
}

#[test]
fn inline_payloads_and_solicited_events_arrive() {
    let mut pair = Pair::new(Setup::default());
    let [own, peer] = &mut pair.sides;
    peer.receive(&[(0, 64, peer.key)]);
    let mut post = Post::new(SEND);
    post.inline = Some(b"forty bytes that lie inside the request.".to_vec());
    post.solicited = true;
    own.post(&post);
    pair.settle();
    let [_, peer] = &mut pair.sides;
    let cqe = peer.poll(1).unwrap();
    assert!(cqe.solicited);
    assert_eq!(cqe.length, 40);
    assert_eq!(peer.get(0, 40), b"forty bytes that lie inside the request.");
}

#[test]
fn unsignaled_requests_complete_silently() {
    let mut pair = Pair::new(Setup::default());
    let [own, peer] = &mut pair.sides;
    for number in 0..10 {
        let mut post = Post::new(WRITE);
        post.signaled = number % 5 == 4;
        post.data = vec![(0, 8, own.key)];
        post.remote = (Side::address(number * 8), peer.key);
        own.post(&post);
    }
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [(4, 0), (9, 0)]);
}

/// Applies the effects of random requests to plain memory, for comparison.
struct Oracle {
    memory: [Vec<u8>; 2],
}

/// Random requests of both sides over a wire with accidents, against plain memory.
///
/// Requests are kept apart by where they go: each has a slot of its own for what it changes, but
/// atomics share a word so that one done twice would show.
fn random_traffic(seed: u64, rate: u64, setup: Setup) {
    let mut random = Random::seeded(seed);
    let mut pair = Pair::lossy(setup, seed, rate);
    // Areas of each region: [0, 128K) holds sources, which never change. [128K, 256K) holds targets
    // of SENDs. [256K, 384K) holds targets of WRITEs, and the results of READs and of atomics
    // follow. The last word is a counter.
    let (sends, writes, counter) = (128u64 << 10, 256u64 << 10, REGION as u64 - 8);
    let (reads, atomics) = (384u64 << 10, 480u64 << 10);
    let mut oracle = Oracle { memory: [vec![0; REGION], vec![0; REGION]] };
    for (side, memory) in pair.sides.iter().zip(&mut oracle.memory) {
        let bytes = noise(&mut random, 128 << 10);
        side.put(0, &bytes);
        memory[..bytes.len()].copy_from_slice(&bytes);
    }
    let slot = 4096u64;
    let mut expected_receives: [Vec<(u8, u32, [u8; 4])>; 2] = [vec![], vec![]];
    let mut expected_sends: [Vec<u16>; 2] = [vec![], vec![]];
    let mut got_sends: [Vec<u16>; 2] = [vec![], vec![]];
    let mut got_receives: [Vec<(u8, u32, [u8; 4])>; 2] = [vec![], vec![]];
    let mut counts = [0u64; 2];
    for round in 0..8u64 {
        for (own, peer) in [(0, 1), (1, 0)] {
            let requests = 1 + random.draw() % 4;
            for number in 0..requests {
                let place = (round * 4 + number) % 32 * slot;
                let length = match random.draw() % 3 {
                    0 => random.draw() % 64,
                    1 => u64::from(setup.mtu) + random.draw() % 3 - 1,
                    _ => random.draw() % slot,
                }
                .min(slot) as u32;
                let from = random.draw() % (100 << 10);
                let source = from as usize..from as usize + length as usize;
                let opcode = [WRITE, WRITE_IMMEDIATE, SEND, SEND_IMMEDIATE, READ, CAS, FAA]
                    [random.draw() as usize % 7];
                let key = pair.sides[own].key;
                let mut post = Post::new(opcode);
                post.immediate = random.draw() as u32;
                post.signaled = random.draw() % 3 != 0;
                post.fence = if random.draw() % 4 == 0 { 4 } else { 0 };
                post.data = vec![(from, length, key)];
                post.remote = (Side::address(writes + place), pair.sides[peer].key);
                let mut receive = None;
                match opcode {
                    WRITE | WRITE_IMMEDIATE => {
                        let bytes = oracle.memory[own][source].to_vec();
                        let to = (writes + place) as usize;
                        oracle.memory[peer][to..to + bytes.len()].copy_from_slice(&bytes);
                        if opcode == WRITE_IMMEDIATE {
                            receive = Some((CQE_WRITE_IMMEDIATE, vec![]));
                        }
                    }
                    SEND | SEND_IMMEDIATE => {
                        let bytes = oracle.memory[own][source].to_vec();
                        let to = (sends + place) as usize;
                        oracle.memory[peer][to..to + bytes.len()].copy_from_slice(&bytes);
                        let code = if opcode == SEND { CQE_SEND } else { CQE_SEND_IMMEDIATE };
                        receive =
                            Some((code, vec![(sends + place, slot as u32, pair.sides[peer].key)]));
                    }
                    READ => {
                        // Into this side's own area of results, from the peer's sources.
                        let bytes = oracle.memory[peer][source].to_vec();
                        let to = reads + place % (64 << 10);
                        post.data = vec![(to, length, key)];
                        post.remote = (Side::address(from), pair.sides[peer].key);
                        let to = to as usize;
                        oracle.memory[own][to..to + bytes.len()].copy_from_slice(&bytes);
                    }
                    _ => {
                        let to = atomics + round * 64 + number * 8;
                        post.data = vec![(to, 8, key)];
                        post.remote = (Side::address(counter), pair.sides[peer].key);
                        let before = counts[peer];
                        if opcode == FAA {
                            post.operands = (random.draw() % 1000, 0);
                            counts[peer] = before.wrapping_add(post.operands.0);
                        } else {
                            // Half of them find what they compare with.
                            let compare = before + random.draw() % 2;
                            post.operands = (random.draw() >> 8, compare);
                            if compare == before {
                                counts[peer] = post.operands.0;
                            }
                        }
                        let to = to as usize;
                        oracle.memory[own][to..to + 8].copy_from_slice(&before.to_le_bytes());
                    }
                }
                post.data.retain(|piece| piece.1 != 0);
                if let Some((code, list)) = receive {
                    pair.sides[peer].receive(&list);
                    let immediate =
                        if code == CQE_SEND { [0; 4] } else { post.immediate.to_be_bytes() };
                    expected_receives[peer].push((code, length, immediate));
                }
                let index = pair.sides[own].post(&post);
                if post.signaled {
                    expected_sends[own].push(index);
                }
            }
        }
        let done = |pair: &mut Pair| {
            for side in 0..2 {
                for cqe in pair.sides[side].drain(0) {
                    assert_eq!(cqe.syndrome, 0, "seed {seed}");
                    got_sends[side].push(cqe.wqe);
                }
                for cqe in pair.sides[side].drain(1) {
                    assert_eq!(cqe.syndrome, 0, "seed {seed}");
                    got_receives[side].push((cqe.opcode, cqe.length, cqe.immediate));
                }
            }
            pair.sides
                .iter()
                .all(|side| QueuePair::of(&side.rig.card.objects.qps[&side.qp]).unwrap().is_idle())
        };
        assert!(pair.run(4000, done), "seed {seed}: round {round} does not end");
    }
    assert_eq!(got_sends, expected_sends, "seed {seed}");
    assert_eq!(got_receives, expected_receives, "seed {seed}");
    for ((side, memory), count) in pair.sides.iter().zip(&mut oracle.memory).zip(counts) {
        memory[counter as usize..].copy_from_slice(&count.to_le_bytes());
        let bytes = side.get(0, REGION);
        let wrong = bytes.iter().zip(&*memory).position(|(got, want)| got != want);
        assert_eq!(wrong, None, "seed {seed}: side {} differs", side.qp);
    }
}

#[test]
fn random_requests_do_what_they_should_on_a_good_wire() {
    for seed in 0..30 {
        random_traffic(seed, 0, Setup { mtu: 512, ..Setup::default() });
    }
}

#[test]
fn random_requests_do_what_they_should_on_a_bad_wire() {
    for seed in 0..60 {
        let mtu = [256, 512, 1024][seed as usize % 3];
        let psn = [0xff_ffff - seed as u32 % 50, seed as u32];
        let shared_receive = seed % 2 == 1;
        random_traffic(seed, 20, Setup { mtu, psn, shared_receive, ..Setup::default() });
    }
}

#[test]
fn random_requests_do_what_they_should_on_a_terrible_wire() {
    for seed in 100..120 {
        let psn = [0xff_fff0, 0];
        random_traffic(seed, 60, Setup { mtu: 1024, psn, depth: 1, ..Setup::default() });
    }
}
