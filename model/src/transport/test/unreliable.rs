//! Unreliable connections and datagrams: what arrives, what is lost, what fails.

use mlx5_sys::ifc::{opcode, qpc, rst2init_qp_in};

use super::side::{Post, REGION, Side};
use super::{Pair, Setup};
use crate::card::Link;
use crate::clock::Random;
use crate::object::{Service, State};
use crate::wire::mac;

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
const LOCAL_PROTECTION: u8 = 0x04;
const FLUSHED: u8 = 0x05;

const ESTABLISHED: u8 = 0x02;

const KEY: u32 = 0x1111_1111;
/// Where receives scatter to.
const TO: u64 = 256 << 10;
/// The room for the global route header.
const GRH: usize = 40;

fn connection() -> Setup {
    Setup { service: Service::Uc, ..Setup::default() }
}

fn datagrams() -> Setup {
    Setup { service: Service::Ud, q_key: KEY, ..Setup::default() }
}

fn noise(random: &mut Random, length: usize) -> Vec<u8> {
    (0..length).map(|_| random.draw() as u8).collect()
}

/// The address vector of a side, extended.
fn address(setup: Setup, to: &Side, q_key: u32) -> Vec<u8> {
    let identity = &to.rig.card.identity;
    let gid = identity.gids[0];
    let mut av = vec![0; 48];
    av[..4].copy_from_slice(&q_key.to_be_bytes());
    av[8..12].copy_from_slice(&(1 << 31 | to.qp).to_be_bytes());
    av[12] = if setup.link == Link::Roce { 3 << 1 } else { 3 };
    let lid = if setup.link == Link::Roce { 0xc123 } else { identity.lid };
    av[14..16].copy_from_slice(&lid.to_be_bytes());
    if setup.link == Link::Roce {
        av[20..26].copy_from_slice(&mac(&gid));
    }
    if setup.link == Link::Roce || setup.grh {
        (av[26], av[27]) = (0x20, 64);
        av[28..32].copy_from_slice(&(u32::from(setup.grh) << 30 | 0x1_2345).to_be_bytes());
        av[32..].copy_from_slice(&gid);
    }
    av
}

fn datagram(pair: &Pair, setup: Setup, length: u32) -> Post {
    let [own, peer] = &pair.sides;
    let mut post = Post::new(SEND);
    post.address = address(setup, peer, KEY);
    post.data = vec![(0, length, own.key)];
    post.data.retain(|piece| piece.1 != 0);
    post
}

