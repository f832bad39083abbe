//! A search of the documentation for a call of libibverbs or libmlx5 finds its counterpart.
//!
//! rustdoc's search knows C names by `#[doc(alias = "…")]` attributes. These tests read them from the
//! sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The calls of libibverbs and mlx5dv by theme. Each has a counterpart with its name as an alias.
const CALLS: &[(&str, &[&str])] = &[
    (
        "device",
        &[
            "ibv_get_device_list",
            "ibv_free_device_list",
            "ibv_get_device_name",
            "ibv_get_device_guid",
            "ibv_open_device",
            "ibv_close_device",
            "ibv_query_device",
            "ibv_query_device_ex",
            "ibv_query_port",
            "ibv_query_gid",
            "ibv_query_gid_ex",
            "ibv_query_gid_table",
            "ibv_query_pkey",
            "ibv_query_rt_values_ex",
            "ibv_get_async_event",
            "ibv_ack_async_event",
            "ibv_event_type_str",
            "ibv_fork_init",
            "ibv_is_fork_initialized",
            "mlx5dv_is_supported",
            "mlx5dv_open_device",
            "mlx5dv_query_device",
            "mlx5dv_get_clock_info",
            "mlx5dv_ts_to_ns",
        ],
    ),
    (
        "memory",
        &[
            "ibv_alloc_pd",
            "ibv_dealloc_pd",
            "ibv_alloc_td",
            "ibv_dealloc_td",
            "ibv_alloc_parent_domain",
            "ibv_reg_mr",
            "ibv_reg_mr_iova",
            "ibv_rereg_mr",
            "ibv_dereg_mr",
            "ibv_reg_dmabuf_mr",
            "ibv_alloc_null_mr",
            "ibv_advise_mr",
            "ibv_alloc_dm",
            "ibv_free_dm",
            "ibv_reg_dm_mr",
            "ibv_memcpy_to_dm",
            "ibv_memcpy_from_dm",
            "ibv_alloc_mw",
            "ibv_dealloc_mw",
            "ibv_bind_mw",
            "ibv_inc_rkey",
            "mlx5dv_create_mkey",
            "mlx5dv_destroy_mkey",
        ],
    ),
    (
        "completions",
        &[
            "ibv_create_comp_channel",
            "ibv_destroy_comp_channel",
            "ibv_create_cq",
            "ibv_create_cq_ex",
            "ibv_resize_cq",
            "ibv_modify_cq",
            "ibv_destroy_cq",
            "ibv_poll_cq",
            "ibv_start_poll",
            "ibv_next_poll",
            "ibv_end_poll",
            "ibv_req_notify_cq",
            "ibv_get_cq_event",
            "ibv_ack_cq_events",
            "ibv_wc_status_str",
            "ibv_wc_read_opcode",
            "ibv_wc_read_vendor_err",
            "ibv_wc_read_byte_len",
            "ibv_wc_read_imm_data",
            "ibv_wc_read_invalidated_rkey",
            "ibv_wc_read_qp_num",
            "ibv_wc_read_src_qp",
            "ibv_wc_read_slid",
            "ibv_wc_read_sl",
            "ibv_wc_read_dlid_path_bits",
            "ibv_wc_read_completion_ts",
            "mlx5dv_create_cq",
            "mlx5dv_init_obj",
        ],
    ),
    (
        "RC",
        &[
            "ibv_create_qp",
            "ibv_create_qp_ex",
            "ibv_modify_qp",
            "ibv_query_qp",
            "ibv_destroy_qp",
            "ibv_post_send",
            "ibv_post_recv",
            "ibv_wr_start",
            "ibv_wr_complete",
            "ibv_wr_abort",
            "ibv_wr_send",
            "ibv_wr_send_imm",
            "ibv_wr_send_inv",
            "ibv_wr_rdma_write",
            "ibv_wr_rdma_write_imm",
            "ibv_wr_rdma_read",
            "ibv_wr_atomic_cmp_swp",
            "ibv_wr_atomic_fetch_add",
            "ibv_wr_bind_mw",
            "ibv_wr_local_inv",
            "ibv_wr_set_sge",
            "ibv_wr_set_sge_list",
            "ibv_wr_set_inline_data",
            "ibv_wr_set_inline_data_list",
            "mlx5dv_create_qp",
            "mlx5dv_wr_mkey_configure",
            "mlx5dv_wr_memcpy",
            "mlx5dv_wr_raw_wqe",
        ],
    ),
    (
        "UD",
        &[
            "ibv_create_ah",
            "ibv_create_ah_from_wc",
            "ibv_init_ah_from_wc",
            "ibv_destroy_ah",
            "ibv_attach_mcast",
            "ibv_detach_mcast",
            "ibv_wr_set_ud_addr",
        ],
    ),
    (
        "SRQ",
        &[
            "ibv_create_srq",
            "ibv_create_srq_ex",
            "ibv_modify_srq",
            "ibv_query_srq",
            "ibv_destroy_srq",
            "ibv_get_srq_num",
            "ibv_post_srq_recv",
            "ibv_post_srq_ops",
        ],
    ),
    ("XRC", &["ibv_open_xrcd", "ibv_close_xrcd", "ibv_wr_set_xrc_srqn"]),
    (
        "DC",
        &["mlx5dv_wr_set_dc_addr", "mlx5dv_wr_set_dc_addr_stream", "mlx5dv_dci_stream_id_reset"],
    ),
    (
        "librdmacm",
        &[
            "rdma_create_event_channel",
            "rdma_destroy_event_channel",
            "rdma_create_id",
            "rdma_destroy_id",
            "rdma_bind_addr",
            "rdma_listen",
            "rdma_resolve_addr",
            "rdma_resolve_route",
            "rdma_get_request",
            "rdma_migrate_id",
            "rdma_init_qp_attr",
            "rdma_connect",
            "rdma_establish",
            "rdma_accept",
            "rdma_reject",
            "rdma_disconnect",
            "rdma_get_cm_event",
            "rdma_ack_cm_event",
            "rdma_event_str",
            "rdma_join_multicast",
            "rdma_join_multicast_ex",
            "rdma_leave_multicast",
            "rdma_get_local_addr",
            "rdma_get_peer_addr",
            "rdma_get_src_port",
            "rdma_get_dst_port",
            "rdma_get_devices",
            "rdma_set_option",
        ],
    ),
    (
        "DevX",
        &[
            "mlx5dv_devx_general_cmd",
            "mlx5dv_devx_obj_create",
            "mlx5dv_devx_obj_query",
            "mlx5dv_devx_obj_modify",
            "mlx5dv_devx_obj_destroy",
            "mlx5dv_devx_obj_query_async",
            "mlx5dv_devx_create_cmd_comp",
            "mlx5dv_devx_get_async_cmd_comp",
            "mlx5dv_devx_umem_reg",
            "mlx5dv_devx_umem_reg_ex",
            "mlx5dv_devx_umem_dereg",
            "mlx5dv_devx_alloc_uar",
            "mlx5dv_devx_free_uar",
            "mlx5dv_devx_query_eqn",
            "mlx5dv_devx_create_event_channel",
            "mlx5dv_devx_subscribe_devx_event",
            "mlx5dv_devx_subscribe_devx_event_fd",
            "mlx5dv_devx_get_event",
            "mlx5dv_devx_qp_query",
            "mlx5dv_devx_qp_modify",
        ],
    ),
];

