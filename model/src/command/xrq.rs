//! Commands on shared receive queues that match tags (XRQ).

use mlx5_sys::ifc::{
    Field, arm_xrq_in, create_xrq_in, create_xrq_out, destroy_xrq_in, query_xrq_in, query_xrq_out,
    tag_matching_topology_context as topology, wq, xrqc,
};

use super::buffer::PAS;
use super::capability::LOG_MAX_TAGS;
use super::srq::{self, Parts};
use super::{Refusal, context, get, owned, uid};
use crate::card::Card;
use crate::object::{Srq, SrqContext, TagList};

/// `MLX5_XRQC_TOPOLOGY_TAG_MATCHING`: the one kind that there is.
const TAG_MATCHING: u32 = 1;
/// `MLX5_XRQC_OFFLOAD_RNDV`
const RENDEZVOUS: u32 = 1;

pub fn create(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let mut context: Box<[u8; xrqc::SIZE]> = context(input, create_xrq_in::XRQ_CONTEXT)?;
    let field = |field: Field| get(&context[..], field);
    let user = uid(input);
    if field(xrqc::TOPOLOGY) != TAG_MATCHING
        || field(xrqc::OFFLOAD) > RENDEZVOUS
        || field(xrqc::RLKEY) == 1
    {
        return Err(Refusal::SrqType);
    }
    let log_tags = topology::LOG_MATCHING_LIST_SZ.within(xrqc::TAG_MATCHING_TOPOLOGY_CONTEXT);
    let log_tags = field(log_tags);
    if log_tags > LOG_MAX_TAGS {
        return Err(Refusal::SrqSize);
    }
    owned(card.objects.cqs.get(field(xrqc::CQN)).ok_or(Refusal::NoCq)?.uid, user)?;
    // The page list starts further on than in other queues' commands, as the context is longer.
    let pages = &input[create_xrq_in::SIZE - PAS..];
    let (pd, queue) = srq::work_queue(card, user, &mut context[..], xrqc::WQ, pages)?;
    let record = wq::DBR_ADDR.within(xrqc::WQ).get(&context[..]);
    let limit = get(&context[..], wq::LWM.within(xrqc::WQ));
    let tags = Some(TagList::new(1 << log_tags));
    let context = SrqContext::Xrq(context);
    let number = srq::enter(card, Parts { user, context, pd, record, queue, limit, tags })?;
    create_xrq_out::XRQN.set(output, number.into());
    Ok(())
}

/// Looks up a queue that a command may touch.
fn xrq<'a>(card: &'a Card, number: u32, input: &[u8]) -> Result<&'a Srq, Refusal> {
    let srq = card.objects.srqs.get(number).ok_or(Refusal::NoSrq)?;
    if srq.tags.is_none() {
        return Err(Refusal::NoSrq);
    }
    owned(srq.uid, uid(input))?;
    Ok(srq)
}

pub fn query(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let shown = xrq(card, get(input, query_xrq_in::XRQN), input)?.query_xrq();
    let shown = shown.ok_or(Refusal::NoSrq)?;
    output[query_xrq_out::XRQ_CONTEXT.bytes()].copy_from_slice(&shown);
    Ok(())
}

pub fn arm(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, arm_xrq_in::XRQN);
    if xrq(card, number, input)?.failed {
        return Err(Refusal::SrqState);
    }
    card.arm_srq(number, get(input, arm_xrq_in::LWM) as u16);
    Ok(())
}

pub fn destroy(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_xrq_in::XRQN);
    xrq(card, number, input)?;
    srq::destroy(card, number)
}

#[cfg(test)]
mod tests {
    use mlx5_sys::ifc::{create_qp_in, create_qp_out, destroy_qp_in, opcode, qpc};

    use super::super::test::{Command, Rig};
    use super::*;

    #[test]
    fn a_queue_is_made_shown_armed_and_destroyed() {
        let mut rig = Rig::new();
        let cq = rig.cq();
        let create = rig.create_xrq(cq);
        let field = |field: Field| field.within(create_xrq_in::XRQ_CONTEXT);
        let queue = |inner: Field| field(inner.within(xrqc::WQ));
        let tags = topology::LOG_MATCHING_LIST_SZ.within(xrqc::TAG_MATCHING_TOPOLOGY_CONTEXT);
        rig.refuses(
            &create,
            &[
                (field(xrqc::TOPOLOGY), 0, Refusal::SrqType),
                (field(xrqc::OFFLOAD), 2, Refusal::SrqType),
                (field(xrqc::RLKEY), 1, Refusal::SrqType),
                (field(xrqc::CQN), 0xff_ffff, Refusal::NoCq),
                (field(tags), 8, Refusal::SrqSize),
                (queue(wq::WQ_TYPE), 2, Refusal::SrqType),
                (queue(wq::WQ_SIGNATURE), 1, Refusal::QpSignature),
                (queue(wq::END_PADDING_MODE), 1, Refusal::QpPadding),
                (queue(wq::DBR_UMEM_VALID), 1, Refusal::NoUmem),
                (queue(wq::WQ_UMEM_VALID), 1, Refusal::NoUmem),
                (queue(wq::PD), 0xff_ffff, Refusal::NoPd),
                (queue(wq::LOG_WQ_STRIDE), 4, Refusal::SrqStride),
                (queue(wq::LOG_WQ_SZ), 7, Refusal::InputLength),
                (Field::new(0x150, 31, 64), 0x10_0008, Refusal::PageAddress),
            ],
        );
        let number = rig.number(&create, create_xrq_out::XRQN);
        let query = Command::new(opcode::QUERY_XRQ, 0x10).set(query_xrq_in::XRQN, number);
        rig.refuses(&query, &[(query_xrq_in::XRQN, 0xff_ffff, Refusal::NoSrq)]);
        let arm = Command::new(opcode::ARM_XRQ, 0x10)
            .set(arm_xrq_in::XRQN, number)
            .set(arm_xrq_in::LWM, 0u64);
        rig.refuses(&arm, &[(arm_xrq_in::XRQN, 0xff_ffff, Refusal::NoSrq)]);
        rig.run(&arm).unwrap();
        let reply = rig.run(&query).unwrap();
        let shown = |field: Field| field.within(query_xrq_out::XRQ_CONTEXT).get(&reply);
        assert_eq!((shown(xrqc::USER_INDEX), shown(xrqc::CQN)), (0x4321, cq.into()));
        assert_eq!(shown(tags), 3);
        // Only reliable connections take from it.
        let taker = rig.create_sharing_qp(cq, number);
        let unreliable = taker.clone().set(qpc::ST.within(create_qp_in::QPC), 1u64);
        assert_eq!(rig.run(&unreliable).err(), Some(Refusal::NoSrq));
        let qp = rig.number(&taker, create_qp_out::QPN);
        let destroy = Command::new(opcode::DESTROY_XRQ, 0x10).set(destroy_xrq_in::XRQN, number);
        assert_eq!(rig.run(&destroy).err(), Some(Refusal::SrqBusy));
        rig.run(&Command::new(opcode::DESTROY_QP, 0x10).set(destroy_qp_in::QPN, qp)).unwrap();
        rig.refuses(&destroy, &[(destroy_xrq_in::XRQN, 0xff_ffff, Refusal::NoSrq)]);
        rig.run(&destroy).unwrap();
        assert!(rig.card.objects.srqs.is_empty());
    }
}
