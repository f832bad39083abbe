//! Tests of error counters: each error is counted on the side and under the name that devices use.

use mlx5_sys::ifc::{
    Field, alloc_q_counter_out, opcode, qpc, query_q_counter_in, query_q_counter_out as counter,
};

use super::datagram::{datagram, datagrams};
use super::side::{Post, Side};
use super::{Pair, Setup};
use crate::command::test::Command;
use crate::object::{Service, State};

/// A pair each of whose sides counts in a set of its own; the sets' numbers.
fn counted(setup: Setup) -> (Pair, [u32; 2]) {
    let mut pair = Pair::new(setup);
    let sets = sets(&mut pair);
    (pair, sets)
}

/// Gives each side a set of its own to count in; the sets' numbers.
pub(super) fn sets(pair: &mut Pair) -> [u32; 2] {
    [0, 1].map(|side: usize| {
        let side = &mut pair.sides[side];
        let alloc = Command::new(opcode::ALLOC_Q_COUNTER, 0x10);
        let set = side.rig.number(&alloc, alloc_q_counter_out::COUNTER_SET_ID);
        let qp = side.rig.card.objects.qps.get_mut(&side.qp).unwrap();
        qpc::COUNTER_SET_ID.set(&mut qp.context[..], set.into());
        set
    })
}

/// All counters of a side that are not zero, by name.
pub(super) fn counts(side: &mut Side, set: u32) -> Vec<(&'static str, u64)> {
    let query =
        Command::new(opcode::QUERY_Q_COUNTER, 0x20).set(query_q_counter_in::COUNTER_SET_ID, set);
    let reply = side.rig.run(&query).unwrap();
    let fields = counter::FIELDS.iter().skip(2);
    let all = fields.map(|(name, field): &(&str, Field)| (*name, field.get(&reply)));
    all.filter(|(_, count)| *count != 0).collect()
}

