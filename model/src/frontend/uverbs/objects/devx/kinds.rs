//! The kinds of objects that programs may create by DevX commands, one line each.

use mlx5_sys::ifc::{
    Field, alloc_flow_counter_out, alloc_modify_header_context_out,
    alloc_packet_reformat_context_out, alloc_pd_out, alloc_q_counter_out,
    alloc_transport_domain_out, alloc_xrcd_out, arm_dct_in, arm_xrc_srq_in, arm_xrq_in, cmd_in,
    cqc, create_cq_in, create_cq_out, create_dct_out, create_flow_group_in, create_flow_group_out,
    create_flow_table_in, create_flow_table_out, create_mkey_out, create_psv_out, create_qp_in,
    create_qp_out, create_rmp_in, create_rmp_out, create_rq_in, create_rq_out, create_rqt_out,
    create_sq_in, create_sq_out, create_srq_out, create_tir_out, create_tis_out, create_xrc_srq_in,
    create_xrc_srq_out, create_xrq_in, create_xrq_out, dealloc_flow_counter_in,
    dealloc_modify_header_context_in, dealloc_packet_reformat_context_in, dealloc_pd_in,
    dealloc_q_counter_in, dealloc_transport_domain_in, dealloc_xrcd_in, delete_fte_in,
    destroy_cq_in, destroy_dct_in, destroy_flow_group_in, destroy_flow_table_in, destroy_mkey_in,
    destroy_psv_in, destroy_qp_in, destroy_rmp_in, destroy_rq_in, destroy_rqt_in, destroy_sq_in,
    destroy_srq_in, destroy_tir_in, destroy_tis_in, destroy_xrc_srq_in, destroy_xrq_in,
    modify_cq_in, modify_flow_table_in, modify_rmp_in, modify_rq_in, modify_rqt_in, modify_sq_in,
    modify_tir_in, modify_tis_in, opcode, qpc, query_cq_in, query_dct_in, query_flow_counter_in,
    query_mkey_in, query_q_counter_in, query_qp_in, query_rmp_in, query_rq_in, query_rqt_in,
    query_sq_in, query_srq_in, query_tir_in, query_tis_in, query_xrc_srq_in, query_xrq_in, rmpc,
    rqc, set_fte_in, sqc, wq, xrc_srqc, xrqc,
};

use super::super::file::Turn;
use super::QP_CHANGES;

/// The source of a new object's number.
#[derive(Clone, Copy)]
pub(crate) enum Number {
    /// The device chooses it, and returns it in this field of the reply.
    Reply(Field),
    /// The program chooses it, in this field of the creating command.
    Command(Field),
}

impl Kind {
    /// Returns the number of an object, from the command that created it and the reply. Both are long
    /// enough for their fields.
    pub fn number(&self, command: &[u8], reply: &[u8]) -> u64 {
        match self.number {
            Number::Reply(field) => field.get(reply),
            Number::Command(field) => field.get(command),
        }
    }

    /// Returns the command that destroys an object, which `command` has created.
    pub fn destroying(&self, command: &[u8], number: u64) -> Vec<u8> {
        /// Bytes of most such commands, and of commands with more than a number.
        const SHORT: usize = 0x10;
        const LONG: usize = 0x40;
        let mut destroying = vec![0; if self.repeated.is_empty() { SHORT } else { LONG }];
        cmd_in::OPCODE.set(&mut destroying, self.destroy.into());
        self.destroyed.set(&mut destroying, number);
        for (from, to) in self.repeated {
            to.set(&mut destroying, from.get(command));
        }
        destroying
    }
}

