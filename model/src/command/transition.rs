//! Commands that move a queue pair from state to state.
//!
//! Each transition takes some fields of the command's context always. It takes optional fields
//! where `opt_param_mask` has their bit. The service determines which are which (PRM, "QP state
//! transitions"; the bits are `MLX5_QP_OPTPAR_*` of `qp.h`). Every taken field is checked before
//! the first one is changed. The service itself is not among the fields: software that moves queue
//! pairs by command does not always repeat it (UCX does not), and devices accept that.

use mlx5_sys::ifc::{qpc, qpc_ext, rst2init_qp_in, rts2rts_qp_ext_in};

use super::take::optional::{
    ALTERNATE_PATH, COUNTER_SET, LAG_TX_AFFINITY, PKEY_INDEX, PM_STATE, PORT, Q_KEY, RAE,
    RNR_TIMEOUT, RRE, RWE,
};
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
    if mask & !(transition.optional | LAG_TX_AFFINITY | COUNTER_SET) != 0 {
        return Err(Refusal::QpOptional);
    }
    let bits = (0..32).map(|bit| 1 << bit).filter(|bit| mask & bit != 0).map(Take::Optional);
    let taken: Vec<Take> = transition.required.iter().copied().chain(bits).collect();
    let mut context = qp.context.clone();
    for group in taken {
        take(card, group, &given, &mut context)?;
    }
    counter::may_count(card, get(&context[..], qpc::COUNTER_SET_ID), uid(input))?;
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
                Take::Optional(PORT),
                Take::Optional(RRE),
                Take::Optional(RWE),
                Take::Optional(RAE),
                Take::Optional(COUNTER_SET),
            ],
            Service::Uc => &[
                Take::Optional(PM_STATE),
                Take::Optional(PKEY_INDEX),
                Take::Optional(PORT),
                Take::Optional(RWE),
                Take::Optional(COUNTER_SET),
            ],
            Service::Ud | Service::Ethernet => &[
                Take::Optional(PKEY_INDEX),
                Take::Optional(PORT),
                Take::Optional(Q_KEY),
                Take::Optional(COUNTER_SET),
            ],
            Service::Dc => &[
                Take::Optional(PM_STATE),
                Take::Optional(PKEY_INDEX),
                Take::Optional(PORT),
                Take::Optional(COUNTER_SET),
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
            | PORT
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
                Service::Rc | Service::Xrc => ALTERNATE_PATH | ACCESS,
                Service::Uc => ALTERNATE_PATH | RWE,
                Service::Ud | Service::Ethernet => Q_KEY,
                // An initiator needs no access bits, but software gives them (UCX).
                Service::Dc => ACCESS,
            },
    })
}

/// Returns the optional parameters that may change while the queue pair sends.
fn while_sending(service: Service) -> u32 {
    match service {
        Service::Rc | Service::Xrc => ALTERNATE_PATH | ACCESS | PM_STATE | RNR_TIMEOUT,
        Service::Uc => ALTERNATE_PATH | RWE | PM_STATE,
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
    qp.state = State::Error;
    card.state_changed(number);
    Ok(())
}

pub fn to_reset(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, rst2init_qp_in::QPN);
    let qp = card.objects.queue_pair_mut(number).ok_or(Refusal::NoQp)?;
    owned(qp.uid, uid(input))?;
    qp.reset();
    card.state_changed(number);
    Ok(())
}

#[cfg(test)]
mod tests {
    use mlx5_sys::ifc::{Field, ads, opcode};

    use super::super::test::{Command, Rig};
    use super::*;

    fn field(field: Field) -> Field {
        field.within(rst2init_qp_in::QPC)
    }

    fn primary(f: Field) -> Field {
        field(f.within(qpc::PRIMARY_ADDRESS_PATH))
    }

    /// A card with one queue pair in a state.
    fn at(state: State) -> (Rig, u32) {
        let mut rig = Rig::new();
        let cq = rig.cq();
        let qp = rig.qp(cq, cq);
        let ups = [opcode::RST2INIT_QP, opcode::INIT2RTR_QP, opcode::RTR2RTS_QP];
        let steps = match state {
            State::Reset | State::SqError | State::Sqd | State::Error => 0,
            State::Init => 1,
            State::Rtr => 2,
            State::Rts => 3,
        };
        for up in &ups[..steps] {
            let command = rig.transition(*up, qp);
            rig.run(&command).unwrap();
        }
        match state {
            State::SqError | State::Sqd => {
                rig.card.objects.qps.get_mut(&qp).unwrap().state = state;
            }
            State::Error => {
                let command = Command::new(opcode::QP_2ERR, 0x10).set(rst2init_qp_in::QPN, qp);
                rig.run(&command).unwrap();
            }
            _ => {}
        }
        assert_eq!(rig.card.objects.qps[&qp].state, state);
        (rig, qp)
    }

