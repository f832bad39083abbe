//! Tests of unreliable connections, and of what they share with datagrams: arrival, loss, failure.

use super::datagram::{datagram, datagrams};
use super::side::{Post, REGION, Side};
use super::traffic::noise;
use super::{Pair, Setup};
use crate::card::Link;
use crate::clock::Random;
use crate::object::{Service, State};
use crate::wire::{Header, Opcode, Reth};

const WRITE: u8 = 0x08;
const WRITE_IMMEDIATE: u8 = 0x09;
const SEND: u8 = 0x0a;
const SEND_IMMEDIATE: u8 = 0x0b;
const READ: u8 = 0x10;
const FAA: u8 = 0x12;
/// CQE opcodes.
const CQE_WRITE_IMMEDIATE: u8 = 1;
const CQE_SEND: u8 = 2;
const CQE_SEND_IMMEDIATE: u8 = 3;

const LOCAL_LENGTH: u8 = 0x01;
const LOCAL_OPERATION: u8 = 0x02;
const FLUSHED: u8 = 0x05;

const ESTABLISHED: u8 = 0x02;

/// Offset in the region that receives scatter to.
const TO: u64 = 256 << 10;

fn connection() -> Setup {
    Setup { service: Service::Uc, ..Setup::default() }
}

#[test]
fn a_connection_moves_each_size() {
    for setup in [
        connection(),
        Setup { mtu: 256, ..connection() },
        Setup { shared_receive: true, ..connection() },
        Setup { mtu: 4096, grh: true, ..connection() },
        Setup { link: Link::Roce, scatter_to_cqe: true, ..connection() },
    ] {
        let mut pair = Pair::new(setup);
        let mut random = Random::seeded(setup.mtu.into());
        let m = setup.mtu;
        for size in [0, 1, 32, 33, m - 1, m, m + 1, 2 * m, 2 * m + 1, 40 * m + 5] {
            for opcode in [WRITE, WRITE_IMMEDIATE, SEND, SEND_IMMEDIATE] {
                let [own, peer] = &mut pair.sides;
                let bytes = noise(&mut random, size as usize);
                own.put(0, &bytes);
                peer.put(TO, &vec![0xee; size as usize + 8]);
                let mut post = Post::new(opcode);
                post.immediate = 0x0102_0304;
                post.data = vec![(0, size, own.key)];
                post.data.retain(|piece| piece.1 != 0);
                post.remote = (Side::address(TO), peer.key);
                if opcode != WRITE {
                    peer.receive(&[(TO, size + 1, peer.key)]);
                }
                let index = own.post(&post);
                pair.settle();
                let [own, peer] = &mut pair.sides;
                assert_eq!(own.outcomes(0), [(index, 0)], "{opcode:#x} of {size}");
                let received = peer.poll(1);
                let expected = match opcode {
                    SEND => Some((CQE_SEND, 0)),
                    SEND_IMMEDIATE => Some((CQE_SEND_IMMEDIATE, 0x0102_0304)),
                    WRITE_IMMEDIATE => Some((CQE_WRITE_IMMEDIATE, 0x0102_0304)),
                    _ => None,
                };
                let seen = |cqe: &super::side::Cqe| (cqe.opcode, u32::from_be_bytes(cqe.immediate));
                assert_eq!(received.as_ref().map(seen), expected, "{opcode:#x} of {size}");
                let inline = received.and_then(|cqe| {
                    assert_eq!(cqe.length, size);
                    cqe.inline
                });
                match inline {
                    Some(inline) => assert_eq!(inline, bytes),
                    None => assert_eq!(peer.get(TO, size as usize), bytes),
                }
                assert_eq!(peer.get(TO + u64::from(size), 8), [0xee; 8]);
            }
        }
        assert_eq!(pair.sides[0].rig.card.deadline(), None, "nothing is waited for");
    }
}

/// Loses one packet of each message in turn; what is whole arrives, what is not does not, and the
/// receive of a message that was dropped takes the next one.
#[test]
fn a_message_that_loses_a_packet_is_dropped_whole() {
    for opcode in [SEND, WRITE_IMMEDIATE] {
        for lost in 0..4u32 {
            let mut pair = Pair::new(connection());
            let [own, peer] = &mut pair.sides;
            let bytes = noise(&mut Random::seeded(7), 4 * 1024);
            own.put(0, &bytes);
            let receive = peer.receive(&[(TO, 8192, peer.key)]);
            let mut post = Post::new(opcode);
            post.data = vec![(0, 4096, own.key)];
            post.remote = (Side::address(TO), peer.key);
            let mut sent = 0;
            pair.drop = Box::new(move |_, _| {
                sent += 1;
                sent == lost + 1
            });
            let first = pair.sides[0].post(&post);
            pair.settle();
            let [own, peer] = &mut pair.sides;
            assert_eq!(own.outcomes(0), [(first, 0)], "nobody says what was lost");
            assert_eq!(peer.outcomes(1), []);
            // Its neighbour is whole.
            let next = own.post(&post);
            pair.settle();
            let [own, peer] = &mut pair.sides;
            assert_eq!(own.outcomes(0), [(next, 0)]);
            assert_eq!(peer.outcomes(1), [(receive, 0)], "packet {lost} of {opcode:#x}");
            assert_eq!(peer.get(TO, 4096), bytes);
        }
    }
}

