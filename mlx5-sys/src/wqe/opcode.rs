//! Opcodes of send WQEs: bits 7–0 of the ctrl segment's first word.

macro_rules! opcodes {
    ($($(#[$meta:meta])* $name:ident = $value:literal $(, $c:ident)?;)*) => {
        crate::layout::constants! { $($(#[$meta])* $name: u8 = $value $(, $c)?;)* }

        /// The name of an opcode, as this module has it.
        pub const fn name(opcode: u8) -> Option<&'static str> {
            match opcode {
                $($value => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}

opcodes! {
    /// Does nothing but complete.
    NOP = 0x00, MLX5_OPCODE_NOP;
    /// Send that invalidates a key at the responder.
    SEND_INVAL = 0x01, MLX5_OPCODE_SEND_INVAL;
    /// RDMA write.
    RDMA_WRITE = 0x08, MLX5_OPCODE_RDMA_WRITE;
    /// RDMA write with immediate data.
    RDMA_WRITE_IMM = 0x09, MLX5_OPCODE_RDMA_WRITE_IMM;
    /// Send.
    SEND = 0x0a, MLX5_OPCODE_SEND;
    /// Send with immediate data.
    SEND_IMM = 0x0b, MLX5_OPCODE_SEND_IMM;
    /// TCP segmentation.
    TSO = 0x0e, MLX5_OPCODE_TSO;
    /// Waits for completions of another queue, or for a time. DPDK `mlx5_prm.h`.
    WAIT = 0x0f;
    /// RDMA read.
    RDMA_READ = 0x10, MLX5_OPCODE_RDMA_READ;
    /// Compare and swap on 8 bytes.
    ATOMIC_CS = 0x11, MLX5_OPCODE_ATOMIC_CS;
    /// Fetch and add on 8 bytes.
    ATOMIC_FA = 0x12, MLX5_OPCODE_ATOMIC_FA;
    /// Compare and swap under masks, of the width the opcode modifier gives.
    ATOMIC_MASKED_CS = 0x14, MLX5_OPCODE_ATOMIC_MASKED_CS;
    /// Fetch and add with field boundaries, of the width the opcode modifier gives.
    ATOMIC_MASKED_FA = 0x15, MLX5_OPCODE_ATOMIC_MASKED_FA;
    /// Lets another queue's WQEs run. DPDK `mlx5_prm.h`.
    SEND_EN = 0x17;
    /// Memory window bind. Linux `mlx5/device.h`; libmlx5 posts [`UMR`] instead.
    BIND_MW = 0x18;
    /// Fast memory registration.
    FMR = 0x19, MLX5_OPCODE_FMR;
    /// Local invalidate. libmlx5 posts [`UMR`] instead.
    LOCAL_INVAL = 0x1b, MLX5_OPCODE_LOCAL_INVAL;
    /// Configuration command.
    CONFIG_CMD = 0x1f, MLX5_OPCODE_CONFIG_CMD;
    /// Sets a protection signature value.
    SET_PSV = 0x20, MLX5_OPCODE_SET_PSV;
    /// Reads data without sending it. Linux `mlx5/device.h`.
    DUMP = 0x23;
    /// Changes a memory key.
    UMR = 0x25, MLX5_OPCODE_UMR;
    /// Appends to or removes from a tag matching list.
    TAG_MATCHING = 0x28, MLX5_OPCODE_TAG_MATCHING;
    /// Several packets in one WQE. DPDK `mlx5_prm.h`.
    ENHANCED_MPSW = 0x29;
    /// Writes a flow table entry. `mlx5dv.h`, `MLX5_OPCODE_FLOW_TBL_ACCESS`, since rdma-core 42.
    FLOW_TBL_ACCESS = 0x2c;
    /// Reads or writes an advanced steering object. DPDK `mlx5_prm.h`.
    ACCESS_ASO = 0x2d;
    /// Memory to memory operation, which the opcode modifier chooses.
    MMO = 0x2f, MLX5_OPCODE_MMO;
}

/// Opcode modifier of [`MMO`] for a copy. rdma-core `providers/mlx5/wqe.h`.
pub const OPMOD_MMO_DMA: u8 = 1;

/// Opcode modifier of [`WAIT`] for a time. DPDK `mlx5_prm.h`, `MLX5_OPC_MOD_WAIT_TIME`.
pub const OPMOD_WAIT_TIME: u8 = 2;

/// Opcode modifier of [`ATOMIC_MASKED_CS`] and [`ATOMIC_MASKED_FA`] on `1 << log` bytes, 4 or more.
/// UCX `ib_mlx5.h`, `UCT_IB_MLX5_OPMOD_EXT_ATOMIC`; Mellanox OFED's libmlx5 `qp.c`.
pub const fn opmod_masked(log: u32) -> u8 {
    8 | (log - 2) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_have_names() {
        assert_eq!(name(RDMA_WRITE_IMM), Some("RDMA_WRITE_IMM"));
        assert_eq!(name(0x2f), Some("MMO"));
        assert_eq!(name(0xff), None);
    }
}