#[test]
fn a_connection_moves_each_size() {
    for setup in [
        connection(),
        Setup { mtu: 256, ..connection() },
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
    // A key that is not one, beyond the region, and a SEND that nobody receives.
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
        // What is posted later is flushed as well.
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
fn datagrams_arrive_behind_the_room_for_their_header() {
    for setup in [
        datagrams(),
        Setup { grh: true, mtu: 4096, ..datagrams() },
        Setup { link: Link::Roce, ..datagrams() },
    ] {
        let mut pair = Pair::new(setup);
        let mut random = Random::seeded(5);
        for size in [0, 1, 2, 3, 4, 1000, setup.mtu] {
            for opcode in [SEND, SEND_IMMEDIATE] {
                let bytes = noise(&mut random, size as usize);
                let mut post = datagram(&pair, setup, size);
                (post.opcode, post.immediate, post.solicited) = (opcode, 0xfeed, true);
                let [own, peer] = &mut pair.sides;
                own.put(0, &bytes);
                let length = size as usize + GRH;
                peer.put(TO, &vec![0xee; length + 8]);
                // The room and the payload may be in pieces.
                let receive =
                    peer.receive(&[(TO, 37, peer.key), (TO + 37, length as u32 - 37, peer.key)]);
                let index = own.post(&post);
                pair.settle();
                let [own, peer] = &mut pair.sides;
                assert_eq!(own.outcomes(0), [(index, 0)]);
                let cqe = peer.poll(1).expect("received");
                let kind = if opcode == SEND { CQE_SEND } else { CQE_SEND_IMMEDIATE };
                assert_eq!((cqe.opcode, cqe.wqe, cqe.syndrome), (kind, receive, 0));
                assert_eq!(cqe.length as usize, length);
                assert!(cqe.solicited);
                let immediate = if opcode == SEND { 0 } else { 0xfeed };
                assert_eq!(cqe.immediate, u32::to_be_bytes(immediate));
                // Service level 3; on Ethernet the kind of header is in its place, 1 for IPv6.
                let source = match setup.link {
                    Link::InfiniBand => (7, u32::from(setup.grh) << 28 | 3 << 24 | own.qp),
                    Link::Roce => (0, 1 << 28 | 1 << 24 | own.qp),
                };
                assert_eq!(cqe.source, source);
                assert_eq!(peer.get(TO + GRH as u64, size as usize), bytes);
                assert_eq!(peer.get(TO + length as u64, 8), [0xee; 8]);
                let head = peer.get(TO, GRH);
                if setup.link == Link::InfiniBand && !setup.grh {
                    assert_eq!(head, [0xee; GRH], "no header came");
                } else {
                    let gid = |side: &Side| side.rig.card.identity.gids[0];
                    assert_eq!(head[..4], [0x62, 0x01, 0x23, 0x45]);
                    assert_eq!(head[7], 64);
                    assert_eq!(head[8..24], gid(own));
                    assert_eq!(head[24..], gid(peer));
                }
            }
        }
    }
}

#[test]
fn an_ipv4_header_is_at_the_end_of_its_room() {
    let setup = Setup { link: Link::Roce, ..datagrams() };
    let mut pair = Pair::new(setup);
    for (index, side) in pair.sides.iter_mut().enumerate() {
        let mut gid = [0; 16];
        gid[10..12].fill(0xff);
        gid[12..].copy_from_slice(&[10, 0, 0, 1 + index as u8]);
        side.rig.card.identity.gids[0] = gid;
    }
    let post = datagram(&pair, setup, 8);
    let [own, peer] = &mut pair.sides;
    own.put(0, b"by IPv4!");
    peer.receive(&[(TO, 100, peer.key)]);
    own.post(&post);
    pair.settle();
    let [own, peer] = &mut pair.sides;
    assert_eq!(peer.poll(1).expect("received").source, (0, 1 << 28 | 2 << 24 | own.qp));
    let head = peer.get(TO, GRH + 8);
    assert_eq!(head[20], 0x45);
    assert_eq!(head[32..40], [10, 0, 0, 1, 10, 0, 0, 2]);
    assert_eq!(head[40..], *b"by IPv4!");
}

#[test]
fn a_datagram_that_is_not_wanted_is_dropped() {
    let setup = datagrams();
    let mut pair = Pair::new(setup);
    let good = datagram(&pair, setup, 8);
    // Nothing is posted to receive it.
    let index = pair.sides[0].post(&good);
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [(index, 0)]);
    let key = pair.sides[1].key;
    let receive = pair.sides[1].receive(&[(TO, 100, key)]);
    // Another Q_Key, another LID, a queue pair that is not there.
    for (at, value) in [(3, 0x12), (15, 0x33), (11, 0x77)] {
        let mut post = good.clone();
        post.address[at] = value;
        let index = pair.sides[0].post(&post);
        pair.settle();
        let [own, peer] = &mut pair.sides;
        assert_eq!(own.outcomes(0), [(index, 0)]);
        assert_eq!((peer.outcomes(1), peer.state()), (vec![], State::Rts));
    }
    pair.sides[0].post(&good);
    pair.settle();
    assert_eq!(pair.sides[1].outcomes(1), [(receive, 0)]);

    // On Ethernet an address that is not the GID's reaches nobody.
    let setup = Setup { link: Link::Roce, ..datagrams() };
    let mut pair = Pair::new(setup);
    let mut post = datagram(&pair, setup, 8);
    post.address[22] ^= 1;
    let key = pair.sides[1].key;
    pair.sides[1].receive(&[(TO, 100, key)]);
    let index = pair.sides[0].post(&post);
    pair.settle();
    let [own, peer] = &mut pair.sides;
    assert_eq!((own.outcomes(0), peer.outcomes(1)), (vec![(index, 0)], vec![]));
}

#[test]
fn a_datagram_is_no_longer_than_its_port_takes() {
    let setup = Setup { link: Link::Roce, mtu: 4096, ..datagrams() };
    let mut pair = Pair::new(setup);
    for (length, syndrome) in [(1024, 0), (1025, LOCAL_LENGTH)] {
        let post = datagram(&pair, setup, length);
        let index = pair.sides[0].post(&post);
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), [(index, syndrome)]);
    }
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
fn a_queue_pair_sends_datagrams_to_itself_and_with_its_own_key() {
    let setup = datagrams();
    let mut pair = Pair::new(setup);
    let mut post = datagram(&pair, setup, 8);
    let own = &mut pair.sides[0];
    post.address = address(setup, own, 0x8000_0000);
    own.put(0, b"to self!");
    let receive = own.receive(&[(TO, 100, own.key)]);
    let index = own.post(&post);
    let card = &mut own.rig.card;
    card.pump();
    let frame = card.outbox.pop_front().expect("sent");
    card.receive(&frame);
    card.settle();
    assert_eq!(own.outcomes(0), [(index, 0)]);
    assert_eq!(own.outcomes(1), [(receive, 0)]);
    assert_eq!(own.get(TO + GRH as u64, 8), b"to self!");
}

