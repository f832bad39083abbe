//! Delivery of packets, and the form of each error.

use mlx5::Error;
use mlx5::cqe::{Completion, Layer3, PacketInfo, SendOperation, Status, TransportHeader};
use mlx5::devx::Rq;
use mlx5::diag::sysfs::PortCounters;
use mlx5::endpoint::{Endpoints, Receiver};
use mlx5::expert::Dump;
use mlx5::ib::RawPacket;
use mlx5::ring::{
    CqReader, Excess, Packet, PacketEvent, PollError, PostError, Prepared, QueueError,
    ReceiveConfig, ReceiveQueue, Srq,
};
use mlx5::verbs::{Flow, QueuePairBuilder, RssQueues, SharedReceiveQueue, StridingQueue};
use mlx5::wqe::{EthSend, EthTso, Field, Inline, InlineBytes, Nop};

use rig::until;

use crate::{Side, address, rig, tcp_header, udp};

impl Side {
    /// The next frame. The model has delivered it when the post returned.
    pub(crate) fn received(&mut self) -> Packet {
        match self.frames.poll() {
            Ok(Some(PacketEvent::Packet(done))) => done,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn completion(&mut self) -> Completion {
        self.sent.poll(&mut self.send).unwrap().expect("a completion")
    }

    pub(crate) fn sent_well(&mut self, id: u64) {
        match self.completion() {
            Completion::Send(done) => assert_eq!(done.id, id),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn is_quiet(&mut self) {
        assert_eq!(self.frames.poll(), Ok(None));
    }
}

#[test]
fn frames_go_where_flows_lead_and_completions_tell_of_their_headers() {
    let rig = rig();
    let (mut a, mut b) = (Side::new(&rig), Side::new(&rig));
    let flow = b.flow(address(1));
    let frame = udp(address(1), 4000, b"a payload of some bytes");
    a.memory.write(0, &frame);
    let n = frame.len();
    // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
    unsafe {
        // Gathered, with checksums by the card.
        b.frames.post(1, [b.sge(0, 20), b.sge(100, 200)]).unwrap();
        a.send
            .post(2, EthSend::new([a.sge(0, 10), a.sge(10, n - 10)]).checksums().signaled())
            .unwrap();
        a.sent_well(2);
        let done = b.received();
        assert_eq!((done.id, done.byte_len), (1, n as u32));
        let PacketInfo { network, transport, flow_tag, stripped_vlan, .. } = done.info();
        assert_eq!((network, transport), (Layer3::Ipv4, TransportHeader::Udp));
        assert!(done.info().checksums_ok() && done.info().timestamp.raw() != 0);
        assert_eq!((flow_tag, stripped_vlan, done.info().hash), (0x77, None, 0));
        let mut met = b.memory.to_vec(0, 20);
        met.extend(b.memory.to_vec(100, n - 20));
        assert_eq!((&met[..24], &met[26..40]), (&frame[..24], &frame[26..40]));
        assert_ne!((&met[24..26], &met[40..42]), (&[0, 0][..], &[0, 0][..]));

        // As it is, with bytes in the WQE: the IPv4 header is wrong then, UDP's none is not.
        b.frames.post(3, b.sge(0, 2000)).unwrap();
        a.send.post(4, EthSend::new(a.sge(18, n - 18)).header(&frame[..18]).signaled()).unwrap();
        a.sent_well(4);
        let done = b.received();
        assert!(!done.info().network_ok && done.info().transport_ok && !done.info().checksums_ok());
        assert_eq!(b.memory.to_vec(0, n), frame);

        // All of it in the WQE, header apart or not.
        b.frames.post(5, b.sge(0, 2000)).unwrap();
        b.frames.post(6, b.sge(2000, 2000)).unwrap();
        a.send.post(7, EthSend::new(Inline(&frame)).signaled()).unwrap();
        a.sent_well(7);
        let (start, rest) = frame.split_at(14);
        a.send.post(8, EthSend::new(Inline(rest)).header(start).checksums().signaled()).unwrap();
        a.sent_well(8);
        assert_eq!((b.received().id, b.memory.to_vec(0, n)), (5, frame.clone()));
        let done = b.received();
        assert_eq!((done.id, done.info().checksums_ok()), (6, true));

        // No destination, a destination without a receive, and a destination whose flow is gone.
        a.send.post(9, EthSend::new(Inline(&udp(address(2), 1, b"x"))).signaled()).unwrap();
        a.sent_well(9);
        a.send.post(10, EthSend::new(Inline(&frame)).signaled()).unwrap();
        a.sent_well(10);
        b.is_quiet();
        drop(flow);
        b.frames.post(11, b.sge(0, 2000)).unwrap();
        a.send.post(12, EthSend::new(Inline(&frame)).signaled()).unwrap();
        a.sent_well(12);
        b.is_quiet();
        a.send.post(13, Nop::new().signaled()).unwrap();
        match a.completion() {
            Completion::Send(done) => assert_eq!(done.operation, SendOperation::Nop),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn packets_with_a_header_before_their_payload_are_counted_in_batches() {
    // A WQE with the header has two blocks, one without would have one.
    let rig = rig();
    let mut a = Side::new(&rig);
    let frame = udp(address(9), 4000, b"the payload lies elsewhere");
    a.memory.write(0, &frame);
    let (header, rest) = frame.split_at(42);
    for _ in 0..100 {
        let payload = a.sge(header.len(), rest.len());
        let mut batch = a.send.batch();
        for id in 0..4 {
            batch.append(id, EthSend::new(payload).header(header).signaled()).unwrap();
        }
        // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
        unsafe { batch.ring() };
        (0..4).for_each(|id| a.sent_well(id));
    }
}

#[test]
fn fields_of_prepared_packets_arrive_and_the_card_fills_their_checksums_in() {
    const SEQUENCE: Field<42, 8> = Field;
    let rig = rig();
    let (a, mut b) = (Side::new(&rig), Side::new(&rig));
    let _flow = b.flow(address(4));
    let frame: [u8; 90] = udp(address(4), 4000, &[7; 48]).try_into().unwrap();
    let Side { send, sent: mut completions, .. } = a;
    let mut prepared = Prepared::new(send);
    let packet = EthSend::new(InlineBytes(frame)).checksums().signaled();
    for id in 0..200_u64 {
        // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
        unsafe { b.frames.post(id, b.sge(0, 200)).unwrap() };
        prepared.prepare(id, packet).unwrap();
        b.is_quiet();
        prepared.fire(SEQUENCE.with(id.to_be_bytes())).unwrap();
        let done = completions.poll(&mut prepared).unwrap();
        assert!(matches!(done, Some(Completion::Send(done)) if done.id == id), "{done:?}");
        let done = b.received();
        assert_eq!((done.id, done.byte_len, done.info().checksums_ok()), (id, 90, true));
        assert_eq!(
            (b.memory.to_vec(42, 8), b.memory.to_vec(50, 40)),
            (id.to_be_bytes().to_vec(), vec![7; 40])
        );
    }
}

#[test]
fn tags_are_put_in_and_taken_out() {
    let rig = rig();
    let mut a = Side::new(&rig);
    let (mut plain, mut stripping) =
        (Side::new(&rig), Side::with(&rig, |builder| builder.strip_vlan(true)));
    let _flows = [plain.flow(address(3)), stripping.flow(address(3))];
    let frame = udp(address(3), 4000, b"tagged");
    // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
    unsafe {
        plain.frames.post(1, plain.sge(0, 2000)).unwrap();
        stripping.frames.post(2, stripping.sge(0, 2000)).unwrap();
        a.send.post(3, EthSend::new(Inline(&frame)).vlan(0x6005).checksums().signaled()).unwrap();
        a.sent_well(3);
    }
    // One flow of each, so both have it.
    let done = plain.received();
    assert_eq!((done.byte_len as usize, done.info().stripped_vlan), (frame.len() + 4, None));
    assert_eq!(plain.memory.to_vec(12, 6), [0x81, 0, 0x60, 5, 8, 0]);
    let done = stripping.received();
    assert_eq!((done.byte_len as usize, done.info().stripped_vlan), (frame.len(), Some(0x6005)));
    assert_eq!(stripping.memory.to_vec(12, 2), [8, 0]);
    assert!(done.info().checksums_ok());
}

#[test]
fn a_large_send_arrives_in_pieces() {
    let rig = rig();
    let (mut a, mut b) = (Side::new(&rig), Side::new(&rig));
    let _flow = b.flow(address(4));
    let header = tcp_header(address(4));
    let payload: Vec<u8> = (0..5000u32).map(|at| at as u8).collect();
    a.memory.write(0, &payload);
    // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
    unsafe {
        for id in 0..4 {
            b.frames.post(id, b.sge(id as usize * 2000, 2000)).unwrap();
        }
        let tso = EthTso::new(&header, 1400, [a.sge(0, 3000), a.sge(3000, 2000)]);
        a.send.post(9, tso.checksums().signaled()).unwrap();
        match a.completion() {
            Completion::Send(done) => {
                assert_eq!((done.id, done.operation), (9, SendOperation::LargeSend));
            }
            other => panic!("{other:?}"),
        }
    }
    for piece in 0..4usize {
        let done = b.received();
        let length = [1400, 1400, 1400, 800][piece];
        assert_eq!((done.id, done.byte_len as usize), (piece as u64, 54 + length));
        assert!(done.info().checksums_ok(), "{done:?}");
        assert_eq!(done.info().transport, TransportHeader::Tcp);
        let met = b.memory.to_vec(piece * 2000, 54 + length);
        assert_eq!(met[54..], payload[piece * 1400..][..length]);
        assert_eq!(met[18..20], [0, 7 + piece as u8]);
        let sequence = u32::from_be_bytes(met[38..42].try_into().unwrap());
        assert_eq!(sequence, 100 + 1400 * piece as u32);
        // PSH is the last one's alone.
        assert_eq!(met[47], if piece == 3 { 0x18 } else { 0x10 });
    }
    b.is_quiet();
}

#[test]
fn what_cannot_be_sent_is_refused_before_or_fails_in_its_completion() {
    let rig = rig();
    let header = tcp_header(address(5));
    let mut a = Side::new(&rig);
    // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
    unsafe {
        let long = [0; 200];
        let refused = a.send.post(1, EthSend::new(a.sge(0, 60)).header(&long));
        let expected = PostError::HeaderLength { bytes: 200 };
        assert_eq!(refused, Err(expected));
        let refused = a.send.post(1, EthTso::new(&header[..13], 100, a.sge(0, 60)));
        let expected = PostError::HeaderLength { bytes: 13 };
        assert_eq!(refused, Err(expected));
        let refused = a.send.post(1, EthSend::new(Inline(&[0; 300])));
        let limits = a.send.limits();
        let expected = PostError::InlineTooLong(Excess::new(300, limits.max_inline));
        assert_eq!(refused, Err(expected));
        let refused = a.send.post(1, EthSend::new([a.sge(0, 20); 8].as_slice()));
        let expected = PostError::TooManySges(Excess::new(8, limits.max_sge));
        assert_eq!(refused, Err(expected));
        assert!(a.send.is_idle());
    }
    type Post = fn(&mut Side, &[u8]) -> Result<(), PostError>;
    // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
    let cases: [(&str, Post, Status); 6] = unsafe {
        [
            (
                "beyond the MTU",
                |a, _| a.send.post(1, EthSend::new(a.sge(0, 1515))),
                Status::LocalLength,
            ),
            ("no header", |a, _| a.send.post(1, EthSend::new(a.sge(0, 13))), Status::LocalLength),
            (
                "no such key",
                |a, _| {
                    let mut sge = a.sge(0, 60);
                    sge.lkey ^= 1;
                    a.send.post(1, EthSend::new(sge))
                },
                Status::LocalProtection,
            ),
            (
                "pieces of no bytes",
                |a, header| a.send.post(1, EthTso::new(header, 0, a.sge(0, 60))),
                Status::LocalQpOperation,
            ),
            (
                "pieces beyond the MTU",
                |a, header| a.send.post(1, EthTso::new(header, 1461, a.sge(0, 1461))),
                Status::LocalLength,
            ),
            (
                "a header cut off",
                |a, header| a.send.post(1, EthTso::new(&header[..40], 100, a.sge(0, 60))),
                Status::LocalQpOperation,
            ),
        ]
    };
    for (name, post, status) in cases {
        let mut a = Side::new(&rig);
        post(&mut a, &header).unwrap();
        match a.completion() {
            Completion::Failed(failure) => assert_eq!((failure.id, failure.status), (1, status)),
            other => panic!("{name}: {other:?}"),
        }
        // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
        let after = unsafe { a.send.post(2, EthSend::new(a.sge(0, 60))) };
        assert_eq!(after, Err(PostError::WrongState), "{name}");
    }
}

#[test]
fn what_is_only_read_goes_nowhere() {
    let rig = rig();
    let (mut a, mut b) = (Side::new(&rig), Side::new(&rig));
    let _flow = b.flow(address(11));
    a.memory.write(0, &udp(address(11), 1, b"kept"));
    // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
    unsafe {
        b.frames.post(1, b.sge(0, 2000)).unwrap();
        a.send.post(2, Dump::new([a.sge(0, 60), a.sge(100, 20)]).signaled()).unwrap();
        match a.completion() {
            Completion::Send(done) => {
                assert_eq!((done.id, done.operation), (2, SendOperation::Dump));
            }
            other => panic!("{other:?}"),
        }
        b.is_quiet();
        // It reads all the same: what it may not read fails it.
        let mut sge = a.sge(0, 60);
        sge.lkey ^= 1;
        a.send.post(3, Dump::new(sge)).unwrap();
    }
    match a.completion() {
        Completion::Failed(failure) => {
            assert_eq!((failure.id, failure.status), (3, Status::LocalProtection));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn packets_without_a_receive_count_in_the_ports_out_of_buffer() {
    let rig = rig();
    let (mut a, b) = (Side::new(&rig), Side::new(&rig));
    let _flow = b.flow(address(0x51));
    let frame = udp(address(0x51), 4000, b"lost");
    a.memory.write(0, &frame);
    let port = rig.local.attributes().port;
    let lost = || {
        let counters = PortCounters::read(&rig.context.sysfs_path(), port).transport;
        let (_, lost) = counters.iter().find(|(name, _)| name == "out_of_buffer").unwrap();
        *lost
    };
    let before = lost();
    for id in 0..3 {
        // SAFETY: memory lives to the end, and is not written until the request completes.
        unsafe { a.send.post(id, EthSend::new(a.sge(0, frame.len())).signaled()) }.unwrap();
        a.sent_well(id);
    }
    // Other tests use the same port.
    assert!(lost() >= before + 3, "{before} before, {} now", lost());
}

#[test]
fn a_receive_that_is_too_short_fails_the_queue() {
    let rig = rig();
    let (mut a, mut b) = (Side::new(&rig), Side::new(&rig));
    let _flow = b.flow(address(6));
    let frame = udp(address(6), 1, b"longer than that");
    // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
    unsafe {
        b.frames.post(1, b.sge(0, frame.len() - 1)).unwrap();
        b.frames.post(2, b.sge(0, 2000)).unwrap();
        a.send.post(3, EthSend::new(Inline(&frame)).signaled()).unwrap();
        a.sent_well(3);
    }
    for (id, status) in [(1, Status::LocalLength), (2, Status::Flushed)] {
        match b.frames.poll() {
            Ok(Some(PacketEvent::Failed(failure))) => {
                assert_eq!((failure.id, failure.status), (id, status));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_flow_without_a_tag_joins_one_that_has_one() {
    let rig = rig();
    let mut a = Side::new(&rig);
    let mut sides = [(); 2].map(|()| Side::new(&rig));
    let flow = || Flow::builder(1).destination(address(12));
    let _tagged = flow().tag(0x77).build(&sides[0].qp).unwrap();
    let _untagged = flow().build(&sides[1].qp).unwrap();
    let error = flow().tag(0x78).build(&sides[1].qp).unwrap_err();
    assert!(error.to_string().contains("File exists"), "{error}");
    // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
    unsafe {
        sides.iter_mut().for_each(|side| side.frames.post(1, side.sge(0, 2000)).unwrap());
        let frame = udp(address(12), 1, b"for both");
        a.send.post(1, EthSend::new(Inline(&frame)).signaled()).unwrap();
    }
    a.sent_well(1);
    let tags = sides.each_mut().map(|side| side.received().info().flow_tag);
    assert_eq!(tags, [0x77; 2]);
}

#[test]
fn flows_look_at_ports_priorities_and_the_rest() -> Result<(), PollError> {
    let rig = rig();
    let mut a = Side::new(&rig);
    let mut sides = [(); 3].map(|()| Side::new(&rig));
    // What a sniffer sees is not described.
    let both = Flow::builder(1).destination(address(7)).sniffer().build(&sides[2].qp);
    assert!(both.is_err());
    let _first = Flow::builder(1).destination(address(7)).udp_port(1000).build(&sides[0].qp);
    let _second = Flow::builder(1).destination(address(7)).priority(1).build(&sides[1].qp);
    let _third = Flow::builder(1).rest().build(&sides[2].qp);
    for side in &mut sides {
        for id in 0..4 {
            // SAFETY: memory lives to the end, and is accessed only after the requests on it
            // complete.
            unsafe { side.frames.post(id, side.sge(id as usize * 2000, 2000)).unwrap() };
        }
    }
    let mut send = |to, port| {
        // SAFETY: the payload is copied.
        unsafe {
            a.send.post(1, EthSend::new(Inline(&udp(to, port, b"?"))).signaled()).unwrap();
        }
        a.sent_well(1);
    };
    send(address(7), 1000);
    send(address(7), 1001);
    assert_eq!(sides[0].received().id, 0);
    assert_eq!(sides[1].received().id, 0);
    for side in &mut sides[..2] {
        assert_eq!(side.frames.poll()?, None);
    }
    // Frames of other tests are among the rest, and may have taken its receives.
    let rest = &mut sides[2];
    until(|| {
        send(address(8), 1000);
        let mut found = false;
        while let Ok(Some(PacketEvent::Packet(done))) = rest.frames.poll() {
            let at = done.id as usize * 2000;
            found |= rest.memory.to_vec(at, 6) == address(8);
            // SAFETY: memory lives to the end, and its packet was read.
            unsafe { rest.frames.post(done.id, rest.sge(at, 2000)).unwrap() };
        }
        found.then_some(())
    });
    Ok(())
}

/// libibverbs describes IPv4 addresses in 8 of the 12 bytes that the kernel knows.
#[test]
fn flows_look_at_addresses_and_ports_together() -> Result<(), PollError> {
    let rig = rig();
    let mut a = Side::new(&rig);
    let mut sides = [(); 3].map(|()| Side::new(&rig));
    let to = address(0x17);
    let describe = |ip: &str| Flow::builder(1).destination(to).destination_ip(ip.parse().unwrap());
    let _ours = describe("10.0.0.2").udp_port(1000).build(&sides[0].qp).unwrap();
    let _other = describe("10.0.0.3").udp_port(1000).build(&sides[1].qp).unwrap();
    let source = Flow::builder(1).destination(to).source_ip("10.0.0.1".parse().unwrap());
    let _source = source.priority(1).build(&sides[2].qp).unwrap();
    for side in &mut sides {
        // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
        unsafe { side.frames.post(0, side.sge(0, 2000)).unwrap() };
    }
    // The last matches no port of a flow.
    for (last, port) in [(2, 1000), (3, 1000), (2, 1001)] {
        let mut frame = udp(to, port, b"?");
        frame[33] = last;
        // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
        unsafe { a.send.post(1, EthSend::new(Inline(&frame)).signaled()).unwrap() };
        a.sent_well(1);
    }
    for (side, expected) in sides.iter_mut().zip([(2, 1000_u16), (3, 1000), (2, 1001)]) {
        assert_eq!(side.received().id, 0);
        let frame = side.memory.to_vec(0, 38);
        assert_eq!((frame[33], u16::from_be_bytes([frame[36], frame[37]])), expected);
        assert_eq!(side.frames.poll()?, None);
    }
    Ok(())
}

#[test]
fn a_sniffer_sees_what_is_sent_and_what_is_received() {
    let rig = rig();
    let (mut a, mut b, mut sniffer) = (Side::new(&rig), Side::new(&rig), Side::new(&rig));
    let _flow = b.flow(address(10));
    let sniffing = Flow::builder(1).sniffer().build(&sniffer.qp).unwrap();
    let frame = udp(address(10), 1, b"seen twice");
    let mut seen = |sniffer: &mut Side, id: u64| {
        // Frames of other tests come, too, and take receives until there are none.
        let mut own = 0;
        while let Ok(Some(PacketEvent::Packet(done))) = sniffer.frames.poll() {
            let place = done.id as usize % 8 * 2000;
            own += usize::from(sniffer.memory.to_vec(place, frame.len()) == frame);
            // SAFETY: memory lives to the end, and is accessed only after the requests on it
            // complete.
            unsafe { sniffer.frames.post(done.id, sniffer.sge(place, 2000)).unwrap() };
        }
        // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
        unsafe {
            b.frames.post(id, b.sge(0, 2000)).unwrap();
            a.send.post(id, EthSend::new(Inline(&frame)).signaled()).unwrap();
        }
        a.sent_well(id);
        assert_eq!(b.received().id, id);
        own
    };
    for id in 0..8 {
        // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
        unsafe { sniffer.frames.post(id, sniffer.sge(id as usize * 2000, 2000)).unwrap() };
    }
    // Once on its way out, and once on its way in; where others' frames left no receive, again.
    assert!((0..500).any(|round| seen(&mut sniffer, round) == 2));
    drop(sniffing);
    while let Ok(Some(PacketEvent::Packet(_))) = sniffer.frames.poll() {}
    seen(&mut sniffer, 99);
    sniffer.is_quiet();
}

#[test]
fn cards_of_this_generation_want_no_bytes_in_the_wqe() {
    let rig = rig();
    assert_eq!(rig.context.ethernet_inline().unwrap(), 0);
    let cq = rig.cq(1024);
    let queue = StridingQueue::builder(&rig.pd, &cq).strides(7).build();
    assert!(queue.unwrap_err().to_string().contains("a power of two from 8 to 65536"));
    let queue = StridingQueue::builder(&rig.pd, &cq).strides(8).wqes(4).build().unwrap();
    assert!(RssQueues::new(&[], &[0; 40]).is_err());
    assert_eq!(RssQueues::new(&[queue.clone(), queue], &[0; 40]).unwrap().queues(), 2);
}

#[test]
fn a_header_goes_on_at_the_rings_start() {
    let rig = rig();
    let (mut a, mut b) = (Side::new(&rig), Side::new(&rig));
    let _flow = b.flow(address(9));
    let mut header = tcp_header(address(9));
    header[46] = 0x80;
    header.resize(66, 1);
    a.memory.write(0, &[0x5a; 300]);
    // Three blocks each, so that each place in a WQE comes to lie at the ring's end.
    for round in 0..200 {
        // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
        unsafe {
            b.frames.post(round, b.sge(0, 2000)).unwrap();
            b.frames.post(round, b.sge(2000, 2000)).unwrap();
            let tso = EthTso::new(&header, 200, [a.sge(0, 100), a.sge(100, 200)]);
            a.send.post(round, tso.checksums().signaled()).unwrap();
            a.sent_well(round);
            if round % 3 == 0 {
                a.send.post(round, Nop::new().signaled()).unwrap();
                a.sent_well(round);
            }
        }
        for (place, length) in [(0, 200), (2000, 100)] {
            let done = b.received();
            assert_eq!(done.byte_len, 66 + length);
            assert!(done.info().checksums_ok());
            assert_eq!(b.memory.to_vec(place + 54, 12), [1; 12]);
            assert!(b.memory.to_vec(place + 66, length as usize).iter().all(|byte| *byte == 0x5a));
        }
    }
}

#[test]
fn a_port_that_the_device_does_not_have_is_refused_before_libmlx5_sees_it() {
    let rig = rig();
    let cq = rig.cq(64);
    let mut qp = QueuePairBuilder::<RawPacket>::new(&rig.pd, &cq).build().unwrap();
    for port in [0, 3, 255] {
        let refused = qp.init(port).unwrap_err();
        assert!(matches!(refused.error, Error::NoSuchPort { .. }), "{}", refused.error);
        qp = refused.queue_pair;
    }
    qp.init(1).unwrap();
}

/// CQEs of packets name the mark of a flow, which a program may choose to be another queue's number.
#[test]
fn polls_of_several_queues_take_no_queue_for_packets() {
    let rig = rig();
    let cq = rig.cq(64);
    let qp = QueuePairBuilder::<RawPacket>::new(&rig.pd, &cq).build().unwrap();
    let qp = qp.init(1).unwrap().rtr().unwrap();
    let rq = Rq::builder(&rig.pd, &cq).build().unwrap();
    let mut reader = CqReader::new(&cq).unwrap();
    let config = ReceiveConfig::default();
    let refused = |error: mlx5::Error| {
        assert!(matches!(error, mlx5::Error::Queue(QueueError::PacketQueue)), "{error}");
    };
    refused(ReceiveQueue::new(&qp, &mut reader, config).map(drop).unwrap_err());
    refused(ReceiveQueue::new(&rq, &mut reader, config).map(drop).unwrap_err());
    refused(Receiver::new(&qp, &mut reader, config).map(drop).unwrap_err());
    let srq = SharedReceiveQueue::builder(&rig.pd).build().unwrap();
    let mut shared = Srq::new(&srq, &mut reader, config).unwrap();
    refused(shared.attach(&qp, &mut reader).unwrap_err());
    let mut server = Endpoints::<RawPacket>::new(reader);
    refused(server.attach_own(&qp, config).map(drop).unwrap_err());
}
