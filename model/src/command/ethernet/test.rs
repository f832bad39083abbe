//! Objects of Ethernet are shown as they were made, and changed where they can be.

use mlx5_sys::ifc::{
    Field, alloc_transport_domain_out, create_cq_out, create_rq_in, create_rq_out, create_rqt_in,
    create_rqt_out, create_tir_in, create_tir_out, create_tis_in, create_tis_out, create_uctx_out,
    modify_rqt_in, modify_tir_in, modify_tis_in, opcode, query_rqt_in, query_rqt_out, query_tir_in,
    query_tir_out, query_tis_in, query_tis_out, rqc, rqtc, tirc, tisc, wq,
};

use super::super::UID;
use super::super::test::{Command, Rig};
use super::*;
use crate::card::Link;

fn domain(rig: &mut Rig) -> u32 {
    let alloc = Command::new(opcode::ALLOC_TRANSPORT_DOMAIN, 0x10);
    rig.number(&alloc, alloc_transport_domain_out::TRANSPORT_DOMAIN)
}

fn stranger(rig: &mut Rig) -> u32 {
    rig.number(&Command::new(opcode::CREATE_UCTX, 0x40), create_uctx_out::UID)
}

/// So many receive queues.
fn queues(rig: &mut Rig, count: usize) -> Vec<u32> {
    let make = |rig: &mut Rig| {
        let create = rig.create_cq();
        let cq = rig.number(&create, create_cq_out::CQN);
        let (record, page) = (rig.page(), rig.page());
        let field = |field: Field| field.within(create_rq_in::CTX);
        let inner = |inner: Field| field(inner.within(rqc::WQ));
        let mut command = Command::new(opcode::CREATE_RQ, create_rq_in::SIZE)
            .set(field(rqc::CQN), cq)
            .set(inner(wq::WQ_TYPE), 1u64)
            .set(inner(wq::PD), rig.pd)
            .set(inner(wq::DBR_ADDR), record)
            .set(inner(wq::LOG_WQ_STRIDE), 5u64)
            .set(inner(wq::LOG_WQ_SZ), 3u64);
        command.0.extend_from_slice(&page.to_be_bytes());
        rig.number(&command, create_rq_out::RQN)
    };
    (0..count).map(|_| make(rig)).collect()
}

fn listed(mut command: Command, at: Field, queues: &[u32]) -> Command {
    command = command.set(rqtc::RQT_ACTUAL_SIZE.within(at), queues.len() as u64);
    command.0.truncate(0x110);
    for queue in queues {
        command.0.extend_from_slice(&queue.to_be_bytes());
    }
    command
}

fn table(rig: &mut Rig, room: u32, queues: &[u32]) -> u32 {
    let create = Command::new(opcode::CREATE_RQT, create_rqt_in::SIZE)
        .set(rqtc::RQT_MAX_SIZE.within(create_rqt_in::RQT_CONTEXT), room);
    let create = listed(create, create_rqt_in::RQT_CONTEXT, queues);
    rig.number(&create, create_rqt_out::RQTN)
}

#[test]
fn a_tis_is_shown_and_changed() {
    let mut rig = Rig::on(Link::Roce);
    let (domain, stranger) = (domain(&mut rig), stranger(&mut rig));
    let field = |field: Field| field.within(create_tis_in::CTX);
    let create = Command::new(opcode::CREATE_TIS, create_tis_in::SIZE)
        .set(field(tisc::TRANSPORT_DOMAIN), domain)
        .set(field(tisc::PRIO), 5u64);
    rig.refuses(
        &create,
        &[
            (field(tisc::TLS_EN), 1, Refusal::WorkQueueFeature),
            (field(tisc::UNDERLAY_QPN), 9, Refusal::WorkQueueFeature),
            (field(tisc::LAG_TX_PORT_AFFINITY), 2, Refusal::Port),
            (field(tisc::TRANSPORT_DOMAIN), 1, Refusal::NoTransportDomain),
        ],
    );
    let tis = rig.number(&create, create_tis_out::TISN);
    let query = Command::new(opcode::QUERY_TIS, 0x10).set(query_tis_in::TISN, tis);
    rig.refuses(&query, &[(query_tis_in::TISN, 1, Refusal::NoTis)]);
    assert_eq!(rig.run(&query.clone().set(UID, stranger)).err(), Some(Refusal::Owner));
    let shown = |rig: &mut Rig| {
        let reply = rig.run(&query).unwrap();
        [tisc::TRANSPORT_DOMAIN, tisc::PRIO, tisc::LAG_TX_PORT_AFFINITY]
            .map(|field| field.within(query_tis_out::TIS_CONTEXT).get(&reply))
    };
    assert_eq!(shown(&mut rig), [domain.into(), 5, 0]);
    let field = |field: Field| field.within(modify_tis_in::CTX);
    // Only what the mask names changes.
    let modify = Command::new(opcode::MODIFY_TIS, modify_tis_in::SIZE)
        .set(modify_tis_in::TISN, tis)
        .set(modify_tis_in::BITMASK, 1u64)
        .set(field(tisc::PRIO), 3u64)
        .set(field(tisc::LAG_TX_PORT_AFFINITY), 1u64);
    rig.refuses(
        &modify,
        &[
            (modify_tis_in::TISN, 1, Refusal::NoTis),
            (modify_tis_in::BITMASK, 8, Refusal::EthernetModify),
            (modify_tis_in::BITMASK, 1 << 63, Refusal::EthernetModify),
        ],
    );
    let affinity = modify.clone().set(modify_tis_in::BITMASK, 4u64);
    rig.refuses(&affinity, &[(field(tisc::LAG_TX_PORT_AFFINITY), 2, Refusal::Port)]);
    assert_eq!(shown(&mut rig), [domain.into(), 5, 0], "as before");
    rig.run(&modify).unwrap();
    assert_eq!(shown(&mut rig), [domain.into(), 3, 0]);
    rig.run(&affinity).unwrap();
    assert_eq!(shown(&mut rig), [domain.into(), 3, 1]);
}

