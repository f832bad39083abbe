//! Commands on XRQs, the shared receive queues with tag matching.

use mlx5_sys::ifc::{
    Field, arm_xrq_in, create_xrq_in, create_xrq_out, destroy_xrq_in, query_xrq_in, query_xrq_out,
    tag_matching_topology_context as topology, wq, xrqc,
};

use super::buffer::PAS;
use super::capability::LOG_MAX_TAGS;
use super::srq::{self, Parts};
use super::{Refusal, context, get, owned, uid};
use crate::card::{Card, Feature};
use crate::object::{Srq, SrqContext, TagList};

/// `MLX5_XRQC_TOPOLOGY_TAG_MATCHING`: the one kind that there is.
const TAG_MATCHING: u32 = 1;
/// `MLX5_XRQC_OFFLOAD_RNDV`
const RENDEZVOUS: u32 = 1;

pub fn create(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let mut context: Box<[u8; xrqc::SIZE]> = context(input, create_xrq_in::XRQ_CONTEXT)?;
    let field = |field: Field| get(&context[..], field);
    let user = uid(input);
    if !card.identity.profile.has(Feature::TagMatching)
        || field(xrqc::TOPOLOGY) != TAG_MATCHING
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
mod tests;
