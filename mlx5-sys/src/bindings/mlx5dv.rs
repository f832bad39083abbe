// Written by `cargo xtask bindings --write`, from the headers of rdma-core 44.

#[repr(C)]
#[derive(Default)]
pub struct __IncompleteArrayField<T>(::core::marker::PhantomData<T>, [T; 0]);
impl<T> __IncompleteArrayField<T> {
    #[inline]
    pub const fn new() -> Self {
        __IncompleteArrayField(::core::marker::PhantomData, [])
    }
    #[inline]
    pub fn as_ptr(&self) -> *const T {
        self as *const _ as *const T
    }
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self as *mut _ as *mut T
    }
    #[inline]
    pub unsafe fn as_slice(&self, len: usize) -> &[T] {
        ::core::slice::from_raw_parts(self.as_ptr(), len)
    }
    #[inline]
    pub unsafe fn as_mut_slice(&mut self, len: usize) -> &mut [T] {
        ::core::slice::from_raw_parts_mut(self.as_mut_ptr(), len)
    }
}
impl<T> ::core::fmt::Debug for __IncompleteArrayField<T> {
    fn fmt(&self, fmt: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
        fmt.write_str("__IncompleteArrayField")
    }
}
pub type __u8 = libc::c_uchar;
pub type __u16 = libc::c_ushort;
pub type __u32 = libc::c_uint;
pub type __u64 = libc::c_ulonglong;
pub type __be16 = __u16;
pub type __be32 = __u32;
pub type __be64 = __u64;
pub const IB_UVERBS_FLOW_ACTION_ESP_KEYMAT_AES_GCM: ib_uverbs_flow_action_esp_keymat = 0;
pub type ib_uverbs_flow_action_esp_keymat = libc::c_uint;
pub const IB_UVERBS_FLOW_ACTION_ESP_REPLAY_NONE: ib_uverbs_flow_action_esp_replay = 0;
pub const IB_UVERBS_FLOW_ACTION_ESP_REPLAY_BMP: ib_uverbs_flow_action_esp_replay = 1;
pub type ib_uverbs_flow_action_esp_replay = libc::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ib_uverbs_flow_action_esp_encap {
    pub __bindgen_anon_1: ib_uverbs_flow_action_esp_encap__bindgen_ty_1,
    pub __bindgen_anon_2: ib_uverbs_flow_action_esp_encap__bindgen_ty_2,
    pub len: __u16,
    pub type_: __u16,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union ib_uverbs_flow_action_esp_encap__bindgen_ty_1 {
    pub val_ptr: *mut libc::c_void,
    pub val_ptr_data_u64: __u64,
}
impl Default for ib_uverbs_flow_action_esp_encap__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union ib_uverbs_flow_action_esp_encap__bindgen_ty_2 {
    pub next_ptr: *mut ib_uverbs_flow_action_esp_encap,
    pub next_ptr_data_u64: __u64,
}
impl Default for ib_uverbs_flow_action_esp_encap__bindgen_ty_2 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl Default for ib_uverbs_flow_action_esp_encap {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct ib_uverbs_flow_action_esp {
    pub spi: __u32,
    pub seq: __u32,
    pub tfc_pad: __u32,
    pub flags: __u32,
    pub hard_limit_pkts: __u64,
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct _ibv_device_ops {
    pub _dummy1: ::core::option::Option<
        unsafe extern "C" fn(device: *mut ibv_device, cmd_fd: libc::c_int) -> *mut ibv_context,
    >,
    pub _dummy2: ::core::option::Option<unsafe extern "C" fn(context: *mut ibv_context)>,
}
#[repr(C)]
#[derive(Debug)]
pub struct _compat_ibv_port_attr {
    _unused: [u8; 0],
}
pub const MLX5_IB_UAPI_FLOW_ACTION_FLAGS_REQUIRE_METADATA: mlx5_ib_uapi_flow_action_flags = 1;
pub type mlx5_ib_uapi_flow_action_flags = libc::c_uint;
pub const MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX: mlx5_ib_uapi_flow_table_type = 0;
pub const MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_TX: mlx5_ib_uapi_flow_table_type = 1;
pub const MLX5_IB_UAPI_FLOW_TABLE_TYPE_FDB: mlx5_ib_uapi_flow_table_type = 2;
pub const MLX5_IB_UAPI_FLOW_TABLE_TYPE_RDMA_RX: mlx5_ib_uapi_flow_table_type = 3;
pub const MLX5_IB_UAPI_FLOW_TABLE_TYPE_RDMA_TX: mlx5_ib_uapi_flow_table_type = 4;
pub type mlx5_ib_uapi_flow_table_type = libc::c_uint;
pub const MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2:
    mlx5_ib_uapi_flow_action_packet_reformat_type = 0;
pub const MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L2_TUNNEL:
    mlx5_ib_uapi_flow_action_packet_reformat_type = 1;
pub const MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_L3_TUNNEL_TO_L2:
    mlx5_ib_uapi_flow_action_packet_reformat_type = 2;
pub const MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L3_TUNNEL:
    mlx5_ib_uapi_flow_action_packet_reformat_type = 3;
pub type mlx5_ib_uapi_flow_action_packet_reformat_type = libc::c_uint;
#[repr(C)]
#[derive(Default)]
pub struct mlx5_ib_uapi_devx_async_cmd_hdr {
    pub wr_id: __u64,
    pub out_data: __IncompleteArrayField<__u8>,
}
pub const MLX5_IB_UAPI_DM_TYPE_MEMIC: mlx5_ib_uapi_dm_type = 0;
pub const MLX5_IB_UAPI_DM_TYPE_STEERING_SW_ICM: mlx5_ib_uapi_dm_type = 1;
pub const MLX5_IB_UAPI_DM_TYPE_HEADER_MODIFY_SW_ICM: mlx5_ib_uapi_dm_type = 2;
pub const MLX5_IB_UAPI_DM_TYPE_HEADER_MODIFY_PATTERN_SW_ICM: mlx5_ib_uapi_dm_type = 3;
pub type mlx5_ib_uapi_dm_type = libc::c_uint;
pub const MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA: mlx5_ib_uapi_devx_create_event_channel_flags =
    1;
pub type mlx5_ib_uapi_devx_create_event_channel_flags = libc::c_uint;
#[repr(C)]
#[derive(Default)]
pub struct mlx5_ib_uapi_devx_async_event_hdr {
    pub cookie: __u64,
    pub out_data: __IncompleteArrayField<__u8>,
}
pub const MLX5_IB_UAPI_PP_ALLOC_FLAGS_DEDICATED_INDEX: mlx5_ib_uapi_pp_alloc_flags = 1;
pub type mlx5_ib_uapi_pp_alloc_flags = libc::c_uint;
pub const MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF: mlx5_ib_uapi_uar_alloc_type = 0;
pub const MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC: mlx5_ib_uapi_uar_alloc_type = 1;
pub type mlx5_ib_uapi_uar_alloc_type = libc::c_uint;
pub const MLX5_IB_UAPI_QUERY_PORT_VPORT: mlx5_ib_uapi_query_port_flags = 1;
pub const MLX5_IB_UAPI_QUERY_PORT_VPORT_VHCA_ID: mlx5_ib_uapi_query_port_flags = 2;
pub const MLX5_IB_UAPI_QUERY_PORT_VPORT_STEERING_ICM_RX: mlx5_ib_uapi_query_port_flags = 4;
pub const MLX5_IB_UAPI_QUERY_PORT_VPORT_STEERING_ICM_TX: mlx5_ib_uapi_query_port_flags = 8;
pub const MLX5_IB_UAPI_QUERY_PORT_VPORT_REG_C0: mlx5_ib_uapi_query_port_flags = 16;
pub const MLX5_IB_UAPI_QUERY_PORT_ESW_OWNER_VHCA_ID: mlx5_ib_uapi_query_port_flags = 32;
pub type mlx5_ib_uapi_query_port_flags = libc::c_uint;
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5_ib_uapi_reg {
    pub value: __u32,
    pub mask: __u32,
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5_ib_uapi_query_port {
    pub flags: __u64,
    pub vport: __u16,
    pub vport_vhca_id: __u16,
    pub esw_owner_vhca_id: __u16,
    pub rsvd0: __u16,
    pub vport_steering_icm_rx: __u64,
    pub vport_steering_icm_tx: __u64,
    pub reg_c0: mlx5_ib_uapi_reg,
}
pub const MLX5_RCV_DBR: libc::c_uint = 0;
pub const MLX5_SND_DBR: libc::c_uint = 1;
pub const MLX5DV_CONTEXT_MASK_CQE_COMPRESION: mlx5dv_context_comp_mask = 1;
pub const MLX5DV_CONTEXT_MASK_SWP: mlx5dv_context_comp_mask = 2;
pub const MLX5DV_CONTEXT_MASK_STRIDING_RQ: mlx5dv_context_comp_mask = 4;
pub const MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS: mlx5dv_context_comp_mask = 8;
pub const MLX5DV_CONTEXT_MASK_DYN_BFREGS: mlx5dv_context_comp_mask = 16;
pub const MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE: mlx5dv_context_comp_mask = 32;
pub const MLX5DV_CONTEXT_MASK_FLOW_ACTION_FLAGS: mlx5dv_context_comp_mask = 64;
pub const MLX5DV_CONTEXT_MASK_DC_ODP_CAPS: mlx5dv_context_comp_mask = 128;
pub const MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK: mlx5dv_context_comp_mask = 256;
pub const MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS: mlx5dv_context_comp_mask = 512;
pub const MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD: mlx5dv_context_comp_mask = 1024;
pub const MLX5DV_CONTEXT_MASK_DCI_STREAMS: mlx5dv_context_comp_mask = 2048;
pub const MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH: mlx5dv_context_comp_mask = 4096;
pub const MLX5DV_CONTEXT_MASK_CRYPTO_OFFLOAD: mlx5dv_context_comp_mask = 8192;
pub type mlx5dv_context_comp_mask = libc::c_uint;
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_cqe_comp_caps {
    pub max_num: u32,
    pub supported_format: u32,
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_sw_parsing_caps {
    pub sw_parsing_offloads: u32,
    pub supported_qpts: u32,
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_striding_rq_caps {
    pub min_single_stride_log_num_of_bytes: u32,
    pub max_single_stride_log_num_of_bytes: u32,
    pub min_single_wqe_log_num_of_strides: u32,
    pub max_single_wqe_log_num_of_strides: u32,
    pub supported_qpts: u32,
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_dci_streams_caps {
    pub max_log_num_concurent: u8,
    pub max_log_num_errored: u8,
}
pub const MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_VXLAN: mlx5dv_tunnel_offloads = 1;
pub const MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_GRE: mlx5dv_tunnel_offloads = 2;
pub const MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_GENEVE: mlx5dv_tunnel_offloads = 4;
pub const MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_CW_MPLS_OVER_GRE: mlx5dv_tunnel_offloads = 8;
pub const MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_CW_MPLS_OVER_UDP: mlx5dv_tunnel_offloads = 16;
pub type mlx5dv_tunnel_offloads = libc::c_uint;
pub const MLX5DV_FLOW_ACTION_FLAGS_ESP_AES_GCM: mlx5dv_flow_action_cap_flags = 1;
pub const MLX5DV_FLOW_ACTION_FLAGS_ESP_AES_GCM_REQ_METADATA: mlx5dv_flow_action_cap_flags = 2;
pub const MLX5DV_FLOW_ACTION_FLAGS_ESP_AES_GCM_SPI_STEERING: mlx5dv_flow_action_cap_flags = 4;
pub const MLX5DV_FLOW_ACTION_FLAGS_ESP_AES_GCM_FULL_OFFLOAD: mlx5dv_flow_action_cap_flags = 8;
pub const MLX5DV_FLOW_ACTION_FLAGS_ESP_AES_GCM_TX_IV_IS_ESN: mlx5dv_flow_action_cap_flags = 16;
pub type mlx5dv_flow_action_cap_flags = libc::c_uint;
pub const MLX5DV_SIG_TYPE_T10DIF: mlx5dv_sig_type = 0;
pub const MLX5DV_SIG_TYPE_CRC: mlx5dv_sig_type = 1;
pub type mlx5dv_sig_type = libc::c_uint;
pub const MLX5DV_SIG_PROT_CAP_T10DIF: mlx5dv_sig_prot_caps = 1;
pub const MLX5DV_SIG_PROT_CAP_CRC: mlx5dv_sig_prot_caps = 2;
pub type mlx5dv_sig_prot_caps = libc::c_uint;
pub const MLX5DV_SIG_T10DIF_CRC: mlx5dv_sig_t10dif_bg_type = 0;
pub const MLX5DV_SIG_T10DIF_CSUM: mlx5dv_sig_t10dif_bg_type = 1;
pub type mlx5dv_sig_t10dif_bg_type = libc::c_uint;
pub const MLX5DV_SIG_T10DIF_BG_CAP_CRC: mlx5dv_sig_t10dif_bg_caps = 1;
pub const MLX5DV_SIG_T10DIF_BG_CAP_CSUM: mlx5dv_sig_t10dif_bg_caps = 2;
pub type mlx5dv_sig_t10dif_bg_caps = libc::c_uint;
pub const MLX5DV_SIG_CRC_TYPE_CRC32: mlx5dv_sig_crc_type = 0;
pub const MLX5DV_SIG_CRC_TYPE_CRC32C: mlx5dv_sig_crc_type = 1;
pub const MLX5DV_SIG_CRC_TYPE_CRC64_XP10: mlx5dv_sig_crc_type = 2;
pub type mlx5dv_sig_crc_type = libc::c_uint;
pub const MLX5DV_SIG_CRC_TYPE_CAP_CRC32: mlx5dv_sig_crc_type_caps = 1;
pub const MLX5DV_SIG_CRC_TYPE_CAP_CRC32C: mlx5dv_sig_crc_type_caps = 2;
pub const MLX5DV_SIG_CRC_TYPE_CAP_CRC64_XP10: mlx5dv_sig_crc_type_caps = 4;
pub type mlx5dv_sig_crc_type_caps = libc::c_uint;
pub const MLX5DV_BLOCK_SIZE_512: mlx5dv_block_size = 0;
pub const MLX5DV_BLOCK_SIZE_520: mlx5dv_block_size = 1;
pub const MLX5DV_BLOCK_SIZE_4048: mlx5dv_block_size = 2;
pub const MLX5DV_BLOCK_SIZE_4096: mlx5dv_block_size = 3;
pub const MLX5DV_BLOCK_SIZE_4160: mlx5dv_block_size = 4;
pub type mlx5dv_block_size = libc::c_uint;
pub const MLX5DV_BLOCK_SIZE_CAP_512: mlx5dv_block_size_caps = 1;
pub const MLX5DV_BLOCK_SIZE_CAP_520: mlx5dv_block_size_caps = 2;
pub const MLX5DV_BLOCK_SIZE_CAP_4048: mlx5dv_block_size_caps = 4;
pub const MLX5DV_BLOCK_SIZE_CAP_4096: mlx5dv_block_size_caps = 8;
pub const MLX5DV_BLOCK_SIZE_CAP_4160: mlx5dv_block_size_caps = 16;
pub type mlx5dv_block_size_caps = libc::c_uint;
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_sig_caps {
    pub block_size: u64,
    pub block_prot: u32,
    pub t10dif_bg: u16,
    pub crc_type: u16,
}
pub const MLX5DV_CRYPTO_ENGINES_CAP_AES_XTS: mlx5dv_crypto_engines_caps = 1;
pub const MLX5DV_CRYPTO_ENGINES_CAP_AES_XTS_SINGLE_BLOCK: mlx5dv_crypto_engines_caps = 2;
pub const MLX5DV_CRYPTO_ENGINES_CAP_AES_XTS_MULTI_BLOCK: mlx5dv_crypto_engines_caps = 4;
pub type mlx5dv_crypto_engines_caps = libc::c_uint;
pub const MLX5DV_CRYPTO_WRAPPED_IMPORT_METHOD_CAP_AES_XTS:
    mlx5dv_crypto_wrapped_import_method_caps = 1;
pub type mlx5dv_crypto_wrapped_import_method_caps = libc::c_uint;
pub const MLX5DV_CRYPTO_CAPS_CRYPTO: mlx5dv_crypto_caps_flags = 1;
pub const MLX5DV_CRYPTO_CAPS_WRAPPED_CRYPTO_OPERATIONAL: mlx5dv_crypto_caps_flags = 2;
pub const MLX5DV_CRYPTO_CAPS_WRAPPED_CRYPTO_GOING_TO_COMMISSIONING: mlx5dv_crypto_caps_flags = 4;
pub type mlx5dv_crypto_caps_flags = libc::c_uint;
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_crypto_caps {
    pub failed_selftests: u16,
    pub crypto_engines: u8,
    pub wrapped_import_method: u8,
    pub log_max_num_deks: u8,
    pub flags: u32,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_context {
    pub version: u8,
    pub flags: u64,
    pub comp_mask: u64,
    pub cqe_comp_caps: mlx5dv_cqe_comp_caps,
    pub sw_parsing_caps: mlx5dv_sw_parsing_caps,
    pub striding_rq_caps: mlx5dv_striding_rq_caps,
    pub tunnel_offloads_caps: u32,
    pub max_dynamic_bfregs: u32,
    pub max_clock_info_update_nsec: u64,
    pub flow_action_flags: u32,
    pub dc_odp_caps: u32,
    pub hca_core_clock: *mut libc::c_void,
    pub num_lag_ports: u8,
    pub sig_caps: mlx5dv_sig_caps,
    pub dci_streams_caps: mlx5dv_dci_streams_caps,
    pub max_wr_memcpy_length: usize,
    pub crypto_caps: mlx5dv_crypto_caps,
}
impl Default for mlx5dv_context {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const MLX5DV_CONTEXT_FLAGS_CQE_V1: mlx5dv_context_flags = 1;
pub const MLX5DV_CONTEXT_FLAGS_OBSOLETE: mlx5dv_context_flags = 2;
pub const MLX5DV_CONTEXT_FLAGS_MPW_ALLOWED: mlx5dv_context_flags = 4;
pub const MLX5DV_CONTEXT_FLAGS_ENHANCED_MPW: mlx5dv_context_flags = 8;
pub const MLX5DV_CONTEXT_FLAGS_CQE_128B_COMP: mlx5dv_context_flags = 16;
pub const MLX5DV_CONTEXT_FLAGS_CQE_128B_PAD: mlx5dv_context_flags = 32;
pub const MLX5DV_CONTEXT_FLAGS_PACKET_BASED_CREDIT_MODE: mlx5dv_context_flags = 64;
pub const MLX5DV_CONTEXT_FLAGS_REAL_TIME_TS: mlx5dv_context_flags = 128;
pub type mlx5dv_context_flags = libc::c_uint;
pub const MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE: mlx5dv_cq_init_attr_mask = 1;
pub const MLX5DV_CQ_INIT_ATTR_MASK_FLAGS: mlx5dv_cq_init_attr_mask = 2;
pub const MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE: mlx5dv_cq_init_attr_mask = 4;
pub type mlx5dv_cq_init_attr_mask = libc::c_uint;
pub const MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD: mlx5dv_cq_init_attr_flags = 1;
pub const MLX5DV_CQ_INIT_ATTR_FLAGS_RESERVED: mlx5dv_cq_init_attr_flags = 2;
pub type mlx5dv_cq_init_attr_flags = libc::c_uint;
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_cq_init_attr {
    pub comp_mask: u64,
    pub cqe_comp_res_format: u8,
    pub flags: u32,
    pub cqe_size: u16,
}
pub const MLX5DV_QP_CREATE_TUNNEL_OFFLOADS: mlx5dv_qp_create_flags = 1;
pub const MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC: mlx5dv_qp_create_flags = 2;
pub const MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC: mlx5dv_qp_create_flags = 4;
pub const MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE: mlx5dv_qp_create_flags = 8;
pub const MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE: mlx5dv_qp_create_flags = 16;
pub const MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE: mlx5dv_qp_create_flags = 32;
pub const MLX5DV_QP_CREATE_SIG_PIPELINING: mlx5dv_qp_create_flags = 64;
pub type mlx5dv_qp_create_flags = libc::c_uint;
pub const MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT: mlx5dv_mkey_init_attr_flags = 1;
pub const MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE: mlx5dv_mkey_init_attr_flags = 2;
pub const MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO: mlx5dv_mkey_init_attr_flags = 4;
pub const MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG: mlx5dv_mkey_init_attr_flags = 8;
pub const MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE: mlx5dv_mkey_init_attr_flags = 16;
pub type mlx5dv_mkey_init_attr_flags = libc::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_mkey_init_attr {
    pub pd: *mut ibv_pd,
    pub create_flags: u32,
    pub max_entries: u16,
}
impl Default for mlx5dv_mkey_init_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_mkey {
    pub lkey: u32,
    pub rkey: u32,
}
pub const MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS: mlx5dv_qp_init_attr_mask = 1;
pub const MLX5DV_QP_INIT_ATTR_MASK_DC: mlx5dv_qp_init_attr_mask = 2;
pub const MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS: mlx5dv_qp_init_attr_mask = 4;
pub const MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS: mlx5dv_qp_init_attr_mask = 8;
pub type mlx5dv_qp_init_attr_mask = libc::c_uint;
pub const MLX5DV_DCTYPE_DCT: mlx5dv_dc_type = 1;
pub const MLX5DV_DCTYPE_DCI: mlx5dv_dc_type = 2;
pub type mlx5dv_dc_type = libc::c_uint;
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_dci_streams {
    pub log_num_concurent: u8,
    pub log_num_errored: u8,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_dc_init_attr {
    pub dc_type: mlx5dv_dc_type,
    pub __bindgen_anon_1: mlx5dv_dc_init_attr__bindgen_ty_1,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union mlx5dv_dc_init_attr__bindgen_ty_1 {
    pub dct_access_key: u64,
    pub dci_streams: mlx5dv_dci_streams,
}
impl Default for mlx5dv_dc_init_attr__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl Default for mlx5dv_dc_init_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const MLX5DV_QP_EX_WITH_MR_INTERLEAVED: mlx5dv_qp_create_send_ops_flags = 1;
pub const MLX5DV_QP_EX_WITH_MR_LIST: mlx5dv_qp_create_send_ops_flags = 2;
pub const MLX5DV_QP_EX_WITH_MKEY_CONFIGURE: mlx5dv_qp_create_send_ops_flags = 4;
pub const MLX5DV_QP_EX_WITH_RAW_WQE: mlx5dv_qp_create_send_ops_flags = 8;
pub const MLX5DV_QP_EX_WITH_MEMCPY: mlx5dv_qp_create_send_ops_flags = 16;
pub type mlx5dv_qp_create_send_ops_flags = libc::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_qp_init_attr {
    pub comp_mask: u64,
    pub create_flags: u32,
    pub dc_init_attr: mlx5dv_dc_init_attr,
    pub send_ops_flags: u64,
}
impl Default for mlx5dv_qp_init_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_mr_interleaved {
    pub addr: u64,
    pub bytes_count: u32,
    pub bytes_skip: u32,
    pub lkey: u32,
}
pub const MLX5DV_SIG_T10DIF_FLAG_REF_REMAP: mlx5dv_sig_t10dif_flags = 1;
pub const MLX5DV_SIG_T10DIF_FLAG_APP_ESCAPE: mlx5dv_sig_t10dif_flags = 2;
pub const MLX5DV_SIG_T10DIF_FLAG_APP_REF_ESCAPE: mlx5dv_sig_t10dif_flags = 4;
pub type mlx5dv_sig_t10dif_flags = libc::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_sig_t10dif {
    pub bg_type: mlx5dv_sig_t10dif_bg_type,
    pub bg: u16,
    pub app_tag: u16,
    pub ref_tag: u32,
    pub flags: u16,
}
impl Default for mlx5dv_sig_t10dif {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_sig_crc {
    pub type_: mlx5dv_sig_crc_type,
    pub seed: u64,
}
impl Default for mlx5dv_sig_crc {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_sig_block_domain {
    pub sig_type: mlx5dv_sig_type,
    pub sig: mlx5dv_sig_block_domain__bindgen_ty_1,
    pub block_size: mlx5dv_block_size,
    pub comp_mask: u64,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union mlx5dv_sig_block_domain__bindgen_ty_1 {
    pub dif: *const mlx5dv_sig_t10dif,
    pub crc: *const mlx5dv_sig_crc,
}
impl Default for mlx5dv_sig_block_domain__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl Default for mlx5dv_sig_block_domain {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const MLX5DV_SIG_MASK_T10DIF_GUARD: mlx5dv_sig_mask = 192;
pub const MLX5DV_SIG_MASK_T10DIF_APPTAG: mlx5dv_sig_mask = 48;
pub const MLX5DV_SIG_MASK_T10DIF_REFTAG: mlx5dv_sig_mask = 15;
pub const MLX5DV_SIG_MASK_CRC32: mlx5dv_sig_mask = 240;
pub const MLX5DV_SIG_MASK_CRC32C: mlx5dv_sig_mask = 240;
pub const MLX5DV_SIG_MASK_CRC64_XP10: mlx5dv_sig_mask = 255;
pub type mlx5dv_sig_mask = libc::c_uint;
pub const MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK: mlx5dv_sig_block_attr_flags = 1;
pub type mlx5dv_sig_block_attr_flags = libc::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_sig_block_attr {
    pub mem: *const mlx5dv_sig_block_domain,
    pub wire: *const mlx5dv_sig_block_domain,
    pub flags: u32,
    pub check_mask: u8,
    pub copy_mask: u8,
    pub comp_mask: u64,
}
impl Default for mlx5dv_sig_block_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const MLX5DV_CRYPTO_STANDARD_AES_XTS: mlx5dv_crypto_standard = 0;
pub type mlx5dv_crypto_standard = libc::c_uint;
pub const MLX5DV_SIGNATURE_CRYPTO_ORDER_SIGNATURE_AFTER_CRYPTO_ON_TX:
    mlx5dv_signature_crypto_order = 0;
pub const MLX5DV_SIGNATURE_CRYPTO_ORDER_SIGNATURE_BEFORE_CRYPTO_ON_TX:
    mlx5dv_signature_crypto_order = 1;
pub type mlx5dv_signature_crypto_order = libc::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_crypto_attr {
    pub crypto_standard: mlx5dv_crypto_standard,
    pub encrypt_on_tx: bool,
    pub signature_crypto_order: mlx5dv_signature_crypto_order,
    pub data_unit_size: mlx5dv_block_size,
    pub initial_tweak: [libc::c_char; 16usize],
    pub dek: *mut mlx5dv_dek,
    pub keytag: [libc::c_char; 8usize],
    pub comp_mask: u64,
}
impl Default for mlx5dv_crypto_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR: mlx5dv_mkey_conf_flags = 1;
pub type mlx5dv_mkey_conf_flags = libc::c_uint;
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_mkey_conf_attr {
    pub conf_flags: u32,
    pub comp_mask: u64,
}
pub const MLX5DV_WC_UMR: mlx5dv_wc_opcode = 135;
pub const MLX5DV_WC_RAW_WQE: mlx5dv_wc_opcode = 136;
pub const MLX5DV_WC_MEMCPY: mlx5dv_wc_opcode = 137;
pub type mlx5dv_wc_opcode = libc::c_uint;
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_qp_ex {
    pub comp_mask: u64,
    pub wr_set_dc_addr: ::core::option::Option<
        unsafe extern "C" fn(
            mqp: *mut mlx5dv_qp_ex,
            ah: *mut ibv_ah,
            remote_dctn: u32,
            remote_dc_key: u64,
        ),
    >,
    pub wr_mr_interleaved: ::core::option::Option<
        unsafe extern "C" fn(
            mqp: *mut mlx5dv_qp_ex,
            mkey: *mut mlx5dv_mkey,
            access_flags: u32,
            repeat_count: u32,
            num_interleaved: u16,
            data: *mut mlx5dv_mr_interleaved,
        ),
    >,
    pub wr_mr_list: ::core::option::Option<
        unsafe extern "C" fn(
            mqp: *mut mlx5dv_qp_ex,
            mkey: *mut mlx5dv_mkey,
            access_flags: u32,
            num_sges: u16,
            sge: *mut ibv_sge,
        ),
    >,
    pub wr_mkey_configure: ::core::option::Option<
        unsafe extern "C" fn(
            mqp: *mut mlx5dv_qp_ex,
            mkey: *mut mlx5dv_mkey,
            num_setters: u8,
            attr: *mut mlx5dv_mkey_conf_attr,
        ),
    >,
    pub wr_set_mkey_access_flags:
        ::core::option::Option<unsafe extern "C" fn(mqp: *mut mlx5dv_qp_ex, access_flags: u32)>,
    pub wr_set_mkey_layout_list: ::core::option::Option<
        unsafe extern "C" fn(mqp: *mut mlx5dv_qp_ex, num_sges: u16, sge: *const ibv_sge),
    >,
    pub wr_set_mkey_layout_interleaved: ::core::option::Option<
        unsafe extern "C" fn(
            mqp: *mut mlx5dv_qp_ex,
            repeat_count: u32,
            num_interleaved: u16,
            data: *const mlx5dv_mr_interleaved,
        ),
    >,
    pub wr_set_mkey_sig_block: ::core::option::Option<
        unsafe extern "C" fn(mqp: *mut mlx5dv_qp_ex, attr: *const mlx5dv_sig_block_attr),
    >,
    pub wr_raw_wqe: ::core::option::Option<
        unsafe extern "C" fn(mqp: *mut mlx5dv_qp_ex, wqe: *const libc::c_void),
    >,
    pub wr_set_dc_addr_stream: ::core::option::Option<
        unsafe extern "C" fn(
            mqp: *mut mlx5dv_qp_ex,
            ah: *mut ibv_ah,
            remote_dctn: u32,
            remote_dc_key: u64,
            stream_id: u16,
        ),
    >,
    pub wr_memcpy: ::core::option::Option<
        unsafe extern "C" fn(
            mqp: *mut mlx5dv_qp_ex,
            dest_lkey: u32,
            dest_addr: u64,
            src_lkey: u32,
            src_addr: u64,
            length: usize,
        ),
    >,
    pub wr_set_mkey_crypto: ::core::option::Option<
        unsafe extern "C" fn(mqp: *mut mlx5dv_qp_ex, attr: *const mlx5dv_crypto_attr),
    >,
}
pub const MLX5DV_MKEY_NO_ERR: mlx5dv_mkey_err_type = 0;
pub const MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD: mlx5dv_mkey_err_type = 1;
pub const MLX5DV_MKEY_SIG_BLOCK_BAD_REFTAG: mlx5dv_mkey_err_type = 2;
pub const MLX5DV_MKEY_SIG_BLOCK_BAD_APPTAG: mlx5dv_mkey_err_type = 3;
pub type mlx5dv_mkey_err_type = libc::c_uint;
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_sig_err {
    pub actual_value: u64,
    pub expected_value: u64,
    pub offset: u64,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_mkey_err {
    pub err_type: mlx5dv_mkey_err_type,
    pub err: mlx5dv_mkey_err__bindgen_ty_1,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union mlx5dv_mkey_err__bindgen_ty_1 {
    pub sig: mlx5dv_sig_err,
}
impl Default for mlx5dv_mkey_err__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl Default for mlx5dv_mkey_err {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug)]
pub struct mlx5dv_crypto_login_obj {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_crypto_login_attr {
    pub credential_id: u32,
    pub import_kek_id: u32,
    pub credential: [libc::c_char; 48usize],
    pub comp_mask: u64,
}
impl Default for mlx5dv_crypto_login_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_crypto_login_attr_ex {
    pub credential_id: u32,
    pub import_kek_id: u32,
    pub credential: *const libc::c_void,
    pub credential_len: usize,
    pub comp_mask: u64,
}
impl Default for mlx5dv_crypto_login_attr_ex {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const MLX5DV_CRYPTO_LOGIN_STATE_VALID: mlx5dv_crypto_login_state = 0;
pub const MLX5DV_CRYPTO_LOGIN_STATE_NO_LOGIN: mlx5dv_crypto_login_state = 1;
pub const MLX5DV_CRYPTO_LOGIN_STATE_INVALID: mlx5dv_crypto_login_state = 2;
pub type mlx5dv_crypto_login_state = libc::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_crypto_login_query_attr {
    pub state: mlx5dv_crypto_login_state,
    pub comp_mask: u64,
}
impl Default for mlx5dv_crypto_login_query_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const MLX5DV_CRYPTO_KEY_SIZE_128: mlx5dv_crypto_key_size = 0;
pub const MLX5DV_CRYPTO_KEY_SIZE_256: mlx5dv_crypto_key_size = 1;
pub type mlx5dv_crypto_key_size = libc::c_uint;
pub const MLX5DV_CRYPTO_KEY_PURPOSE_AES_XTS: mlx5dv_crypto_key_purpose = 0;
pub type mlx5dv_crypto_key_purpose = libc::c_uint;
pub const MLX5DV_DEK_STATE_READY: mlx5dv_dek_state = 0;
pub const MLX5DV_DEK_STATE_ERROR: mlx5dv_dek_state = 1;
pub type mlx5dv_dek_state = libc::c_uint;
pub const MLX5DV_DEK_INIT_ATTR_CRYPTO_LOGIN: mlx5dv_dek_init_attr_mask = 1;
pub type mlx5dv_dek_init_attr_mask = libc::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_dek_init_attr {
    pub key_size: mlx5dv_crypto_key_size,
    pub has_keytag: bool,
    pub key_purpose: mlx5dv_crypto_key_purpose,
    pub pd: *mut ibv_pd,
    pub opaque: [libc::c_char; 8usize],
    pub key: [libc::c_char; 128usize],
    pub comp_mask: u64,
    pub crypto_login: *mut mlx5dv_crypto_login_obj,
}
impl Default for mlx5dv_dek_init_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_dek_attr {
    pub state: mlx5dv_dek_state,
    pub opaque: [libc::c_char; 8usize],
    pub comp_mask: u64,
}
impl Default for mlx5dv_dek_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug)]
pub struct mlx5dv_dek {
    _unused: [u8; 0],
}
pub const MLX5DV_FLOW_ACTION_ESP_MASK_FLAGS: mlx5dv_flow_action_esp_mask = 1;
pub type mlx5dv_flow_action_esp_mask = libc::c_uint;
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_flow_action_esp {
    pub comp_mask: u64,
    pub action_flags: u32,
}
#[repr(C)]
#[derive(Default)]
pub struct mlx5dv_flow_match_parameters {
    pub match_sz: usize,
    pub match_buf: __IncompleteArrayField<u64>,
}
pub const MLX5DV_FLOW_MATCHER_MASK_FT_TYPE: mlx5dv_flow_matcher_attr_mask = 1;
pub type mlx5dv_flow_matcher_attr_mask = libc::c_uint;
#[repr(C)]
pub struct mlx5dv_flow_matcher_attr {
    pub type_: ibv_flow_attr_type,
    pub flags: u32,
    pub priority: u16,
    pub match_criteria_enable: u8,
    pub match_mask: *mut mlx5dv_flow_match_parameters,
    pub comp_mask: u64,
    pub ft_type: mlx5_ib_uapi_flow_table_type,
}
impl Default for mlx5dv_flow_matcher_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug)]
pub struct mlx5dv_flow_matcher {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_steering_anchor_attr {
    pub ft_type: mlx5_ib_uapi_flow_table_type,
    pub priority: u16,
    pub comp_mask: u64,
}
impl Default for mlx5dv_steering_anchor_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_steering_anchor {
    pub id: u32,
}
pub const MLX5DV_FLOW_ACTION_DEST_IBV_QP: mlx5dv_flow_action_type = 0;
pub const MLX5DV_FLOW_ACTION_DROP: mlx5dv_flow_action_type = 1;
pub const MLX5DV_FLOW_ACTION_IBV_COUNTER: mlx5dv_flow_action_type = 2;
pub const MLX5DV_FLOW_ACTION_IBV_FLOW_ACTION: mlx5dv_flow_action_type = 3;
pub const MLX5DV_FLOW_ACTION_TAG: mlx5dv_flow_action_type = 4;
pub const MLX5DV_FLOW_ACTION_DEST_DEVX: mlx5dv_flow_action_type = 5;
pub const MLX5DV_FLOW_ACTION_COUNTERS_DEVX: mlx5dv_flow_action_type = 6;
pub const MLX5DV_FLOW_ACTION_DEFAULT_MISS: mlx5dv_flow_action_type = 7;
pub type mlx5dv_flow_action_type = libc::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_flow_action_attr {
    pub type_: mlx5dv_flow_action_type,
    pub __bindgen_anon_1: mlx5dv_flow_action_attr__bindgen_ty_1,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union mlx5dv_flow_action_attr__bindgen_ty_1 {
    pub qp: *mut ibv_qp,
    pub counter: *mut ibv_counters,
    pub action: *mut ibv_flow_action,
    pub tag_value: u32,
    pub obj: *mut mlx5dv_devx_obj,
}
impl Default for mlx5dv_flow_action_attr__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl Default for mlx5dv_flow_action_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const MLX5DV_QP_MASK_UAR_MMAP_OFFSET: mlx5dv_qp_comp_mask = 1;
pub const MLX5DV_QP_MASK_RAW_QP_HANDLES: mlx5dv_qp_comp_mask = 2;
pub const MLX5DV_QP_MASK_RAW_QP_TIR_ADDR: mlx5dv_qp_comp_mask = 4;
pub type mlx5dv_qp_comp_mask = libc::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_qp {
    pub dbrec: *mut __be32,
    pub sq: mlx5dv_qp__bindgen_ty_1,
    pub rq: mlx5dv_qp__bindgen_ty_2,
    pub bf: mlx5dv_qp__bindgen_ty_3,
    pub comp_mask: u64,
    pub uar_mmap_offset: off_t,
    pub tirn: u32,
    pub tisn: u32,
    pub rqn: u32,
    pub sqn: u32,
    pub tir_icm_addr: u64,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_qp__bindgen_ty_1 {
    pub buf: *mut libc::c_void,
    pub wqe_cnt: u32,
    pub stride: u32,
}
impl Default for mlx5dv_qp__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_qp__bindgen_ty_2 {
    pub buf: *mut libc::c_void,
    pub wqe_cnt: u32,
    pub stride: u32,
}
impl Default for mlx5dv_qp__bindgen_ty_2 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_qp__bindgen_ty_3 {
    pub reg: *mut libc::c_void,
    pub size: u32,
}
impl Default for mlx5dv_qp__bindgen_ty_3 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl Default for mlx5dv_qp {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_cq {
    pub buf: *mut libc::c_void,
    pub dbrec: *mut __be32,
    pub cqe_cnt: u32,
    pub cqe_size: u32,
    pub cq_uar: *mut libc::c_void,
    pub cqn: u32,
    pub comp_mask: u64,
}
impl Default for mlx5dv_cq {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const MLX5DV_SRQ_MASK_SRQN: mlx5dv_srq_comp_mask = 1;
pub type mlx5dv_srq_comp_mask = libc::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_srq {
    pub buf: *mut libc::c_void,
    pub dbrec: *mut __be32,
    pub stride: u32,
    pub head: u32,
    pub tail: u32,
    pub comp_mask: u64,
    pub srqn: u32,
}
impl Default for mlx5dv_srq {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_rwq {
    pub buf: *mut libc::c_void,
    pub dbrec: *mut __be32,
    pub wqe_cnt: u32,
    pub stride: u32,
    pub comp_mask: u64,
}
impl Default for mlx5dv_rwq {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_alloc_dm_attr {
    pub type_: mlx5_ib_uapi_dm_type,
    pub comp_mask: u64,
}
impl Default for mlx5dv_alloc_dm_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const MLX5DV_DM_MASK_REMOTE_VA: mlx5dv_dm_comp_mask = 1;
pub type mlx5dv_dm_comp_mask = libc::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_dm {
    pub buf: *mut libc::c_void,
    pub length: u64,
    pub comp_mask: u64,
    pub remote_va: u64,
}
impl Default for mlx5dv_dm {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_ah {
    pub av: *mut mlx5_wqe_av,
    pub comp_mask: u64,
}
impl Default for mlx5dv_ah {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_pd {
    pub pdn: u32,
    pub comp_mask: u64,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_obj {
    pub qp: mlx5dv_obj__bindgen_ty_1,
    pub cq: mlx5dv_obj__bindgen_ty_2,
    pub srq: mlx5dv_obj__bindgen_ty_3,
    pub rwq: mlx5dv_obj__bindgen_ty_4,
    pub dm: mlx5dv_obj__bindgen_ty_5,
    pub ah: mlx5dv_obj__bindgen_ty_6,
    pub pd: mlx5dv_obj__bindgen_ty_7,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_obj__bindgen_ty_1 {
    pub in_: *mut ibv_qp,
    pub out: *mut mlx5dv_qp,
}
impl Default for mlx5dv_obj__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_obj__bindgen_ty_2 {
    pub in_: *mut ibv_cq,
    pub out: *mut mlx5dv_cq,
}
impl Default for mlx5dv_obj__bindgen_ty_2 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_obj__bindgen_ty_3 {
    pub in_: *mut ibv_srq,
    pub out: *mut mlx5dv_srq,
}
impl Default for mlx5dv_obj__bindgen_ty_3 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_obj__bindgen_ty_4 {
    pub in_: *mut ibv_wq,
    pub out: *mut mlx5dv_rwq,
}
impl Default for mlx5dv_obj__bindgen_ty_4 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_obj__bindgen_ty_5 {
    pub in_: *mut ibv_dm,
    pub out: *mut mlx5dv_dm,
}
impl Default for mlx5dv_obj__bindgen_ty_5 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_obj__bindgen_ty_6 {
    pub in_: *mut ibv_ah,
    pub out: *mut mlx5dv_ah,
}
impl Default for mlx5dv_obj__bindgen_ty_6 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_obj__bindgen_ty_7 {
    pub in_: *mut ibv_pd,
    pub out: *mut mlx5dv_pd,
}
impl Default for mlx5dv_obj__bindgen_ty_7 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl Default for mlx5dv_obj {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const MLX5DV_OBJ_QP: mlx5dv_obj_type = 1;
pub const MLX5DV_OBJ_CQ: mlx5dv_obj_type = 2;
pub const MLX5DV_OBJ_SRQ: mlx5dv_obj_type = 4;
pub const MLX5DV_OBJ_RWQ: mlx5dv_obj_type = 8;
pub const MLX5DV_OBJ_DM: mlx5dv_obj_type = 16;
pub const MLX5DV_OBJ_AH: mlx5dv_obj_type = 32;
pub const MLX5DV_OBJ_PD: mlx5dv_obj_type = 64;
pub type mlx5dv_obj_type = libc::c_uint;
pub const MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ: mlx5dv_wq_init_attr_mask = 1;
pub type mlx5dv_wq_init_attr_mask = libc::c_uint;
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_striding_rq_init_attr {
    pub single_stride_log_num_of_bytes: u32,
    pub single_wqe_log_num_of_strides: u32,
    pub two_byte_shift_en: u8,
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_wq_init_attr {
    pub comp_mask: u64,
    pub striding_rq_attrs: mlx5dv_striding_rq_init_attr,
}
pub const MLX5_OPCODE_NOP: libc::c_uint = 0;
pub const MLX5_OPCODE_SEND_INVAL: libc::c_uint = 1;
pub const MLX5_OPCODE_RDMA_WRITE: libc::c_uint = 8;
pub const MLX5_OPCODE_RDMA_WRITE_IMM: libc::c_uint = 9;
pub const MLX5_OPCODE_SEND: libc::c_uint = 10;
pub const MLX5_OPCODE_SEND_IMM: libc::c_uint = 11;
pub const MLX5_OPCODE_TSO: libc::c_uint = 14;
pub const MLX5_OPCODE_RDMA_READ: libc::c_uint = 16;
pub const MLX5_OPCODE_ATOMIC_CS: libc::c_uint = 17;
pub const MLX5_OPCODE_ATOMIC_FA: libc::c_uint = 18;
pub const MLX5_OPCODE_ATOMIC_MASKED_CS: libc::c_uint = 20;
pub const MLX5_OPCODE_ATOMIC_MASKED_FA: libc::c_uint = 21;
pub const MLX5_OPCODE_FMR: libc::c_uint = 25;
pub const MLX5_OPCODE_LOCAL_INVAL: libc::c_uint = 27;
pub const MLX5_OPCODE_CONFIG_CMD: libc::c_uint = 31;
pub const MLX5_OPCODE_SET_PSV: libc::c_uint = 32;
pub const MLX5_OPCODE_UMR: libc::c_uint = 37;
pub const MLX5_OPCODE_TAG_MATCHING: libc::c_uint = 40;
pub const MLX5_OPCODE_FLOW_TBL_ACCESS: libc::c_uint = 44;
pub const MLX5_OPCODE_MMO: libc::c_uint = 47;
pub const MLX5_INLINE_SCATTER_32: libc::c_uint = 4;
pub const MLX5_INLINE_SCATTER_64: libc::c_uint = 8;
pub const MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR: libc::c_uint = 1;
pub const MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR: libc::c_uint = 2;
pub const MLX5_CQE_SYNDROME_LOCAL_PROT_ERR: libc::c_uint = 4;
pub const MLX5_CQE_SYNDROME_WR_FLUSH_ERR: libc::c_uint = 5;
pub const MLX5_CQE_SYNDROME_MW_BIND_ERR: libc::c_uint = 6;
pub const MLX5_CQE_SYNDROME_BAD_RESP_ERR: libc::c_uint = 16;
pub const MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR: libc::c_uint = 17;
pub const MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR: libc::c_uint = 18;
pub const MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR: libc::c_uint = 19;
pub const MLX5_CQE_SYNDROME_REMOTE_OP_ERR: libc::c_uint = 20;
pub const MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR: libc::c_uint = 21;
pub const MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR: libc::c_uint = 22;
pub const MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR: libc::c_uint = 34;
pub const MLX5_CQE_VENDOR_SYNDROME_ODP_PFAULT: libc::c_uint = 147;
pub const MLX5_CQE_L2_OK: libc::c_uint = 1;
pub const MLX5_CQE_L3_OK: libc::c_uint = 2;
pub const MLX5_CQE_L4_OK: libc::c_uint = 4;
pub const MLX5_CQE_L3_HDR_TYPE_NONE: libc::c_uint = 0;
pub const MLX5_CQE_L3_HDR_TYPE_IPV6: libc::c_uint = 1;
pub const MLX5_CQE_L3_HDR_TYPE_IPV4: libc::c_uint = 2;
pub const MLX5_CQE_OWNER_MASK: libc::c_uint = 1;
pub const MLX5_CQE_REQ: libc::c_uint = 0;
pub const MLX5_CQE_RESP_WR_IMM: libc::c_uint = 1;
pub const MLX5_CQE_RESP_SEND: libc::c_uint = 2;
pub const MLX5_CQE_RESP_SEND_IMM: libc::c_uint = 3;
pub const MLX5_CQE_RESP_SEND_INV: libc::c_uint = 4;
pub const MLX5_CQE_RESIZE_CQ: libc::c_uint = 5;
pub const MLX5_CQE_NO_PACKET: libc::c_uint = 6;
pub const MLX5_CQE_SIG_ERR: libc::c_uint = 12;
pub const MLX5_CQE_REQ_ERR: libc::c_uint = 13;
pub const MLX5_CQE_RESP_ERR: libc::c_uint = 14;
pub const MLX5_CQE_INVALID: libc::c_uint = 15;
pub const MLX5_CQ_DOORBELL: libc::c_uint = 32;
pub const MLX5_CQ_DB_REQ_NOT_SOL: libc::c_uint = 16777216;
pub const MLX5_CQ_DB_REQ_NOT: libc::c_uint = 0;
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5_err_cqe {
    pub rsvd0: [u8; 32usize],
    pub srqn: u32,
    pub rsvd1: [u8; 18usize],
    pub vendor_err_synd: u8,
    pub syndrome: u8,
    pub s_wqe_opcode_qpn: u32,
    pub wqe_counter: u16,
    pub signature: u8,
    pub op_own: u8,
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5_tm_cqe {
    pub success: __be32,
    pub hw_phase_cnt: __be16,
    pub rsvd0: [u8; 12usize],
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5_cqe64 {
    pub __bindgen_anon_1: mlx5_cqe64__bindgen_ty_1,
    pub srqn_uidx: __be32,
    pub imm_inval_pkey: __be32,
    pub app: u8,
    pub app_op: u8,
    pub app_info: __be16,
    pub byte_cnt: __be32,
    pub timestamp: __be64,
    pub sop_drop_qpn: __be32,
    pub wqe_counter: __be16,
    pub signature: u8,
    pub op_own: u8,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union mlx5_cqe64__bindgen_ty_1 {
    pub __bindgen_anon_1: mlx5_cqe64__bindgen_ty_1__bindgen_ty_1,
    pub tm_cqe: mlx5_tm_cqe,
    pub tmh: ibv_tmh,
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5_cqe64__bindgen_ty_1__bindgen_ty_1 {
    pub rsvd0: [u8; 2usize],
    pub wqe_id: __be16,
    pub rsvd4: [u8; 13usize],
    pub ml_path: u8,
    pub rsvd20: [u8; 4usize],
    pub slid: __be16,
    pub flags_rqpn: __be32,
    pub hds_ip_ext: u8,
    pub l4_hdr_type_etc: u8,
    pub vlan_info: __be16,
}
impl Default for mlx5_cqe64__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl Default for mlx5_cqe64 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const MLX5_TMC_SUCCESS: libc::c_uint = 2147483648;
pub const MLX5DV_CQE_RES_FORMAT_HASH: mlx5dv_cqe_comp_res_format = 1;
pub const MLX5DV_CQE_RES_FORMAT_CSUM: mlx5dv_cqe_comp_res_format = 2;
pub const MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX: mlx5dv_cqe_comp_res_format = 4;
pub type mlx5dv_cqe_comp_res_format = libc::c_uint;
pub const MLX5DV_SW_PARSING: mlx5dv_sw_parsing_offloads = 1;
pub const MLX5DV_SW_PARSING_CSUM: mlx5dv_sw_parsing_offloads = 2;
pub const MLX5DV_SW_PARSING_LSO: mlx5dv_sw_parsing_offloads = 4;
pub type mlx5dv_sw_parsing_offloads = libc::c_uint;
pub const MLX5_INVALID_LKEY: libc::c_uint = 256;
pub const MLX5_EXTENDED_UD_AV: libc::c_uint = 2147483648;
pub const MLX5_WQE_CTRL_CQ_UPDATE: libc::c_uint = 8;
pub const MLX5_WQE_CTRL_SOLICITED: libc::c_uint = 2;
pub const MLX5_WQE_CTRL_FENCE: libc::c_uint = 128;
pub const MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE: libc::c_uint = 32;
pub const MLX5_SEND_WQE_BB: libc::c_uint = 64;
pub const MLX5_SEND_WQE_SHIFT: libc::c_uint = 6;
pub const MLX5_INLINE_SEG: libc::c_uint = 2147483648;
pub const MLX5_ETH_WQE_L3_CSUM: libc::c_uint = 64;
pub const MLX5_ETH_WQE_L4_CSUM: libc::c_uint = 128;
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5_wqe_srq_next_seg {
    pub rsvd0: [u8; 2usize],
    pub next_wqe_index: __be16,
    pub signature: u8,
    pub rsvd1: [u8; 11usize],
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5_wqe_data_seg {
    pub byte_count: __be32,
    pub lkey: __be32,
    pub addr: __be64,
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5_mprq_wqe {
    pub nseg: mlx5_wqe_srq_next_seg,
    pub dseg: mlx5_wqe_data_seg,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5_wqe_av {
    pub key: mlx5_wqe_av__bindgen_ty_1,
    pub dqp_dct: __be32,
    pub stat_rate_sl: u8,
    pub fl_mlid: u8,
    pub rlid: __be16,
    pub reserved0: [u8; 4usize],
    pub rmac: [u8; 6usize],
    pub tclass: u8,
    pub hop_limit: u8,
    pub grh_gid_fl: __be32,
    pub rgid: [u8; 16usize],
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union mlx5_wqe_av__bindgen_ty_1 {
    pub qkey: mlx5_wqe_av__bindgen_ty_1__bindgen_ty_1,
    pub dc_key: __be64,
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5_wqe_av__bindgen_ty_1__bindgen_ty_1 {
    pub qkey: __be32,
    pub reserved: __be32,
}
impl Default for mlx5_wqe_av__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl Default for mlx5_wqe_av {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5_wqe_datagram_seg {
    pub av: mlx5_wqe_av,
}
impl Default for mlx5_wqe_datagram_seg {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5_wqe_raddr_seg {
    pub raddr: __be64,
    pub rkey: __be32,
    pub reserved: __be32,
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5_wqe_atomic_seg {
    pub swap_add: __be64,
    pub compare: __be64,
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5_wqe_inl_data_seg {
    pub byte_count: u32,
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5_wqe_eth_seg {
    pub rsvd0: __be32,
    pub cs_flags: u8,
    pub rsvd1: u8,
    pub mss: __be16,
    pub rsvd2: __be32,
    pub inline_hdr_sz: __be16,
    pub inline_hdr_start: [u8; 2usize],
    pub inline_hdr: [u8; 16usize],
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5_wqe_tm_seg {
    pub opcode: u8,
    pub flags: u8,
    pub index: __be16,
    pub rsvd0: [u8; 2usize],
    pub sw_cnt: __be16,
    pub rsvd1: [u8; 8usize],
    pub append_tag: __be64,
    pub append_mask: __be64,
}
pub const MLX5_WQE_UMR_CTRL_FLAG_INLINE: libc::c_uint = 128;
pub const MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE: libc::c_uint = 32;
pub const MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET: libc::c_uint = 16;
pub const MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN: libc::c_uint = 8;
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN: libc::c_uint = 1;
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR: libc::c_uint = 64;
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_SIG_ERR: libc::c_uint = 512;
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE: libc::c_uint = 4096;
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY: libc::c_uint = 8192;
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN: libc::c_uint = 16384;
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE: libc::c_uint = 262144;
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ: libc::c_uint = 524288;
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE: libc::c_uint = 1048576;
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC: libc::c_uint = 2097152;
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE: libc::c_uint = 536870912;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5_wqe_umr_ctrl_seg {
    pub flags: u8,
    pub rsvd0: [u8; 3usize],
    pub klm_octowords: __be16,
    pub __bindgen_anon_1: mlx5_wqe_umr_ctrl_seg__bindgen_ty_1,
    pub mkey_mask: __be64,
    pub rsvd1: [u8; 32usize],
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union mlx5_wqe_umr_ctrl_seg__bindgen_ty_1 {
    pub translation_offset: __be16,
    pub bsf_octowords: __be16,
}
impl Default for mlx5_wqe_umr_ctrl_seg__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl Default for mlx5_wqe_umr_ctrl_seg {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5_wqe_umr_klm_seg {
    pub byte_count: __be32,
    pub mkey: __be32,
    pub address: __be64,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union mlx5_wqe_umr_inline_seg {
    pub klm: mlx5_wqe_umr_klm_seg,
}
impl Default for mlx5_wqe_umr_inline_seg {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5_wqe_umr_repeat_ent_seg {
    pub stride: __be16,
    pub byte_count: __be16,
    pub memkey: __be32,
    pub va: __be64,
}
#[repr(C)]
#[derive(Default)]
pub struct mlx5_wqe_umr_repeat_block_seg {
    pub byte_count: __be32,
    pub op: __be32,
    pub repeat_count: __be32,
    pub reserved: __be16,
    pub num_ent: __be16,
    pub entries: __IncompleteArrayField<mlx5_wqe_umr_repeat_ent_seg>,
}
pub const MLX5_WQE_MKEY_CONTEXT_FREE: libc::c_uint = 64;
pub const MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC: libc::c_uint = 64;
pub const MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE: libc::c_uint = 32;
pub const MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ: libc::c_uint = 16;
pub const MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE: libc::c_uint = 8;
pub const MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_READ: libc::c_uint = 4;
#[repr(C)]
pub struct mlx5_wqe_mkey_context_seg {
    pub free: u8,
    pub reserved1: u8,
    pub access_flags: u8,
    pub sf: u8,
    pub qpn_mkey: __be32,
    pub reserved2: __be32,
    pub flags_pd: __be32,
    pub start_addr: __be64,
    pub len: __be64,
    pub bsf_octword_size: __be32,
    pub reserved3: [__be32; 4usize],
    pub translations_octword_size: __be32,
    pub reserved4: [u8; 3usize],
    pub log_page_size: u8,
    pub reserved: __be32,
    pub inseg: __IncompleteArrayField<mlx5_wqe_umr_inline_seg>,
}
impl Default for mlx5_wqe_mkey_context_seg {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const MLX5DV_CTX_ATTR_BUF_ALLOCATORS: mlx5dv_set_ctx_attr_type = 1;
pub type mlx5dv_set_ctx_attr_type = libc::c_uint;
pub const MLX5_MMAP_GET_REGULAR_PAGES_CMD: libc::c_uint = 0;
pub const MLX5_MMAP_GET_NC_PAGES_CMD: libc::c_uint = 3;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_ctx_allocators {
    pub alloc: ::core::option::Option<
        unsafe extern "C" fn(size: usize, priv_data: *mut libc::c_void) -> *mut libc::c_void,
    >,
    pub free: ::core::option::Option<
        unsafe extern "C" fn(ptr: *mut libc::c_void, priv_data: *mut libc::c_void),
    >,
    pub data: *mut libc::c_void,
}
impl Default for mlx5dv_ctx_allocators {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_clock_info {
    pub nsec: u64,
    pub last_cycles: u64,
    pub frac: u64,
    pub mult: u32,
    pub shift: u32,
    pub mask: u64,
}
pub const MLX5DV_CONTEXT_FLAGS_DEVX: mlx5dv_context_attr_flags = 1;
pub type mlx5dv_context_attr_flags = libc::c_uint;
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_context_attr {
    pub flags: u32,
    pub comp_mask: u64,
}
pub const MLX5DV_VFIO_CTX_FLAGS_INIT_LINK_DOWN: mlx5dv_vfio_context_attr_flags = 1;
pub type mlx5dv_vfio_context_attr_flags = libc::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_vfio_context_attr {
    pub pci_name: *const libc::c_char,
    pub flags: u32,
    pub comp_mask: u64,
}
impl Default for mlx5dv_vfio_context_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug)]
pub struct mlx5dv_devx_obj {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_devx_umem {
    pub umem_id: u32,
}
pub const MLX5DV_UMEM_MASK_DMABUF: mlx5dv_devx_umem_in_mask = 1;
pub type mlx5dv_devx_umem_in_mask = libc::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_devx_umem_in {
    pub addr: *mut libc::c_void,
    pub size: usize,
    pub access: u32,
    pub pgsz_bitmap: u64,
    pub comp_mask: u64,
    pub dmabuf_fd: libc::c_int,
}
impl Default for mlx5dv_devx_umem_in {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_devx_uar {
    pub reg_addr: *mut libc::c_void,
    pub base_addr: *mut libc::c_void,
    pub page_id: u32,
    pub mmap_off: off_t,
    pub comp_mask: u64,
}
impl Default for mlx5dv_devx_uar {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_var {
    pub page_id: u32,
    pub length: u32,
    pub mmap_off: off_t,
    pub comp_mask: u64,
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_devx_cmd_comp {
    pub fd: libc::c_int,
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_devx_event_channel {
    pub fd: libc::c_int,
}
#[repr(C)]
#[derive(Debug)]
pub struct mlx5dv_dr_domain {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct mlx5dv_dr_table {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct mlx5dv_dr_matcher {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct mlx5dv_dr_rule {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct mlx5dv_dr_action {
    _unused: [u8; 0],
}
pub const MLX5DV_DR_DOMAIN_TYPE_NIC_RX: mlx5dv_dr_domain_type = 0;
pub const MLX5DV_DR_DOMAIN_TYPE_NIC_TX: mlx5dv_dr_domain_type = 1;
pub const MLX5DV_DR_DOMAIN_TYPE_FDB: mlx5dv_dr_domain_type = 2;
pub type mlx5dv_dr_domain_type = libc::c_uint;
pub const MLX5DV_DR_DOMAIN_SYNC_FLAGS_SW: mlx5dv_dr_domain_sync_flags = 1;
pub const MLX5DV_DR_DOMAIN_SYNC_FLAGS_HW: mlx5dv_dr_domain_sync_flags = 2;
pub const MLX5DV_DR_DOMAIN_SYNC_FLAGS_MEM: mlx5dv_dr_domain_sync_flags = 4;
pub type mlx5dv_dr_domain_sync_flags = libc::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_dr_flow_meter_attr {
    pub next_table: *mut mlx5dv_dr_table,
    pub active: u8,
    pub reg_c_index: u8,
    pub flow_meter_parameter_sz: usize,
    pub flow_meter_parameter: *mut libc::c_void,
}
impl Default for mlx5dv_dr_flow_meter_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_dr_flow_sampler_attr {
    pub sample_ratio: u32,
    pub default_next_table: *mut mlx5dv_dr_table,
    pub num_sample_actions: u32,
    pub sample_actions: *mut *mut mlx5dv_dr_action,
    pub action: __be64,
}
impl Default for mlx5dv_dr_flow_sampler_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const MLX5DV_DR_MATCHER_LAYOUT_RESIZABLE: mlx5dv_dr_matcher_layout_flags = 1;
pub const MLX5DV_DR_MATCHER_LAYOUT_NUM_RULE: mlx5dv_dr_matcher_layout_flags = 2;
pub type mlx5dv_dr_matcher_layout_flags = libc::c_uint;
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_dr_matcher_layout {
    pub flags: u32,
    pub log_num_of_rules_hint: u32,
}
pub const MLX5DV_DR_ACTION_FLAGS_ROOT_LEVEL: mlx5dv_dr_action_flags = 1;
pub type mlx5dv_dr_action_flags = libc::c_uint;
pub const MLX5DV_DR_ACTION_DEST: mlx5dv_dr_action_dest_type = 0;
pub const MLX5DV_DR_ACTION_DEST_REFORMAT: mlx5dv_dr_action_dest_type = 1;
pub type mlx5dv_dr_action_dest_type = libc::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_dr_action_dest_reformat {
    pub reformat: *mut mlx5dv_dr_action,
    pub dest: *mut mlx5dv_dr_action,
}
impl Default for mlx5dv_dr_action_dest_reformat {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_dr_action_dest_attr {
    pub type_: mlx5dv_dr_action_dest_type,
    pub __bindgen_anon_1: mlx5dv_dr_action_dest_attr__bindgen_ty_1,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union mlx5dv_dr_action_dest_attr__bindgen_ty_1 {
    pub dest: *mut mlx5dv_dr_action,
    pub dest_reformat: *mut mlx5dv_dr_action_dest_reformat,
}
impl Default for mlx5dv_dr_action_dest_attr__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
impl Default for mlx5dv_dr_action_dest_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const MLX5DV_DR_ACTION_FLAGS_ASO_FIRST_HIT_SET: mlx5dv_dr_action_aso_first_hit_flags = 1;
pub type mlx5dv_dr_action_aso_first_hit_flags = libc::c_uint;
pub const MLX5DV_DR_ACTION_FLAGS_ASO_FLOW_METER_RED: mlx5dv_dr_action_aso_flow_meter_flags = 1;
pub const MLX5DV_DR_ACTION_FLAGS_ASO_FLOW_METER_YELLOW: mlx5dv_dr_action_aso_flow_meter_flags = 2;
pub const MLX5DV_DR_ACTION_FLAGS_ASO_FLOW_METER_GREEN: mlx5dv_dr_action_aso_flow_meter_flags = 4;
pub const MLX5DV_DR_ACTION_FLAGS_ASO_FLOW_METER_UNDEFINED: mlx5dv_dr_action_aso_flow_meter_flags =
    8;
pub type mlx5dv_dr_action_aso_flow_meter_flags = libc::c_uint;
pub const MLX5DV_DR_ACTION_FLAGS_ASO_CT_DIRECTION_INITIATOR: mlx5dv_dr_action_aso_ct_flags = 1;
pub const MLX5DV_DR_ACTION_FLAGS_ASO_CT_DIRECTION_RESPONDER: mlx5dv_dr_action_aso_ct_flags = 2;
pub type mlx5dv_dr_action_aso_ct_flags = libc::c_uint;
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_pp {
    pub index: u16,
}
pub const MLX5DV_SCHED_ELEM_ATTR_FLAGS_BW_SHARE: mlx5dv_sched_elem_attr_flags = 1;
pub const MLX5DV_SCHED_ELEM_ATTR_FLAGS_MAX_AVG_BW: mlx5dv_sched_elem_attr_flags = 2;
pub type mlx5dv_sched_elem_attr_flags = libc::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_sched_attr {
    pub parent: *mut mlx5dv_sched_node,
    pub flags: u32,
    pub bw_share: u32,
    pub max_avg_bw: u32,
    pub comp_mask: u64,
}
impl Default for mlx5dv_sched_attr {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug)]
pub struct mlx5dv_sched_node {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct mlx5dv_sched_leaf {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct mlx5dv_devx_msi_vector {
    pub vector: libc::c_int,
    pub fd: libc::c_int,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_devx_eq {
    pub vaddr: *mut libc::c_void,
}
impl Default for mlx5dv_devx_eq {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}

crate::load::functions! {
    Mlx5;
    "MLX5_1.1" fn mlx5dv_create_cq(context: *mut ibv_context, cq_attr: *mut ibv_cq_init_attr_ex, mlx5_cq_attr: *mut mlx5dv_cq_init_attr) -> *mut ibv_cq_ex;
    "MLX5_1.10" fn mlx5dv_create_mkey(mkey_init_attr: *mut mlx5dv_mkey_init_attr) -> *mut mlx5dv_mkey;
    "MLX5_1.10" fn mlx5dv_destroy_mkey(mkey: *mut mlx5dv_mkey) -> libc::c_int;
    "MLX5_1.3" fn mlx5dv_create_qp(context: *mut ibv_context, qp_attr: *mut ibv_qp_init_attr_ex, mlx5_qp_attr: *mut mlx5dv_qp_init_attr) -> *mut ibv_qp;
    "MLX5_1.10" fn mlx5dv_qp_ex_from_ibv_qp_ex(qp: *mut ibv_qp_ex) -> *mut mlx5dv_qp_ex;
    "MLX5_1.20" fn _mlx5dv_mkey_check(mkey: *mut mlx5dv_mkey, err_info: *mut mlx5dv_mkey_err, err_info_size: usize) -> libc::c_int;
    "MLX5_1.20" fn mlx5dv_qp_cancel_posted_send_wrs(mqp: *mut mlx5dv_qp_ex, wr_id: u64) -> libc::c_int;
    "MLX5_1.21" fn mlx5dv_crypto_login(context: *mut ibv_context, login_attr: *mut mlx5dv_crypto_login_attr) -> libc::c_int;
    "MLX5_1.21" fn mlx5dv_crypto_login_query_state(context: *mut ibv_context, state: *mut mlx5dv_crypto_login_state) -> libc::c_int;
    "MLX5_1.21" fn mlx5dv_crypto_logout(context: *mut ibv_context) -> libc::c_int;
    "MLX5_1.24" fn mlx5dv_crypto_login_create(context: *mut ibv_context, login_attr: *mut mlx5dv_crypto_login_attr_ex) -> *mut mlx5dv_crypto_login_obj;
    "MLX5_1.24" fn mlx5dv_crypto_login_query(crypto_login: *mut mlx5dv_crypto_login_obj, query_attr: *mut mlx5dv_crypto_login_query_attr) -> libc::c_int;
    "MLX5_1.24" fn mlx5dv_crypto_login_destroy(crypto_login: *mut mlx5dv_crypto_login_obj) -> libc::c_int;
    "MLX5_1.21" fn mlx5dv_dek_create(context: *mut ibv_context, init_attr: *mut mlx5dv_dek_init_attr) -> *mut mlx5dv_dek;
    "MLX5_1.21" fn mlx5dv_dek_query(dek: *mut mlx5dv_dek, attr: *mut mlx5dv_dek_attr) -> libc::c_int;
    "MLX5_1.21" fn mlx5dv_dek_destroy(dek: *mut mlx5dv_dek) -> libc::c_int;
    "MLX5_1.6" fn mlx5dv_create_flow_matcher(context: *mut ibv_context, matcher_attr: *mut mlx5dv_flow_matcher_attr) -> *mut mlx5dv_flow_matcher;
    "MLX5_1.6" fn mlx5dv_destroy_flow_matcher(matcher: *mut mlx5dv_flow_matcher) -> libc::c_int;
    "MLX5_1.24" fn mlx5dv_create_steering_anchor(context: *mut ibv_context, attr: *mut mlx5dv_steering_anchor_attr) -> *mut mlx5dv_steering_anchor;
    "MLX5_1.24" fn mlx5dv_destroy_steering_anchor(sa: *mut mlx5dv_steering_anchor) -> libc::c_int;
    "MLX5_1.6" fn mlx5dv_create_flow(matcher: *mut mlx5dv_flow_matcher, match_value: *mut mlx5dv_flow_match_parameters, num_actions: usize, actions_attr: *mut mlx5dv_flow_action_attr) -> *mut ibv_flow;
    "MLX5_1.5" fn mlx5dv_create_flow_action_esp(ctx: *mut ibv_context, esp: *mut ibv_flow_action_esp_attr, mlx5_attr: *mut mlx5dv_flow_action_esp) -> *mut ibv_flow_action;
    "MLX5_1.7" fn mlx5dv_create_flow_action_modify_header(ctx: *mut ibv_context, actions_sz: usize, actions: *mut u64, ft_type: mlx5_ib_uapi_flow_table_type) -> *mut ibv_flow_action;
    "MLX5_1.7" fn mlx5dv_create_flow_action_packet_reformat(ctx: *mut ibv_context, data_sz: usize, data: *mut libc::c_void, reformat_type: mlx5_ib_uapi_flow_action_packet_reformat_type, ft_type: mlx5_ib_uapi_flow_table_type) -> *mut ibv_flow_action;
    "MLX5_1.0" fn mlx5dv_query_device(ctx_in: *mut ibv_context, attrs_out: *mut mlx5dv_context) -> libc::c_int;
    "MLX5_1.20" fn mlx5dv_map_ah_to_qp(ah: *mut ibv_ah, qp_num: u32) -> libc::c_int;
    "MLX5_1.10" fn mlx5dv_alloc_dm(context: *mut ibv_context, dm_attr: *mut ibv_alloc_dm_attr, mlx5_dm_attr: *mut mlx5dv_alloc_dm_attr) -> *mut ibv_dm;
    "MLX5_1.19" fn mlx5dv_dm_map_op_addr(dm: *mut ibv_dm, op: u8) -> *mut libc::c_void;
    "MLX5_1.3" fn mlx5dv_create_wq(context: *mut ibv_context, wq_init_attr: *mut ibv_wq_init_attr, mlx5_wq_attr: *mut mlx5dv_wq_init_attr) -> *mut ibv_wq;
    "MLX5_1.2" fn mlx5dv_init_obj(obj: *mut mlx5dv_obj, obj_type: u64) -> libc::c_int;
    "MLX5_1.2" fn mlx5dv_set_context_attr(context: *mut ibv_context, type_: mlx5dv_set_ctx_attr_type, attr: *mut libc::c_void) -> libc::c_int;
    "MLX5_1.4" fn mlx5dv_get_clock_info(context: *mut ibv_context, clock_info: *mut mlx5dv_clock_info) -> libc::c_int;
    "MLX5_1.8" fn mlx5dv_is_supported(device: *mut ibv_device) -> bool;
    "MLX5_1.21" fn mlx5dv_get_vfio_device_list(attr: *mut mlx5dv_vfio_context_attr) -> *mut *mut ibv_device;
    "MLX5_1.21" fn mlx5dv_vfio_get_events_fd(ibctx: *mut ibv_context) -> libc::c_int;
    "MLX5_1.21" fn mlx5dv_vfio_process_events(context: *mut ibv_context) -> libc::c_int;
    "MLX5_1.7" fn mlx5dv_open_device(device: *mut ibv_device, attr: *mut mlx5dv_context_attr) -> *mut ibv_context;
    "MLX5_1.7" fn mlx5dv_devx_obj_create(context: *mut ibv_context, in_: *const libc::c_void, inlen: usize, out: *mut libc::c_void, outlen: usize) -> *mut mlx5dv_devx_obj;
    "MLX5_1.7" fn mlx5dv_devx_obj_query(obj: *mut mlx5dv_devx_obj, in_: *const libc::c_void, inlen: usize, out: *mut libc::c_void, outlen: usize) -> libc::c_int;
    "MLX5_1.7" fn mlx5dv_devx_obj_modify(obj: *mut mlx5dv_devx_obj, in_: *const libc::c_void, inlen: usize, out: *mut libc::c_void, outlen: usize) -> libc::c_int;
    "MLX5_1.7" fn mlx5dv_devx_obj_destroy(obj: *mut mlx5dv_devx_obj) -> libc::c_int;
    "MLX5_1.7" fn mlx5dv_devx_general_cmd(context: *mut ibv_context, in_: *const libc::c_void, inlen: usize, out: *mut libc::c_void, outlen: usize) -> libc::c_int;
    "MLX5_1.19" fn _mlx5dv_query_port(context: *mut ibv_context, port_num: u32, info: *mut mlx5_ib_uapi_query_port, info_len: usize) -> libc::c_int;
    "MLX5_1.7" fn mlx5dv_devx_umem_reg(ctx: *mut ibv_context, addr: *mut libc::c_void, size: usize, access: u32) -> *mut mlx5dv_devx_umem;
    "MLX5_1.19" fn mlx5dv_devx_umem_reg_ex(ctx: *mut ibv_context, umem_in: *mut mlx5dv_devx_umem_in) -> *mut mlx5dv_devx_umem;
    "MLX5_1.7" fn mlx5dv_devx_umem_dereg(umem: *mut mlx5dv_devx_umem) -> libc::c_int;
    "MLX5_1.7" fn mlx5dv_devx_alloc_uar(context: *mut ibv_context, flags: u32) -> *mut mlx5dv_devx_uar;
    "MLX5_1.7" fn mlx5dv_devx_free_uar(devx_uar: *mut mlx5dv_devx_uar);
    "MLX5_1.12" fn mlx5dv_alloc_var(context: *mut ibv_context, flags: u32) -> *mut mlx5dv_var;
    "MLX5_1.12" fn mlx5dv_free_var(dv_var: *mut mlx5dv_var);
    "MLX5_1.7" fn mlx5dv_devx_query_eqn(context: *mut ibv_context, vector: u32, eqn: *mut u32) -> libc::c_int;
    "MLX5_1.8" fn mlx5dv_devx_cq_query(cq: *mut ibv_cq, in_: *const libc::c_void, inlen: usize, out: *mut libc::c_void, outlen: usize) -> libc::c_int;
    "MLX5_1.8" fn mlx5dv_devx_cq_modify(cq: *mut ibv_cq, in_: *const libc::c_void, inlen: usize, out: *mut libc::c_void, outlen: usize) -> libc::c_int;
    "MLX5_1.8" fn mlx5dv_devx_qp_query(qp: *mut ibv_qp, in_: *const libc::c_void, inlen: usize, out: *mut libc::c_void, outlen: usize) -> libc::c_int;
    "MLX5_1.8" fn mlx5dv_devx_qp_modify(qp: *mut ibv_qp, in_: *const libc::c_void, inlen: usize, out: *mut libc::c_void, outlen: usize) -> libc::c_int;
    "MLX5_1.8" fn mlx5dv_devx_srq_query(srq: *mut ibv_srq, in_: *const libc::c_void, inlen: usize, out: *mut libc::c_void, outlen: usize) -> libc::c_int;
    "MLX5_1.8" fn mlx5dv_devx_srq_modify(srq: *mut ibv_srq, in_: *const libc::c_void, inlen: usize, out: *mut libc::c_void, outlen: usize) -> libc::c_int;
    "MLX5_1.8" fn mlx5dv_devx_wq_query(wq: *mut ibv_wq, in_: *const libc::c_void, inlen: usize, out: *mut libc::c_void, outlen: usize) -> libc::c_int;
    "MLX5_1.8" fn mlx5dv_devx_wq_modify(wq: *mut ibv_wq, in_: *const libc::c_void, inlen: usize, out: *mut libc::c_void, outlen: usize) -> libc::c_int;
    "MLX5_1.8" fn mlx5dv_devx_ind_tbl_query(ind_tbl: *mut ibv_rwq_ind_table, in_: *const libc::c_void, inlen: usize, out: *mut libc::c_void, outlen: usize) -> libc::c_int;
    "MLX5_1.8" fn mlx5dv_devx_ind_tbl_modify(ind_tbl: *mut ibv_rwq_ind_table, in_: *const libc::c_void, inlen: usize, out: *mut libc::c_void, outlen: usize) -> libc::c_int;
    "MLX5_1.9" fn mlx5dv_devx_create_cmd_comp(context: *mut ibv_context) -> *mut mlx5dv_devx_cmd_comp;
    "MLX5_1.9" fn mlx5dv_devx_destroy_cmd_comp(cmd_comp: *mut mlx5dv_devx_cmd_comp);
    "MLX5_1.9" fn mlx5dv_devx_obj_query_async(obj: *mut mlx5dv_devx_obj, in_: *const libc::c_void, inlen: usize, outlen: usize, wr_id: u64, cmd_comp: *mut mlx5dv_devx_cmd_comp) -> libc::c_int;
    "MLX5_1.9" fn mlx5dv_devx_get_async_cmd_comp(cmd_comp: *mut mlx5dv_devx_cmd_comp, cmd_resp: *mut mlx5_ib_uapi_devx_async_cmd_hdr, cmd_resp_len: usize) -> libc::c_int;
    "MLX5_1.11" fn mlx5dv_devx_create_event_channel(context: *mut ibv_context, flags: mlx5_ib_uapi_devx_create_event_channel_flags) -> *mut mlx5dv_devx_event_channel;
    "MLX5_1.11" fn mlx5dv_devx_destroy_event_channel(event_channel: *mut mlx5dv_devx_event_channel);
    "MLX5_1.11" fn mlx5dv_devx_subscribe_devx_event(event_channel: *mut mlx5dv_devx_event_channel, obj: *mut mlx5dv_devx_obj, events_sz: u16, events_num: *mut u16, cookie: u64) -> libc::c_int;
    "MLX5_1.11" fn mlx5dv_devx_subscribe_devx_event_fd(event_channel: *mut mlx5dv_devx_event_channel, fd: libc::c_int, obj: *mut mlx5dv_devx_obj, event_num: u16) -> libc::c_int;
    "MLX5_1.11" fn mlx5dv_devx_get_event(event_channel: *mut mlx5dv_devx_event_channel, event_data: *mut mlx5_ib_uapi_devx_async_event_hdr, event_resp_len: usize) -> isize;
    "MLX5_1.10" fn mlx5dv_dr_domain_create(ctx: *mut ibv_context, type_: mlx5dv_dr_domain_type) -> *mut mlx5dv_dr_domain;
    "MLX5_1.10" fn mlx5dv_dr_domain_destroy(domain: *mut mlx5dv_dr_domain) -> libc::c_int;
    "MLX5_1.10" fn mlx5dv_dr_domain_sync(domain: *mut mlx5dv_dr_domain, flags: u32) -> libc::c_int;
    "MLX5_1.14" fn mlx5dv_dr_domain_set_reclaim_device_memory(dmn: *mut mlx5dv_dr_domain, enable: bool);
    "MLX5_1.20" fn mlx5dv_dr_domain_allow_duplicate_rules(domain: *mut mlx5dv_dr_domain, allow: bool);
    "MLX5_1.10" fn mlx5dv_dr_table_create(domain: *mut mlx5dv_dr_domain, level: u32) -> *mut mlx5dv_dr_table;
    "MLX5_1.10" fn mlx5dv_dr_table_destroy(table: *mut mlx5dv_dr_table) -> libc::c_int;
    "MLX5_1.10" fn mlx5dv_dr_matcher_create(table: *mut mlx5dv_dr_table, priority: u16, match_criteria_enable: u8, mask: *mut mlx5dv_flow_match_parameters) -> *mut mlx5dv_dr_matcher;
    "MLX5_1.10" fn mlx5dv_dr_matcher_destroy(matcher: *mut mlx5dv_dr_matcher) -> libc::c_int;
    "MLX5_1.21" fn mlx5dv_dr_matcher_set_layout(matcher: *mut mlx5dv_dr_matcher, layout: *mut mlx5dv_dr_matcher_layout) -> libc::c_int;
    "MLX5_1.10" fn mlx5dv_dr_rule_create(matcher: *mut mlx5dv_dr_matcher, value: *mut mlx5dv_flow_match_parameters, num_actions: usize, actions: *mut *mut mlx5dv_dr_action) -> *mut mlx5dv_dr_rule;
    "MLX5_1.10" fn mlx5dv_dr_rule_destroy(rule: *mut mlx5dv_dr_rule) -> libc::c_int;
    "MLX5_1.10" fn mlx5dv_dr_action_create_dest_ibv_qp(ibqp: *mut ibv_qp) -> *mut mlx5dv_dr_action;
    "MLX5_1.10" fn mlx5dv_dr_action_create_dest_table(table: *mut mlx5dv_dr_table) -> *mut mlx5dv_dr_action;
    "MLX5_1.10" fn mlx5dv_dr_action_create_dest_vport(domain: *mut mlx5dv_dr_domain, vport: u32) -> *mut mlx5dv_dr_action;
    "MLX5_1.21" fn mlx5dv_dr_action_create_dest_ib_port(domain: *mut mlx5dv_dr_domain, ib_port: u32) -> *mut mlx5dv_dr_action;
    "MLX5_1.15" fn mlx5dv_dr_action_create_dest_devx_tir(devx_obj: *mut mlx5dv_devx_obj) -> *mut mlx5dv_dr_action;
    "MLX5_1.16" fn mlx5dv_dr_action_create_dest_array(domain: *mut mlx5dv_dr_domain, num_dest: usize, dests: *mut *mut mlx5dv_dr_action_dest_attr) -> *mut mlx5dv_dr_action;
    "MLX5_1.10" fn mlx5dv_dr_action_create_drop() -> *mut mlx5dv_dr_action;
    "MLX5_1.14" fn mlx5dv_dr_action_create_default_miss() -> *mut mlx5dv_dr_action;
    "MLX5_1.10" fn mlx5dv_dr_action_create_tag(tag_value: u32) -> *mut mlx5dv_dr_action;
    "MLX5_1.10" fn mlx5dv_dr_action_create_flow_counter(devx_obj: *mut mlx5dv_devx_obj, offset: u32) -> *mut mlx5dv_dr_action;
    "MLX5_1.17" fn mlx5dv_dr_action_create_aso(domain: *mut mlx5dv_dr_domain, devx_obj: *mut mlx5dv_devx_obj, offset: u32, flags: u32, return_reg_c: u8) -> *mut mlx5dv_dr_action;
    "MLX5_1.17" fn mlx5dv_dr_action_modify_aso(action: *mut mlx5dv_dr_action, offset: u32, flags: u32, return_reg_c: u8) -> libc::c_int;
    "MLX5_1.10" fn mlx5dv_dr_action_create_packet_reformat(domain: *mut mlx5dv_dr_domain, flags: u32, reformat_type: mlx5_ib_uapi_flow_action_packet_reformat_type, data_sz: usize, data: *mut libc::c_void) -> *mut mlx5dv_dr_action;
    "MLX5_1.10" fn mlx5dv_dr_action_create_modify_header(domain: *mut mlx5dv_dr_domain, flags: u32, actions_sz: usize, actions: *mut __be64) -> *mut mlx5dv_dr_action;
    "MLX5_1.12" fn mlx5dv_dr_action_create_flow_meter(attr: *mut mlx5dv_dr_flow_meter_attr) -> *mut mlx5dv_dr_action;
    "MLX5_1.12" fn mlx5dv_dr_action_modify_flow_meter(action: *mut mlx5dv_dr_action, attr: *mut mlx5dv_dr_flow_meter_attr, modify_field_select: __be64) -> libc::c_int;
    "MLX5_1.16" fn mlx5dv_dr_action_create_flow_sampler(attr: *mut mlx5dv_dr_flow_sampler_attr) -> *mut mlx5dv_dr_action;
    "MLX5_1.17" fn mlx5dv_dr_action_create_pop_vlan() -> *mut mlx5dv_dr_action;
    "MLX5_1.17" fn mlx5dv_dr_action_create_push_vlan(domain: *mut mlx5dv_dr_domain, vlan_hdr: __be32) -> *mut mlx5dv_dr_action;
    "MLX5_1.24" fn mlx5dv_dr_action_create_dest_root_table(table: *mut mlx5dv_dr_table, priority: u16) -> *mut mlx5dv_dr_action;
    "MLX5_1.10" fn mlx5dv_dr_action_destroy(action: *mut mlx5dv_dr_action) -> libc::c_int;
    "MLX5_1.12" fn mlx5dv_dump_dr_domain(fout: *mut FILE, domain: *mut mlx5dv_dr_domain) -> libc::c_int;
    "MLX5_1.12" fn mlx5dv_dump_dr_table(fout: *mut FILE, table: *mut mlx5dv_dr_table) -> libc::c_int;
    "MLX5_1.12" fn mlx5dv_dump_dr_matcher(fout: *mut FILE, matcher: *mut mlx5dv_dr_matcher) -> libc::c_int;
    "MLX5_1.12" fn mlx5dv_dump_dr_rule(fout: *mut FILE, rule: *mut mlx5dv_dr_rule) -> libc::c_int;
    "MLX5_1.13" fn mlx5dv_pp_alloc(context: *mut ibv_context, pp_context_sz: usize, pp_context: *const libc::c_void, flags: u32) -> *mut mlx5dv_pp;
    "MLX5_1.13" fn mlx5dv_pp_free(pp: *mut mlx5dv_pp);
    "MLX5_1.14" fn mlx5dv_query_qp_lag_port(qp: *mut ibv_qp, port_num: *mut u8, active_port_num: *mut u8) -> libc::c_int;
    "MLX5_1.14" fn mlx5dv_modify_qp_lag_port(qp: *mut ibv_qp, port_num: u8) -> libc::c_int;
    "MLX5_1.17" fn mlx5dv_modify_qp_udp_sport(qp: *mut ibv_qp, udp_sport: u16) -> libc::c_int;
    "MLX5_1.21" fn mlx5dv_dci_stream_id_reset(qp: *mut ibv_qp, stream_id: u16) -> libc::c_int;
    "MLX5_1.17" fn mlx5dv_sched_node_create(context: *mut ibv_context, sched_attr: *const mlx5dv_sched_attr) -> *mut mlx5dv_sched_node;
    "MLX5_1.17" fn mlx5dv_sched_leaf_create(context: *mut ibv_context, sched_attr: *const mlx5dv_sched_attr) -> *mut mlx5dv_sched_leaf;
    "MLX5_1.17" fn mlx5dv_sched_node_modify(node: *mut mlx5dv_sched_node, sched_attr: *const mlx5dv_sched_attr) -> libc::c_int;
    "MLX5_1.17" fn mlx5dv_sched_leaf_modify(leaf: *mut mlx5dv_sched_leaf, sched_attr: *const mlx5dv_sched_attr) -> libc::c_int;
    "MLX5_1.17" fn mlx5dv_sched_node_destroy(node: *mut mlx5dv_sched_node) -> libc::c_int;
    "MLX5_1.17" fn mlx5dv_sched_leaf_destroy(leaf: *mut mlx5dv_sched_leaf) -> libc::c_int;
    "MLX5_1.17" fn mlx5dv_modify_qp_sched_elem(qp: *mut ibv_qp, requestor: *const mlx5dv_sched_leaf, responder: *const mlx5dv_sched_leaf) -> libc::c_int;
    "MLX5_1.18" fn mlx5dv_reserved_qpn_alloc(ctx: *mut ibv_context, qpn: *mut u32) -> libc::c_int;
    "MLX5_1.18" fn mlx5dv_reserved_qpn_dealloc(ctx: *mut ibv_context, qpn: u32) -> libc::c_int;
    "MLX5_1.22" fn mlx5dv_dr_aso_other_domain_link(devx_obj: *mut mlx5dv_devx_obj, peer_dmn: *mut mlx5dv_dr_domain, dmn: *mut mlx5dv_dr_domain, flags: u32, return_reg_c: u8) -> libc::c_int;
    "MLX5_1.22" fn mlx5dv_dr_aso_other_domain_unlink(devx_obj: *mut mlx5dv_devx_obj, dmn: *mut mlx5dv_dr_domain) -> libc::c_int;
    "MLX5_1.23" fn mlx5dv_devx_alloc_msi_vector(ibctx: *mut ibv_context) -> *mut mlx5dv_devx_msi_vector;
    "MLX5_1.23" fn mlx5dv_devx_free_msi_vector(msi: *mut mlx5dv_devx_msi_vector) -> libc::c_int;
    "MLX5_1.23" fn mlx5dv_devx_create_eq(ibctx: *mut ibv_context, in_: *const libc::c_void, inlen: usize, out: *mut libc::c_void, outlen: usize) -> *mut mlx5dv_devx_eq;
    "MLX5_1.23" fn mlx5dv_devx_destroy_eq(eq: *mut mlx5dv_devx_eq) -> libc::c_int;
}
