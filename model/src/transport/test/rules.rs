//! Rules of the InfiniBand specification and of the queue pair's context, one test each. The table
//! in docs/model.md names them.

use std::cell::RefCell;
use std::rc::Rc;

use super::datagram::{datagram, datagrams};
use super::side::{Post, Side};
use super::{Pair, Setup};
use crate::identity::GidEntry;
use crate::object::{Service, State};
use crate::transport::{Parameters, QueuePair};
use crate::wire::{Acknowledge, Aeth, Frame, Header, NakCode, Opcode};

const WRITE: u8 = 0x08;
const WRITE_IMMEDIATE: u8 = 0x09;
const SEND: u8 = 0x0a;
const LOCAL_LENGTH: u8 = 0x01;

/// Headers of the packets that leave a side, in order.
fn listen(pair: &mut Pair, setup: Setup, side: usize) -> Rc<RefCell<Vec<Header>>> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let list = Rc::clone(&seen);
    pair.drop = Box::new(move |from, frame| {
        if from == side {
            let header = Header::decode(setup.link, &frame.0).expect("a packet").0;
            list.borrow_mut().push(header);
        }
        false
    });
    seen
}

#[test]
fn acknowledges_are_requested_as_often_as_the_context_says() {
    // More than half of a window is never sent without a request.
    for (log_ack_frequency, interval) in [(0, 1), (2, 4), (5, 32), (6, 64), (8, 64), (15, 64)] {
        let setup = Setup { mtu: 256, log_ack_frequency, ..Setup::default() };
        let mut pair = Pair::new(setup);
        let seen = listen(&mut pair, setup, 0);
        let [own, peer] = &mut pair.sides;
        own.write_to(0, 256 * 200, peer.key);
        pair.settle();
        assert_eq!(pair.now(), 0, "no timer was needed");
        assert_eq!(pair.sides[0].outcomes(0), [(0, 0)]);
        for (index, header) in seen.borrow().iter().enumerate() {
            let expected = index % interval == interval - 1 || index == 199;
            assert_eq!(header.ack_request, expected, "{log_ack_frequency}: packet {index}");
        }
        assert_eq!(seen.borrow().len(), 200);
    }
}

#[test]
fn an_acknowledge_tells_of_the_posted_receives() {
    for (posted, code) in [(1, 0), (2, 1), (6, 4), (7, 5), (8, 5), (9, 6), (32, 9)] {
        let setup = Setup::default();
        let mut pair = Pair::new(setup);
        let seen = listen(&mut pair, setup, 1);
        let [own, peer] = &mut pair.sides;
        for _ in 0..posted {
            peer.receive(&[(0, 8, peer.key)]);
        }
        own.send(8);
        pair.settle();
        let told: Vec<_> =
            seen.borrow().iter().map(|header| header.aeth.unwrap().syndrome).collect();
        assert_eq!(told, [Acknowledge::Ack(code)], "{posted} receives, one of them used");
    }
    // Receives of a shared queue are no one connection's.
    let setup = Setup { shared_receive: true, ..Setup::default() };
    let mut pair = Pair::new(setup);
    let seen = listen(&mut pair, setup, 1);
    let [own, peer] = &mut pair.sides;
    peer.receive(&[(0, 8, peer.key)]);
    own.send(8);
    pair.settle();
    assert_eq!(seen.borrow()[0].aeth.unwrap().syndrome, Acknowledge::Ack(31));
}

