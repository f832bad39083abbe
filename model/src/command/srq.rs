//! Commands on shared receive queues: receive memory pools (RMP), which is what the kernel's driver
//! makes of every basic one, and XRC SRQs.

use mlx5_sys::ifc::{
    Field, arm_xrc_srq_in, create_rmp_in, create_rmp_out, create_xrc_srq_in, create_xrc_srq_out,
    destroy_rmp_in, destroy_xrc_srq_in, modify_rmp_in, query_rmp_in, query_rmp_out,
    query_xrc_srq_in, query_xrc_srq_out, rmp_bitmask, rmpc, wq, xrc_srqc,
};

use super::buffer::{self, Geometry};
use super::capability::{LOG_MAX_SRQ_SIZE, MAX_RQ_WQE};
use super::{Refusal, context, get, owned, uid};
use crate::card::Card;
use crate::object::{LinkedQueue, Srq, SrqContext};

/// `mlx5_ifc.h`, `MLX5_RMPC_STATE_RDY`
const READY: u32 = 1;
/// A linked list of WQEs (`mlx5_ifc.h`, `MLX5_WQ_TYPE_LINKED_LIST`).
pub(super) const LINKED_LIST: u32 = 0;
/// log2 of the largest page of a queue, relative to 4 KiB: what contexts of other queues can say.
const LARGEST_PAGE: u32 = 31;
/// The smallest WQE: the segment that names the next, and one pointer.
const LEAST_WQE: usize = 32;

/// A work queue as its context describes it, whichever command that is in.
pub(super) struct Described {
    pub record: u64,
    pub log_wqes: u32,
    pub log_stride: u32,
    pub log_page_size: u32,
    pub page_offset: u32,
}

/// Checks a linked list of receive WQEs and reads its pages.
pub(super) fn linked(input: &[u8], described: &Described) -> Result<LinkedQueue, Refusal> {
    if described.log_wqes > LOG_MAX_SRQ_SIZE {
        return Err(Refusal::SrqSize);
    }
    let stride = 1usize << described.log_stride;
    if !(LEAST_WQE..=MAX_RQ_WQE).contains(&stride) {
        return Err(Refusal::SrqStride);
    }
    if described.log_page_size > LARGEST_PAGE {
        return Err(Refusal::PageOffset);
    }
    if described.record % 8 != 0 {
        return Err(Refusal::Record);
    }
    let wqes = 1u32 << described.log_wqes;
    let geometry = Geometry {
        log_page_size: described.log_page_size,
        page_offset: described.page_offset,
        length: wqes as usize * stride,
        alignment: 64,
    };
    let pages = buffer::queue(input, &geometry)?;
    Ok(LinkedQueue { pages, wqes, stride: stride as u32, ..LinkedQueue::default() })
}

pub fn create_rmp(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let context: Box<[u8; rmpc::SIZE]> = context(input, create_rmp_in::CTX)?;
    let field = |field: Field| get(&context[..], field.within(rmpc::WQ));
    if get(&context[..], rmpc::STATE) != READY {
        return Err(Refusal::SrqState);
    }
    if field(wq::WQ_TYPE) != LINKED_LIST || get(&context[..], rmpc::BASIC_CYCLIC_RCV_WQE) == 1 {
        return Err(Refusal::SrqType);
    }
    if field(wq::WQ_SIGNATURE) == 1 {
        return Err(Refusal::QpSignature);
    }
    if field(wq::END_PADDING_MODE) != 0 {
        return Err(Refusal::QpPadding);
    }
    if field(wq::DBR_UMEM_VALID) == 1 || field(wq::WQ_UMEM_VALID) == 1 {
        return Err(Refusal::Umem);
    }
    let pd = field(wq::PD);
    owned(card.objects.pds.get(pd).ok_or(Refusal::NoPd)?.uid, uid(input))?;
    let described = Described {
        record: wq::DBR_ADDR.within(rmpc::WQ).get(&context[..]),
        log_wqes: field(wq::LOG_WQ_SZ),
        log_stride: field(wq::LOG_WQ_STRIDE),
        log_page_size: field(wq::LOG_WQ_PG_SZ),
        page_offset: field(wq::PAGE_OFFSET),
    };
    let queue = linked(input, &described)?;
    let limit = field(wq::LWM) as u16;
    let srq = Srq {
        uid: uid(input),
        context: SrqContext::Rmp(context),
        pd,
        record: described.record,
        queue,
        limit: 0,
        failed: false,
        tags: None,
    };
    let number = card.objects.srqs.add(srq).ok_or(Refusal::Exhausted)?;
    card.arm_srq(number, limit);
    create_rmp_out::RMPN.set(output, number.into());
    Ok(())
}