/// Calls of the same lives that nothing in this crate corresponds to, each with the reason.
const WITHOUT: &[(&str, &str)] = &[
    ("ibv_qp_to_qp_ex", "every queue pair takes every operation of its transport"),
    ("ibv_cq_ex_to_cq", "there is one type of completion queues"),
    ("ibv_wc_read_wc_flags", "what the flags select is in `ReceiveKind` and `ReceiveDone`"),
    ("ibv_wr_atomic_write", "libmlx5 does not implement it"),
    ("ibv_get_pkey_index", "a program reads the table with `Context::pkey`"),
    ("ibv_get_device_index", "a device is named, not numbered"),
    ("ibv_resolve_eth_l2_from_gid", "the kernel resolves the address when it makes the handle"),
    ("ibv_open_qp", "a target of XRC belongs to the program that made it"),
    ("ibv_import_device", "objects are not shared between processes"),
    ("ibv_query_ece", "enhanced connection establishment is not supported"),
    ("ibv_set_ece", "enhanced connection establishment is not supported"),
    ("ibv_query_qp_data_in_order", "programs do not rely on the order in which bytes arrive"),
    ("rdma_create_qp", "queue pairs are made by `QueuePair::builder`"),
    ("rdma_create_ep", "`Identifier::resolve` and `QueuePair::builder` do its steps"),
    (
        "rdma_getaddrinfo",
        "addresses are `SocketAddr`, which the standard library resolves names to",
    ),
    ("rdma_notify", "a connection is established by the client's message, which is sent again"),
    ("rdma_set_local_ece", "enhanced connection establishment is not supported"),
    ("rdma_get_remote_ece", "enhanced connection establishment is not supported"),
    ("mlx5dv_map_ah_to_qp", "an initiator of DC needs the address alone"),
    ("mlx5dv_qp_cancel_posted_send_wrs", "a queue that is reset returns its requests"),
    ("mlx5dv_qp_ex_from_ibv_qp_ex", "every queue pair takes every operation of its transport"),
];

/// The aliases of all `#[doc(alias …)]` attributes in a folder.
fn aliases(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            aliases(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            for attribute in text.split("#[doc(alias").skip(1) {
                let attribute = attribute.split(")]").next().unwrap();
                found.extend(attribute.split('"').skip(1).step_by(2).map(str::to_owned));
            }
        }
    }
}

/// The aliases of the driver and of the diagnostics that it re-exports.
fn all_aliases() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = BTreeSet::new();
    for folder in ["src", "diag/src"] {
        aliases(&root.join(folder), &mut found);
    }
    found
}

#[test]
fn every_call_of_a_programs_life_is_an_alias() {
    let aliases = all_aliases();
    for (part, calls) in CALLS {
        let missing: Vec<_> = calls.iter().filter(|call| !aliases.contains(**call)).collect();
        assert!(missing.is_empty(), "{part}: no item has the alias of {missing:?}");
    }
}

#[test]
fn calls_without_a_counterpart_have_no_alias() {
    let aliases = all_aliases();
    for (call, why) in WITHOUT {
        assert!(!aliases.contains(*call), "{call} has an alias; it is listed as without, as {why}");
    }
}

#[test]
fn every_status_of_a_failed_completion_is_an_alias() {
    let aliases = all_aliases();
    let statuses = "LOC_LEN LOC_QP_OP LOC_PROT WR_FLUSH MW_BIND BAD_RESP LOC_ACCESS REM_INV_REQ \
                    REM_ACCESS REM_OP RETRY_EXC RNR_RETRY_EXC REM_ABORT GENERAL";
    for status in statuses.split_whitespace() {
        assert!(aliases.contains(&format!("IBV_WC_{status}_ERR")), "{status}");
    }
}