#[test]
fn a_send_waits_for_a_receive_that_the_peer_has_told_of() {
    let setup = Setup { rnr_timer: 12, ..Setup::default() };
    let mut pair = Pair::new(setup);
    let seen = listen(&mut pair, setup, 0);
    let [own, peer] = &mut pair.sides;
    peer.receive(&[(0, 8, peer.key)]);
    let send = {
        let mut post = Post::new(SEND);
        post.data = vec![(0, 8, own.key)];
        post
    };
    for _ in 0..5 {
        own.write(&send);
    }
    own.ring(4);
    pair.settle();
    // The first is answered with no further receive; one message beyond that may be tried.
    let sent = |seen: &RefCell<Vec<Header>>| seen.borrow().iter().map(|h| h.psn).max().unwrap();
    assert_eq!(sent(&seen), 0x123 + 1, "two of five were sent");
    // WRITEs take no receive: those before a SEND wait for nothing.
    assert_eq!(pair.sides[0].outcomes(0), [(0, 0)]);
    let peer = &mut pair.sides[1];
    for _ in 0..4 {
        peer.receive(&[(0, 8, peer.key)]);
    }
    assert!(pair.tick().is_some(), "the peer asked to wait");
    assert_eq!(pair.sides[0].outcomes(0), [(1, 0), (2, 0), (3, 0), (4, 0)]);
    assert_eq!(pair.sides[1].outcomes(1).len(), 5);
}

#[test]
fn a_send_beyond_the_credit_is_one_packet_until_that_is_acknowledged() {
    let setup = Setup { mtu: 256, ..Setup::default() };
    let mut pair = Pair::new(setup);
    let [own, peer] = &mut pair.sides;
    peer.receive(&[(0, 4096, peer.key)]);
    own.send(1024);
    // The peer has told of no receive yet.
    own.rig.card.pump();
    let first = own.rig.card.take_frame().expect("the first packet");
    let header = Header::decode(setup.link, &first.0).unwrap().0;
    assert_eq!((header.opcode, header.ack_request), (Opcode::SendFirst, true));
    assert!(own.rig.card.outbox.is_empty());
    // The acknowledge brings no credit: the message has the only receive.
    peer.rig.card.receive(&first);
    pair.settle();
    assert_eq!(pair.now(), 0, "no timer was needed");
    assert_eq!(pair.sides[0].outcomes(0), [(0, 0)]);
    // With credit, all packets of a message leave at once.
    let [own, peer] = &mut pair.sides;
    for _ in 0..3 {
        peer.receive(&[(0, 4096, peer.key)]);
    }
    own.send(8);
    pair.settle();
    let own = &mut pair.sides[0];
    own.send(1024);
    own.rig.card.pump();
    assert_eq!(own.rig.card.outbox.len(), 4);
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [(1, 0), (2, 0)]);
}

#[test]
fn a_write_with_immediate_beyond_the_credit_is_sent_whole() {
    let setup = Setup { mtu: 256, ..Setup::default() };
    let mut pair = Pair::new(setup);
    let [own, peer] = &mut pair.sides;
    peer.receive(&[]);
    let mut write = Post::new(WRITE_IMMEDIATE);
    write.data = vec![(0, 1024, own.key)];
    write.remote = (Side::address(0), peer.key);
    own.post(&write);
    own.post(&write);
    own.rig.card.pump();
    assert_eq!(own.rig.card.outbox.len(), 4, "the second message waits");
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [(0, 0)]);
    pair.sides[1].receive(&[]);
    assert!(pair.run(4, |pair| pair.sides[0].outcomes(0) == [(1, 0)]));
}

#[test]
fn messages_without_a_receive_leave_the_credit_as_it_is() {
    let setup = Setup::default();
    let mut pair = Pair::new(setup);
    let [own, peer] = &mut pair.sides;
    for _ in 0..3 {
        peer.receive(&[(0, 8, peer.key)]);
    }
    own.send(8);
    pair.settle();
    // Two receives are left, so two SENDs may go, and a third is tried.
    let [own, peer] = &mut pair.sides;
    let mut write = Post::new(WRITE);
    write.data = vec![(0, 8, own.key)];
    write.remote = (Side::address(0), peer.key);
    let mut send = Post::new(SEND);
    send.data = vec![(0, 8, own.key)];
    for _ in 0..5 {
        own.write(&write);
    }
    for _ in 0..4 {
        own.write(&send);
    }
    own.ring(9);
    own.rig.card.pump();
    assert_eq!(own.rig.card.outbox.len(), 5 + 3);
    pair.settle();
    for _ in 0..2 {
        let peer = &mut pair.sides[1];
        peer.receive(&[(0, 8, peer.key)]);
    }
    assert!(pair.run(4, |pair| pair.sides[0].outcomes(0).last() == Some(&(9, 0))));
}