#[test]
fn on_a_bad_wire_only_whole_messages_arrive() {
    for seed in 0..20 {
        let setup = Setup { mtu: 256, ..connection() };
        let mut pair = Pair::lossy(setup, seed, 60);
        let mut random = Random::seeded(seed);
        let mut arrived = 0;
        for round in 0..60u8 {
            let [own, peer] = &mut pair.sides;
            let length = random.draw() as usize % 2000 + 1;
            own.put(0, &vec![round; length]);
            if round < 30 {
                peer.receive(&[(TO + u64::from(round) * 2048, 2048, peer.key)]);
            }
            own.send(length as u32);
            pair.settle();
            let [own, peer] = &mut pair.sides;
            assert_eq!(own.drain(0).len(), 1, "seed {seed}");
            for cqe in peer.drain(1) {
                assert_eq!(cqe.syndrome, 0);
                let at = TO + u64::from(cqe.wqe) * 2048;
                let got = peer.get(at, cqe.length as usize);
                assert!(got.iter().all(|byte| *byte == got[0]), "seed {seed}: two messages in one");
                arrived += 1;
            }
        }
        assert!(arrived > 5, "seed {seed}: {arrived}");
    }
}

#[test]
fn a_connection_has_no_answers_to_wait_for() {
    for (opcode, length) in [(READ, 8), (FAA, 8)] {
        let mut pair = Pair::new(connection());
        let [own, peer] = &mut pair.sides;
        let mut post = Post::new(opcode);
        post.data = vec![(0, length, own.key)];
        post.remote = (Side::address(0), peer.key);
        let index = own.post(&post);
        let next = own.write_to(0, 8, peer.key);
        pair.settle();
        let own = &mut pair.sides[0];
        assert_eq!(own.outcomes(0), [(index, LOCAL_OPERATION), (next, FLUSHED)]);
        assert_eq!(own.state(), State::SqError);
    }
}

#[test]
fn what_the_peer_does_not_grant_is_lost_in_silence() {
    let refused = Setup { access: [true, false, true], ..connection() };
    let mut pair = Pair::of([connection(), refused], 0, 0);
    let [own, peer] = &mut pair.sides;
    own.put(0, b"unwanted");
    let index = own.write_to(TO, 8, peer.key);
    pair.settle();
    let [own, peer] = &mut pair.sides;
    assert_eq!(own.outcomes(0), [(index, 0)]);
    assert_eq!((peer.state(), peer.get(TO, 8)), (State::Rts, vec![0; 8]));

    let mut pair = Pair::new(connection());
    let [own, peer] = &mut pair.sides;
    own.put(0, b"unwanted");
    // A key that does not exist, an address beyond the region, and a SEND without a receive.
    let keys = [
        own.write_to(TO, 8, peer.key ^ 1),
        own.write_to(REGION as u64 - 4, 8, peer.key),
        own.send(8),
    ];
    pair.settle();
    let [own, peer] = &mut pair.sides;
    assert_eq!(own.outcomes(0), keys.map(|index| (index, 0)));
    assert_eq!((peer.state(), peer.outcomes(1)), (State::Rts, vec![]));
    // The connection goes on.
    let receive = peer.receive(&[(TO, 8, peer.key)]);
    own.send(8);
    pair.settle();
    let peer = &mut pair.sides[1];
    assert_eq!(peer.outcomes(1), [(receive, 0)]);
    assert_eq!(peer.get(TO, 8), b"unwanted");
}

#[test]
fn a_receive_that_is_too_small_fails_its_queue_pair() {
    for setup in [connection(), datagrams()] {
        let mut pair = Pair::new(setup);
        let mut post = datagram(&pair, setup, 30);
        if setup.service == Service::Uc {
            post.address.clear();
        }
        let [own, peer] = &mut pair.sides;
        let small = peer.receive(&[(TO, 29, peer.key)]);
        let next = peer.receive(&[(TO, 100, peer.key)]);
        let index = own.post(&post);
        pair.settle();
        let [own, peer] = &mut pair.sides;
        assert_eq!(own.outcomes(0), [(index, 0)]);
        assert_eq!(peer.outcomes(1), [(small, LOCAL_LENGTH), (next, FLUSHED)]);
        assert_eq!((own.state(), peer.state()), (State::Rts, State::Error));
        // A receive that is posted later is flushed as well.
        let late = peer.receive(&[(TO, 100, peer.key)]);
        assert!(pair.run(8, |pair| pair.sides[1].outcomes(1) == [(late, FLUSHED)]));
    }
}

