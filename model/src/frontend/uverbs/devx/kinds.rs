//! Kinds of objects that programs may make by commands of their own: a line for each.

use mlx5_sys::ifc::{
    Field, arm_dct_in, arm_xrc_srq_in, arm_xrq_in, cqc, create_cq_in, create_cq_out,
    create_dct_out, create_mkey_out, create_psv_out, create_qp_in, create_qp_out, create_rmp_in,
    create_rmp_out, create_srq_out, create_xrc_srq_in, create_xrc_srq_out, create_xrq_in,
    create_xrq_out, destroy_cq_in, destroy_dct_in, destroy_mkey_in, destroy_psv_in, destroy_qp_in,
    destroy_rmp_in, destroy_srq_in, destroy_xrc_srq_in, destroy_xrq_in, modify_cq_in,
    modify_rmp_in, opcode, qpc, query_cq_in, query_dct_in, query_mkey_in, query_qp_in,
    query_rmp_in, query_srq_in, query_xrc_srq_in, query_xrq_in, rmpc, wq, xrc_srqc, xrqc,
};

use super::QP_CHANGES;

/// How objects of a kind are made, asked about and destroyed.
pub(super) struct Kind {
    /// The command that makes one.
    pub create: u16,
    /// Where the reply has the number.
    pub created: Field,
    /// The command that destroys it.
    pub destroy: u16,
    /// Where the command that destroys it has the number; it has 16 bytes.
    pub destroyed: Field,
    /// The command that asks about it, and where that has the number.
    pub query: Option<(u16, Field)>,
    /// Commands that change it, and where they have the number.
    pub changes: Option<(&'static [u16], Field)>,
    /// What a user's command must say: that buffers and records lie in umems.
    pub by_umem: &'static [Field],
    /// When it goes with its file: users before what they use.
    pub turn: u32,
}

/// All of them.
pub(super) const KINDS: &[Kind] = &[
    Kind {
        create: opcode::CREATE_MKEY,
        created: create_mkey_out::MKEY_INDEX,
        destroy: opcode::DESTROY_MKEY,
        destroyed: destroy_mkey_in::MKEY_INDEX,
        query: Some((opcode::QUERY_MKEY, query_mkey_in::MKEY_INDEX)),
        changes: None,
        by_umem: &[],
        turn: 2,
    },
    Kind {
        create: opcode::CREATE_PSV,
        created: create_psv_out::PSV0_INDEX,
        destroy: opcode::DESTROY_PSV,
        destroyed: destroy_psv_in::PSVN,
        query: None,
        changes: None,
        by_umem: &[],
        turn: 2,
    },
    Kind {
        create: opcode::CREATE_CQ,
        created: create_cq_out::CQN,
        destroy: opcode::DESTROY_CQ,
        destroyed: destroy_cq_in::CQN,
        query: Some((opcode::QUERY_CQ, query_cq_in::CQN)),
        changes: Some((&[opcode::MODIFY_CQ], modify_cq_in::CQN)),
        by_umem: &[
            create_cq_in::CQ_UMEM_VALID,
            cqc::DBR_UMEM_VALID.within(create_cq_in::CQ_CONTEXT),
        ],
        turn: 4,
    },
    Kind {
        create: opcode::CREATE_QP,
        created: create_qp_out::QPN,
        destroy: opcode::DESTROY_QP,
        destroyed: destroy_qp_in::QPN,
        query: Some((opcode::QUERY_QP, query_qp_in::QPN)),
        changes: Some((QP_CHANGES, query_qp_in::QPN)),
        by_umem: &[create_qp_in::WQ_UMEM_VALID, qpc::DBR_UMEM_VALID.within(create_qp_in::QPC)],
        turn: 1,
    },
    Kind {
        create: opcode::CREATE_RMP,
        created: create_rmp_out::RMPN,
        destroy: opcode::DESTROY_RMP,
        destroyed: destroy_rmp_in::RMPN,
        query: Some((opcode::QUERY_RMP, query_rmp_in::RMPN)),
        changes: Some((&[opcode::MODIFY_RMP], modify_rmp_in::RMPN)),
        by_umem: &[
            wq::DBR_UMEM_VALID.within(rmpc::WQ).within(create_rmp_in::CTX),
            wq::WQ_UMEM_VALID.within(rmpc::WQ).within(create_rmp_in::CTX),
        ],
        turn: 3,
    },
    Kind {
        create: opcode::CREATE_XRC_SRQ,
        created: create_xrc_srq_out::XRC_SRQN,
        destroy: opcode::DESTROY_XRC_SRQ,
        destroyed: destroy_xrc_srq_in::XRC_SRQN,
        query: Some((opcode::QUERY_XRC_SRQ, query_xrc_srq_in::XRC_SRQN)),
        changes: Some((&[opcode::ARM_XRC_SRQ], arm_xrc_srq_in::XRC_SRQN)),
        by_umem: &[
            create_xrc_srq_in::XRC_SRQ_UMEM_VALID,
            xrc_srqc::DBR_UMEM_VALID.within(create_xrc_srq_in::XRC_SRQ_CONTEXT_ENTRY),
        ],
        turn: 3,
    },
    Kind {
        create: opcode::CREATE_XRQ,
        created: create_xrq_out::XRQN,
        destroy: opcode::DESTROY_XRQ,
        destroyed: destroy_xrq_in::XRQN,
        query: Some((opcode::QUERY_XRQ, query_xrq_in::XRQN)),
        changes: Some((&[opcode::ARM_XRQ], arm_xrq_in::XRQN)),
        by_umem: &[
            wq::DBR_UMEM_VALID.within(xrqc::WQ).within(create_xrq_in::XRQ_CONTEXT),
            wq::WQ_UMEM_VALID.within(xrqc::WQ).within(create_xrq_in::XRQ_CONTEXT),
        ],
        turn: 3,
    },
    Kind {
        create: opcode::CREATE_SRQ,
        created: create_srq_out::SRQN,
        destroy: opcode::DESTROY_SRQ,
        destroyed: destroy_srq_in::SRQN,
        query: Some((opcode::QUERY_SRQ, query_srq_in::SRQN)),
        // ARM_RQ is a change of receive queues of Ethernet to the kernel's driver.
        changes: None,
        by_umem: &[],
        turn: 3,
    },
    Kind {
        create: opcode::CREATE_DCT,
        created: create_dct_out::DCTN,
        destroy: opcode::DESTROY_DCT,
        destroyed: destroy_dct_in::DCTN,
        query: Some((opcode::QUERY_DCT, query_dct_in::DCTN)),
        changes: Some((&[opcode::ARM_DCT_FOR_KEY_VIOLATION], arm_dct_in::DCT_NUMBER)),
        by_umem: &[],
        turn: 1,
    },
];
