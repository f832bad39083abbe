//! Items of `verbs.h` that rdma-sys lacks.

use libc::c_int;

use super::{ibv_context, ibv_gid_entry};

#[allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    rustdoc::all
)]
mod generated {
    use crate::verbs::{ibv_context, ibv_gid_entry};

    #[cfg(feature = "bindgen")]
    include!(concat!(env!("OUT_DIR"), "/verbs_supplement.rs"));
    #[cfg(not(feature = "bindgen"))]
    include!("../bindings/verbs_supplement.rs");
}

pub use generated::{
    IB_GRH_FLOWLABEL_MASK, IB_ROCE_UDP_ENCAP_VALID_PORT_MAX, IB_ROCE_UDP_ENCAP_VALID_PORT_MIN,
};

macro_rules! constants {
    ($($(#[$meta:meta])* $name:ident: $type:ty = $source:ident;)*) => { $(
        $(#[$meta])*
        pub const $name: $type = {
            assert!(generated::$source <= <$type>::MAX as u32);
            generated::$source as $type
        };
    )* };
}

constants! {
    /// Value of `ibv_port_attr::link_layer`: an old kernel that does not say, so InfiniBand.
    IBV_LINK_LAYER_UNSPECIFIED: u8 = IBV_LINK_LAYER_UNSPECIFIED;
    /// Value of `ibv_port_attr::link_layer`: InfiniBand.
    IBV_LINK_LAYER_INFINIBAND: u8 = IBV_LINK_LAYER_INFINIBAND;
    /// Value of `ibv_port_attr::link_layer`: Ethernet, so RoCE.
    IBV_LINK_LAYER_ETHERNET: u8 = IBV_LINK_LAYER_ETHERNET;
    /// Bit of `ibv_port_attr::flags`: every packet needs a GRH.
    IBV_QPF_GRH_REQUIRED: u8 = IB_UVERBS_QPF_GRH_REQUIRED;
}

/// Reads one entry of a port's GID table, with its type and network interface. Returns 0 or an
/// `errno`; `ENODATA` for an empty entry.
///
/// # Safety
/// `context` is open, `entry` is writable, `flags` is 0.
#[inline]
pub unsafe fn ibv_query_gid_ex(
    context: *mut ibv_context,
    port_num: u32,
    gid_index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
) -> c_int {
    let size = size_of::<ibv_gid_entry>();
    // SAFETY: the caller keeps the function's contract; the size is that of the entry's type.
    unsafe { generated::_ibv_query_gid_ex(context, port_num, gid_index, entry, flags, size) }
}

/// Reads all valid entries of all ports' GID tables. Returns how many, or an `errno` negated.
///
/// # Safety
/// `context` is open, `entries` is writable for `max_entries` entries, `flags` is 0.
#[inline]
pub unsafe fn ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
) -> isize {
    let size = size_of::<ibv_gid_entry>();
    // SAFETY: the caller keeps the function's contract; the size is that of the entries' type.
    unsafe { generated::_ibv_query_gid_table(context, entries, max_entries, flags, size) }
}

/// The UDP source port that a RoCEv2 flow label stands for.
#[inline]
pub const fn ibv_flow_label_to_udp_sport(flow_label: u32) -> u16 {
    let folded = (flow_label & 0x3fff) ^ ((flow_label & 0xf_c000) >> 14);
    folded as u16 | IB_ROCE_UDP_ENCAP_VALID_PORT_MIN as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_labels_fold_into_the_dynamic_ports() {
        assert_eq!(ibv_flow_label_to_udp_sport(0), 0xc000);
        assert_eq!(ibv_flow_label_to_udp_sport(0x3fff), 0xffff);
        assert_eq!(ibv_flow_label_to_udp_sport(0x4000), 0xc001);
        assert_eq!(ibv_flow_label_to_udp_sport(0xfffff), 0xffff ^ 0x3f);
    }
}
