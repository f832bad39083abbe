//! Tests of every error that a requester or responder can report, and of the state after it.

use mlx5_sys::ifc::{Field, create_mkey_in, mkc};

use super::side::{Post, REGION, Side};
use super::{Pair, Setup};
use crate::card::Timeouts;
use crate::fault::Faults;
use crate::object::{Service, State};
use crate::wire::Header;

const LOCAL_LENGTH: u8 = 0x01;
const LOCAL_OPERATION: u8 = 0x02;
const LOCAL_PROTECTION: u8 = 0x04;
const FLUSHED: u8 = 0x05;
const INVALID_REQUEST: u8 = 0x12;
const REMOTE_ACCESS: u8 = 0x13;
const REMOTE_OPERATION: u8 = 0x14;
const NO_ANSWER: u8 = 0x15;

const ESTABLISHED: u8 = 0x02;
const INVALID_EVENT: u8 = 0x10;
const ACCESS_EVENT: u8 = 0x11;

fn key_field(field: Field) -> Field {
    field.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY)
}

/// After an error: both queue pairs go through Reset to RTS and move a message again.
fn revive(pair: &mut Pair, setups: [Setup; 2]) {
    for side in &mut pair.sides {
        side.reset();
        assert_eq!(side.state(), State::Reset);
        let left = (side.drain(0), side.drain(1));
        assert_eq!(left, (vec![], vec![]), "nothing is completed by a reset");
    }
    Pair::connect(&mut pair.sides, setups);
    let [own, peer] = &mut pair.sides;
    own.put(0, b"works again");
    peer.receive(&[(64, 64, peer.key)]);
    own.send(11);
    pair.settle();
    let [own, peer] = &mut pair.sides;
    assert_eq!(own.outcomes(0), [(0, 0)]);
    assert_eq!(peer.outcomes(1), [(0, 0)]);
    assert_eq!(peer.get(64, 11), b"works again");
}

/// Posts a request that works, the one that fails, and one more, with a receive on each side;
/// checks how all of them end.
struct Case {
    setups: [Setup; 2],
    post: Post,
    /// The pieces of memory that the receive at the peer scatters to.
    receive: Vec<(u64, u32, u32)>,
    /// The failing request's syndrome, and the peer's receive's: none if it is still posted.
    requester: u8,
    responder: Option<u8>,
    events: Vec<u8>,
}

fn fails(make: impl Fn(&mut Pair) -> Case) {
    let setups = make(&mut Pair::new(Setup::default())).setups;
    let mut pair = Pair::of(setups, 0, 0);
    let case = make(&mut pair);
    let [own, peer] = &mut pair.sides;
    let first = own.write_to(0, 8, peer.key);
    if !setups[1].access[1] {
        // The request before it would fail as well.
        own.outcomes(0);
    }
    peer.receive(&case.receive);
    peer.receive(&[]);
    own.receive(&[]);
    let writable = setups[1].access[1];
    let second = if writable { own.write(&case.post) } else { first };
    let third = own.write(&Post::new(0x00));
    own.ring(second);
    assert!(pair.run(20, |pair| pair.sides[0].state() == State::Error), "it does not fail");
    pair.settle();
    let [own, peer] = &mut pair.sides;
    let mut expected = vec![(first, 0), (second, case.requester), (third, FLUSHED)];
    if !writable {
        expected.remove(0);
    }
    assert_eq!(own.outcomes(0), expected);
    assert_eq!(own.outcomes(1), [(0, FLUSHED)], "the requester's receive");
    let mut events = peer.take_events();
    events.retain(|kind| *kind != ESTABLISHED);
    assert_eq!(events, case.events);
    match case.responder {
        Some(syndrome) => {
            assert_eq!(peer.state(), State::Error);
            assert_eq!(peer.outcomes(1), [(0, syndrome), (1, FLUSHED)]);
        }
        None => {
            assert_eq!(peer.state(), State::Rts);
            assert_eq!(peer.outcomes(1), []);
        }
    }
    revive(&mut pair, [Setup::default(); 2]);
}

fn case(post: Post, requester: u8, responder: Option<u8>, events: &[u8]) -> Case {
    Case {
        setups: [Setup::default(); 2],
        post,
        receive: vec![],
        requester,
        responder,
        events: events.to_vec(),
    }
}

