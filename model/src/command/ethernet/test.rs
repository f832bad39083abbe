//! Tests: a query returns an Ethernet object as it was created, and its modifiable fields can
//! change.

use mlx5_sys::ifc::{
    Field, create_rq_in, create_rq_out, create_rqt_out, create_sq_in, create_tir_in,
    create_tir_out, create_tis_in, create_tis_out, modify_rqt_in, modify_tir_in, modify_tis_in,
    opcode, query_rqt_in, query_rqt_out, query_tir_in, query_tir_out, query_tis_in, query_tis_out,
    rqc, rqtc, sqc, tirc, tisc, wq,
};

use super::super::test::{Command, Rig};
use super::*;
use crate::card::Link;

/// So many receive queues.
fn queues(rig: &mut Rig, count: usize) -> Vec<u32> {
    let make = |_| {
        let cq = rig.cq();
        let create = rig.create_rq(cq);
        rig.number(&create, create_rq_out::RQN)
    };
    (0..count).map(make).collect()
}

#[test]
fn a_tis_is_shown_and_changed() {
    let mut rig = Rig::on(Link::Roce);
    let create = rig.create_tis().set(tisc::PRIO.within(create_tis_in::CTX), 5u64);
    let domain = tisc::TRANSPORT_DOMAIN.within(create_tis_in::CTX).get(&create.0);
    let tis = rig.number(&create, create_tis_out::TISN);
    let query = Command::new(opcode::QUERY_TIS, 0x10).set(query_tis_in::TISN, tis);
    let shown = |rig: &mut Rig| {
        let reply = rig.run(&query).unwrap();
        [tisc::TRANSPORT_DOMAIN, tisc::PRIO, tisc::LAG_TX_PORT_AFFINITY]
            .map(|field| field.within(query_tis_out::TIS_CONTEXT).get(&reply))
    };
    assert_eq!(shown(&mut rig), [domain, 5, 0]);
    let field = |field: Field| field.within(modify_tis_in::CTX);
    // Only what the mask names changes.
    let modify = Command::new(opcode::MODIFY_TIS, modify_tis_in::SIZE)
        .set(modify_tis_in::TISN, tis)
        .set(modify_tis_in::BITMASK, 1u64)
        .set(field(tisc::PRIO), 3u64)
        .set(field(tisc::LAG_TX_PORT_AFFINITY), 1u64);
    rig.run(&modify).unwrap();
    assert_eq!(shown(&mut rig), [domain, 3, 0]);
    rig.run(&modify.set(modify_tis_in::BITMASK, 4u64)).unwrap();
    assert_eq!(shown(&mut rig), [domain, 3, 1]);
}

#[test]
fn a_table_is_shown_and_changed() {
    let mut rig = Rig::on(Link::Roce);
    let all = queues(&mut rig, 4);
    let create = rig.create_rqt(4, &all[..2]);
    let table = rig.number(&create, create_rqt_out::RQTN);
    let query = Command::new(opcode::QUERY_RQT, 0x10).set(query_rqt_in::RQTN, table);
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
        .set(modify_rqt_in::BITMASK, 1u64)
        .listing(modify_rqt_in::CTX, &[all[3], all[2], all[3], all[0]]);
    rig.run(&modify.clone().set(modify_rqt_in::BITMASK, 0u64)).unwrap();
    assert_eq!(shown(&mut rig), all[..2], "nothing was to be changed");
    rig.run(&modify).unwrap();
    assert_eq!(shown(&mut rig), [all[3], all[2], all[3], all[0]]);
}

#[test]
fn a_tir_is_shown_and_led_elsewhere() {
    let mut rig = Rig::on(Link::Roce);
    let (domain, all) = (rig.transport_domain(), queues(&mut rig, 2));
    let [one, other] = [0, 1].map(|at: usize| {
        let create = rig.create_rqt(1, &all[at..=at]);
        rig.number(&create, create_rqt_out::RQTN)
    });
    let create = rig.create_spreading_tir(one, domain);
    let tir = rig.number(&create, create_tir_out::TIRN);
    let query = Command::new(opcode::QUERY_TIR, 0x10).set(query_tir_in::TIRN, tir);
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
        .set(field(tirc::INDIRECT_TABLE), other)
        .set(field(tirc::SELF_LB_BLOCK), 1u64)
        .set(field(tirc::RX_HASH_FN), 2u64)
        .set(field(last), 0x1234_5678u64)
        .set(field(tirc::RX_HASH_FIELD_SELECTOR_OUTER), 3u64);
    let other = other.into();
    for (mask, after) in [
        (2u64, [other, 0, 0, 0]),
        (4, [other, 0, 3, 0x1234_5678]),
        (16, [other, 1, 3, 0x1234_5678]),
    ] {
        rig.run(&modify.clone().set(modify_tir_in::BITMASK, mask)).unwrap();
        assert_eq!(shown(&mut rig), after);
    }
}

#[test]
fn create_tir_accepts_no_transport_domain() {
    let mut rig = Rig::on(Link::Roce);
    rig.become_user();
    let queue = queues(&mut rig, 1)[0];
    let create = rig.create_tir(queue, 0);
    let tir = rig.number(&create, create_tir_out::TIRN);
    let query = Command::new(opcode::QUERY_TIR, 0x10).set(query_tir_in::TIRN, tir);
    let reply = rig.run(&query).unwrap();
    assert_eq!(tirc::TRANSPORT_DOMAIN.within(query_tir_out::TIR_CONTEXT).get(&reply), 0);
}

#[test]
fn the_drivers_own_queues_are_accepted() {
    let mut rig = Rig::on(Link::Roce);
    let (cq, tis) = (rig.cq(), rig.tis());
    let ring = |field: Field| field.within(rqc::WQ).within(create_rq_in::CTX);
    let drop = rig.create_rq(cq).set(ring(wq::PD), 0u64).set(ring(wq::END_PADDING_MODE), 1u64);
    let queue = rig.number(&drop, create_rq_out::RQN);
    let internal = rig.create_sq(cq, tis).set(sqc::TIS_LST_SZ.within(create_sq_in::CTX), 0u64);
    rig.run(&internal).unwrap();
    // A TIR to a table of one queue names a hash, of no fields.
    let domain = rig.transport_domain();
    let table = rig.create_rqt(1, &[queue]);
    let table = rig.number(&table, create_rqt_out::RQTN);
    let hash = tirc::RX_HASH_FN.within(create_tir_in::CTX);
    let create = rig.create_spreading_tir(table, domain).set(hash, 1u64);
    rig.run(&create).unwrap();
    // A hash has to be named, as on a ConnectX-5: evidence F071.
    assert_eq!(rig.run(&create.set(hash, 0u64)).err(), Some(Refusal::TirType));
}
