//! Attributes of verbs in the HCA's words (`qpc`), as Linux's driver puts them, and back.

use mlx5_sys::ifc::{Field, ads, atomic_caps, cmd_hca_cap, qpc, rst2init_qp_in};
use mlx5_sys::verbs::{ibv_qp_attr, ibv_qp_attr_mask as bit};

use super::CommandPair;
use super::path::{self, Path};
use crate::devx::{Command, atomic};
use crate::error::Result;
use crate::ib::Access;
use crate::ib::capability::Group;
use crate::verbs::{
    AckTimeout, AddressVector, AlternatePath, Capacities, MigrationState, Mtu, Pair, PairObject,
    QpState, QueuePairAttributes, RnrTimer,
};

/// A request that asks for an acknowledgement comes every 2^8 packets at least (`qp.c` of the
/// kernel's driver, `log_ack_req_freq`).
const ACK_FREQUENCY: u64 = 8;
/// Datagrams: packets of up to 4096 bytes, which are whole messages.
const DATAGRAM_MTU: u64 = 5;
const DATAGRAM_LOG_MESSAGE: u64 = 12;
/// `st` of datagrams.
const DATAGRAMS: u8 = 2;

/// Puts what `mask` says of the attributes into the context of a command that moves the queue pair.
pub(super) fn set(
    mut command: Command,
    pair: &Pair<CommandPair>,
    attr: &ibv_qp_attr,
    mask: u32,
) -> Result<Command> {
    const PRIMARY: Field = qpc::PRIMARY_ADDRESS_PATH;
    const SECONDARY: Field = qpc::SECONDARY_ADDRESS_PATH;
    let has = |attribute: bit| mask & attribute.0 != 0;
    let context = pair.object.context();
    let path = |raw| Path::new(context, AddressVector::from_raw(raw));
    let ends = (pair.number(), attr.dest_qp_num);
    let mut fields: Vec<(Field, u64)> = vec![(qpc::ST, pair.object.service.into())];
    let mut add = |field, value: u64| fields.push((field, value));
    add(qpc::PM_STATE, migration(has(bit::IBV_QP_PATH_MIG_STATE), attr.path_mig_state));
    add(qpc::LOG_ACK_REQ_FREQ, ACK_FREQUENCY);
    if pair.object.service == DATAGRAMS {
        add(qpc::MTU, DATAGRAM_MTU);
        add(qpc::LOG_MSG_MAX, DATAGRAM_LOG_MESSAGE);
    } else if has(bit::IBV_QP_PATH_MTU) {
        let longest = context.capabilities().current(Group::General, cmd_hca_cap::LOG_MAX_MSG)?;
        add(qpc::MTU, attr.path_mtu.into());
        add(qpc::LOG_MSG_MAX, longest.unwrap_or(0));
    }
    if has(bit::IBV_QP_PORT) {
        add(ads::VHCA_PORT_NUM.within(PRIMARY), attr.port_num.into());
    }
    if has(bit::IBV_QP_PKEY_INDEX) {
        add(ads::PKEY_INDEX.within(PRIMARY), attr.pkey_index.into());
    }
    if has(bit::IBV_QP_QKEY) {
        add(qpc::Q_KEY, attr.qkey.into());
    }
    if has(bit::IBV_QP_DEST_QPN) {
        add(qpc::REMOTE_QPN, attr.dest_qp_num.into());
    }
    if has(bit::IBV_QP_RQ_PSN) {
        add(qpc::NEXT_RCV_PSN, attr.rq_psn.into());
    }
    if has(bit::IBV_QP_MIN_RNR_TIMER) {
        add(qpc::MIN_RNR_NAK, attr.min_rnr_timer.into());
    }
    if has(bit::IBV_QP_MAX_DEST_RD_ATOMIC) {
        add(qpc::LOG_RRA_MAX, log(attr.max_dest_rd_atomic));
    }
    if has(bit::IBV_QP_SQ_PSN) {
        add(qpc::NEXT_SEND_PSN, attr.sq_psn.into());
    }
    if has(bit::IBV_QP_TIMEOUT) {
        add(ads::ACK_TIMEOUT.within(PRIMARY), attr.timeout.into());
    }
    if has(bit::IBV_QP_RETRY_CNT) {
        add(qpc::RETRY_COUNT, attr.retry_cnt.into());
    }
    if has(bit::IBV_QP_RNR_RETRY) {
        add(qpc::RNR_RETRY, attr.rnr_retry.into());
    }
    if has(bit::IBV_QP_MAX_QP_RD_ATOMIC) {
        add(qpc::LOG_SRA_MAX, log(attr.max_rd_atomic));
    }
    if has(bit::IBV_QP_ACCESS_FLAGS) {
        let access = Access::from_bits_truncate(attr.qp_access_flags);
        let atomics = access.contains(Access::REMOTE_ATOMIC);
        let mode = if atomics { atomic::mode(context, atomic_caps::ATOMIC_SIZE_QP)? } else { 0 };
        add(qpc::RWE, access.contains(Access::REMOTE_WRITE).into());
        add(qpc::RRE, access.contains(Access::REMOTE_READ).into());
        add(qpc::RAE, atomics.into());
        add(qpc::ATOMIC_MODE, mode);
    }
    if has(bit::IBV_QP_ALT_PATH) {
        add(ads::PKEY_INDEX.within(SECONDARY), attr.alt_pkey_index.into());
        add(ads::ACK_TIMEOUT.within(SECONDARY), attr.alt_timeout.into());
    }
    command = command.fields(rst2init_qp_in::QPC, fields);
    if has(bit::IBV_QP_AV) {
        let at = PRIMARY.within(rst2init_qp_in::QPC);
        command = path(&attr.ah_attr)?.set(command, at, ends);
    }
    if has(bit::IBV_QP_ALT_PATH) {
        let at = SECONDARY.within(rst2init_qp_in::QPC);
        command = path(&attr.alt_ah_attr)?.set(command, at, ends);
    }
    Ok(command)
}

