//! Tests of datagrams: destinations, receive completions, drops.

use mlx5_sys::ifc::{opcode, qpc, rst2init_qp_in};

use super::side::{Post, Side};
use super::traffic::noise;
use super::{Pair, Setup};
use crate::card::Link;
use crate::clock::Random;
use crate::object::{Service, State};
use crate::wire::{LinkAddress, Way, mac};

const WRITE: u8 = 0x08;
const SEND: u8 = 0x0a;
const SEND_IMMEDIATE: u8 = 0x0b;
/// CQE opcodes.
const CQE_SEND: u8 = 2;
const CQE_SEND_IMMEDIATE: u8 = 3;

const LOCAL_LENGTH: u8 = 0x01;
const LOCAL_OPERATION: u8 = 0x02;
const LOCAL_PROTECTION: u8 = 0x04;
const FLUSHED: u8 = 0x05;

const KEY: u32 = 0x1111_1111;
/// Offset in the region that receives scatter to.
const TO: u64 = 256 << 10;
/// Bytes in front of a datagram for the global route header.
const GRH: usize = 40;

pub fn datagrams() -> Setup {
    Setup { service: Service::Ud, q_key: KEY, ..Setup::default() }
}

/// The address vector of a side, extended.
fn address(setup: Setup, to: &Side, q_key: u32) -> Vec<u8> {
    let identity = &to.rig.card.identity;
    let gid = identity.gids[0].gid;
    let mut av = vec![0; 48];
    av[..4].copy_from_slice(&q_key.to_be_bytes());
    av[8..12].copy_from_slice(&(1 << 31 | to.qp).to_be_bytes());
    av[12] = if setup.link == Link::Roce { 3 << 1 } else { 3 };
    let lid = if setup.link == Link::Roce { 0xc123 } else { identity.lid };
    av[14..16].copy_from_slice(&lid.to_be_bytes());
    if setup.link == Link::Roce {
        av[20..26].copy_from_slice(&identity.mac);
    }
    if setup.link == Link::Roce || setup.grh {
        (av[26], av[27]) = (0x20, 64);
        av[28..32].copy_from_slice(&(u32::from(setup.grh) << 30 | 0x1_2345).to_be_bytes());
        av[32..].copy_from_slice(&gid);
    }
    av
}

/// A SEND of the region's first bytes to the peer.
pub fn datagram(pair: &Pair, setup: Setup, length: u32) -> Post {
    let [own, peer] = &pair.sides;
    let mut post = Post::new(SEND);
    post.address = address(setup, peer, KEY);
    post.data = vec![(0, length, own.key)];
    post.data.retain(|piece| piece.1 != 0);
    post
}