fn remote(opcode: u8, own: u32, offset: u64, length: u32, key: u32) -> Post {
    let mut post = Post::new(opcode);
    post.data = vec![(0, length, own)];
    post.remote = (Side::address(offset), key);
    post
}

const WRITE: u8 = 0x08;
const SEND: u8 = 0x0a;
const READ: u8 = 0x10;
const CAS: u8 = 0x11;
const FAA: u8 = 0x12;

#[test]
fn memory_that_cannot_be_gathered() {
    // No such key.
    fails(|pair| {
        let peer = pair.sides[1].key;
        case(remote(WRITE, 0x1234_5600, 0, 8, peer), LOCAL_PROTECTION, None, &[])
    });
    // Outside the region, from the second packet on.
    fails(|pair| {
        let (own, peer) = (pair.sides[0].key, pair.sides[1].key);
        let mut post = remote(WRITE, own, 0, 8, peer);
        post.data = vec![(REGION as u64 - 1500, 3000, own)];
        let mut case = case(post, LOCAL_PROTECTION, None, &[]);
        case.setups[0].timeout = 0;
        case
    });
    // Of another protection domain.
    fails(|pair| {
        let pd = pair.sides[0].another_pd();
        let own = pair.sides[0].another_key(|key| key.set(key_field(mkc::PD), pd));
        let mut post = Post::new(SEND);
        post.data = vec![(0, 8, own)];
        case(post, LOCAL_PROTECTION, None, &[])
    });
}

#[test]
fn memory_that_a_read_cannot_be_scattered_to() {
    fails(|pair| {
        let own = pair.sides[0].another_key(|key| key.set(key_field(mkc::LW), false));
        let peer = pair.sides[1].key;
        case(remote(READ, own, 0, 3000, peer), LOCAL_PROTECTION, None, &[])
    });
    fails(|pair| {
        let peer = pair.sides[1].key;
        case(remote(FAA, 0x77, 64, 8, peer), LOCAL_PROTECTION, None, &[])
    });
}

#[test]
fn remote_memory_that_is_not_granted() {
    for opcode in [WRITE, READ, FAA, CAS] {
        let length = if matches!(opcode, FAA | CAS) { 8 } else { 2500 };
        let event: &[u8] = &[ACCESS_EVENT];
        // No such key.
        fails(|pair| {
            let own = pair.sides[0].key;
            let post = remote(opcode, own, 0, length, 0x1234_5678);
            case(post, REMOTE_ACCESS, Some(FLUSHED), event)
        });
        // The right index with the wrong low byte.
        fails(|pair| {
            let (own, peer) = (pair.sides[0].key, pair.sides[1].key);
            let post = remote(opcode, own, 0, length, peer ^ 1);
            case(post, REMOTE_ACCESS, Some(FLUSHED), event)
        });
        // Outside the region.
        fails(|pair| {
            let (own, peer) = (pair.sides[0].key, pair.sides[1].key);
            let post = remote(opcode, own, REGION as u64, length, peer);
            case(post, REMOTE_ACCESS, Some(FLUSHED), event)
        });
        fails(|pair| {
            let (own, peer) = (pair.sides[0].key, pair.sides[1].key);
            let post = remote(opcode, own, u64::MAX - 0x7f00_0000_0000 - 7, length, peer);
            case(post, REMOTE_ACCESS, Some(FLUSHED), event)
        });
        // Without the right.
        fails(|pair| {
            let right = match opcode {
                WRITE => mkc::RW,
                READ => mkc::RR,
                _ => mkc::A,
            };
            let peer = pair.sides[1].another_key(|key| key.set(key_field(right), false));
            let post = remote(opcode, pair.sides[0].key, 0, length, peer);
            case(post, REMOTE_ACCESS, Some(FLUSHED), event)
        });
        // Of another protection domain.
        fails(|pair| {
            let pd = pair.sides[1].another_pd();
            let peer = pair.sides[1].another_key(|key| key.set(key_field(mkc::PD), pd));
            let post = remote(opcode, pair.sides[0].key, 0, length, peer);
            case(post, REMOTE_ACCESS, Some(FLUSHED), event)
        });
    }
}

