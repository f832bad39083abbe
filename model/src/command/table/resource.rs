//! Commands on user contexts, UAR pages, protection domains, XRC domains and transport domains.

use mlx5_sys::ifc::{
    Field, alloc_pd_out, alloc_q_counter_out, alloc_transport_domain_out, alloc_uar_out,
    alloc_xrcd_out, create_qp_in, create_tis_in, dealloc_pd_in, dealloc_q_counter_in,
    dealloc_transport_domain_in, dealloc_uar_in, dealloc_xrcd_in, destroy_psv_in, destroy_uctx_in,
    opcode, qpc, query_q_counter_in, tisc,
};

use super::super::{Refusal, UID};
use super::memory::psv;
use super::{Case, Command, NOBODY, Rig, Row};
use crate::card::CounterSets;

pub const ROWS: &[Row] = &[
    Row::drivers(|_| Case::drivers(Command::new(opcode::CREATE_UCTX, 0x40), Refusal::UserFromUser)),
    Row::drivers(destroy_uctx),
    Row::new(alloc_uar),
    Row::new(dealloc_uar),
    Row::new(|_| Case::anyones(Command::new(opcode::ALLOC_PD, 0x10))),
    Row::new(dealloc_pd),
    Row::new(|_| Case::anyones(Command::new(opcode::ALLOC_XRCD, 0x10))),
    Row::new(dealloc_xrcd),
    Row::new(|_| Case::anyones(Command::new(opcode::ALLOC_TRANSPORT_DOMAIN, 0x10))),
    Row::new(dealloc_transport_domain),
    Row::new(alloc_q_counter),
    Row::new(query_q_counter),
    Row::new(dealloc_q_counter),
];

fn destroy_uctx(rig: &mut Rig) -> Case {
    let (idle, busy) = (rig.uctx(), rig.uctx());
    rig.user = busy;
    let pd = rig.number(&Command::new(opcode::ALLOC_PD, 0x10), alloc_pd_out::PD);
    rig.user = 0;
    let release = Command::new(opcode::DEALLOC_PD, 0x10).set(UID, busy).set(dealloc_pd_in::PD, pd);
    let destroy = Command::new(opcode::DESTROY_UCTX, 0x10).set(destroy_uctx_in::UID, idle);
    Case::drivers(destroy, Refusal::UserFromUser)
        .refuses(destroy_uctx_in::UID, NOBODY, Refusal::User)
        .held(destroy_uctx_in::UID, busy, Refusal::UserBusy, [release])
        .twice(Refusal::User)
}

fn alloc_q_counter(rig: &mut Rig) -> Case {
    let case = Case::anyones(Command::new(opcode::ALLOC_Q_COUNTER, 0x10));
    match rig.user {
        0 => case.after(|rig, alloc| while rig.run(alloc).is_ok() {}, Refusal::Exhausted),
        _ => case.after(
            |rig, _| rig.card.set_counter_sets(CounterSets::Refused),
            Refusal::CountersOfUser,
        ),
    }
}

fn alloc_uar(_: &mut Rig) -> Case {
    Case::anyones(Command::new(opcode::ALLOC_UAR, 0x10))
        .after(|rig, alloc| while rig.run(alloc).is_ok() {}, Refusal::Exhausted)
}

/// A command that frees an object of the one kind which `alloc` makes.
fn dealloc(rig: &mut Rig, codes: (u16, u16), made: Field, freed: Field, none: Refusal) -> Case {
    let alloc = Command::new(codes.0, 0x10);
    let number = rig.number(&alloc, made);
    let foreign = rig.as_driver(|rig| rig.number(&alloc, made));
    assert_ne!(number, foreign);
    let dealloc = Command::new(codes.1, 0x10).set(freed, number);
    let no_number = 0xff_fff0u64 & ((1 << freed.width()) - 1);
    Case::new(dealloc).refuses(freed, no_number, none).foreign(freed, foreign).twice(none)
}

