//! Doorbell records, which the HCA reads in memory, and the registers of a UAR page.

use crate::layout::constants;

constants! {
    /// Size of a doorbell record in bytes: two big-endian words.
    RECORD_SIZE: usize = 8;
    /// Word of a QP's record that holds the receive counter, in WQEs, in bits 15–0. Also the only
    /// word of an SRQ's record.
    RECEIVE_WORD: usize = 0, MLX5_RCV_DBR;
    /// Word of a QP's record that holds the send counter, in 64-byte blocks, in bits 15–0.
    SEND_WORD: usize = 1, MLX5_SND_DBR;
    /// Word of a CQ's record that holds the consumer index in bits 23–0. rdma-core
    /// `providers/mlx5/mlx5.h`, `MLX5_CQ_SET_CI`.
    CQ_CONSUMER_WORD: usize = 0;
    /// Word of a CQ's record that holds what was last written to the upper half of the CQ's arm
    /// register. rdma-core `providers/mlx5/mlx5.h`, `MLX5_CQ_ARM_DB`.
    CQ_ARM_WORD: usize = 1;
    /// Mask of a counter in a QP's or SRQ's record.
    COUNTER_MASK: u32 = 0xffff;
    /// Mask of a CQ's consumer index.
    CONSUMER_INDEX_MASK: u32 = 0xff_ffff;

    /// Size of a UAR page in bytes. PRM, "UAR Page Format"; rdma-core `providers/mlx5/mlx5.h`,
    /// `MLX5_ADAPTER_PAGE_SIZE`.
    UAR_PAGE_SIZE: usize = 4096;
    /// Offset in a UAR page of the CQ arm register: a big-endian 64-bit word with the sequence
    /// number ([`ARM_SEQUENCE_SHIFT`]), `ARM_*` and consumer index in the upper half, and the CQ
    /// number in the lower.
    UAR_CQ_ARM: usize = 0x20, MLX5_CQ_DOORBELL;
    /// Offset in a UAR page of the register that updates an EQ's consumer index and arms it: a
    /// big-endian word, EQ number in bits 31–24, index in 23–0. Linux `mlx5/core/eq.c`,
    /// `eq_update_ci`.
    UAR_EQ_ARM: usize = 0x40;
    /// Offset in a UAR page of the register that updates an EQ's consumer index only.
    UAR_EQ_UPDATE: usize = 0x48;
    /// Offset in a UAR page of the send doorbell of queues without a record (`send_dbr_mode` 1).
    /// rdma-core `tests/mlx5_base.py`, `DB_BF_DBR_LESS_BUF_OFFSET`.
    UAR_RECORDLESS: usize = 0x600;
    /// Offset in a UAR page of the first send doorbell, which is a BlueFlame register. rdma-core
    /// `providers/mlx5/mlx5.h`, `MLX5_BF_OFFSET`.
    UAR_BLUE_FLAME: usize = 0x800;
    /// Bytes from one BlueFlame register to the next: two buffers that are written in turn. The
    /// HCA's own value is 2 to the power of its capability `log_bf_reg_size`, 9 on every HCA.
    BF_REGISTER_SIZE: usize = 0x200;
    /// Size of one buffer of a BlueFlame register in bytes; the longest WQE that can be written
    /// there.
    BF_BUFFER_SIZE: usize = BF_REGISTER_SIZE / 2;
    /// BlueFlame registers of a UAR page that are open to processes. Linux `mlx5/device.h`,
    /// `MLX5_NON_FP_BFREGS_PER_UAR`.
    BF_REGISTERS_PER_UAR: usize = 2;

    /// Position of the sequence number, two bits, in a CQ's arm word. It is the number of events
    /// taken, so the HCA can tell a late request from a new one.
    ARM_SEQUENCE_SHIFT: u32 = 28;
    /// Arms a CQ for the next completion.
    ARM_NEXT: u32 = 0, MLX5_CQ_DB_REQ_NOT;
    /// Arms a CQ for the next solicited completion or error.
    ARM_SOLICITED: u32 = 1 << 24, MLX5_CQ_DB_REQ_NOT_SOL;
}
