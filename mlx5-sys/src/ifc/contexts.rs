//! Contexts the HCA keeps: QP, CQ, EQ, mkey, and the address vectors inside them.
//!
//! Field order as `mlx5_ifc.h` in Linux 6.1 has it: the byte offset of the field's dword, its top
//! bit in that dword, its width in bits. Reserved bits are left out; they are written as zero.
//! `dbr_umem_id` is named so by rdma-core (`tests/mlx5_prm_structs.py`).

use super::layout;

layout! {
    ads 0x2c {
        FL 0x0 31 1;
        FREE_AR 0x0 30 1;
        PKEY_INDEX 0x0 15 16;
        GRH 0x4 23 1;
        MLID 0x4 22 7;
        RLID 0x4 15 16;
        ACK_TIMEOUT 0x8 31 5;
        SRC_ADDR_INDEX 0x8 23 8;
        STAT_RATE 0x8 11 4;
        HOP_LIMIT 0x8 7 8;
        TCLASS 0xc 27 8;
        FLOW_LABEL 0xc 19 20;
        RGID_RIP 0x10 31 128;
        F_DSCP 0x20 27 1;
        F_ECN 0x20 26 1;
        F_ETH_PRIO 0x20 24 1;
        ECN 0x20 23 2;
        DSCP 0x20 21 6;
        UDP_SPORT 0x20 15 16;
        DEI_CFI 0x24 31 1;
        ETH_PRIO 0x24 30 3;
        SL 0x24 27 4;
        VHCA_PORT_NUM 0x24 23 8;
        RMAC_47_32 0x24 15 16;
        RMAC_31_0 0x28 31 32;
    }
    qpc 0xe8 {
        STATE 0x0 31 4;
        LAG_TX_PORT_AFFINITY 0x0 27 4;
        ST 0x0 23 8;
        ISOLATE_VL_TC 0x0 13 1;
        PM_STATE 0x0 12 2;
        REQ_E2E_CREDIT_MODE 0x0 9 2;
        OFFLOAD_TYPE 0x0 7 4;
        END_PADDING_MODE 0x0 3 2;
        WQ_SIGNATURE 0x4 31 1;
        BLOCK_LB_MC 0x4 30 1;
        ATOMIC_LIKE_WRITE_EN 0x4 29 1;
        LATENCY_SENSITIVE 0x4 28 1;
        DRAIN_SIGERR 0x4 26 1;
        PD 0x4 23 24;
        MTU 0x8 31 3;
        LOG_MSG_MAX 0x8 28 5;
        LOG_RQ_SIZE 0x8 22 4;
        LOG_RQ_STRIDE 0x8 18 3;
        NO_SQ 0x8 15 1;
        LOG_SQ_SIZE 0x8 14 4;
        TS_FORMAT 0x8 7 2;
        RLKY 0x8 4 1;
        ULP_STATELESS_OFFLOAD_MODE 0x8 3 4;
        COUNTER_SET_ID 0xc 31 8;
        UAR_PAGE 0xc 23 24;
        SEND_DBR_MODE 0x10 31 2;
        USER_INDEX 0x10 23 24;
        LOG_PAGE_SIZE 0x14 28 5;
        REMOTE_QPN 0x14 23 24;
        PRIMARY_ADDRESS_PATH 0x18 31 352 = ads;
        SECONDARY_ADDRESS_PATH 0x44 31 352 = ads;
        LOG_ACK_REQ_FREQ 0x70 31 4;
        LOG_SRA_MAX 0x70 23 3;
        RETRY_COUNT 0x70 18 3;
        RNR_RETRY 0x70 15 3;
        FRE 0x70 11 1;
        CUR_RNR_RETRY 0x70 10 3;
        CUR_RETRY_COUNT 0x70 7 3;
        NEXT_SEND_PSN 0x78 23 24;
        LOG_NUM_DCI_STREAM_CHANNELS 0x7c 28 5;
        CQN_SND 0x7c 23 24;
        LOG_NUM_DCI_ERRORED_STREAMS 0x80 28 5;
        DETH_SQPN 0x80 23 24;
        LAST_ACKED_PSN 0x88 23 24;
        SSN 0x8c 23 24;
        LOG_RRA_MAX 0x90 23 3;
        ATOMIC_MODE 0x90 19 4;
        RRE 0x90 15 1;
        RWE 0x90 14 1;
        RAE 0x90 13 1;
        PAGE_OFFSET 0x90 11 6;
        CD_SLAVE_RECEIVE 0x90 2 1;
        CD_SLAVE_SEND 0x90 1 1;
        CD_MASTER 0x90 0 1;
        MIN_RNR_NAK 0x94 28 5;
        NEXT_RCV_PSN 0x94 23 24;
        XRCD 0x98 23 24;
        CQN_RCV 0x9c 23 24;
        DBR_ADDR 0xa0 31 64;
        Q_KEY 0xa8 31 32;
        RQ_TYPE 0xac 26 3;
        SRQN_RMPN_XRQN 0xac 23 24;
        RMSN 0xb0 23 24;
        HW_SQ_WQEBB_COUNTER 0xb4 31 16;
        SW_SQ_WQEBB_COUNTER 0xb4 15 16;
        HW_RQ_COUNTER 0xb8 31 32;
        SW_RQ_COUNTER 0xbc 31 32;
        CGS 0xc4 16 1;
        CS_REQ 0xc4 15 8;
        CS_RES 0xc4 7 8;
        DC_ACCESS_KEY 0xc8 31 64;
        DBR_UMEM_VALID 0xd0 28 1;
        DBR_UMEM_ID 0xe4 31 32;
    }
    cqc 0x40 {
        STATUS 0x0 31 4;
        DBR_UMEM_VALID 0x0 25 1;
        DBR_UMEM_ID 0x4 31 32;
        APU_CQ 0x0 24 1;
        CQE_SZ 0x0 23 3;
        CC 0x0 20 1;
        SCQE_BREAK_MODERATION_EN 0x0 18 1;
        OI 0x0 17 1;
        CQ_PERIOD_MODE 0x0 16 2;
        CQE_COMP_EN 0x0 14 1;
        MINI_CQE_RES_FORMAT 0x0 13 2;
        ST 0x0 11 4;
        CQE_COMPRESSION_LAYOUT 0x0 1 2;
        PAGE_OFFSET 0x8 11 6;
        LOG_CQ_SIZE 0xc 28 5;
        UAR_PAGE 0xc 23 24;
        CQ_PERIOD 0x10 27 12;
        CQ_MAX_COUNT 0x10 15 16;
        C_EQN_OR_APU_ELEMENT 0x14 31 32;
        LOG_PAGE_SIZE 0x18 28 5;
        LAST_NOTIFIED_INDEX 0x20 23 24;
        LAST_SOLICIT_INDEX 0x24 23 24;
        CONSUMER_COUNTER 0x28 23 24;
        PRODUCER_COUNTER 0x2c 23 24;
        DBR_ADDR 0x38 31 64;
    }
    eqc 0x40 {
        STATUS 0x0 31 4;
        EC 0x0 18 1;
        OI 0x0 17 1;
        ST 0x0 11 4;
        PAGE_OFFSET 0x8 11 6;
        LOG_EQ_SIZE 0xc 28 5;
        UAR_PAGE 0xc 23 24;
        INTR 0x14 11 12;
        LOG_PAGE_SIZE 0x18 28 5;
        CONSUMER_COUNTER 0x28 23 24;
        PRODUCER_COUNTER 0x2c 23 24;
    }
    mkc 0x40 {
        FREE 0x0 30 1;
        ACCESS_MODE_4_2 0x0 28 3;
        RELAXED_ORDERING_WRITE 0x0 18 1;
        SMALL_FENCE_ON_RDMA_READ_RESPONSE 0x0 16 1;
        UMR_EN 0x0 15 1;
        A 0x0 14 1;
        RW 0x0 13 1;
        RR 0x0 12 1;
        LW 0x0 11 1;
        LR 0x0 10 1;
        ACCESS_MODE_1_0 0x0 9 2;
        MA_TRANSLATION_MODE 0x0 5 2;
        QPN 0x4 31 24;
        MKEY_7_0 0x4 7 8;
        LENGTH64 0xc 31 1;
        BSF_EN 0xc 30 1;
        SYNC_UMR 0xc 29 1;
        EXPECTED_SIGERR_COUNT 0xc 26 1;
        EN_RINVAL 0xc 24 1;
        PD 0xc 23 24;
        START_ADDR 0x10 31 64;
        LEN 0x18 31 64;
        BSF_OCTWORD_SIZE 0x20 31 32;
        TRANSLATIONS_OCTWORD_SIZE 0x34 31 32;
        RELAXED_ORDERING_READ 0x38 6 1;
        LOG_PAGE_SIZE 0x38 4 5;
    }
    mtt 0x8 {
        PTAG_63_32 0x0 31 32;
        PTAG_31_8 0x4 31 24;
        WR_EN 0x4 1 1;
        RD_EN 0x4 0 1;
    }
}
