//! Tests of receives from a shared queue: shortage, failure, events.

use mlx5_sys::ifc::{create_mkey_in, create_qp_out, create_rmp_out, mkc, rmpc, wq};

use super::datagram::datagrams;
use super::side::{RECEIVES, Side};
use super::{Pair, Setup};
use crate::command::test::Rig;
use crate::object::{Service, State};

const LOCAL_PROTECTION: u8 = 0x04;
const FLUSHED: u8 = 0x05;
const LOCAL_LENGTH: u8 = 0x01;
const INVALID_REQUEST: u8 = 0x12;
const REMOTE_OPERATION: u8 = 0x14;

const ESTABLISHED: u8 = 0x02;
const CATASTROPHIC: u8 = 0x05;
const SRQ_CATASTROPHIC: u8 = 0x12;
const LAST_WQE: u8 = 0x13;
const LIMIT: u8 = 0x14;

fn shared() -> Setup {
    Setup { shared_receive: true, ..Setup::default() }
}

fn events(side: &mut Side) -> Vec<u8> {
    let mut events = side.take_events();
    events.retain(|kind| *kind != ESTABLISHED);
    events
}

#[test]
fn an_empty_queue_is_waited_for() {
    let mut pair = Pair::new(shared());
    for round in 0..3 {
        let index = pair.sides[0].send(8);
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), []);
        let [_, peer] = &mut pair.sides;
        let receive = peer.receive(&[(64, 8, peer.key)]);
        assert!(pair.run(100, |pair| pair.sides[0].outcomes(0) == [(index, 0)]));
        assert_eq!(pair.sides[1].outcomes(1), [(receive, 0)], "round {round}");
    }
    let mut pair = Pair::new(Setup { rnr_retries: 1, ..shared() });
    pair.sides[0].send(8);
    assert!(pair.run(20, |pair| pair.sides[0].state() == State::Error));
    assert_eq!(pair.sides[0].outcomes(0), [(0, 0x16)]);
    assert_eq!(pair.sides[1].state(), State::Rts);
}

#[test]
fn what_is_posted_outlives_its_queue_pairs() {
    let mut pair = Pair::new(Setup { mtu: 256, ..shared() });
    let [own, peer] = &mut pair.sides;
    for _ in 0..3 {
        peer.receive(&[(0, 1000, peer.key)]);
    }
    own.send(1000);
    own.rig.card.pump();
    let first = own.rig.card.outbox.pop_front().expect("a packet");
    peer.rig.card.receive(&first);
    peer.break_off();
    peer.rig.card.pump();
    peer.rig.card.settle();
    // The receive that a message had begun to fill is flushed. The others stay, and the event of
    // the last WQE comes.
    assert_eq!(peer.outcomes(1), [(0, FLUSHED)]);
    assert_eq!(events(peer), [LAST_WQE]);
    // An error again tells nothing new.
    peer.break_off();
    peer.rig.card.pump();
    peer.rig.card.settle();
    assert_eq!((peer.outcomes(1), events(peer)), (vec![], vec![]));
    let posted = peer.received;
    for side in &mut pair.sides {
        side.reset();
    }
    pair.sides[1].received = posted;
    let setup = Setup { mtu: 256, ..shared() };
    Pair::connect(&mut pair.sides, [setup; 2]);
    let [own, _] = &mut pair.sides;
    own.send(1000);
    own.send(1000);
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [(0, 0), (1, 0)]);
    assert_eq!(pair.sides[1].outcomes(1), [(1, 0), (2, 0)]);
    // After a reset the event comes again.
    pair.sides[1].break_off();
    pair.settle();
    assert_eq!(events(&mut pair.sides[1]), [LAST_WQE]);
}

#[test]
fn a_receive_that_cannot_take_its_message_fails_its_queue_pair_alone() {
    for (key, room, responder, requester) in [
        (0x0dea_d000, 64, LOCAL_PROTECTION, REMOTE_OPERATION),
        (0, 7, LOCAL_LENGTH, INVALID_REQUEST),
    ] {
        let mut pair = Pair::new(shared());
        let [own, peer] = &mut pair.sides;
        let key = if key == 0 { peer.key } else { key };
        peer.receive(&[(0, room, key)]);
        peer.receive(&[(0, 64, peer.key)]);
        own.send(8);
        pair.settle();
        let [own, peer] = &mut pair.sides;
        assert_eq!(own.outcomes(0), [(0, requester)]);
        assert_eq!(peer.outcomes(1), [(0, responder)]);
        assert_eq!(events(peer), [LAST_WQE]);
        let srq = peer.rig.card.objects.srqs.get(peer.srq.expect("shared").0).expect("made");
        assert!(!srq.failed);
    }
}

