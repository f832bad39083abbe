//! Tests of the sockets of ports, in one process.

use super::*;
use crate::command::test::identity;
use crate::identity::{GidEntry, Identity};
use crate::wire::Link;

fn network(domain: &str, seed: u64) -> Network {
    Network::new(&format!("{domain}-{}", std::process::id()), seed).unwrap()
}

/// Takes the frames that wait at a listening socket.
fn arrived(listener: &Fd) -> Vec<Frame> {
    let connection = socket::accept(listener).expect("a connection");
    let mut frames = Vec::new();
    let received = Buffers::new().receive(&connection, |frame| frames.push(frame.clone()));
    received.expect("frames");
    frames
}

#[test]
fn frame_reaches_the_process_that_has_a_prefix_after_another_one_ended() {
    let identity = identity(Link::InfiniBand);
    let own = identity.own_address();
    let mut sender = network("prefix", 1);
    let mut ended = network("prefix", 2);
    let prefix = ended.claim(0, &identity).unwrap();
    let to = way(own, u32::from(prefix) << 8);
    let mut send = |byte: u8| {
        sender.send(to, Frame::new(vec![byte; 64]));
        sender.flush(&());
    };
    send(1);
    let name = ended.prefix_name(own, prefix);
    drop(ended);
    let next = socket::listen(&name).unwrap();
    for byte in 2..4 {
        send(byte);
    }
    let frames = arrived(&next);
    assert_eq!(frames.iter().map(|frame| frame.0[0]).collect::<Vec<_>>(), [2, 3]);

    // Nobody has the prefix: frames are lost, and the sender keeps nothing of the peer.
    drop(next);
    sender.send(to, Frame::new(vec![4; 64]));
    sender.flush(&());
    assert!(sender.peers.is_empty());
}

#[test]
fn packets_on_a_connection_do_not_ask_for_the_user() {
    let identity = identity(Link::InfiniBand);
    let mut sender = network("user", 1);
    let mut port = network("user", 2);
    let prefix = port.claim(0, &identity).unwrap();
    let to = way(identity.own_address(), u32::from(prefix) << 8);
    let mut pass = |packets: usize| {
        let before = system::QUESTIONS.get();
        for _ in 0..packets {
            sender.send(to, Frame::new(vec![1; 64]));
            sender.flush(&());
            port.take_in(0, &());
        }
        system::QUESTIONS.get() - before
    };
    assert!(pass(1) > 0, "both ends of a connection check the user");
    assert_eq!(pass(100), 0);
    assert!(port.take_activity().frames > 90, "packets have arrived");
}

#[test]
fn nothing_is_kept_of_a_peer_that_has_ended() {
    let identity = identity(Link::InfiniBand);
    let mut sender = network("ended", 1);
    for seed in 2..5 {
        let mut peer = network("ended", seed);
        let prefix = peer.claim(0, &identity).unwrap();
        sender.send(way(identity.own_address(), u32::from(prefix) << 8), Frame::new(vec![1; 64]));
        sender.flush(&());
        sender.take_in(0, &());
        assert_eq!((sender.peers.len(), sender.sources.len()), (1, 1), "the peer runs");
        drop(peer);
        sender.take_in(0, &());
        assert!(sender.peers.is_empty() && sender.sources.is_empty(), "the peer has ended");
    }
}

#[test]
fn port_is_reached_at_the_addresses_that_it_has_now() {
    const OTHER: [u8; 6] = [2, 9, 9, 9, 9, 9];
    let mut identity = identity(Link::Roce);
    let mut sender = network("addresses", 1);
    let mut port = network("addresses", 2);
    let prefix = port.claim(0, &identity).unwrap();
    let mut reaches = |to: LinkAddress, number: u32| {
        // The result of the last attempt is remembered for some time.
        sender.refused.clear();
        let way = way(to, number);
        sender.send(way, Frame::new(vec![1; 64]));
        sender.peers.remove(&Remote::Process(way)).is_some()
    };
    let number = u32::from(prefix) << 8 | 5;
    let own = identity.own_address();
    let mut check = |port: &mut Network, identity: &Identity, is_other: bool| {
        port.attach(0, identity).unwrap();
        // Its own queue pairs, and the management queue pairs.
        for number in [number, 0, 1] {
            assert!(reaches(own, number));
            assert_eq!(reaches(LinkAddress::Mac(OTHER), number), is_other, "{number:#x}");
        }
        assert!(!reaches(own, number ^ 0x100), "another prefix");
    };
    check(&mut port, &identity, false);
    let other = GidEntry { mac: Some(OTHER), ..GidEntry::default() };
    identity.gids.push(other);
    check(&mut port, &identity, true);
    // A second GID with the same address changes nothing.
    identity.gids.push(other);
    check(&mut port, &identity, true);
    identity.gids.truncate(1);
    check(&mut port, &identity, false);
}

#[test]
fn prefixes_of_two_ports_are_independent() {
    let ports = [7, 8].map(|lid| Identity { lid, ..identity(Link::InfiniBand) });
    let mut sender = network("ports", 1);
    let mut network = network("ports", 2);
    let prefix = network.claim(0, &ports[0]).unwrap();
    let other = ports[1].own_address();
    // The same numbers at the other port are free, and another process takes them.
    let listener = socket::listen(&network.prefix_name(other, prefix)).unwrap();
    sender.send(way(other, u32::from(prefix) << 8), Frame::new(vec![8; 64]));
    sender.flush(&());
    assert_eq!(arrived(&listener), [Frame::new(vec![8; 64])]);
}

#[test]
fn prefix_is_claimed_beside_the_name_that_another_process_has() {
    let identity = identity(Link::InfiniBand);
    let own = identity.own_address();
    let mut network = network("taken", 1);
    let taken = network.claim(0, &identity).unwrap();
    let next = network.claim(0, &identity).unwrap();
    assert_ne!(taken, next);
    let error = socket::listen(&network.prefix_name(own, next)).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
}

#[test]
fn packets_with_ever_new_prefixes_read_few_lists_and_stop_no_peer() {
    let identity = identity(Link::Roce);
    let own = identity.own_address();
    let mut sender = network("flood", 1);
    let mut port = network("flood", 2);
    // A name with a random end, which only the list shows.
    port.attach(0, &identity).unwrap();
    let started = Instant::now();
    for prefix in 1..=2000 {
        sender.send(way(own, prefix << 8), Frame::new(vec![1; 64]));
    }
    let most = 8 + 1 + started.elapsed().as_millis() / 20;
    let read = u128::from(sender.names.read);
    assert!(read <= most, "{read} lists in {:?}", started.elapsed());
    let management = way(own, 1);
    sender.send(management, Frame::new(vec![1; 64]));
    assert!(sender.peers.contains_key(&Remote::Process(management)));
}
