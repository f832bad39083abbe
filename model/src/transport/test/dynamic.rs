//! Dynamic connections: an initiator, several targets on another card, their keys and their streams.

use mlx5_sys::ifc::{
    arm_dct_in, create_dct_in, create_dct_out, dctc, destroy_dct_in, drain_dct_in, opcode, qpc,
    qpc_ext, query_dct_in, query_dct_out, rts2rts_qp_ext_in,
};

use super::side::{Post, Side};
use super::traffic::noise;
use super::{Pair, Setup};
use crate::card::Link;
use crate::clock::Random;
use crate::command::Refusal;
use crate::command::test::Command;
use crate::object::{Drain, Service, State};
use crate::transport::QueuePair;
use crate::wire::{self, Header};

const WRITE: u8 = 0x08;
const WRITE_IMMEDIATE: u8 = 0x09;
const SEND: u8 = 0x0a;
const SEND_IMMEDIATE: u8 = 0x0b;
const READ: u8 = 0x10;
const CAS: u8 = 0x11;
const FAA: u8 = 0x12;

const LOCAL_LENGTH: u8 = 0x01;
const LOCAL_PROTECTION: u8 = 0x04;
const FLUSHED: u8 = 0x05;
const INVALID_REQUEST: u8 = 0x12;
const REMOTE_ACCESS: u8 = 0x13;
const RETRIES: u8 = 0x15;
const RNR_RETRIES: u8 = 0x16;
const ABORTED: u8 = 0x22;

const DRAINED: u8 = 0x1c;
const KEY_VIOLATION: u8 = 0x1d;

/// Offset in the region that receives scatter to.
const TO: u64 = 256 << 10;
const KEY: u64 = 0x0102_0304_0506_0708;

pub(super) fn setup() -> Setup {
    Setup { service: Service::Dc, shared_receive: true, ..Setup::default() }
}

fn field(field: mlx5_sys::ifc::Field) -> mlx5_sys::ifc::Field {
    field.within(create_dct_in::DCT_CONTEXT_ENTRY)
}

/// The command for a target that receives from a side's shared queue and lets READ, WRITE and
/// atomics in.
fn create(side: &Side, setup: Setup) -> Command {
    let cq = side.rig.card.objects.qps[&side.qp].get(qpc::CQN_RCV);
    let srq = side.srq.expect("it has one").0;
    Command::new(opcode::CREATE_DCT, create_dct_in::SIZE)
        .set(field(dctc::PD), side.rig.pd)
        .set(field(dctc::CQN), cq)
        .set(field(dctc::SRQN_XRQN), srq)
        .set(field(dctc::USER_INDEX), 0x77u64)
        .set(field(dctc::DC_ACCESS_KEY), KEY)
        .set(field(dctc::MTU), setup.mtu.ilog2() - 7)
        .set(field(dctc::RRE), 1u64)
        .set(field(dctc::RWE), 1u64)
        .set(field(dctc::RAE), 1u64)
        .set(field(dctc::ATOMIC_MODE), 1u64)
        .set(field(dctc::MIN_RNR_NAK), 12u64)
        .set(field(dctc::PORT), 1u64)
}

fn target(side: &mut Side, setup: Setup) -> u32 {
    let command = create(side, setup);
    side.rig.number(&command, create_dct_out::DCTN)
}

/// Two sides, and a target on the second.
pub(super) fn pair(setup: Setup) -> (Pair, u32) {
    let mut pair = Pair::new(setup);
    let number = target(&mut pair.sides[1], setup);
    (pair, number)
}

