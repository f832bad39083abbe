//! Counters of queues: what goes wrong on the queue pairs that name a set of them.
//!
//! Field order as `mlx5_ifc.h` in Linux 6.1 has it: the byte offset of the field's dword, its top
//! bit in that dword, its width in bits. Reserved bits are left out; they are written as zero.

use super::layout;

layout! {
    alloc_q_counter_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
    }
    alloc_q_counter_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        COUNTER_SET_ID 0x8 7 8;
    }
    dealloc_q_counter_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        COUNTER_SET_ID 0x8 7 8;
    }
    dealloc_q_counter_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    query_q_counter_in 0x20 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        CLEAR 0x18 31 1;
        COUNTER_SET_ID 0x1c 7 8;
    }
    query_q_counter_out 0x100 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        RX_WRITE_REQUESTS 0x10 31 32;
        RX_READ_REQUESTS 0x18 31 32;
        RX_ATOMIC_REQUESTS 0x20 31 32;
        RX_DCT_CONNECT 0x28 31 32;
        OUT_OF_BUFFER 0x30 31 32;
        OUT_OF_SEQUENCE 0x38 31 32;
        DUPLICATE_REQUEST 0x40 31 32;
        RNR_NAK_RETRY_ERR 0x48 31 32;
        PACKET_SEQ_ERR 0x50 31 32;
        IMPLIED_NAK_SEQ_ERR 0x58 31 32;
        LOCAL_ACK_TIMEOUT_ERR 0x60 31 32;
        REQ_RNR_RETRIES_EXCEEDED 0x70 31 32;
        RESP_LOCAL_LENGTH_ERROR 0x78 31 32;
        REQ_LOCAL_LENGTH_ERROR 0x7c 31 32;
        RESP_LOCAL_QP_ERROR 0x80 31 32;
        LOCAL_OPERATION_ERROR 0x84 31 32;
        RESP_LOCAL_PROTECTION 0x88 31 32;
        REQ_LOCAL_PROTECTION 0x8c 31 32;
        RESP_CQE_ERROR 0x90 31 32;
        REQ_CQE_ERROR 0x94 31 32;
        REQ_MW_BINDING 0x98 31 32;
        REQ_BAD_RESPONSE 0x9c 31 32;
        REQ_REMOTE_INVALID_REQUEST 0xa0 31 32;
        RESP_REMOTE_INVALID_REQUEST 0xa4 31 32;
        REQ_REMOTE_ACCESS_ERRORS 0xa8 31 32;
        RESP_REMOTE_ACCESS_ERRORS 0xac 31 32;
        REQ_REMOTE_OPERATION_ERRORS 0xb0 31 32;
        REQ_TRANSPORT_RETRIES_EXCEEDED 0xb4 31 32;
        CQ_OVERFLOW 0xb8 31 32;
        RESP_CQE_FLUSH_ERROR 0xbc 31 32;
        REQ_CQE_FLUSH_ERROR 0xc0 31 32;
        ROCE_ADP_RETRANS 0xc8 31 32;
        ROCE_ADP_RETRANS_TO 0xcc 31 32;
        ROCE_SLOW_RESTART 0xd0 31 32;
        ROCE_SLOW_RESTART_CNPS 0xd4 31 32;
        ROCE_SLOW_RESTART_TRANS 0xd8 31 32;
    }
}
