//! Receive queues that queue pairs share: RMP, XRC SRQ and the SRQ of old, and the WQ context
//! inside.
//!
//! Field order as `mlx5_ifc.h` in Linux 6.1 has it: the byte offset of the field's dword, its top
//! bit in that dword, its width in bits. Reserved bits are left out; they are written as zero.
//! `dbr_umem_id`, `wq_umem_id` and `wq_umem_offset` of `wq` are named so by DPDK (`mlx5_prm.h`). Of
//! an XRC SRQ no public header names them: `dbr_umem_id` is the reserved dword behind the one with
//! `dbr_umem_valid`, as in `cqc` and `wq`, and what the command has in front of
//! `xrc_srq_umem_valid` is as long as in CREATE_CQ and CREATE_QP.

use super::layout;

layout! {
    wq 0xc0 {
        WQ_TYPE 0x0 31 4;
        WQ_SIGNATURE 0x0 27 1;
        END_PADDING_MODE 0x0 26 2;
        CD_SLAVE 0x0 24 1;
        HDS_SKIP_FIRST_SGE 0x4 31 1;
        LOG2_HDS_BUF_SIZE 0x4 30 3;
        PAGE_OFFSET 0x4 20 5;
        LWM 0x4 15 16;
        PD 0x8 23 24;
        UAR_PAGE 0xc 23 24;
        DBR_ADDR 0x10 31 64;
        HW_COUNTER 0x18 31 32;
        SW_COUNTER 0x1c 31 32;
        LOG_WQ_STRIDE 0x20 19 4;
        LOG_WQ_PG_SZ 0x20 12 5;
        LOG_WQ_SZ 0x20 4 5;
        DBR_UMEM_VALID 0x24 31 1;
        WQ_UMEM_VALID 0x24 30 1;
        LOG_HAIRPIN_NUM_PACKETS 0x24 28 5;
        LOG_HAIRPIN_DATA_SZ 0x24 20 5;
        LOG_WQE_NUM_OF_STRIDES 0x24 11 4;
        TWO_BYTE_SHIFT_EN 0x24 7 1;
        LOG_WQE_STRIDE_SIZE 0x24 2 3;
        DBR_UMEM_ID 0x28 31 32;
        WQ_UMEM_ID 0x2c 31 32;
        WQ_UMEM_OFFSET 0x30 31 64;
        HEADERS_MKEY 0x38 31 32;
        SHAMPO_ENABLE 0x3c 31 1;
        LOG_RESERVATION_SIZE 0x3c 26 3;
        LOG_MAX_NUM_OF_PACKETS_PER_RESERVATION 0x3c 18 3;
        LOG_HEADERS_ENTRY_SIZE 0x3c 9 2;
        LOG_HEADERS_BUFFER_ENTRY_NUM 0x3c 3 4;
        PAS 0xc0 31 64;
    }
    rmpc 0xf0 {
        STATE 0x0 23 4;
        BASIC_CYCLIC_RCV_WQE 0x4 31 1;
        WQ 0x30 31 1536 = wq;
    }
    rmp_bitmask 0x8 {
        LWM 0x4 0 1;
    }
    create_rmp_in 0x110 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        CTX 0x20 31 1920 = rmpc;
    }
    create_rmp_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        RMPN 0x8 23 24;
    }
    modify_rmp_in 0x110 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        RMP_STATE 0x8 31 4;
        RMPN 0x8 23 24;
        BITMASK 0x10 31 64 = rmp_bitmask;
        CTX 0x20 31 1920 = rmpc;
    }
    modify_rmp_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    query_rmp_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        RMPN 0x8 23 24;
    }
    query_rmp_out 0x110 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        RMP_CONTEXT 0x20 31 1920 = rmpc;
    }
    destroy_rmp_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        RMPN 0x8 23 24;
    }
    destroy_rmp_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    xrc_srqc 0x40 {
        STATE 0x0 31 4;
        LOG_XRC_SRQ_SIZE 0x0 27 4;
        WQ_SIGNATURE 0x4 31 1;
        CONT_SRQ 0x4 30 1;
        RLKY 0x4 28 1;
        BASIC_CYCLIC_RCV_WQE 0x4 27 1;
        LOG_RQ_STRIDE 0x4 26 3;
        XRCD 0x4 23 24;
        PAGE_OFFSET 0x8 31 6;
        DBR_UMEM_VALID 0x8 24 1;
        CQN 0x8 23 24;
        DBR_UMEM_ID 0xc 31 32;
        USER_INDEX_EQUAL_XRC_SRQN 0x10 31 1;
        LOG_PAGE_SIZE 0x10 29 6;
        USER_INDEX 0x10 23 24;
        PD 0x18 23 24;
        LWM 0x1c 31 16;
        WQE_CNT 0x1c 15 16;
        DB_RECORD_ADDR_H 0x28 31 32;
        DB_RECORD_ADDR_L 0x2c 31 30;
    }
    create_xrc_srq_in 0x110 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        XRC_SRQ_CONTEXT_ENTRY 0x10 31 512 = xrc_srqc;
        XRC_SRQ_UMEM_OFFSET 0x50 31 64;
        XRC_SRQ_UMEM_ID 0x58 31 32;
        XRC_SRQ_UMEM_VALID 0x5c 31 1;
        PAS 0x110 31 64;
    }
    create_xrc_srq_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        XRC_SRQN 0x8 23 24;
    }
    arm_xrc_srq_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        XRC_SRQN 0x8 23 24;
        LWM 0xc 15 16;
    }
    arm_xrc_srq_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    query_xrc_srq_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        XRC_SRQN 0x8 23 24;
    }
    query_xrc_srq_out 0x110 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        XRC_SRQ_CONTEXT_ENTRY 0x10 31 512 = xrc_srqc;
        PAS 0x110 31 64;
    }
    destroy_xrc_srq_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        XRC_SRQN 0x8 23 24;
    }
    destroy_xrc_srq_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    srqc 0x40 {
        STATE 0x0 31 4;
        LOG_SRQ_SIZE 0x0 27 4;
        WQ_SIGNATURE 0x4 31 1;
        CONT_SRQ 0x4 30 1;
        RLKY 0x4 28 1;
        LOG_RQ_STRIDE 0x4 26 3;
        XRCD 0x4 23 24;
        PAGE_OFFSET 0x8 31 6;
        CQN 0x8 23 24;
        LOG_PAGE_SIZE 0x10 29 6;
        PD 0x18 23 24;
        LWM 0x1c 31 16;
        WQE_CNT 0x1c 15 16;
        DBR_ADDR 0x28 31 64;
    }
    create_srq_in 0x110 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        SRQ_CONTEXT_ENTRY 0x10 31 512 = srqc;
        PAS 0x110 31 64;
    }
    create_srq_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        SRQN 0x8 23 24;
    }
    query_srq_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        SRQN 0x8 23 24;
    }
    query_srq_out 0x110 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        SRQ_CONTEXT_ENTRY 0x10 31 512 = srqc;
        PAS 0x110 31 64;
    }
    destroy_srq_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        SRQN 0x8 23 24;
    }
    destroy_srq_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    arm_rq_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        SRQ_NUMBER 0x8 23 24;
        LWM 0xc 15 16;
    }
    arm_rq_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
}
