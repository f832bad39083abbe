//! Unit tests.

use super::*;
use crate::object::MiniFormat;

/// Umem 7 is here, and there is no other.
const UMEM: u64 = 0x10_0000;

fn at(umem: u64, offset: u64) -> Option<u64> {
    (umem == 7).then_some(UMEM + offset)
}

fn of(size: usize, context: Field, fields: &[(Field, u64)], plain: &[(Field, u64)]) -> Vec<u8> {
    let mut input = vec![0; size];
    fields.iter().for_each(|(field, value)| field.within(context).set(&mut input, *value));
    plain.iter().for_each(|(field, value)| field.set(&mut input, *value));
    input
}

#[test]
fn cq_is_where_its_command_says() {
    let context = create_cq_in::CQ_CONTEXT;
    let fields =
        [(cqc::LOG_CQ_SIZE, 4), (cqc::CQE_SZ, 1), (cqc::DBR_UMEM_ID, 7), (cqc::DBR_ADDR, 0x1000)];
    let plain = [(create_cq_in::CQ_UMEM_ID, 7), (create_cq_in::CQ_UMEM_OFFSET, 0x40)];
    let input = of(create_cq_in::SIZE, context, &fields, &plain);
    let expected = CqRing::new(UMEM + 0x40, 16, 128, UMEM + 0x1000);
    assert_eq!(format!("{:?}", cq(&input, at)), format!("{expected:?}"));
    assert!(cq(&input[1..], at).is_none());
    assert!(cq(&input, |_, _| None).is_none());
    let compressed = [&fields[..], &[(cqc::CQE_COMP_EN, 1)]].concat();
    let basic = cq(&of(create_cq_in::SIZE, context, &compressed, &plain), at);
    let expected = expected.map(|ring| ring.compressed(MiniFormat::Hash));
    assert_eq!(format!("{basic:?}"), format!("{expected:?}"));
    let enhanced = [&compressed[..], &[(cqc::CQE_COMPRESSION_LAYOUT, 1)]].concat();
    assert!(cq(&of(create_cq_in::SIZE, context, &enhanced, &plain), at).is_none());
}

#[test]
fn send_queue_is_behind_the_receive_queue() {
    let fields = [
        (qpc::ST, 2),
        (qpc::LOG_RQ_SIZE, 3),
        (qpc::LOG_RQ_STRIDE, 1),
        (qpc::LOG_SQ_SIZE, 5),
        (qpc::CQN_SND, 8),
        (qpc::CQN_RCV, 9),
        (qpc::DBR_UMEM_ID, 7),
        (qpc::DBR_ADDR, 0x2000),
    ];
    let plain = [(create_qp_in::WQ_UMEM_ID, 7), (create_qp_in::WQ_UMEM_OFFSET, 0x80)];
    let input = of(create_qp_in::SIZE, create_qp_in::QPC, &fields, &plain);
    let pair = queue_pair(&input, 5, at).unwrap();
    assert_eq!((pair.number, pair.service, pair.cqs), (5, Service::Ud, [8, 9]));
    let send = SendRing::new(UMEM + 0x80 + 8 * 32, 32, UMEM + 0x2004);
    assert_eq!(format!("{:?}", pair.send), format!("{send:?}"));
    let Receive::Own(ring) = pair.receive else { panic!("it has a receive queue") };
    let receive = ReceiveRing::new(UMEM + 0x80, 8, 5, UMEM + 0x2000).unwrap();
    assert_eq!(format!("{ring:?}"), format!("{receive:?}"));
}

#[test]
fn work_queues_are_where_their_commands_say() {
    let made = |size, context: Field, kind, umem, cqn: Field| {
        let fields = [
            (wq::WQ_TYPE, kind),
            (wq::LOG_WQ_SZ, 3),
            (wq::LOG_WQ_STRIDE, 6),
            (wq::WQ_UMEM_ID, umem),
            (wq::WQ_UMEM_OFFSET, 0x40),
            (wq::DBR_UMEM_ID, 7),
            (wq::DBR_ADDR, 0x1000),
        ];
        of(size, context, &fields, &[(cqn, 9)])
    };
    let sq = |kind, umem| {
        let cqn = sqc::CQN.within(create_sq_in::CTX);
        made(create_sq_in::SIZE, sqc::WQ.within(create_sq_in::CTX), kind, umem, cqn)
    };
    let pair = send_queue(&sq(CYCLIC, 7), 5, at).unwrap();
    assert_eq!((pair.number, pair.service, pair.cqs), (5, Service::Ethernet, [9, 0]));
    let send = SendRing::new(UMEM + 0x40, 8, UMEM + 0x1004);
    assert_eq!(format!("{:?}", pair.send), format!("{send:?}"));
    assert!(send_queue(&sq(CYCLIC, 8), 5, at).is_none());
    assert!(send_queue(&sq(CYCLIC, 7)[..0x80], 5, at).is_none());

    let rq = |kind| {
        let cqn = rqc::CQN.within(create_rq_in::CTX);
        made(create_rq_in::SIZE, rqc::WQ.within(create_rq_in::CTX), kind, 7, cqn)
    };
    let pair = receive_queue(&rq(CYCLIC), 6, at).unwrap();
    assert_eq!((pair.number, pair.cqs), (6, [0, 9]));
    let Receive::Own(ring) = pair.receive else { panic!("it has a receive queue") };
    let receive = ReceiveRing::new(UMEM + 0x40, 8, 6, UMEM + 0x1000).unwrap();
    assert_eq!(format!("{ring:?}"), format!("{receive:?}"));
    assert!(receive_queue(&rq(3), 6, at).is_none(), "a cyclic queue of strides");

    let rmp = |kind| {
        let state = rmpc::STATE.within(create_rmp_in::CTX);
        made(create_rmp_in::SIZE, rmpc::WQ.within(create_rmp_in::CTX), kind, 7, state)
    };
    let shared = shared_queue(&rmp(LINKED), at).unwrap();
    assert_eq!(shared.sizes(), (8, 64));
    assert!(shared_queue(&rmp(CYCLIC), at).is_none());
}

#[test]
fn any_command_is_read_without_harm() {
    for byte in 0..=u8::MAX {
        let _ = cq(&vec![byte; create_cq_in::SIZE], |_, offset| Some(offset));
        let _ = queue_pair(&vec![byte; create_qp_in::SIZE], 1, |_, offset| Some(offset));
        let any = vec![byte; create_sq_in::SIZE];
        let _ = send_queue(&any, 1, |_, offset| Some(offset));
        let _ = receive_queue(&any, 1, |_, offset| Some(offset));
        let _ = shared_queue(&any, |_, offset| Some(offset));
    }
}
