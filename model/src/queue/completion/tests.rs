//! Unit tests.

use mlx5_sys::ifc::{cqc, create_cq_in, create_qp_in};

use super::super::Syndrome;
use super::super::test::Queue;
use super::*;

#[test]
fn a_requester_cqe_has_its_fields_in_place() {
    let mut queue = Queue::new();
    queue.rig.card.clock.advance(0x0102_0304);
    queue.rig.card.complete(&queue.sent(0xabcd, Ok(())));
    let cqe = queue.cqe(0);
    assert_eq!(cqe[32..36], [0, 0xab, 0xcd, 0xef]);
    assert_eq!(cqe[44..48], [0, 0, 0x12, 0x34]);
    assert_eq!(cqe[48..56], [0, 0, 0, 0, 1, 2, 3, 4]);
    assert_eq!(cqe[56..60], [0x0a, 0, 0x12, 0]);
    assert_eq!(cqe[60..62], [0xab, 0xcd]);
    assert_eq!(cqe[63], 0x00);
    assert_eq!(cqe[..32], [0; 32]);
}

#[test]
fn a_cqe_has_the_time_in_the_format_of_its_queue() {
    let mut queue = Queue::new();
    queue.rig.card.clock.advance(7_000_000_003);
    let qp = queue.rig.card.objects.qps.get_mut(&queue.qp).unwrap();
    qpc::TS_FORMAT.set(&mut qp.context[..], 2);
    queue.rig.card.complete(&queue.sent(1, Ok(())));
    queue.rig.card.complete(&queue.received(false));
    for slot in [0, 1] {
        assert_eq!(queue.cqe(slot)[48..56], [0, 0, 0, 7, 0, 0, 0, 3]);
    }
    let qp = queue.rig.card.objects.qps.get_mut(&queue.qp).unwrap();
    qpc::TS_FORMAT.set(&mut qp.context[..], 1);
    queue.rig.card.complete(&queue.sent(2, Ok(())));
    assert_eq!(queue.cqe(2)[48..56], 7_000_000_003u64.to_be_bytes());
}

#[test]
fn a_responder_cqe_has_its_fields_in_place() {
    let mut queue = Queue::new();
    queue.rig.card.complete(&queue.received(true));
    let cqe = queue.cqe(0);
    assert_eq!(cqe[22..24], [0x11, 0x22]);
    assert_eq!(cqe[24..28], [0x05, 0, 0x12, 0]);
    assert_eq!(cqe[36..40], [9; 4]);
    assert_eq!(cqe[56..60], [0, 0, 0x12, 0]);
    assert_eq!(cqe[60..62], [0, 3]);
    assert_eq!(cqe[63], 0x32);
}

#[test]
fn a_datagrams_cqe_names_its_sender() {
    let mut queue = Queue::new();
    let datagram = Completion { sender: Some((0xfe_dcba, true)), ..queue.received(false) };
    queue.rig.card.complete(&datagram);
    let cqe = queue.cqe(0);
    assert_eq!(cqe[22..24], [0x11, 0x22]);
    assert_eq!(cqe[24..28], [0x15, 0xfe, 0xdc, 0xba]);
}

#[test]
fn error_cqes_name_syndrome_and_wqe() {
    let mut queue = Queue::new();
    queue.rig.card.complete(&queue.sent(5, Err(Syndrome::RemoteAccess)));
    let failed = Completion { result: Err(Syndrome::LocalLength), ..queue.received(true) };
    queue.rig.card.complete(&failed);
    let cqe = queue.cqe(0);
    assert_eq!(cqe[32..36], [0, 0xab, 0xcd, 0xef]);
    assert_eq!(cqe[52..56], [0, 0, 0x88, 0x13]);
    assert_eq!(cqe[56..62], [0x0a, 0, 0x12, 0, 0, 5]);
    // As in dumps of devices (E028, E029, E032).
    assert_ne!(cqe[62], 0);
    assert_eq!(cqe[63], 0xd2);
    let cqe = queue.cqe(1);
    assert_eq!(cqe[54..56], [0, 0x01]);
    assert_ne!(cqe[62], 0);
    assert_eq!(cqe[63], 0xe2);
}

#[test]
fn small_payloads_ride_in_the_cqe() {
    let data: Vec<u8> = (1..=64).collect();
    let field = |f: mlx5_sys::ifc::Field| f.within(create_qp_in::QPC);
    let mut queue = Queue::with(
        |cq| cq,
        |qp| qp.set(field(qpc::CS_RES), 1u64).set(field(qpc::CS_REQ), 0x11u64),
    );
    assert_eq!(queue.rig.card.inline_room(queue.qp, false), 32);
    assert_eq!(queue.rig.card.inline_room(queue.qp, true), 32);
    let one = Completion { inline: Some(data[..32].to_vec()), ..queue.received(false) };
    queue.rig.card.complete(&one);
    assert_eq!(queue.cqe(0)[..32], data[..32]);
    assert_eq!(queue.cqe(0)[63], 0x34);

    let mut queue = Queue::with(
        |cq| {
            let size = cqc::CQE_SZ.within(create_cq_in::CQ_CONTEXT);
            cq.set(size, 1u64).set(cqc::LOG_CQ_SIZE.within(create_cq_in::CQ_CONTEXT), 3u64)
        },
        |qp| qp.set(field(qpc::CS_RES), 2u64).set(field(qpc::CS_REQ), 0x22u64),
    );
    assert_eq!(queue.rig.card.inline_room(queue.qp, true), 64);
    let answer = Completion { inline: Some(data.clone()), ..queue.sent(1, Ok(())) };
    queue.rig.card.complete(&answer);
    assert_eq!(queue.cqe(0)[..], data);
    assert_eq!(queue.cqe(1)[63], 0x08);
    let small = Completion { inline: Some(data[..8].to_vec()), ..queue.sent(2, Ok(())) };
    queue.rig.card.complete(&small);
    assert_eq!(queue.cqe(3)[..8], data[..8]);
    assert_eq!(queue.cqe(3)[63], 0x04);
    // The answer of an atomic: a number, most significant byte first.
    let inline = Some(vec![1, 2, 3, 4, 5, 6, 7, 8]);
    let atomic = Origin::Requester { opcode: 0x12 };
    let small = Completion { origin: atomic, inline, ..queue.sent(3, Ok(())) };
    queue.rig.card.complete(&small);
    assert_eq!(queue.cqe(5)[..8], [8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(queue.rig.card.inline_room(queue.qp + 1, true), 0);
}
