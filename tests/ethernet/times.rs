//! Times in real-time format, of queues made by command. The model's PTP clock was never set: it counts
//! the nanoseconds of the device, as the free-running clock of the usual profile does. In the first
//! second, both formats have the same bits: the model's own tests tell them apart.

use std::time::Duration;

use mlx5::cqe::{Completion, Timestamp, TimestampFormat};
use mlx5::devx::{CommandTarget, Firmware, Rq, SendTimes, Sq, Tir, Tis, TransportDomain};
use mlx5::ib::{Rc, Ud};
use mlx5::ring::{
    CqReader, PacketEvent, PacketRq, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue,
};
use mlx5::verbs::attr::{UdInitAttributes, UnreliableRtsAttributes};
use mlx5::verbs::{AddressHandle, DeviceClock, Flow, QueuePair, QueuePairBuilder};
use mlx5::wqe::{EthSend, Inline, SendMessage, UdAddress};

use crate::{Side, address, rig, udp};
use rig::{QKEY, Rig, until};

/// Asserts that a time is one of the PTP clock, later than `before` and not later than now.
#[track_caller]
fn since(clock: &DeviceClock, before: Timestamp, time: Timestamp) {
    let real = time.real_time().expect("a real time").since_epoch().as_nanos() as u64;
    let now = clock.count().unwrap();
    assert!(before.raw() <= real && real <= now.raw(), "{before:?} {time:?} {now:?}");
}

#[test]
fn packets_of_queues_by_command_have_real_times() {
    let rig = rig();
    let clock = DeviceClock::new(&rig.context).unwrap();
    let domain = TransportDomain::new(&rig.context).unwrap();
    let (send_cq, receive_cq) = (rig.cq(16), rig.cq(16));
    let tis = Tis::new(&domain).unwrap();
    let builder = Sq::builder(&rig.pd, &tis, &send_cq).max_inline_data(100);
    let sq = builder.timestamps(TimestampFormat::RealTime).build().unwrap();
    let rq = Rq::builder(&rig.pd, &receive_cq).timestamps(TimestampFormat::RealTime);
    let rq = rq.build().unwrap();
    for object in [sq.object(), rq.object()] {
        let format = object.object_context().unwrap().timestamp_format();
        assert_eq!(format, Some(TimestampFormat::RealTime));
    }
    let mut reader = CqReader::new(&send_cq).unwrap();
    let mut send = SendQueue::new(&sq, &mut reader, SendConfig::default()).unwrap();
    let mut packets = PacketRq::new(&rq, &receive_cq, ReceiveConfig::default()).unwrap();
    let tir = Tir::direct(&domain, &rq).unwrap();
    let _flow = Flow::builder(1).destination(address(0x70)).build(&tir).unwrap();
    let memory = rig.memory(2048);
    for id in 0..3 {
        let before = clock.count().unwrap();
        let packet = udp(address(0x70), 4000, b"at what time?");
        // SAFETY: the memory lives to the end, and is not read. The payload is in the WQE.
        unsafe {
            packets.post(id, memory.sge(0, 2048).unwrap()).unwrap();
            send.post(id, EthSend::new(Inline(&packet)).signaled()).unwrap();
        }
        let (completion, time) = until(|| reader.poll_timed(&mut send).unwrap());
        assert!(matches!(completion, Completion::Send(done) if done.id == id));
        since(&clock, before, time.unwrap());
        let event = until(|| packets.poll().unwrap());
        let PacketEvent::Packet(packet) = event else { panic!("{event:?}") };
        since(&clock, before, packet.info().timestamp);
    }
}

#[test]
fn a_queue_has_free_running_times_unless_others_are_asked_for() {
    let rig = rig();
    let domain = TransportDomain::new(&rig.context).unwrap();
    let cq = rig.cq(64);
    let rq = Rq::builder(&rig.pd, &cq).build().unwrap();
    let sq = Sq::builder(&rig.pd, &Tis::new(&domain).unwrap(), &cq).build().unwrap();
    let qp = QueuePair::by_command(&rig.pd, &cq).build().unwrap();
    for object in [rq.object(), sq.object(), qp.object()] {
        let format = object.object_context().unwrap().timestamp_format();
        assert_eq!(format, Some(TimestampFormat::FreeRunning));
    }
    let qp = QueuePair::by_command(&rig.pd, &cq).timestamps(TimestampFormat::Default);
    let context = qp.build().unwrap().object().object_context().unwrap();
    assert_eq!(context.timestamp_format(), Some(TimestampFormat::Default));
    // Those of verbs report it, too, and other objects have none.
    for part in Side::new(&rig).qp.part_contexts().unwrap() {
        let stamped = part.layout().leaves().iter().any(|field| field.name() == Some("TS_FORMAT"));
        assert_eq!(part.timestamp_format(), stamped.then_some(TimestampFormat::FreeRunning));
    }
    assert_eq!(cq.object_context().unwrap().timestamp_format(), None);
}

