//! Tests of congestion: marks, notifications, and the rate that they leave.

use mlx5_sys::ifc::{
    Field, opcode, query_cong_statistics_in, query_cong_statistics_out as statistics,
};

use super::datagram::{datagram, datagrams};
use super::side::Side;
use super::{Pair, Setup};
use crate::card::Link;
use crate::command::test::Command;
use crate::object::Service;
use crate::wire::{Ecn, Frame, Header, Opcode, Route};

/// Nanoseconds between notifications of a port.
const INTERVAL: u64 = 4_000;

fn roce(service: Service) -> Setup {
    Setup { link: Link::Roce, service, mtu: 256, ..Setup::default() }
}

/// The same packet with another header.
fn changed(link: Link, frame: &Frame, change: impl Fn(&mut Header)) -> Frame {
    let (mut header, range) = Header::decode(link, &frame.0).expect("a packet");
    let payload = frame.0[range].to_vec();
    change(&mut header);
    let Ok(frame) = header.frame(payload.len(), |to| {
        to.copy_from_slice(&payload);
        Ok::<_, ()>(())
    }) else {
        unreachable!()
    };
    frame
}

/// The network marks a packet.
fn mark(header: &mut Header) {
    match &mut header.route {
        Route::Ethernet { global, .. } => *global = global.with_ecn(Ecn::Experienced),
        Route::InfiniBand { .. } => header.fecn = true,
    }
}

/// Settles, changing the packets of the first side. Returns the headers of the second side's.
fn settle(pair: &mut Pair, link: Link, change: impl Fn(&mut Header)) -> Vec<Header> {
    let mut answers = Vec::new();
    loop {
        let mut busy = false;
        for index in 0..2 {
            let card = &mut pair.sides[index].rig.card;
            busy |= card.pump();
            if let Some(frame) = card.take_frame() {
                busy = true;
                let frame = match index {
                    0 => changed(link, &frame, &change),
                    _ => {
                        answers.push(Header::decode(link, &frame.0).expect("a packet").0);
                        frame
                    }
                };
                pair.sides[1 - index].rig.card.receive(&frame);
            }
            busy |= pair.sides[index].rig.card.settle();
        }
        if !busy {
            return answers;
        }
    }
}

fn advance(pair: &mut Pair, nanoseconds: u64) {
    for side in &mut pair.sides {
        side.rig.card.clock.advance(nanoseconds);
        side.rig.card.expire();
    }
}

/// Sends messages of one packet.
fn request(pair: &mut Pair, setup: Setup, messages: usize) {
    for _ in 0..messages {
        if setup.service == Service::Ud {
            let post = datagram(pair, setup, 8);
            pair.sides[0].post(&post);
        } else {
            let [own, peer] = &mut pair.sides;
            own.write_to(0, 8, peer.key);
        }
    }
}

fn notifications(answers: &[Header]) -> Vec<Header> {
    let all = answers.iter().filter(|header| header.opcode == Opcode::CongestionNotification);
    all.copied().collect()
}

#[test]
fn a_marked_packet_is_answered_by_one_notification_an_interval() {
    for setup in [roce(Service::Rc), roce(Service::Uc), Setup { link: Link::Roce, ..datagrams() }] {
        let mut pair = Pair::new(setup);
        request(&mut pair, setup, 3);
        assert_eq!(notifications(&settle(&mut pair, setup.link, |_| ())), []);
        assert_eq!(pair.sides[1].rig.card.congestion, Default::default());
        request(&mut pair, setup, 3);
        let told = notifications(&settle(&mut pair, setup.link, mark));
        let [header] = told[..] else { panic!("{told:?}") };
        let Route::Ethernet { global, .. } = header.route else { panic!("{header:?}") };
        assert!(header.becn && !header.fecn && !header.ack_request);
        assert_eq!((header.destination, header.psn), (pair.sides[0].qp, 0));
        assert_eq!(global.traffic_class, 48 << 2);
        assert_eq!(global.destination, pair.sides[0].rig.card.identity.gids[0].gid);
        advance(&mut pair, INTERVAL - 1);
        request(&mut pair, setup, 1);
        assert_eq!(notifications(&settle(&mut pair, setup.link, mark)), []);
        advance(&mut pair, INTERVAL);
        request(&mut pair, setup, 1);
        assert_eq!(notifications(&settle(&mut pair, setup.link, mark)).len(), 1);
        let counts = pair.sides[1].rig.card.congestion;
        assert_eq!((counts.sent, counts.handled, counts.ignored), (2, 0, 0));
        assert!(counts.marked > counts.sent);
        let counts = pair.sides[0].rig.card.congestion;
        assert_eq!((counts.sent, counts.handled, counts.ignored), (0, 2, 0));
    }
}

