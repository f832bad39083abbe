//! Shared receive queues of XRC domains.

use mlx5_sys::ifc::{
    Field, arm_xrc_srq_in, create_xrc_srq_in, create_xrc_srq_out, destroy_xrc_srq_in,
    query_xrc_srq_in, query_xrc_srq_out, xrc_srqc,
};

use super::super::umem::RecordFields;
use super::super::{Refusal, context, get, owned, uid};
use super::{Described, Parts, enter, queue};
use crate::card::Card;
use crate::object::{Srq, SrqContext};

/// Both parts of the record's address. The lower one leaves out the last two bits, which are reserved.
const RECORD: Field = Field::new(xrc_srqc::DB_RECORD_ADDR_H.bit_offset() / 8, 31, 64);

pub fn create(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let mut context: Box<[u8; xrc_srqc::SIZE]> =
        context(input, create_xrc_srq_in::XRC_SRQ_CONTEXT_ENTRY)?;
    let field = |field: Field| get(&context[..], field);
    let user = uid(input);
    if field(xrc_srqc::CONT_SRQ) == 1
        || field(xrc_srqc::RLKY) == 1
        || field(xrc_srqc::BASIC_CYCLIC_RCV_WQE) == 1
        || field(xrc_srqc::USER_INDEX_EQUAL_XRC_SRQN) == 1
    {
        return Err(Refusal::SrqType);
    }
    if field(xrc_srqc::WQ_SIGNATURE) == 1 {
        return Err(Refusal::QpSignature);
    }
    let pd = field(xrc_srqc::PD);
    owned(card.objects.pds.get(pd).ok_or(Refusal::NoPd)?.uid, user)?;
    let domain = card.objects.xrcds.get(field(xrc_srqc::XRCD)).ok_or(Refusal::NoXrcd)?;
    owned(domain.uid, user)?;
    let cq = card.objects.cqs.get(field(xrc_srqc::CQN)).ok_or(Refusal::NoCq)?;
    owned(cq.uid, user)?;
    let described = Described {
        cyclic: false,
        log_wqes: field(xrc_srqc::LOG_XRC_SRQ_SIZE),
        log_stride: field(xrc_srqc::LOG_RQ_STRIDE) + 4,
        log_page_size: field(xrc_srqc::LOG_PAGE_SIZE),
        page_offset: field(xrc_srqc::PAGE_OFFSET),
        record: RecordFields {
            valid: xrc_srqc::DBR_UMEM_VALID,
            number: xrc_srqc::DBR_UMEM_ID,
            address: RECORD,
        },
        umem: (get(input, create_xrc_srq_in::XRC_SRQ_UMEM_VALID) == 1).then(|| {
            let offset = create_xrc_srq_in::XRC_SRQ_UMEM_OFFSET.get(input);
            (get(input, create_xrc_srq_in::XRC_SRQ_UMEM_ID), offset)
        }),
    };
    let queue = queue(card, user, &mut context[..], &described, input)?;
    let record = RECORD.get(&context[..]);
    let limit = get(&context[..], xrc_srqc::LWM);
    let context = SrqContext::Xrc(context);
    let number = enter(card, Parts { user, context, pd, record, queue, limit, tags: None })?;
    create_xrc_srq_out::XRC_SRQN.set(output, number.into());
    Ok(())
}

/// Looks up an XRC SRQ that a command may touch.
fn find<'a>(card: &'a Card, number: u32, input: &[u8]) -> Result<&'a Srq, Refusal> {
    let srq = card.objects.srqs.get(number).ok_or(Refusal::NoSrq)?;
    if srq.xrc().is_none() {
        return Err(Refusal::NoSrq);
    }
    owned(srq.uid, uid(input))?;
    Ok(srq)
}

/// `MLX5_ARM_XRC_SRQ_IN_OP_MOD_XRC_SRQ`: the one thing that arming can be of.
const ARM_XRC_SRQ: u32 = 1;

pub fn arm(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, arm_xrc_srq_in::XRC_SRQN);
    if get(input, arm_xrc_srq_in::OP_MOD) != ARM_XRC_SRQ {
        return Err(Refusal::OpModifier);
    }
    if find(card, number, input)?.failed {
        return Err(Refusal::SrqState);
    }
    card.arm_srq(number, get(input, arm_xrc_srq_in::LWM) as u16);
    Ok(())
}

pub fn query(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, query_xrc_srq_in::XRC_SRQN);
    let srq = card.objects.srqs.get(number).ok_or(Refusal::NoSrq)?;
    // The driver creates them for no user context, since several share them. Any user may query
    // those.
    if srq.uid != 0 {
        owned(srq.uid, uid(input))?;
    }
    let shown = srq.query_xrc().ok_or(Refusal::NoSrq)?;
    output[query_xrc_srq_out::XRC_SRQ_CONTEXT_ENTRY.bytes()].copy_from_slice(&shown);
    Ok(())
}

pub fn destroy(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_xrc_srq_in::XRC_SRQN);
    find(card, number, input)?;
    super::destroy(card, number)
}
