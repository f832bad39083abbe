//! Actions of flow entries on headers: contexts of changed headers and of reformatting, and VLAN tags.
//!
//! Field order as `mlx5_ifc.h` in Linux 6.1 has it: the byte offset of the field's dword, its top
//! bit in that dword, its width in bits. Reserved bits are left out; they are written as zero.

use super::layout;

layout! {
    alloc_modify_header_context_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        TABLE_TYPE 0xc 31 8;
        NUM_OF_ACTIONS 0xc 7 8;
    }
    alloc_modify_header_context_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        MODIFY_HEADER_ID 0x8 31 32;
    }
    dealloc_modify_header_context_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        MODIFY_HEADER_ID 0x8 31 32;
    }
    dealloc_modify_header_context_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    set_action_in 0x8 {
        ACTION_TYPE 0x0 31 4;
        FIELD 0x0 27 12;
        OFFSET 0x0 12 5;
        LENGTH 0x0 4 5;
        DATA 0x4 31 32;
    }
    add_action_in 0x8 {
        ACTION_TYPE 0x0 31 4;
        FIELD 0x0 27 12;
        DATA 0x4 31 32;
    }
    copy_action_in 0x8 {
        ACTION_TYPE 0x0 31 4;
        SRC_FIELD 0x0 27 12;
        SRC_OFFSET 0x0 12 5;
        LENGTH 0x0 4 5;
        DST_FIELD 0x4 27 12;
        DST_OFFSET 0x4 12 5;
    }
    packet_reformat_context_in 0x8 {
        REFORMAT_TYPE 0x0 31 8;
        REFORMAT_PARAM_0 0x0 19 4;
        REFORMAT_DATA_SIZE 0x0 9 10;
        REFORMAT_PARAM_1 0x4 31 8;
        REFORMAT_DATA 0x4 15 16;
    }
    alloc_packet_reformat_context_in 0x24 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        PACKET_REFORMAT_CONTEXT 0x1c 31 64 = packet_reformat_context_in;
    }
    alloc_packet_reformat_context_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        PACKET_REFORMAT_ID 0x8 31 32;
    }
    dealloc_packet_reformat_context_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        PACKET_REFORMAT_ID 0x8 31 32;
    }
    dealloc_packet_reformat_context_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    fte_match_set_misc2 0x40 {
        METADATA_REG_C_7 0x10 31 32;
        METADATA_REG_C_6 0x14 31 32;
        METADATA_REG_C_5 0x18 31 32;
        METADATA_REG_C_4 0x1c 31 32;
        METADATA_REG_C_3 0x20 31 32;
        METADATA_REG_C_2 0x24 31 32;
        METADATA_REG_C_1 0x28 31 32;
        METADATA_REG_C_0 0x2c 31 32;
        METADATA_REG_A 0x30 31 32;
    }
}
