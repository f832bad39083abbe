//! Extended reliable connections: an initiator, a target, and SRQs that requests name.

use mlx5_sys::ifc::{create_mkey_in, create_rmp_out, create_xrc_srq_out, mkc};

use super::side::{Post, Side};
use super::traffic::noise;
use super::{Pair, Setup};
use crate::card::Link;
use crate::clock::Random;
use crate::command::test::ring;
use crate::object::{Service, State};
use crate::wire::{Header, Route};

const WRITE: u8 = 0x08;
const WRITE_IMMEDIATE: u8 = 0x09;
const SEND: u8 = 0x0a;
const SEND_IMMEDIATE: u8 = 0x0b;
const READ: u8 = 0x10;
const FAA: u8 = 0x12;

const LOCAL_LENGTH: u8 = 0x01;
const FLUSHED: u8 = 0x05;
const INVALID_REQUEST: u8 = 0x12;
const REMOTE_ACCESS: u8 = 0x13;

/// Offset in the region that receives scatter to.
const TO: u64 = 256 << 10;

fn setups(setup: Setup) -> [Setup; 2] {
    let setup = Setup { service: Service::Xrc, ..setup };
    [setup, Setup { xrc_target: true, psn: [setup.psn[0], setup.psn[1]], ..setup }]
}

pub(super) fn pair(setup: Setup) -> Pair {
    Pair::of(setups(setup), 0, 0)
}

/// Number of the target's SRQ.
pub(super) fn srq(pair: &Pair) -> u32 {
    pair.sides[1].srq.expect("a target has one").0
}

/// A request of the region's first bytes, for an SRQ.
pub(super) fn request(own: &Side, opcode: u8, length: u32, srq: u32) -> Post {
    let mut post = Post::new(opcode);
    post.address = vec![0; 16];
    post.address[..4].copy_from_slice(&srq.to_be_bytes());
    post.data = vec![(0, length, own.key)];
    post.data.retain(|piece| piece.1 != 0);
    post
}

#[test]
fn each_operation_moves_each_size() {
    for setup in [
        Setup::default(),
        Setup { mtu: 256, psn: [0xff_fffe, 0xff_fff0], ..Setup::default() },
        Setup { link: Link::Roce, ..Setup::default() },
    ] {
        let mut pair = pair(setup);
        let number = srq(&pair);
        let mut random = Random::seeded(setup.mtu.into());
        let m = setup.mtu;
        for size in [0, 1, m - 1, m, m + 1, 7 * m + 5] {
            for opcode in [WRITE, WRITE_IMMEDIATE, SEND, SEND_IMMEDIATE, READ] {
                let [own, peer] = &mut pair.sides;
                let bytes = noise(&mut random, size as usize);
                let mut post = request(own, opcode, size, number);
                post.immediate = 0x0102_0304;
                post.remote = (Side::address(TO), peer.key);
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
                let to = if opcode == READ { own.get(0, size as usize) } else { bytes.clone() };
                assert_eq!(to, bytes);
                assert_eq!(peer.get(TO, size as usize), bytes);
                let received = peer.poll(1);
                assert_eq!(received.as_ref().map(|cqe| cqe.wqe), receive);
                if let Some(cqe) = received {
                    assert_eq!((cqe.length, cqe.syndrome), (size, 0));
                    assert_eq!(cqe.source.1 & 0xff_ffff, own.qp);
                }
            }
        }
    }
}

#[test]
fn what_is_lost_is_sent_again() {
    for seed in 0..20 {
        let mut pair = Pair::of(setups(Setup { mtu: 256, ..Setup::default() }), seed, 40);
        let number = srq(&pair);
        for round in 1..=6u8 {
            let [own, peer] = &mut pair.sides;
            own.put(0, &[round; 1000]);
            peer.receive(&[(TO, 2000, peer.key)]);
            let first = own.post(&request(own, SEND, 1000, number));
            let mut add = request(own, FAA, 8, number);
            (add.remote, add.operands) = ((Side::address(0), peer.key), (1, 0));
            add.data = vec![(8192, 8, own.key)];
            let second = own.post(&add);
            let mut got = vec![];
            let done = pair.run(4000, |pair| {
                got.extend(pair.sides[0].outcomes(0));
                got.len() == 2
            });
            assert!(done, "seed {seed}");
            assert_eq!(got, [(first, 0), (second, 0)]);
            assert_eq!(pair.sides[1].get(TO, 1000), [round; 1000]);
        }
        assert_eq!(pair.sides[1].outcomes(1).len(), 6);
        assert_eq!(pair.sides[1].get(0, 8), 6u64.to_le_bytes());
    }
}

