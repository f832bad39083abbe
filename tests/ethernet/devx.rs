//! Ethernet queues made by command: packets sent, received, distributed by RSS, and counted. Also
//! the form of each error, and destruction of objects that others still refer to.

use mlx5::Error;
use mlx5::cqe::{Completion, Status};
use mlx5::devx::ifc::{rqc, sqc, tirc};
use mlx5::devx::{
    DevxPd, FlowCounter, Group, QueueCounters, Rq, Rqt, RssHash, Sq, Tir, Tis, TransportDomain,
    Umem,
};
use mlx5::ib::RawPacket;
use mlx5::ring::{CqReader, Packet, PacketEvent, PacketRq, ReceiveConfig, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, Flow, MemoryRegion, Pages};
use mlx5::wqe::{EthSend, EthTso, Inline, Sge};

use mlx5_model::CounterSets;
use mlx5_sys::ifc::cmd_hca_cap;
use rig::Rig;

use crate::{MEMORY, Side, address, rig, tcp_header, udp};

/// A send queue made by command, with memory.
pub(crate) struct Sender {
    memory: MemoryRegion,
    send: SendQueue<RawPacket>,
    sent: CqReader,
    sq: Sq,
}

impl Sender {
    pub(crate) fn new(rig: &Rig) -> Self {
        let domain = TransportDomain::new(&rig.context).unwrap();
        let tis = Tis::new(&domain).unwrap();
        let cq = rig.cq(128);
        let builder = Sq::builder(&rig.pd, &tis, &cq).max_sge(3).max_inline_data(100);
        let sq = builder.user_index(0x123).build().unwrap();
        // What it stands on stays with it.
        drop((domain, tis));
        let mut sent = CqReader::new(&cq).unwrap();
        let send = SendQueue::new(&sq, &mut sent, SendConfig::default()).unwrap();
        Self { memory: rig.memory(MEMORY), send, sent, sq }
    }

    fn sge(&self, offset: usize, length: usize) -> Sge {
        self.memory.sge(offset, length).unwrap()
    }

    pub(crate) fn frame(&mut self, id: u64, frame: &[u8]) {
        // SAFETY: all of it is in the WQE.
        unsafe { self.send.post(id, EthSend::new(Inline(frame)).signaled()).unwrap() };
        match self.sent.poll(&mut self.send).unwrap() {
            Some(Completion::Send(done)) => assert_eq!(done.id, id),
            other => panic!("{other:?}"),
        }
    }
}

/// A receive queue made by command, with memory.
pub(crate) struct Receiver {
    memory: MemoryRegion,
    frames: PacketRq,
    pub(crate) rq: Rq,
    posted: u64,
    taken: u64,
}

impl Receiver {
    pub(crate) fn new(rig: &Rig) -> Self {
        Self::with(rig, None)
    }

    fn with(rig: &Rig, counters: Option<&QueueCounters>) -> Self {
        let cq = rig.cq(128);
        let mut builder = Rq::builder(&rig.pd, &cq).max_wr(16).max_sge(2);
        if let Some(counters) = counters {
            builder = builder.counters(counters);
        }
        let rq = builder.build().unwrap();
        let frames = PacketRq::new(&rq, &cq, ReceiveConfig::default()).unwrap();
        Self { memory: rig.memory(MEMORY), frames, rq, posted: 0, taken: 0 }
    }

    /// Sees to it that a receive of 2 KiB is posted.
    pub(crate) fn provide(&mut self) {
        if self.posted == self.taken {
            self.post();
        }
    }

    /// Posts a receive of 2 KiB.
    pub(crate) fn post(&mut self) {
        let at = self.memory.address() + self.posted % 16 * 2048;
        // SAFETY: the memory lives longer, and is looked at only when the receive is complete.
        unsafe { self.frames.post(self.posted, Sge::new(at, 2048, self.memory.lkey())).unwrap() };
        self.posted += 1;
    }

