//! The context fields that transitions take, in groups, each with its checks.

use mlx5_sys::ifc::opt_param::{
    ALT_ADDR_PATH, COUNTER_SET_ID, LAG_TX_AFF, PKEY_INDEX, PM_STATE, PRI_PORT, Q_KEY, RAE,
    RNR_TIMEOUT, RRE, RWE,
};
use mlx5_sys::ifc::{Field, ads, qpc};

use super::capability::{LOG_MAX_MESSAGE, LOG_MAX_READS, PKEYS};
use super::{Refusal, get};
use crate::card::Card;
use crate::work::LOG_MAX_ATOMIC;

/// One group of fields that a transition takes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// The fields of an optional parameter bit.
    Optional(u32),
    /// MTU, message size, destination.
    Peer,
    /// The primary path, but for P_Key index, port and timeout. Its MTU is one that the port has: a
    /// queue pair of datagrams has no path.
    Path,
    /// Responder: depth, RNR timer, expected PSN.
    Responder,
    /// Requester: depth, retries, timeout, first PSN.
    Requester,
    /// The first PSN of an unreliable requester.
    SendPsn,
}

/// Checks a group of fields and moves them into the queue pair's context.
pub fn take(
    card: &Card,
    group: Take,
    given: &[u8; qpc::SIZE],
    context: &mut [u8; qpc::SIZE],
) -> Result<(), Refusal> {
    let field = |field| get(given, field);
    let mut copy = |fields: &[Field]| {
        for field in fields {
            field.set(context, field.get(given));
        }
    };
    match group {
        Take::Optional(ALT_ADDR_PATH) => {
            path(card, given, qpc::SECONDARY_ADDRESS_PATH)?;
            context[qpc::SECONDARY_ADDRESS_PATH.bytes()]
                .copy_from_slice(&given[qpc::SECONDARY_ADDRESS_PATH.bytes()]);
        }
        Take::Optional(RRE) => copy(&[qpc::RRE]),
        Take::Optional(RWE) => copy(&[qpc::RWE]),
        Take::Optional(RAE) => {
            // `qp.h`: modes 1 and 2 are eight bytes, 3 and above up to `1 << mode`.
            if field(qpc::RAE) == 1 && !(1..=LOG_MAX_ATOMIC).contains(&field(qpc::ATOMIC_MODE)) {
                return Err(Refusal::QpAtomicMode);
            }
            copy(&[qpc::RAE, qpc::ATOMIC_MODE]);
        }
        Take::Optional(PKEY_INDEX) => {
            let index = ads::PKEY_INDEX.within(qpc::PRIMARY_ADDRESS_PATH);
            if field(index) as usize >= PKEYS {
                return Err(Refusal::PkeyIndex);
            }
            copy(&[index]);
        }
        Take::Optional(PRI_PORT) => {
            let port = ads::VHCA_PORT_NUM.within(qpc::PRIMARY_ADDRESS_PATH);
            if field(port) != 1 {
                return Err(Refusal::Port);
            }
            copy(&[port]);
        }
        Take::Optional(Q_KEY) => copy(&[qpc::Q_KEY]),
        Take::Optional(RNR_TIMEOUT) => copy(&[qpc::MIN_RNR_NAK]),
        Take::Optional(PM_STATE) => {
            if field(qpc::PM_STATE) == 2 {
                return Err(Refusal::QpMigration);
            }
            copy(&[qpc::PM_STATE]);
        }
        Take::Optional(LAG_TX_AFF) => copy(&[qpc::LAG_TX_PORT_AFFINITY]),
        Take::Optional(COUNTER_SET_ID) => copy(&[qpc::COUNTER_SET_ID]),
        Take::Optional(_) => return Err(Refusal::QpOptional),
        Take::Peer => {
            if !(1..=5).contains(&field(qpc::MTU)) {
                return Err(Refusal::QpMtu);
            }
            if field(qpc::LOG_MSG_MAX) > LOG_MAX_MESSAGE {
                return Err(Refusal::QpMessage);
            }
            copy(&[qpc::MTU, qpc::LOG_MSG_MAX, qpc::REMOTE_QPN]);
        }
        Take::Path => {
            path(card, given, qpc::PRIMARY_ADDRESS_PATH)?;
            // That queue pair sends no packet, and Linux gives it 4,096 bytes on every port.
            if qpc::ST.get(&*context) != REG_UMR {
                check_path_mtu(card, field(qpc::MTU))?;
            }
            let kept = [ads::PKEY_INDEX, ads::VHCA_PORT_NUM, ads::ACK_TIMEOUT]
                .map(|field| field.within(qpc::PRIMARY_ADDRESS_PATH))
                .map(|field| (field, field.get(&*context)));
            context[qpc::PRIMARY_ADDRESS_PATH.bytes()]
                .copy_from_slice(&given[qpc::PRIMARY_ADDRESS_PATH.bytes()]);
            for (field, value) in kept {
                field.set(context, value);
            }
        }
        Take::Responder => {
            if field(qpc::LOG_RRA_MAX) > LOG_MAX_READS {
                return Err(Refusal::QpReadDepth);
            }
            copy(&[qpc::LOG_RRA_MAX, qpc::MIN_RNR_NAK, qpc::NEXT_RCV_PSN]);
        }
        Take::Requester => {
            if field(qpc::LOG_SRA_MAX) > LOG_MAX_READS {
                return Err(Refusal::QpReadDepth);
            }
            copy(&[
                qpc::LOG_ACK_REQ_FREQ,
                qpc::LOG_SRA_MAX,
                qpc::RETRY_COUNT,
                qpc::RNR_RETRY,
                qpc::NEXT_SEND_PSN,
                ads::ACK_TIMEOUT.within(qpc::PRIMARY_ADDRESS_PATH),
            ]);
        }
        Take::SendPsn => copy(&[qpc::NEXT_SEND_PSN]),
    }
    Ok(())
}

/// The service of a driver's queue pair for memory keys: `MLX5_QP_ST_REG_UMR` of Linux's `qp.h`.
const REG_UMR: u64 = 0xc;

/// Checks the MTU of a path, as a code: 1 is 256 bytes, 5 is 4,096.
pub fn check_path_mtu(card: &Card, code: u32) -> Result<(), Refusal> {
    let log = code + 7;
    if log <= card.log_path_mtu() { Ok(()) } else { Err(Refusal::QpPathMtu) }
}

/// Checks what a path names on this card.
fn path(card: &Card, given: &[u8; qpc::SIZE], at: Field) -> Result<(), Refusal> {
    let field = |field: Field| get(given, field.within(at));
    // Zero leaves the port as it is.
    if field(ads::VHCA_PORT_NUM) > 1 {
        return Err(Refusal::Port);
    }
    if field(ads::PKEY_INDEX) as usize >= PKEYS {
        return Err(Refusal::PkeyIndex);
    }
    if field(ads::SRC_ADDR_INDEX) as usize >= card.gid_table_size() {
        return Err(Refusal::GidIndex);
    }
    Ok(())
}