#[test]
fn messages_without_a_receive_need_no_credit() {
    let setup = Setup::default();
    let mut pair = Pair::new(setup);
    let seen = listen(&mut pair, setup, 0);
    let [own, peer] = &mut pair.sides;
    let mut write = Post::new(WRITE);
    write.data = vec![(0, 8, own.key)];
    write.remote = (Side::address(0), peer.key);
    for _ in 0..10 {
        own.write(&write);
    }
    own.ring(9);
    own.rig.card.pump();
    assert_eq!(own.rig.card.outbox.len(), 10);
    pair.settle();
    assert_eq!((pair.sides[0].outcomes(0).len(), seen.borrow().len()), (10, 10));
}

#[test]
fn atomics_have_the_sizes_that_the_mode_allows() {
    const INVALID_REQUEST: u8 = 0x12;
    for (atomic_mode, allowed) in
        [(1, &[8][..]), (2, &[8]), (3, &[4, 8]), (4, &[4, 8, 16]), (5, &[4, 8, 16, 32])]
    {
        for size in [4u32, 8, 16, 32] {
            let mut pair = Pair::new(Setup { atomic_mode, ..Setup::default() });
            let key = pair.sides[1].key;
            let [own, _] = &mut pair.sides;
            own.post(&super::extended::masked(own, key, (size, 0, 64), &[1, 0]));
            pair.settle();
            let syndrome = if allowed.contains(&size) { 0 } else { INVALID_REQUEST };
            let context = format!("mode {atomic_mode}, {size} bytes");
            assert_eq!(pair.sides[0].outcomes(0), [(0, syndrome)], "{context}");
        }
        let mut pair = Pair::new(Setup { atomic_mode, ..Setup::default() });
        let [own, peer] = &mut pair.sides;
        let mut add = Post::new(0x12);
        add.data = vec![(64, 8, own.key)];
        add.remote = (Side::address(0), peer.key);
        add.operands = (3, 0);
        own.post(&add);
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), [(0, 0)], "InfiniBand's own, mode {atomic_mode}");
    }
}

/// Devices take them all (evidence E148). Which bytes they write was not told.
#[test]
fn memory_of_any_length_takes_the_answer_of_an_atomic() {
    const OLD: u64 = 0x8877_6655_4433_2211;
    let lists: [&[(u64, u32)]; 5] =
        [&[(0, 8)], &[(0, 7)], &[(0, 16)], &[(0, 3), (100, 5)], &[(0, 4), (100, 40)]];
    for (opcode, new) in [(0x11, 5), (0x12, OLD + 5)] {
        for list in lists {
            let mut pair = Pair::new(Setup::default());
            let [own, peer] = &mut pair.sides;
            own.put(0, &[0xee; 200]);
            peer.put(64, &OLD.to_le_bytes());
            let mut post = Post::new(opcode);
            post.data = list.iter().map(|(offset, length)| (*offset, *length, own.key)).collect();
            post.remote = (Side::address(64), peer.key);
            post.operands = (5, OLD);
            own.post(&post);
            pair.settle();
            let [own, peer] = &mut pair.sides;
            let cqe = own.poll(0).expect("a completion");
            assert_eq!((cqe.syndrome, cqe.length), (0, 8), "{list:?}");
            assert_eq!(peer.get(64, 8), new.to_le_bytes());
            let mut expected = [0xee; 200];
            let mut answer = OLD.to_le_bytes().into_iter();
            for (offset, length) in list {
                let piece = *offset as usize..*offset as usize + *length as usize;
                expected[piece].iter_mut().zip(&mut answer).for_each(|(to, byte)| *to = byte);
            }
            assert_eq!(own.get(0, 200), expected, "{list:?}");
        }
    }
}

