//! Queues of Ethernet: send and receive queues of their own, and what packets reach them by (TIS,
//! TIR, RQT).
//!
//! Field order as `mlx5_ifc.h` in Linux 6.1 has it: the byte offset of the field's dword, its top
//! bit in that dword, its width in bits. Reserved bits are left out; they are written as zero.

use super::layout;

layout! {
    sqc 0xf0 {
        RLKY 0x0 31 1;
        CD_MASTER 0x0 30 1;
        FRE 0x0 29 1;
        FLUSH_IN_ERROR_EN 0x0 28 1;
        ALLOW_MULTI_PKT_SEND_WQE 0x0 27 1;
        MIN_WQE_INLINE_MODE 0x0 26 3;
        STATE 0x0 23 4;
        REG_UMR 0x0 19 1;
        ALLOW_SWP 0x0 18 1;
        HAIRPIN 0x0 17 1;
        TS_FORMAT 0x0 5 2;
        USER_INDEX 0x4 23 24;
        CQN 0x8 23 24;
        HAIRPIN_PEER_RQ 0xc 23 24;
        HAIRPIN_PEER_VHCA 0x10 15 16;
        TS_CQE_TO_DEST_CQN 0x18 23 24;
        PACKET_PACING_RATE_LIMIT_INDEX 0x1c 15 16;
        TIS_LST_SZ 0x20 31 16;
        QOS_QUEUE_GROUP_ID 0x20 15 16;
        TIS_NUM_0 0x2c 23 24;
        WQ 0x30 31 1536 = wq;
    }
    rqc 0xf0 {
        RLKY 0x0 31 1;
        DELAY_DROP_EN 0x0 30 1;
        SCATTER_FCS 0x0 29 1;
        VSD 0x0 28 1;
        MEM_RQ_TYPE 0x0 27 4;
        STATE 0x0 23 4;
        FLUSH_IN_ERROR_EN 0x0 18 1;
        HAIRPIN 0x0 17 1;
        TS_FORMAT 0x0 5 2;
        USER_INDEX 0x4 23 24;
        CQN 0x8 23 24;
        COUNTER_SET_ID 0xc 31 8;
        RMPN 0x10 23 24;
        HAIRPIN_PEER_SQ 0x14 23 24;
        HAIRPIN_PEER_VHCA 0x18 15 16;
        SHAMPO_NO_MATCH_ALIGNMENT_GRANULARITY 0x24 25 2;
        SHAMPO_MATCH_CRITERIA_TYPE 0x24 17 2;
        RESERVATION_TIMEOUT 0x24 15 16;
        WQ 0x30 31 1536 = wq;
    }
    create_sq_in 0x110 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        CTX 0x20 31 1920 = sqc;
    }
    create_sq_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        SQN 0x8 23 24;
    }
    modify_sq_in 0x110 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        SQ_STATE 0x8 31 4;
        SQN 0x8 23 24;
        MODIFY_BITMASK 0x10 31 64;
        CTX 0x20 31 1920 = sqc;
    }
    modify_sq_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    set_pp_rate_limit_context 0x30 {
        RATE_LIMIT 0x0 31 32;
        BURST_UPPER_BOUND 0x4 31 32;
        TYPICAL_PACKET_SIZE 0x8 15 16;
    }
    set_pp_rate_limit_in 0x40 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        RATE_LIMIT_INDEX 0x8 15 16;
        CTX 0x10 31 384 = set_pp_rate_limit_context;
    }
    set_pp_rate_limit_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    query_sq_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        SQN 0x8 23 24;
    }
    query_sq_out 0x110 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        SQ_CONTEXT 0x20 31 1920 = sqc;
    }
    destroy_sq_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        SQN 0x8 23 24;
    }
    destroy_sq_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    create_rq_in 0x110 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        CTX 0x20 31 1920 = rqc;
    }
    create_rq_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        RQN 0x8 23 24;
    }
    modify_rq_in 0x110 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        RQ_STATE 0x8 31 4;
        RQN 0x8 23 24;
        MODIFY_BITMASK 0x10 31 64;
        CTX 0x20 31 1920 = rqc;
    }
    modify_rq_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    query_rq_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        RQN 0x8 23 24;
    }
    query_rq_out 0x110 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        RQ_CONTEXT 0x20 31 1920 = rqc;
    }
    destroy_rq_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        RQN 0x8 23 24;
    }
    destroy_rq_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    tisc 0xa0 {
        STRICT_LAG_TX_PORT_AFFINITY 0x0 31 1;
        TLS_EN 0x0 30 1;
        LAG_TX_PORT_AFFINITY 0x0 27 4;
        PRIO 0x0 19 4;
        TRANSPORT_DOMAIN 0x24 23 24;
        UNDERLAY_QPN 0x28 23 24;
        PD 0x2c 23 24;
    }
    create_tis_in 0xc0 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        CTX 0x20 31 1280 = tisc;
    }
    create_tis_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        TISN 0x8 23 24;
    }
    destroy_tis_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        TISN 0x8 23 24;
    }
    destroy_tis_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    query_tis_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        TISN 0x8 23 24;
    }
    query_tis_out 0xb0 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        TIS_CONTEXT 0x10 31 1280 = tisc;
    }
    modify_tis_bitmask 0x8 {
        LAG_TX_PORT_AFFINITY 0x4 2 1;
        STRICT_LAG_TX_PORT_AFFINITY 0x4 1 1;
        PRIO 0x4 0 1;
    }
    modify_tis_in 0xc0 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        TISN 0x8 23 24;
        BITMASK 0x10 31 64 = modify_tis_bitmask;
        CTX 0x20 31 1280 = tisc;
    }
    modify_tis_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    tirc 0xf0 {
        DISP_TYPE 0x4 31 4;
        TLS_EN 0x4 27 1;
        LRO_TIMEOUT_PERIOD_USECS 0x10 27 16;
        PACKET_MERGE_MASK 0x10 11 4;
        LRO_MAX_IP_PAYLOAD_SIZE 0x10 7 8;
        INLINE_RQN 0x1c 23 24;
        RX_HASH_SYMMETRIC 0x20 31 1;
        TUNNELED_OFFLOAD_EN 0x20 29 1;
        INDIRECT_TABLE 0x20 23 24;
        RX_HASH_FN 0x24 31 4;
        SELF_LB_BLOCK 0x24 25 2;
        TRANSPORT_DOMAIN 0x24 23 24;
        RX_HASH_TOEPLITZ_KEY 0x28 31 320;
        RX_HASH_FIELD_SELECTOR_OUTER 0x50 31 32 = rx_hash_field_select;
        RX_HASH_FIELD_SELECTOR_INNER 0x54 31 32 = rx_hash_field_select;
    }
    rx_hash_field_select 0x4 {
        L3_PROT_TYPE 0x0 31 1;
        L4_PROT_TYPE 0x0 30 1;
        SELECTED_FIELDS 0x0 29 30;
    }
    create_tir_in 0x110 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        CTX 0x20 31 1920 = tirc;
    }
    create_tir_out 0x10 {
        STATUS 0x0 31 8;
        ICM_ADDRESS_63_40 0x0 23 24;
        SYNDROME 0x4 31 32;
        ICM_ADDRESS_39_32 0x8 31 8;
        TIRN 0x8 23 24;
        ICM_ADDRESS_31_0 0xc 31 32;
    }
    destroy_tir_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        TIRN 0x8 23 24;
    }
    destroy_tir_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    query_tir_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        TIRN 0x8 23 24;
    }
    query_tir_out 0x110 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        TIR_CONTEXT 0x20 31 1920 = tirc;
    }
    modify_tir_bitmask 0x8 {
        SELF_LB_EN 0x4 4 1;
        HASH 0x4 2 1;
        INDIRECT_TABLE 0x4 1 1;
        PACKET_MERGE 0x4 0 1;
    }
    modify_tir_in 0x110 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        TIRN 0x8 23 24;
        BITMASK 0x10 31 64 = modify_tir_bitmask;
        CTX 0x20 31 1920 = tirc;
    }
    modify_tir_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    rqtc 0xf0 {
        LIST_Q_TYPE 0x14 26 3;
        RQT_MAX_SIZE 0x14 15 16;
        RQ_VHCA_ID_FORMAT 0x18 31 1;
        RQT_ACTUAL_SIZE 0x18 15 16;
        RQ_NUM 0xf0 31 32;
    }
    rq_num 0x4 {
        RQ_NUM 0x0 23 24;
    }
    create_rqt_in 0x110 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        RQT_CONTEXT 0x20 31 1920 = rqtc;
    }
    create_rqt_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        RQTN 0x8 23 24;
    }
    destroy_rqt_in 0x10 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        RQTN 0x8 23 24;
    }
    destroy_rqt_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    query_rqt_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        RQTN 0x8 23 24;
    }
    query_rqt_out 0x110 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        RQT_CONTEXT 0x20 31 1920 = rqtc;
    }
    rqt_bitmask 0x8 {
        RQN_LIST 0x4 0 1;
    }
    modify_rqt_in 0x110 {
        OPCODE 0x0 31 16;
        UID 0x0 15 16;
        OP_MOD 0x4 15 16;
        RQTN 0x8 23 24;
        BITMASK 0x10 31 64 = rqt_bitmask;
        CTX 0x20 31 1920 = rqtc;
    }
    modify_rqt_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    per_protocol_networking_offload_caps 0x100 {
        CSUM_CAP 0x0 31 1;
        VLAN_CAP 0x0 30 1;
        LRO_CAP 0x0 29 1;
        LRO_PSH_FLAG 0x0 28 1;
        LRO_TIME_STAMP 0x0 27 1;
        WQE_VLAN_INSERT 0x0 24 1;
        SELF_LB_EN_MODIFIABLE 0x0 23 1;
        MAX_LSO_CAP 0x0 20 5;
        MULTI_PKT_SEND_WQE 0x0 15 2;
        WQE_INLINE_MODE 0x0 13 2;
        RSS_IND_TBL_CAP 0x0 11 4;
        REG_UMR_SQ 0x0 7 1;
        SCATTER_FCS 0x0 6 1;
        ENHANCED_MULTI_PKT_SEND_WQE 0x0 5 1;
        TUNNEL_LSO_CONST_OUT_IP_ID 0x0 4 1;
        TUNNEL_LRO_GRE 0x0 3 1;
        TUNNEL_LRO_VXLAN 0x0 2 1;
        TUNNEL_STATELESS_GRE 0x0 1 1;
        TUNNEL_STATELESS_VXLAN 0x0 0 1;
        SWP 0x4 31 1;
        SWP_CSUM 0x4 30 1;
        SWP_LSO 0x4 29 1;
        CQE_CHECKSUM_FULL 0x4 28 1;
        TUNNEL_STATELESS_GENEVE_TX 0x4 27 1;
        TUNNEL_STATELESS_MPLS_OVER_UDP 0x4 26 1;
        TUNNEL_STATELESS_MPLS_OVER_GRE 0x4 25 1;
        TUNNEL_STATELESS_VXLAN_GPE 0x4 24 1;
        TUNNEL_STATELESS_IPV4_OVER_VXLAN 0x4 23 1;
        TUNNEL_STATELESS_IP_OVER_IP 0x4 22 1;
        INSERT_TRAILER 0x4 21 1;
        TUNNEL_STATELESS_IP_OVER_IP_RX 0x4 19 1;
        TUNNEL_STATELESS_IP_OVER_IP_TX 0x4 18 1;
        MAX_VXLAN_UDP_PORTS 0x4 15 8;
        MAX_GENEVE_OPT_LEN 0x4 1 1;
        TUNNEL_STATELESS_GENEVE_RX 0x4 0 1;
        LRO_MIN_MSS_SIZE 0x8 15 16;
        LRO_TIMER_SUPPORTED_PERIODS 0x30 31 128;
    }
}