#[test]
fn a_table_is_shown_and_changed() {
    let mut rig = Rig::on(Link::Roce);
    let stranger = stranger(&mut rig);
    let all = queues(&mut rig, 4);
    let create = Command::new(opcode::CREATE_RQT, create_rqt_in::SIZE)
        .set(rqtc::RQT_MAX_SIZE.within(create_rqt_in::RQT_CONTEXT), 4u64);
    let create = listed(create, create_rqt_in::RQT_CONTEXT, &all[..2]);
    let field = |field: Field| field.within(create_rqt_in::RQT_CONTEXT);
    rig.refuses(
        &create,
        &[
            (field(rqtc::LIST_Q_TYPE), 1, Refusal::WorkQueueFeature),
            (field(rqtc::RQ_VHCA_ID_FORMAT), 1, Refusal::WorkQueueFeature),
            (field(rqtc::RQT_MAX_SIZE), 1, Refusal::RqtSize),
            (field(rqtc::RQT_MAX_SIZE), 513, Refusal::RqtSize),
            (field(rqtc::RQT_ACTUAL_SIZE), 3, Refusal::RqtSize),
            (field(rqtc::RQT_ACTUAL_SIZE), 4, Refusal::InputLength),
            (Field::new(0x110, 31, 32), 7, Refusal::NoRq),
        ],
    );
    let table = rig.number(&create, create_rqt_out::RQTN);
    let query = Command::new(opcode::QUERY_RQT, 0x10).set(query_rqt_in::RQTN, table);
    rig.refuses(&query, &[(query_rqt_in::RQTN, 1, Refusal::NoRqt)]);
    assert_eq!(rig.run(&query.clone().set(UID, stranger)).err(), Some(Refusal::Owner));
    // A reply with no room for the list.
    assert_eq!(rig.run_into(&query, 0x117).err(), Some(Refusal::OutputLength));
    let shown = |rig: &mut Rig| {
        let reply = rig.run_into(&query, 0x120).unwrap();
        let field = |field: Field| field.within(query_rqt_out::RQT_CONTEXT).get(&reply);
        assert_eq!(field(rqtc::RQT_MAX_SIZE), 4);
        let size = field(rqtc::RQT_ACTUAL_SIZE) as usize;
        let list = reply[0x110..].chunks_exact(4).take(size);
        list.map(|entry| u32::from_be_bytes(entry.try_into().unwrap())).collect::<Vec<u32>>()
    };
    assert_eq!(shown(&mut rig), all[..2]);
    let modify = Command::new(opcode::MODIFY_RQT, modify_rqt_in::SIZE)
        .set(modify_rqt_in::RQTN, table)
        .set(modify_rqt_in::BITMASK, 1u64);
    let modify = listed(modify, modify_rqt_in::CTX, &[all[3], all[2], all[3], all[0]]);
    rig.refuses(
        &modify,
        &[
            (modify_rqt_in::RQTN, 1, Refusal::NoRqt),
            (modify_rqt_in::BITMASK, 3, Refusal::EthernetModify),
            (rqtc::RQT_ACTUAL_SIZE.within(modify_rqt_in::CTX), 3, Refusal::RqtSize),
            (rqtc::RQT_ACTUAL_SIZE.within(modify_rqt_in::CTX), 8, Refusal::RqtSize),
            (Field::new(0x11c, 31, 32), 7, Refusal::NoRq),
        ],
    );
    rig.run(&modify.clone().set(modify_rqt_in::BITMASK, 0u64)).unwrap();
    assert_eq!(shown(&mut rig), all[..2], "nothing was to be changed");
    rig.run(&modify).unwrap();
    assert_eq!(shown(&mut rig), [all[3], all[2], all[3], all[0]]);
}