#[test]
fn a_strong_fence_waits_for_all_before_it() {
    const FENCE: u8 = 2;
    const STRONG: u8 = 3;
    for (fence, packets) in [(0, 2), (FENCE, 2), (STRONG, 1)] {
        let mut pair = Pair::new(Setup::default());
        let [own, peer] = &mut pair.sides;
        let mut write = Post::new(WRITE);
        write.data = vec![(0, 8, own.key)];
        write.remote = (Side::address(0), peer.key);
        own.write(&write);
        write.fence = fence;
        own.post(&write);
        own.rig.card.pump();
        assert_eq!(own.rig.card.outbox.len(), packets, "fence {fence}");
        pair.settle();
        assert_eq!(pair.now(), 0);
        assert_eq!(pair.sides[0].outcomes(0), [(0, 0), (1, 0)]);
    }
    // Nothing before it is nothing to wait for, also behind a NOP.
    let mut pair = Pair::new(Setup::default());
    let [own, peer] = &mut pair.sides;
    own.write(&Post::new(0));
    let mut write = Post::new(WRITE);
    write.data = vec![(0, 8, own.key)];
    write.remote = (Side::address(0), peer.key);
    write.fence = STRONG;
    own.post(&write);
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [(0, 0), (1, 0)]);
}

#[test]
fn a_message_limit_of_zero_is_one_byte_everywhere() {
    for service in [Service::Rc, Service::Uc] {
        let setup = Setup { service, log_message: 0, ..Setup::default() };
        let mut pair = Pair::new(setup);
        let [own, peer] = &mut pair.sides;
        let qp = &own.rig.card.objects.qps[&own.qp];
        assert_eq!(Parameters::of(qp, &own.rig.card.identity).message, 1);
        assert_eq!(qp.longest_message(), 1);
        let one = own.write_to(0, 1, peer.key);
        let two = own.write_to(0, 2, peer.key);
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), [(one, 0), (two, LOCAL_LENGTH)]);
    }
}

#[test]
fn a_global_header_has_to_name_the_port() {
    let setup = Setup { grh: true, ..datagrams() };
    for spoiled in [false, true] {
        let mut pair = Pair::new(setup);
        let mut post = datagram(&pair, setup, 8);
        if spoiled {
            *post.address.last_mut().unwrap() ^= 0x40;
        }
        let [own, peer] = &mut pair.sides;
        peer.receive(&[(0, 64, peer.key)]);
        own.post(&post);
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), [(0, 0)]);
        assert_eq!(pair.sides[1].outcomes(1).is_empty(), spoiled);
        assert_eq!(pair.sides[1].state(), State::Rts);
    }
    // An empty entry of the GID table is no GID.
    let mut pair = Pair::new(setup);
    let mut post = datagram(&pair, setup, 8);
    post.address[32..].fill(0);
    let [own, peer] = &mut pair.sides;
    peer.rig.card.identity.gids.push(GidEntry::default());
    peer.receive(&[(0, 64, peer.key)]);
    own.post(&post);
    pair.settle();
    assert_eq!(pair.sides[1].outcomes(1), []);
}

/// Takes the packet with which an initiator connects from the wire.
fn connect(pair: &mut Pair, target: u32) -> Header {
    let seen = listen(pair, super::dynamic::setup(), 0);
    let post = super::dynamic::request(pair, WRITE, 8, target);
    let index = pair.sides[0].post(&post);
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [(index, 0)]);
    let header = seen.borrow()[0];
    assert_eq!(header.opcode, crate::wire::Opcode::Connect);
    header
}

fn connections(pair: &Pair, target: u32) -> Vec<u32> {
    let qp = &pair.sides[1].rig.card.objects.qps[&target];
    QueuePair::of(qp).unwrap().connections().ids().collect()
}