    const STATES: [State; 7] = [
        State::Reset,
        State::Init,
        State::Rtr,
        State::Rts,
        State::SqError,
        State::Sqd,
        State::Error,
    ];

    #[test]
    fn transitions_start_where_they_may() {
        for (opcode, from, to) in [
            (opcode::RST2INIT_QP, State::Reset, State::Init),
            (opcode::INIT2INIT_QP, State::Init, State::Init),
            (opcode::INIT2RTR_QP, State::Init, State::Rtr),
            (opcode::RTR2RTS_QP, State::Rtr, State::Rts),
            (opcode::RTS2RTS_QP, State::Rts, State::Rts),
            (opcode::SQD_RTS_QP, State::Sqd, State::Rts),
            (opcode::SQERR2RTS_QP, State::SqError, State::Rts),
        ] {
            for state in STATES {
                let (mut rig, qp) = at(state);
                let result = rig.run(&rig.transition(opcode, qp)).map(|_| ());
                let expected = if state == from { Ok(()) } else { Err(Refusal::QpState) };
                assert_eq!(result, expected, "{opcode:#x} from {state:?}");
                let now = if state == from { to } else { state };
                assert_eq!(rig.card.objects.qps[&qp].state, now);
            }
        }
        for (opcode, to) in [(opcode::QP_2ERR, State::Error), (opcode::QP_2RST, State::Reset)] {
            for state in STATES {
                let (mut rig, qp) = at(state);
                let command = Command::new(opcode, 0x10).set(rst2init_qp_in::QPN, qp);
                rig.run(&command).unwrap();
                assert_eq!(rig.card.objects.qps[&qp].state, to);
            }
        }
    }

    #[test]
    fn a_transition_takes_its_fields_and_no_others() {
        let (mut rig, qp) = at(State::Init);
        let rtr = rig
            .transition(opcode::INIT2RTR_QP, qp)
            .set(field(qpc::RRE), 0u64)
            .set(field(qpc::RWE), 0u64)
            .set(primary(ads::PKEY_INDEX), 5u64)
            .set(field(qpc::PD), 0u64)
            .set(field(qpc::RETRY_COUNT), 3u64)
            .set(rst2init_qp_in::OPT_PARAM_MASK, RWE);
        rig.run(&rtr).unwrap();
        let get = |f: Field| rig.card.objects.qps[&qp].get(f);
        assert_eq!(get(qpc::RRE), 1);
        assert_eq!(get(qpc::RWE), 0);
        assert_eq!(get(qpc::PD), rig.pd);
        assert_eq!(get(qpc::RETRY_COUNT), 0);
        assert_eq!(get(qpc::MTU), 3);
        assert_eq!(get(qpc::NEXT_RCV_PSN), 0x123);
        assert_eq!(get(ads::RLID.within(qpc::PRIMARY_ADDRESS_PATH)), 7);
        assert_eq!(get(ads::PKEY_INDEX.within(qpc::PRIMARY_ADDRESS_PATH)), 0);
        assert_eq!(get(ads::VHCA_PORT_NUM.within(qpc::PRIMARY_ADDRESS_PATH)), 1);
        assert_eq!(get(ads::ACK_TIMEOUT.within(qpc::PRIMARY_ADDRESS_PATH)), 0);
    }

    #[test]
    fn unreliable_services_take_their_own_fields() {
        for (st, service) in [(1u64, Service::Uc), (2, Service::Ud)] {
            let mut rig = Rig::new();
            let cq = rig.cq();
            let create =
                rig.create_qp(cq, cq).set(qpc::ST.within(mlx5_sys::ifc::create_qp_in::QPC), st);
            let qp = rig.number(&create, mlx5_sys::ifc::create_qp_out::QPN);
            for opcode in [opcode::RST2INIT_QP, opcode::INIT2RTR_QP, opcode::RTR2RTS_QP] {
                let command = rig
                    .transition(opcode, qp)
                    .set(field(qpc::ST), st)
                    .set(field(qpc::Q_KEY), 0x1111_1111u64);
                rig.run(&command).unwrap();
            }
            let object = &rig.card.objects.qps[&qp];
            assert_eq!((object.service, object.state), (service, State::Rts));
            let q_key = if service == Service::Ud { 0x1111_1111 } else { 0 };
            assert_eq!(object.get(qpc::Q_KEY), q_key);
            assert_eq!(object.get(qpc::RRE), 0);
        }
    }
}
