//! Commands that ask about the function itself: its virtual port, its counters, what congestion and
//! bonding do to it; and the header of commands on objects.
//!
//! Field order as `mlx5_ifc.h` in Linux 6.1 has it: the byte offset of the field's dword, its top
//! bit in that dword, its width in bits. Reserved bits are left out; they are written as zero.

use super::layout;

layout! {
    query_issi_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
    }
    query_issi_out 0x70 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        CURRENT_ISSI 0x8 15 16;
        SUPPORTED_ISSI_DW0 0x6c 31 32;
    }
    query_vport_state_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        OTHER_VPORT 0x8 31 1;
        VPORT_NUMBER 0x8 15 16;
    }
    query_vport_state_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        ADMIN_STATE 0xc 7 4;
        STATE 0xc 3 4;
    }
    query_nic_vport_context_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        OTHER_VPORT 0x8 31 1;
        VPORT_NUMBER 0x8 15 16;
        ALLOWED_LIST_TYPE 0xc 26 3;
    }
    query_nic_vport_context_out 0x110 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        NIC_VPORT_CONTEXT 0x10 31 2048 = nic_vport_context;
    }
    nic_vport_context 0x100 {
        MIN_WQE_INLINE_MODE 0x0 26 3;
        DISABLE_MC_LOCAL_LB 0x0 2 1;
        DISABLE_UC_LOCAL_LB 0x0 1 1;
        ROCE_EN 0x0 0 1;
        ARM_CHANGE_EVENT 0x4 31 1;
        EVENT_ON_MTU 0x4 4 1;
        EVENT_ON_PROMISC_CHANGE 0x4 3 1;
        EVENT_ON_VLAN_CHANGE 0x4 2 1;
        EVENT_ON_MC_ADDRESS_CHANGE 0x4 1 1;
        EVENT_ON_UC_ADDRESS_CHANGE 0x4 0 1;
        VHCA_ID_TYPE 0x8 31 1;
        AFFILIATION_CRITERIA 0x8 19 4;
        AFFILIATED_VHCA_ID 0x8 15 16;
        MTU 0x24 15 16;
        SYSTEM_IMAGE_GUID 0x28 31 64;
        PORT_GUID 0x30 31 64;
        NODE_GUID 0x38 31 64;
        QKEY_VIOLATION_COUNTER 0x68 31 16;
        PROMISC_UC 0xf0 31 1;
        PROMISC_MC 0xf0 30 1;
        PROMISC_ALL 0xf0 29 1;
        ALLOWED_LIST_TYPE 0xf0 26 3;
        ALLOWED_LIST_SIZE 0xf0 11 12;
        PERMANENT_ADDRESS 0xf4 31 64 = mac_address_layout;
        CURRENT_UC_MAC_ADDRESS 0x100 31 64;
    }
    mac_address_layout 0x8 {
        MAC_ADDR_47_32 0x0 15 16;
        MAC_ADDR_31_0 0x4 31 32;
    }
    vlan_layout 0x8 {
        VLAN 0x0 11 12;
    }
    query_vport_counter_in 0x20 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        OTHER_VPORT 0x8 31 1;
        PORT_NUM 0x8 19 4;
        VPORT_NUMBER 0x8 15 16;
        CLEAR 0x18 31 1;
    }
    query_vport_counter_out 0x210 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        RECEIVED_ERRORS 0x10 31 128 = traffic_counter;
        TRANSMIT_ERRORS 0x20 31 128 = traffic_counter;
        RECEIVED_IB_UNICAST 0x30 31 128 = traffic_counter;
        TRANSMITTED_IB_UNICAST 0x40 31 128 = traffic_counter;
        RECEIVED_IB_MULTICAST 0x50 31 128 = traffic_counter;
        TRANSMITTED_IB_MULTICAST 0x60 31 128 = traffic_counter;
        RECEIVED_ETH_BROADCAST 0x70 31 128 = traffic_counter;
        TRANSMITTED_ETH_BROADCAST 0x80 31 128 = traffic_counter;
        RECEIVED_ETH_UNICAST 0x90 31 128 = traffic_counter;
        TRANSMITTED_ETH_UNICAST 0xa0 31 128 = traffic_counter;
        RECEIVED_ETH_MULTICAST 0xb0 31 128 = traffic_counter;
        TRANSMITTED_ETH_MULTICAST 0xc0 31 128 = traffic_counter;
    }
    traffic_counter 0x10 {
        PACKETS 0x0 31 64;
        OCTETS 0x8 31 64;
    }
    query_lag_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
    }
    query_lag_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        CTX 0x8 31 64 = lagc;
    }
    lagc 0x8 {
        FDB_SELECTION_MODE 0x0 31 1;
        PORT_SELECT_MODE 0x0 10 3;
        LAG_STATE 0x0 2 3;
        ACTIVE_PORT 0x4 19 4;
        TX_REMAP_AFFINITY_2 0x4 11 4;
        TX_REMAP_AFFINITY_1 0x4 3 4;
    }
    query_cong_status_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        PRIORITY 0x8 7 4;
        CONG_PROTOCOL 0x8 3 4;
    }
    query_cong_status_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        ENABLE 0xc 31 1;
        TAG_ENABLE 0xc 30 1;
    }
    query_cong_params_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        CONG_PROTOCOL 0x8 3 4;
    }
    query_cong_params_out 0x110 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        CONGESTION_PARAMETERS 0x10 31 2048;
    }
    cong_control_r_roce_ecn_np 0x100 {
        MIN_TIME_BETWEEN_CNPS 0x14 31 32;
        CNP_DSCP 0x18 13 6;
        CNP_PRIO_MODE 0x18 3 1;
        CNP_802P_PRIO 0x18 2 3;
    }
    cong_control_r_roce_ecn_rp 0x100 {
        CLAMP_TGT_RATE 0xc 27 1;
        CLAMP_TGT_RATE_AFTER_TIME_INC 0xc 23 1;
        RPG_TIME_RESET 0x14 31 32;
        RPG_BYTE_RESET 0x18 31 32;
        RPG_THRESHOLD 0x1c 31 32;
        RPG_MAX_RATE 0x20 31 32;
        RPG_AI_RATE 0x24 31 32;
        RPG_HAI_RATE 0x28 31 32;
        RPG_GD 0x2c 31 32;
        RPG_MIN_DEC_FAC 0x30 31 32;
        RPG_MIN_RATE 0x34 31 32;
        RATE_TO_SET_ON_FIRST_CNP 0x54 31 32;
        DCE_TCP_G 0x58 31 32;
        DCE_TCP_RTT 0x5c 31 32;
        RATE_REDUCE_MONITOR_PERIOD 0x60 31 32;
        INITIAL_ALPHA_VALUE 0x68 31 32;
    }
    query_cong_statistics_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        CLEAR 0x8 31 1;
    }
    query_cong_statistics_out 0x110 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        RP_CUR_FLOWS 0x10 31 32;
        SUM_FLOWS 0x14 31 32;
        RP_CNP_IGNORED_HIGH 0x18 31 32;
        RP_CNP_IGNORED_LOW 0x1c 31 32;
        RP_CNP_HANDLED_HIGH 0x20 31 32;
        RP_CNP_HANDLED_LOW 0x24 31 32;
        TIME_STAMP_HIGH 0x48 31 32;
        TIME_STAMP_LOW 0x4c 31 32;
        ACCUMULATORS_PERIOD 0x50 31 32;
        NP_ECN_MARKED_ROCE_PACKETS_HIGH 0x54 31 32;
        NP_ECN_MARKED_ROCE_PACKETS_LOW 0x58 31 32;
        NP_CNP_SENT_HIGH 0x5c 31 32;
        NP_CNP_SENT_LOW 0x60 31 32;
    }
    query_vnic_env_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        OTHER_VPORT 0x8 31 1;
        VPORT_NUMBER 0x8 15 16;
    }
    query_vnic_env_out 0x210 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        VPORT_ENV 0x10 31 4096 = vnic_diagnostic_statistics;
    }
    vnic_diagnostic_statistics 0x200 {
        COUNTER_ERROR_QUEUES 0x0 31 32;
        TOTAL_ERROR_QUEUES 0x4 31 32;
        SEND_QUEUE_PRIORITY_UPDATE_FLOW 0x8 31 32;
        NIC_RECEIVE_STEERING_DISCARD 0x10 31 64;
        RECEIVE_DISCARD_VPORT_DOWN 0x18 31 64;
        TRANSMIT_DISCARD_VPORT_DOWN 0x20 31 64;
        ASYNC_EQ_OVERRUN 0x28 31 32;
        COMP_EQ_OVERRUN 0x2c 31 32;
        INVALID_COMMAND 0x34 31 32;
        QUOTA_EXCEEDED_COMMAND 0x38 31 32;
        INTERNAL_RQ_OUT_OF_BUFFER 0x3c 31 32;
        CQ_OVERRUN 0x40 31 32;
        ETH_WQE_TOO_SMALL 0x44 31 32;
    }
    nop_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
    }
    nop_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    general_obj_in_cmd_hdr 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        VHCA_TUNNEL_ID 0x4 31 16;
        OBJ_TYPE 0x4 15 16;
        OBJ_ID 0x8 31 32;
        LOG_OBJ_RANGE 0xc 28 5;
    }
    general_obj_out_cmd_hdr 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        OBJ_ID 0x8 31 32;
    }
    roce_addr_layout 0x20 {
        SOURCE_L3_ADDRESS 0x0 31 128;
        VLAN_VALID 0x10 28 1;
        VLAN_ID 0x10 27 12;
        SOURCE_MAC_47_32 0x10 15 16;
        SOURCE_MAC_31_0 0x14 31 32;
        ROCE_L3_TYPE 0x18 11 4;
        ROCE_VERSION 0x18 7 8;
    }
}
