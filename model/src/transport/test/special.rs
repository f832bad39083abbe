//! Tests of queue pairs that only the driver has: 0 and 1 of the port, and queues for UMR alone.

use mlx5_sys::ifc::{create_qp_in, create_qp_out, destroy_qp_in, opcode, qpc};

use super::datagram::{datagram, datagrams};
use super::side::{Post, Side};
use super::windows::{self, bind, window};
use super::{Pair, Setup};
use crate::command::test::Command;
use crate::object::{Service, Special, State};
use crate::queue::{Access, Domain};
use crate::wire::{Frame, Header, Route};

const LOCAL_OPERATION: u8 = 0x02;

fn management(special: Special) -> Setup {
    Setup { special: Some(special), grh: special == Special::Gsi, ..datagrams() }
}

/// A datagram to a queue pair number of the peer's port.
fn to(pair: &Pair, setup: Setup, number: u32) -> Post {
    let mut post = datagram(pair, setup, 8);
    post.address[8..12].copy_from_slice(&(1 << 31 | number).to_be_bytes());
    post
}

#[test]
fn queue_pairs_0_and_1_have_these_numbers_on_the_wire_and_no_others() {
    for special in [Special::Smi, Special::Gsi] {
        let setup = management(special);
        let mut pair = Pair::new(setup);
        let number = special.wire_number().unwrap();
        let own = to(&pair, setup, pair.sides[1].qp);
        let wire = to(&pair, setup, number);
        let [sender, peer] = &mut pair.sides;
        sender.put(0, b"MAD bits");
        peer.receive(&[(4096, 64, peer.key)]);
        sender.post(&own);
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), [(0, 0)]);
        assert_eq!(pair.sides[1].outcomes(1), [], "its number by command is not one of the wire");
        pair.sides[0].post(&wire);
        pair.settle();
        let peer = &mut pair.sides[1];
        let cqe = peer.poll(1).expect("received");
        assert_eq!((cqe.syndrome, cqe.length), (0, 48));
        assert_eq!(cqe.source.1 & 0xff_ffff, number, "the sender is the peer's own");
        assert_eq!(cqe.source.1 >> 28 & 1, u32::from(setup.grh));
        assert_eq!(peer.get(4096 + 40, 8), b"MAD bits");
        if special == Special::Gsi {
            assert_eq!(cqe.immediate, [0, 0, 0xff, 0xff], "the P_Key");
        }
    }
}

#[test]
fn what_queue_pairs_0_and_1_do_not_take_is_lost() {
    let setup = management(Special::Gsi);
    let mut pair = Pair::new(setup);
    let smi = to(&pair, setup, 0);
    let peer = &mut pair.sides[1];
    peer.receive(&[(4096, 64, peer.key)]);
    pair.sides[0].post(&smi);
    pair.settle();
    assert_eq!(pair.sides[1].outcomes(1), []);
    // When it is gone, another one may be made.
    let gsi = to(&pair, setup, 1);
    let peer = &mut pair.sides[1];
    let field = |field: mlx5_sys::ifc::Field| field.within(create_qp_in::QPC);
    let cq = peer.rig.cq();
    let create = peer.rig.create_qp(cq, cq).set(field(qpc::ST), 8u64);
    assert!(peer.rig.run(&create).is_err());
    let destroy = Command::new(opcode::DESTROY_QP, 0x10).set(destroy_qp_in::QPN, peer.qp);
    peer.rig.run(&destroy).unwrap();
    pair.sides[0].post(&gsi);
    pair.settle();
    let peer = &mut pair.sides[1];
    let second = peer.rig.number(&create, create_qp_out::QPN);
    assert_eq!(peer.rig.card.objects.at_wire_number(1), Some(second));
}

/// The next packet of the first side, with another header.
fn next(pair: &mut Pair, setup: Setup, change: impl Fn(&mut Header)) -> Frame {
    let card = &mut pair.sides[0].rig.card;
    card.pump();
    let frame = card.take_frame().expect("a packet");
    let (mut header, range) = Header::decode(setup.link, &frame.0).unwrap();
    change(&mut header);
    let payload = &frame.0[range];
    let Ok(frame) = header.frame(payload.len(), |to| {
        to.copy_from_slice(payload);
        Ok::<_, ()>(())
    }) else {
        unreachable!()
    };
    frame
}