#[test]
fn a_queue_pair_that_only_receives_announces_its_first_packet() {
    let mut pair = Pair::new(connection());
    let peer = &mut pair.sides[1];
    peer.rig.card.objects.qps.get_mut(&peer.qp).unwrap().state = State::Rtr;
    let [own, peer] = &mut pair.sides;
    own.write_to(0, 8, peer.key);
    own.write_to(0, 8, peer.key);
    pair.settle();
    assert_eq!(pair.sides[1].take_events(), [ESTABLISHED]);
}

#[test]
fn services_do_not_mix() {
    let setups = [connection(), Setup::default()];
    let mut pair = Pair::of(setups, 0, 0);
    let [own, peer] = &mut pair.sides;
    peer.receive(&[(TO, 100, peer.key)]);
    own.put(0, b"nothing!");
    own.write_to(TO, 8, peer.key);
    own.send(8);
    pair.settle();
    let peer = &mut pair.sides[1];
    assert_eq!((peer.outcomes(1), peer.get(TO, 8)), (vec![], vec![0; 8]));
    assert_eq!(peer.state(), State::Rts);
}

#[test]
fn breaking_off_flushes_both_queues() {
    for setup in [connection(), datagrams()] {
        let mut pair = Pair::new(setup);
        let own = &mut pair.sides[0];
        let receives = [own.receive(&[(TO, 4096, own.key)]), own.receive(&[(TO, 4096, own.key)])];
        // A first packet is there, the rest never comes.
        if setup.service == Service::Uc {
            let mut sent = 0;
            pair.drop = Box::new(move |_, _| {
                sent += 1;
                sent > 1
            });
            let peer = &mut pair.sides[1];
            peer.send(3000);
            pair.settle();
        }
        let own = &mut pair.sides[0];
        own.break_off();
        let sent = own.send(8);
        pair.settle();
        let own = &mut pair.sides[0];
        assert_eq!(own.outcomes(0), [(sent, FLUSHED)]);
        assert_eq!(own.outcomes(1), receives.map(|index| (index, FLUSHED)));
        own.reset();
        assert_eq!(own.state(), State::Reset);
    }
}

/// Any packet that names a queue pair leaves the card standing, and touches no more receives than
/// are posted.
#[test]
fn random_packets_are_survived() {
    let mut random = Random::seeded(11);
    for seed in 0..200 {
        let setup = if seed % 2 == 0 { connection() } else { datagrams() };
        let setup = Setup { mtu: 256, ..setup };
        let mut pair = Pair::new(setup);
        let mut post = datagram(&pair, setup, 8);
        if setup.service == Service::Uc {
            post.address.clear();
        }
        let [own, peer] = &mut pair.sides;
        for _ in 0..4 {
            peer.receive(&[(TO, 600, peer.key)]);
        }
        own.post(&post);
        own.rig.card.pump();
        let frame = own.rig.card.outbox.pop_front().expect("a packet");
        let (header, _) = Header::decode(setup.link, &frame.0).expect("a packet");
        for _ in 0..60 {
            let Some((service, opcode)) = Opcode::decode(random.draw() as u8) else { continue };
            let near = [0, 0, 0, 1, 2, 0xff_ffff][random.draw() as usize % 6];
            let word = random.draw();
            let made = Header {
                service: if word & 4 != 0 && opcode.is_of(setup.service) {
                    setup.service
                } else {
                    service
                },
                opcode,
                psn: (header.psn + near) & 0xff_ffff,
                reth: Some(Reth {
                    address: Side::address(word % 4096),
                    key: if word & 2 != 0 { peer.key } else { word as u32 },
                    length: [0, 8, 256, 600, 1 << 31, u32::MAX][random.draw() as usize % 6],
                }),
                immediate: Some([0; 4]),
                ..header
            };
            let length = [0, 1, 255, 256][random.draw() as usize % 4];
            let Ok(frame) = made.frame(length, |_| Ok::<_, std::convert::Infallible>(()));
            peer.rig.card.receive(&frame);
            peer.rig.card.pump();
            assert!(peer.rig.card.outbox.is_empty(), "nothing is answered");
            peer.rig.card.settle();
        }
        assert!(peer.outcomes(1).len() <= 4, "seed {seed}: four receives were posted");
    }
}