#[test]
fn datagrams_arrive_behind_the_room_for_their_header() {
    for setup in [
        datagrams(),
        Setup { grh: true, mtu: 4096, ..datagrams() },
        Setup { shared_receive: true, ..datagrams() },
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
                    let gid = |side: &Side| side.rig.card.identity.gids[0].gid;
                    // On Ethernet the sender says that it reacts to congestion.
                    let ecn = if setup.link == Link::Roce { 0x20 } else { 0 };
                    assert_eq!(head[..4], [0x62, 0x01 | ecn, 0x23, 0x45]);
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
        side.rig.card.identity.gids[0].gid = gid;
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

    // On Ethernet, a packet to an address that no port has is lost, whatever its GID is.
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
        // New WQEs are flushed at once, and arriving packets are received.
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
fn a_congested_way_stops_only_those_who_take_it() {
    let setup = datagrams();
    let mut pair = Pair::new(setup);
    let post = datagram(&pair, setup, 8);
    let [own, peer] = &mut pair.sides;
    peer.receive(&[(TO, 100, peer.key)]);
    let to = peer.rig.card.identity.own_address();
    let way = Way { to, first: peer.qp & !0xff, last: peer.qp };
    // Other ways to the same port, and to the same numbers of another port.
    let elsewhere = [
        Way { first: peer.qp + 1, last: peer.qp + 9, ..way },
        Way { to: LinkAddress::Lid(0x77), ..way },
    ];
    elsewhere.iter().for_each(|way| own.rig.card.port.set_congested(*way, true));
    own.post(&post);
    pair.settle();
    let [own, peer] = &mut pair.sides;
    assert_eq!((own.outcomes(0), peer.drain(1).len()), (vec![(0, 0)], 1));
    peer.receive(&[(TO, 100, peer.key)]);
    own.rig.card.port.set_congested(way, true);
    let index = own.post(&post);
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [], "it has not left");
    pair.sides[0].rig.card.port.set_congested(way, false);
    pair.settle();
    let [own, peer] = &mut pair.sides;
    assert_eq!((own.outcomes(0), peer.drain(1).len()), (vec![(index, 0)], 1));
}

/// The address vector of a multicast group.
pub fn group(setup: Setup, to: &Side, lid: u16) -> ([u8; 16], Vec<u8>) {
    let gid = match setup.link {
        Link::InfiniBand => [0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5],
        Link::Roce => [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 1, 1],
    };
    let mut av = address(setup, to, KEY);
    av[8..12].copy_from_slice(&(1 << 31 | crate::wire::MULTICAST).to_be_bytes());
    av[14..16].copy_from_slice(&lid.to_be_bytes());
    if setup.link == Link::Roce {
        av[20..26].copy_from_slice(&mac(&gid));
    }
    av[32..].copy_from_slice(&gid);
    (gid, av)
}

#[test]
fn members_of_a_group_take_what_is_sent_to_it() {
    let infiniband = Setup { grh: true, ..datagrams() };
    for setup in [infiniband, Setup { link: Link::Roce, grh: true, ..datagrams() }] {
        let mut pair = Pair::new(setup);
        let sent = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let seen = sent.clone();
        pair.drop = Box::new(move |_, frame| {
            seen.borrow_mut().push(frame.clone());
            false
        });
        let (gid, av) = group(setup, &pair.sides[1], 0xc007);
        let mut post = datagram(&pair, setup, 8);
        post.address = av;
        pair.sides[0].put(0, b"to group");
        for side in &mut pair.sides {
            let key = side.key;
            side.receive(&[(TO, 100, key)]);
            side.receive(&[(TO, 100, key)]);
        }
        // Not yet a member.
        pair.sides[0].post(&post);
        pair.settle();
        assert_eq!(pair.sides[1].outcomes(1), []);
        for side in &mut pair.sides {
            side.rig.card.objects.groups.attach(gid, side.qp);
        }
        pair.sides[0].post(&post);
        pair.settle();
        let [own, peer] = &mut pair.sides;
        assert_eq!((peer.outcomes(1).len(), peer.get(TO + GRH as u64, 8)), (1, b"to group".into()));
        assert_eq!(peer.get(TO + 24, 16), gid);
        // What comes back is the sender's, too, unless it was made so that it is not.
        let frame = sent.borrow().last().cloned().unwrap();
        for (blocks, copies) in [(1u64, 0), (0, 1)] {
            let context = &mut own.rig.card.objects.qps.get_mut(&own.qp).unwrap().context;
            qpc::BLOCK_LB_MC.set(&mut context[..], blocks);
            own.rig.card.receive(&frame);
            own.rig.card.settle();
            assert_eq!(own.outcomes(1).len(), copies, "{blocks}");
        }
    }
}

#[test]
fn an_infiniband_group_is_named_by_both_its_addresses() {
    let setup = Setup { grh: true, ..datagrams() };
    let mut pair = Pair::new(setup);
    let (gid, _) = group(setup, &pair.sides[1], 0);
    let member = pair.sides[1].qp;
    pair.sides[1].rig.card.objects.groups.attach(gid, member);
    let key = pair.sides[1].key;
    for lid in [7, 0xbfff, 0xffff, 0xc000] {
        pair.sides[1].receive(&[(TO, 100, key)]);
        let mut post = datagram(&pair, setup, 8);
        post.address = group(setup, &pair.sides[1], lid).1;
        pair.sides[0].post(&post);
        pair.settle();
        assert_eq!(pair.sides[1].outcomes(1).len(), usize::from(lid == 0xc000), "{lid:#x}");
    }
    // And without a global route header it is none.
    let mut post = datagram(&pair, setup, 8);
    post.address = group(setup, &pair.sides[1], 0xc000).1;
    post.address[28] &= !0x40;
    pair.sides[0].post(&post);
    pair.settle();
    assert_eq!(pair.sides[1].outcomes(1), []);
}
