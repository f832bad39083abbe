//! Tests of sockets on the loopback interface, all of whose addresses any user may bind to.
//!
//! `model/tests/network_programs.rs` runs programs in two network namespaces.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use super::*;
use crate::command::test::Rig;
use crate::fabric::Carrier;
use crate::wire::Opcode;

/// A peer that does not answer within this time never will.
const PATIENCE: Duration = Duration::from_secs(20);

/// An IPv4 address that no other test of this process uses, and most likely no other process.
fn fresh() -> String {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    format!("127.{high}.{low}.{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn gid(address: &str) -> [u8; 16] {
    crate::wire::gid::of_ip(address.parse().unwrap())
}

fn open(address: &str) -> io::Result<Udp> {
    Udp::new(
        &format!("test-{}", std::process::id()),
        &[Interface::find(address, Carrier::Udp).unwrap()],
    )
}

fn global(from: &str, to: &str) -> Global {
    Global {
        // With the mark of an ECN-capable transport, which the network sets.
        traffic_class: 0x6a,
        flow_label: 0,
        hop_limit: 9,
        source: gid(from),
        destination: gid(to),
    }
}

fn frame(global: Global, port: u16, destination: u32, length: usize) -> Frame {
    let [source, destination_mac] = [global.source, global.destination].map(|gid| mac(&gid));
    let port = Some(port);
    let route = Route::Ethernet { source, destination: destination_mac, tag: None, global, port };
    let header = Header::new(route, Opcode::SendOnly, 0xffff, destination, 7);
    let Ok(frame) = header.frame(length, |to| {
        to.iter_mut().zip(1..).for_each(|(byte, n): (_, u32)| *byte = n as u8);
        Ok::<_, ()>(())
    }) else {
        unreachable!()
    };
    frame
}

fn send(from: &mut Udp, global: Global, port: u16, length: usize) -> Frame {
    let frame = frame(global, port, 0x1234, length);
    from.send(&global, port, frame.clone());
    from.flush(&());
    frame
}

/// Waits for a frame.
#[track_caller]
fn receive(udp: &mut Udp) -> (Frame, Option<usize>) {
    let end = Instant::now() + PATIENCE;
    let mut got = Vec::new();
    while got.is_empty() {
        assert!(Instant::now() < end, "nothing arrives");
        udp.receive(&(), &mut |frame, group| got.push((frame.clone(), group)));
        std::thread::yield_now();
    }
    assert_eq!(got.len(), 1, "{got:?}");
    got.remove(0)
}

#[test]
fn frame_arrives_byte_for_byte() {
    let [here, there] = [fresh(), fresh()];
    let [mut one, mut other] = [&here, &there].map(|address| open(address).unwrap());
    for (port, length) in [(0xc001, 0), (0xc001, 1), (0xffff, 4096)] {
        let sent = send(&mut one, global(&here, &there), port, length);
        assert_eq!(receive(&mut other), (sent.clone(), None));
        Header::decode(Link::Roce, &sent.0).unwrap();
    }
}

#[test]
fn ipv6_frame_arrives_byte_for_byte() {
    let mut only = open("::1").unwrap();
    for length in [0, 33, 4096] {
        let sent = send(&mut only, global("::1", "::1"), 0xc123, length);
        let (got, _) = receive(&mut only);
        assert_eq!(got, sent);
    }
}

#[test]
fn processes_that_want_one_source_port_send_right_checksums() {
    let [here, there] = [fresh(), fresh()];
    let [mut one, mut two, mut other] = [&here, &here, &there].map(|a| open(a).unwrap());
    let global = global(&here, &there);
    let first = send(&mut one, global, 0xc0de, 64);
    assert_eq!(receive(&mut other).0, first);
    let second = send(&mut two, global, 0xc0de, 64);
    let (got, _) = receive(&mut other);
    assert_ne!(got, second);
    let (header, range) = Header::decode(Link::Roce, &got.0).expect("a right ICRC");
    let Route::Ethernet { port, .. } = header.route else { panic!("{header:?}") };
    assert!(port >= Some(0xc000) && port != Some(0xc0de), "{port:x?}");
    assert_eq!(got.0[range.clone()], second.0[range]);
}

#[test]
fn flows_are_many_and_sockets_are_few() {
    let [here, there] = [fresh(), fresh()];
    let [mut one, mut other] = [&here, &there].map(|address| open(address).unwrap());
    let mut ports = BTreeSet::new();
    for flow in 0..200 {
        let port = 0xc000 + flow * 37;
        send(&mut one, global(&here, &there), port, 8);
        let (got, _) = receive(&mut other);
        let (header, _) = Header::decode(Link::Roce, &got.0).expect("a right ICRC");
        let Route::Ethernet { port, .. } = header.route else { panic!("{header:?}") };
        ports.insert(port);
    }
    assert_eq!(ports.len(), usize::from(FLOWS));
}

#[test]
fn another_process_takes_over_when_the_receiver_ends() {
    let [here, there] = [fresh(), fresh()];
    let mut from = open(&there).unwrap();
    let shares = [(); 3].map(|()| open(&here).unwrap());
    let receives = |udp: &Udp| matches!(udp.addresses[0].share, Some(Share::Receiver { .. }));
    assert_eq!(shares.each_ref().map(receives), [true, false, false]);
    let mut left: Vec<Udp> = Vec::new();
    let [first, second, third] = shares;
    left.extend([second, third]);
    drop(first);
    while let Some(mut last) = left.pop() {
        let end = Instant::now() + PATIENCE;
        while !receives(&last) && !left.iter().any(receives) {
            assert!(Instant::now() < end, "nobody receives");
            last.receive(&(), &mut |_, _| panic!("nothing was sent"));
        }
        let receiver = left.iter_mut().find(|udp| receives(udp)).unwrap_or(&mut last);
        let sent = send(&mut from, global(&there, &here), 0xc001, 100);
        assert_eq!(receive(receiver).0, sent);
    }
}

#[test]
fn port_of_another_program_is_an_error_that_names_it() {
    let address = fresh();
    let other = UdpSocket::bind((address.as_str(), 4791)).unwrap();
    let error = open(&address).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    let text = error.to_string();
    assert!(
        text.contains(&address) && text.contains("4791") && text.contains("ss -ulpn"),
        "{text}"
    );
    drop(other);
    open(&address).unwrap();
}

#[test]
fn strangers_packets_are_frames_of_bounded_length() {
    let [here, there] = [fresh(), fresh()];
    let mut udp = open(&here).unwrap();
    let stranger = UdpSocket::bind((there.as_str(), 0)).unwrap();
    let mut random = crate::clock::Random::seeded(1);
    // One after the other, since a socket's buffer is not endless.
    for length in [0, 1, 12, 16, 100, 4352] {
        let bytes: Vec<u8> = (0..length).map(|_| random.draw() as u8).collect();
        stranger.send_to(&bytes, (here.as_str(), 4791)).unwrap();
        let (got, _) = receive(&mut udp);
        assert_eq!(got.0.len(), 42 + length);
        assert_eq!(got.0[42..], bytes);
        assert!(Header::decode(Link::Roce, &got.0).is_err());
    }
    stranger.send_to(&[1; 4353], (here.as_str(), 4791)).unwrap();
    stranger.send_to(&[2; 9], (here.as_str(), 4791)).unwrap();
    assert_eq!(receive(&mut udp).0.0[42..], [2; 9], "what is too long is left out");
}

#[test]
fn members_of_a_group_hear_other_machines() {
    let [here, there] = [fresh(), fresh()];
    let [mut from, mut member] = [&here, &there].map(|address| open(address).unwrap());
    for group in ["239.1.2.3", "224.0.0.251"] {
        let mut cards = [Rig::on(Link::Roce).card];
        cards[0].objects.groups.attach(gid(group), 5);
        assert!(member.join(0, &cards[0].objects.groups).is_empty());
        let sent = send(&mut from, global(&here, group), 0xc001, 20);
        assert_eq!(receive(&mut member), (sent, Some(0)));

        // What this machine sends comes another way.
        send(&mut member, global(&there, group), 0xc001, 20);
        let sent = send(&mut from, global(&here, group), 0xc001, 30);
        assert_eq!(receive(&mut member), (sent, Some(0)));

        cards[0].objects.groups.detach(&gid(group), 5);
        assert!(member.join(0, &cards[0].objects.groups).is_empty());
        send(&mut from, global(&here, group), 0xc001, 20);
        let sent = send(&mut from, global(&here, &there), 0xc001, 40);
        assert_eq!(receive(&mut member), (sent, None), "not the group's");
    }
}

#[test]
fn group_that_cannot_be_joined_is_reported_once() {
    let mut udp = open(&fresh()).unwrap();
    let mut cards = [Rig::on(Link::Roce).card];
    // An address that is no group.
    let bad = gid("192.0.2.1");
    cards[0].objects.groups.attach(bad, 5);
    let complaints = udp.join(0, &cards[0].objects.groups);
    assert_eq!(complaints.len(), 1);
    assert!(complaints[0].contains("192.0.2.1"), "{complaints:?}");
    for group in ["239.1.2.3", "239.1.2.4"] {
        cards[0].objects.groups.attach(gid(group), 5);
        assert!(udp.join(0, &cards[0].objects.groups).is_empty(), "{group}");
    }
    cards[0].objects.groups.detach(&bad, 5);
    assert!(udp.join(0, &cards[0].objects.groups).is_empty());
    cards[0].objects.groups.attach(bad, 5);
    assert_eq!(udp.join(0, &cards[0].objects.groups), complaints);
}

#[test]
fn member_of_an_ipv6_group_hears_its_own_interface_only() {
    let fd = socket::member(&gid("ff0e::7"), 1).unwrap();
    let (mut value, mut length) = (-1i32, 4);
    // SAFETY: the call writes at most four bytes to `value`, and their number to `length`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_IPV6,
            socket::IPV6_MULTICAST_ALL,
            (&raw mut value).cast(),
            &mut length,
        )
    };
    assert_eq!((result, value), (0, 0));
}

#[test]
fn packet_that_the_kernel_refuses_is_lost_and_the_next_one_is_not() {
    let [here, there] = [fresh(), fresh()];
    let [mut one, mut other] = [&here, &there].map(|address| open(address).unwrap());
    let (bad, good) = (global(&here, "0.0.0.1"), global(&here, &there));
    let refused = frame(bad, 0xc001, 1, 10);
    let sent = frame(good, 0xc001, 1, 10);
    one.send(&bad, 0xc001, refused);
    one.send(&good, 0xc001, sent.clone());
    one.flush(&());
    assert_eq!(receive(&mut other).0, sent);
    assert_eq!(one.congested().count(), 0);
}