#[test]
fn a_notification_is_opcode_0x81_and_sixteen_zeroes() {
    let setup = roce(Service::Rc);
    let mut pair = Pair::new(setup);
    request(&mut pair, setup, 1);
    let card = &mut pair.sides[0].rig.card;
    card.pump();
    let frame = changed(setup.link, &card.take_frame().unwrap(), mark);
    let card = &mut pair.sides[1].rig.card;
    card.receive(&frame);
    let frame = card.take_frame().expect("it leaves before the acknowledge");
    let (header, payload) = Header::decode(setup.link, &frame.0).unwrap();
    let transport = payload.start - 12;
    assert_eq!(frame.0[transport], 0x81);
    assert_eq!(frame.0[transport + 4], 0x40, "BECN");
    assert_eq!(frame.0[payload], [0; 16]);
    assert_eq!(header.opcode, Opcode::CongestionNotification);
}

#[test]
fn senders_on_ethernet_say_that_they_react() {
    let setup = roce(Service::Rc);
    let mut pair = Pair::new(setup);
    request(&mut pair, setup, 1);
    let card = &mut pair.sides[0].rig.card;
    card.pump();
    let header = Header::decode(setup.link, &card.take_frame().unwrap().0).unwrap().0;
    let Route::Ethernet { global, .. } = header.route else { panic!("{header:?}") };
    assert_eq!(global.traffic_class & 3, Ecn::Capable as u8);
}

/// Slows the first side down as far as it goes.
fn slow(pair: &mut Pair, setup: Setup) {
    for _ in 0..40 {
        request(pair, setup, 1);
        settle(pair, setup.link, mark);
        advance(pair, 2 * INTERVAL);
        // A slow queue pair needs longer than the interval for a packet.
        settle(pair, setup.link, mark);
    }
    pair.sides[0].drain(0);
}

/// Returns the time that a message of `packets` packets takes.
fn time(pair: &mut Pair, packets: u32) -> u64 {
    let [own, peer] = &mut pair.sides;
    let start = own.rig.card.clock.now();
    let index = own.write_to(0, packets * 256, peer.key);
    assert!(pair.run(200, |pair| pair.sides[0].outcomes(0).last() == Some(&(index, 0))));
    pair.now() - start
}

#[test]
fn a_sender_that_is_told_of_congestion_slows_down_and_recovers() {
    for service in [Service::Rc, Service::Uc] {
        let setup = roce(service);
        let mut pair = Pair::new(setup);
        assert_eq!(time(&mut pair, 20), 0);
        slow(&mut pair, setup);
        let slowed = time(&mut pair, 20);
        assert!((100_000..100_000_000).contains(&slowed), "{service:?}: {slowed} ns");
        advance(&mut pair, 10_000_000_000);
        assert_eq!(time(&mut pair, 20), 0, "{service:?}");
    }
}

/// Measured on ConnectX-5: each queue pair sends at the rate that the port has for the destination.
#[test]
fn another_queue_pair_to_the_same_destination_obeys_the_rate() {
    for service in [Service::Rc, Service::Uc] {
        let setup = roce(service);
        let mut pair = Pair::new(setup);
        slow(&mut pair, setup);
        // A queue pair that starts anew has heard of no congestion.
        pair.sides.iter_mut().for_each(Side::reset);
        Pair::connect(&mut pair.sides, [setup; 2]);
        let slowed = time(&mut pair, 20);
        assert!(slowed > 100_000, "{service:?}: {slowed} ns");
    }
}

#[test]
fn a_slow_sender_still_answers() {
    let setup = roce(Service::Rc);
    let mut pair = Pair::new(setup);
    for _ in 0..40 {
        request(&mut pair, setup, 1);
        settle(&mut pair, setup.link, mark);
        advance(&mut pair, INTERVAL);
    }
    let [own, peer] = &mut pair.sides;
    own.drain(0);
    let now = peer.rig.card.clock.now();
    peer.write_to(0, 256 * 40, own.key);
    pair.settle();
    assert_eq!((pair.sides[1].outcomes(0), pair.now()), (vec![(0, 0)], now));
}

#[test]
fn a_mark_of_infiniband_comes_back_in_the_next_response() {
    let setup = Setup { mtu: 256, ..Setup::default() };
    let mut pair = Pair::new(setup);
    request(&mut pair, setup, 1);
    let answers = settle(&mut pair, setup.link, mark);
    assert_eq!(answers.iter().map(|header| header.becn).collect::<Vec<_>>(), [true]);
    request(&mut pair, setup, 1);
    let answers = settle(&mut pair, setup.link, |_| ());
    assert_eq!(answers.iter().map(|header| header.becn).collect::<Vec<_>>(), [false]);
    slow(&mut pair, setup);
    assert!(time(&mut pair, 20) > 100_000);
    let counts = pair.sides[1].rig.card.congestion;
    assert_eq!(counts, Default::default(), "these counters are of Ethernet");
}