#[test]
fn an_error_stops_sending_and_not_receiving() {
    let setup = datagrams();
    let mut pair = Pair::new(setup);
    let good = datagram(&pair, setup, 8);
    let mut keyless = good.clone();
    keyless.data[0].2 ^= 1;
    let mut write = good.clone();
    write.opcode = WRITE;
    let long = datagram(&pair, setup, setup.mtu + 1);
    for (post, syndrome) in
        [(long, LOCAL_LENGTH), (keyless, LOCAL_PROTECTION), (write, LOCAL_OPERATION)]
    {
        let [own, peer] = &mut pair.sides;
        peer.receive(&[(TO, 100, peer.key)]);
        let before = own.write(&good);
        let index = own.write(&post);
        let after = own.write(&good);
        own.ring(after);
        pair.settle();
        let [own, peer] = &mut pair.sides;
        assert_eq!(own.outcomes(0), [(before, 0), (index, syndrome), (after, FLUSHED)]);
        assert_eq!(peer.drain(1).len(), 1);
        assert_eq!(own.state(), State::SqError);
        // What is posted now is flushed at once; what comes is received.
        let flushed = own.post(&good);
        let receive = own.receive(&[(TO, 100, own.key)]);
        let mut back = good.clone();
        back.address = address(setup, own, KEY);
        back.data[0].2 = peer.key;
        peer.post(&back);
        pair.settle();
        let [own, peer] = &mut pair.sides;
        assert_eq!(own.outcomes(0), [(flushed, FLUSHED)]);
        assert_eq!(own.outcomes(1), [(receive, 0)]);
        assert_eq!(peer.drain(0).len(), 1);
        // Until software starts it again.
        let field = |field: mlx5_sys::ifc::Field| field.within(rst2init_qp_in::QPC);
        let command = own.rig.transition(opcode::SQERR2RTS_QP, own.qp).set(field(qpc::ST), 2u64);
        own.rig.run(&command).expect("accepted");
        peer.receive(&[(TO, 100, peer.key)]);
        let index = own.post(&good);
        pair.settle();
        let [own, peer] = &mut pair.sides;
        assert_eq!((own.outcomes(0), peer.drain(1).len()), (vec![(index, 0)], 1));
    }
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

#[test]
fn a_congested_way_stops_only_those_who_take_it() {
    let setup = datagrams();
    let mut pair = Pair::new(setup);
    let post = datagram(&pair, setup, 8);
    let [own, peer] = &mut pair.sides;
    peer.receive(&[(TO, 100, peer.key)]);
    let prefix = (peer.qp >> 8) as u16;
    own.rig.card.port.set_congested(prefix, true);
    let index = own.post(&post);
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [], "it has not left");
    pair.sides[0].rig.card.port.set_congested(prefix, false);
    pair.settle();
    let [own, peer] = &mut pair.sides;
    assert_eq!((own.outcomes(0), peer.drain(1).len()), (vec![(index, 0)], 1));
}
