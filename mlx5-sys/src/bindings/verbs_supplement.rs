// Written by `cargo xtask bindings --write`, from the headers of rdma-core 44.

pub const IB_ROCE_UDP_ENCAP_VALID_PORT_MIN: u32 = 49152;
pub const IB_ROCE_UDP_ENCAP_VALID_PORT_MAX: u32 = 65535;
pub const IB_GRH_FLOWLABEL_MASK: u32 = 1048575;
pub const IB_UVERBS_QPF_GRH_REQUIRED: ib_uverbs_query_port_flags = 1;
pub type ib_uverbs_query_port_flags = libc::c_uint;
pub const IBV_LINK_LAYER_UNSPECIFIED: libc::c_uint = 0;
pub const IBV_LINK_LAYER_INFINIBAND: libc::c_uint = 1;
pub const IBV_LINK_LAYER_ETHERNET: libc::c_uint = 2;

crate::load::functions! {
    Verbs;
    "IBVERBS_1.11" fn _ibv_query_gid_ex(context: *mut ibv_context, port_num: u32, gid_index: u32, entry: *mut ibv_gid_entry, flags: u32, entry_size: usize) -> libc::c_int;
    "IBVERBS_1.11" fn _ibv_query_gid_table(context: *mut ibv_context, entries: *mut ibv_gid_entry, max_entries: usize, flags: u32, entry_size: usize) -> isize;
}
