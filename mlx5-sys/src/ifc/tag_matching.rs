//! Shared receive queues that match tags: XRQ, and what of their contexts the tags are.
//!
//! Field order as `mlx5_ifc.h` in Linux 6.1 has it, as in the files beside this one.

use super::layout;

layout! {
    tag_matching_topology_context 0x10 {
        LOG_MATCHING_LIST_SZ 0x0 31 4;
        APPEND_NEXT_INDEX 0x0 15 16;
        SW_PHASE_CNT 0x4 31 16;
        HW_PHASE_CNT 0x4 15 16;
    }
    xrqc 0x140 {
        STATE 0x0 31 4;
        RLKEY 0x0 27 1;
        TOPOLOGY 0x0 11 4;
        OFFLOAD 0x0 3 4;
        USER_INDEX 0x4 23 24;
        CQN 0x8 23 24;
        TAG_MATCHING_TOPOLOGY_CONTEXT 0x20 31 128 = tag_matching_topology_context;
        WQ 0x80 31 1536 = wq;
    }
    create_xrq_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        XRQN 0x8 23 24;
    }
    create_xrq_in 0x150 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        XRQ_CONTEXT 0x10 31 2560 = xrqc;
    }
    query_xrq_out 0x150 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        XRQ_CONTEXT 0x10 31 2560 = xrqc;
    }
    query_xrq_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        XRQN 0x8 23 24;
    }
    destroy_xrq_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    destroy_xrq_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        XRQN 0x8 23 24;
    }
    arm_xrq_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    arm_xrq_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        XRQN 0x8 23 24;
        LWM 0xc 15 16;
    }
}
