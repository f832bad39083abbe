//! Commands that move a queue pair from state to state.
//!
//! Each transition takes some fields of the command's context always. It takes optional fields
//! where `opt_param_mask` has their bit. The service determines which are which (PRM, "QP state
//! transitions"; the bits are `MLX5_QP_OPTPAR_*` of `qp.h`). Every taken field is checked before
//! the first one is changed. The service itself is not among the fields: software that moves queue
//! pairs by command does not always repeat it (UCX does not), and devices accept that.

use mlx5_sys::ifc::opt_param::{
    ALT_ADDR_PATH, COUNTER_SET_ID, LAG_TX_AFF, PKEY_INDEX, PM_STATE, PRI_PORT, PRIMARY_ADDR_PATH,
    Q_KEY, RAE, RNR_TIMEOUT, RRE, RWE,
};
use mlx5_sys::ifc::{qpc, qpc_ext, rst2init_qp_in, rts2rts_qp_ext_in};

use super::take::{Take, take};
use super::{Refusal, context, counter, get, owned, uid};
use crate::card::Card;
use crate::object::{Service, State};
use crate::transport::QueuePair;

/// A transition: its states, and the parameters that it requires and allows.
struct Transition {
    from: State,
    to: State,
    required: &'static [Take],
    optional: u32,
}

fn start(
    card: &mut Card,
    input: &[u8],
    transition: fn(Service) -> Transition,
) -> Result<(), Refusal> {
    let number = get(input, rst2init_qp_in::QPN);
    let mask = get(input, rst2init_qp_in::OPT_PARAM_MASK);
    let given: Box<[u8; qpc::SIZE]> = context(input, rst2init_qp_in::QPC)?;
    let qp = card.objects.queue_pair(number).ok_or(Refusal::NoQp)?;
    owned(qp.uid, uid(input))?;
    let transition = transition(qp.service);
    if qp.state != transition.from {
        return Err(Refusal::QpState);
    }
    // Measured on ConnectX-7: F128 of evidence/facts/commands.toml.
    if (transition.from, transition.to) == (State::Rts, State::Rts) && mask & PRIMARY_ADDR_PATH != 0
    {
        return Err(Refusal::QpPrimaryPath);
    }
    if mask & !(transition.optional | LAG_TX_AFF | COUNTER_SET_ID) != 0 {
        return Err(Refusal::QpOptional);
    }
    let bits = (0..32).map(|bit| 1 << bit).filter(|bit| mask & bit != 0).map(Take::Optional);
    let taken: Vec<Take> = transition.required.iter().copied().chain(bits).collect();
    let mut context = qp.context.clone();
    for group in taken {
        take(card, group, &given, &mut context)?;
    }
    counter::may_name(card, get(&context[..], qpc::COUNTER_SET_ID), uid(input))?;
    let qp = card.objects.queue_pair_mut(number).ok_or(Refusal::NoQp)?;
    qp.context = context;
    qp.state = transition.to;
    card.state_changed(number);
    Ok(())
}

const ACCESS: u32 = RRE | RWE | RAE;

pub fn rst2init(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    start(card, input, |service| Transition {
        from: State::Reset,
        to: State::Init,
        required: match service {
            Service::Rc | Service::Xrc => &[
                Take::Optional(PM_STATE),
                Take::Optional(PKEY_INDEX),
                Take::Optional(PRI_PORT),
                Take::Optional(RRE),
                Take::Optional(RWE),
                Take::Optional(RAE),
                Take::Optional(COUNTER_SET_ID),
            ],
            Service::Uc => &[
                Take::Optional(PM_STATE),
                Take::Optional(PKEY_INDEX),
                Take::Optional(PRI_PORT),
                Take::Optional(RWE),
                Take::Optional(COUNTER_SET_ID),
            ],
            Service::Ud | Service::Ethernet => &[
                Take::Optional(PKEY_INDEX),
                Take::Optional(PRI_PORT),
                Take::Optional(Q_KEY),
                Take::Optional(COUNTER_SET_ID),
            ],
            Service::Dc => &[
                Take::Optional(PM_STATE),
                Take::Optional(PKEY_INDEX),
                Take::Optional(PRI_PORT),
                Take::Optional(COUNTER_SET_ID),
            ],
        },
        optional: 0,
    })
}

pub fn init2init(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    start(card, input, |service| Transition {
        from: State::Init,
        to: State::Init,
        required: &[],
        optional: PKEY_INDEX
            | PRI_PORT
            | match service {
                Service::Rc | Service::Xrc => ACCESS,
                Service::Uc => RWE,
                Service::Ud | Service::Ethernet => Q_KEY,
                Service::Dc => 0,
            },
    })
}