#[test]
fn operations_that_the_queue_pair_does_not_grant() {
    for (opcode, right) in [(READ, 0), (FAA, 2), (CAS, 2)] {
        fails(|pair| {
            let (own, peer) = (pair.sides[0].key, pair.sides[1].key);
            let post = remote(opcode, own, 0, 8, peer);
            let mut case = case(post, INVALID_REQUEST, Some(FLUSHED), &[INVALID_EVENT]);
            case.setups[1].access[right] = false;
            case
        });
    }
    fails(|_| {
        let mut case = case(Post::new(0), INVALID_REQUEST, Some(FLUSHED), &[INVALID_EVENT]);
        case.setups[1].access[1] = false;
        case
    });
}

#[test]
fn an_atomic_that_is_not_aligned() {
    fails(|pair| {
        let (own, peer) = (pair.sides[0].key, pair.sides[1].key);
        let post = remote(FAA, own, 4, 8, peer);
        case(post, INVALID_REQUEST, Some(FLUSHED), &[INVALID_EVENT])
    });
}

/// Measured on ConnectX-6 for RC (evidence E003 to E005).
#[test]
fn an_error_reports_what_the_record_covers_also_later() {
    for (service, state) in
        [(Service::Rc, State::Error), (Service::Uc, State::SqError), (Service::Ud, State::SqError)]
    {
        let mut pair = Pair::new(Setup { service, ..Setup::default() });
        let own = &mut pair.sides[0];
        let record = own.places().0 + 4;
        own.write(&Post::new(0x29));
        let last = own.write(&Post::new(0));
        own.rig.write(record, &0u32.to_be_bytes());
        own.ring(last);
        pair.settle();
        assert_eq!(pair.sides[0].state(), state);
        assert_eq!(pair.sides[0].outcomes(0), [], "{service:?}");
        for (counter, outcome) in [(1u32, (0, LOCAL_OPERATION)), (2, (1, FLUSHED))] {
            pair.sides[0].rig.write(record, &counter.to_be_bytes());
            assert!(pair.run(10, |pair| pair.sides[0].outcomes(0) == [outcome]), "{service:?}");
        }
    }
}

#[test]
fn more_reads_than_the_responder_has_room_for() {
    let generous = Setup { depth: 8, ..Setup::default() };
    let small = Setup { depth: 1, ..Setup::default() };
    let mut pair = Pair::of([generous, small], 0, 0);
    let [own, peer] = &mut pair.sides;
    for _ in 0..3 {
        own.write(&remote(READ, own.key, 0, 100 << 10, peer.key));
    }
    own.ring(2);
    pair.settle();
    let [own, peer] = &mut pair.sides;
    assert_eq!((own.state(), peer.state()), (State::Error, State::Error));
    assert_eq!(own.outcomes(0), [(0, 0), (1, INVALID_REQUEST), (2, FLUSHED)]);
}

#[test]
fn receives_that_are_too_short_or_not_writable() {
    for length in [1, 1024, 5000] {
        fails(|pair| {
            let (own, peer) = (pair.sides[0].key, pair.sides[1].key);
            let mut post = Post::new(SEND);
            post.data = vec![(0, length + 1, own)];
            let mut case = case(post, INVALID_REQUEST, Some(LOCAL_LENGTH), &[]);
            case.receive = vec![(0, length, peer)];
            case
        });
    }
    fails(|pair| {
        let mut post = Post::new(SEND);
        post.data = vec![(0, 100, pair.sides[0].key)];
        let mut case = case(post, REMOTE_OPERATION, Some(LOCAL_PROTECTION), &[]);
        case.receive = vec![(0, 100, 0xdead)];
        case
    });
}

#[test]
fn requests_that_cannot_be_executed() {
    // An opcode this service does not have, and an atomic without memory for its answer.
    fails(|_| case(Post::new(0x29), LOCAL_OPERATION, None, &[]));
    fails(|pair| {
        let (own, peer) = (pair.sides[0].key, pair.sides[1].key);
        let mut post = remote(FAA, own, 0, 8, peer);
        post.data.clear();
        case(post, LOCAL_LENGTH, None, &[])
    });
}