/// The address vector of a target on the other side.
fn address(pair: &Pair, number: u32, key: u64) -> Vec<u8> {
    let peer = &pair.sides[1].rig.card.identity;
    let gid = peer.gids[0].gid;
    let mut bytes = key.to_be_bytes().to_vec();
    bytes.extend_from_slice(&(1 << 31 | number).to_be_bytes());
    bytes.extend_from_slice(&[0, 0]);
    bytes.extend_from_slice(&peer.lid.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&if peer.link == Link::Roce { peer.mac } else { [0; 6] });
    bytes.extend_from_slice(&[0, 64]);
    bytes.extend_from_slice(&[if peer.link == Link::Roce { 0x40 } else { 0 }, 0, 0, 0]);
    bytes.extend_from_slice(&gid);
    assert_eq!(bytes.len(), 48);
    bytes
}

pub(super) fn request(pair: &Pair, opcode: u8, length: u32, target: u32) -> Post {
    let mut post = Post::new(opcode);
    post.address = address(pair, target, KEY);
    post.data = vec![(0, length, pair.sides[0].key)];
    post.data.retain(|piece| piece.1 != 0);
    post.remote = (Side::address(TO), pair.sides[1].key);
    post
}

/// Packets from the initiator's side, by opcode.
fn watch(pair: &mut Pair) -> std::sync::mpsc::Receiver<wire::Opcode> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let link = pair.sides[0].rig.card.identity.link;
    pair.drop = Box::new(move |side, frame| {
        if let (0, Ok((header, _))) = (side, Header::decode(link, &frame.0)) {
            let _ = sender.send(header.opcode);
        }
        false
    });
    receiver
}

#[test]
fn each_operation_moves_each_size() {
    for setup in [
        setup(),
        Setup { mtu: 256, psn: [0xff_fffe, 0xff_fff0], ..setup() },
        Setup { link: Link::Roce, ..setup() },
    ] {
        let (mut pair, number) = pair(setup);
        let mut random = Random::seeded(setup.mtu.into());
        let m = setup.mtu;
        for size in [0, 1, m - 1, m, m + 1, 7 * m + 5] {
            for opcode in [WRITE, WRITE_IMMEDIATE, SEND, SEND_IMMEDIATE, READ] {
                let bytes = noise(&mut random, size as usize);
                let mut post = request(&pair, opcode, size, number);
                post.immediate = 0x0102_0304;
                let [own, peer] = &mut pair.sides;
                if opcode == READ {
                    peer.put(TO, &bytes);
                } else {
                    own.put(0, &bytes);
                }
                let receive = matches!(opcode, WRITE_IMMEDIATE | SEND | SEND_IMMEDIATE)
                    .then(|| peer.receive(&[(TO, size + 1, peer.key)]));
                let index = own.post(&post);
                pair.settle();
                let [own, peer] = &mut pair.sides;
                assert_eq!(own.outcomes(0), [(index, 0)], "{opcode:#x} of {size}");
                assert_eq!(peer.get(TO, size as usize), bytes);
                assert_eq!(own.get(0, size as usize), bytes);
                let received = peer.poll(1);
                assert_eq!(received.as_ref().map(|cqe| cqe.wqe), receive);
                if let Some(cqe) = received {
                    assert_eq!((cqe.length, cqe.syndrome), (size, 0));
                    // The target has no one peer: the packet says who it was.
                    assert_eq!(cqe.source.1 & 0xff_ffff, own.qp);
                }
            }
        }
        pair.sides[1].put(TO, &40u64.to_le_bytes());
        let (mut add, mut swap) = (request(&pair, FAA, 8, number), request(&pair, CAS, 8, number));
        (add.operands, swap.operands) = ((2, 0), (7, 42));
        let posted = [&add, &swap].map(|post| (pair.sides[0].post(post), 0));
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), posted);
        assert_eq!(pair.sides[1].get(TO, 8), 7u64.to_le_bytes());
        assert_eq!(pair.sides[0].get(0, 8), 42u64.to_le_bytes());
    }
}