/// Looks up a receive memory pool that a command may touch.
fn rmp<'a>(card: &'a Card, number: u32, input: &[u8]) -> Result<&'a Srq, Refusal> {
    let srq = card.objects.srqs.get(number).ok_or(Refusal::NoSrq)?;
    if srq.completes().is_some() {
        return Err(Refusal::NoSrq);
    }
    owned(srq.uid, uid(input))?;
    Ok(srq)
}

pub fn modify_rmp(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, modify_rmp_in::RMPN);
    let srq = rmp(card, number, input)?;
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

pub fn query_rmp(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let shown = rmp(card, get(input, query_rmp_in::RMPN), input)?.query_rmp();
    let shown = shown.ok_or(Refusal::NoSrq)?;
    output[query_rmp_out::RMP_CONTEXT.bytes()].copy_from_slice(&shown);
    Ok(())
}

pub fn destroy_rmp(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_rmp_in::RMPN);
    rmp(card, number, input)?;
    destroy(card, number)
}

pub fn create_xrc(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let context: Box<[u8; xrc_srqc::SIZE]> =
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
    if field(xrc_srqc::DBR_UMEM_VALID) == 1
        || get(input, create_xrc_srq_in::XRC_SRQ_UMEM_VALID) == 1
    {
        return Err(Refusal::Umem);
    }
    let pd = field(xrc_srqc::PD);
    owned(card.objects.pds.get(pd).ok_or(Refusal::NoPd)?.uid, user)?;
    let domain = card.objects.xrcds.get(field(xrc_srqc::XRCD)).ok_or(Refusal::NoXrcd)?;
    owned(domain.uid, user)?;
    let cq = card.objects.cqs.get(field(xrc_srqc::CQN)).ok_or(Refusal::NoCq)?;
    owned(cq.uid, user)?;
    let described = Described {
        // The lower field leaves out the address's last two bits.
        record: u64::from(field(xrc_srqc::DB_RECORD_ADDR_H)) << 32
            | u64::from(field(xrc_srqc::DB_RECORD_ADDR_L)) << 2,
        log_wqes: field(xrc_srqc::LOG_XRC_SRQ_SIZE),
        log_stride: field(xrc_srqc::LOG_RQ_STRIDE) + 4,
        log_page_size: field(xrc_srqc::LOG_PAGE_SIZE),
        page_offset: field(xrc_srqc::PAGE_OFFSET),
    };
    let queue = linked(input, &described)?;
    let limit = field(xrc_srqc::LWM) as u16;
    let srq = Srq {
        uid: user,
        context: SrqContext::Xrc(context),
        pd,
        record: described.record,
        queue,
        limit: 0,
        failed: false,
        tags: None,
    };
    let number = card.objects.srqs.add(srq).ok_or(Refusal::Exhausted)?;
    card.arm_srq(number, limit);
    create_xrc_srq_out::XRC_SRQN.set(output, number.into());
    Ok(())
}

/// Looks up an XRC SRQ that a command may touch.
fn xrc<'a>(card: &'a Card, number: u32, input: &[u8]) -> Result<&'a Srq, Refusal> {
    let srq = card.objects.srqs.get(number).ok_or(Refusal::NoSrq)?;
    if srq.xrc().is_none() {
        return Err(Refusal::NoSrq);
    }
    owned(srq.uid, uid(input))?;
    Ok(srq)
}

/// `MLX5_ARM_XRC_SRQ_IN_OP_MOD_XRC_SRQ`: the one thing that arming can be of.
const ARM_XRC_SRQ: u32 = 1;

pub fn arm_xrc(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, arm_xrc_srq_in::XRC_SRQN);
    if get(input, arm_xrc_srq_in::OP_MOD) != ARM_XRC_SRQ {
        return Err(Refusal::OpModifier);
    }
    if xrc(card, number, input)?.failed {
        return Err(Refusal::SrqState);
    }
    card.arm_srq(number, get(input, arm_xrc_srq_in::LWM) as u16);
    Ok(())
}

pub fn query_xrc(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, query_xrc_srq_in::XRC_SRQN);
    let srq = card.objects.srqs.get(number).ok_or(Refusal::NoSrq)?;
    // The driver makes them for no user context, since several share them; who has one may look.
    if srq.uid != 0 {
        owned(srq.uid, uid(input))?;
    }
    let shown = srq.query_xrc().ok_or(Refusal::NoSrq)?;
    output[query_xrc_srq_out::XRC_SRQ_CONTEXT_ENTRY.bytes()].copy_from_slice(&shown);
    Ok(())
}