#[test]
fn a_peer_that_does_not_answer() {
    let timeouts = Timeouts::SPECIFICATION;
    let setup = Setup { timeout: 13, retries: 3, timeouts, ..Setup::default() };
    let mut pair = Pair::new(setup);
    pair.drop = Box::new(|_, _| true);
    let [own, peer] = &mut pair.sides;
    own.write_to(0, 8, peer.key);
    own.send(8);
    assert!(pair.run(20, |pair| pair.sides[0].state() == State::Error));
    assert_eq!(pair.now(), 4 * (4096 << 13), "one timeout for each of four attempts");
    assert_eq!(pair.sides[0].outcomes(0), [(0, NO_ANSWER), (1, FLUSHED)]);
    pair.drop = Box::new(|_, _| false);
    revive(&mut pair, [setup; 2]);
}

#[test]
fn what_is_posted_in_error_is_flushed() {
    let mut pair = Pair::new(Setup::default());
    let own = &mut pair.sides[0];
    own.receive(&[]);
    own.break_off();
    pair.settle();
    let own = &mut pair.sides[0];
    assert_eq!(own.outcomes(1), [(0, FLUSHED)]);
    let index = own.send(8);
    pair.settle();
    let own = &mut pair.sides[0];
    assert_eq!(own.outcomes(0), [(index, FLUSHED)]);
    own.receive(&[]);
    own.receive(&[]);
    assert!(pair.run(1, |_| false) || pair.now() <= 16_000_000);
    assert_eq!(pair.sides[0].outcomes(1), [(1, FLUSHED), (2, FLUSHED)]);
    // Much later too.
    assert!(!pair.run(100, |_| false));
    pair.sides[0].receive(&[]);
    let before = pair.now();
    assert!(pair.run(2, |pair| pair.sides[0].outcomes(1) == [(3, FLUSHED)]));
    assert!(pair.now() - before <= 256_000_000);
}

#[test]
fn receives_posted_in_init_are_flushed() {
    let mut side = Side::new(Setup::default(), 0);
    let command = side.rig.transition(mlx5_sys::ifc::opcode::RST2INIT_QP, side.qp);
    side.rig.run(&command).expect("accepted");
    side.receive(&[]);
    side.break_off();
    side.rig.card.pump();
    side.rig.card.settle();
    assert_eq!(side.outcomes(1), [(0, FLUSHED)]);
}

#[test]
fn a_message_half_received_is_flushed() {
    let mut pair = Pair::new(Setup { mtu: 256, ..Setup::default() });
    let [own, peer] = &mut pair.sides;
    peer.receive(&[(0, 1000, peer.key)]);
    peer.receive(&[(0, 1000, peer.key)]);
    own.send(1000);
    own.rig.card.pump();
    let first = own.rig.card.outbox.pop_front().expect("a packet");
    peer.rig.card.receive(&first);
    peer.break_off();
    peer.rig.card.pump();
    peer.rig.card.settle();
    assert_eq!(peer.outcomes(1), [(0, FLUSHED), (1, FLUSHED)]);
}

#[test]
fn packets_of_strangers_change_nothing() {
    let mut pair = Pair::new(Setup::default());
    let [own, peer] = &mut pair.sides;
    peer.put(0, b"untouched");
    own.write_to(0, 9, peer.key);
    own.rig.card.pump();
    let frame = own.rig.card.outbox.pop_front().expect("a packet");
    let link = own.rig.card.identity.link;
    let (header, payload) = Header::decode(link, &frame.0).expect("a packet");
    let payload = frame.0[payload].to_vec();
    let again = |header: Header| {
        let Ok(frame) = header.frame(payload.len(), |to| {
            to.copy_from_slice(&payload);
            Ok::<_, std::convert::Infallible>(())
        });
        frame
    };
    let mut strangers = vec![];
    strangers.push(again(Header { p_key: 0x7fff & 0x1234, ..header }));
    strangers.push(again(Header { destination: header.destination ^ 1, ..header }));
    if let crate::wire::Route::InfiniBand { level, source, destination, .. } = header.route {
        let route = |source, destination| crate::wire::Route::InfiniBand {
            level,
            source,
            destination,
            global: None,
        };
        strangers.push(again(Header { route: route(source ^ 1, destination), ..header }));
        strangers.push(again(Header { route: route(source, destination ^ 1), ..header }));
    }
    let mut damaged = frame.clone();
    damaged.0[30] ^= 1;
    strangers.push(damaged);
    for stranger in strangers {
        peer.rig.card.receive(&stranger);
        peer.rig.card.pump();
        assert!(peer.rig.card.outbox.is_empty(), "nothing is answered");
        assert_eq!(peer.get(0, 9), b"untouched");
    }
    // What took a way that is broken is lost; it arrives when the way is mended.
    if let Some(level) = crate::wire::Route::service_level(link, &frame.0) {
        let rules = format!("sl {} loss\nsl {level} loss", level ^ 1);
        peer.rig.card.set_faults(&rules.parse().expect("rules"), 1);
        peer.rig.card.receive(&frame);
        peer.rig.card.pump();
        assert!(peer.rig.card.outbox.is_empty());
        let lost: Vec<u64> = peer.rig.card.fault_tallies().iter().map(|rule| rule.struck).collect();
        assert_eq!(lost, [0, 1], "another level's way is whole");
        peer.rig.card.set_faults(&Faults::default(), 1);
    }
    // A limited member of the default partition may speak with a full one.
    peer.rig.card.receive(&again(Header { p_key: 0x7fff, ..header }));
    peer.rig.card.pump();
    assert_eq!(peer.rig.card.outbox.len(), 1);
    assert_eq!(peer.get(0, 9), [0; 9]);
}

