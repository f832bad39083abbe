//! Completion queue elements, and the constants in them.
//!
//! A CQE is 64 bytes, or 64 bytes of data followed by those 64. [`Cqe64::op_own`] is its last byte
//! and the only one that may be read before the ownership test has passed: the HCA writes it
//! last. A CQE whose opcode is [`opcode::REQ_ERR`] or [`opcode::RESP_ERR`] is read as an
//! [`ErrorCqe`]; one whose format is [`FORMAT_COMPRESSED`] is followed by slots of
//! [`MiniCqe`]s.

mod entry;
mod mini;
pub mod opcode;
pub mod syndrome;
pub mod tag_event;

pub use entry::*;
pub use mini::*;

use crate::layout::constants;

constants! {
    /// Bit of [`Cqe64::op_own`] whose value says in which round of the ring the CQE was written.
    OWNER_MASK: u8 = 1, MLX5_CQE_OWNER_MASK;
    /// Bit of [`Cqe64::op_own`]: the sender asked for a solicited event. `mlx5dv_get_cqe_se`.
    SOLICITED: u8 = 1 << 1;
    /// Position of the format in [`Cqe64::op_own`], two bits. `mlx5dv_get_cqe_format`.
    FORMAT_SHIFT: u32 = 2;
    /// Position of the opcode in [`Cqe64::op_own`], four bits. `mlx5dv_get_cqe_opcode`.
    OPCODE_SHIFT: u32 = 4;
    /// [`Cqe64::op_own`] of a slot that was never written: opcode [`opcode::INVALID`].
    /// rdma-core `providers/mlx5/cq.c`, `mlx5_alloc_cq_buf`.
    OP_OWN_FRESH: u8 = opcode::INVALID << OPCODE_SHIFT;

    /// No data in the CQE. Linux `mlx5/device.h`.
    FORMAT_NO_INLINE: u8 = 0;
    /// Bytes 0–31 of the CQE are message data.
    FORMAT_INLINE_32: u8 = 1;
    /// The 64 bytes before the CQE are message data; 128-byte CQEs only.
    FORMAT_INLINE_64: u8 = 2;
    /// The CQE is the title of a compressed block.
    FORMAT_COMPRESSED: u8 = 3;
}