pub fn destroy_xrc(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_xrc_srq_in::XRC_SRQN);
    xrc(card, number, input)?;
    destroy(card, number)
}

pub(super) fn destroy(card: &mut Card, number: u32) -> Result<(), Refusal> {
    if card.objects.qps.values().any(|qp| qp.shared_receive() == Some(number)) {
        return Err(Refusal::SrqBusy);
    }
    card.objects.srqs.remove(number);
    Ok(())
}

#[cfg(test)]
mod tests {
    use mlx5_sys::ifc::{
        create_qp_in, create_qp_out, dealloc_pd_in, dealloc_xrcd_in, destroy_cq_in, destroy_qp_in,
        opcode, qpc,
    };

    use super::super::test::{Command, Rig, ring};
    use super::*;

    fn field(field: Field) -> Field {
        field.within(rmpc::WQ).within(create_rmp_in::CTX)
    }

    const STATE: Field = rmpc::STATE.within(create_rmp_in::CTX);

    #[test]
    fn each_field_of_a_pool_is_checked() {
        let mut rig = Rig::new();
        let create = rig.create_rmp();
        rig.refuses(
            &create,
            &[
                (STATE, 0, Refusal::SrqState),
                (STATE, 3, Refusal::SrqState),
                (field(wq::WQ_TYPE), 1, Refusal::SrqType),
                (field(wq::WQ_TYPE), 2, Refusal::SrqType),
                (rmpc::BASIC_CYCLIC_RCV_WQE.within(create_rmp_in::CTX), 1, Refusal::SrqType),
                (field(wq::WQ_SIGNATURE), 1, Refusal::QpSignature),
                (field(wq::END_PADDING_MODE), 1, Refusal::QpPadding),
                (field(wq::DBR_UMEM_VALID), 1, Refusal::Umem),
                (field(wq::WQ_UMEM_VALID), 1, Refusal::Umem),
                (field(wq::PD), 0, Refusal::NoPd),
                (field(wq::LOG_WQ_SZ), 16, Refusal::SrqSize),
                (field(wq::LOG_WQ_SZ), 31, Refusal::SrqSize),
                (field(wq::LOG_WQ_STRIDE), 4, Refusal::SrqStride),
                (field(wq::LOG_WQ_STRIDE), 10, Refusal::SrqStride),
                (field(wq::LOG_WQ_STRIDE), 15, Refusal::SrqStride),
                (field(wq::DBR_ADDR), 0x10_0004, Refusal::Record),
                (field(wq::LOG_WQ_SZ), 7, Refusal::InputLength),
                (field(wq::LOG_WQ_PG_SZ), 31, Refusal::PageAddress),
                (Field::new(0x110, 31, 64), 0x10_0008, Refusal::PageAddress),
            ],
        );
        assert!(rig.card.objects.srqs.is_empty());
    }

    #[test]
    fn a_pool_is_shown_with_its_limit_and_counters() {
        let mut rig = Rig::new();
        let create = rig.create_rmp();
        let number = rig.number(&create, create_rmp_out::RMPN);
        let record = field(wq::DBR_ADDR).get(&create.0);
        rig.write(record, &5u32.to_be_bytes());
        let query = Command::new(opcode::QUERY_RMP, 0x10).set(query_rmp_in::RMPN, number);
        rig.refuses(&query, &[(query_rmp_in::RMPN, 1, Refusal::NoSrq)]);
        let shown = |rig: &mut Rig, field: Field| {
            let reply = rig.run(&query).unwrap();
            field.within(rmpc::WQ).within(query_rmp_out::RMP_CONTEXT).get(&reply)
        };
        assert_eq!(shown(&mut rig, wq::PD), rig.pd.into());
        assert_eq!(shown(&mut rig, wq::LWM), 0);

        let bit = rmp_bitmask::LWM.within(modify_rmp_in::BITMASK);
        let modify = Command::new(opcode::MODIFY_RMP, 0x110)
            .set(modify_rmp_in::RMPN, number)
            .set(modify_rmp_in::RMP_STATE, 1u64)
            .set(rmpc::STATE.within(modify_rmp_in::CTX), 1u64)
            .set(wq::LWM.within(rmpc::WQ).within(modify_rmp_in::CTX), 4u64)
            .set(bit, 1u64);
        rig.refuses(
            &modify,
            &[
                (modify_rmp_in::RMPN, 1, Refusal::NoSrq),
                (modify_rmp_in::RMP_STATE, 0, Refusal::SrqState),
                (modify_rmp_in::BITMASK, 3, Refusal::SrqModify),
                (rmpc::STATE.within(modify_rmp_in::CTX), 3, Refusal::SrqState),
            ],
        );
        rig.run(&modify.clone().set(bit, 0u64)).unwrap();
        assert_eq!(shown(&mut rig, wq::LWM), 0);
        rig.run(&modify).unwrap();
        assert_eq!(shown(&mut rig, wq::LWM), 4);
        assert_eq!(shown(&mut rig, wq::SW_COUNTER), 5);
        rig.card.objects.srqs.get_mut(number).unwrap().failed = true;
        assert_eq!(rig.run(&modify).err(), Some(Refusal::SrqState));
    }

