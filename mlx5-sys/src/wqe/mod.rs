//! Work queue elements: the segments a WQE is built of, and the constants in them.
//!
//! A send WQE begins with a [`CtrlSeg`]. Opcode and transport decide which segments follow, in this
//! order:
//!
//! 1. [`XrcSeg`], [`AvSeg`] or [`EthSeg`]
//! 2. [`RaddrSeg`]
//! 3. [`AtomicSeg`] or [`MaskedAtomicSeg`]
//! 4. [`DataSeg`]s, or inline data behind an [`InlineHeader`]
//!
//! A segment's size is a multiple of [`SEGMENT_SIZE`], a WQE's size in the ring one of
//! [`WQEBB_SIZE`]. A receive WQE consists of [`DataSeg`]s. In a shared or multi-packet receive
//! queue, a [`SrqNextSeg`] comes before them.
//!
//! All types have alignment 1 and big-endian fields, so they may be laid over any bytes.

mod memory;
pub mod opcode;
mod receive;
mod send;
mod signature;

pub use memory::*;
pub use receive::*;
pub use send::*;
pub use signature::*;

use crate::layout::constants;

constants! {
    /// Size of a send queue's basic block in bytes: WQEs start at multiples of it, and the producer
    /// counter counts it.
    WQEBB_SIZE: usize = 64, MLX5_SEND_WQE_BB;
    /// log2 of [`WQEBB_SIZE`].
    WQEBB_SHIFT: u32 = 6, MLX5_SEND_WQE_SHIFT;
    /// Size of a segment unit in bytes; the ctrl segment's `ds` counts it. PRM, "WQE Construction".
    SEGMENT_SIZE: usize = 16;
    /// Largest `ds` of a WQE: the field has six bits. PRM, "Control Segment Format".
    MAX_DS: usize = 63;
    /// A data segment with this key ends a receive WQE's list.
    INVALID_LKEY: u32 = 0x100, MLX5_INVALID_LKEY;
    /// Bit of an [`InlineHeader`] that marks inline data; the other bits are its length in bytes.
    INLINE_SEG: u32 = 0x8000_0000, MLX5_INLINE_SEG;
    /// Bit of [`AvSeg::dqp_dct`] that says the address vector is 48 bytes long, not 16.
    EXTENDED_UD_AV: u32 = 0x8000_0000, MLX5_EXTENDED_UD_AV;

    /// Fence bits of [`CtrlSeg::fm_ce_se`]. PRM, "Control Segment Format", field fm; values as in
    /// Linux `mlx5/qp.h`.
    FENCE_MASK: u8 = 7 << 5;
    /// No fence.
    FENCE_NONE: u8 = 0;
    /// Waits for the memory key changes (UMR, invalidate) that precede it.
    FENCE_INITIATOR_SMALL: u8 = 1 << 5, MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE;
    /// Waits for the reads and atomics that precede it. Linux `MLX5_FENCE_MODE_FENCE`.
    FENCE_MODE: u8 = 2 << 5;
    /// Waits for everything that precedes it. Linux `MLX5_FENCE_MODE_STRONG_ORDERING`.
    FENCE_STRONG_ORDER: u8 = 3 << 5;
    /// Small fence and fence: what `IBV_SEND_FENCE` asks for.
    FENCE_SMALL_AND_FENCE: u8 = 4 << 5, MLX5_WQE_CTRL_FENCE;
    /// Completion bits of [`CtrlSeg::fm_ce_se`]. PRM, "Control Segment Format", field ce.
    CE_MASK: u8 = 3 << 2;
    /// A CQE only if the WQE fails.
    CE_ON_ERROR: u8 = 0;
    /// A CQE only if the WQE fails and is the first to fail.
    CE_ON_FIRST_ERROR: u8 = 1 << 2;
    /// A CQE always: what `IBV_SEND_SIGNALED` asks for.
    CE_ALWAYS: u8 = 2 << 2, MLX5_WQE_CTRL_CQ_UPDATE;
    /// A CQE always, and an event.
    CE_ALWAYS_EVENT: u8 = 3 << 2;
    /// Solicited event at the responder: what `IBV_SEND_SOLICITED` asks for.
    SOLICITED: u8 = 1 << 1, MLX5_WQE_CTRL_SOLICITED;
}