#[test]
fn a_list_that_leads_nowhere_ends_the_queue_for_all() {
    let mut pair = Pair::new(shared());
    let [own, peer] = &mut pair.sides;
    peer.receive(&[(0, 64, peer.key)]);
    peer.receive(&[(0, 64, peer.key)]);
    let (_, ring, _) = peer.srq.expect("shared");
    peer.rig.write(ring + 2, &RECEIVES.to_be_bytes());
    own.send(8);
    own.send(8);
    pair.settle();
    let [own, peer] = &mut pair.sides;
    assert_eq!(own.outcomes(0), [(0, 0), (1, REMOTE_OPERATION)]);
    assert_eq!(peer.outcomes(1), [(0, 0)]);
    assert_eq!(events(peer), [SRQ_CATASTROPHIC, CATASTROPHIC, LAST_WQE]);
    assert_eq!(peer.state(), State::Error);
}

#[test]
fn a_limit_is_told_of_when_traffic_reaches_it() {
    for setup in [shared(), Setup { service: Service::Uc, ..shared() }] {
        let mut pair = Pair::new(setup);
        let [_, peer] = &mut pair.sides;
        for _ in 0..4 {
            peer.receive(&[(0, 64, peer.key)]);
        }
        let (number, ..) = peer.srq.expect("shared");
        peer.rig.card.arm_srq(number, 3);
        for expected in [&[][..], &[LIMIT], &[], &[]] {
            pair.sides[0].send(8);
            pair.settle();
            assert_eq!(events(&mut pair.sides[1]), expected);
        }
    }
}

#[test]
fn memory_is_looked_for_in_the_domain_of_the_shared_queue() {
    for setup in [shared(), Setup { service: Service::Uc, ..shared() }] {
        let mut pair = Pair::new(setup);
        let [own, peer] = &mut pair.sides;
        let domain = peer.another_pd();
        let pd = mkc::PD.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY);
        let key = peer.another_key(|command| command.set(pd, domain));
        peer.receive(&[(512, 64, peer.key)]);
        peer.receive(&[(1024, 64, key)]);
        let (number, ..) = peer.srq.expect("shared");
        own.put(0, b"whose");
        own.send(5);
        pair.settle();
        let [own, peer] = &mut pair.sides;
        assert_eq!(peer.get(512, 5), b"whose");
        peer.rig.card.objects.srqs.get_mut(number).expect("made").pd = domain;
        own.send(5);
        pair.settle();
        let [_, peer] = &mut pair.sides;
        assert_eq!(peer.get(1024, 5), b"whose");
        assert_eq!(peer.outcomes(1), [(0, 0), (1, 0)]);
    }
}

#[test]
fn datagrams_leave_an_empty_queue_as_it_is() {
    let setup = Setup { shared_receive: true, ..datagrams() };
    let mut pair = Pair::new(setup);
    let post = super::datagram::datagram(&pair, setup, 8);
    pair.sides[0].post(&post);
    pair.settle();
    let [own, peer] = &mut pair.sides;
    assert_eq!(own.outcomes(0), [(0, 0)]);
    assert_eq!(peer.outcomes(1), []);
    peer.receive(&[(0, 64, peer.key)]);
    pair.sides[0].post(&post);
    pair.settle();
    assert_eq!(pair.sides[1].outcomes(1), [(0, 0)]);
    pair.sides[1].break_off();
    pair.settle();
    assert_eq!(events(&mut pair.sides[1]), [LAST_WQE]);
}

#[test]
fn a_queue_pair_names_a_queue_that_is_there() {
    let mut rig = Rig::new();
    let create = rig.create_rmp();
    let srq = rig.number(&create, create_rmp_out::RMPN);
    let field = wq::DBR_ADDR.within(rmpc::WQ).within(mlx5_sys::ifc::create_rmp_in::CTX);
    assert_ne!(field.get(&create.0), 0);
    let cq = rig.cq();
    let other = rig.create_sharing_qp(cq, srq + 1);
    assert!(rig.run(&other).is_err());
    let sharing = rig.create_sharing_qp(cq, srq);
    let qp = rig.number(&sharing, create_qp_out::QPN);
    assert_eq!(rig.card.objects.qps[&qp].shared_receive(), Some(srq));
}