/// How objects of a kind are made, asked about and destroyed.
pub(crate) struct Kind {
    /// The command that makes one.
    pub create: u16,
    /// The source of its number.
    pub number: Number,
    /// The command that destroys it.
    pub destroy: u16,
    /// Field of the destroying command that has the number.
    pub destroyed: Field,
    /// Fields of the creating command that the destroying one repeats, each with its field there.
    pub repeated: &'static [(Field, Field)],
    /// The command that queries it, and the field of that command that has the number.
    pub query: Option<(u16, Field)>,
    /// Commands that change it, and their field that has the number.
    pub changes: Option<(&'static [u16], Field)>,
    /// Fields that must be set in a user's command: they say that buffers and records lie in umems.
    pub by_umem: &'static [Field],
    /// Its turn to be destroyed with its file: users before the objects that they use.
    pub turn: Turn,
}

/// All of them.
pub(crate) const KINDS: &[Kind] = &[
    Kind {
        create: opcode::CREATE_MKEY,
        number: Number::Reply(create_mkey_out::MKEY_INDEX),
        destroy: opcode::DESTROY_MKEY,
        destroyed: destroy_mkey_in::MKEY_INDEX,
        repeated: &[],
        query: Some((opcode::QUERY_MKEY, query_mkey_in::MKEY_INDEX)),
        changes: None,
        by_umem: &[],
        turn: Turn::Users,
    },
    Kind {
        create: opcode::CREATE_PSV,
        number: Number::Reply(create_psv_out::PSV0_INDEX),
        destroy: opcode::DESTROY_PSV,
        destroyed: destroy_psv_in::PSVN,
        repeated: &[],
        query: None,
        changes: None,
        by_umem: &[],
        turn: Turn::Users,
    },
    Kind {
        create: opcode::CREATE_CQ,
        number: Number::Reply(create_cq_out::CQN),
        destroy: opcode::DESTROY_CQ,
        destroyed: destroy_cq_in::CQN,
        repeated: &[],
        query: Some((opcode::QUERY_CQ, query_cq_in::CQN)),
        changes: Some((&[opcode::MODIFY_CQ], modify_cq_in::CQN)),
        by_umem: &[
            create_cq_in::CQ_UMEM_VALID,
            cqc::DBR_UMEM_VALID.within(create_cq_in::CQ_CONTEXT),
        ],
        turn: Turn::CompletionQueues,
    },
    Kind {
        create: opcode::CREATE_QP,
        number: Number::Reply(create_qp_out::QPN),
        destroy: opcode::DESTROY_QP,
        destroyed: destroy_qp_in::QPN,
        repeated: &[],
        query: Some((opcode::QUERY_QP, query_qp_in::QPN)),
        changes: Some((QP_CHANGES, query_qp_in::QPN)),
        by_umem: &[create_qp_in::WQ_UMEM_VALID, qpc::DBR_UMEM_VALID.within(create_qp_in::QPC)],
        turn: Turn::QueuePairs,
    },
    Kind {
        create: opcode::CREATE_RMP,
        number: Number::Reply(create_rmp_out::RMPN),
        destroy: opcode::DESTROY_RMP,
        destroyed: destroy_rmp_in::RMPN,
        repeated: &[],
        query: Some((opcode::QUERY_RMP, query_rmp_in::RMPN)),
        changes: Some((&[opcode::MODIFY_RMP], modify_rmp_in::RMPN)),
        by_umem: &[
            wq::DBR_UMEM_VALID.within(rmpc::WQ).within(create_rmp_in::CTX),
            wq::WQ_UMEM_VALID.within(rmpc::WQ).within(create_rmp_in::CTX),
        ],
        turn: Turn::Queues,
    },
    Kind {
        create: opcode::CREATE_XRC_SRQ,
        number: Number::Reply(create_xrc_srq_out::XRC_SRQN),
        destroy: opcode::DESTROY_XRC_SRQ,
        destroyed: destroy_xrc_srq_in::XRC_SRQN,
        repeated: &[],
        query: Some((opcode::QUERY_XRC_SRQ, query_xrc_srq_in::XRC_SRQN)),
        changes: Some((&[opcode::ARM_XRC_SRQ], arm_xrc_srq_in::XRC_SRQN)),
        by_umem: &[
            create_xrc_srq_in::XRC_SRQ_UMEM_VALID,
            xrc_srqc::DBR_UMEM_VALID.within(create_xrc_srq_in::XRC_SRQ_CONTEXT_ENTRY),
        ],
        turn: Turn::Queues,
    },
    Kind {
        create: opcode::CREATE_XRQ,
        number: Number::Reply(create_xrq_out::XRQN),
        destroy: opcode::DESTROY_XRQ,
        destroyed: destroy_xrq_in::XRQN,
        repeated: &[],
        query: Some((opcode::QUERY_XRQ, query_xrq_in::XRQN)),
        changes: Some((&[opcode::ARM_XRQ], arm_xrq_in::XRQN)),
        by_umem: &[
            wq::DBR_UMEM_VALID.within(xrqc::WQ).within(create_xrq_in::XRQ_CONTEXT),
            wq::WQ_UMEM_VALID.within(xrqc::WQ).within(create_xrq_in::XRQ_CONTEXT),
        ],
        turn: Turn::Queues,
    },
    Kind {
        create: opcode::CREATE_SRQ,
        number: Number::Reply(create_srq_out::SRQN),
        destroy: opcode::DESTROY_SRQ,
        destroyed: destroy_srq_in::SRQN,
        repeated: &[],
        query: Some((opcode::QUERY_SRQ, query_srq_in::SRQN)),
        // ARM_RQ is a change of receive queues of Ethernet to the kernel's driver.
        changes: None,
        by_umem: &[],
        turn: Turn::Queues,
    },
    Kind {
        create: opcode::CREATE_DCT,
        number: Number::Reply(create_dct_out::DCTN),
        destroy: opcode::DESTROY_DCT,
        destroyed: destroy_dct_in::DCTN,
        repeated: &[],
        query: Some((opcode::QUERY_DCT, query_dct_in::DCTN)),
        changes: Some((&[opcode::ARM_DCT_FOR_KEY_VIOLATION], arm_dct_in::DCT_NUMBER)),
        by_umem: &[],
        turn: Turn::QueuePairs,
    },
    Kind {
        create: opcode::ALLOC_PD,
        number: Number::Reply(alloc_pd_out::PD),
        destroy: opcode::DEALLOC_PD,
        destroyed: dealloc_pd_in::PD,
        repeated: &[],
        query: None,
        changes: None,
        by_umem: &[],
        turn: Turn::Domains,
    },
    Kind {
        create: opcode::ALLOC_XRCD,
        number: Number::Reply(alloc_xrcd_out::XRCD),
        destroy: opcode::DEALLOC_XRCD,
        destroyed: dealloc_xrcd_in::XRCD,
        repeated: &[],
        query: None,
        changes: None,
        by_umem: &[],
        turn: Turn::Domains,
    },
    Kind {
        create: opcode::ALLOC_TRANSPORT_DOMAIN,
        number: Number::Reply(alloc_transport_domain_out::TRANSPORT_DOMAIN),
        destroy: opcode::DEALLOC_TRANSPORT_DOMAIN,
        destroyed: dealloc_transport_domain_in::TRANSPORT_DOMAIN,
        repeated: &[],
        query: None,
        changes: None,
        by_umem: &[],
        turn: Turn::Domains,
    },
    Kind {
        create: opcode::ALLOC_Q_COUNTER,
        number: Number::Reply(alloc_q_counter_out::COUNTER_SET_ID),
        destroy: opcode::DEALLOC_Q_COUNTER,
        destroyed: dealloc_q_counter_in::COUNTER_SET_ID,
        repeated: &[],
        query: Some((opcode::QUERY_Q_COUNTER, query_q_counter_in::COUNTER_SET_ID)),
        changes: None,
        by_umem: &[],
        turn: Turn::Domains,
    },
    Kind {
        create: opcode::ALLOC_FLOW_COUNTER,
        number: Number::Reply(alloc_flow_counter_out::FLOW_COUNTER_ID),
        destroy: opcode::DEALLOC_FLOW_COUNTER,
        destroyed: dealloc_flow_counter_in::FLOW_COUNTER_ID,
        repeated: &[],
        query: Some((opcode::QUERY_FLOW_COUNTER, query_flow_counter_in::FLOW_COUNTER_ID)),
        changes: None,
        by_umem: &[],
        turn: Turn::Domains,
    },
    Kind {
        create: opcode::ALLOC_MODIFY_HEADER_CONTEXT,
        number: Number::Reply(alloc_modify_header_context_out::MODIFY_HEADER_ID),
        destroy: opcode::DEALLOC_MODIFY_HEADER_CONTEXT,
        destroyed: dealloc_modify_header_context_in::MODIFY_HEADER_ID,
        repeated: &[],
        query: None,
        changes: None,
        by_umem: &[],
        turn: Turn::Domains,
    },
    Kind {
        create: opcode::ALLOC_PACKET_REFORMAT_CONTEXT,
        number: Number::Reply(alloc_packet_reformat_context_out::PACKET_REFORMAT_ID),
        destroy: opcode::DEALLOC_PACKET_REFORMAT_CONTEXT,
        destroyed: dealloc_packet_reformat_context_in::PACKET_REFORMAT_ID,
        repeated: &[],
        query: None,
        changes: None,
        by_umem: &[],
        turn: Turn::Domains,
    },
    Kind {
        create: opcode::CREATE_TIS,
        number: Number::Reply(create_tis_out::TISN),
        destroy: opcode::DESTROY_TIS,
        destroyed: destroy_tis_in::TISN,
        repeated: &[],
        query: Some((opcode::QUERY_TIS, query_tis_in::TISN)),
        changes: Some((&[opcode::MODIFY_TIS], modify_tis_in::TISN)),
        by_umem: &[],
        turn: Turn::CompletionQueues,
    },
    Kind {
        create: opcode::CREATE_SQ,
        number: Number::Reply(create_sq_out::SQN),
        destroy: opcode::DESTROY_SQ,
        destroyed: destroy_sq_in::SQN,
        repeated: &[],
        query: Some((opcode::QUERY_SQ, query_sq_in::SQN)),
        changes: Some((&[opcode::MODIFY_SQ], modify_sq_in::SQN)),
        by_umem: &[
            wq::WQ_UMEM_VALID.within(sqc::WQ).within(create_sq_in::CTX),
            wq::DBR_UMEM_VALID.within(sqc::WQ).within(create_sq_in::CTX),
        ],
        turn: Turn::Queues,
    },
    Kind {
        create: opcode::CREATE_RQ,
        number: Number::Reply(create_rq_out::RQN),
        destroy: opcode::DESTROY_RQ,
        destroyed: destroy_rq_in::RQN,
        repeated: &[],
        query: Some((opcode::QUERY_RQ, query_rq_in::RQN)),
        changes: Some((&[opcode::MODIFY_RQ], modify_rq_in::RQN)),
        by_umem: &[
            wq::WQ_UMEM_VALID.within(rqc::WQ).within(create_rq_in::CTX),
            wq::DBR_UMEM_VALID.within(rqc::WQ).within(create_rq_in::CTX),
        ],
        turn: Turn::Queues,
    },
    Kind {
        create: opcode::CREATE_RQT,
        number: Number::Reply(create_rqt_out::RQTN),
        destroy: opcode::DESTROY_RQT,
        destroyed: destroy_rqt_in::RQTN,
        repeated: &[],
        query: Some((opcode::QUERY_RQT, query_rqt_in::RQTN)),
        changes: Some((&[opcode::MODIFY_RQT], modify_rqt_in::RQTN)),
        by_umem: &[],
        turn: Turn::Users,
    },
    Kind {
        create: opcode::CREATE_TIR,
        number: Number::Reply(create_tir_out::TIRN),
        destroy: opcode::DESTROY_TIR,
        destroyed: destroy_tir_in::TIRN,
        repeated: &[],
        query: Some((opcode::QUERY_TIR, query_tir_in::TIRN)),
        changes: Some((&[opcode::MODIFY_TIR], modify_tir_in::TIRN)),
        by_umem: &[],
        turn: Turn::QueuePairs,
    },
    Kind {
        create: opcode::CREATE_FLOW_TABLE,
        number: Number::Reply(create_flow_table_out::TABLE_ID),
        destroy: opcode::DESTROY_FLOW_TABLE,
        destroyed: destroy_flow_table_in::TABLE_ID,
        repeated: &[(create_flow_table_in::TABLE_TYPE, destroy_flow_table_in::TABLE_TYPE)],
        query: None,
        changes: Some((&[opcode::MODIFY_FLOW_TABLE], modify_flow_table_in::TABLE_ID)),
        by_umem: &[],
        turn: Turn::Users,
    },
    Kind {
        create: opcode::CREATE_FLOW_GROUP,
        number: Number::Reply(create_flow_group_out::GROUP_ID),
        destroy: opcode::DESTROY_FLOW_GROUP,
        destroyed: destroy_flow_group_in::GROUP_ID,
        repeated: &[
            (create_flow_group_in::TABLE_TYPE, destroy_flow_group_in::TABLE_TYPE),
            (create_flow_group_in::TABLE_ID, destroy_flow_group_in::TABLE_ID),
        ],
        query: None,
        changes: None,
        by_umem: &[],
        turn: Turn::QueuePairs,
    },
    Kind {
        create: opcode::SET_FLOW_TABLE_ENTRY,
        number: Number::Command(set_fte_in::FLOW_INDEX),
        destroy: opcode::DELETE_FLOW_TABLE_ENTRY,
        destroyed: delete_fte_in::FLOW_INDEX,
        repeated: &[
            (set_fte_in::TABLE_TYPE, delete_fte_in::TABLE_TYPE),
            (set_fte_in::TABLE_ID, delete_fte_in::TABLE_ID),
        ],
        query: None,
        changes: Some((&[opcode::SET_FLOW_TABLE_ENTRY], set_fte_in::FLOW_INDEX)),
        by_umem: &[],
        turn: Turn::Flows,
    },
];