fn both(pair: &mut Pair, sets: [u32; 2]) -> [Vec<(&'static str, u64)>; 2] {
    [0, 1].map(|side: usize| counts(&mut pair.sides[side], sets[side]))
}

fn read(own: u32, offset: u64, length: u32, key: u32) -> Post {
    let mut post = Post::new(0x10);
    post.data = vec![(0, length, own)];
    post.remote = (Side::address(offset), key);
    post
}

#[test]
fn requests_are_counted_where_they_arrive() {
    let (mut pair, sets) = counted(Setup { mtu: 256, ..Setup::default() });
    let [own, peer] = &mut pair.sides;
    own.write_to(0, 1000, peer.key);
    own.write_to(0, 8, peer.key);
    own.post(&read(own.key, 0, 1000, peer.key));
    let mut add = Post::new(0x12);
    (add.data, add.remote) = (vec![(0, 8, own.key)], (Side::address(0), peer.key));
    own.post(&add);
    own.post(&add);
    own.post(&add);
    pair.settle();
    let arrived =
        vec![("RX_WRITE_REQUESTS", 2), ("RX_READ_REQUESTS", 1), ("RX_ATOMIC_REQUESTS", 3)];
    assert_eq!(both(&mut pair, sets), [vec![], arrived.clone()]);
    // Asked for so, they start again; one that names no set is counted nowhere.
    let side = &mut pair.sides[1];
    let clear = Command::new(opcode::QUERY_Q_COUNTER, 0x20)
        .set(query_q_counter_in::COUNTER_SET_ID, sets[1])
        .set(query_q_counter_in::CLEAR, 1u64);
    let reply = side.rig.run(&clear).unwrap();
    assert_eq!(counter::RX_ATOMIC_REQUESTS.get(&reply), 3);
    assert_eq!(counts(side, sets[1]), []);
    let qp = side.rig.card.objects.qps.get_mut(&side.qp).unwrap();
    qpc::COUNTER_SET_ID.set(&mut qp.context[..], 0);
    pair.sides[0].post(&add);
    pair.settle();
    assert_eq!(both(&mut pair, sets), [vec![], vec![]]);
}

#[test]
fn a_receiver_that_is_not_ready_is_counted_on_both_sides() {
    let (mut pair, sets) = counted(Setup::default());
    pair.sides[0].send(8);
    pair.settle();
    assert!(pair.tick().is_some());
    let two = [vec![("RNR_NAK_RETRY_ERR", 2)], vec![("OUT_OF_BUFFER", 2)]];
    assert_eq!(both(&mut pair, sets), two);
}

#[test]
fn an_unreliable_receiver_counts_what_it_has_no_room_for() {
    for setup in [Setup { service: Service::Uc, ..Setup::default() }, datagrams()] {
        let service = setup.service;
        let (mut pair, sets) = counted(setup);
        if service == Service::Ud {
            let post = datagram(&pair, setup, 8);
            pair.sides[0].post(&post);
        } else {
            pair.sides[0].send(8);
        }
        pair.settle();
        assert_eq!(both(&mut pair, sets), [vec![], vec![("OUT_OF_BUFFER", 1)]], "{service:?}");
    }
}

#[test]
fn gaps_and_repetitions_are_counted() {
    // The second of four packets is lost: two come out of sequence, and the NAK asks for it.
    let (mut pair, sets) = counted(Setup { mtu: 256, ..Setup::default() });
    let mut packets = 0;
    pair.drop = Box::new(move |from, _| {
        packets += u32::from(from == 0);
        from == 0 && packets == 2
    });
    let [own, peer] = &mut pair.sides;
    own.write_to(0, 1024, peer.key);
    pair.settle();
    let lost =
        [vec![("PACKET_SEQ_ERR", 1)], vec![("RX_WRITE_REQUESTS", 1), ("OUT_OF_SEQUENCE", 2)]];
    assert_eq!(both(&mut pair, sets), lost);
    // The acknowledge is lost: a timeout, and the same request twice.
    let (mut pair, sets) = counted(Setup::default());
    let mut answers = 0;
    pair.drop = Box::new(move |from, _| {
        answers += u32::from(from == 1);
        from == 1 && answers == 1
    });
    let [own, peer] = &mut pair.sides;
    own.write_to(0, 8, peer.key);
    pair.settle();
    assert!(pair.tick().is_some());
    let repeated = [
        vec![("LOCAL_ACK_TIMEOUT_ERR", 1)],
        vec![("RX_WRITE_REQUESTS", 1), ("DUPLICATE_REQUEST", 1)],
    ];
    assert_eq!(both(&mut pair, sets), repeated);
    // The answer to a READ is lost, the acknowledge of the WRITE after it is not.
    let (mut pair, sets) = counted(Setup::default());
    let mut answers = 0;
    pair.drop = Box::new(move |from, _| {
        answers += u32::from(from == 1);
        from == 1 && answers == 1
    });
    let [own, peer] = &mut pair.sides;
    own.write(&read(own.key, 0, 8, peer.key));
    own.write_to(0, 8, peer.key);
    pair.settle();
    let own = counts(&mut pair.sides[0], sets[0]);
    assert_eq!(own, [("IMPLIED_NAK_SEQ_ERR", 1)]);
}

#[test]
fn errors_are_counted_by_cause() {
    let (mut pair, sets) = counted(Setup::default());
    let [own, peer] = &mut pair.sides;
    peer.receive(&[]);
    own.write_to(0, 8, peer.key ^ 1);
    own.send(8);
    pair.settle();
    assert_eq!(pair.sides[0].state(), State::Error);
    let counted_so = [
        vec![("REQ_CQE_ERROR", 2), ("REQ_REMOTE_ACCESS_ERRORS", 1), ("REQ_CQE_FLUSH_ERROR", 1)],
        // The responder counts no refusal (evidence E061).
        vec![("RX_WRITE_REQUESTS", 1), ("RESP_CQE_ERROR", 1), ("RESP_CQE_FLUSH_ERROR", 1)],
    ];
    assert_eq!(both(&mut pair, sets), counted_so);

    let (mut pair, sets) = counted(Setup::default());
    let [own, peer] = &mut pair.sides;
    peer.receive(&[(0, 4, peer.key)]);
    own.send(8);
    pair.settle();
    let too_long = [
        vec![("REQ_CQE_ERROR", 1), ("REQ_REMOTE_INVALID_REQUEST", 1)],
        vec![("RESP_LOCAL_LENGTH_ERROR", 1), ("RESP_CQE_ERROR", 1)],
    ];
    assert_eq!(both(&mut pair, sets), too_long);

    let (mut pair, sets) = counted(Setup { access: [true, false, true], ..Setup::default() });
    let [own, peer] = &mut pair.sides;
    own.write_to(0, 8, peer.key);
    // Nor a request that it does not grant.
    let bad = [vec![("REQ_CQE_ERROR", 1), ("REQ_REMOTE_INVALID_REQUEST", 1)], vec![]];
    pair.settle();
    assert_eq!(both(&mut pair, sets), bad);

    let (mut pair, sets) = counted(Setup { timeout: 13, retries: 2, ..Setup::default() });
    pair.drop = Box::new(|_, _| true);
    let [own, peer] = &mut pair.sides;
    own.write_to(0, 8, peer.key);
    assert!(pair.run(9, |pair| pair.sides[0].state() == State::Error));
    pair.settle();
    let given_up = vec![
        ("LOCAL_ACK_TIMEOUT_ERR", 2),
        ("REQ_CQE_ERROR", 1),
        ("REQ_TRANSPORT_RETRIES_EXCEEDED", 1),
    ];
    assert_eq!(both(&mut pair, sets), [given_up, vec![]]);

    // Of this side alone: memory, the request itself.
    for (data, opcode, name) in [
        ((0, 8, 0xbad), 0x08, "REQ_LOCAL_PROTECTION"),
        // A length of zero stands for 2 GiB, more than a message may have.
        ((0, 0, 0), 0x08, "REQ_LOCAL_LENGTH_ERROR"),
        ((0, 8, 0), 0x29, "LOCAL_OPERATION_ERROR"),
    ] {
        let (mut pair, sets) = counted(Setup::default());
        let [own, peer] = &mut pair.sides;
        let mut post = Post::new(opcode);
        (post.data, post.remote) = (vec![data], (Side::address(0), peer.key));
        own.post(&post);
        pair.settle();
        let own = counts(&mut pair.sides[0], sets[0]);
        assert!(own.contains(&(name, 1)) && own.contains(&("REQ_CQE_ERROR", 1)), "{own:?}");
        assert_eq!(own.len(), 2);
    }
}
