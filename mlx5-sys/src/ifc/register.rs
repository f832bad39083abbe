//! Access registers, which ACCESS_REG reads and writes: those of a port, and of the host. The
//! datagrams of MAD_IFC.
//!
//! Field order as `mlx5_ifc.h` in Linux 6.1 has it: the byte offset of the field's dword, its top
//! bit in that dword, its width in bits. Reserved bits are left out; they are written as zero.

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
    register_host_endianness 0x10 {
        HE 0x0 31 1;
    }
}