#[test]
fn a_connection_lasts_until_a_request_goes_elsewhere() {
    use wire::Opcode::{Connect, Disconnect, WriteOnly};
    let (mut pair, one) = pair(setup());
    let two = target(&mut pair.sides[1], setup());
    let packets = watch(&mut pair);
    let posts = [one, one, two, two, one].map(|to| request(&pair, WRITE, 8, to));
    let posted = posts.each_ref().map(|post| (pair.sides[0].write(post), 0));
    pair.sides[0].ring(posted[4].0);
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), posted);
    let sent: Vec<_> = packets.try_iter().collect();
    assert_eq!(
        sent,
        [
            // What is for the target follows the packet that opens the connection at once.
            Connect, WriteOnly, WriteOnly, Disconnect, Connect, WriteOnly, WriteOnly, Disconnect,
            Connect, WriteOnly
        ]
    );
    let open = |pair: &Pair, number| {
        let qp = &pair.sides[1].rig.card.objects.qps[&number];
        QueuePair::of(qp).unwrap().connections().ids().count()
    };
    assert_eq!((open(&pair, one), open(&pair, two)), (1, 0));
    pair.sides[0].reset();
    pair.settle();
    assert_eq!(open(&pair, one), 0, "who is reset takes its leave");
}

#[test]
fn several_initiators_have_a_target_at_once() {
    let setup = Setup { mtu: 256, ..setup() };
    let (mut pair, number) = pair(setup);
    // Half a message of the first initiator arrives; then the other's comes whole.
    for _ in 0..2 {
        let [_, peer] = &mut pair.sides;
        peer.receive(&[(TO, 4096, peer.key)]);
    }
    let long = request(&pair, SEND, 1000, number);
    pair.sides[0].post(&long);
    pair.sides[0].rig.card.pump();
    let frames: Vec<_> = pair.sides[0].rig.card.outbox.drain(..).collect();
    assert_eq!(frames.len(), 5);
    for frame in &frames[..3] {
        pair.sides[1].rig.card.receive(frame);
    }
    // The other initiator is on the target's own device. The target treats it like any other.
    let peer = &mut pair.sides[1];
    let mut own = request_from(peer, number);
    own.data = vec![(0, 8, peer.key)];
    let index = peer.post(&own);
    loop {
        let sent = peer.rig.card.pump();
        let frames: Vec<_> = peer.rig.card.outbox.drain(..).collect();
        for frame in &frames {
            peer.rig.card.receive(frame);
        }
        if !peer.rig.card.settle() && !sent {
            break;
        }
    }
    assert_eq!(peer.outcomes(0), [(index, 0)]);
    assert_eq!(peer.outcomes(1), [(1, 0)]);
    for frame in &frames[3..] {
        peer.rig.card.receive(frame);
    }
    pair.settle();
    assert_eq!(pair.sides[1].outcomes(1), [(0, 0)]);
}

/// A SEND from a side to a target on its own card.
fn request_from(side: &Side, target: u32) -> Post {
    let mut post = Post::new(SEND);
    post.address = KEY.to_be_bytes().to_vec();
    post.address.extend_from_slice(&target.to_be_bytes());
    post.address.extend_from_slice(&[0, 0]);
    post.address.extend_from_slice(&side.rig.card.identity.lid.to_be_bytes());
    post
}

#[test]
fn what_is_lost_is_sent_again() {
    for seed in 0..20 {
        let setup = Setup { mtu: 256, ..setup() };
        let mut pair = Pair::of([setup, setup], seed, 40);
        let targets = [(); 2].map(|()| target(&mut pair.sides[1], setup));
        for round in 1..=6u8 {
            let number = targets[usize::from(round % 2)];
            let [own, peer] = &mut pair.sides;
            own.put(0, &[round; 1000]);
            peer.receive(&[(TO, 2000, peer.key)]);
            let send = request(&pair, SEND, 1000, number);
            let first = pair.sides[0].post(&send);
            let mut add = request(&pair, FAA, 8, number);
            (add.remote.0, add.operands) = (Side::address(0), (1, 0));
            add.data = vec![(8192, 8, pair.sides[0].key)];
            let second = pair.sides[0].post(&add);
            let mut got = vec![];
            let done = pair.run(4000, |pair| {
                got.extend(pair.sides[0].outcomes(0));
                got.len() == 2
            });
            assert!(done, "seed {seed}, round {round}: {got:?}");
            assert_eq!(got, [(first, 0), (second, 0)]);
            assert_eq!(pair.sides[1].get(TO, 1000), [round; 1000]);
        }
        let received = pair.sides[1].outcomes(1);
        assert_eq!(received.iter().filter(|outcome| outcome.1 == 0).count(), 6);
        assert_eq!(pair.sides[1].get(0, 8), 6u64.to_le_bytes());
    }
}

