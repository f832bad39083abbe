//! Commands on DCTs, the targets of dynamic connections.

use mlx5_sys::ifc::{
    Field, arm_dct_in, create_dct_in, create_dct_out, create_rmp_out, create_xrc_srq_out, dctc,
    destroy_dct_in, drain_dct_in, opcode, query_dct_in,
};

use super::super::Refusal;
use super::queue_pair::qp;
use super::{Case, Command, Rig, Row};
use crate::object::{Drain, Qp};

pub const ROWS: &[Row] = &[
    Row::new(create_dct),
    Row::new(|rig| on_dct(rig, opcode::QUERY_DCT, query_dct_in::DCTN)),
    Row::new(drain_dct),
    Row::new(|rig| on_dct(rig, opcode::ARM_DCT_FOR_KEY_VIOLATION, arm_dct_in::DCT_NUMBER)),
    Row::new(|rig| on_dct(rig, opcode::DESTROY_DCT, destroy_dct_in::DCTN).twice(Refusal::NoDct)),
];

/// A target of dynamic connections.
pub fn dct(rig: &mut Rig) -> u32 {
    let create = dct_command(rig);
    rig.number(&create, create_dct_out::DCTN)
}

fn entry(field: Field) -> Field {
    field.within(create_dct_in::DCT_CONTEXT_ENTRY)
}

/// A target that receives from a pool of its own.
fn dct_command(rig: &mut Rig) -> Command {
    let create = rig.create_rmp();
    let (pool, cq) = (rig.number(&create, create_rmp_out::RMPN), rig.cq());
    Command::new(opcode::CREATE_DCT, create_dct_in::SIZE)
        .set(entry(dctc::PD), rig.pd)
        .set(entry(dctc::CQN), cq)
        .set(entry(dctc::SRQN_XRQN), pool)
        .set(entry(dctc::MTU), 3u64)
        .set(entry(dctc::RAE), 1u64)
        .set(entry(dctc::ATOMIC_MODE), 1u64)
}

fn create_dct(rig: &mut Rig) -> Case {
    // 2,048 bytes.
    rig.card.identity.log_mtu = Some(11);
    let create = dct_command(rig);
    let (pd, cq) = (rig.foreign_pd(), rig.foreign_cq());
    let pool = rig.foreign(|rig| {
        let create = rig.create_rmp();
        rig.number(&create, create_rmp_out::RMPN)
    });
    let (domain, own_cq) = (rig.xrc_domain(), rig.cq());
    let xrc = rig.create_xrc_srq(domain, own_cq);
    let xrc = rig.number(&xrc, create_xrc_srq_out::XRC_SRQN);
    let counters = rig.foreign(Rig::counters);
    Case::new(create)
        .refuses(entry(dctc::STATE), 1u64, Refusal::DctState)
        .refuses(entry(dctc::COUNTER_SET_ID), 0xffu64, Refusal::NoCounters)
        .foreign(entry(dctc::COUNTER_SET_ID), counters)
        .refuses(entry(dctc::PD), 0u64, Refusal::NoPd)
        .foreign(entry(dctc::PD), pd)
        .refuses(entry(dctc::CQN), 0u64, Refusal::NoCq)
        .foreign(entry(dctc::CQN), cq)
        .refuses(entry(dctc::CS_RES), 1u64, Refusal::DctScatter)
        .refuses(entry(dctc::CS_RES), 2u64, Refusal::DctScatter)
        .refuses(entry(dctc::SRQN_XRQN), 0u64, Refusal::NoSrq)
        .refuses(entry(dctc::SRQN_XRQN), xrc, Refusal::NoSrq)
        .foreign(entry(dctc::SRQN_XRQN), pool)
        .refuses(entry(dctc::MTU), 0u64, Refusal::QpMtu)
        .refuses(entry(dctc::MTU), 6u64, Refusal::QpMtu)
        .refuses(entry(dctc::MTU), 5u64, Refusal::QpPathMtu)
        .refuses(entry(dctc::ATOMIC_MODE), 0u64, Refusal::QpAtomicMode)
        .refuses(entry(dctc::PORT), 2u64, Refusal::Port)
        .refuses(entry(dctc::PKEY_INDEX), 128u64, Refusal::PkeyIndex)
        .refuses(entry(dctc::MY_ADDR_INDEX), 8u64, Refusal::GidIndex)
}

/// A command of 16 bytes on a target.
fn on_dct(rig: &mut Rig, opcode: u16, number: Field) -> Case {
    let (own, foreign, other) = (dct(rig), rig.foreign(dct), qp(rig));
    Case::new(Command::new(opcode, 0x10).set(number, own))
        .refuses(number, 5u64, Refusal::NoDct)
        .refuses(number, other, Refusal::NoDct)
        .foreign(number, foreign)
}

fn drain_dct(rig: &mut Rig) -> Case {
    let drained = dct(rig);
    let target = rig.card.objects.qps.get_mut(&drained).and_then(Qp::target_mut);
    target.expect("the target").drain = Drain::Drained;
    on_dct(rig, opcode::DRAIN_DCT, drain_dct_in::DCTN).refuses(
        drain_dct_in::DCTN,
        drained,
        Refusal::DctDrained,
    )
}
