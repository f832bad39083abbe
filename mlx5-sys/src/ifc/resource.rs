//! Commands on everything queues stand on: CQ, EQ, mkey, PD, UAR, transport domain; and on
//! multicast groups.
//!
//! Field order as `mlx5_ifc.h` in Linux 6.1 has it: the byte offset of the field's dword, its top
//! bit in that dword, its width in bits. Reserved bits are left out; they are written as zero.
//! `input_mkey_index` is of Linux 6.2; `cq_umem_offset`, `cq_umem_id`, `mkey_umem_id` and
//! `mkey_umem_offset` are named so by rdma-core (`tests/mlx5_prm_structs.py`).

use super::layout;

layout! {
    create_cq_in 0x110 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        CQ_CONTEXT 0x10 31 512 = cqc;
        CQ_UMEM_OFFSET 0x50 31 64;
        CQ_UMEM_ID 0x58 31 32;
        CQ_UMEM_VALID 0x5c 31 1;
        PAS 0x110 31 64;
    }
    create_cq_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        CQN 0x8 23 24;
    }
    destroy_cq_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        CQN 0x8 23 24;
    }
    destroy_cq_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    query_cq_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        CQN 0x8 23 24;
    }
    query_cq_out 0x110 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        CQ_CONTEXT 0x10 31 512 = cqc;
        PAS 0x110 31 64;
    }
    modify_cq_in 0x110 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        CQN 0x8 23 24;
        MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT 0xc 31 32;
        CQ_CONTEXT 0x10 31 512 = cqc;
        CQ_UMEM_VALID 0x5c 31 1;
        PAS 0x110 31 64;
    }
    modify_cq_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    umem 0x20 {
        ATS 0x10 31 1;
        LOG_PAGE_SIZE 0x10 4 5;
        PAGE_OFFSET 0x14 31 32;
        NUM_OF_MTT 0x18 31 64;
    }
    create_umem_in 0x30 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        UMEM 0x10 31 256 = umem;
        MTT 0x30 31 64;
    }
    create_umem_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        UMEM_ID 0x8 23 24;
    }
    destroy_umem_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        UMEM_ID 0x8 23 24;
    }
    attach_to_mcg_in 0x20 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        QPN 0x8 23 24;
        MULTICAST_GID 0x10 31 128;
    }
    attach_to_mcg_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    detach_from_mcg_in 0x20 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        QPN 0x8 23 24;
        MULTICAST_GID 0x10 31 128;
    }
    detach_from_mcg_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    create_eq_in 0x110 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        EQ_CONTEXT_ENTRY 0x10 31 512 = eqc;
        EVENT_BITMASK 0x58 31 64;
        PAS 0x110 31 64;
    }
    create_eq_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        EQ_NUMBER 0x8 7 8;
    }
    destroy_eq_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        EQ_NUMBER 0x8 7 8;
    }
    destroy_eq_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    create_psv_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        NUM_PSV 0x8 31 4;
        PD 0x8 23 24;
    }
    create_psv_out 0x20 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        PSV0_INDEX 0x10 23 24;
        PSV1_INDEX 0x14 23 24;
        PSV2_INDEX 0x18 23 24;
        PSV3_INDEX 0x1c 23 24;
    }
    destroy_psv_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        PSVN 0x8 23 24;
    }
    destroy_psv_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    create_mkey_in 0x110 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        INPUT_MKEY_INDEX 0x8 23 24;
        PG_ACCESS 0xc 31 1;
        MKEY_UMEM_VALID 0xc 30 1;
        MEMORY_KEY_MKEY_ENTRY 0x10 31 512 = mkc;
        TRANSLATIONS_OCTWORD_ACTUAL_SIZE 0x60 31 32;
        MKEY_UMEM_ID 0x64 31 32;
        MKEY_UMEM_OFFSET 0x68 31 64;
        KLM_PAS_MTT 0x110 31 32;
    }
    create_mkey_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        MKEY_INDEX 0x8 23 24;
    }
    destroy_mkey_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        MKEY_INDEX 0x8 23 24;
    }
    destroy_mkey_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    query_mkey_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        MKEY_INDEX 0x8 23 24;
        PG_ACCESS 0xc 31 1;
    }
    query_mkey_out 0x130 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        MEMORY_KEY_MKEY_ENTRY 0x10 31 512 = mkc;
        BSF0_KLM0_PAS_MTT0_1 0x110 31 8;
        BSF1_KLM1_PAS_MTT2_3 0x120 31 8;
    }
    alloc_pd_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
    }
    alloc_pd_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        PD 0x8 23 24;
    }
    dealloc_pd_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        PD 0x8 23 24;
    }
    dealloc_pd_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    alloc_uar_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
    }
    alloc_uar_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        UAR 0x8 23 24;
    }
    dealloc_uar_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        UAR 0x8 23 24;
    }
    dealloc_uar_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    alloc_transport_domain_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
    }
    alloc_transport_domain_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        TRANSPORT_DOMAIN 0x8 23 24;
    }
    dealloc_transport_domain_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        TRANSPORT_DOMAIN 0x8 23 24;
    }
    dealloc_transport_domain_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    alloc_xrcd_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
    }
    alloc_xrcd_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        XRCD 0x8 23 24;
    }
    dealloc_xrcd_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        XRCD 0x8 23 24;
    }
    dealloc_xrcd_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    alloc_memic_in 0x20 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        LOG_MEMIC_ADDR_ALIGNMENT 0xc 7 8;
        RANGE_START_ADDR 0x10 31 64;
        RANGE_SIZE 0x18 31 32;
        MEMIC_SIZE 0x1c 31 32;
    }
    alloc_memic_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        MEMIC_START_ADDR 0x8 31 64;
    }
    dealloc_memic_in 0x20 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        MEMIC_START_ADDR 0x10 31 64;
        MEMIC_SIZE 0x18 31 32;
    }
    dealloc_memic_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    query_special_contexts_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
    }
    query_special_contexts_out 0x20 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        DUMP_FILL_MKEY 0x8 31 32;
        RESD_LKEY 0xc 31 32;
        NULL_MKEY 0x10 31 32;
    }
    create_uctx_in 0x40 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        UCTX 0x10 31 384 = uctx;
    }
    create_uctx_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        UID 0x8 15 16;
    }
    destroy_uctx_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        UID 0x8 15 16;
    }
    destroy_uctx_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    uctx 0x30 {
        CAP 0x0 31 32;
    }
}
