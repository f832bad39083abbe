//! Access registers, which ACCESS_REG reads and writes: those of a port, of its module, and of the
//! host. The datagrams of MAD_IFC.
//!
//! Field order as `mlx5_ifc.h` in Linux 6.1 has it: the byte offset of the field's dword, its top
//! bit in that dword, its width in bits. Reserved bits are left out; they are written as zero.
//! Fields that the header lacks are as `register_access_table.adb` in mstflint describes them. MNVDA
//! and its contents are as in `lib/nv_param.c` of Linux's mlx5_core. Where the header has two halves
//! of a counter, the field here is both.

use super::layout;

layout! {
    access_register_in 0x10 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        REGISTER_ID 0x8 15 16;
        ARGUMENT 0xc 31 32;
        REGISTER_DATA 0x10 31 32;
    }
    access_register_out 0x10 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        REGISTER_DATA 0x10 31 32;
    }
    mad_ifc_in 0x110 {
        OPCODE 0x0 31 16;
        OP_MOD 0x4 15 16;
        REMOTE_LID 0x8 31 16;
        PORT 0x8 7 8;
        MAD 0x10 31 2048;
    }
    mad_ifc_out 0x110 {
        STATUS 0x0 31 8;
        SYNDROME 0x4 31 32;
        RESPONSE_MAD_PACKET 0x10 31 2048;
    }
    pmtu_reg 0x10 {
        LOCAL_PORT 0x0 23 8;
        MAX_MTU 0x4 31 16;
        ADMIN_MTU 0x8 31 16;
        OPER_MTU 0xc 31 16;
    }
    ptys_reg 0x40 {
        AN_DISABLE_ADMIN 0x0 30 1;
        AN_DISABLE_CAP 0x0 29 1;
        LOCAL_PORT 0x0 23 8;
        PROTO_MASK 0x0 2 3;
        AN_STATUS 0x4 31 4;
        DATA_RATE_OPER 0x4 15 16;
        EXT_ETH_PROTO_CAPABILITY 0x8 31 32;
        ETH_PROTO_CAPABILITY 0xc 31 32;
        IB_LINK_WIDTH_CAPABILITY 0x10 31 16;
        IB_PROTO_CAPABILITY 0x10 15 16;
        EXT_ETH_PROTO_ADMIN 0x14 31 32;
        ETH_PROTO_ADMIN 0x18 31 32;
        IB_LINK_WIDTH_ADMIN 0x1c 31 16;
        IB_PROTO_ADMIN 0x1c 15 16;
        EXT_ETH_PROTO_OPER 0x20 31 32;
        ETH_PROTO_OPER 0x24 31 32;
        IB_LINK_WIDTH_OPER 0x28 31 16;
        IB_PROTO_OPER 0x28 15 16;
        CONNECTOR_TYPE 0x2c 3 4;
        ETH_PROTO_LP_ADVERTISE 0x30 31 32;
    }
    paos_reg 0x10 {
        SWID 0x0 31 8;
        LOCAL_PORT 0x0 23 8;
        ADMIN_STATUS 0x0 11 4;
        OPER_STATUS 0x0 3 4;
        ASE 0x4 31 1;
        EE 0x4 30 1;
        E 0x4 1 2;
    }
    pvlc_reg 0x10 {
        LOCAL_PORT 0x0 23 8;
        VL_HW_CAP 0x4 3 4;
        VL_ADMIN 0x8 3 4;
        VL_OPERATIONAL 0xc 3 4;
    }
    ppcnt_reg 0x100 {
        SWID 0x0 31 8;
        LOCAL_PORT 0x0 23 8;
        PNAT 0x0 15 2;
        GRP 0x0 5 6;
        CLR 0x4 31 1;
        PRIO_TC 0x4 2 3;
        COUNTER_SET 0x8 31 1984;
    }
    eth_802_3_cntrs_grp_data_layout 0xf8 {
        A_FRAMES_TRANSMITTED_OK_HIGH 0x0 31 32;
        A_FRAMES_TRANSMITTED_OK_LOW 0x4 31 32;
        A_FRAMES_RECEIVED_OK_HIGH 0x8 31 32;
        A_FRAMES_RECEIVED_OK_LOW 0xc 31 32;
        A_FRAME_CHECK_SEQUENCE_ERRORS_HIGH 0x10 31 32;
        A_FRAME_CHECK_SEQUENCE_ERRORS_LOW 0x14 31 32;
        A_ALIGNMENT_ERRORS_HIGH 0x18 31 32;
        A_ALIGNMENT_ERRORS_LOW 0x1c 31 32;
        A_OCTETS_TRANSMITTED_OK_HIGH 0x20 31 32;
        A_OCTETS_TRANSMITTED_OK_LOW 0x24 31 32;
        A_OCTETS_RECEIVED_OK_HIGH 0x28 31 32;
        A_OCTETS_RECEIVED_OK_LOW 0x2c 31 32;
    }
    eth_2819_cntrs_grp_data_layout 0xf8 {
        ETHER_STATS_OCTETS_HIGH 0x8 31 32;
        ETHER_STATS_OCTETS_LOW 0xc 31 32;
        ETHER_STATS_PKTS_HIGH 0x10 31 32;
        ETHER_STATS_PKTS_LOW 0x14 31 32;
        ETHER_STATS_CRC_ALIGN_ERRORS_HIGH 0x28 31 32;
        ETHER_STATS_CRC_ALIGN_ERRORS_LOW 0x2c 31 32;
    }
    pfcc_reg 0x20 {
        LOCAL_PORT 0x0 23 8;
        PRIO_MASK_TX 0x4 23 8;
        PRIO_MASK_RX 0x4 7 8;
        PPTX 0x8 31 1;
        APTX 0x8 30 1;
        PFCTX 0x8 23 8;
        PPRX 0xc 31 1;
        APRX 0xc 30 1;
        PFCRX 0xc 23 8;
    }
    ib_port_cntrs_grp_data_layout 0x28 {
        SYMBOL_ERROR_COUNTER 0x0 31 16;
        LINK_ERROR_RECOVERY_COUNTER 0x0 15 8;
        LINK_DOWNED_COUNTER 0x0 7 8;
        PORT_RCV_ERRORS 0x4 31 16;
        PORT_RCV_REMOTE_PHYSICAL_ERRORS 0x4 15 16;
        PORT_RCV_SWITCH_RELAY_ERRORS 0x8 31 16;
        PORT_XMIT_DISCARDS 0x8 15 16;
        PORT_XMIT_CONSTRAINT_ERRORS 0xc 31 8;
        PORT_RCV_CONSTRAINT_ERRORS 0xc 23 8;
        LINK_OVERRUN_ERRORS 0xc 7 8;
        VL_15_DROPPED 0x10 15 16;
        PORT_XMIT_WAIT 0x24 31 32;
    }
    pmlp_reg 0x40 {
        RXTX 0x0 31 1;
        LOCAL_PORT 0x0 23 8;
        WIDTH 0x0 7 8;
        LANE0_MODULE_MAPPING 0x4 31 32;
    }
    pplm_reg 0x50 {
        LOCAL_PORT 0x0 23 8;
        FEC_MODE_ACTIVE 0xc 23 24;
    }
    slrg_reg 0x28 {
        STATUS 0x0 31 4;
        VERSION 0x0 27 4;
        LOCAL_PORT 0x0 23 8;
        LANE 0x0 11 4;
        GRADE_LANE_SPEED 0x4 3 4;
        GRADE_VERSION 0x8 31 8;
        GRADE 0x8 23 24;
    }
    slrg_7nm 0x18 {
        LAST_FOM 0x8 31 8;
        UPPER_EYE 0x8 23 8;
        MID_EYE 0x8 15 8;
        LOWER_EYE 0x8 7 8;
    }
    pddr_reg 0x100 {
        LOCAL_PORT 0x0 23 8;
        PNAT 0x0 15 2;
        MODULE_INFO_EXT 0x4 30 2;
        PAGE_SELECT 0x4 7 8;
        PAGE_DATA 0x8 31 1984;
    }
    pddr_troubleshooting_page 0xf8 {
        GROUP_OPCODE 0x0 15 16;
        STATUS_OPCODE 0x4 31 32;
        STATUS_MESSAGE 0xc 31 1888;
    }
    pddr_link_down_info_page 0xf4 {
        DOWN_INTENT 0x0 7 4;
        DOWN_BLAME 0x0 3 4;
        LOCAL_REASON_OPCODE 0x4 7 8;
        REMOTE_REASON_OPCODE 0x8 7 8;
    }
    phys_layer_statistical_cntrs 0xf8 {
        TIME_SINCE_LAST_CLEAR 0x0 31 64;
        PHY_RECEIVED_BITS 0x8 31 64;
        PHY_SYMBOL_ERRORS 0x10 31 64;
        PHY_CORRECTED_BITS 0x18 31 64;
        RAW_BER_MAGNITUDE 0x60 15 8;
        RAW_BER_COEF 0x60 3 4;
        EFFECTIVE_BER_MAGNITUDE 0x64 15 8;
        EFFECTIVE_BER_COEF 0x64 3 4;
    }
    eth_2863_cntrs_grp_data_layout 0xf8 {
        IF_IN_OCTETS 0x0 31 64;
        IF_IN_UCAST_PKTS 0x8 31 64;
        IF_IN_DISCARDS 0x10 31 64;
        IF_IN_ERRORS 0x18 31 64;
        IF_IN_UNKNOWN_PROTOS 0x20 31 64;
        IF_OUT_OCTETS 0x28 31 64;
        IF_OUT_UCAST_PKTS 0x30 31 64;
        IF_OUT_DISCARDS 0x38 31 64;
        IF_OUT_ERRORS 0x40 31 64;
        IF_IN_MULTICAST_PKTS 0x48 31 64;
        IF_IN_BROADCAST_PKTS 0x50 31 64;
        IF_OUT_MULTICAST_PKTS 0x58 31 64;
        IF_OUT_BROADCAST_PKTS 0x60 31 64;
    }
    eth_per_prio_grp_data_layout 0xf8 {
        RX_OCTETS 0x0 31 64;
        RX_FRAMES 0x20 31 64;
        TX_OCTETS 0x28 31 64;
        TX_FRAMES 0x48 31 64;
        RX_PAUSE 0x50 31 64;
        RX_PAUSE_DURATION 0x58 31 64;
        TX_PAUSE 0x60 31 64;
        TX_PAUSE_DURATION 0x68 31 64;
        RX_PAUSE_TRANSITION 0x70 31 64;
        RX_DISCARDS 0x78 31 64;
    }
    mcia_reg 0x90 {
        L 0x0 31 1;
        MODULE 0x0 23 8;
        STATUS 0x0 7 8;
        I2C_DEVICE_ADDRESS 0x4 31 8;
        PAGE_NUMBER 0x4 23 8;
        DEVICE_ADDRESS 0x4 15 16;
        DATA_SIZE 0x8 15 16;
        DWORDS 0x10 31 1024;
    }
    mtcap_reg 0x10 {
        SENSOR_COUNT 0x0 6 7;
        SENSOR_MAP 0x8 31 64;
    }
    mtmp_reg 0x20 {
        SENSOR_INDEX 0x0 11 12;
        TEMPERATURE 0x4 15 16;
        MTE 0x8 31 1;
        MAX_TEMPERATURE 0x8 15 16;
        TEMPERATURE_THRESHOLD_HI 0xc 15 16;
        SENSOR_NAME 0x18 31 64;
    }
    mtutc_reg 0x1c {
        TIME_STAMP_MODE 0x0 31 2;
        OPERATION 0x0 3 4;
        FREQ_ADJUSTMENT 0x4 31 32;
        UTC_SEC 0x10 31 32;
        UTC_NSEC 0x14 29 30;
        TIME_ADJUSTMENT 0x18 31 32;
    }
    mpein_reg 0x30 {
        DEPTH 0x0 29 6;
        PCIE_INDEX 0x0 23 8;
        NODE 0x0 15 8;
        LINK_WIDTH_ENABLED 0x8 23 8;
        LINK_SPEED_ENABLED 0x8 15 16;
        LINK_WIDTH_ACTIVE 0xc 23 8;
        LINK_SPEED_ACTIVE 0xc 15 16;
        MAX_READ_REQUEST_SIZE 0x18 31 4;
        MAX_PAYLOAD_SIZE 0x18 27 4;
        PWR_STATUS 0x18 18 3;
        LINK_PEER_MAX_SPEED 0x1c 31 16;
        PCI_POWER 0x1c 11 12;
    }
    register_host_endianness 0x10 {
        HE 0x0 31 1;
    }
    mnvda_reg 0x10c {
        VALID 0x0 31 2;
        PRIORITY 0x0 29 2;
        HEADER_TYPE 0x0 27 2;
        OVR_EN 0x0 25 1;
        RD_EN 0x0 24 1;
        ACCESS_MODE 0x0 23 2;
        WRITER_ID 0x0 20 5;
        VERSION 0x0 15 4;
        HOST_ID_VALID 0x0 9 1;
        LENGTH 0x0 8 9;
        TYPE_CLASS 0x4 31 8;
        PARAMETER_INDEX 0x4 23 24;
        CRC16 0x8 15 16;
        CONFIGURATION_ITEM_DATA 0xc 31 2048;
    }
    nv_global_pci_conf 0xc {
        SRIOV_VALID 0x0 31 1;
        PER_PF_TOTAL_VF 0x0 14 1;
        SRIOV_EN 0x4 31 1;
        TOTAL_VFS 0x4 15 16;
    }
    nv_global_pci_cap 0x14 {
        MAX_VFS_PER_PF_VALID 0x0 31 1;
        PER_PF_TOTAL_VF_SUPPORTED 0x0 11 1;
        SRIOV_SUPPORT 0x4 31 1;
        MAX_VFS_PER_PF 0x4 15 16;
    }
    nv_sw_offload_conf 0x8 {
        IP_OVER_VXLAN_PORT 0x0 31 16;
        TUNNEL_ECN_COPY_OFFLOAD_DISABLE 0x0 15 1;
        PCI_ATOMIC_MODE 0x0 14 3;
        SR_ENABLE 0x0 11 1;
        PTP_CYC2REALTIME 0x0 10 1;
        VECTOR_CALC_DISABLE 0x0 9 1;
        UCTX_EN 0x0 8 1;
        PRIO_TAG_REQUIRED_EN 0x0 7 1;
        ESW_FDB_IPV4_TTL_MODIFY_ENABLE 0x0 6 1;
        MKEY_BY_NAME 0x0 5 1;
        IP_OVER_VXLAN_EN 0x0 4 1;
        ONE_QP_PER_RECOVERY 0x0 3 1;
        CQE_COMPRESSION 0x0 2 3;
        TUNNEL_UDP_ENTROPY_PROTO_DISABLE 0x4 31 1;
        AR_ENABLE 0x4 29 1;
        LOG_MAX_OUTSTANDING_WQE 0x4 28 5;
        VF_MIGRATION 0x4 23 2;
        LOG_TX_PSN_WIN 0x4 21 6;
        LRO_LOG_TIMEOUT3 0x4 15 4;
        LRO_LOG_TIMEOUT2 0x4 11 4;
        LRO_LOG_TIMEOUT1 0x4 7 4;
        LRO_LOG_TIMEOUT0 0x4 3 4;
    }
}