#[test]
fn partitions_do_not_bind_queue_pair_0_and_all_of_the_port_reach_1() {
    for (special, p_key, arrives) in [
        (Some(Special::Smi), 0x1234, true),
        (Some(Special::Gsi), 0x8001, true),
        (Some(Special::Gsi), 0x0001, true),
        (Some(Special::Gsi), 0x8002, true),
        // Two limited members.
        (Some(Special::Gsi), 0x0002, false),
        (Some(Special::Gsi), 0x1234, false),
        (None, 0x8001, false),
    ] {
        let setup = Setup { special, ..datagrams() };
        let mut pair = Pair::new(setup);
        let number = special.and_then(Special::wire_number).unwrap_or(pair.sides[1].qp);
        let post = to(&pair, setup, number);
        pair.sides[0].post(&post);
        let frame = next(&mut pair, setup, |header| header.p_key = p_key);
        let peer = &mut pair.sides[1];
        peer.receive(&[(4096, 64, peer.key)]);
        peer.rig.card.receive(&frame);
        pair.settle();
        let cqe = pair.sides[1].poll(1);
        assert_eq!(cqe.is_some(), arrives, "{special:?}, P_Key {p_key:#x}");
        if let (Some(cqe), Some(Special::Gsi)) = (cqe, special) {
            assert_eq!(cqe.immediate, u32::from(p_key).to_be_bytes());
        }
    }
}

#[test]
fn the_permissive_lid_leads_to_queue_pair_0_alone() {
    for (special, arrives) in [(Special::Smi, true), (Special::Gsi, false)] {
        let setup = Setup { special: Some(special), ..datagrams() };
        let mut pair = Pair::new(setup);
        let post = to(&pair, setup, special.wire_number().unwrap());
        pair.sides[0].post(&post);
        let frame = next(&mut pair, setup, |header| {
            if let Route::InfiniBand { destination, .. } = &mut header.route {
                *destination = 0xffff;
            }
        });
        let peer = &mut pair.sides[1];
        peer.receive(&[(4096, 64, peer.key)]);
        peer.rig.card.receive(&frame);
        pair.settle();
        assert_eq!(pair.sides[1].outcomes(1).len(), usize::from(arrives), "{special:?}");
    }
}

#[test]
fn a_datagram_may_name_another_sender() {
    let setup = datagrams();
    let mut pair = Pair::new(setup);
    let number = pair.sides[0].qp;
    let qp = pair.sides[0].rig.card.objects.qps.get_mut(&number).unwrap();
    qpc::DETH_SQPN.set(&mut qp.context[..], 1);
    pair.sides[0].reset();
    let peer = (pair.sides[1].qp, pair.sides[1].rig.card.identity.lid, [0; 16]);
    pair.sides[0].connect(setup, peer, setup.psn);
    let post = datagram(&pair, setup, 8);
    let [own, peer] = &mut pair.sides;
    peer.receive(&[(0, 64, peer.key)]);
    own.post(&post);
    pair.settle();
    assert_eq!(pair.sides[1].poll(1).unwrap().source.1 & 0xff_ffff, 1);
}

#[test]
fn a_queue_for_umr_changes_keys_and_sends_nothing() {
    let setup = Setup { special: Some(Special::Umr), service: Service::Uc, ..Setup::default() };
    let mut pair = Pair::new(setup);
    let own = &mut pair.sides[0];
    let key = window(own);
    own.post(&Post::new(0));
    own.post(&bind(own, key));
    pair.settle();
    let own = &mut pair.sides[0];
    assert_eq!(own.outcomes(0), [(0, 0), (1, 0)]);
    let bound = (key & !0xff) | ((key & 0xff) + 1);
    let domain = Domain { pd: own.rig.pd, qp: own.qp };
    let (start, length) = (Side::address(windows::AT), u64::from(windows::LENGTH));
    own.rig.card.check(domain, bound, start, length, Access::RemoteWrite).expect("bound");
    for opcode in [0x08, 0x0a] {
        let mut pair = Pair::new(setup);
        let [own, peer] = &mut pair.sides;
        let mut post = Post::new(opcode);
        post.remote = (Side::address(0), peer.key);
        post.data = vec![(0, 8, own.key)];
        own.post(&post);
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), [(0, LOCAL_OPERATION)]);
        assert_eq!(pair.sides[0].state(), State::SqError);
    }
}

#[test]
fn nothing_reaches_a_queue_for_umr() {
    let setup = Setup { service: Service::Uc, ..Setup::default() };
    let special = Setup { special: Some(Special::Umr), ..setup };
    let mut pair = Pair::of([setup, special], 0, 0);
    let [own, peer] = &mut pair.sides;
    peer.put(0, &[7; 8]);
    own.write_to(0, 8, peer.key);
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [(0, 0)]);
    assert_eq!(pair.sides[1].get(0, 8), [7; 8]);
}
