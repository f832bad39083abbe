//! Queue pair attributes, as the HCA reports them.

use mlx5_sys::verbs::{ibv_qp_attr, ibv_qp_attr_mask as bit, ibv_qp_init_attr};

use super::{Capacities, QpState};
use crate::ib::{Access, TransportKind};
use crate::verbs::{AckTimeout, AddressVector, AlternatePath, Mtu, RnrTimer};

/// The path migration state of a connection (`enum ibv_mig_state`).
///
/// See the example on [`AlternatePath`](super::AlternatePath).
#[doc(alias = "ibv_mig_state")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MigrationState {
    /// No migration is possible: there is no alternate path, or the connection has moved to it.
    Migrated,
    /// An alternate path was set, and the two ends are agreeing on it.
    Rearm,
    /// Ready to migrate.
    Armed,
}

/// The attributes of a queue pair, as the HCA reports them.
///
/// Attributes of a later state than the present one have no meaning yet. Attributes with an "unset"
/// value are `None`.
///
/// ```
/// # let rig::Link { qp, .. } = rig::link()?;
/// use mlx5::verbs::attr::QpState;
///
/// // What libibverbs and the device know of a connected queue pair.
/// let attributes = qp.query()?;
/// assert_eq!(attributes.state, QpState::Rts);
/// assert!(attributes.path_mtu.is_some() && attributes.retry_cnt <= 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_qp_attr")]
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct QueuePairAttributes {
    /// The state now.
    pub state: QpState,
    /// The capacities of the queues.
    pub capacities: Capacities,
    /// Whether `ibv_post_send` signals every request.
    pub signal_all: bool,
    /// The local port.
    pub port: u8,
    /// Index into the port's P_Key table.
    pub pkey_index: u16,
    /// The rights of the peer.
    pub access: Access,
    /// The peer's queue pair number.
    pub destination: u32,
    /// The next PSN expected.
    pub rq_psn: u32,
    /// The next PSN to send.
    pub sq_psn: u32,
    /// The largest payload of a packet, once set.
    pub path_mtu: Option<Mtu>,
    /// The address of the peer.
    pub address: AddressVector,
    /// The alternate path, if one is set.
    pub alternate: Option<AlternatePath>,
    /// The path migration state.
    pub migration: MigrationState,
    /// READs and atomics of the peer that are executed at a time.
    pub max_dest_rd_atomic: u8,
    /// Outstanding READs and atomics.
    pub max_rd_atomic: u8,
    /// The time that a peer waits for a receive to be posted.
    pub min_rnr_timer: RnrTimer,
    /// The time to wait for an acknowledgement.
    pub timeout: AckTimeout,
    /// Retransmissions before the connection fails.
    pub retry_cnt: u8,
    /// Retransmissions to a peer without a posted receive.
    pub rnr_retry: u8,
    /// Whether the send queue is draining.
    pub sq_draining: bool,
    /// The Q_Key, for transports that have one.
    pub qkey: u32,
}

/// The attributes that can be queried: fewer for a target of dynamic connections.
pub(super) const fn mask(kind: TransportKind) -> u32 {
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

impl QueuePairAttributes {
    pub(crate) fn new(attr: &ibv_qp_attr, init: &ibv_qp_init_attr) -> QueuePairAttributes {
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