    #[test]
    fn a_pool_in_use_stays() {
        let mut rig = Rig::new();
        let create = rig.create_rmp();
        let number = rig.number(&create, create_rmp_out::RMPN);
        let cq = rig.cq();
        let sharing = rig.create_sharing_qp(cq, number);
        assert!(ring(&sharing) != ring(&create));
        let qp = rig.number(&sharing, create_qp_out::QPN);
        let destroy = Command::new(opcode::DESTROY_RMP, 0x10).set(destroy_rmp_in::RMPN, number);
        rig.refuses(&destroy, &[(destroy_rmp_in::RMPN, 1, Refusal::NoSrq)]);
        assert_eq!(rig.run(&destroy).err(), Some(Refusal::SrqBusy));
        let gone = Command::new(opcode::DESTROY_QP, 0x10).set(destroy_qp_in::QPN, qp);
        rig.run(&gone).unwrap();
        let dealloc = Command::new(opcode::DEALLOC_PD, 0x10).set(dealloc_pd_in::PD, rig.pd);
        assert_eq!(rig.run(&dealloc).err(), Some(Refusal::PdBusy));
        rig.run(&destroy).unwrap();
        rig.run(&dealloc).unwrap();
        assert_eq!(rig.run(&destroy).err(), Some(Refusal::NoSrq));
    }

    fn entry(field: Field) -> Field {
        field.within(create_xrc_srq_in::XRC_SRQ_CONTEXT_ENTRY)
    }

    #[test]
    fn each_field_of_an_xrc_srq_is_checked() {
        let mut rig = Rig::new();
        let (domain, cq) = (rig.xrc_domain(), rig.cq());
        let create = rig.create_xrc_srq(domain, cq);
        rig.refuses(
            &create,
            &[
                (entry(xrc_srqc::CONT_SRQ), 1, Refusal::SrqType),
                (entry(xrc_srqc::RLKY), 1, Refusal::SrqType),
                (entry(xrc_srqc::BASIC_CYCLIC_RCV_WQE), 1, Refusal::SrqType),
                (entry(xrc_srqc::USER_INDEX_EQUAL_XRC_SRQN), 1, Refusal::SrqType),
                (entry(xrc_srqc::WQ_SIGNATURE), 1, Refusal::QpSignature),
                (entry(xrc_srqc::DBR_UMEM_VALID), 1, Refusal::Umem),
                (create_xrc_srq_in::XRC_SRQ_UMEM_VALID, 1, Refusal::Umem),
                (entry(xrc_srqc::PD), 0, Refusal::NoPd),
                (entry(xrc_srqc::XRCD), 0, Refusal::NoXrcd),
                (entry(xrc_srqc::CQN), 0, Refusal::NoCq),
                (entry(xrc_srqc::LOG_RQ_STRIDE), 0, Refusal::SrqStride),
                (entry(xrc_srqc::LOG_RQ_STRIDE), 6, Refusal::SrqStride),
                (entry(xrc_srqc::LOG_PAGE_SIZE), 63, Refusal::PageOffset),
                (entry(xrc_srqc::LOG_PAGE_SIZE), 31, Refusal::PageAddress),
                (entry(xrc_srqc::DB_RECORD_ADDR_L), 1, Refusal::Record),
                (entry(xrc_srqc::LOG_XRC_SRQ_SIZE), 7, Refusal::InputLength),
            ],
        );
        assert!(rig.card.objects.srqs.is_empty());
    }

