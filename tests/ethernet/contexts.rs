//! The HCA's contexts of Ethernet queues and of the port, queried by firmware command.

use mlx5::Error;
use mlx5::devx::ifc::{
    nic_vport_context, opcode, query_rqt_in, query_rqt_out, rqc, rqtc, sqc, tirc, wq,
};
use mlx5::devx::{Command, CommandTarget, Traffic};
use mlx5::verbs::{RssQueues, StridingQueue};
use mlx5::wqe::EthSend;

use crate::{Side, address, rig, udp};

#[test]
fn a_queue_pair_for_frames_shows_its_parts() {
    let rig = rig();
    let side = Side::new(&rig);
    let parts = side.qp.part_contexts().unwrap();
    let names: Vec<&str> = parts.iter().map(|part| part.layout().name).collect();
    assert_eq!(names, ["sqc", "tisc", "rqc", "tirc"]);
    let [send, _, receive, leads] = &parts[..] else { unreachable!() };
    assert_eq!((send.get(sqc::STATE), receive.get(rqc::STATE)), (1, 1));
    assert_ne!(send.get(sqc::CQN), receive.get(rqc::CQN), "two CQs");
    assert_eq!(leads.get(tirc::DISP_TYPE), 0, "to the one queue");
    for context in [send, receive] {
        assert!(context.to_string().contains("state = 1 (ready)"), "{context}");
        assert!(context.to_string().contains("wq.log_wq_sz = "), "{context}");
    }
    // The card has no queue pair of it.
    let error = side.qp.object_context().unwrap_err();
    assert!(error.to_string().contains("part_contexts"), "{error}");
}

#[test]
fn a_striding_queue_and_a_table_of_them_are_asked_too() {
    let rig = rig();
    let cq = rig.cq(64);
    let queue = StridingQueue::builder(&rig.pd, &cq).strides(8).wqes(4).build().unwrap();
    let spread = RssQueues::new(std::slice::from_ref(&queue), &[0x5a; 40]).unwrap();
    let context = queue.object_context().unwrap();
    assert_eq!(context.layout().name, "rqc");
    assert!(context.to_string().contains("wq.wq_type = 3 (cyclic, striding)"), "{context}");
    assert_eq!(context.get(wq::LOG_WQ_SZ.within(rqc::WQ)), 2);

    let context = spread.object_context().unwrap();
    assert_eq!((context.layout().name, context.get(rqtc::RQT_ACTUAL_SIZE)), ("rqtc", 1));
    assert!(!context.to_string().contains("missing"), "{context}");
    let query = |number: u32| {
        Command::new(opcode::QUERY_RQT, query_rqt_in::SIZE)
            .set(query_rqt_in::RQTN, number)
            .reply(query_rqt_out::SIZE + 4)
    };
    let reply = spread.query_by(&query(spread.number())).unwrap();
    let entry = &reply.as_bytes()[query_rqt_out::SIZE..];
    assert_eq!(entry, queue.number().to_be_bytes(), "its one queue");
    let error = spread.query_by(&query(spread.number() + 1)).unwrap_err();
    assert!(matches!(error, Error::Withheld(_)), "{error}");
}

#[test]
fn the_port_shows_its_address_and_counts_frames() {
    let rig = rig();
    let context = rig.context.nic_vport_context().unwrap();
    assert_eq!(context.layout().name, "nic_vport_context");
    assert_eq!(
        (context.get(nic_vport_context::ROCE_EN), context.get(nic_vport_context::MTU)),
        (1, 1500)
    );
    assert_ne!(context.get(nic_vport_context::PERMANENT_ADDRESS), 0);

    let mut a = Side::new(&rig);
    let mut b = Side::new(&rig);
    let _flow = b.flow(address(90));
    let before = rig.context.vport_counters().unwrap();
    let frame = udp(address(90), 5, &[7; 500]);
    // SAFETY: the memory lives, and is touched again when what was posted is complete.
    unsafe {
        b.frames.post(1, b.sge(0, 2048)).unwrap();
        a.memory.write(0, &frame);
        a.send.post(1, EthSend::new(a.sge(0, frame.len())).signaled()).unwrap();
    }
    a.sent_well(1);
    assert_eq!(b.received().byte_len, frame.len() as u32);
    // Other tests of this process use the same port: so much at least.
    let after = rig.context.vport_counters().unwrap();
    let more = |after: Traffic, before: Traffic| {
        (after.packets - before.packets, after.octets - before.octets)
    };
    for (after, before) in [
        (after.sent_multicast, before.sent_multicast),
        (after.received_multicast, before.received_multicast),
    ] {
        let (packets, octets) = more(after, before);
        assert!(packets >= 1 && octets >= frame.len() as u64, "{packets} of {octets} bytes");
    }
}