fn dealloc_uar(rig: &mut Rig) -> Case {
    let codes = (opcode::ALLOC_UAR, opcode::DEALLOC_UAR);
    let case = dealloc(rig, codes, alloc_uar_out::UAR, dealloc_uar_in::UAR, Refusal::NoUar);
    let (own, cq) = (rig.uar, rig.cq());
    rig.uar = rig.number(&Command::new(codes.0, 0x10), alloc_uar_out::UAR);
    let busy = rig.uar;
    let mut holders = vec![rig.create_qp(cq, cq)];
    if rig.user == 0 {
        holders.push(rig.create_eq());
    }
    rig.uar = own;
    let holders: Vec<_> = holders.iter().map(|create| rig.holder(create)).collect();
    case.held(dealloc_uar_in::UAR, busy, Refusal::UarBusy, holders)
}

fn dealloc_pd(rig: &mut Rig) -> Case {
    let codes = (opcode::ALLOC_PD, opcode::DEALLOC_PD);
    let case = dealloc(rig, codes, alloc_pd_out::PD, dealloc_pd_in::PD, Refusal::NoPd);
    let (own, cq) = (rig.pd, rig.cq());
    rig.pd = rig.number(&Command::new(codes.0, 0x10), alloc_pd_out::PD);
    let busy = rig.pd;
    let mut holders =
        [rig.create_qp(cq, cq), rig.create_rmp()].map(|create| rig.holder(&create)).to_vec();
    let psv = psv(rig);
    holders.push(Command::new(opcode::DESTROY_PSV, 0x10).set(destroy_psv_in::PSVN, psv));
    rig.pd = rig.number(&Command::new(codes.0, 0x10), alloc_pd_out::PD);
    let (with_key, key) = (rig.pd, rig.create_mkey());
    let key = rig.holder(&key);
    rig.pd = own;
    case.held(dealloc_pd_in::PD, busy, Refusal::PdBusy, holders).held(
        dealloc_pd_in::PD,
        with_key,
        Refusal::PdKeys,
        [key],
    )
}

fn dealloc_xrcd(rig: &mut Rig) -> Case {
    let codes = (opcode::ALLOC_XRCD, opcode::DEALLOC_XRCD);
    let (made, freed) = (alloc_xrcd_out::XRCD, dealloc_xrcd_in::XRCD);
    let case = dealloc(rig, codes, made, freed, Refusal::NoXrcd);
    let (domain, cq) = (rig.xrc_domain(), rig.cq());
    let holders = [rig.create_xrc_srq(domain, cq), rig.create_target(domain)];
    case.held(freed, domain, Refusal::XrcdBusy, holders.map(|create| rig.holder(&create)))
}

fn dealloc_transport_domain(rig: &mut Rig) -> Case {
    let codes = (opcode::ALLOC_TRANSPORT_DOMAIN, opcode::DEALLOC_TRANSPORT_DOMAIN);
    let freed = dealloc_transport_domain_in::TRANSPORT_DOMAIN;
    let made = alloc_transport_domain_out::TRANSPORT_DOMAIN;
    let case = dealloc(rig, codes, made, freed, Refusal::NoTransportDomain);
    let tis = rig.create_tis();
    let domain = tisc::TRANSPORT_DOMAIN.within(create_tis_in::CTX).get(&tis.0);
    case.held(freed, domain, Refusal::TransportDomainBusy, [rig.holder(&tis)])
}

fn query_q_counter(rig: &mut Rig) -> Case {
    let number = query_q_counter_in::COUNTER_SET_ID;
    let (own, foreign) = (rig.counters(), rig.foreign(Rig::counters));
    Case::new(Command::new(opcode::QUERY_Q_COUNTER, query_q_counter_in::SIZE).set(number, own))
        .refuses(number, 0xffu64, Refusal::NoCounters)
        .foreign(number, foreign)
}

fn dealloc_q_counter(rig: &mut Rig) -> Case {
    let number = dealloc_q_counter_in::COUNTER_SET_ID;
    let codes = (opcode::ALLOC_Q_COUNTER, opcode::DEALLOC_Q_COUNTER);
    let made = alloc_q_counter_out::COUNTER_SET_ID;
    let case = dealloc(rig, codes, made, number, Refusal::NoCounters);
    let (busy, cq) = (rig.counters(), rig.cq());
    let qp = rig.create_qp(cq, cq).set(qpc::COUNTER_SET_ID.within(create_qp_in::QPC), busy);
    case.held(number, busy, Refusal::CountersBusy, [rig.holder(&qp)])
}