pub fn init2rtr(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    start(card, input, |service| Transition {
        from: State::Init,
        to: State::Rtr,
        required: match service {
            Service::Rc | Service::Xrc => &[Take::Peer, Take::Path, Take::Responder],
            Service::Uc => &[Take::Peer, Take::Path, Take::Responder],
            Service::Ud | Service::Ethernet => &[Take::Peer],
            // Where requests go, each says for itself.
            Service::Dc => &[Take::Peer, Take::Path],
        },
        optional: PKEY_INDEX
            | match service {
                Service::Rc | Service::Xrc => ALT_ADDR_PATH | ACCESS,
                Service::Uc => ALT_ADDR_PATH | RWE,
                Service::Ud | Service::Ethernet => Q_KEY,
                // An initiator needs no access bits, but software gives them (UCX).
                Service::Dc => ACCESS,
            },
    })
}

/// Returns the optional parameters that may change while the queue pair sends.
fn while_sending(service: Service) -> u32 {
    match service {
        Service::Rc | Service::Xrc => ALT_ADDR_PATH | ACCESS | PM_STATE | RNR_TIMEOUT,
        Service::Uc => ALT_ADDR_PATH | RWE | PM_STATE,
        Service::Ud | Service::Ethernet => Q_KEY,
        Service::Dc => RNR_TIMEOUT,
    }
}

pub fn rtr2rts(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    start(card, input, |service| Transition {
        from: State::Rtr,
        to: State::Rts,
        required: match service {
            Service::Rc | Service::Xrc | Service::Dc => &[Take::Requester],
            Service::Uc | Service::Ud | Service::Ethernet => &[Take::SendPsn],
        },
        optional: while_sending(service),
    })
}

pub fn rts2rts(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    if get(input, rts2rts_qp_ext_in::QPC_EXT) == 1 {
        return extended(card, input);
    }
    start(card, input, |service| Transition {
        from: State::Rts,
        to: State::Rts,
        required: &[],
        optional: while_sending(service),
    })
}

/// RTS to RTS with the extension of the context: a stream of an initiator that has failed goes on.
fn extended(card: &mut Card, input: &[u8]) -> Result<(), Refusal> {
    /// `mlx5_ifc.h` of rdma-core, MLX5_QPC_OPT_MASK_32_DCI_STREAM_CHANNEL_ID.
    const STREAM: u64 = 1;
    if input.len() < rts2rts_qp_ext_in::SIZE {
        return Err(Refusal::InputLength);
    }
    if rts2rts_qp_ext_in::OPT_PARAM_MASK_95_32.get(input) != STREAM
        || get(input, rst2init_qp_in::OPT_PARAM_MASK) != 0
    {
        return Err(Refusal::QpOptional);
    }
    let number = get(input, rts2rts_qp_ext_in::QPN);
    let stream = qpc_ext::DCI_STREAM_CHANNEL_ID.within(rts2rts_qp_ext_in::QPC_DATA_EXT);
    let qp = card.objects.queue_pair_mut(number).ok_or(Refusal::NoQp)?;
    owned(qp.uid, uid(input))?;
    if qp.state != State::Rts {
        return Err(Refusal::QpState);
    }
    let stream = get(input, stream) as u16;
    if QueuePair::reset_stream(qp, stream) { Ok(()) } else { Err(Refusal::QpStream) }
}

pub fn sqd2rts(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    start(card, input, |service| Transition {
        from: State::Sqd,
        to: State::Rts,
        required: &[],
        optional: match service {
            Service::Rc | Service::Xrc => ACCESS | RNR_TIMEOUT,
            Service::Uc => RWE,
            Service::Ud | Service::Ethernet => Q_KEY,
            Service::Dc => 0,
        },
    })
}

pub fn sqerr2rts(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    start(card, input, |service| Transition {
        from: State::SqError,
        to: State::Rts,
        required: &[],
        optional: match service {
            Service::Rc | Service::Xrc => ACCESS | RNR_TIMEOUT,
            Service::Uc => RWE,
            Service::Ud | Service::Ethernet => Q_KEY,
            Service::Dc => 0,
        },
    })
}

pub fn to_error(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, rst2init_qp_in::QPN);
    let qp = card.objects.queue_pair_mut(number).ok_or(Refusal::NoQp)?;
    owned(qp.uid, uid(input))?;
    qp.sq.told_to_flush |= qp.state != State::Error;
    qp.state = State::Error;
    card.state_changed(number);
    Ok(())
}

pub fn to_reset(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, rst2init_qp_in::QPN);
    let qp = card.objects.queue_pair(number).ok_or(Refusal::NoQp)?;
    owned(qp.uid, uid(input))?;
    reset(card, number);
    Ok(())
}

/// Moves a queue pair, or an Ethernet queue, to Reset.
pub(super) fn reset(card: &mut Card, number: u32) {
    card.check_unrung(number);
    if let Some(qp) = card.objects.qps.get_mut(&number) {
        qp.reset();
        card.state_changed(number);
    }
}

#[cfg(test)]
mod tests;
