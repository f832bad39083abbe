//! Firmware command opcodes, from `mlx5_ifc.h` in Linux 6.1.

macro_rules! opcodes {
    ($($name:ident = $value:literal,)*) => {
        $(
            #[doc = concat!("`", stringify!($value), "`")]
            pub const $name: u16 = $value;
        )*

        /// The opcode of this name, in capital letters.
        pub fn of_name(name: &str) -> Option<u16> {
            match name {
                $(stringify!($name) => Some($value),)*
                _ => None,
            }
        }

        /// The name of an opcode.
        pub const fn name(opcode: u16) -> Option<&'static str> {
            match opcode {
                $($value => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}

opcodes! {
    QUERY_HCA_CAP = 0x100,
    QUERY_ADAPTER = 0x101,
    INIT_HCA = 0x102,
    TEARDOWN_HCA = 0x103,
    ENABLE_HCA = 0x104,
    DISABLE_HCA = 0x105,
    QUERY_PAGES = 0x107,
    MANAGE_PAGES = 0x108,
    SET_HCA_CAP = 0x109,
    QUERY_ISSI = 0x10a,
    SET_ISSI = 0x10b,
    SET_DRIVER_VERSION = 0x10d,
    QUERY_SF_PARTITION = 0x111,
    ALLOC_SF = 0x113,
    DEALLOC_SF = 0x114,
    SUSPEND_VHCA = 0x115,
    RESUME_VHCA = 0x116,
    QUERY_VHCA_MIGRATION_STATE = 0x117,
    SAVE_VHCA_STATE = 0x118,
    LOAD_VHCA_STATE = 0x119,
    CREATE_MKEY = 0x200,
    QUERY_MKEY = 0x201,
    DESTROY_MKEY = 0x202,
    QUERY_SPECIAL_CONTEXTS = 0x203,
    PAGE_FAULT_RESUME = 0x204,
    ALLOC_MEMIC = 0x205,
    DEALLOC_MEMIC = 0x206,
    MODIFY_MEMIC = 0x207,
    CREATE_EQ = 0x301,
    DESTROY_EQ = 0x302,
    QUERY_EQ = 0x303,
    GEN_EQE = 0x304,
    CREATE_CQ = 0x400,
    DESTROY_CQ = 0x401,
    QUERY_CQ = 0x402,
    MODIFY_CQ = 0x403,
    CREATE_QP = 0x500,
    DESTROY_QP = 0x501,
    RST2INIT_QP = 0x502,
    INIT2RTR_QP = 0x503,
    RTR2RTS_QP = 0x504,
    RTS2RTS_QP = 0x505,
    SQERR2RTS_QP = 0x506,
    QP_2ERR = 0x507,
    QP_2RST = 0x50a,
    QUERY_QP = 0x50b,
    SQD_RTS_QP = 0x50c,
    INIT2INIT_QP = 0x50e,
    CREATE_PSV = 0x600,
    DESTROY_PSV = 0x601,
    CREATE_SRQ = 0x700,
    DESTROY_SRQ = 0x701,
    QUERY_SRQ = 0x702,
    ARM_RQ = 0x703,
    CREATE_XRC_SRQ = 0x705,
    DESTROY_XRC_SRQ = 0x706,
    QUERY_XRC_SRQ = 0x707,
    ARM_XRC_SRQ = 0x708,
    CREATE_DCT = 0x710,
    DESTROY_DCT = 0x711,
    DRAIN_DCT = 0x712,
    QUERY_DCT = 0x713,
    ARM_DCT_FOR_KEY_VIOLATION = 0x714,
    CREATE_XRQ = 0x717,
    DESTROY_XRQ = 0x718,
    QUERY_XRQ = 0x719,
    ARM_XRQ = 0x71a,
    QUERY_XRQ_DC_PARAMS_ENTRY = 0x725,
    SET_XRQ_DC_PARAMS_ENTRY = 0x726,
    QUERY_XRQ_ERROR_PARAMS = 0x727,
    RELEASE_XRQ_ERROR = 0x729,
    MODIFY_XRQ = 0x72a,
    QUERY_ESW_FUNCTIONS = 0x740,
    QUERY_VPORT_STATE = 0x750,
    MODIFY_VPORT_STATE = 0x751,
    QUERY_ESW_VPORT_CONTEXT = 0x752,
    MODIFY_ESW_VPORT_CONTEXT = 0x753,
    QUERY_NIC_VPORT_CONTEXT = 0x754,
    MODIFY_NIC_VPORT_CONTEXT = 0x755,
    QUERY_ROCE_ADDRESS = 0x760,
    SET_ROCE_ADDRESS = 0x761,
    QUERY_HCA_VPORT_CONTEXT = 0x762,
    MODIFY_HCA_VPORT_CONTEXT = 0x763,
    QUERY_HCA_VPORT_GID = 0x764,
    QUERY_HCA_VPORT_PKEY = 0x765,
    QUERY_VNIC_ENV = 0x76f,
    QUERY_VPORT_COUNTER = 0x770,
    ALLOC_Q_COUNTER = 0x771,
    DEALLOC_Q_COUNTER = 0x772,
    QUERY_Q_COUNTER = 0x773,
    SET_MONITOR_COUNTER = 0x774,
    ARM_MONITOR_COUNTER = 0x775,
    SET_PP_RATE_LIMIT = 0x780,
    QUERY_RATE_LIMIT = 0x781,
    CREATE_SCHEDULING_ELEMENT = 0x782,
    DESTROY_SCHEDULING_ELEMENT = 0x783,
    QUERY_SCHEDULING_ELEMENT = 0x784,
    MODIFY_SCHEDULING_ELEMENT = 0x785,
    CREATE_QOS_PARA_VPORT = 0x786,
    DESTROY_QOS_PARA_VPORT = 0x787,
    ALLOC_PD = 0x800,
    DEALLOC_PD = 0x801,
    ALLOC_UAR = 0x802,
    DEALLOC_UAR = 0x803,
    CONFIG_INT_MODERATION = 0x804,
    ACCESS_REG = 0x805,
    ATTACH_TO_MCG = 0x806,
    DETACH_FROM_MCG = 0x807,
    GET_DROPPED_PACKET_LOG = 0x80a,
    MAD_IFC = 0x50d,
    QUERY_MAD_DEMUX = 0x80b,
    SET_MAD_DEMUX = 0x80c,
    NOP = 0x80d,
    ALLOC_XRCD = 0x80e,
    DEALLOC_XRCD = 0x80f,
    ALLOC_TRANSPORT_DOMAIN = 0x816,
    DEALLOC_TRANSPORT_DOMAIN = 0x817,
    QUERY_CONG_STATUS = 0x822,
    MODIFY_CONG_STATUS = 0x823,
    QUERY_CONG_PARAMS = 0x824,
    MODIFY_CONG_PARAMS = 0x825,
    QUERY_CONG_STATISTICS = 0x826,
    ADD_VXLAN_UDP_DPORT = 0x827,
    DELETE_VXLAN_UDP_DPORT = 0x828,
    SET_L2_TABLE_ENTRY = 0x829,
    QUERY_L2_TABLE_ENTRY = 0x82a,
    DELETE_L2_TABLE_ENTRY = 0x82b,
    SET_WOL_ROL = 0x830,
    QUERY_WOL_ROL = 0x831,
    CREATE_LAG = 0x840,
    MODIFY_LAG = 0x841,
    QUERY_LAG = 0x842,
    DESTROY_LAG = 0x843,
    CREATE_VPORT_LAG = 0x844,
    DESTROY_VPORT_LAG = 0x845,
    CREATE_TIR = 0x900,
    MODIFY_TIR = 0x901,
    DESTROY_TIR = 0x902,
    QUERY_TIR = 0x903,
    CREATE_SQ = 0x904,
    MODIFY_SQ = 0x905,
    DESTROY_SQ = 0x906,
    QUERY_SQ = 0x907,
    CREATE_RQ = 0x908,
    MODIFY_RQ = 0x909,
    SET_DELAY_DROP_PARAMS = 0x910,
    DESTROY_RQ = 0x90a,
    QUERY_RQ = 0x90b,
    CREATE_RMP = 0x90c,
    MODIFY_RMP = 0x90d,
    DESTROY_RMP = 0x90e,
    QUERY_RMP = 0x90f,
    CREATE_TIS = 0x912,
    MODIFY_TIS = 0x913,
    DESTROY_TIS = 0x914,
    QUERY_TIS = 0x915,
    CREATE_RQT = 0x916,
    MODIFY_RQT = 0x917,
    DESTROY_RQT = 0x918,
    QUERY_RQT = 0x919,
    SET_FLOW_TABLE_ROOT = 0x92f,
    CREATE_FLOW_TABLE = 0x930,
    DESTROY_FLOW_TABLE = 0x931,
    QUERY_FLOW_TABLE = 0x932,
    CREATE_FLOW_GROUP = 0x933,
    DESTROY_FLOW_GROUP = 0x934,
    QUERY_FLOW_GROUP = 0x935,
    SET_FLOW_TABLE_ENTRY = 0x936,
    QUERY_FLOW_TABLE_ENTRY = 0x937,
    DELETE_FLOW_TABLE_ENTRY = 0x938,
    ALLOC_FLOW_COUNTER = 0x939,
    DEALLOC_FLOW_COUNTER = 0x93a,
    QUERY_FLOW_COUNTER = 0x93b,
    MODIFY_FLOW_TABLE = 0x93c,
    ALLOC_PACKET_REFORMAT_CONTEXT = 0x93d,
    DEALLOC_PACKET_REFORMAT_CONTEXT = 0x93e,
    QUERY_PACKET_REFORMAT_CONTEXT = 0x93f,
    ALLOC_MODIFY_HEADER_CONTEXT = 0x940,
    DEALLOC_MODIFY_HEADER_CONTEXT = 0x941,
    QUERY_MODIFY_HEADER_CONTEXT = 0x942,
    FPGA_CREATE_QP = 0x960,
    FPGA_MODIFY_QP = 0x961,
    FPGA_QUERY_QP = 0x962,
    FPGA_DESTROY_QP = 0x963,
    FPGA_QUERY_QP_COUNTERS = 0x964,
    CREATE_GENERAL_OBJECT = 0xa00,
    MODIFY_GENERAL_OBJECT = 0xa01,
    QUERY_GENERAL_OBJECT = 0xa02,
    DESTROY_GENERAL_OBJECT = 0xa03,
    CREATE_UCTX = 0xa04,
    DESTROY_UCTX = 0xa06,
    CREATE_UMEM = 0xa08,
    DESTROY_UMEM = 0xa0a,
    SYNC_STEERING = 0xb00,
    ACCESS_REGISTER_USER = 0xb0c,
    QUERY_VHCA_STATE = 0xb0d,
    MODIFY_VHCA_STATE = 0xb0e,
    ALLOW_OTHER_VHCA_ACCESS = 0xb16,
}

/// Returns whether a command only asks: it creates, changes and destroys no object.
///
/// True for `QUERY_*`, `FPGA_QUERY_*`, `GET_DROPPED_PACKET_LOG` and `NOP`; false for every opcode
/// that has no name here. Some of these commands can also zero the counters that they read.
pub const fn is_query(opcode: u16) -> bool {
    let Some(name) = name(opcode) else { return false };
    let asks = matches!(
        name.as_bytes(),
        [b'Q', b'U', b'E', b'R', b'Y', b'_', ..]
            | [b'F', b'P', b'G', b'A', b'_', b'Q', b'U', b'E', b'R', b'Y', b'_', ..]
    );
    asks || matches!(opcode, GET_DROPPED_PACKET_LOG | NOP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_query_accepts_only_commands_that_change_nothing() {
        for asks in [QUERY_HCA_CAP, QUERY_QP, QUERY_GENERAL_OBJECT, FPGA_QUERY_QP, NOP] {
            assert!(is_query(asks), "{asks:#x}");
        }
        for opcode in 0..=u16::MAX {
            let name = name(opcode).unwrap_or("");
            // What a command does is its first word, or the move between states that it begins
            // with.
            let verb = name.trim_start_matches("FPGA_").split('_').next().unwrap_or("");
            let asks = matches!(verb, "QUERY" | "GET" | "NOP");
            assert_eq!(is_query(opcode), asks, "{name} ({opcode:#x})");
        }
    }
}
