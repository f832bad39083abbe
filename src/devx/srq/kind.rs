//! The commands of each kind of shared receive queue.

use mlx5_sys::ifc::{
    Field, arm_xrc_srq_in, create_rmp_in, create_rmp_out, create_xrc_srq_in, create_xrc_srq_out,
    modify_rmp_in, modify_rmp_out, opcode, query_rmp_in, query_rmp_out, query_xrc_srq_in,
    query_xrc_srq_out, rmp_bitmask, rmpc, wq, xrc_srqc,
};

use crate::devx::ring_spec::RingSpec;
use crate::devx::{Command, Reply};

/// `mlx5_ifc.h`, `MLX5_RMPC_STATE_RDY`
const READY: u32 = 1;
/// `mlx5_ifc.h`, `MLX5_ARM_XRC_SRQ_IN_OP_MOD_XRC_SRQ`
const XRC_SRQ: u16 = 1;
/// `mlx5_ifc.h`, `MLX5_WQ_TYPE_LINKED_LIST`, `MLX5_WQ_TYPE_CYCLIC`
const LINKED_LIST: u32 = 0;
const CYCLIC: u32 = 1;

/// The field of the XRC SRQ's context with both halves of the doorbell record's address. The lower
/// half omits its last two bits.
const RECORD_ADDRESS: Field = Field::new(xrc_srqc::DB_RECORD_ADDR_H.bit_offset() / 8, 31, 62);

/// The kind of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// For queue pairs, which choose the CQ of its receives; a cyclic ring or a linked list.
    Pool { cyclic: bool },
    /// For the targets of an XRC domain.
    Xrc { domain: u32, cq: u32, user_index: u32 },
}

/// The place and the size of a queue.
pub(super) struct Place {
    pub(super) pd: u32,
    pub(super) umem: u32,
    pub(super) ring: u64,
    pub(super) record_umem: u32,
    pub(super) record: u64,
    pub(super) spec: RingSpec,
    pub(super) limit: u32,
}

impl Kind {
    pub(super) fn is_cyclic(&self) -> bool {
        matches!(self, Kind::Pool { cyclic: true })
    }

    pub(super) fn user_index(&self) -> Option<u32> {
        match self {
            Kind::Pool { .. } => None,
            Kind::Xrc { user_index, .. } => Some(*user_index),
        }
    }

    /// Returns the command that creates it.
    pub(super) fn create(&self, place: &Place) -> Command {
        let (log_wqes, log_stride) = (place.spec.log_entries(), place.spec.log_stride());
        match *self {
            Kind::Pool { cyclic } => {
                let context = create_rmp_in::CTX;
                Command::new(opcode::CREATE_RMP, create_rmp_in::SIZE)
                    .reply(create_rmp_out::SIZE)
                    .set(rmpc::STATE.within(context), READY)
                    .fields(
                        rmpc::WQ.within(context),
                        [
                            (wq::WQ_TYPE, if cyclic { CYCLIC } else { LINKED_LIST }),
                            (wq::LWM, place.limit),
                            (wq::PD, place.pd),
                            (wq::LOG_WQ_STRIDE, log_stride),
                            (wq::LOG_WQ_SZ, log_wqes),
                            (wq::DBR_UMEM_VALID, 1),
                            (wq::WQ_UMEM_VALID, 1),
                            (wq::DBR_UMEM_ID, place.record_umem),
                            (wq::WQ_UMEM_ID, place.umem),
                        ],
                    )
                    .fields(
                        rmpc::WQ.within(context),
                        [(wq::WQ_UMEM_OFFSET, place.ring), (wq::DBR_ADDR, place.record)],
                    )
            }
            Kind::Xrc { domain, cq, user_index } => {
                Command::new(opcode::CREATE_XRC_SRQ, create_xrc_srq_in::SIZE)
                    .reply(create_xrc_srq_out::SIZE)
                    .set(create_xrc_srq_in::XRC_SRQ_UMEM_VALID, 1u32)
                    .set(create_xrc_srq_in::XRC_SRQ_UMEM_ID, place.umem)
                    .set(create_xrc_srq_in::XRC_SRQ_UMEM_OFFSET, place.ring)
                    .fields(
                        create_xrc_srq_in::XRC_SRQ_CONTEXT_ENTRY,
                        [
                            (xrc_srqc::LOG_XRC_SRQ_SIZE, log_wqes),
                            // The field counts from 16 bytes.
                            (xrc_srqc::LOG_RQ_STRIDE, log_stride - 4),
                            (xrc_srqc::XRCD, domain),
                            (xrc_srqc::DBR_UMEM_VALID, 1),
                            (xrc_srqc::CQN, cq),
                            (xrc_srqc::DBR_UMEM_ID, place.record_umem),
                            (xrc_srqc::USER_INDEX, user_index),
                            (xrc_srqc::PD, place.pd),
                            (xrc_srqc::LWM, place.limit),
                        ],
                    )
                    .fields(
                        create_xrc_srq_in::XRC_SRQ_CONTEXT_ENTRY,
                        [(RECORD_ADDRESS, place.record >> 2)],
                    )
            }
        }
    }

    /// Returns its number from the reply to that command.
    pub(super) fn number(&self, reply: &Reply) -> u32 {
        reply.get(match self {
            Kind::Pool { .. } => create_rmp_out::RMPN,
            Kind::Xrc { .. } => create_xrc_srq_out::XRC_SRQN,
        }) as u32
    }

    /// Returns the command that queries it.
    pub(super) fn query(&self, number: u32) -> Command {
        match self {
            Kind::Pool { .. } => Command::new(opcode::QUERY_RMP, query_rmp_in::SIZE)
                .set(query_rmp_in::RMPN, number)
                .reply(query_rmp_out::SIZE),
            Kind::Xrc { .. } => Command::new(opcode::QUERY_XRC_SRQ, query_xrc_srq_in::SIZE)
                .set(query_xrc_srq_in::XRC_SRQN, number)
                .reply(query_xrc_srq_out::SIZE),
        }
    }

    /// Returns its limit from the reply to that command.
    pub(super) fn limit(&self, reply: &Reply) -> u32 {
        reply.get(match self {
            Kind::Pool { .. } => wq::LWM.within(rmpc::WQ).within(query_rmp_out::RMP_CONTEXT),
            Kind::Xrc { .. } => xrc_srqc::LWM.within(query_xrc_srq_out::XRC_SRQ_CONTEXT_ENTRY),
        }) as u32
    }

    /// Returns the command that arms its limit.
    pub(super) fn arm(&self, number: u32, limit: u32) -> Command {
        match self {
            Kind::Pool { .. } => Command::new(opcode::MODIFY_RMP, modify_rmp_in::SIZE)
                .reply(modify_rmp_out::SIZE)
                .set(modify_rmp_in::RMPN, number)
                .set(modify_rmp_in::RMP_STATE, READY)
                .set(rmp_bitmask::LWM.within(modify_rmp_in::BITMASK), 1u32)
                .set(rmpc::STATE.within(modify_rmp_in::CTX), READY)
                .set(wq::LWM.within(rmpc::WQ).within(modify_rmp_in::CTX), limit),
            Kind::Xrc { .. } => Command::new(opcode::ARM_XRC_SRQ, arm_xrc_srq_in::SIZE)
                .op_mod(XRC_SRQ)
                .set(arm_xrc_srq_in::XRC_SRQN, number)
                .set(arm_xrc_srq_in::LWM, limit),
        }
    }
}