#[test]
fn a_tir_is_shown_and_led_elsewhere() {
    let mut rig = Rig::on(Link::Roce);
    let (domain, stranger) = (domain(&mut rig), stranger(&mut rig));
    let all = queues(&mut rig, 2);
    let [one, other] = [0, 1].map(|at: usize| table(&mut rig, 1, &all[at..=at]));
    let field = |field: Field| field.within(create_tir_in::CTX);
    let create = Command::new(opcode::CREATE_TIR, create_tir_in::SIZE)
        .set(field(tirc::DISP_TYPE), 1u64)
        .set(field(tirc::RX_HASH_FN), 2u64)
        .set(field(tirc::INDIRECT_TABLE), one)
        .set(field(tirc::TRANSPORT_DOMAIN), domain);
    rig.refuses(
        &create,
        &[
            (field(tirc::DISP_TYPE), 2, Refusal::TirType),
            (field(tirc::DISP_TYPE), 0, Refusal::NoRq),
            (field(tirc::RX_HASH_FN), 1, Refusal::TirType),
            (field(tirc::INDIRECT_TABLE), 1, Refusal::NoRqt),
            (field(tirc::TRANSPORT_DOMAIN), 1, Refusal::NoTransportDomain),
            (field(tirc::TLS_EN), 1, Refusal::WorkQueueFeature),
            (field(tirc::PACKET_MERGE_MASK), 1, Refusal::WorkQueueFeature),
            (field(tirc::TUNNELED_OFFLOAD_EN), 1, Refusal::WorkQueueFeature),
            (field(tirc::RX_HASH_FIELD_SELECTOR_INNER), 1, Refusal::WorkQueueFeature),
        ],
    );
    let tir = rig.number(&create, create_tir_out::TIRN);
    let query = Command::new(opcode::QUERY_TIR, 0x10).set(query_tir_in::TIRN, tir);
    rig.refuses(&query, &[(query_tir_in::TIRN, 1, Refusal::NoTir)]);
    assert_eq!(rig.run(&query.clone().set(UID, stranger)).err(), Some(Refusal::Owner));
    let last = Field::new(0x28 + 36, 31, 32);
    let shown = |rig: &mut Rig| {
        let reply = rig.run(&query).unwrap();
        [tirc::INDIRECT_TABLE, tirc::SELF_LB_BLOCK, tirc::RX_HASH_FIELD_SELECTOR_OUTER, last]
            .map(|field| field.within(query_tir_out::TIR_CONTEXT).get(&reply))
    };
    assert_eq!(shown(&mut rig), [one.into(), 0, 0, 0]);
    let field = |field: Field| field.within(modify_tir_in::CTX);
    let modify = Command::new(opcode::MODIFY_TIR, modify_tir_in::SIZE)
        .set(modify_tir_in::TIRN, tir)
        .set(modify_tir_in::BITMASK, 2u64)
        .set(field(tirc::INDIRECT_TABLE), other)
        .set(field(tirc::SELF_LB_BLOCK), 1u64)
        .set(field(tirc::RX_HASH_FN), 2u64)
        .set(field(last), 0x1234_5678u64)
        .set(field(tirc::RX_HASH_FIELD_SELECTOR_OUTER), 3u64);
    rig.refuses(
        &modify,
        &[
            (modify_tir_in::TIRN, 1, Refusal::NoTir),
            (modify_tir_in::BITMASK, 1, Refusal::EthernetModify),
            (modify_tir_in::BITMASK, 8, Refusal::EthernetModify),
            (field(tirc::INDIRECT_TABLE), 1, Refusal::NoRqt),
        ],
    );
    rig.run(&modify).unwrap();
    assert_eq!(shown(&mut rig), [other.into(), 0, 0, 0]);
    let hashed = modify.clone().set(modify_tir_in::BITMASK, 4u64);
    rig.refuses(&hashed, &[(field(tirc::RX_HASH_FN), 0, Refusal::TirType)]);
    rig.run(&hashed).unwrap();
    assert_eq!(shown(&mut rig), [other.into(), 0, 3, 0x1234_5678]);
    rig.run(&modify.set(modify_tir_in::BITMASK, 16u64)).unwrap();
    assert_eq!(shown(&mut rig), [other.into(), 1, 3, 0x1234_5678]);
}