/// Waits for two completions, of a message's receive and of its request, and checks their times.
fn both(
    clock: &DeviceClock,
    before: Timestamp,
    reader: &mut CqReader,
    queues: &mut impl mlx5::ring::Queues,
) {
    for _ in 0..2 {
        let (completion, time) = until(|| reader.poll_timed(queues).unwrap());
        assert!(matches!(completion, Completion::Send(_) | Completion::Receive(_)));
        since(clock, before, time.unwrap());
    }
}

#[test]
fn connections_and_datagrams_by_command_have_real_times() {
    let rig = rig();
    let clock = DeviceClock::new(&rig.context).unwrap();
    let memory = rig.memory(4096);
    let sge = || memory.sge(0, 256).unwrap();
    let cq = rig.cq(64);
    let builder = QueuePairBuilder::<Rc, Firmware>::by_command(&rig.pd, &cq).max_inline_data(64);
    let qp = rig.looped(rig.init(builder.timestamps(TimestampFormat::RealTime)));
    let mut reader = CqReader::new(&cq).unwrap();
    let mut receive = ReceiveQueue::new(&qp, &mut reader, ReceiveConfig::default()).unwrap();
    let mut send = SendQueue::new(&qp, &mut reader, SendConfig::default()).unwrap();
    let before = clock.count().unwrap();
    // SAFETY: the memory lives to the end, and is not read. The payload is in the WQE.
    unsafe {
        receive.post(1, sge()).unwrap();
        send.post(2, SendMessage::new(Inline(b"reliable")).signaled()).unwrap();
    }
    both(&clock, before, &mut reader, &mut (&mut send, &mut receive));
    datagrams(&rig, &clock, sge());
}

fn datagrams(rig: &Rig, clock: &DeviceClock, sge: mlx5::wqe::Sge) {
    let cq = rig.cq(64);
    let builder = QueuePairBuilder::<Ud, Firmware>::by_command(&rig.pd, &cq).max_inline_data(64);
    let qp = builder.timestamps(TimestampFormat::RealTime).build().unwrap();
    let qp = qp.init(&UdInitAttributes::new(1, QKEY)).unwrap().rtr().unwrap();
    let qp = qp.rts(&UnreliableRtsAttributes::default()).unwrap();
    let way = rig.local.address(&rig.local.connection_data_of(qp.number()));
    let to = UdAddress::new(&AddressHandle::new(&rig.pd, &way).unwrap(), qp.number(), QKEY);
    let mut reader = CqReader::new(&cq).unwrap();
    let mut receive = ReceiveQueue::new(&qp, &mut reader, ReceiveConfig::default()).unwrap();
    let mut send = SendQueue::new(&qp, &mut reader, SendConfig::default()).unwrap();
    let before = clock.count().unwrap();
    // SAFETY: the memory lives to the end, and is not read. The payload is in the WQE.
    unsafe {
        receive.post(1, sge).unwrap();
        send.post(2, SendMessage::new(Inline(b"datagram")).signaled().to(to)).unwrap();
    }
    both(clock, before, &mut reader, &mut (&mut send, &mut receive));
}

#[test]
fn queues_with_real_times_wait_for_real_times() {
    let rig = rig();
    let clock = DeviceClock::new(&rig.context).unwrap();
    let domain = TransportDomain::new(&rig.context).unwrap();
    let cq = rig.cq(16);
    let tis = Tis::new(&domain).unwrap();
    let builder = Sq::builder(&rig.pd, &tis, &cq).max_inline_data(100);
    let sq = builder.timestamps(TimestampFormat::RealTime).build().unwrap();
    let mut reader = CqReader::new(&cq).unwrap();
    let mut send = SendQueue::new(&sq, &mut reader, SendConfig::default()).unwrap();
    let times = SendTimes::real_time(&rig.context).unwrap();
    // The free-running clock counts the same nanoseconds.
    let later =
        clock.read().unwrap().after(clock.count().unwrap(), Duration::from_millis(50)).raw();
    let (seconds, nanoseconds) = (later / 1_000_000_000, later % 1_000_000_000);
    let real = Timestamp::from_raw(seconds << 32 | nanoseconds);
    // SAFETY: the request names no memory.
    unsafe { send.post(3, times.until(real).signaled()).unwrap() };
    let (completion, time) = until(|| reader.poll_timed(&mut send).unwrap());
    assert!(matches!(completion, Completion::Send(done) if done.id == 3), "{completion:?}");
    assert!(real <= time.unwrap() && Timestamp::from_raw(later) <= clock.count().unwrap());
}
