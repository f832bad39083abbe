//! Commands on queue pairs, one per state transition.
//!
//! Field order as `mlx5_ifc.h` in Linux 6.1 has it: the byte offset of the field's dword, its top
//! bit in that dword, its width in bits. Reserved bits are left out; they are written as zero.
//! `wq_umem_offset` and `wq_umem_id` are named so by rdma-core (`tests/mlx5_prm_structs.py`).

use super::layout;

layout! {
    create_qp_in 0x110 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        INPUT_QPN 0x8 23 24;
        OPT_PARAM_MASK 0x10 31 32;
        ECE 0x14 31 32;
        QPC 0x18 31 1856 = qpc;
        WQ_UMEM_OFFSET 0x100 31 64;
        WQ_UMEM_ID 0x108 31 32;
        WQ_UMEM_VALID 0x10c 31 1;
        PAS 0x110 31 64;
    }
    create_qp_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        QPN 0x8 23 24;
        ECE 0xc 31 32;
    }
    destroy_qp_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        QPN 0x8 23 24;
    }
    destroy_qp_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    query_qp_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        QPC_EXT 0x8 31 1;
        QPN 0x8 23 24;
    }
    query_qp_out 0x110 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        OPT_PARAM_MASK 0x10 31 32;
        ECE 0x14 31 32;
        QPC 0x18 31 1856 = qpc;
        PAS 0x110 31 64;
    }
    rst2init_qp_in 0x110 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        QPN 0x8 23 24;
        OPT_PARAM_MASK 0x10 31 32;
        ECE 0x14 31 32;
        QPC 0x18 31 1856 = qpc;
    }
    rst2init_qp_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        ECE 0xc 31 32;
    }
    init2rtr_qp_in 0x110 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        QPN 0x8 23 24;
        OPT_PARAM_MASK 0x10 31 32;
        ECE 0x14 31 32;
        QPC 0x18 31 1856 = qpc;
    }
    init2rtr_qp_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        ECE 0xc 31 32;
    }
    rtr2rts_qp_in 0x110 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        QPN 0x8 23 24;
        OPT_PARAM_MASK 0x10 31 32;
        ECE 0x14 31 32;
        QPC 0x18 31 1856 = qpc;
    }
    rtr2rts_qp_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        ECE 0xc 31 32;
    }
    rts2rts_qp_in 0x110 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        QPN 0x8 23 24;
        OPT_PARAM_MASK 0x10 31 32;
        ECE 0x14 31 32;
        QPC 0x18 31 1856 = qpc;
    }
    rts2rts_qp_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        ECE 0xc 31 32;
    }
    sqerr2rts_qp_in 0x110 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        QPN 0x8 23 24;
        OPT_PARAM_MASK 0x10 31 32;
        QPC 0x18 31 1856 = qpc;
    }
    sqd2rts_qp_in 0x110 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        QPN 0x8 23 24;
        OPT_PARAM_MASK 0x10 31 32;
        QPC 0x18 31 1856 = qpc;
    }
    init2init_qp_in 0x110 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        QPN 0x8 23 24;
        OPT_PARAM_MASK 0x10 31 32;
        ECE 0x14 31 32;
        QPC 0x18 31 1856 = qpc;
    }
    qp_2err_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        QPN 0x8 23 24;
    }
    qp_2rst_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        QPN 0x8 23 24;
    }
}