#[test]
fn a_wrong_key_is_refused_counted_and_told() {
    let (mut pair, number) = pair(setup());
    let arm =
        Command::new(opcode::ARM_DCT_FOR_KEY_VIOLATION, 0x10).set(arm_dct_in::DCT_NUMBER, number);
    pair.sides[1].rig.run(&arm).unwrap();
    for round in 1..=2u64 {
        let mut post = request(&pair, WRITE, 8, number);
        post.address = address(&pair, number, KEY + 1);
        let index = pair.sides[0].post(&post);
        let behind = {
            let post = request(&pair, WRITE, 8, number);
            pair.sides[0].post(&post)
        };
        pair.settle();
        assert_eq!(
            pair.sides[0].outcomes(0),
            [(index, INVALID_REQUEST), (behind, FLUSHED)],
            "round {round}"
        );
        assert_eq!(pair.sides[0].state(), State::Error);
        let query = Command::new(opcode::QUERY_DCT, 0x10).set(query_dct_in::DCTN, number);
        let shown = pair.sides[1].rig.run(&query).unwrap();
        let count = dctc::DC_ACCESS_KEY_VIOLATION_COUNT.within(query_dct_out::DCT_CONTEXT_ENTRY);
        assert_eq!(count.get(&shown), round);
        // One arm gives one event.
        let told = pair.sides[1].take_events();
        assert_eq!(told, if round == 1 { vec![KEY_VIOLATION] } else { vec![] });
        reconnect(&mut pair);
        let index = {
            let post = request(&pair, WRITE, 8, number);
            pair.sides[0].post(&post)
        };
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), [(index, 0)]);
    }
}

/// Brings the initiator back from an error.
fn reconnect(pair: &mut Pair) {
    let setup = setup();
    pair.sides[0].reset();
    pair.sides[0].connect(setup, (0, 0, [0; 16]), setup.psn);
}

#[test]
fn a_refused_request_ends_its_connection_and_not_the_target() {
    let (mut pair, number) = pair(setup());
    let [_, peer] = &mut pair.sides;
    peer.receive(&[(TO, 4, peer.key)]);
    let too_long = request(&pair, SEND, 8, number);
    let mut no_key = request(&pair, WRITE, 8, number);
    no_key.remote.1 ^= 1;
    let mut odd = request(&pair, FAA, 8, number);
    odd.remote.0 += 1;
    for (post, sender, receiver) in [
        (too_long, INVALID_REQUEST, vec![(0, LOCAL_LENGTH)]),
        (no_key, REMOTE_ACCESS, vec![]),
        (odd, INVALID_REQUEST, vec![]),
    ] {
        let index = pair.sides[0].post(&post);
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), [(index, sender)]);
        assert_eq!(pair.sides[1].outcomes(1), receiver);
        assert_eq!(pair.sides[1].take_events(), []);
        reconnect(&mut pair);
        let index = {
            let post = request(&pair, WRITE, 8, number);
            pair.sides[0].post(&post)
        };
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), [(index, 0)], "after {post:?}");
    }
}

#[test]
fn rights_that_a_target_does_not_give_are_refused() {
    for (opcode, right) in [(READ, dctc::RRE), (WRITE, dctc::RWE), (FAA, dctc::RAE)] {
        let mut pair = Pair::new(setup());
        let command = create(&pair.sides[1], setup()).set(field(right), 0u64);
        let number = pair.sides[1].rig.number(&command, create_dct_out::DCTN);
        let index = {
            let post = request(&pair, opcode, 8, number);
            pair.sides[0].post(&post)
        };
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), [(index, INVALID_REQUEST)]);
    }
}

