//! Commands on DCTs, the targets of dynamic connections.
//!
//! A DCT is a queue pair without queues that is ready to receive from the start. It takes its
//! number from the queue pairs' numbers, because packets name it. Its context is built from the
//! command's fields.

use mlx5_sys::ifc::{
    Field, ads, arm_dct_in, create_dct_in, create_dct_out, dctc, destroy_dct_in, drain_dct_in, qpc,
    query_dct_in, query_dct_out,
};

use super::capability::{LOG_MAX_MESSAGE, LOG_MAX_READS, PKEYS};
use super::qp::free_number;
use super::take::check_path_mtu;
use super::{Refusal, context, counter, get, owned, uid};
use crate::card::Card;
use crate::object::{Drain, Qp, ReceiveQueue, Role, SendQueue, Service, State, Target};
use crate::transport::QueuePair;
use crate::work::LOG_MAX_ATOMIC;

/// QPC's `st` of a target, and its `rq_type`: receives come from an SRQ (`qp.h`).
const TARGET: u64 = 6;
const RQ_SHARED: u64 = 1;

pub fn create(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let given: Box<[u8; dctc::SIZE]> = context(input, create_dct_in::DCT_CONTEXT_ENTRY)?;
    let field = |field| get(&given[..], field);
    let user = uid(input);
    if field(dctc::STATE) != 0 {
        return Err(Refusal::DctState);
    }
    let pd = card.objects.pds.get(field(dctc::PD)).ok_or(Refusal::NoPd)?;
    owned(pd.uid, user)?;
    let cq = card.objects.cqs.get(field(dctc::CQN)).ok_or(Refusal::NoCq)?;
    owned(cq.uid, user)?;
    match (field(dctc::CS_RES), cq.cqe_size) {
        (0, _) | (2, 128) => {}
        _ => return Err(Refusal::DctScatter),
    }
    let srq = card.objects.srqs.get(field(dctc::SRQN_XRQN));
    let srq = srq.filter(|srq| srq.xrc().is_none() && srq.tags.is_none()).ok_or(Refusal::NoSrq)?;
    owned(srq.uid, user)?;
    if !(1..=5).contains(&field(dctc::MTU)) {
        return Err(Refusal::QpMtu);
    }
    check_path_mtu(card, field(dctc::MTU))?;
    if field(dctc::RAE) == 1 && !(1..=LOG_MAX_ATOMIC).contains(&field(dctc::ATOMIC_MODE)) {
        return Err(Refusal::QpAtomicMode);
    }
    counter::may_name(card, field(dctc::COUNTER_SET_ID), user)?;
    // Zero is the first port, too.
    if field(dctc::PORT) > 1 {
        return Err(Refusal::Port);
    }
    if field(dctc::PKEY_INDEX) as usize >= PKEYS {
        return Err(Refusal::PkeyIndex);
    }
    if field(dctc::MY_ADDR_INDEX) as usize >= card.gid_table_size() {
        return Err(Refusal::GidIndex);
    }

    let mut qpc = Box::new([0; qpc::SIZE]);
    let path = |field: Field| field.within(qpc::PRIMARY_ADDRESS_PATH);
    for (to, from) in [
        (qpc::PD, dctc::PD),
        (qpc::USER_INDEX, dctc::USER_INDEX),
        (qpc::CQN_RCV, dctc::CQN),
        (qpc::CS_RES, dctc::CS_RES),
        (qpc::COUNTER_SET_ID, dctc::COUNTER_SET_ID),
        (qpc::SRQN_RMPN_XRQN, dctc::SRQN_XRQN),
        (qpc::MTU, dctc::MTU),
        (qpc::MIN_RNR_NAK, dctc::MIN_RNR_NAK),
        (qpc::RRE, dctc::RRE),
        (qpc::RWE, dctc::RWE),
        (qpc::RAE, dctc::RAE),
        (qpc::ATOMIC_MODE, dctc::ATOMIC_MODE),
        (path(ads::PKEY_INDEX), dctc::PKEY_INDEX),
        (path(ads::SRC_ADDR_INDEX), dctc::MY_ADDR_INDEX),
    ] {
        to.set(&mut qpc[..], from.get(&given[..]));
    }
    qpc::ST.set(&mut qpc[..], TARGET);
    qpc::NO_SQ.set(&mut qpc[..], 1);
    qpc::RQ_TYPE.set(&mut qpc[..], RQ_SHARED);
    qpc::LOG_MSG_MAX.set(&mut qpc[..], LOG_MAX_MESSAGE.into());
    qpc::LOG_RRA_MAX.set(&mut qpc[..], LOG_MAX_READS.into());

    let number = free_number(card).ok_or(Refusal::Exhausted)?;
    let ece = given[dctc::ECE.bytes()].to_vec();
    card.objects.enter_qp(Qp {
        number,
        uid: user,
        state: State::Rtr,
        service: Service::Dc,
        context: qpc,
        sq: SendQueue::default(),
        rq: ReceiveQueue::default(),
        transport: Some(QueuePair::target()),
        role: Role::Target(Box::new(Target::new(given))),
        failure: [0; 4],
    });
    create_dct_out::DCTN.set(output, number.into());
    output[create_dct_out::ECE.bytes()].copy_from_slice(&ece);
    Ok(())
}

/// The target that a command names, if its user context may.
fn find<'a>(
    card: &'a mut Card,
    input: &[u8],
    field: Field,
) -> Result<(u32, &'a mut Target), Refusal> {
    let number = get(input, field);
    let qp = card.objects.qps.get_mut(&number).ok_or(Refusal::NoDct)?;
    let user = qp.uid;
    let target = qp.target_mut().ok_or(Refusal::NoDct)?;
    owned(user, uid(input))?;
    Ok((number, target))
}

pub fn query(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let (_, target) = find(card, input, query_dct_in::DCTN)?;
    output[query_dct_out::DCT_CONTEXT_ENTRY.bytes()].copy_from_slice(&target.query());
    Ok(())
}

/// Stops accepting connections. An event reports when nothing is on its way any more.
pub fn drain(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let (number, target) = find(card, input, drain_dct_in::DCTN)?;
    if target.drain != Drain::Active {
        return Err(Refusal::DctDrained);
    }
    card.drain_target(number);
    Ok(())
}

/// Asks for an event at the next violation of the key.
pub fn arm(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    find(card, input, arm_dct_in::DCT_NUMBER)?.1.armed = true;
    Ok(())
}

pub fn destroy(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let (number, _) = find(card, input, destroy_dct_in::DCTN)?;
    card.abandon_target(number);
    card.objects.remove_qp(number);
    Ok(())
}