    pub(crate) fn next(&mut self) -> Option<Packet> {
        match self.frames.poll().unwrap() {
            Some(PacketEvent::Packet(done)) => {
                self.taken += 1;
                Some(done)
            }
            None => None,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn bytes(&self, done: &Packet) -> Vec<u8> {
        self.memory.to_vec(done.id as usize % 16 * 2048, done.byte_len as usize)
    }
}

fn flow(to: [u8; 6], tir: &Tir) -> Flow {
    Flow::builder(1).destination(to).tag(0x77).build(tir).unwrap()
}

#[test]
fn a_counter_counts_what_its_flows_match() {
    let rig = rig();
    let (mut a, mut b) = (Sender::new(&rig), Receiver::new(&rig));
    let tir = Tir::direct(&TransportDomain::new(&rig.context).unwrap(), &b.rq).unwrap();
    let qp = Side::new(&rig).qp;
    let (to_both, to_one) = (FlowCounter::new(&rig.context), FlowCounter::new(&rig.context));
    let (to_both, to_one) = (to_both.unwrap(), to_one.unwrap());
    let lead = |n| Flow::builder(1).destination(address(n));
    let flows = [
        lead(0x41).counter(&to_both).build(&tir).unwrap(),
        lead(0x42).counter(&to_both).build(&qp).unwrap(),
        lead(0x43).counter(&to_one).build(&tir).unwrap(),
        lead(0x44).build(&tir).unwrap(),
    ];
    let frame = |n: u8, length: usize| udp(address(n), 4000, &vec![n; length]);
    let mut bytes = 0;
    for (n, length) in [(0x41, 20), (0x42, 40), (0x42, 50), (0x44, 30), (0x45, 30)] {
        let frame = frame(n, length);
        bytes += if n < 0x43 { frame.len() as u64 } else { 0 };
        b.provide();
        a.frame(1, &frame);
        b.next();
    }
    // Those that have no receive count, too: the queue pair has none.
    let counts = to_both.read().unwrap();
    assert_eq!((counts.packets, counts.bytes), (3, bytes));
    assert_eq!(to_one.read().unwrap().packets, 0);
    assert_eq!(to_both.take().unwrap(), counts);
    assert_eq!(to_both.read().unwrap().packets, 0);
    // A flow keeps its counter, and a counter of which a clone is left goes on.
    let clone = to_one.clone();
    drop(to_one);
    a.frame(2, &frame(0x43, 30));
    assert_eq!(clone.read().unwrap().packets, 1);
    drop((clone, flows));

    let other = FlowCounter::new(&super::rig().context).unwrap();
    let refused = lead(0x41).counter(&other).build(&tir).unwrap_err();
    assert!(refused.to_string().contains("counter"), "{refused}");
    let counter = FlowCounter::new(&rig.context).unwrap();
    let refused = Flow::builder(1).rest().counter(&counter).build(&qp).unwrap_err();
    assert!(refused.to_string().contains("counter"), "{refused}");
}

#[test]
fn frames_go_by_a_send_queue_to_a_receive_queue() {
    let rig = rig();
    let (mut a, mut b) = (Sender::new(&rig), Receiver::new(&rig));
    let domain = TransportDomain::new(&rig.context).unwrap();
    let tir = Tir::direct(&domain, &b.rq).unwrap();
    let flow = flow(address(0x40), &tir);
    // The flow keeps the TIR, and that the domain.
    drop((tir, domain));
    let frame = udp(address(0x40), 4000, b"by command alone");
    b.post();
    a.frame(1, &frame);
    let done = b.next().unwrap();
    assert_eq!((done.id, done.byte_len as usize), (0, frame.len()));
    assert_eq!(done.info().flow_tag, 0x77);
    assert_eq!(b.bytes(&done), frame);
    // Gathered, with checksums by the card.
    a.memory.write(0, &frame);
    b.post();
    let n = frame.len();
    // SAFETY: the memory lives longer.
    unsafe {
        let pieces = [a.sge(0, 14), a.sge(14, 30), a.sge(44, n - 44)];
        a.send.post(2, EthSend::new(pieces).checksums().signaled()).unwrap();
    }
    assert!(matches!(a.sent.poll(&mut a.send), Ok(Some(Completion::Send(done))) if done.id == 2));
    let done = b.next().unwrap();
    assert!(done.info().checksums_ok());
    assert_eq!(b.bytes(&done)[..24], frame[..24]);
    // A segment that the card cuts.
    let header = tcp_header(address(0x40));
    for _ in 0..3 {
        b.post();
    }
    // SAFETY: the memory lives longer.
    unsafe {
        a.send.post(3, EthTso::new(&header, 100, a.sge(0, 250)).checksums().signaled()).unwrap();
    }
    assert!(matches!(a.sent.poll(&mut a.send), Ok(Some(Completion::Send(done))) if done.id == 3));
    let lengths = [0; 3].map(|_| b.next().unwrap().byte_len);
    assert_eq!(lengths, [154, 154, 104]);
    // No receiver is left once the flow is gone.
    drop(flow);
    b.post();
    a.frame(4, &frame);
    assert!(b.next().is_none());
}

#[test]
fn halves_of_either_making_go_together() {
    let rig = rig();
    let (mut a, mut b) = (Sender::new(&rig), Receiver::new(&rig));
    let mut both = Side::new(&rig);
    let domain = TransportDomain::new(&rig.context).unwrap();
    let tir = Tir::direct(&domain, &b.rq).unwrap();
    let _flows = (flow(address(0x41), &tir), both.flow(address(0x42)));
    // From a send queue made by command to a queue pair of verbs …
    let frame = udp(address(0x42), 4000, b"to verbs");
    // SAFETY: the memory lives longer.
    unsafe { both.frames.post(1, both.sge(0, 2048)).unwrap() };
    a.frame(2, &frame);
    assert_eq!(both.received().id, 1);
    assert_eq!(both.memory.to_vec(0, frame.len()), frame);
    // … and from that to a receive queue made by command.
    let frame = udp(address(0x41), 4000, b"from verbs");
    b.post();
    // SAFETY: all of it is in the WQE.
    unsafe { both.send.post(3, EthSend::new(Inline(&frame)).signaled()).unwrap() };
    both.sent_well(3);
    let done = b.next().unwrap();
    assert_eq!(b.bytes(&done), frame);
}

#[test]
fn flows_to_a_tir_look_at_what_flows_to_queue_pairs_do() {
    let rig = rig();
    let mut a = Sender::new(&rig);
    let domain = TransportDomain::new(&rig.context).unwrap();
    let to = address(0x43);
    let describe = |at: u8| {
        let all = Flow::builder(1).destination(to).tag(u32::from(at));
        match at {
            0 => all.udp_port(4000),
            1 => all.tcp_port(0x3040),
            2 => all.vlan(7),
            3 => all.ether_type(0x88b5),
            4 => all.source([2, 9, 9, 9, 9, 9]),
            5 => all.source_ip("10.9.9.9".parse().unwrap()),
            _ => all.destination_ip("10.8.8.8".parse().unwrap()),
        }
    };
    let mut tcp = tcp_header(to);
    tcp[17] = 40;
    let mut tagged = udp(to, 1, b"tagged");
    tagged.splice(12..12, [0x81, 0, 0x60, 7]);
    let mut other = udp(to, 1, b"another type");
    other[12..14].copy_from_slice(&[0x88, 0xb5]);
    let mut from = udp(to, 1, b"from another");
    from[6..12].copy_from_slice(&[2, 9, 9, 9, 9, 9]);
    let (mut source, mut destination) = (udp(to, 1, b"addresses"), udp(to, 1, b"addresses"));
    source[26..30].copy_from_slice(&[10, 9, 9, 9]);
    destination[30..34].copy_from_slice(&[10, 8, 8, 8]);
    let frames = [udp(to, 4000, b"a port"), tcp, tagged, other, from, source, destination];
    let mut receivers: Vec<(Receiver, Flow)> = (0..frames.len() as u8)
        .map(|at| {
            let receiver = Receiver::new(&rig);
            let tir = Tir::direct(&domain, &receiver.rq).unwrap();
            (receiver, describe(at).build(&tir).unwrap())
        })
        .collect();
    for (at, frame) in frames.iter().enumerate() {
        for (receiver, _) in &mut receivers {
            receiver.post();
        }
        a.frame(at as u64, frame);
        for (other, (receiver, _)) in receivers.iter_mut().enumerate() {
            let done = receiver.next();
            assert_eq!(done.is_some(), other == at, "frame {at}, receiver {other}");
            if let Some(done) = done {
                assert_eq!(done.info().flow_tag as usize, at);
                assert_eq!(receiver.bytes(&done), *frame);
            }
        }
    }
    // What no kernel leads to a TIR.
    let tir = Tir::direct(&domain, &receivers[0].0.rq).unwrap();
    for builder in [Flow::builder(1).rest(), Flow::builder(1).sniffer()] {
        let error = builder.build(&tir).unwrap_err();
        assert!(matches!(error, Error::Attribute { .. }), "{error}");
    }
    let error = Flow::builder(1).destination(to).priority(1000).build(&tir).unwrap_err();
    assert!(matches!(error, Error::Call { .. }), "{error}");
}

#[test]
fn a_table_spreads_connections_and_is_changed_under_traffic() {
    let rig = rig();
    let mut a = Sender::new(&rig);
    let mut queues = [0; 4].map(|_| Receiver::new(&rig));
    let domain = TransportDomain::new(&rig.context).unwrap();
    let list = |queues: &[Receiver; 4], order: &[usize]| -> Vec<Rq> {
        order.iter().map(|at| queues[*at].rq.clone()).collect()
    };
    let all = list(&queues, &[0, 1, 2, 3]);
    let refs: Vec<&Rq> = all.iter().collect();
    let table = Rqt::new(&refs, 4).unwrap();
    let numbers: Vec<u32> = all.iter().map(Rq::number).collect();
    assert_eq!((table.list().unwrap(), table.room()), (numbers.clone(), 4));
    let key = std::array::from_fn(|at| (at * 37 + 11) as u8);
    let tir = Tir::spread(&domain, &table, &key, RssHash::Ipv4Udp).unwrap();
    let _flow = flow(address(0x44), &tir);
    let mut send = |queues: &mut [Receiver; 4], port: u16| -> usize {
        queues.iter_mut().for_each(Receiver::provide);
        a.frame(9, &udp(address(0x44), port, b"spread"));
        let met: Vec<usize> = (0..4).filter(|at| queues[*at].next().is_some()).collect();
        assert_eq!(met.len(), 1, "{met:?}");
        met[0]
    };
    let first: Vec<usize> = (0..8).map(|port| send(&mut queues, 5000 + port)).collect();
    let mut met = first.clone();
    met.sort_unstable();
    met.dedup();
    assert!(met.len() > 1, "eight connections on one queue: {first:?}");
    // A connection stays where it is.
    let again: Vec<usize> = (0..8).map(|port| send(&mut queues, 5000 + port)).collect();
    assert_eq!(again, first);
    // Turned around, each goes where its number now leads.
    let turned: Vec<&Rq> = refs.iter().rev().copied().collect();
    table.set(&turned).unwrap();
    let after: Vec<usize> = (0..8).map(|port| send(&mut queues, 5000 + port)).collect();
    let expected: Vec<usize> = first.iter().map(|at| 3 - at).collect();
    assert_eq!(after, expected);
    // Another table, of one alone.
    let single = Rqt::new(&refs[2..3], 1).unwrap();
    tir.set_table(&single).unwrap();
    assert!((0..8).all(|port| send(&mut queues, 5000 + port) == 2));
    tir.set_table(&table).unwrap();
    // By addresses alone all connections of these two are one.
    tir.set_spread(&key, RssHash::Ipv4).unwrap();
    let by_address: Vec<usize> = (0..8).map(|port| send(&mut queues, 5000 + port)).collect();
    assert!(by_address.iter().all(|at| *at == by_address[0]), "{by_address:?}");
    let context = tir.query().unwrap();
    assert_eq!(tirc::INDIRECT_TABLE.get(&context), u64::from(table.number()));
    // What cannot be.
    for (queues, room) in [(&refs[..3], 4), (&refs[..0], 4), (&refs[..4], 2)] {
        let error = Rqt::new(queues, room).unwrap_err();
        assert!(matches!(error, Error::Attribute { .. }), "{error}");
    }
    let error = Rqt::new(&refs, 1 << 12).unwrap_err();
    assert!(matches!(error, Error::NoCapability(_)), "{error}");
    assert!(table.set(&refs[..3]).is_err());
    assert_eq!(table.list().unwrap().len(), 4);
    let alone = Tir::direct(&domain, &all[0]).unwrap();
    for error in [alone.set_table(&table), alone.set_spread(&key, RssHash::Ipv6Tcp)] {
        assert!(matches!(error.unwrap_err(), Error::Attribute { .. }));
    }
}

#[test]
fn frames_without_a_receive_are_counted() {
    let rig = rig();
    // Firmware gives programs no sets by default.
    mlx5_model::set_counter_sets(0, CounterSets::Allowed);
    let counters = QueueCounters::new(&rig.context).unwrap();
    let (mut a, mut b) = (Sender::new(&rig), Receiver::with(&rig, Some(&counters)));
    let domain = TransportDomain::new(&rig.context).unwrap();
    let tir = Tir::direct(&domain, &b.rq).unwrap();
    let _flow = flow(address(0x45), &tir);
    let frame = udp(address(0x45), 4000, b"lost");
    assert_eq!(rqc::COUNTER_SET_ID.get(&b.rq.query().unwrap()), u64::from(counters.number()));
    for id in 0..3 {
        a.frame(id, &frame);
    }
    assert_eq!(counters.take().unwrap().to_string(), "out_of_buffer = 3");
    b.post();
    a.frame(3, &frame);
    assert!(b.next().is_some());
    let other = QueueCounters::new(&rig.context).unwrap();
    b.rq.count_in(Some(&other)).unwrap();
    a.frame(4, &frame);
    b.rq.count_in(None).unwrap();
    a.frame(5, &frame);
    assert_eq!(counters.read().unwrap().out_of_buffer, 0);
    assert_eq!(other.read().unwrap().out_of_buffer, 1);
}

#[test]
fn a_queue_that_failed_starts_anew() {
    let rig = rig();
    let mut a = Sender::new(&rig);
    let frame = udp(address(0x46), 4000, b"again");
    let mut wrong = a.sge(0, 60);
    wrong.lkey ^= 0x5500;
    // SAFETY: the card is to find out that it is no memory.
    unsafe { a.send.post(1, EthSend::new(wrong).signaled()).unwrap() };
    match a.sent.poll(&mut a.send).unwrap() {
        Some(Completion::Failed(failure)) => {
            assert_eq!((failure.id, failure.status), (1, Status::LocalProtection));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(sqc::STATE.get(&a.sq.query().unwrap()), 3);
    // A queue in use cannot be restarted.
    assert!(matches!(a.sq.restart(), Err(Error::QueueInUse { .. })));
    let Sender { memory, send, mut sent, sq } = a;
    drop(send);
    sq.restart().unwrap();
    let send = SendQueue::new(&sq, &mut sent, SendConfig::default()).unwrap();
    let mut a = Sender { memory, send, sent, sq };
    a.frame(2, &frame);

    // A receive that is too short fails its queue.
    let mut b = Receiver::new(&rig);
    let domain = TransportDomain::new(&rig.context).unwrap();
    let tir = Tir::direct(&domain, &b.rq).unwrap();
    let _flow = flow(address(0x46), &tir);
    // SAFETY: the memory lives longer.
    unsafe {
        b.frames.post(5, b.memory.sge(0, 20).unwrap()).unwrap();
    }
    b.post();
    a.frame(3, &frame);
    match b.frames.poll().unwrap() {
        Some(PacketEvent::Failed(failure)) => {
            assert_eq!((failure.id, failure.status), (5, Status::LocalLength));
        }
        other => panic!("{other:?}"),
    }
    match b.frames.poll().unwrap() {
        Some(PacketEvent::Failed(failure)) => assert_eq!(failure.status, Status::Flushed),
        other => panic!("{other:?}"),
    }
    assert_eq!(rqc::STATE.get(&b.rq.query().unwrap()), 3);
    let Receiver { memory, frames, rq, .. } = b;
    drop(frames);
    rq.restart().unwrap();
    assert_eq!(rqc::STATE.get(&rq.query().unwrap()), 1);
    drop(memory);
}

#[test]
fn queues_lie_where_they_are_told_to() {
    let rig = rig();
    let domain = TransportDomain::new(&rig.context).unwrap();
    let tis = Tis::new(&domain).unwrap();
    // By command altogether, in one umem.
    let pd = DevxPd::new(&rig.context).unwrap();
    let memory = Umem::new(&rig.context, Pages::new(5 * 4096).unwrap()).unwrap();
    let cqs = [rig.cq(16), rig.cq(16)];
    let sq = Sq::builder(&pd, &tis, &cqs[0])
        .max_wr(64)
        .ring(&memory, 0)
        .record(&memory, 4 * 4096)
        .build()
        .unwrap();
    assert_eq!(sq.max_wr(), 64);
    let build = || Rq::builder(&pd, &cqs[1]).max_wr(16);
    let rq = build().ring(&memory, 4096).record(&memory, 4 * 4096 + 64).build().unwrap();
    assert_eq!((rq.max_wr(), rq.max_sge()), (16, 1));
    // What is taken is taken, and what does not fit is told.
    for (made, part) in [
        (build().ring(&memory, 4096).build(), "overlaps"),
        (build().ring(&memory, 64).build(), "multiple"),
        (build().ring(&memory, 5 * 4096).build(), "ends"),
        (build().record(&memory, 4 * 4096 + 68).build(), "multiple"),
        (build().max_wr(1 << 16).build(), "max_wr"),
        (build().max_sge(200).build(), "max_sge"),
    ] {
        let error = made.unwrap_err();
        assert!(matches!(error, Error::Attribute { .. }), "{error}");
        assert!(error.to_string().contains(part), "{part:?} is missing in {error}");
    }
    let build = || Sq::builder(&pd, &tis, &cqs[0]);
    for made in [
        build().max_wr(1 << 16).build(),
        build().max_sge(62).build(),
        build().max_inline_data(2000).build(),
    ] {
        assert!(matches!(made.unwrap_err(), Error::Attribute { .. }));
    }
    // A place is free again when its queue is gone.
    drop(rq);
    Rq::builder(&pd, &cqs[1]).ring(&memory, 4096).build().unwrap();
}

#[test]
fn a_receive_has_as_many_sges_as_the_device_takes() {
    let rig = rig();
    let (cq, field) = (rig.cq(16), cmd_hca_cap::MAX_WQE_SZ_RQ);
    let most = rig.context.capabilities().current(Group::General, field).unwrap().unwrap();
    let sge = most as u32 / 16;
    let receives = || Rq::builder(&rig.pd, &cq);
    assert_eq!(receives().max_wr(4).max_sge(sge).build().unwrap().max_sge(), sge);
    let refused = receives().max_sge(sge + 1).build().map(drop);
    let bytes = format!("max_sge is {}: its WQEs would have {} bytes", sge + 1, 32 * sge);
    assert!(refused.as_ref().unwrap_err().to_string().contains(&bytes), "{refused:?}");
}

#[test]
fn a_tis_has_a_priority() {
    let rig = rig();
    let domain = TransportDomain::new(&rig.context).unwrap();
    let tis = Tis::new(&domain).unwrap();
    assert_eq!(tis.priority().unwrap(), 0);
    tis.set_priority(5).unwrap();
    assert_eq!(tis.priority().unwrap(), 5);
    assert!(matches!(tis.set_priority(8), Err(Error::Attribute { .. })));
    assert_eq!(tis.priority().unwrap(), 5);
}

#[test]
fn objects_of_another_opened_device_are_refused() {
    let (rig, other) = (rig(), rig());
    let (own, foreign) = (
        TransportDomain::new(&rig.context).unwrap(),
        TransportDomain::new(&other.context).unwrap(),
    );
    let (cq, foreign_cq) = (rig.cq(16), other.cq(16));
    let tis = Tis::new(&own).unwrap();
    let foreign_tis = Tis::new(&foreign).unwrap();
    let rq = Rq::builder(&rig.pd, &cq).build().unwrap();
    let refused = |error: Error| match &error {
        Error::Attribute { .. } => {
            assert!(error.to_string().contains("another opened device"), "{error}");
        }
        other => panic!("{other}"),
    };
    let sq = |tis: &Tis, cq: &CompletionQueue| Sq::builder(&rig.pd, tis, cq).build();
    refused(sq(&tis, &foreign_cq).map(drop).unwrap_err());
    refused(sq(&foreign_tis, &cq).map(drop).unwrap_err());
    refused(Rq::builder(&rig.pd, &foreign_cq).build().map(drop).unwrap_err());
    refused(Tir::direct(&foreign, &rq).map(drop).unwrap_err());
    let foreign_rq = Rq::builder(&other.pd, &foreign_cq).build().unwrap();
    refused(Rqt::new(&[&rq, &foreign_rq], 2).map(drop).unwrap_err());
    let tables = [&rq, &foreign_rq].map(|rq| Rqt::new(&[rq], 1).unwrap());
    refused(tables[0].set(&[&foreign_rq]).unwrap_err());
    refused(Tir::spread(&own, &tables[1], &[1; 40], RssHash::Ipv4).map(drop).unwrap_err());
    let tir = Tir::spread(&own, &tables[0], &[1; 40], RssHash::Ipv4).unwrap();
    refused(tir.set_table(&tables[1]).unwrap_err());
}

#[test]
fn what_something_leads_to_stays() {
    let rig = rig();
    let mut a = Sender::new(&rig);
    let b = Receiver::new(&rig);
    let domain = TransportDomain::new(&rig.context).unwrap();
    let frame = udp(address(0x47), 4000, b"still there");
    let table = Rqt::new(&[&b.rq], 1).unwrap();
    let tir = Tir::spread(&domain, &table, &[1; 40], RssHash::Ipv4).unwrap();
    let flow = flow(address(0x47), &tir);
    // In the wrong order, all of them.
    let Receiver { memory, mut frames, rq, .. } = b;
    drop((domain, rq, table, tir));
    // SAFETY: the memory lives longer.
    unsafe { frames.post(1, memory.sge(0, 2048).unwrap()).unwrap() };
    a.frame(2, &frame);
    assert!(matches!(frames.poll(), Ok(Some(PacketEvent::Packet(done))) if done.id == 1));
    // The card holds the same: each is refused while something leads to it.
    let domain = TransportDomain::new(&rig.context).unwrap();
    let other = Receiver::new(&rig);
    let tir = Tir::direct(&domain, &other.rq).unwrap();
    let raw = mlx5::devx::Command::new(
        mlx5::devx::ifc::opcode::DESTROY_RQ,
        mlx5::devx::ifc::destroy_rq_in::SIZE,
    );
    // The kernel forbids destroying by command an object for which it has a handle.
    let destroy = raw.set(mlx5::devx::ifc::destroy_rq_in::RQN, other.rq.number());
    // SAFETY: the kernel withholds the command.
    assert!(matches!(unsafe { destroy.execute(&rig.context) }, Err(Error::Withheld(_))));
    drop((flow, tir));
}

#[test]
fn a_queue_that_the_card_keeps_keeps_its_memory() {
    use mlx5::devx::ifc::{create_rqt_in, create_rqt_out, opcode, rqtc};
    use mlx5::devx::{Command, DevxMkey};
    let rig = rig();
    let umem = Umem::new(&rig.context, Pages::new(2 << 12).unwrap()).unwrap();
    let cq = rig.cq(64);
    let builder = Rq::builder(&rig.pd, &cq).max_wr(64);
    let rq = builder.ring(&umem, 0).record(&umem, 4096).build().unwrap();
    let command = Command::new(opcode::CREATE_RQT, create_rqt_in::SIZE)
        .set(rqtc::RQT_MAX_SIZE.within(create_rqt_in::RQT_CONTEXT), 1u32)
        .set(rqtc::RQT_ACTUAL_SIZE.within(create_rqt_in::RQT_CONTEXT), 1u32)
        .tail_bytes(&rq.number().to_be_bytes())
        .reply(create_rqt_out::SIZE);
    // SAFETY: the card keeps the queue as long as the table, and nothing is posted to it.
    let table = unsafe { command.create(&rig.context) }.unwrap();
    // The card refuses to let it go.
    drop(rq);
    for (offset, what) in [(0, "0x0 to 0x400 of a ring"), (4096, "0x1000 to 0x1008 of a ring")] {
        let error = DevxMkey::builder(&rig.pd).direct(&umem, offset, 8).unwrap_err();
        assert!(error.to_string().contains(what), "{what:?} is missing in {error}");
    }
    table.destroy().unwrap();
}

#[test]
fn numbers_are_of_queues_and_not_of_queue_pairs() {
    let rig = rig();
    let a = Sender::new(&rig);
    let context = a.sq.query().unwrap();
    assert_eq!(sqc::USER_INDEX.get(&context), 0x123);
    assert_eq!(sqc::STATE.get(&context), 1);
    let error = SendQueue::<RawPacket>::new(
        &a.sq,
        &mut CqReader::new(&rig.cq(16)).unwrap(),
        SendConfig::default(),
    );
    // Somebody posts on it already.
    assert!(error.is_err());
}