    #[test]
    fn kinds_of_shared_queues_are_kept_apart() {
        let mut rig = Rig::new();
        let (domain, cq) = (rig.xrc_domain(), rig.cq());
        let create = rig.create_xrc_srq(domain, cq);
        let xrc = rig.number(&create, create_xrc_srq_out::XRC_SRQN);
        let create = rig.create_rmp();
        let rmp = rig.number(&create, create_rmp_out::RMPN);
        assert_ne!(xrc, rmp);
        let query = Command::new(opcode::QUERY_XRC_SRQ, 0x10).set(query_xrc_srq_in::XRC_SRQN, xrc);
        rig.refuses(&query, &[(query_xrc_srq_in::XRC_SRQN, rmp.into(), Refusal::NoSrq)]);
        let other = Command::new(opcode::QUERY_RMP, 0x10).set(query_rmp_in::RMPN, rmp);
        rig.refuses(&other, &[(query_rmp_in::RMPN, xrc.into(), Refusal::NoSrq)]);
        let sharing = rig.create_sharing_qp(cq, xrc);
        assert_eq!(rig.run(&sharing).err(), Some(Refusal::NoSrq));

        let record = rig.card.objects.srqs.get(xrc).unwrap().record;
        rig.write(record, &7u32.to_be_bytes());
        let arm = Command::new(opcode::ARM_XRC_SRQ, 0x10)
            .set(arm_xrc_srq_in::XRC_SRQN, xrc)
            .set(arm_xrc_srq_in::OP_MOD, 1u64)
            .set(arm_xrc_srq_in::LWM, 5u64);
        rig.refuses(
            &arm,
            &[
                (arm_xrc_srq_in::XRC_SRQN, rmp.into(), Refusal::NoSrq),
                (arm_xrc_srq_in::OP_MOD, 0, Refusal::OpModifier),
            ],
        );
        rig.run(&arm).unwrap();
        let shown = rig.run(&query).unwrap();
        let get = |field: Field| field.within(query_xrc_srq_out::XRC_SRQ_CONTEXT_ENTRY).get(&shown);
        assert_eq!((get(xrc_srqc::LWM), get(xrc_srqc::WQE_CNT)), (5, 7));
        assert_eq!((get(xrc_srqc::STATE), get(xrc_srqc::USER_INDEX)), (0, 0x1234));
    }

    #[test]
    fn what_an_xrc_srq_stands_on_stays() {
        let mut rig = Rig::new();
        let (domain, cq) = (rig.xrc_domain(), rig.cq());
        let create = rig.create_xrc_srq(domain, cq);
        let xrc = rig.number(&create, create_xrc_srq_out::XRC_SRQN);
        let dealloc = Command::new(opcode::DEALLOC_XRCD, 0x10).set(dealloc_xrcd_in::XRCD, domain);
        let cq = Command::new(opcode::DESTROY_CQ, 0x10).set(destroy_cq_in::CQN, cq);
        assert_eq!(rig.run(&dealloc).err(), Some(Refusal::XrcdBusy));
        assert_eq!(rig.run(&cq).err(), Some(Refusal::CqBusy));
        let destroy =
            Command::new(opcode::DESTROY_XRC_SRQ, 0x10).set(destroy_xrc_srq_in::XRC_SRQN, xrc);
        rig.refuses(&destroy, &[(destroy_xrc_srq_in::XRC_SRQN, 5, Refusal::NoSrq)]);
        rig.run(&destroy).unwrap();
        rig.run(&cq).unwrap();
        let target = rig.create_target(domain);
        rig.refuses(
            &target,
            &[
                (qpc::XRCD.within(create_qp_in::QPC), 5, Refusal::NoXrcd),
                (qpc::RQ_TYPE.within(create_qp_in::QPC), 0, Refusal::QpReceiveType),
            ],
        );
        let qp = rig.number(&target, create_qp_out::QPN);
        assert_eq!(rig.run(&dealloc).err(), Some(Refusal::XrcdBusy));
        let gone = Command::new(opcode::DESTROY_QP, 0x10).set(destroy_qp_in::QPN, qp);
        rig.run(&gone).unwrap();
        rig.run(&dealloc).unwrap();
    }

    #[test]
    fn a_completion_queue_of_a_sharing_queue_pair_stays() {
        let mut rig = Rig::new();
        let create = rig.create_rmp();
        let number = rig.number(&create, create_rmp_out::RMPN);
        let (send, receive) = (rig.cq(), rig.cq());
        let sharing = rig
            .create_sharing_qp(send, number)
            .set(qpc::CQN_RCV.within(create_qp_in::QPC), receive);
        rig.run(&sharing).unwrap();
        for cq in [send, receive] {
            let destroy = Command::new(opcode::DESTROY_CQ, 0x10).set(destroy_cq_in::CQN, cq);
            assert_eq!(rig.run(&destroy).err(), Some(Refusal::CqBusy));
        }
    }
}
