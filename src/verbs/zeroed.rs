//! C structures that start as zeroes.

use mlx5_sys::{dv, verbs};

/// A C structure of which zeroes are a value: nothing is given or known yet.
///
/// # Safety
/// All-zero bytes are a value of the type.
pub(crate) unsafe trait Zeroed: Sized {
    /// Returns the structure with all bytes zero.
    fn zeroed() -> Self {
        // SAFETY: the implementer of the trait guarantees that all-zero bytes are a value.
        unsafe { std::mem::zeroed() }
    }
}

macro_rules! zeroed {
    ($($type:path,)*) => {$(
        // SAFETY: integers, arrays and unions of these, pointers and functions that may be null.
        unsafe impl Zeroed for $type {}
    )*};
}

zeroed! {
    dv::mlx5dv_cq_init_attr,
    dv::mlx5dv_dc_init_attr,
    dv::mlx5dv_qp_init_attr,
    verbs::ibv_cq_init_attr_ex,
    verbs::ibv_device_attr,
    verbs::ibv_device_attr_ex,
    verbs::ibv_flow_attr,
    verbs::ibv_flow_spec_action_tag,
    verbs::ibv_flow_spec_eth,
    verbs::ibv_flow_spec_ipv4,
    verbs::ibv_flow_spec_ipv6,
    verbs::ibv_flow_spec_tcp_udp,
    verbs::ibv_gid_entry,
    verbs::ibv_parent_domain_init_attr,
    verbs::ibv_port_attr,
    verbs::ibv_qp_attr,
    verbs::ibv_qp_cap,
    verbs::ibv_qp_init_attr,
    verbs::ibv_qp_init_attr_ex,
    verbs::ibv_qp_rate_limit_attr,
    verbs::ibv_srq_attr,
    verbs::ibv_srq_init_attr_ex,
    verbs::ibv_wq_attr,
    verbs::ibv_wq_init_attr,
}
