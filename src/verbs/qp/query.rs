//! What the HCA says of a queue pair.

use mlx5_sys::verbs::{ibv_qp_attr, ibv_qp_attr_mask as bit, ibv_qp_init_attr, ibv_query_qp};

use super::{Capacities, QpState, QueuePair, State};
use crate::ib::{Access, Transport, TransportKind};
use crate::verbs::error::check;
use crate::verbs::{AckTimeout, AddressVector, AlternatePath, Mtu, Result, RnrTimer, Zeroed};

/// Which path a connection uses (`enum ibv_mig_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MigrationState {
    /// It moves no more: there is no alternate path, or it has moved to it.
    Migrated,
    /// An alternate path was given and is being agreed on with the peer.
    Rearm,
    /// Ready to move.
    Armed,
}

/// Everything that a queue pair keeps, as the HCA reports it.
///
/// Attributes that belong to a later state than the present one have no meaning yet; those that
/// have an "unset" value are `None`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct QueuePairAttributes {
    /// The state now.
    pub state: QpState,
    /// What the queues hold.
    pub capacities: Capacities,
    /// Whether `ibv_post_send` signals every request.
    pub signal_all: bool,
    /// The local port.
    pub port: u8,
    /// Index into the port's P_Key table.
    pub pkey_index: u16,
    /// What the peer may do.
    pub access: Access,
    /// The peer's queue pair number.
    pub destination: u32,
    /// The next PSN expected.
    pub rq_psn: u32,
    /// The next PSN to send.
    pub sq_psn: u32,
    /// Payload of a packet, once set.
    pub path_mtu: Option<Mtu>,
    /// Where the peer is.
    pub address: AddressVector,
    /// The path that takes over, where one is set.
    pub alternate: Option<AlternatePath>,
    /// Which path is used.
    pub migration: MigrationState,
    /// READs and atomics of the peer answered at a time.
    pub max_dest_rd_atomic: u8,
    /// READs and atomics under way at a time.
    pub max_rd_atomic: u8,
    /// How long a peer waits for a receive.
    pub min_rnr_timer: RnrTimer,
    /// How long to wait for an answer.
    pub timeout: AckTimeout,
    /// How often to send again.
    pub retry_cnt: u8,
    /// How often to send again to a peer without a receive.
    pub rnr_retry: u8,
    /// Whether the send queue is draining.
    pub sq_draining: bool,
    /// Datagram key, of transports that have one.
    pub qkey: u32,
}

/// What can be asked of a queue pair: of a target of dynamic connections less than of others.
const fn mask(kind: TransportKind) -> u32 {
    let target = bit::IBV_QP_STATE.0
        | bit::IBV_QP_ACCESS_FLAGS.0
        | bit::IBV_QP_PORT.0
        | bit::IBV_QP_MIN_RNR_TIMER.0
        | bit::IBV_QP_AV.0
        | bit::IBV_QP_PATH_MTU.0
        | bit::IBV_QP_PKEY_INDEX.0;
    match kind {
        TransportKind::Dct => target,
        _ => {
            target
                | bit::IBV_QP_CUR_STATE.0
                | bit::IBV_QP_TIMEOUT.0
                | bit::IBV_QP_RETRY_CNT.0
                | bit::IBV_QP_RNR_RETRY.0
                | bit::IBV_QP_RQ_PSN.0
                | bit::IBV_QP_MAX_QP_RD_ATOMIC.0
                | bit::IBV_QP_ALT_PATH.0
                | bit::IBV_QP_SQ_PSN.0
                | bit::IBV_QP_MAX_DEST_RD_ATOMIC.0
                | bit::IBV_QP_PATH_MIG_STATE.0
                | bit::IBV_QP_CAP.0
                | bit::IBV_QP_DEST_QPN.0
        }
    }
}

impl<T: Transport, S: State> QueuePair<T, S> {
    /// What the HCA says of the queue pair now. A firmware command: tens of microseconds.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    pub fn query(&self) -> Result<QueuePairAttributes> {
        let (mut attr, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
        // SAFETY: the queue pair is alive, and both structures live through the call.
        let result = unsafe {
            ibv_query_qp(
                self.as_raw().as_ptr(),
                &mut attr,
                mask(T::TRANSPORT_KIND) as libc::c_int,
                &mut init,
            )
        };
        check("ibv_query_qp", result)?;
        Ok(QueuePairAttributes::new(&attr, &init))
    }
}

impl QueuePairAttributes {
    fn new(attr: &ibv_qp_attr, init: &ibv_qp_init_attr) -> QueuePairAttributes {
        let timeout = |code: u8| AckTimeout::from_code(code & 31).unwrap_or_default();
        let alternate = (attr.alt_port_num != 0).then(|| AlternatePath {
            address: AddressVector::from_raw(&attr.alt_ah_attr),
            pkey_index: attr.alt_pkey_index,
            timeout: timeout(attr.alt_timeout),
        });
        QueuePairAttributes {
            state: QpState::from_code(u8::try_from(attr.qp_state).unwrap_or(u8::MAX)),
            capacities: attr.cap.into(),
            signal_all: init.sq_sig_all != 0,
            port: attr.port_num,
            pkey_index: attr.pkey_index,
            access: Access::from_bits_truncate(attr.qp_access_flags),
            destination: attr.dest_qp_num,
            rq_psn: attr.rq_psn,
            sq_psn: attr.sq_psn,
            path_mtu: u8::try_from(attr.path_mtu).ok().and_then(Mtu::from_code),
            address: AddressVector::from_raw(&attr.ah_attr),
            alternate,
            migration: match attr.path_mig_state {
                1 => MigrationState::Rearm,
                2 => MigrationState::Armed,
                _ => MigrationState::Migrated,
            },
            max_dest_rd_atomic: attr.max_dest_rd_atomic,
            max_rd_atomic: attr.max_rd_atomic,
            min_rnr_timer: RnrTimer::from_code(attr.min_rnr_timer & 31).unwrap_or_default(),
            timeout: timeout(attr.timeout),
            retry_cnt: attr.retry_cnt,
            rnr_retry: attr.rnr_retry,
            sq_draining: attr.sq_draining != 0,
            qkey: attr.qkey,
        }
    }
}