#[test]
fn nothing_arrives_before_rtr() {
    let mut pair = Pair::new(Setup::default());
    pair.sides[1].reset();
    let [own, peer] = &mut pair.sides;
    own.write_to(0, 8, peer.key);
    own.rig.card.pump();
    let frame = own.rig.card.outbox.pop_front().expect("a packet");
    peer.rig.card.receive(&frame);
    peer.rig.card.pump();
    assert!(peer.rig.card.outbox.is_empty());
    assert_eq!(peer.take_events(), []);
}

/// Any packet that names a queue pair leaves the card standing.
#[test]
fn random_packets_of_the_peer_are_survived() {
    let mut random = crate::clock::Random::seeded(9);
    for seed in 0..200 {
        let mut pair = Pair::new(Setup { mtu: 256, ..Setup::default() });
        let [own, peer] = &mut pair.sides;
        peer.receive(&[(0, 600, peer.key)]);
        own.receive(&[(0, 600, own.key)]);
        peer.write(&remote(READ, peer.key, 0, 2000, own.key));
        peer.ring(0);
        own.write_to(0, 8, peer.key);
        own.rig.card.pump();
        let frame = own.rig.card.outbox.pop_front().expect("a packet");
        let (header, _) = Header::decode(own.rig.card.identity.link, &frame.0).expect("a packet");
        peer.rig.card.pump();
        for _ in 0..50 {
            let Some((_, opcode)) = crate::wire::Opcode::decode(random.draw() as u8 % 0x18) else {
                continue;
            };
            let near = [0, 0, 1, 2, 0xff_ffff, 0x1000][random.draw() as usize % 6];
            let base = if opcode.is_response() { 0xabc } else { header.psn };
            let word = random.draw();
            let made = Header {
                opcode,
                psn: (base + near) & 0xff_ffff,
                ack_request: word & 1 != 0,
                reth: Some(crate::wire::Reth {
                    address: Side::address(word % 4096),
                    key: if word & 2 != 0 { peer.key } else { word as u32 },
                    length: [0, 8, 256, 600, 1 << 31, u32::MAX][random.draw() as usize % 6],
                }),
                atomic: Some(crate::wire::AtomicEth {
                    address: Side::address((word % 4096) & !3),
                    key: peer.key,
                    swap_or_add: word,
                    compare: 0,
                }),
                aeth: Some(crate::wire::Aeth {
                    syndrome: match word >> 8 & 3 {
                        0 => crate::wire::Acknowledge::Rnr(word as u8 & 31),
                        1 => crate::wire::Acknowledge::Nak(crate::wire::NakCode::Sequence),
                        _ => crate::wire::Acknowledge::Ack(31),
                    },
                    msn: 0,
                }),
                immediate: Some([0; 4]),
                ..header
            };
            let length = [0, 1, 255, 256][random.draw() as usize % 4];
            let Ok(frame) = made.frame(length, |_| Ok::<_, std::convert::Infallible>(()));
            peer.rig.card.receive(&frame);
            peer.rig.card.pump();
            peer.rig.card.outbox.clear();
            peer.rig.card.settle();
        }
        assert!(peer.outcomes(1).len() <= 1, "seed {seed}: one receive was posted");
    }
}