#[test]
fn completions_go_where_the_named_queue_says() {
    let mut pair = pair(Setup::default());
    let number = srq(&pair);
    let [own, peer] = &mut pair.sides;
    // Another SRQ of the same domain, with a completion queue of its own.
    let domain = peer.rig.card.objects.srqs.get(number).unwrap().xrc().unwrap().domain;
    let cq = peer.rig.create_cq();
    let completions = ring(&cq);
    let cq = peer.rig.number(&cq, mlx5_sys::ifc::create_cq_out::CQN);
    let create = peer.rig.create_xrc_srq(domain, cq);
    let other = peer.rig.number(&create, create_xrc_srq_out::XRC_SRQN);
    peer.receive(&[(TO, 64, peer.key)]);
    own.post(&request(own, SEND, 8, number));
    pair.settle();
    let [own, peer] = &mut pair.sides;
    assert_eq!(peer.outcomes(1), [(0, 0)]);
    assert_eq!(own.outcomes(0).len(), 1);
    // Nothing is posted to the other: the initiator waits.
    own.post(&request(own, SEND, 8, other));
    pair.settle();
    let [own, peer] = &mut pair.sides;
    assert_eq!(own.outcomes(0), []);
    let address = Side::address(TO);
    let list = [64, peer.key, (address >> 32) as u32, address as u32, 0, 0x100];
    peer.rig.write(ring(&create) + 16, &list.map(u32::to_be_bytes).concat());
    let record = peer.rig.card.objects.srqs.get(other).unwrap().record;
    peer.rig.write(record, &1u32.to_be_bytes());
    assert!(pair.run(100, |pair| pair.sides[0].outcomes(0).len() == 1));
    let [_, peer] = &mut pair.sides;
    assert_eq!(peer.outcomes(1), []);
    let cqe: [u8; 64] = peer.rig.read(completions);
    assert_eq!(cqe[32..36], [0, 0, 0x12, 0x34], "what the SRQ is called");
    assert_eq!(cqe[56..60], peer.qp.to_be_bytes(), "the target");
    assert_eq!(cqe[63] >> 4, 2);
}

#[test]
fn requests_for_queues_that_a_target_may_not_use_are_refused() {
    for which in 0..3 {
        for opcode in [SEND, WRITE, READ] {
            let mut pair = pair(Setup::default());
            let own = srq(&pair);
            let rig = &mut pair.sides[1].rig;
            let number = match which {
                0 => 0x00ab_cdef,
                // Of another domain; and no XRC SRQ at all.
                1 => {
                    let (domain, cq) = (rig.xrc_domain(), rig.cq());
                    let create = rig.create_xrc_srq(domain, cq);
                    rig.number(&create, create_xrc_srq_out::XRC_SRQN)
                }
                _ => {
                    let create = rig.create_rmp();
                    rig.number(&create, create_rmp_out::RMPN)
                }
            };
            assert_ne!(number, own);
            let [own, peer] = &mut pair.sides;
            let mut post = request(own, opcode, 8, number);
            post.remote = (Side::address(TO), peer.key);
            let index = own.post(&post);
            pair.settle();
            assert_eq!(pair.sides[0].outcomes(0), [(index, INVALID_REQUEST)]);
            assert_eq!(pair.sides[1].state(), State::Error);
        }
    }
}

#[test]
fn errors_complete_in_the_named_queue() {
    let mut pair = pair(Setup { mtu: 256, ..Setup::default() });
    let number = srq(&pair);
    let [own, peer] = &mut pair.sides;
    peer.receive(&[(TO, 7, peer.key)]);
    let index = own.post(&request(own, SEND, 8, number));
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [(index, INVALID_REQUEST)]);
    assert_eq!(pair.sides[1].outcomes(1), [(0, LOCAL_LENGTH)]);

    // Half a message is flushed where it was going.
    let mut pair = self::pair(Setup { mtu: 256, ..Setup::default() });
    let [own, peer] = &mut pair.sides;
    peer.receive(&[(TO, 1000, peer.key)]);
    peer.receive(&[(TO, 1000, peer.key)]);
    own.post(&request(own, SEND, 1000, number));
    own.rig.card.pump();
    let first = own.rig.card.outbox.pop_front().expect("a packet");
    let header = Header::decode(Link::InfiniBand, &first.0).expect("a packet").0;
    assert_eq!((header.service, header.xrc_srq), (Service::Xrc, Some(number)));
    peer.rig.card.receive(&first);
    peer.break_off();
    peer.rig.card.pump();
    peer.rig.card.settle();
    assert_eq!(peer.outcomes(1), [(0, FLUSHED)]);
}

#[test]
fn memory_is_of_the_named_queues_domain() {
    let mut pair = pair(Setup::default());
    let number = srq(&pair);
    let [own, peer] = &mut pair.sides;
    let domain = peer.another_pd();
    let pd = mkc::PD.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY);
    let key = peer.another_key(|command| command.set(pd, domain));
    peer.rig.card.objects.srqs.get_mut(number).unwrap().pd = domain;
    for opcode in [WRITE, READ] {
        let mut post = request(own, opcode, 8, number);
        post.remote = (Side::address(TO), key);
        own.post(&post);
    }
    // The target's own domain counts for nothing.
    let mut post = request(own, WRITE, 8, number);
    post.remote = (Side::address(TO), peer.key);
    own.post(&post);
    pair.settle();
    let outcomes = pair.sides[0].outcomes(0);
    assert_eq!(outcomes.iter().map(|(_, s)| *s).collect::<Vec<_>>(), [0, 0, REMOTE_ACCESS]);
}

#[test]
fn an_initiator_answers_nobody() {
    let mut pair = pair(Setup::default());
    let number = srq(&pair);
    let [own, _] = &mut pair.sides;
    own.post(&request(own, SEND, 8, number));
    own.rig.card.pump();
    let frame = own.rig.card.outbox.pop_front().expect("a packet");
    let (mut header, _) = Header::decode(Link::InfiniBand, &frame.0).expect("a packet");
    // As the target would send it, if it could.
    (header.destination, header.psn) = (own.qp, Setup::default().psn[1]);
    if let Route::InfiniBand { source, destination, .. } = &mut header.route {
        std::mem::swap(source, destination);
    }
    own.rig.card.receive(&header.bare());
    own.rig.card.pump();
    assert!(own.rig.card.outbox.is_empty());
    assert_eq!(own.state(), State::Rts);
    assert_eq!(own.rig.card.objects.qps[&own.qp].query()[0xb1..0xb4], [0; 3], "no message counted");
}
