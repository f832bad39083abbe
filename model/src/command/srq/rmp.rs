//! Receive memory pools.

use mlx5_sys::ifc::{
    create_rmp_in, create_rmp_out, destroy_rmp_in, modify_rmp_in, query_rmp_in, query_rmp_out,
    rmp_bitmask, rmpc, wq,
};

use super::super::{Refusal, context, get, owned, uid};
use super::{Parts, enter, work_queue};
use crate::card::Card;
use crate::object::{Srq, SrqContext};

/// `mlx5_ifc.h`, `MLX5_RMPC_STATE_RDY`
const READY: u32 = 1;

pub fn create(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let mut context: Box<[u8; rmpc::SIZE]> = context(input, create_rmp_in::CTX)?;
    if get(&context[..], rmpc::STATE) != READY {
        return Err(Refusal::SrqState);
    }
    if get(&context[..], rmpc::BASIC_CYCLIC_RCV_WQE) == 1 {
        return Err(Refusal::SrqType);
    }
    let user = uid(input);
    let (pd, queue) = work_queue(card, user, &mut context[..], rmpc::WQ, input)?;
    let record = wq::DBR_ADDR.within(rmpc::WQ).get(&context[..]);
    let limit = get(&context[..], wq::LWM.within(rmpc::WQ));
    let context = SrqContext::Rmp(context);
    let number = enter(card, Parts { user, context, pd, record, queue, limit, tags: None })?;
    create_rmp_out::RMPN.set(output, number.into());
    Ok(())
}

/// Looks up a receive memory pool that a command may touch.
fn find<'a>(card: &'a Card, number: u32, input: &[u8]) -> Result<&'a Srq, Refusal> {
    let srq = card.objects.srqs.get(number).ok_or(Refusal::NoSrq)?;
    if !matches!(srq.context, SrqContext::Rmp(_)) {
        return Err(Refusal::NoSrq);
    }
    owned(srq.uid, uid(input))?;
    Ok(srq)
}

pub fn modify(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, modify_rmp_in::RMPN);
    let srq = find(card, number, input)?;
    let context: Box<[u8; rmpc::SIZE]> = context(input, modify_rmp_in::CTX)?;
    // The state it is to be in; there is no way back from an error but to make another.
    if get(input, modify_rmp_in::RMP_STATE) != READY
        || get(&context[..], rmpc::STATE) != READY
        || srq.failed
    {
        return Err(Refusal::SrqState);
    }
    let mask = modify_rmp_in::BITMASK.get(input);
    let limit_bit = {
        let mut bits = [0; rmp_bitmask::SIZE];
        rmp_bitmask::LWM.set(&mut bits, 1);
        u64::from_be_bytes(bits)
    };
    if mask & !limit_bit != 0 {
        return Err(Refusal::SrqModify);
    }
    if mask & limit_bit != 0 {
        card.arm_srq(number, get(&context[..], wq::LWM.within(rmpc::WQ)) as u16);
    }
    Ok(())
}

pub fn query(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let shown = find(card, get(input, query_rmp_in::RMPN), input)?.query_rmp();
    let shown = shown.ok_or(Refusal::NoSrq)?;
    output[query_rmp_out::RMP_CONTEXT.bytes()].copy_from_slice(&shown);
    Ok(())
}

pub fn destroy(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_rmp_in::RMPN);
    find(card, number, input)?;
    super::destroy(card, number)
}
