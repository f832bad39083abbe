//! Changes of the context of a virtual Ethernet port, and the table of addresses that lead packets to
//! it.
//!
//! Field order as `mlx5_ifc.h` in Linux 6.1 has it: the byte offset of the field's dword, its top
//! bit in that dword, its width in bits. Reserved bits are left out; they are written as zero.

use super::layout;

layout! {
    modify_nic_vport_context_in 0x200 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        OTHER_VPORT 0x8 31 1;
        VPORT_NUMBER 0x8 15 16;
        FIELD_SELECT 0xc 31 32 = modify_nic_vport_field_select;
        NIC_VPORT_CONTEXT 0x100 31 2048 = nic_vport_context;
    }
    modify_nic_vport_field_select 0x4 {
        AFFILIATION 0x0 13 1;
        DISABLE_UC_LOCAL_LB 0x0 11 1;
        DISABLE_MC_LOCAL_LB 0x0 10 1;
        NODE_GUID 0x0 9 1;
        PORT_GUID 0x0 8 1;
        MIN_INLINE 0x0 7 1;
        MTU 0x0 6 1;
        CHANGE_EVENT 0x0 5 1;
        PROMISC 0x0 4 1;
        PERMANENT_ADDRESS 0x0 3 1;
        ADDRESSES_LIST 0x0 2 1;
        ROCE_EN 0x0 1 1;
    }
    set_l2_table_entry_in 0x40 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        TABLE_INDEX 0x14 23 24;
        VLAN_VALID 0x1c 12 1;
        VLAN 0x1c 11 12;
        MAC_ADDRESS 0x20 31 64 = mac_address_layout;
    }
    query_l2_table_entry_in 0x40 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        TABLE_INDEX 0x14 23 24;
    }
    query_l2_table_entry_out 0x40 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        VLAN_VALID 0x1c 12 1;
        VLAN 0x1c 11 12;
        MAC_ADDRESS 0x20 31 64 = mac_address_layout;
    }
    delete_l2_table_entry_in 0x40 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        TABLE_INDEX 0x14 23 24;
    }
}
