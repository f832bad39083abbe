//! What QUERY_QP shows of requests that have landed, on both sides.

use mlx5_sys::ifc::qpc;

use super::Pair;
use super::measured::roce;
use super::side::{Post, REGION, Side};
use crate::card::Timeouts;
use crate::object::State;
use crate::wire::Header;

/// All eight packets are sent, and three arrive. Without an answer, the requester shows what it has sent
/// and not what has landed: in none of 52 runs (evidence E112, E116).
#[test]
fn without_an_answer_a_requester_shows_what_it_has_sent_and_its_peer_what_has_landed() {
    let setup = roce(Timeouts::Measured, 14, 7);
    let [first, mtu] = [setup.psn[0], setup.mtu];
    let mut pair = Pair::new(setup);
    pair.drop = Box::new(move |from, frame| {
        from == 1 || Header::decode(setup.link, &frame.0).expect("a packet").0.psn >= first + 3
    });
    let [own, peer] = &mut pair.sides;
    own.put(0, &[7; 8 << 10]);
    own.write_to(16 << 10, 8 * mtu, peer.key);
    assert!(pair.run(40, |pair| pair.sides[0].state() == State::Error));
    assert_eq!(pair.sides[0].outcomes(0), [(0, 0x15)]);
    let [own, peer] = &mut pair.sides;
    assert_eq!(own.shown(qpc::NEXT_SEND_PSN), first + 8);
    assert_eq!(peer.shown(qpc::NEXT_RCV_PSN), first + 3);
    let landed = 3 * mtu as usize;
    let bytes = peer.get(16 << 10, 8 << 10);
    assert!(bytes[..landed].iter().all(|byte| *byte == 7));
    assert!(bytes[landed..].iter().all(|byte| *byte == 0));
}

/// 28 of 28 (evidence F051): in RTS and in Error.
#[test]
fn the_responder_counts_the_requests_that_it_has_executed() {
    let mut pair = Pair::new(roce(Timeouts::Measured, 14, 7));
    let [own, peer] = &mut pair.sides;
    for length in [8, 5000, 1] {
        own.write_to(0, length, peer.key);
    }
    let mut read = Post::new(0x10);
    (read.data, read.remote) = (vec![(0, 5000, own.key)], (Side::address(0), peer.key));
    own.post(&read);
    pair.settle();
    assert_eq!(pair.sides[1].shown(qpc::RMSN), 4);
    // Two whole packets land of a request that leads out of the region, and it does not count.
    let [own, peer] = &mut pair.sides;
    own.write_to(REGION as u64 - 2048, 4096, peer.key);
    pair.settle();
    let peer = &mut pair.sides[1];
    assert_eq!((peer.state(), peer.shown(qpc::RMSN)), (State::Error, 4));
}