#[test]
fn a_connect_with_a_wrong_key_leaves_the_connection_that_is_there() {
    let (mut pair, target) = super::dynamic::pair(super::dynamic::setup());
    let mut forged = connect(&mut pair, target);
    let before = connections(&pair, target);
    let dynamic = forged.dynamic.as_mut().unwrap();
    (dynamic.key, dynamic.connection) = (dynamic.key ^ 1, dynamic.connection ^ 1);
    let card = &mut pair.sides[1].rig.card;
    card.receive(&forged.bare());
    card.pump();
    let answer = card.take_frame().expect("it is told");
    let answer = Header::decode(crate::card::Link::InfiniBand, &answer.0).unwrap().0;
    assert_eq!(answer.aeth.unwrap().syndrome, Acknowledge::Nak(NakCode::InvalidRequest));
    assert_eq!(answer.dynamic.unwrap().connection, forged.dynamic.unwrap().connection);
    assert_eq!(connections(&pair, target), before);
    let seen = listen(&mut pair, super::dynamic::setup(), 0);
    let post = super::dynamic::request(&pair, WRITE, 8, target);
    let index = pair.sides[0].post(&post);
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [(index, 0)]);
    assert_eq!(seen.borrow().len(), 1, "it need not connect again");
}

#[test]
fn wrong_keys_take_no_room_and_connections_expire() {
    let (mut pair, target) = super::dynamic::pair(super::dynamic::setup());
    let first = connect(&mut pair, target);
    let from = |source: u32, key: u64| {
        let mut header = first;
        let dynamic = header.dynamic.as_mut().unwrap();
        (dynamic.source, dynamic.connection) = (source, source);
        dynamic.key ^= key;
        header.bare()
    };
    let card = &mut pair.sides[1].rig.card;
    for source in 0..100 {
        card.receive(&from(0x4000 + source, 1));
    }
    assert_eq!(connections(&pair, target).len(), 1);
    let card = &mut pair.sides[1].rig.card;
    for source in 0..100 {
        card.receive(&from(0x4000 + source, 0));
        while card.pump() {}
        card.outbox.clear();
    }
    assert_eq!(connections(&pair, target).len(), 101);
    // One of them is heard of again; nothing is heard of the others.
    let card = &mut pair.sides[1].rig.card;
    card.clock.advance(20 * crate::transport::rc::IDLE);
    card.receive(&from(0x4000, 0));
    while card.pump() {}
    card.clock.advance(11 * crate::transport::rc::IDLE);
    card.receive(&from(0x5000, 0));
    let mut left = connections(&pair, target);
    left.sort_unstable();
    assert_eq!(left, [0x4000, 0x5000]);
}

#[test]
fn an_initiator_with_nothing_to_send_gives_its_connection_up() {
    let (mut pair, target) = super::dynamic::pair(super::dynamic::setup());
    connect(&mut pair, target);
    assert_eq!(connections(&pair, target).len(), 1);
    while pair.tick().is_some() {}
    assert_eq!(pair.now(), crate::transport::rc::IDLE);
    assert_eq!(connections(&pair, target), []);
    connect(&mut pair, target);
    assert_eq!(connections(&pair, target).len(), 1);
}

/// Takes the packets that a side has to send.
fn sent(side: &mut Side) -> Vec<Frame> {
    side.rig.card.pump();
    std::iter::from_fn(|| side.rig.card.take_frame()).collect()
}

#[test]
fn a_duplicate_is_acknowledged_with_the_newest_psn() {
    let setup = Setup::default();
    let header = |frame: &Frame| Header::decode(setup.link, &frame.0).expect("a packet").0;
    let mut pair = Pair::new(setup);
    let [own, peer] = &mut pair.sides;
    for _ in 0..3 {
        own.write_to(0, 8, peer.key);
    }
    let writes = sent(own);
    let repeated = |pair: &mut Pair| {
        let card = &mut pair.sides[1].rig.card;
        writes.iter().for_each(|frame| card.receive(frame));
        pair.settle();
        let peer = &mut pair.sides[1];
        peer.rig.card.receive(&writes[0]);
        let replies: Vec<Header> = sent(peer).iter().map(header).collect();
        assert_eq!(replies.len(), 1, "{replies:?}");
        assert_eq!(replies[0].opcode, Opcode::Acknowledge);
        replies[0].psn
    };
    assert_eq!(repeated(&mut pair), header(&writes[2]).psn);
    // The acknowledge of a READ behind the duplicate is its answer.
    let [own, peer] = &mut pair.sides;
    let mut read = Post::new(0x10);
    read.data = vec![(0, 8, own.key)];
    read.remote = (Side::address(0), peer.key);
    own.post(&read);
    pair.settle();
    assert_eq!(repeated(&mut pair), header(&writes[0]).psn);
}

