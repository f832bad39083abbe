//! Unit tests.

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

const STATES: [State; 7] =
    [State::Reset, State::Init, State::Rtr, State::Rts, State::SqError, State::Sqd, State::Error];

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
