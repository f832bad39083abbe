//! Commands on the function itself: capabilities, port, GID table.
//!
//! Field order as `mlx5_ifc.h` in Linux 6.1 has it: the byte offset of the field's dword, its top
//! bit in that dword, its width in bits. Reserved bits are left out; they are written as zero.

use super::layout;

layout! {
    cmd_in 0x8 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        COMMAND 0x8 31 32;
    }
    cmd_out 0xc {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        COMMAND_OUTPUT 0x8 31 32;
    }
    query_hca_cap_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        OTHER_FUNCTION 0x8 31 1;
        FUNCTION_ID 0x8 15 16;
    }
    query_hca_cap_out 0x1010 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        CAPABILITY 0x10 31 32768;
    }
    cmd_hca_cap 0x100 {
        SHARED_OBJECT_TO_USER_OBJECT_ALLOWED 0x0 15 1;
        VHCA_RESOURCE_MANAGER 0x0 0 1;
        HCA_CAP_2 0x4 31 1;
        CREATE_LAG_WHEN_NOT_MASTER_UP 0x4 30 1;
        DTOR 0x4 29 1;
        EVENT_ON_VHCA_STATE_TEARDOWN_REQUEST 0x4 28 1;
        EVENT_ON_VHCA_STATE_IN_USE 0x4 27 1;
        EVENT_ON_VHCA_STATE_ACTIVE 0x4 26 1;
        EVENT_ON_VHCA_STATE_ALLOCATED 0x4 25 1;
        EVENT_ON_VHCA_STATE_INVALID 0x4 24 1;
        VHCA_ID 0x4 15 16;
        LOG_DMA_MMO_MAX_SIZE 0xc 20 5;
        LOG_MAX_SRQ_SZ 0x10 31 8;
        LOG_MAX_QP_SZ 0x10 23 8;
        EVENT_CAP 0x10 15 1;
        ISOLATE_VL_TC_NEW 0x10 12 1;
        PRIO_TAG_REQUIRED 0x10 7 1;
        LOG_MAX_QP 0x10 4 5;
        ECE_SUPPORT 0x14 28 1;
        REG_C_PRESERVE 0x14 22 1;
        LOG_MAX_SRQ 0x14 20 5;
        UPLINK_FOLLOW 0x14 14 1;
        TS_CQE_TO_DEST_CQN 0x14 13 1;
        SHAMPO 0x14 5 1;
        MAX_SGL_FOR_OPTIMIZED_PERFORMANCE 0x18 31 8;
        LOG_MAX_CQ_SZ 0x18 23 8;
        RELAXED_ORDERING_WRITE_UMR 0x18 15 1;
        RELAXED_ORDERING_READ_UMR 0x18 14 1;
        VIRTIO_NET_DEVICE_EMUALTION_MANAGER 0x18 6 1;
        VIRTIO_BLK_DEVICE_EMUALTION_MANAGER 0x18 5 1;
        ACCESS_REGISTER_USER 0x18 13 1;
        LOG_MAX_CQ 0x18 4 5;
        LOG_MAX_EQ_SZ 0x1c 31 8;
        RELAXED_ORDERING_WRITE 0x1c 23 1;
        RELAXED_ORDERING_READ 0x1c 22 1;
        LOG_MAX_MKEY 0x1c 21 6;
        DUMP_FILL_MKEY 0x1c 7 1;
        FAST_TEARDOWN 0x1c 4 1;
        LOG_MAX_EQ 0x1c 3 4;
        MAX_INDIRECTION 0x20 31 8;
        FIXED_BUFFER_SIZE 0x20 23 1;
        LOG_MAX_MRW_SZ 0x20 22 7;
        FORCE_TEARDOWN 0x20 15 1;
        LOG_MAX_BSF_LIST_SIZE 0x20 13 6;
        UMR_EXTENDED_TRANSLATION_OFFSET 0x20 7 1;
        NULL_MKEY 0x20 6 1;
        LOG_MAX_KLM_LIST_SIZE 0x20 5 6;
        QPC_EXTENSION 0x24 29 1;
        LOG_MAX_RA_REQ_DC 0x24 21 6;
        ETH_WQE_TOO_SMALL 0x24 13 1;
        VNIC_ENV_CQ_OVERRUN 0x24 6 1;
        LOG_MAX_RA_RES_DC 0x24 5 6;
        RELEASE_ALL_PAGES 0x28 26 1;
        MUST_NOT_USE 0x28 25 1;
        ROCE_ACCL 0x28 22 1;
        LOG_MAX_RA_REQ_QP 0x28 21 6;
        DMA_MMO_SQ 0x28 12 1;
        LOG_MAX_RA_RES_QP 0x28 5 6;
        END_PAD 0x2c 31 1;
        CC_QUERY_ALLOWED 0x2c 30 1;
        CC_MODIFY_ALLOWED 0x2c 29 1;
        START_PAD 0x2c 28 1;
        CACHE_LINE_128BYTE 0x2c 27 1;
        RTS2RTS_QP_COUNTERS_SET_ID 0x2c 22 1;
        VNIC_ENV_INT_RQ_OOB 0x2c 19 1;
        SBCAM_REG 0x2c 18 1;
        QCAM_REG 0x2c 16 1;
        GID_TABLE_SIZE 0x2c 15 16;
        OUT_OF_SEQ_CNT 0x30 31 1;
        VPORT_COUNTERS 0x30 30 1;
        RETRANSMISSION_Q_COUNTERS 0x30 29 1;
        DEBUG 0x30 28 1;
        MODIFY_RQ_COUNTER_SET_ID 0x30 27 1;
        RQ_DELAY_DROP 0x30 26 1;
        MAX_QP_CNT 0x30 25 10;
        PKEY_TABLE_SIZE 0x30 15 16;
        VPORT_GROUP_MANAGER 0x34 31 1;
        VHCA_GROUP_MANAGER 0x34 30 1;
        IB_VIRT 0x34 29 1;
        ETH_VIRT 0x34 28 1;
        VNIC_ENV_QUEUE_COUNTERS 0x34 27 1;
        ETS 0x34 26 1;
        NIC_FLOW_TABLE 0x34 25 1;
        ESWITCH_MANAGER 0x34 24 1;
        DEVICE_MEMORY 0x34 23 1;
        MCAM_REG 0x34 22 1;
        PCAM_REG 0x34 21 1;
        LOCAL_CA_ACK_DELAY 0x34 20 5;
        PORT_MODULE_EVENT 0x34 15 1;
        ENHANCED_ERROR_Q_COUNTERS 0x34 14 1;
        PORTS_CHECK 0x34 13 1;
        DISABLE_LINK_UP 0x34 11 1;
        BEACON_LED 0x34 10 1;
        PORT_TYPE 0x34 9 2;
        NUM_PORTS 0x34 7 8;
        PPS 0x38 30 1;
        PPS_MODIFY 0x38 29 1;
        LOG_MAX_MSG 0x38 28 5;
        MAX_TC 0x38 19 4;
        TEMP_WARN_EVENT 0x38 15 1;
        DCBX 0x38 14 1;
        GENERAL_NOTIFICATION_EVENT 0x38 13 1;
        FPGA 0x38 10 1;
        ROL_S 0x38 9 1;
        ROL_G 0x38 8 1;
        WOL_S 0x38 6 1;
        WOL_G 0x38 5 1;
        WOL_A 0x38 4 1;
        WOL_B 0x38 3 1;
        WOL_M 0x38 2 1;
        WOL_U 0x38 1 1;
        WOL_P 0x38 0 1;
        STAT_RATE_SUPPORT 0x3c 31 16;
        PCI_SYNC_FOR_FW_UPDATE_EVENT 0x3c 14 1;
        INIT2_LAG_TX_PORT_AFFINITY 0x3c 7 1;
        CQE_VERSION 0x3c 3 4;
        COMPACT_ADDRESS_VECTOR 0x40 31 1;
        STRIDING_RQ 0x40 30 1;
        IPOIB_ENHANCED_OFFLOADS 0x40 28 1;
        IPOIB_BASIC_OFFLOADS 0x40 27 1;
        REPEATED_BLOCK_DISABLED 0x40 25 1;
        UMR_MODIFY_ENTITY_SIZE_DISABLED 0x40 24 1;
        UMR_MODIFY_ATOMIC_DISABLED 0x40 23 1;
        UMR_INDIRECT_MKEY_DISABLED 0x40 22 1;
        UMR_FENCE 0x40 21 2;
        DC_REQ_SCAT_DATA_CQE 0x40 19 1;
        DRAIN_SIGERR 0x40 16 1;
        CMDIF_CHECKSUM 0x40 15 2;
        SIGERR_CQE 0x40 13 1;
        WQ_SIGNATURE 0x40 11 1;
        SCTR_DATA_CQE 0x40 10 1;
        SHO 0x40 8 1;
        TPH 0x40 7 1;
        RF 0x40 6 1;
        DCT 0x40 5 1;
        QOS 0x40 4 1;
        ETH_NET_OFFLOADS 0x40 3 1;
        ROCE 0x40 2 1;
        ATOMIC 0x40 1 1;
        CQ_OI 0x44 31 1;
        CQ_RESIZE 0x44 30 1;
        CQ_MODERATION 0x44 29 1;
        CQ_EQ_REMAP 0x44 25 1;
        PG 0x44 24 1;
        BLOCK_LB_MC 0x44 23 1;
        SCQE_BREAK_MODERATION 0x44 21 1;
        CQ_PERIOD_START_FROM_CQE 0x44 20 1;
        CD 0x44 19 1;
        APM 0x44 17 1;
        VECTOR_CALC 0x44 16 1;
        UMR_PTR_RLKY 0x44 15 1;
        IMAICL 0x44 14 1;
        QP_PACKET_BASED 0x44 13 1;
        QKV 0x44 9 1;
        PKV 0x44 8 1;
        SET_DETH_SQPN 0x44 7 1;
        XRC 0x44 3 1;
        UD 0x44 2 1;
        UC 0x44 1 1;
        RC 0x44 0 1;
        UAR_4K 0x48 31 1;
        FL_RC_QP_WHEN_ROCE_DISABLED 0x48 23 1;
        REGEXP_PARAMS 0x48 22 1;
        UAR_SZ 0x48 21 6;
        PORT_SELECTION_CAP 0x48 15 1;
        UMEM_UID_0 0x48 13 1;
        LOG_PG_SZ 0x48 7 8;
        BF 0x4c 31 1;
        DRIVER_VERSION 0x4c 30 1;
        PAD_TX_ETH_PACKET 0x4c 29 1;
        MKEY_BY_NAME 0x4c 25 1;
        LOG_BF_REG_SIZE 0x4c 20 5;
        QP_ERROR_SYNDROME 0x4c 12 1;
        LAG_DCT 0x4c 9 2;
        LAG_TX_PORT_AFFINITY 0x4c 7 1;
        LAG_NATIVE_FDB_SELECTION 0x4c 6 1;
        LAG_MASTER 0x4c 4 1;
        NUM_LAG_PORTS 0x4c 3 4;
        MAX_WQE_SZ_SQ 0x50 15 16;
        MAX_WQE_SZ_RQ 0x54 15 16;
        MAX_FLOW_COUNTER_31_16 0x58 31 16;
        MAX_WQE_SZ_SQ_DC 0x58 15 16;
        MAX_QP_MCG 0x5c 24 25;
        FLOW_COUNTER_BULK_ALLOC 0x60 15 8;
        LOG_MAX_MCG 0x60 7 8;
        LOG_MAX_TRANSPORT_DOMAIN 0x64 28 5;
        LOG_MAX_PD 0x64 20 5;
        LOG_MAX_XRCD 0x64 4 5;
        NIC_RECEIVE_STEERING_DISCARD 0x68 31 1;
        RECEIVE_DISCARD_VPORT_DOWN 0x68 30 1;
        TRANSMIT_DISCARD_VPORT_DOWN 0x68 29 1;
        EQ_OVERRUN_COUNT 0x68 28 1;
        INVALID_COMMAND_COUNT 0x68 26 1;
        QUOTA_EXCEEDED_COUNT 0x68 25 1;
        LOG_MAX_FLOW_COUNTER_BULK 0x68 23 8;
        MAX_FLOW_COUNTER_15_0 0x68 15 16;
        LOG_MAX_RQ 0x6c 28 5;
        LOG_MAX_SQ 0x6c 20 5;
        LOG_MAX_TIR 0x6c 12 5;
        LOG_MAX_TIS 0x6c 4 5;
        BASIC_CYCLIC_RCV_WQE 0x70 31 1;
        LOG_MAX_RMP 0x70 28 5;
        LOG_MAX_RQT 0x70 20 5;
        LOG_MAX_RQT_SIZE 0x70 12 5;
        LOG_MAX_TIS_PER_SQ 0x70 4 5;
        EXT_STRIDE_NUM_RANGE 0x74 31 1;
        ROCE_RW_SUPPORTED 0x74 30 1;
        LOG_MAX_CURRENT_UC_LIST_WR_SUPPORTED 0x74 29 1;
        LOG_MAX_STRIDE_SZ_RQ 0x74 28 5;
        LOG_MIN_STRIDE_SZ_RQ 0x74 20 5;
        LOG_MAX_STRIDE_SZ_SQ 0x74 12 5;
        LOG_MIN_STRIDE_SZ_SQ 0x74 4 5;
        HAIRPIN 0x78 31 1;
        LOG_MAX_HAIRPIN_QUEUES 0x78 28 5;
        LOG_MAX_HAIRPIN_WQ_DATA_SZ 0x78 20 5;
        LOG_MAX_HAIRPIN_NUM_PACKETS 0x78 12 5;
        LOG_MAX_WQ_SZ 0x78 4 5;
        NIC_VPORT_CHANGE_EVENT 0x7c 31 1;
        DISABLE_LOCAL_LB_UC 0x7c 30 1;
        DISABLE_LOCAL_LB_MC 0x7c 29 1;
        LOG_MIN_HAIRPIN_WQ_DATA_SZ 0x7c 28 5;
        VHCA_STATE 0x7c 21 1;
        LOG_MAX_VLAN_LIST 0x7c 20 5;
        LOG_MAX_CURRENT_MC_LIST 0x7c 12 5;
        LOG_MAX_CURRENT_UC_LIST 0x7c 4 5;
        GENERAL_OBJ_TYPES 0x80 31 64;
        SQ_TS_FORMAT 0x88 31 2;
        RQ_TS_FORMAT 0x88 29 2;
        STEERING_FORMAT_VERSION 0x88 27 4;
        CREATE_QP_START_HINT 0x88 23 24;
        ATS 0x8c 30 1;
        LOG_MAX_UCTX 0x8c 28 5;
        IPSEC_OFFLOAD 0x8c 21 1;
        LOG_MAX_UMEM 0x8c 20 5;
        MAX_NUM_EQS 0x8c 15 16;
        TLS_TX 0x90 30 1;
        TLS_RX 0x90 29 1;
        LOG_MAX_L2_TABLE 0x90 28 5;
        LOG_UAR_PAGE_SZ 0x90 15 16;
        DEVICE_FREQUENCY_MHZ 0x98 31 32;
        DEVICE_FREQUENCY_KHZ 0x9c 31 32;
        NUM_OF_UARS_PER_PAGE 0xa4 31 32;
        FLEX_PARSER_PROTOCOLS 0xa8 31 32;
        MAX_GENEVE_TLV_OPTIONS 0xac 31 8;
        MAX_GENEVE_TLV_OPTION_DATA_LEN 0xac 20 5;
        ADV_VIRTUALIZATION 0xac 6 1;
        LOG_MAX_DCI_STREAM_CHANNELS 0xb0 20 5;
        LOG_MAX_DCI_ERRORED_STREAMS 0xb0 12 5;
        ENHANCED_CQE_COMPRESSION 0xb4 15 1;
        LOG_MAX_DEK 0xb4 12 5;
        MINI_CQE_RESP_STRIDE_INDEX 0xb4 3 1;
        CQE_128_ALWAYS 0xb4 2 1;
        CQE_COMPRESSION_128 0xb4 1 1;
        CQE_COMPRESSION 0xb4 0 1;
        CQE_COMPRESSION_TIMEOUT 0xb8 31 16;
        CQE_COMPRESSION_MAX_NUM 0xb8 15 16;
        FLEX_PARSER_ID_GTPU_DW_0 0xbc 23 4;
        TAG_MATCHING 0xbc 15 1;
        RNDV_OFFLOAD_RC 0xbc 14 1;
        RNDV_OFFLOAD_DC 0xbc 13 1;
        LOG_TAG_MATCHING_LIST_SZ 0xbc 12 5;
        LOG_MAX_XRQ 0xbc 4 5;
        AFFILIATE_NIC_VPORT_CRITERIA 0xc0 31 8;
        NATIVE_PORT_NUM 0xc0 23 8;
        NUM_VHCA_PORTS 0xc0 15 8;
        FLEX_PARSER_ID_GTPU_TEID 0xc0 7 4;
        SW_OWNER_ID 0xc0 1 1;
        MAX_NUM_OF_MONITOR_COUNTERS 0xc4 31 16;
        NUM_PPCNT_MONITOR_COUNTERS 0xc4 15 16;
        MAX_NUM_SF 0xc8 31 16;
        NUM_Q_MONITOR_COUNTERS 0xc8 15 16;
        SF 0xd0 31 1;
        SF_SET_PARTITION 0xd0 30 1;
        LOG_MAX_SF 0xd0 28 5;
        APU 0xd0 23 1;
        WAIT_ON_TIME 0xd0 19 1;
        MIGRATION 0xd0 18 1;
        LOG_MIN_SF_SIZE 0xd0 15 8;
        MAX_NUM_SF_PARTITIONS 0xd0 7 8;
        UCTX_CAP 0xd4 31 32;
        FLEX_PARSER_ID_GENEVE_TLV_OPTION_0 0xd8 27 4;
        FLEX_PARSER_ID_ICMP_DW1 0xd8 23 4;
        FLEX_PARSER_ID_ICMP_DW0 0xd8 19 4;
        FLEX_PARSER_ID_ICMPV6_DW1 0xd8 15 4;
        FLEX_PARSER_ID_ICMPV6_DW0 0xd8 11 4;
        FLEX_PARSER_ID_OUTER_FIRST_MPLS_OVER_GRE 0xd8 7 4;
        FLEX_PARSER_ID_OUTER_FIRST_MPLS_OVER_UDP_LABEL 0xd8 3 4;
        MAX_NUM_MATCH_DEFINER 0xdc 31 16;
        SF_BASE_ID 0xdc 15 16;
        FLEX_PARSER_ID_GTPU_DW_2 0xe0 31 4;
        FLEX_PARSER_ID_GTPU_FIRST_EXT_DW_0 0xe0 27 4;
        NUM_TOTAL_DYNAMIC_VF_MSIX 0xe0 23 24;
        DYNAMIC_MSIX_TABLE_SIZE 0xe4 11 12;
        MIN_DYNAMIC_VF_MSIX_TABLE_SIZE 0xe8 19 4;
        MAX_DYNAMIC_VF_MSIX_TABLE_SIZE 0xe8 11 12;
        VHCA_TUNNEL_COMMANDS 0xf0 31 64;
        MATCH_DEFINER_FORMAT_SUPPORTED 0xf8 31 64;
    }
    cmd_hca_cap_2 0x100 {
        MAX_REFORMAT_INSERT_SIZE 0x14 31 8;
        MAX_REFORMAT_INSERT_OFFSET 0x14 23 8;
        MAX_REFORMAT_REMOVE_SIZE 0x14 15 8;
        MAX_REFORMAT_REMOVE_OFFSET 0x14 7 8;
        LOG_MIN_MKEY_ENTITY_SIZE 0x34 20 5;
        SW_VHCA_ID_VALID 0x44 30 1;
        SW_VHCA_ID 0x44 29 14;
        TS_CQE_METADATA_SIZE2WQE_COUNTER 0x48 20 5;
        SEND_DBR_MODE_NO_DBR_INT 0x5c 31 1;
        SEND_DBR_MODE_NO_DBR_EXT 0x5c 30 1;
        LOG_MAX_SEND_DBR_LESS_QP_SQ 0x5c 28 5;
    }
    atomic_caps 0x100 {
        ATOMIC_REQ_8B_ENDIANNESS_MODE 0x8 31 2;
        SUPPORTED_ATOMIC_REQ_8B_ENDIANNESS_MODE_1 0x8 25 1;
        ATOMIC_OPERATIONS 0x10 15 16;
        ATOMIC_SIZE_QP 0x14 15 16;
        ATOMIC_SIZE_DC 0x18 15 16;
    }
    device_mem_cap 0x100 {
        MEMIC 0x0 31 1;
        LOG_MIN_MEMIC_ALLOC_SIZE 0x4 20 5;
        LOG_MAX_MEMIC_ADDR_ALIGNMENT 0x4 7 8;
        MEMIC_BAR_START_ADDR 0x8 31 64;
        MEMIC_BAR_SIZE 0x10 31 32;
        MAX_MEMIC_SIZE 0x14 31 32;
        STEERING_SW_ICM_START_ADDRESS 0x18 31 64;
        LOG_HEADER_MODIFY_SW_ICM_SIZE 0x20 23 8;
        LOG_SW_ICM_ALLOC_GRANULARITY 0x20 13 6;
        LOG_STEERING_SW_ICM_SIZE 0x20 7 8;
        LOG_HEADER_MODIFY_PATTERN_SW_ICM_SIZE 0x24 7 8;
        HEADER_MODIFY_SW_ICM_START_ADDRESS 0x28 31 64;
        HEADER_MODIFY_PATTERN_SW_ICM_START_ADDRESS 0x38 31 64;
        MEMIC_OPERATIONS 0x40 31 32;
    }
    odp_cap 0x100 {
        SIG 0x8 31 1;
        RC_ODP_CAPS 0x10 31 32 = odp_per_transport_service_cap;
        UC_ODP_CAPS 0x14 31 32 = odp_per_transport_service_cap;
        UD_ODP_CAPS 0x18 31 32 = odp_per_transport_service_cap;
        XRC_ODP_CAPS 0x1c 31 32 = odp_per_transport_service_cap;
        DC_ODP_CAPS 0x20 31 32 = odp_per_transport_service_cap;
    }
    odp_per_transport_service_cap 0x4 {
        SEND 0x0 31 1;
        RECEIVE 0x0 30 1;
        WRITE 0x0 29 1;
        READ 0x0 28 1;
        ATOMIC 0x0 27 1;
        SRQ_RECEIVE 0x0 26 1;
    }
    roce_cap 0x100 {
        ROCE_APM 0x0 31 1;
        SW_R_ROCE_SRC_UDP_PORT 0x0 27 1;
        FL_RC_QP_WHEN_ROCE_DISABLED 0x0 26 1;
        FL_RC_QP_WHEN_ROCE_ENABLED 0x0 25 1;
        QP_TS_FORMAT 0x0 1 2;
        L3_TYPE 0x10 19 4;
        ROCE_VERSION 0x10 7 8;
        R_ROCE_DEST_UDP_PORT 0x14 15 16;
        R_ROCE_MAX_SRC_UDP_PORT 0x18 31 16;
        R_ROCE_MIN_SRC_UDP_PORT 0x18 15 16;
        ROCE_ADDRESS_TABLE_SIZE 0x1c 15 16;
    }
    query_adapter_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
    }
    query_adapter_out 0x110 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        QUERY_ADAPTER_STRUCT 0x10 31 2048 = query_adapter_param_block;
    }
    query_adapter_param_block 0x100 {
        IEEE_VENDOR_ID 0x18 23 24;
        VSD_VENDOR_ID 0x1c 15 16;
        VSD 0x20 31 1664;
        VSD_CONTD_PSID 0xf0 31 128;
    }
    query_hca_vport_context_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        OTHER_VPORT 0x8 31 1;
        PORT_NUM 0x8 19 4;
        VPORT_NUMBER 0x8 15 16;
    }
    query_hca_vport_context_out 0x210 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        HCA_VPORT_CONTEXT 0x10 31 4096 = hca_vport_context;
    }
    hca_vport_context 0x200 {
        FIELD_SELECT 0x0 31 32;
        SM_VIRT_AWARE 0x20 31 1;
        HAS_SMI 0x20 30 1;
        HAS_RAW 0x20 29 1;
        GRH_REQUIRED 0x20 28 1;
        PORT_PHYSICAL_STATE 0x20 15 4;
        VPORT_STATE_POLICY 0x20 11 4;
        PORT_STATE 0x20 7 4;
        VPORT_STATE 0x20 3 4;
        SYSTEM_IMAGE_GUID 0x28 31 64;
        PORT_GUID 0x30 31 64;
        NODE_GUID 0x38 31 64;
        CAP_MASK1 0x40 31 32;
        CAP_MASK1_FIELD_SELECT 0x44 31 32;
        CAP_MASK2 0x48 31 32;
        CAP_MASK2_FIELD_SELECT 0x4c 31 32;
        LID 0x60 31 16;
        INIT_TYPE_REPLY 0x60 11 4;
        LMC 0x60 7 3;
        SUBNET_TIMEOUT 0x60 4 5;
        SM_LID 0x64 31 16;
        SM_SL 0x64 15 4;
        QKEY_VIOLATION_COUNTER 0x68 31 16;
        PKEY_VIOLATION_COUNTER 0x68 15 16;
    }
    query_hca_vport_gid_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        OTHER_VPORT 0x8 31 1;
        PORT_NUM 0x8 19 4;
        VPORT_NUMBER 0x8 15 16;
        GID_INDEX 0xc 15 16;
    }
    query_hca_vport_gid_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        GIDS_NUM 0xc 31 16;
        GID 0x10 31 128;
    }
    query_hca_vport_pkey_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        OTHER_VPORT 0x8 31 1;
        PORT_NUM 0x8 19 4;
        VPORT_NUMBER 0x8 15 16;
        PKEY_INDEX 0xc 15 16;
    }
    query_hca_vport_pkey_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        PKEY 0x10 31 32;
    }
    set_roce_address_in 0x30 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        ROCE_ADDRESS_INDEX 0x8 31 16;
        VHCA_PORT_NUM 0x8 3 4;
        ROCE_ADDRESS 0x10 31 256 = roce_addr_layout;
    }
    set_roce_address_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
    }
    query_roce_address_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        ROCE_ADDRESS_INDEX 0x8 31 16;
        VHCA_PORT_NUM 0x8 3 4;
    }
    query_roce_address_out 0x30 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        ROCE_ADDRESS 0x10 31 256 = roce_addr_layout;
    }
}
