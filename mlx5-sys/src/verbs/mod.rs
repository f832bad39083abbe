//! `verbs.h`: libibverbs.
//!
//! The bindings have the shape of rdma-sys 0.3.0: sets of bits are structures
//! (`ibv_access_flags::IBV_ACCESS_LOCAL_WRITE`), alternatives are modules
//! (`ibv_qp_state::IBV_QPS_RTS`, of type `ibv_qp_state::Type`), `ibv_event_type` is a Rust enum, and
//! unions and the structures with unions in them carry rdma-sys' names (`ibv_send_wr::wr.rdma`). With
//! the feature `rdma-sys`, types and library functions are that crate's, under the same names. Tests
//! compare all types and values. The only difference: fields of rdma-sys' `ibv_ops_wr` are private.
//! rdma-sys also has `ibv_opcode`, which is not here, and librdmacm (`rdma_*`), which is in the module
//! `cm` with the feature of that name.
//!
//! Inline functions of the header are this crate's own either way, with the signatures of rdma-sys.
//! Functions that return a pointer return an `Option`: `None` if the provider lacks the function.
//! rdma-sys 0.3.0 looks for 32 one bits in a pointer where the header has 64. So on 64-bit machines
//! the inline functions of rdma-sys find no provider that has any extended function.
//!
//! Besides there is what rdma-sys lacks: [`ibv_query_gid_ex`], [`ibv_query_gid_table`],
//! [`ibv_flow_label_to_udp_sport`], `IBV_LINK_LAYER_*` and `IBV_QPF_GRH_REQUIRED`, and a function of
//! rdma-core 62, [`ibv_dm_export_dmabuf_fd`]: with older libraries it returns -1 and sets `errno` to `ENOSYS`.

mod inline;
mod newer;
mod supplement;
pub(crate) mod types;

#[cfg(not(feature = "rdma-sys"))]
#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unsafe_op_in_unsafe_fn,
    unknown_lints,
    unnecessary_transmutes,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    rustdoc::all
)]
mod generated {
    use super::types::*;
    #[allow(unused_imports)]
    use libc::*;

    #[cfg(feature = "bindgen")]
    include!(concat!(env!("OUT_DIR"), "/verbs.rs"));
    #[cfg(not(feature = "bindgen"))]
    include!("../bindings/verbs.rs");
}

// `pub use` of each name that the build script finds in the header, from `generated` or `rdma_sys`.
#[cfg(feature = "bindgen")]
include!(concat!(env!("OUT_DIR"), "/verbs_names.rs"));
#[cfg(not(feature = "bindgen"))]
pub use generated::*;
pub use types::*;

pub use inline::{
    ___ibv_query_port, __ibv_get_device_list, __ibv_reg_mr, __ibv_reg_mr_iova, ibv_advise_mr,
    ibv_advise_mr_advice, ibv_alloc_dm, ibv_alloc_mw, ibv_alloc_null_mr, ibv_alloc_parent_domain,
    ibv_alloc_td, ibv_attach_counters_point_flow, ibv_bind_mw, ibv_close_xrcd, ibv_cq_ex_to_cq,
    ibv_create_counters, ibv_create_cq_ex, ibv_create_flow, ibv_create_flow_action_esp,
    ibv_create_qp_ex, ibv_create_rwq_ind_table, ibv_create_srq_ex, ibv_create_wq, ibv_dealloc_mw,
    ibv_dealloc_td, ibv_destroy_counters, ibv_destroy_flow, ibv_destroy_flow_action,
    ibv_destroy_rwq_ind_table, ibv_destroy_wq, ibv_end_poll, ibv_free_dm, ibv_get_srq_num,
    ibv_inc_rkey, ibv_is_qpt_supported, ibv_memcpy_from_dm, ibv_memcpy_to_dm, ibv_modify_cq,
    ibv_modify_flow_action_esp, ibv_modify_qp_rate_limit, ibv_modify_wq, ibv_next_poll,
    ibv_open_qp, ibv_open_xrcd, ibv_poll_cq, ibv_post_recv, ibv_post_send, ibv_post_srq_ops,
    ibv_post_srq_recv, ibv_post_wq_recv, ibv_query_device_ex, ibv_query_rt_values_ex,
    ibv_read_counters, ibv_reg_dm_mr, ibv_req_notify_cq, ibv_start_poll, ibv_wc_read_byte_len,
    ibv_wc_read_completion_ts, ibv_wc_read_completion_wallclock_ns, ibv_wc_read_cvlan,
    ibv_wc_read_dlid_path_bits, ibv_wc_read_flow_tag, ibv_wc_read_imm_data,
    ibv_wc_read_invalidated_rkey, ibv_wc_read_opcode, ibv_wc_read_qp_num, ibv_wc_read_sl,
    ibv_wc_read_slid, ibv_wc_read_src_qp, ibv_wc_read_tm_info, ibv_wc_read_vendor_err,
    ibv_wc_read_wc_flags, ibv_wr_abort, ibv_wr_atomic_cmp_swp, ibv_wr_atomic_fetch_add,
    ibv_wr_bind_mw, ibv_wr_complete, ibv_wr_local_inv, ibv_wr_rdma_read, ibv_wr_rdma_write,
    ibv_wr_rdma_write_imm, ibv_wr_send, ibv_wr_send_imm, ibv_wr_send_inv, ibv_wr_send_tso,
    ibv_wr_set_inline_data, ibv_wr_set_inline_data_list, ibv_wr_set_sge, ibv_wr_set_sge_list,
    ibv_wr_set_ud_addr, ibv_wr_set_xrc_srqn, ibv_wr_start,
};
pub use newer::ibv_dm_export_dmabuf_fd;
pub use supplement::*;

#[cfg(all(test, feature = "bindgen"))]
mod check;
#[cfg(all(test, feature = "bindgen"))]
mod same;