/// `pm_state` of a state of migration (`enum ibv_mig_state`): migrated, if none is given.
fn migration(given: bool, state: u32) -> u64 {
    match (given, state) {
        (false, _) | (_, 0) => 3,
        (_, 1) => 1,
        _ => 0,
    }
}

/// The power of two that is no less.
fn log(depth: u8) -> u64 {
    u64::from(u16::from(depth.max(1)).next_power_of_two().ilog2())
}

/// The state of a context as verbs number it: they swap two of the HCA's.
pub(super) fn state(qpc: &[u8]) -> QpState {
    match qpc::STATE.get(qpc) {
        0 => QpState::Reset,
        1 => QpState::Init,
        2 => QpState::Rtr,
        3 => QpState::Rts,
        4 => QpState::SqError,
        5 | 7 => QpState::SqDrained,
        6 => QpState::Error,
        _ => QpState::Unknown,
    }
}

/// Converts a queue pair context to attributes of verbs.
pub(super) fn attributes(
    qpc: &[u8],
    ethernet: bool,
    capacities: Capacities,
    signal_all: bool,
) -> QueuePairAttributes {
    let get = |field: Field| field.get(qpc) as u32;
    let primary = |field: Field| get(field.within(qpc::PRIMARY_ADDRESS_PATH));
    let alternate = |field: Field| get(field.within(qpc::SECONDARY_ADDRESS_PATH));
    let timeout = |code: u32| AckTimeout::from_code(code as u8 & 31).unwrap_or_default();
    let access = [
        (qpc::RWE, Access::REMOTE_WRITE),
        (qpc::RRE, Access::REMOTE_READ),
        (qpc::RAE, Access::REMOTE_ATOMIC),
    ];
    let access = access.into_iter().filter(|(field, _)| get(*field) == 1);
    let depth = |field| 1u8.checked_shl(get(field)).unwrap_or(u8::MAX);
    QueuePairAttributes {
        state: state(qpc),
        capacities,
        signal_all,
        port: primary(ads::VHCA_PORT_NUM) as u8,
        pkey_index: primary(ads::PKEY_INDEX) as u16,
        access: access.fold(Access::empty(), |all, (_, right)| all | right),
        destination: get(qpc::REMOTE_QPN),
        rq_psn: get(qpc::NEXT_RCV_PSN),
        sq_psn: get(qpc::NEXT_SEND_PSN),
        path_mtu: Mtu::from_code(get(qpc::MTU) as u8),
        address: path::read(qpc, qpc::PRIMARY_ADDRESS_PATH, ethernet),
        alternate: (alternate(ads::VHCA_PORT_NUM) != 0).then(|| AlternatePath {
            address: path::read(qpc, qpc::SECONDARY_ADDRESS_PATH, ethernet),
            pkey_index: alternate(ads::PKEY_INDEX) as u16,
            timeout: timeout(alternate(ads::ACK_TIMEOUT)),
        }),
        migration: match get(qpc::PM_STATE) {
            3 => MigrationState::Migrated,
            1 => MigrationState::Rearm,
            _ => MigrationState::Armed,
        },
        max_dest_rd_atomic: depth(qpc::LOG_RRA_MAX),
        max_rd_atomic: depth(qpc::LOG_SRA_MAX),
        min_rnr_timer: RnrTimer::from_code(get(qpc::MIN_RNR_NAK) as u8 & 31).unwrap_or_default(),
        timeout: timeout(primary(ads::ACK_TIMEOUT)),
        retry_cnt: get(qpc::RETRY_COUNT) as u8,
        rnr_retry: get(qpc::RNR_RETRY) as u8,
        sq_draining: get(qpc::STATE) == 7,
        qkey: get(qpc::Q_KEY),
    }
}