/// Measured on ConnectX-5 and -6 Dx: the interval is the port's.
#[test]
fn senders_at_two_addresses_share_the_interval() {
    let setup = Setup { link: Link::Roce, ..datagrams() };
    let mut pair = Pair::new(setup);
    let post = datagram(&pair, setup, 8);
    pair.sides[0].post(&post);
    pair.sides[0].rig.card.pump();
    let sent = pair.sides[0].rig.card.take_frame().expect("a packet");
    let key = pair.sides[1].key;
    pair.sides[1].receive(&[(0, 512, key); 4]);
    let receiver = &mut pair.sides[1].rig.card;
    let from = |last: u8| {
        changed(Link::Roce, &sent, |header| {
            mark(header);
            let Route::Ethernet { global, .. } = &mut header.route else { unreachable!() };
            global.source[15] = last;
        })
    };
    for (index, sent) in [(77, 1), (78, 1)] {
        receiver.receive(&from(index));
        assert_eq!(receiver.congestion.sent, sent);
    }
    receiver.clock.advance(10_000);
    receiver.receive(&from(78));
    receiver.receive(&from(77));
    assert_eq!((receiver.congestion.marked, receiver.congestion.sent), (4, 2));
}

#[test]
fn a_notification_for_nobody_is_counted() {
    let setup = roce(Service::Rc);
    let mut pair = Pair::new(setup);
    request(&mut pair, setup, 1);
    let told = notifications(&settle(&mut pair, setup.link, mark))[0];
    let card = &mut pair.sides[0].rig.card;
    let handled = card.congestion.handled;
    for stranger in [
        Header { destination: told.destination ^ 0x10, ..told },
        Header { p_key: 0x1234, ..told },
        Header { route: told.route.reverse(), ..told },
    ] {
        card.receive(&stranger.bare());
    }
    // The last one is for the other port.
    assert_eq!((card.congestion.handled, card.congestion.ignored), (handled, 2));
}

#[test]
fn a_marked_multicast_is_only_counted() {
    let setup = Setup { link: Link::Roce, ..datagrams() };
    let mut pair = Pair::new(setup);
    let mut post = datagram(&pair, setup, 8);
    let group = [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
    post.address[9..12].fill(0xff);
    post.address[20..26].copy_from_slice(&crate::wire::mac(&group));
    post.address[32..].copy_from_slice(&group);
    let peer = &mut pair.sides[1];
    let mut attach = Command::new(opcode::ATTACH_TO_MCG, 0x20)
        .set(mlx5_sys::ifc::attach_to_mcg_in::QPN, peer.qp);
    attach.0[0x10..].copy_from_slice(&group);
    peer.rig.run(&attach).expect("attached");
    peer.receive(&[(0, 64, peer.key)]);
    pair.sides[0].post(&post);
    assert_eq!(settle(&mut pair, setup.link, mark), []);
    assert_eq!(pair.sides[1].outcomes(1).len(), 1);
    let counts = pair.sides[1].rig.card.congestion;
    assert_eq!((counts.marked, counts.sent), (1, 0));
}

#[test]
fn a_command_tells_of_congestion() {
    let setup = roce(Service::Rc);
    let mut pair = Pair::new(setup);
    request(&mut pair, setup, 3);
    settle(&mut pair, setup.link, mark);
    let query = Command::new(opcode::QUERY_CONG_STATISTICS, 0x10);
    let ask = |side: &mut Side, command: &Command| {
        let reply = side.rig.run(command).unwrap();
        let get = |field: Field| field.get(&reply);
        [
            get(statistics::NP_ECN_MARKED_ROCE_PACKETS_LOW),
            get(statistics::NP_CNP_SENT_LOW),
            get(statistics::RP_CNP_HANDLED_LOW),
            get(statistics::RP_CNP_IGNORED_LOW),
        ]
    };
    let [own, peer] = &mut pair.sides;
    let [marked, sent, handled, ignored] = ask(peer, &query);
    assert!(marked > 0);
    assert_eq!((sent, handled, ignored), (1, 0, 0));
    assert_eq!(ask(own, &query), [0, 0, 1, 0]);
    let clear = query.clone().set(query_cong_statistics_in::CLEAR, 1u64);
    assert_eq!(ask(own, &clear), [0, 0, 1, 0]);
    assert_eq!(ask(own, &query), [0; 4]);
}
