//! Options for binding `verbs.h`.
//!
//! Three outputs come of that header: the whole in the shape of rdma-sys ([`whole`]), what rdma-sys
//! leaves out ([`supplement`]), and a view of the structures that are written by hand, to check them
//! against ([`check`]). The shape is that of rdma-sys 0.3.0, so that a program compiles with either.

use bindgen::Builder;

/// Sets of bits: a structure around an integer, with `|` and `&`.
const BITFIELDS: &[&str] = &[
    "ib_uverbs_access_flags",
    "ibv_access_flags",
    "ibv_cq_attr_mask",
    "ibv_cq_init_attr_mask",
    "ibv_create_cq_attr_flags",
    "ibv_create_cq_wc_flags",
    "ibv_device_cap_flags",
    "ibv_flow_action_esp_mask",
    "ibv_flow_flags",
    "ibv_ind_table_init_attr_mask",
    "ibv_odp_general_caps",
    "ibv_odp_transport_cap_bits",
    "ibv_ops_flags",
    "ibv_parent_domain_init_attr_mask",
    "ibv_pci_atomic_op_size",
    "ibv_port_cap_flags",
    "ibv_port_cap_flags2",
    "ibv_qp_attr_mask",
    "ibv_qp_create_flags",
    "ibv_qp_create_send_ops_flags",
    "ibv_qp_init_attr_mask",
    "ibv_qp_open_attr_mask",
    "ibv_raw_packet_caps",
    "ibv_read_counters_flags",
    "ibv_rereg_mr_flags",
    "ibv_rx_hash_fields",
    "ibv_rx_hash_function_flags",
    "ibv_send_flags",
    "ibv_srq_attr_mask",
    "ibv_srq_init_attr_mask",
    "ibv_tm_cap_flags",
    "ibv_values_mask",
    "ibv_wc_flags",
    "ibv_wq_attr_mask",
    "ibv_wq_flags",
    "ibv_wq_init_attr_mask",
    "ibv_xrcd_init_attr_mask",
];

/// Alternatives: a module with the integer `Type` and one constant each.
const MODULES: &[&str] = &[
    "ib_uverbs_advise_mr_advice",
    "ibv_atomic_cap",
    "ibv_counter_description",
    "ibv_flow_attr_type",
    "ibv_flow_spec_type",
    "ibv_mig_state",
    "ibv_mtu",
    "ibv_mw_type",
    "ibv_node_type",
    "ibv_ops_wr_opcode",
    "ibv_port_state",
    "ibv_qp_state",
    "ibv_qp_type",
    "ibv_rate",
    "ibv_rereg_mr_err_code",
    "ibv_srq_type",
    "ibv_transport_type",
    "ibv_wc_opcode",
    "ibv_wc_status",
    "ibv_wq_state",
    "ibv_wq_type",
    "ibv_wr_opcode",
];

/// Structures with unions, which `src/verbs/types.rs` writes as rdma-sys does.
const BY_HAND: &[&str] = &[
    "ibv_ah_attr",
    "ibv_async_event",
    "ibv_flow_spec",
    "ibv_gid",
    "ibv_global_route",
    "ibv_mw_bind_info",
    "ibv_ops_wr",
    "ibv_send_wr",
    "ibv_wc",
];

/// Types that libc declares.
const FROM_LIBC: &[&str] = &[
    "FILE",
    "_IO_.*",
    "__atomic_wide_counter.*",
    "__off(64)?_t",
    "__pthread.*",
    "__syscall_slong_t",
    "__time_t",
    "in6_addr",
    "off_t",
    "pthread_.*",
    "sockaddr.*",
    "timespec",
];

fn shape(builder: Builder) -> Builder {
    without_libc(enums(builder).header("wrapper/verbs.h").disable_untagged_union())
}

/// Leaves out the types that libc declares.
pub fn without_libc(mut builder: Builder) -> Builder {
    for name in FROM_LIBC {
        builder = builder.blocklist_type(name);
    }
    builder
}

/// Chooses the shape of the header's enums.
pub fn enums(mut builder: Builder) -> Builder {
    for name in BITFIELDS {
        builder = builder.bitfield_enum(name);
    }
    for name in MODULES {
        builder = builder.constified_enum_module(name);
    }
    // A reader of events matches on their type. The kernel's interface closes the list of types.
    builder.rustified_enum("ibv_event_type")
}

/// All of `verbs.h` but the types of [`BY_HAND`].
pub fn whole(mut builder: Builder) -> Builder {
    for name in BY_HAND {
        builder = builder.blocklist_type(name);
    }
    shape(builder)
        .allowlist_function("ibv_.*")
        // In `verbs::newer`, for all headers.
        .blocklist_function("ibv_dm_export_dmabuf_fd")
        .allowlist_type("ibv_.*")
        .allowlist_type("verbs_.*")
        .allowlist_type("ib_uverbs_access_flags")
}

/// The types of [`BY_HAND`] as bindgen sees them; everything in them is that of `verbs`.
pub fn check(mut builder: Builder) -> Builder {
    for name in BY_HAND {
        builder = builder.allowlist_type(format!("{name}(__bindgen_ty_.*)?"));
    }
    shape(builder).allowlist_recursively(false)
}

/// Binds items that rdma-sys lacks: functions behind inline ones, constants of unnamed enums and
/// macros.
pub fn supplement(builder: Builder) -> Builder {
    builder
        .header("wrapper/verbs.h")
        .allowlist_function("_ibv_query_gid_ex")
        .allowlist_function("_ibv_query_gid_table")
        .allowlist_var("IBV_LINK_LAYER_.*")
        .allowlist_var("IB_ROCE_UDP_ENCAP_.*")
        .allowlist_var("IB_GRH_FLOWLABEL_MASK")
        .allowlist_type("ib_uverbs_query_port_flags")
        .blocklist_type("ibv_.*")
        .allowlist_recursively(false)
}