#[test]
fn who_is_not_there_or_not_ready_is_waited_for_in_vain() {
    let (mut pair, number) = pair(Setup { rnr_retries: 1, retries: 1, ..setup() });
    let index = {
        let post = request(&pair, SEND, 8, number);
        pair.sides[0].post(&post)
    };
    assert!(pair.run(20, |pair| pair.sides[0].state() == State::Error));
    assert_eq!(pair.sides[0].outcomes(0), [(index, RNR_RETRIES)]);
    let (mut pair, number) = self::pair(Setup { retries: 1, ..setup() });
    let index = {
        let post = request(&pair, SEND, 8, number + 1);
        pair.sides[0].post(&post)
    };
    assert!(pair.run(20, |pair| pair.sides[0].state() == State::Error));
    assert_eq!(pair.sides[0].outcomes(0), [(index, RETRIES)]);
}

#[test]
fn an_empty_queue_is_waited_for() {
    let (mut pair, number) = pair(setup());
    let index = {
        let post = request(&pair, SEND, 8, number);
        pair.sides[0].post(&post)
    };
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), []);
    let [_, peer] = &mut pair.sides;
    let receive = peer.receive(&[(TO, 8, peer.key)]);
    assert!(pair.run(100, |pair| pair.sides[0].outcomes(0) == [(index, 0)]));
    assert_eq!(pair.sides[1].outcomes(1), [(receive, 0)]);
}

#[test]
fn a_message_that_is_given_up_is_reported() {
    let setup = Setup { mtu: 256, ..setup() };
    let (mut pair, number) = pair(setup);
    let [_, peer] = &mut pair.sides;
    let receive = peer.receive(&[(TO, 4096, peer.key)]);
    pair.sides[0].post(&request(&pair, SEND, 1000, number));
    pair.sides[0].rig.card.pump();
    for frame in pair.sides[0].rig.card.outbox.drain(..).take(3).collect::<Vec<_>>() {
        pair.sides[1].rig.card.receive(&frame);
    }
    // It waits for the rest, and so does the drain.
    let drain = Command::new(opcode::DRAIN_DCT, 0x10).set(drain_dct_in::DCTN, number);
    pair.sides[1].rig.run(&drain).unwrap();
    assert_eq!(pair.sides[1].rig.run(&drain).err(), Some(Refusal::DctDrained));
    assert_eq!(pair.sides[1].take_events(), []);
    pair.sides[0].reset();
    pair.settle();
    assert_eq!(pair.sides[1].outcomes(1), [(receive, ABORTED)]);
    assert_eq!(pair.sides[1].take_events(), [DRAINED]);
}

#[test]
fn a_drained_target_lets_nobody_in() {
    let (mut pair, number) = pair(Setup { retries: 1, ..setup() });
    let drain = Command::new(opcode::DRAIN_DCT, 0x10).set(drain_dct_in::DCTN, number);
    pair.sides[1].rig.run(&drain).unwrap();
    assert_eq!(pair.sides[1].take_events(), [DRAINED]);
    let state = pair.sides[1].rig.card.objects.qps[&number].target().map(|t| t.drain);
    assert_eq!(state, Some(Drain::Drained));
    let index = {
        let post = request(&pair, WRITE, 8, number);
        pair.sides[0].post(&post)
    };
    assert!(pair.run(20, |pair| pair.sides[0].state() == State::Error));
    assert_eq!(pair.sides[0].outcomes(0), [(index, RETRIES)]);
    let destroy = Command::new(opcode::DESTROY_DCT, 0x10).set(destroy_dct_in::DCTN, number);
    let rig = &mut pair.sides[1].rig;
    rig.run(&destroy).unwrap();
}

