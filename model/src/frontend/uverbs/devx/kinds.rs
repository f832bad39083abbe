//! Kinds of objects that programs may make by commands of their own: a line for each.

use mlx5_sys::ifc::{
    Field, cqc, create_cq_in, create_cq_out, create_mkey_out, create_psv_out, create_qp_in,
    create_qp_out, destroy_cq_in, destroy_mkey_in, destroy_psv_in, destroy_qp_in, modify_cq_in,
    opcode, qpc, query_cq_in, query_mkey_in, query_qp_in,
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
];