#[test]
fn copies_of_a_nak_use_up_one_retry() {
    let mut pair = Pair::new(Setup { retries: 1, ..Setup::default() });
    let [own, peer] = &mut pair.sides;
    own.write_to(0, 8, peer.key);
    own.write_to(0, 8, peer.key);
    // The first packet is lost.
    let second = sent(own).pop().expect("the second packet");
    peer.rig.card.receive(&second);
    let nak = sent(peer).pop().expect("a NAK");
    for _ in 0..4 {
        own.rig.card.receive(&nak);
    }
    pair.settle();
    assert_eq!(pair.now(), 0, "no timer was needed");
    assert_eq!(pair.sides[0].outcomes(0), [(0, 0), (1, 0)]);
}

/// In messages of 100 packets, the time was the same for each (evidence E124).
#[test]
fn a_gap_is_noticed_with_the_next_packet_wherever_it_is() {
    let setup = Setup { mtu: 256, ..Setup::default() };
    let header = |frame: &Frame| Header::decode(setup.link, &frame.0).expect("a packet").0;
    for gap in (0..99).step_by(7) {
        let mut pair = Pair::new(setup);
        let [own, peer] = &mut pair.sides;
        own.write_to(0, 100 * setup.mtu, peer.key);
        let packets = [sent(own), sent(own)].concat();
        assert_eq!(packets.len(), 100);
        packets[..gap].iter().for_each(|frame| peer.rig.card.receive(frame));
        sent(peer);
        peer.rig.card.receive(&packets[gap + 1]);
        let nak = sent(peer).pop().expect("a NAK");
        let syndrome = header(&nak).aeth.map(|aeth| aeth.syndrome);
        assert_eq!(syndrome, Some(Acknowledge::Nak(NakCode::Sequence)));
        own.rig.card.receive(&nak);
        assert_eq!(header(&sent(own)[0]).psn, header(&packets[gap]).psn);
    }
}

#[test]
fn a_read_response_out_of_its_place_is_a_bad_response() {
    const BAD_RESPONSE: u8 = 0x10;
    let setup = Setup { mtu: 256, ..Setup::default() };
    // The packet of the response that is another one, and its opcode then.
    for (wrong, opcode) in [
        (0, Opcode::ReadResponseMiddle),
        (1, Opcode::ReadResponseFirst),
        (2, Opcode::ReadResponseOnly),
    ] {
        let mut pair = Pair::new(setup);
        let [own, peer] = &mut pair.sides;
        let mut read = Post::new(0x10);
        read.data = vec![(0, 768, own.key)];
        read.remote = (Side::address(0), peer.key);
        own.post(&read);
        let request = sent(own).pop().expect("a request");
        peer.rig.card.receive(&request);
        let mut responses = sent(peer);
        assert_eq!(responses.len(), 3);
        let (mut header, payload) = Header::decode(setup.link, &responses[wrong].0).unwrap();
        let payload = responses[wrong].0[payload].to_vec();
        let aeth = Aeth { syndrome: Acknowledge::Ack(31), msn: 1 };
        (header.opcode, header.aeth) = (opcode, opcode.has_aeth().then_some(aeth));
        let Ok(changed) = header.frame(payload.len(), |to| {
            to.copy_from_slice(&payload);
            Ok::<_, std::convert::Infallible>(())
        });
        responses[wrong] = changed;
        responses.iter().for_each(|frame| own.rig.card.receive(frame));
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), [(0, BAD_RESPONSE)], "{opcode:?}");
    }
}