#[test]
fn a_target_is_shown_as_it_was_made() {
    let mut pair = Pair::new(setup());
    let command = create(&pair.sides[1], setup());
    let rig = &mut pair.sides[1].rig;
    let number = rig.number(&command, create_dct_out::DCTN);
    let query = Command::new(opcode::QUERY_DCT, 0x10).set(query_dct_in::DCTN, number);
    let shown = rig.run(&query).unwrap();
    assert_eq!(
        shown[query_dct_out::DCT_CONTEXT_ENTRY.bytes()],
        command.0[create_dct_in::DCT_CONTEXT_ENTRY.bytes()]
    );
}

/// The command that lets a stream go on.
fn reset_stream(qp: u32, stream: u16) -> Command {
    let field = qpc_ext::DCI_STREAM_CHANNEL_ID.within(rts2rts_qp_ext_in::QPC_DATA_EXT);
    Command::new(opcode::RTS2RTS_QP, rts2rts_qp_ext_in::SIZE)
        .set(rts2rts_qp_ext_in::QPN, qp)
        .set(rts2rts_qp_ext_in::QPC_EXT, 1u64)
        .set(rts2rts_qp_ext_in::OPT_PARAM_MASK_95_32, 1u64)
        .set(field, stream)
}

#[test]
fn a_stream_that_fails_leaves_the_others_going() {
    let (mut pair, number) = pair(Setup { streams: [3, 2], ..setup() });
    let qp = pair.sides[0].qp;
    let on = |pair: &mut Pair, stream: u16, good: bool| {
        let mut post = request(pair, WRITE, 8, number);
        post.stream = stream;
        post.data[0].2 ^= u32::from(!good);
        pair.sides[0].write(&post)
    };
    let posts = [(1, true), (2, false), (2, true), (3, true), (2, true), (1, true)]
        .map(|(stream, good)| on(&mut pair, stream, good));
    pair.sides[0].ring(posts[5]);
    pair.settle();
    let ends = [0, LOCAL_PROTECTION, FLUSHED, 0, FLUSHED, 0];
    let expected: Vec<_> = posts.into_iter().zip(ends).collect();
    assert_eq!(pair.sides[0].outcomes(0), expected);
    assert_eq!(pair.sides[0].state(), State::Rts);
    let rig = &mut pair.sides[0].rig;
    assert_eq!(rig.run(&reset_stream(qp, 1)).err(), Some(Refusal::QpStream));
    rig.run(&reset_stream(qp, 2)).unwrap();
    assert_eq!(rig.run(&reset_stream(qp, 2)).err(), Some(Refusal::QpStream));
    let index = on(&mut pair, 2, true);
    pair.sides[0].ring(index);
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [(index, 0)]);
    // The fourth that has failed is one too many.
    for (stream, state) in [(4, State::Rts), (5, State::Rts), (6, State::Rts), (7, State::Error)] {
        let index = on(&mut pair, stream, false);
        pair.sides[0].ring(index);
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), [(index, LOCAL_PROTECTION)]);
        assert_eq!(pair.sides[0].state(), state, "stream {stream}");
    }
    assert_eq!(pair.sides[0].rig.run(&reset_stream(qp, 4)).err(), Some(Refusal::QpState));
}

#[test]
fn streams_survive_what_their_targets_refuse() {
    let (mut pair, number) = pair(Setup { streams: [3, 3], ..setup() });
    let mut bad = request(&pair, WRITE, 8, number);
    (bad.remote.1, bad.stream) = (bad.remote.1 ^ 1, 5);
    let mut good = request(&pair, READ, 8, number);
    good.stream = 6;
    let posted = [&bad, &bad, &good].map(|post| pair.sides[0].write(post));
    pair.sides[0].ring(posted[2]);
    pair.settle();
    let expected = [(posted[0], REMOTE_ACCESS), (posted[1], FLUSHED), (posted[2], 0)];
    assert_eq!(pair.sides[0].outcomes(0), expected);
}
