//! Layouts that Linux 6.1's header does not have, and their sources.

/// rdma-core's header of commands.
const RDMA_CORE: &str = "rdma-core, providers/mlx5/mlx5_ifc.h";
/// Structures of rdma-core's tests, for queues without a doorbell record.
const RDMA_CORE_45: &str = "rdma-core 45, tests/mlx5_prm_structs.py";
/// Later headers of Linux.
const LATER: &str = "Linux 6.6, include/linux/mlx5/mlx5_ifc.h";
const LATEST: &str = "Linux 6.11, include/linux/mlx5/mlx5_ifc.h";
/// DPDK's header of commands.
const DPDK: &str = "DPDK, drivers/common/mlx5/mlx5_prm.h";
/// The same bits under the longer name of rdma-core's structures.
const UNION: &str = "tests/mlx5_prm_structs.py: e_mtt_pointer_or_cq_umem_offset";
/// No public source: see the head of `shared_receive.rs`.
const LIKENESS: &str = "the same place as in cqc, wq, create_cq_in and create_qp_in";
/// Appended lists, which the header has inside the structure before.
const APPENDED: &str = "the same bits of create_umem_in.umem.mtt";

/// Descriptions of registers.
const MSTFLINT: &str = "mstflint, tools_layouts/adb/prm/hca/ext/register_access_table.adb";
/// Settings in flash. The item's header is part of `mnvda_reg` here.
const SETTINGS: &str = "Linux, drivers/net/ethernet/mellanox/mlx5/core/lib/nv_param.c";
/// The header's `size`, which is the name of each structure's size here.
const SIZE: &str = "the same bits as mcia_reg.size";

/// Fields: structure, name, source.
pub const FIELDS: &[(&str, &str, &str)] = &[
    ("cmd_hca_cap", "LOG_DMA_MMO_MAX_SIZE", RDMA_CORE),
    ("cmd_hca_cap", "QPC_EXTENSION", RDMA_CORE),
    ("cmd_hca_cap", "DMA_MMO_SQ", RDMA_CORE),
    ("cmd_hca_cap", "QP_ERROR_SYNDROME", LATER),
    ("cmd_hca_cap", "WAIT_ON_TIME", DPDK),
    ("mtutc_reg", "TIME_STAMP_MODE", DPDK),
    ("query_qp_in", "QPC_EXT", LATER),
    ("cmd_hca_cap_2", "SEND_DBR_MODE_NO_DBR_INT", RDMA_CORE_45),
    ("cmd_hca_cap_2", "SEND_DBR_MODE_NO_DBR_EXT", RDMA_CORE_45),
    ("cmd_hca_cap_2", "LOG_MAX_SEND_DBR_LESS_QP_SQ", RDMA_CORE_45),
    ("qpc", "SEND_DBR_MODE", RDMA_CORE_45),
    ("flow_table_prop_layout", "FLOW_TAG", RDMA_CORE),
    ("flow_table_prop_layout", "RESET_ROOT_TO_DEFAULT", RDMA_CORE),
    ("flow_table_prop_layout", "FPGA_VENDOR_ACCELERATION", RDMA_CORE),
    ("flow_table_prop_layout", "MODIFY_AND_VLAN_ACTION", RDMA_CORE),
    ("flow_table_prop_layout", "METADATA_REG_B_WIDTH", RDMA_CORE),
    ("flow_table_prop_layout", "METADATA_REG_A_WIDTH", RDMA_CORE),
    ("query_flow_counter_in", "DUMP_TO_MEMORY", DPDK),
    ("create_mkey_in", "INPUT_MKEY_INDEX", LATER),
    ("create_qp_in", "WQ_UMEM_OFFSET", DPDK),
    ("create_cq_in", "CQ_UMEM_OFFSET", UNION),
    ("wq", "DBR_UMEM_ID", DPDK),
    ("wq", "WQ_UMEM_ID", DPDK),
    ("wq", "WQ_UMEM_OFFSET", DPDK),
    ("xrc_srqc", "DBR_UMEM_ID", LIKENESS),
    ("create_xrc_srq_in", "XRC_SRQ_UMEM_OFFSET", LIKENESS),
    ("create_xrc_srq_in", "XRC_SRQ_UMEM_ID", LIKENESS),
    ("modify_tir_bitmask", "INDIRECT_TABLE", DPDK),
    ("create_umem_in", "MTT", APPENDED),
    ("pddr_reg", "MODULE_INFO_EXT", MSTFLINT),
    ("phys_layer_statistical_cntrs", "RAW_BER_MAGNITUDE", MSTFLINT),
    ("phys_layer_statistical_cntrs", "RAW_BER_COEF", MSTFLINT),
    ("phys_layer_statistical_cntrs", "EFFECTIVE_BER_MAGNITUDE", MSTFLINT),
    ("phys_layer_statistical_cntrs", "EFFECTIVE_BER_COEF", MSTFLINT),
    ("mcia_reg", "DATA_SIZE", SIZE),
    ("mpein_reg", "LINK_PEER_MAX_SPEED", MSTFLINT),
    ("query_q_counter_out", "REQ_RNR_RETRIES_EXCEEDED", LATEST),
];

/// Lists whose elements come in a longer form as well, which the header has: structure, field.
pub const SHORT_FORMS: &[(&str, &str)] = &[("flow_context", "DESTINATION")];

/// Structures: name, source.
pub const LAYOUTS_OF_OTHERS: &[(&str, &str)] = &[
    ("qpc_ext", RDMA_CORE),
    ("cqe_error_syndrome", LATER),
    ("rts2rts_qp_ext_in", RDMA_CORE),
    ("slrg_7nm", MSTFLINT),
    ("pddr_link_down_info_page", MSTFLINT),
    ("mtcap_reg", MSTFLINT),
    ("mtmp_reg", MSTFLINT),
    ("mnvda_reg", SETTINGS),
    ("nv_global_pci_conf", SETTINGS),
    ("nv_global_pci_cap", SETTINGS),
    ("nv_sw_offload_conf", SETTINGS),
];
