//! `mlx5dv.h`: the direct verbs of libmlx5, as bindgen sees them, and what bindgen cannot see.
//!
//! Names are the header's. An enumeration is a type alias (`mlx5dv_obj_type`) and constants
//! (`MLX5DV_OBJ_QP`). Types of verbs (`ibv_context`, `ibv_qp`, …) are those of
//! [`verbs`](crate::verbs).
//!
//! The files beside this one hold what bindgen cannot see: inline functions, and the names that
//! `mlx5_api.h` defines as macros for those of the kernel's interface. `newer` has the functions of rdma-core 62,
//! which older libraries lack: their calls return -1 then and set `errno` to `ENOSYS`.

mod alias;
mod inline;
mod newer;

pub use alias::*;
pub use inline::*;
pub use newer::*;

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
    use super::{ibv_flow_attr_type, ibv_tmh};
    use crate::verbs::*;
    use libc::{FILE, off_t};

    #[cfg(feature = "bindgen")]
    include!(concat!(env!("OUT_DIR"), "/mlx5dv.rs"));
    #[cfg(not(feature = "bindgen"))]
    include!("../bindings/mlx5dv.rs");
}

pub use generated::*;

/// `enum ibv_flow_attr_type`: a module in [`verbs`](crate::verbs), where C has a type.
#[allow(non_camel_case_types)]
pub type ibv_flow_attr_type = crate::verbs::ibv_flow_attr_type::Type;

/// `struct ibv_tmh` of `tm_types.h`: the header of a tag-matching message.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ibv_tmh {
    /// `enum ibv_tmh_op`: 0 no tag, 1 rendezvous, 2 fin, 3 eager.
    pub opcode: u8,
    /// Zero.
    pub reserved: [u8; 3],
    /// Opaque to the HCA; big-endian.
    pub app_ctx: u32,
    /// The tag; big-endian.
    pub tag: u64,
}

/// `struct mlx5_wqe_ctrl_seg`, which is packed and aligned to 4 in C: `dci_stream_channel_id` lies
/// at an odd offset, hence bytes.
#[allow(non_camel_case_types)]
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct mlx5_wqe_ctrl_seg {
    /// Opcode modifier in bits 31–24, WQE index in 23–8, opcode in 7–0; big-endian.
    pub opmod_idx_opcode: u32,
    /// QP number in bits 31–8, size in 16-byte units in 5–0; big-endian.
    pub qpn_ds: u32,
    /// XOR of the WQE's bytes, where the QP was created to check it.
    pub signature: u8,
    /// Stream of a DCI; big-endian.
    pub dci_stream_channel_id: [u8; 2],
    /// Fence mode, completion mode and solicited event.
    pub fm_ce_se: u8,
    /// Immediate data or a key, by opcode; big-endian.
    pub imm: u32,
}

// With the feature `bindgen`, `wrapper/mlx5dv.h` holds the C structures to these very numbers.
const _: () = {
    use core::mem::{align_of, offset_of, size_of};
    assert!(size_of::<mlx5_wqe_ctrl_seg>() == 16);
    assert!(align_of::<mlx5_wqe_ctrl_seg>() == 4);
    assert!(offset_of!(mlx5_wqe_ctrl_seg, opmod_idx_opcode) == 0);
    assert!(offset_of!(mlx5_wqe_ctrl_seg, qpn_ds) == 4);
    assert!(offset_of!(mlx5_wqe_ctrl_seg, signature) == 8);
    assert!(offset_of!(mlx5_wqe_ctrl_seg, dci_stream_channel_id) == 9);
    assert!(offset_of!(mlx5_wqe_ctrl_seg, fm_ce_se) == 11);
    assert!(offset_of!(mlx5_wqe_ctrl_seg, imm) == 12);
    assert!(size_of::<ibv_tmh>() == 16);
    assert!(offset_of!(ibv_tmh, opcode) == 0);
    assert!(offset_of!(ibv_tmh, reserved) == 1);
    assert!(offset_of!(ibv_tmh, app_ctx) == 4);
    assert!(offset_of!(ibv_tmh, tag) == 8);
};
