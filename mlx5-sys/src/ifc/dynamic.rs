//! Targets of dynamic connections, and what the extended queue pair context adds for initiators.
//!
//! Field order as `mlx5_ifc.h` in Linux 6.1 has it: the byte offset of the field's dword, its top
//! bit in that dword, its width in bits. Reserved bits are left out; they are written as zero. The
//! extension of the context is as in rdma-core 44.

use super::layout;

layout! {
    dctc 0x40 {
        STATE 0x0 27 4;
        USER_INDEX 0x4 23 24;
        CQN 0x8 23 24;
        COUNTER_SET_ID 0xc 31 8;
        ATOMIC_MODE 0xc 23 4;
        RRE 0xc 19 1;
        RWE 0xc 18 1;
        RAE 0xc 17 1;
        ATOMIC_LIKE_WRITE_EN 0xc 16 1;
        LATENCY_SENSITIVE 0xc 15 1;
        RLKY 0xc 14 1;
        FREE_AR 0xc 13 1;
        CS_RES 0x10 23 8;
        MIN_RNR_NAK 0x10 12 5;
        SRQN_XRQN 0x14 23 24;
        PD 0x18 23 24;
        TCLASS 0x1c 31 8;
        FLOW_LABEL 0x1c 19 20;
        DC_ACCESS_KEY 0x20 31 64;
        MTU 0x28 26 3;
        PORT 0x28 23 8;
        PKEY_INDEX 0x28 15 16;
        MY_ADDR_INDEX 0x2c 23 8;
        HOP_LIMIT 0x2c 7 8;
        DC_ACCESS_KEY_VIOLATION_COUNT 0x30 31 32;
        DEI_CFI 0x34 11 1;
        ETH_PRIO 0x34 10 3;
        ECN 0x34 7 2;
        DSCP 0x34 5 6;
        ECE 0x3c 31 32;
    }
    create_dct_in 0x80 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        DCT_CONTEXT_ENTRY 0x10 31 512 = dctc;
    }
    create_dct_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        DCTN 0x8 23 24;
        ECE 0xc 31 32;
    }
    destroy_dct_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        DCTN 0x8 23 24;
    }
    destroy_dct_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    drain_dct_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        DCTN 0x8 23 24;
    }
    drain_dct_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    query_dct_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        DCTN 0x8 23 24;
    }
    query_dct_out 0x80 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        DCT_CONTEXT_ENTRY 0x10 31 512 = dctc;
    }
    arm_dct_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        DCT_NUMBER 0x8 23 24;
    }
    arm_dct_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    qpc_ext 0xc0 {
        MMO 0x0 29 1;
        DCI_STREAM_CHANNEL_ID 0x0 15 16;
        QOS_QUEUE_GROUP_ID_REQUESTER 0x4 31 32;
        QOS_QUEUE_GROUP_ID_RESPONDER 0x8 31 32;
        ERROR_SYNDROME 0xc 31 32 = cqe_error_syndrome;
    }
    cqe_error_syndrome 0x4 {
        HW_ERROR_SYNDROME 0x0 31 8;
        HW_SYNDROME_TYPE 0x0 23 4;
        VENDOR_ERROR_SYNDROME 0x0 15 8;
        SYNDROME 0x0 7 8;
    }
    rts2rts_qp_ext_in 0x1d0 {
        QPC_EXT 0x8 31 1;
        QPN 0x8 23 24;
        OPT_PARAM_MASK_95_32 0x108 31 64;
        QPC_DATA_EXT 0x110 31 1536;
    }
}
