//! Commands by which a driver starts and stops the HCA: versions of the interface, pages,
//! capabilities, and the HCA itself.
//!
//! Field order as `mlx5_ifc.h` in Linux 6.1 has it: the byte offset of the field's dword, its top
//! bit in that dword, its width in bits. Reserved bits are left out; they are written as zero.

use super::layout;

layout! {
    enable_hca_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        EMBEDDED_CPU_FUNCTION 0x8 31 1;
        FUNCTION_ID 0x8 15 16;
    }
    disable_hca_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        EMBEDDED_CPU_FUNCTION 0x8 31 1;
        FUNCTION_ID 0x8 15 16;
    }
    set_issi_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        CURRENT_ISSI 0x8 15 16;
    }
    query_pages_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        EMBEDDED_CPU_FUNCTION 0x8 31 1;
        FUNCTION_ID 0x8 15 16;
    }
    query_pages_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        EMBEDDED_CPU_FUNCTION 0x8 31 1;
        FUNCTION_ID 0x8 15 16;
        NUM_PAGES 0xc 31 32;
    }
    manage_pages_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        EMBEDDED_CPU_FUNCTION 0x8 31 1;
        FUNCTION_ID 0x8 15 16;
        INPUT_NUM_ENTRIES 0xc 31 32;
        PAS 0x10 31 64;
    }
    manage_pages_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        OUTPUT_NUM_ENTRIES 0x8 31 32;
        PAS 0x10 31 64;
    }
    set_hca_cap_in 0x1010 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        OTHER_FUNCTION 0x8 31 1;
        FUNCTION_ID 0x8 15 16;
        CAPABILITY 0x10 31 32768;
    }
    init_hca_in 0x20 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        SW_VHCA_ID 0xc 29 14;
        SW_OWNER_ID 0x10 31 32;
    }
    teardown_hca_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        PROFILE 0x8 15 16;
    }
    teardown_hca_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        STATE 0xc 0 1;
    }
}
