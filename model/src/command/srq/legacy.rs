//! Shared receive queues in the form used before receive memory pools.
//!
//! Their contexts cannot name a umem, so a user context cannot create one: its page list would
//! contain bus addresses that the program chose.

use mlx5_sys::ifc::{
    Field, arm_rq_in, create_srq_in, create_srq_out, destroy_srq_in, query_srq_in, query_srq_out,
    srqc,
};

use super::super::umem::RecordFields;
use super::super::{Refusal, context, get, owned, uid};
use super::{Described, Parts, enter, queue};
use crate::card::Card;
use crate::object::{Srq, SrqContext};

/// Fields of a context that has no umems: bits that are always zero.
const RECORD: RecordFields = RecordFields {
    valid: Field::new(0x30, 31, 1),
    number: Field::new(0x34, 31, 32),
    address: srqc::DBR_ADDR,
};

pub fn create(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let mut context: Box<[u8; srqc::SIZE]> = context(input, create_srq_in::SRQ_CONTEXT_ENTRY)?;
    let field = |field: Field| get(&context[..], field);
    let user = uid(input);
    if user != 0 {
        return Err(Refusal::SrqOfUser);
    }
    if field(srqc::CONT_SRQ) == 1 || field(srqc::RLKY) == 1 {
        return Err(Refusal::SrqType);
    }
    if field(srqc::WQ_SIGNATURE) == 1 {
        return Err(Refusal::QpSignature);
    }
    let pd = field(srqc::PD);
    card.objects.pds.get(pd).ok_or(Refusal::NoPd)?;
    let described = Described {
        cyclic: false,
        log_wqes: field(srqc::LOG_SRQ_SIZE),
        log_stride: field(srqc::LOG_RQ_STRIDE) + 4,
        log_page_size: field(srqc::LOG_PAGE_SIZE),
        page_offset: field(srqc::PAGE_OFFSET),
        record: RECORD,
        umem: None,
    };
    context[RECORD.valid.bit_offset() / 8..].fill(0);
    let queue = queue(card, user, &mut context[..], &described, input)?;
    let record = srqc::DBR_ADDR.get(&context[..]);
    let limit = get(&context[..], srqc::LWM);
    let context = SrqContext::Legacy(context);
    let number = enter(card, Parts { user, context, pd, record, queue, limit, tags: None })?;
    create_srq_out::SRQN.set(output, number.into());
    Ok(())
}

/// Looks up such a queue for a command that may touch it.
fn find<'a>(card: &'a Card, number: u32, input: &[u8]) -> Result<&'a Srq, Refusal> {
    let srq = card.objects.srqs.get(number).ok_or(Refusal::NoSrq)?;
    if !matches!(srq.context, SrqContext::Legacy(_)) {
        return Err(Refusal::NoSrq);
    }
    owned(srq.uid, uid(input))?;
    Ok(srq)
}

/// `MLX5_ARM_RQ_IN_OP_MOD_SRQ`: the one thing that arming can be of.
const ARM_SRQ: u32 = 1;

pub fn arm(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, arm_rq_in::SRQ_NUMBER);
    if get(input, arm_rq_in::OP_MOD) != ARM_SRQ {
        return Err(Refusal::OpModifier);
    }
    if find(card, number, input)?.failed {
        return Err(Refusal::SrqState);
    }
    card.arm_srq(number, get(input, arm_rq_in::LWM) as u16);
    Ok(())
}

pub fn query(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let shown = find(card, get(input, query_srq_in::SRQN), input)?.query_legacy();
    let shown = shown.ok_or(Refusal::NoSrq)?;
    output[query_srq_out::SRQ_CONTEXT_ENTRY.bytes()].copy_from_slice(&shown);
    Ok(())
}

pub fn destroy(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_srq_in::SRQN);
    find(card, number, input)?;
    super::destroy(card, number)
}
