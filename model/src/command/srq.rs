//! Commands on shared receive queues: receive memory pools (RMP), which is what the kernel's driver
//! makes of every basic one.

use mlx5_sys::ifc::{
    Field, create_rmp_in, create_rmp_out, destroy_rmp_in, modify_rmp_in, query_rmp_in,
    query_rmp_out, rmp_bitmask, rmpc, wq,
};

use super::buffer::{self, Geometry};
use super::capability::{LOG_MAX_SRQ_SIZE, MAX_RQ_WQE};
use super::{Refusal, context, get, owned, uid};
use crate::card::Card;
use crate::object::{LinkedQueue, Srq, SrqContext};

/// `mlx5_ifc.h`, `MLX5_RMPC_STATE_RDY`
const READY: u32 = 1;
/// A linked list of WQEs (`mlx5_ifc.h`, `MLX5_WQ_TYPE_LINKED_LIST`).
const LINKED_LIST: u32 = 0;
/// The smallest WQE: the segment that names the next, and one pointer.
const LEAST_WQE: usize = 32;

/// A work queue as its context describes it, whichever command that is in.
struct Described {
    record: u64,
    log_wqes: u32,
    log_stride: u32,
    log_page_size: u32,
    page_offset: u32,
}

/// Checks a linked list of receive WQEs and reads its pages.
fn linked(input: &[u8], described: &Described) -> Result<LinkedQueue, Refusal> {
    if described.log_wqes > LOG_MAX_SRQ_SIZE {
        return Err(Refusal::SrqSize);
    }
    let stride = 1usize << described.log_stride;
    if !(LEAST_WQE..=MAX_RQ_WQE).contains(&stride) {
        return Err(Refusal::SrqStride);
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
    };
    let number = card.objects.srqs.add(srq).ok_or(Refusal::Exhausted)?;
    card.arm_srq(number, limit);
    create_rmp_out::RMPN.set(output, number.into());
    Ok(())
}

/// Looks up a receive memory pool that a command may touch.
fn rmp<'a>(card: &'a Card, number: u32, input: &[u8]) -> Result<&'a Srq, Refusal> {
    let srq = card.objects.srqs.get(number).ok_or(Refusal::NoSrq)?;
    let SrqContext::Rmp(_) = srq.context;
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

fn destroy(card: &mut Card, number: u32) -> Result<(), Refusal> {
    if card.objects.qps.values().any(|qp| qp.shared_receive() == Some(number)) {
        return Err(Refusal::SrqBusy);
    }
    card.objects.srqs.remove(number);
    Ok(())
}

#[cfg(test)]
mod tests {
    use mlx5_sys::ifc::{create_qp_out, dealloc_pd_in, destroy_qp_in, opcode};

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
}
