//! Structures of the verbs interface (`rdma/ib_user_verbs.h`, `rdma/ib_user_ioctl_verbs.h`,
//! `rdma/mlx5-abi.h`), byte for byte and in host order.
//!
//! Legacy requests other than the extended ones begin with the address of a response, which the
//! ioctl form passes elsewhere; it is kept here as `response` so that offsets stay those of the
//! header.

#![allow(missing_docs)]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! structures {
    ($($name:ident $size:literal { $($field:ident: $type:ty,)* })*) => {$(
        #[repr(C)]
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        pub(crate) struct $name {
            $(pub $field: $type,)*
        }
        const _: () = assert!(size_of::<$name>() == $size);
        impl Default for $name {
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        }
    )*};
}

structures! {
    Multicast 24 {
        gid: [u8; 16], qp_handle: u32, mlid: u16, reserved: u16,
    }
    Header 24 {
        length: u16, object: u16, method: u16, attributes: u16,
        reserved1: u64, driver: u32, reserved2: u32,
    }
    Attribute 16 {
        id: u16, length: u16, flags: u16, reserved: u16, data: u64,
    }
    QueryDevice 176 {
        fw_ver: u64, node_guid: u64, sys_image_guid: u64, max_mr_size: u64, page_size_cap: u64,
        vendor_id: u32, vendor_part_id: u32, hw_ver: u32, max_qp: u32, max_qp_wr: u32,
        device_cap_flags: u32, max_sge: u32, max_sge_rd: u32, max_cq: u32, max_cqe: u32,
        max_mr: u32, max_pd: u32, max_qp_rd_atom: u32, max_ee_rd_atom: u32, max_res_rd_atom: u32,
        max_qp_init_rd_atom: u32, max_ee_init_rd_atom: u32, atomic_cap: u32, max_ee: u32,
        max_rdd: u32, max_mw: u32, max_raw_ipv6_qp: u32, max_raw_ethy_qp: u32, max_mcast_grp: u32,
        max_mcast_qp_attach: u32, max_total_mcast_qp_attach: u32, max_ah: u32, max_fmr: u32,
        max_map_per_fmr: u32, max_srq: u32, max_srq_wr: u32, max_srq_sge: u32, max_pkeys: u16,
        local_ca_ack_delay: u8, phys_port_cnt: u8, reserved: [u8; 4],
    }
    ExQueryDevice 304 {
        base: QueryDevice, comp_mask: u32, response_length: u32,
        odp_general: u64, odp_rc: u32, odp_uc: u32, odp_ud: u32, odp_reserved: u32,
        timestamp_mask: u64, hca_core_clock: u64, device_cap_flags_ex: u64,
        rss: [u32; 4], max_wq_type_rq: u32, raw_packet_caps: u32,
        tm: [u32; 6], moderation_count: u16, moderation_period: u16, moderation_reserved: u32,
        max_dm_size: u64, xrc_odp_caps: u32, reserved: u32,
    }
    QueryPort 48 {
        port_cap_flags: u32, max_msg_sz: u32, bad_pkey_cntr: u32, qkey_viol_cntr: u32,
        gid_tbl_len: u32, pkey_tbl_len: u16, lid: u16, sm_lid: u16, state: u8, max_mtu: u8,
        active_mtu: u8, lmc: u8, max_vl_num: u8, sm_sl: u8, subnet_timeout: u8,
        init_type_reply: u8, active_width: u8, active_speed: u8, phys_state: u8, link_layer: u8,
        flags: u8, reserved: u8, port_cap_flags2: u16, reserved2: [u8; 6],
    }
    GidEntry 32 {
        gid: [u8; 16], gid_index: u32, port_num: u32, gid_type: u32, netdev_ifindex: u32,
    }
    Ucontext 32 {
        total_num_bfregs: u32, num_low_latency_bfregs: u32, flags: u32, comp_mask: u32,
        max_cqe_version: u8, reserved0: u8, reserved1: u16, reserved2: u32, lib_caps: u64,
    }
    UcontextReply 72 {
        qp_tab_size: u32, bf_reg_size: u32, tot_bfregs: u32, cache_line_size: u32,
        max_sq_desc_sz: u16, max_rq_desc_sz: u16, max_send_wqebb: u32, max_recv_wr: u32,
        max_srq_recv_wr: u32, num_ports: u16, flow_action_flags: u16, comp_mask: u32,
        response_length: u32, cqe_version: u8, cmds_supp_uhw: u8, eth_min_inline: u8,
        clock_info_versions: u8, hca_core_clock_offset: u64, log_uar_size: u32,
        num_uars_per_page: u32, num_dyn_bfregs: u32, dump_fill_mkey: u32,
    }
    RegMr 40 {
        response: u64, start: u64, length: u64, hca_va: u64, pd_handle: u32, access_flags: u32,
    }
    RegMrReply 12 { mr_handle: u32, lkey: u32, rkey: u32, }
    ReregMr 48 {
        response: u64, mr_handle: u32, flags: u32, start: u64, length: u64, hca_va: u64,
        pd_handle: u32, access_flags: u32,
    }
    ReregMrReply 8 { lkey: u32, rkey: u32, }
    AllocMw 16 { response: u64, pd_handle: u32, mw_type: u8, reserved: [u8; 3], }
    AllocMwReply 8 { mw_handle: u32, rkey: u32, }
    AllocMwDriverReply 8 { comp_mask: u32, response_length: u32, }
    AllocMwDriver 8 { comp_mask: u32, num_klms: u8, reserved1: u8, reserved2: u16, }
    AhAttributes 32 {
        dgid: [u8; 16], flow_label: u32, sgid_index: u8, hop_limit: u8, traffic_class: u8,
        reserved: u8, dlid: u16, sl: u8, src_path_bits: u8, static_rate: u8, is_global: u8,
        port_num: u8, reserved2: u8,
    }
    CreateAh 56 {
        response: u64, user_handle: u64, pd_handle: u32, reserved: u32, attributes: AhAttributes,
    }
    CreateAhDriverReply 16 { response_length: u32, dmac: [u8; 6], reserved: [u8; 6], }
    OpenXrcd 16 { response: u64, fd: u32, flags: u32, }
    CreateCqDriver 32 {
        buf_addr: u64, db_addr: u64, cqe_size: u32, cqe_comp_en: u8, cqe_comp_res_format: u8,
        flags: u16, uar_page_index: u16, reserved0: u16, reserved1: u32,
    }
    CreateCqDriverReply 8 { cqn: u32, reserved: u32, }
    CreateCq 32 {
        response: u64, user_handle: u64, cqe: u32, comp_vector: u32, comp_channel: i32,
        reserved: u32,
    }
    ExCreateCq 32 {
        user_handle: u64, cqe: u32, comp_vector: u32, comp_channel: i32, comp_mask: u32,
        flags: u32, reserved: u32,
    }
    CreateCqReply 8 { cq_handle: u32, cqe: u32, }
    ExCreateCqReply 16 { cq_handle: u32, cqe: u32, comp_mask: u32, response_length: u32, }
    ResizeCq 16 { response: u64, cq_handle: u32, cqe: u32, }
    ResizeCqReply 8 { cqe: u32, reserved: u32, }
    ResizeCqDriver 16 { buf_addr: u64, cqe_size: u16, reserved0: u16, reserved1: u32, }
    ExModifyCq 16 { cq_handle: u32, attr_mask: u32, count: u16, period: u16, reserved: u32, }
    DestroyCqReply 8 { comp_events_reported: u32, async_events_reported: u32, }
    Cap 20 {
        max_send_wr: u32, max_recv_wr: u32, max_send_sge: u32, max_recv_sge: u32,
        max_inline_data: u32,
    }
    CreateQpDriver 56 {
        buf_addr: u64, db_addr: u64, sq_wqe_count: u32, rq_wqe_count: u32, rq_wqe_shift: u32,
        flags: u32, uidx: u32, bfreg_index: u32, sq_buf_addr: u64, ece_options: u32,
        dci_streams: [u8; 2], reserved: u16,
    }
    CreateRssDriver 152 {
        rx_hash_fields_mask: u64, rx_hash_function: u8, rx_key_len: u8, reserved: [u8; 6],
        rx_hash_key: [u8; 128], comp_mask: u32, flags: u32,
    }
    CreateWqDriver 48 {
        buf_addr: u64, db_addr: u64, rq_wqe_count: u32, rq_wqe_shift: u32, user_index: u32,
        flags: u32, comp_mask: u32, single_stride_log_num_of_bytes: u32,
        single_wqe_log_num_of_strides: u32, two_byte_shift_en: u32,
    }
    ExModifyWq 24 {
        attr_mask: u32, wq_handle: u32, wq_state: u32, curr_wq_state: u32, flags: u32,
        flags_mask: u32,
    }
    ExCreateTable 8 { comp_mask: u32, log_ind_tbl_size: u32, }
    ExCreateTableReply 16 {
        comp_mask: u32, response_length: u32, ind_tbl_handle: u32, ind_tbl_num: u32,
    }
    CreateQpDriverReply 40 {
        bfreg_index: u32, ece_options: u32, comp_mask: u32, tirn: u32, tisn: u32, rqn: u32,
        sqn: u32, reserved1: u32, tir_icm_addr: u64,
    }
    CreateQp 56 {
        response: u64, user_handle: u64, pd_handle: u32, send_cq_handle: u32, recv_cq_handle: u32,
        srq_handle: u32, cap: Cap, sq_sig_all: u8, qp_type: u8, is_srq: u8, reserved: u8,
    }
    ExCreateQp 64 {
        user_handle: u64, pd_handle: u32, send_cq_handle: u32, recv_cq_handle: u32,
        srq_handle: u32, cap: Cap, sq_sig_all: u8, qp_type: u8, is_srq: u8, reserved: u8,
        comp_mask: u32, create_flags: u32, rwq_ind_tbl_handle: u32, source_qpn: u32,
    }
    CreateQpReply 32 { qp_handle: u32, qpn: u32, cap: Cap, reserved: u32, }
    ExCreateQpReply 40 { base: CreateQpReply, comp_mask: u32, response_length: u32, }
    CreateSrqDriver 32 {
        buf_addr: u64, db_addr: u64, flags: u32, reserved0: u32, uidx: u32, reserved1: u32,
    }
    CreateSrqDriverReply 8 { srqn: u32, reserved: u32, }
    CreateSrq 32 {
        response: u64, user_handle: u64, pd_handle: u32, max_wr: u32, max_sge: u32,
        srq_limit: u32,
    }
    CreateXsrq 48 {
        response: u64, user_handle: u64, srq_type: u32, pd_handle: u32, max_wr: u32, max_sge: u32,
        srq_limit: u32, max_num_tags: u32, xrcd_handle: u32, cq_handle: u32,
    }
    CreateSrqReply 16 { srq_handle: u32, max_wr: u32, max_sge: u32, srqn: u32, }
    ModifySrq 16 { srq_handle: u32, attr_mask: u32, max_wr: u32, srq_limit: u32, }
    QuerySrq 16 { response: u64, srq_handle: u32, reserved: u32, }
    QuerySrqReply 16 { max_wr: u32, max_sge: u32, srq_limit: u32, reserved: u32, }
    QpDestination 32 {
        dgid: [u8; 16], flow_label: u32, dlid: u16, reserved: u16, sgid_index: u8, hop_limit: u8,
        traffic_class: u8, sl: u8, src_path_bits: u8, static_rate: u8, is_global: u8, port_num: u8,
    }
    QueryQp 16 { response: u64, qp_handle: u32, attr_mask: u32, }
    QueryQpReply 128 {
        destination: QpDestination, alternate: QpDestination, cap: Cap, qkey: u32, rq_psn: u32,
        sq_psn: u32, dest_qp_num: u32, qp_access_flags: u32, pkey_index: u16, alt_pkey_index: u16,
        qp_state: u8, cur_qp_state: u8, path_mtu: u8, path_mig_state: u8, sq_draining: u8,
        max_rd_atomic: u8, max_dest_rd_atomic: u8, min_rnr_timer: u8, port_num: u8, timeout: u8,
        retry_cnt: u8, rnr_retry: u8, alt_port_num: u8, alt_timeout: u8, sq_sig_all: u8,
        reserved: [u8; 5],
    }
    ModifyQp 112 {
        destination: QpDestination, alternate: QpDestination, qp_handle: u32, attr_mask: u32,
        qkey: u32, rq_psn: u32, sq_psn: u32, dest_qp_num: u32, qp_access_flags: u32,
        pkey_index: u16, alt_pkey_index: u16, qp_state: u8, cur_qp_state: u8, path_mtu: u8,
        path_mig_state: u8, en_sqd_async_notify: u8, max_rd_atomic: u8, max_dest_rd_atomic: u8,
        min_rnr_timer: u8, port_num: u8, timeout: u8, retry_cnt: u8, rnr_retry: u8,
        alt_port_num: u8, alt_timeout: u8, reserved: [u8; 2],
    }
    ModifyQpDriver 16 {
        comp_mask: u32, max_burst_sz: u32, typical_pkt_sz: u16, reserved: u16, ece_options: u32,
    }
    ModifyQpDriverReply 16 { response_length: u32, dctn: u32, ece_options: u32, reserved: u32, }
}

impl AhAttributes {
    /// The same address as a queue pair's path.
    pub fn destination(&self) -> QpDestination {
        QpDestination {
            dgid: self.dgid,
            flow_label: self.flow_label,
            dlid: self.dlid,
            sgid_index: self.sgid_index,
            hop_limit: self.hop_limit,
            traffic_class: self.traffic_class,
            sl: self.sl,
            src_path_bits: self.src_path_bits,
            static_rate: self.static_rate,
            is_global: self.is_global,
            port_num: self.port_num,
            ..Default::default()
        }
    }
}
