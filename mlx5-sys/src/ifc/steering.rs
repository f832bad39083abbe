//! Flow steering: tables, groups and entries, and the headers that entries match.
//!
//! Field order as `mlx5_ifc.h` in Linux 6.1 has it: the byte offset of the field's dword, its top
//! bit in that dword, its width in bits. Reserved bits are left out; they are written as zero.

use super::layout;

layout! {
    create_flow_table_in 0x40 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        OTHER_VPORT 0x8 31 1;
        VPORT_NUMBER 0x8 15 16;
        TABLE_TYPE 0x10 31 8;
        FLOW_TABLE_CONTEXT 0x18 31 320 = flow_table_context;
    }
    create_flow_table_out 0x10 {
        STATUS 0x0 31 8;
        ICM_ADDRESS_63_40 0x0 23 24;
        SYNDROME 0x4 31 32;
        ICM_ADDRESS_39_32 0x8 31 8;
        TABLE_ID 0x8 23 24;
        ICM_ADDRESS_31_0 0xc 31 32;
    }
    flow_table_context 0x28 {
        REFORMAT_EN 0x0 31 1;
        DECAP_EN 0x0 30 1;
        SW_OWNER 0x0 29 1;
        TERMINATION_TABLE 0x0 28 1;
        TABLE_MISS_ACTION 0x0 27 4;
        LEVEL 0x0 23 8;
        LOG_SIZE 0x0 7 8;
        TABLE_MISS_ID 0x4 23 24;
        LAG_MASTER_NEXT_TABLE_ID 0x8 23 24;
        SW_OWNER_ICM_ROOT_1 0x18 31 64;
        SW_OWNER_ICM_ROOT_0 0x20 31 64;
    }
    modify_flow_table_in 0x40 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        OTHER_VPORT 0x8 31 1;
        VPORT_NUMBER 0x8 15 16;
        MODIFY_FIELD_SELECT 0xc 15 16;
        TABLE_TYPE 0x10 31 8;
        TABLE_ID 0x14 23 24;
        FLOW_TABLE_CONTEXT 0x18 31 320 = flow_table_context;
    }
    modify_flow_table_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    destroy_flow_table_in 0x40 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        OTHER_VPORT 0x8 31 1;
        VPORT_NUMBER 0x8 15 16;
        TABLE_TYPE 0x10 31 8;
        TABLE_ID 0x14 23 24;
    }
    create_flow_group_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        GROUP_ID 0x8 23 24;
    }
    destroy_flow_group_in 0x40 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        OTHER_VPORT 0x8 31 1;
        VPORT_NUMBER 0x8 15 16;
        TABLE_TYPE 0x10 31 8;
        TABLE_ID 0x14 23 24;
        GROUP_ID 0x18 31 32;
    }
    dest_format_struct 0x8 {
        DESTINATION_TYPE 0x0 31 8;
        DESTINATION_ID 0x0 23 24;
        DESTINATION_ESWITCH_OWNER_VHCA_ID_VALID 0x4 31 1;
        PACKET_REFORMAT 0x4 30 1;
        DESTINATION_ESWITCH_OWNER_VHCA_ID 0x4 15 16;
    }
    flow_table_nic_cap 0x1000 {
        NIC_RX_MULTI_PATH_TIRS 0x0 31 1;
        NIC_RX_MULTI_PATH_TIRS_FTS 0x0 30 1;
        ALLOW_SNIFFER_AND_NIC_RX_SHARED_TIR 0x0 29 1;
        SW_OWNER_REFORMAT_SUPPORTED 0x0 24 1;
        ENCAP_GENERAL_HEADER 0x4 31 1;
        LOG_MAX_PACKET_REFORMAT_CONTEXT 0x4 20 5;
        MAX_ENCAP_HEADER_SIZE 0x4 9 10;
        FLOW_TABLE_PROPERTIES_NIC_RECEIVE 0x40 31 512 = flow_table_prop_layout;
        FLOW_TABLE_PROPERTIES_NIC_RECEIVE_RDMA 0x80 31 512 = flow_table_prop_layout;
        FLOW_TABLE_PROPERTIES_NIC_RECEIVE_SNIFFER 0xc0 31 512 = flow_table_prop_layout;
        FLOW_TABLE_PROPERTIES_NIC_TRANSMIT 0x100 31 512 = flow_table_prop_layout;
        FLOW_TABLE_PROPERTIES_NIC_TRANSMIT_RDMA 0x140 31 512 = flow_table_prop_layout;
        FLOW_TABLE_PROPERTIES_NIC_TRANSMIT_SNIFFER 0x180 31 512 = flow_table_prop_layout;
        FT_FIELD_SUPPORT_2_NIC_RECEIVE_RDMA 0x2a0 31 128 = flow_table_fields_supported_2;
        FT_FIELD_SUPPORT_2_NIC_TRANSMIT_RDMA 0x300 31 128 = flow_table_fields_supported_2;
        SW_STEERING_NIC_RX_ACTION_DROP_ICM_ADDRESS 0x400 31 64;
        SW_STEERING_NIC_TX_ACTION_DROP_ICM_ADDRESS 0x408 31 64;
        SW_STEERING_NIC_TX_ACTION_ALLOW_ICM_ADDRESS 0x410 31 64;
    }
    flow_table_prop_layout 0x40 {
        FT_SUPPORT 0x0 31 1;
        FLOW_TAG 0x0 30 1;
        FLOW_COUNTER 0x0 29 1;
        FLOW_MODIFY_EN 0x0 28 1;
        MODIFY_ROOT 0x0 27 1;
        IDENTIFIED_MISS_TABLE_MODE 0x0 26 1;
        FLOW_TABLE_MODIFY 0x0 25 1;
        REFORMAT 0x0 24 1;
        DECAP 0x0 23 1;
        RESET_ROOT_TO_DEFAULT 0x0 22 1;
        POP_VLAN 0x0 21 1;
        PUSH_VLAN 0x0 20 1;
        FPGA_VENDOR_ACCELERATION 0x0 19 1;
        POP_VLAN_2 0x0 18 1;
        PUSH_VLAN_2 0x0 17 1;
        REFORMAT_AND_VLAN_ACTION 0x0 16 1;
        MODIFY_AND_VLAN_ACTION 0x0 15 1;
        SW_OWNER 0x0 14 1;
        REFORMAT_L3_TUNNEL_TO_L2 0x0 13 1;
        REFORMAT_L2_TO_L3_TUNNEL 0x0 12 1;
        REFORMAT_AND_MODIFY_ACTION 0x0 11 1;
        IGNORE_FLOW_LEVEL 0x0 10 1;
        TABLE_MISS_ACTION_DOMAIN 0x0 8 1;
        TERMINATION_TABLE 0x0 7 1;
        REFORMAT_AND_FWD_TO_TABLE 0x0 6 1;
        IPSEC_ENCRYPT 0x0 3 1;
        IPSEC_DECRYPT 0x0 2 1;
        SW_OWNER_V2 0x0 1 1;
        TERMINATION_TABLE_RAW_TRAFFIC 0x4 31 1;
        LOG_MAX_FT_SIZE 0x4 29 6;
        LOG_MAX_MODIFY_HEADER_CONTEXT 0x4 23 8;
        MAX_MODIFY_HEADER_ACTIONS 0x4 15 8;
        MAX_FT_LEVEL 0x4 7 8;
        EXECUTE_ASO 0x8 25 1;
        METADATA_REG_B_WIDTH 0x8 15 8;
        METADATA_REG_A_WIDTH 0x8 7 8;
        REFORMAT_INSERT 0xc 29 1;
        REFORMAT_REMOVE 0xc 28 1;
        MACSEC_ENCRYPT 0xc 27 1;
        MACSEC_DECRYPT 0xc 26 1;
        REFORMAT_ADD_MACSEC 0xc 23 1;
        REFORMAT_REMOVE_MACSEC 0xc 22 1;
        LOG_MAX_FT_NUM 0xc 7 8;
        LOG_MAX_FLOW_COUNTER 0x10 15 8;
        LOG_MAX_DESTINATION 0x10 7 8;
        LOG_MAX_FLOW 0x14 7 8;
        FT_FIELD_SUPPORT 0x20 31 128 = flow_table_fields_supported;
        FT_FIELD_BITMASK_SUPPORT 0x30 31 128 = flow_table_fields_supported;
    }
    destroy_flow_table_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    set_flow_table_root_in 0x40 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        OTHER_VPORT 0x8 31 1;
        VPORT_NUMBER 0x8 15 16;
        TABLE_TYPE 0x10 31 8;
        TABLE_OF_OTHER_VPORT 0x10 16 1;
        TABLE_VPORT_NUMBER 0x10 15 16;
        TABLE_ID 0x14 23 24;
        UNDERLAY_QPN 0x18 23 24;
        TABLE_ESWITCH_OWNER_VHCA_ID_VALID 0x1c 31 1;
        TABLE_ESWITCH_OWNER_VHCA_ID 0x1c 15 16;
    }
    set_flow_table_root_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    create_flow_group_in 0x400 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        OTHER_VPORT 0x8 31 1;
        VPORT_NUMBER 0x8 15 16;
        TABLE_TYPE 0x10 31 8;
        GROUP_TYPE 0x10 19 4;
        TABLE_ID 0x14 23 24;
        SOURCE_ESWITCH_OWNER_VHCA_ID_VALID 0x18 31 1;
        START_FLOW_INDEX 0x1c 31 32;
        END_FLOW_INDEX 0x24 31 32;
        MATCH_DEFINER_ID 0x28 15 16;
        MATCH_CRITERIA_ENABLE 0x3c 7 8;
        MATCH_CRITERIA 0x40 31 4096 = fte_match_param;
    }
    destroy_flow_group_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    set_fte_in 0x340 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        OTHER_VPORT 0x8 31 1;
        VPORT_NUMBER 0x8 15 16;
        TABLE_TYPE 0x10 31 8;
        TABLE_ID 0x14 23 24;
        IGNORE_FLOW_LEVEL 0x18 31 1;
        MODIFY_ENABLE_MASK 0x18 7 8;
        FLOW_INDEX 0x20 31 32;
        FLOW_CONTEXT 0x40 31 6144 = flow_context;
    }
    set_fte_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    flow_context 0x300 {
        PUSH_VLAN 0x0 31 32;
        GROUP_ID 0x4 31 32;
        FLOW_TAG 0x8 23 24;
        ACTION 0xc 15 16;
        EXTENDED_DESTINATION 0x10 31 1;
        FLOW_SOURCE 0x10 29 2;
        ENCRYPT_DECRYPT_TYPE 0x10 27 4;
        DESTINATION_LIST_SIZE 0x10 23 24;
        FLOW_COUNTER_LIST_SIZE 0x14 23 24;
        PACKET_REFORMAT_ID 0x18 31 32;
        MODIFY_HEADER_ID 0x1c 31 32;
        PUSH_VLAN_2 0x20 31 32;
        ENCRYPT_DECRYPT_OBJ_ID 0x24 31 32;
        MATCH_VALUE 0x40 31 4096 = fte_match_param;
        EXECUTE_ASO 0x240 31 256;
        DESTINATION 0x300 31 64;
    }
    delete_fte_in 0x40 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        OTHER_VPORT 0x8 31 1;
        VPORT_NUMBER 0x8 15 16;
        TABLE_TYPE 0x10 31 8;
        TABLE_ID 0x14 23 24;
        FLOW_INDEX 0x20 31 32;
    }
    delete_fte_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    fte_match_set_lyr_2_4 0x40 {
        SMAC_47_16 0x0 31 32;
        SMAC_15_0 0x4 31 16;
        ETHERTYPE 0x4 15 16;
        DMAC_47_16 0x8 31 32;
        DMAC_15_0 0xc 31 16;
        FIRST_PRIO 0xc 15 3;
        FIRST_CFI 0xc 12 1;
        FIRST_VID 0xc 11 12;
        IP_PROTOCOL 0x10 31 8;
        IP_DSCP 0x10 23 6;
        IP_ECN 0x10 17 2;
        CVLAN_TAG 0x10 15 1;
        SVLAN_TAG 0x10 14 1;
        FRAG 0x10 13 1;
        IP_VERSION 0x10 12 4;
        TCP_FLAGS 0x10 8 9;
        TCP_SPORT 0x14 31 16;
        TCP_DPORT 0x14 15 16;
        IPV4_IHL 0x18 15 4;
        TTL_HOPLIMIT 0x18 7 8;
        UDP_SPORT 0x1c 31 16;
        UDP_DPORT 0x1c 15 16;
        SRC_IPV4_SRC_IPV6 0x20 31 128;
        DST_IPV4_DST_IPV6 0x30 31 128;
    }
    fte_match_param 0x200 {
        OUTER_HEADERS 0x0 31 512 = fte_match_set_lyr_2_4;
        MISC_PARAMETERS 0x40 31 512;
        INNER_HEADERS 0x80 31 512 = fte_match_set_lyr_2_4;
        MISC_PARAMETERS_2 0xc0 31 512 = fte_match_set_misc2;
        MISC_PARAMETERS_3 0x100 31 512;
        MISC_PARAMETERS_4 0x140 31 512;
        MISC_PARAMETERS_5 0x180 31 512;
    }
    alloc_flow_counter_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        FLOW_COUNTER_BULK_LOG_SIZE 0xc 12 5;
        FLOW_COUNTER_BULK 0xc 7 8;
    }
    alloc_flow_counter_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        FLOW_COUNTER_ID 0x8 31 32;
    }
    dealloc_flow_counter_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        FLOW_COUNTER_ID 0x8 31 32;
    }
    dealloc_flow_counter_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    query_flow_counter_in 0x20 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        CLEAR 0x18 31 1;
        DUMP_TO_MEMORY 0x18 30 1;
        NUM_OF_COUNTERS 0x18 15 16;
        FLOW_COUNTER_ID 0x1c 31 32;
    }
    query_flow_counter_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    flow_counter_list 0x8 {
        FLOW_COUNTER_ID 0x0 31 32;
    }
}
