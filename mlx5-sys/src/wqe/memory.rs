//! Segments of send WQEs that change memory keys and signatures, or tag matching lists.

use zerocopy::big_endian::{U16, U32, U64};

use crate::layout::{constants, layouts};

layouts! {
    /// UMR control segment: which parts of the memory key change.
    UmrCtrlSeg 48 = mlx5_wqe_umr_ctrl_seg {
        /// `UMR_*` flags.
        flags: u8 = 0, flags;
        /// Zero.
        rsvd0: [u8; 3] = 1, rsvd0;
        /// Size of the translation that follows, in 16-byte units.
        klm_octowords: U16 = 4, klm_octowords;
        /// The place in the key's translation where the new one starts, or, without
        /// [`UMR_TRANSLATION_OFFSET`], the size of the BSF that follows in 16-byte units.
        offset_or_bsf_octowords: U16 = 6, __bindgen_anon_1.bsf_octowords;
        /// `MKEY_MASK_*`: the fields of the [`MkeySeg`] that count.
        mkey_mask: U64 = 8, mkey_mask;
        /// Zero.
        rsvd1: [u8; 32] = 16, rsvd1;
    }

    /// New values of a memory key's context; inline translation entries may follow.
    MkeySeg 64 = mlx5_wqe_mkey_context_seg {
        /// [`MKEY_FREE`] or 0.
        free: u8 = 0, free;
        /// Zero.
        reserved1: u8 = 1, reserved1;
        /// `ACCESS_*` flags.
        access_flags: u8 = 2, access_flags;
        /// Zero.
        sf: u8 = 3, sf;
        /// QP number in bits 31–8 (0xffffff: any), variable part of the key in 7–0.
        qpn_mkey: U32 = 4, qpn_mkey;
        /// Zero.
        reserved2: U32 = 8, reserved2;
        /// [`MKEY_BSF_ENABLE`], signature error count in bit 26, PD number in 23–0.
        flags_pd: U32 = 12, flags_pd;
        /// First virtual address.
        start_addr: U64 = 16, start_addr;
        /// Length in bytes.
        len: U64 = 24, len;
        /// Size of the BSF in 16-byte units.
        bsf_octword_size: U32 = 32, bsf_octword_size;
        /// Zero.
        reserved3: [u8; 16] = 36, reserved3;
        /// Size of the translation in 16-byte units.
        translations_octword_size: U32 = 52, translations_octword_size;
        /// Zero.
        reserved4: [u8; 3] = 56, reserved4;
        /// log2 of the page size in bytes.
        log_page_size: u8 = 59, log_page_size;
        /// Zero.
        reserved: U32 = 60, reserved;
    }

    /// One entry of a key's translation. Lists are padded to 64 bytes.
    Klm 16 = mlx5_wqe_umr_klm_seg {
        /// Length in bytes, up to 2 GiB.
        byte_count: U32 = 0, byte_count;
        /// Memory key of the entry.
        mkey: U32 = 4, mkey;
        /// Virtual address under that key.
        address: U64 = 8, address;
    }

    /// Header of an interleaved translation; `num_ent` [`RepeatEntry`]s follow.
    RepeatBlock 16 = mlx5_wqe_umr_repeat_block_seg {
        /// Bytes of all entries in one cycle.
        byte_count: U32 = 0, byte_count;
        /// [`REPEAT_BLOCK_OP`].
        op: U32 = 4, op;
        /// Number of cycles.
        repeat_count: U32 = 8, repeat_count;
        /// Zero.
        reserved: U16 = 12, reserved;
        /// Number of entries.
        num_ent: U16 = 14, num_ent;
    }

    /// One entry of an interleaved translation.
    RepeatEntry 16 = mlx5_wqe_umr_repeat_ent_seg {
        /// Bytes from one cycle's piece to the next one's.
        stride: U16 = 0, stride;
        /// Bytes of one piece.
        byte_count: U16 = 2, byte_count;
        /// Memory key of the entry.
        memkey: U32 = 4, memkey;
        /// Virtual address of the first piece.
        va: U64 = 8, va;
    }

    /// Sets a protection signature value. rdma-core `providers/mlx5/wqe.h`,
    /// `mlx5_wqe_set_psv_seg`.
    PsvSeg 16 {
        /// Index of the PSV.
        psv_index: U32 = 0;
        /// Block error syndrome.
        syndrome: U16 = 4;
        /// Zero.
        reserved: U16 = 6;
        /// T10-DIF: block guard, application tag, reference tag. CRC: the seed.
        transient_signature: U64 = 8;
    }

    /// Changes a tag matching list.
    TagMatchingSeg 32 = mlx5_wqe_tm_seg {
        /// `TM_*` operation in bits 7–4.
        opcode: u8 = 0, opcode;
        /// [`TM_FLAG_SW_CNT`] and [`TM_FLAG_CQE_REQ`].
        flags: u8 = 1, flags;
        /// Index of the list entry.
        index: U16 = 2, index;
        /// Zero.
        rsvd0: [u8; 2] = 4, rsvd0;
        /// Number of unexpected messages that software has handled.
        sw_cnt: U16 = 6, sw_cnt;
        /// Zero.
        rsvd1: [u8; 8] = 8, rsvd1;
        /// Tag to match.
        append_tag: U64 = 16, append_tag;
        /// Bits of the tag that count.
        append_mask: U64 = 24, append_mask;
    }
}

const _: () = {
    use crate::dv::{mlx5_wqe_mkey_context_seg, mlx5_wqe_umr_repeat_block_seg};
    assert!(core::mem::offset_of!(mlx5_wqe_mkey_context_seg, inseg) == MkeySeg::SIZE);
    assert!(core::mem::offset_of!(mlx5_wqe_umr_repeat_block_seg, entries) == RepeatBlock::SIZE);
};

constants! {
    /// The translation follows in the WQE; otherwise the WQE points to it.
    UMR_INLINE: u8 = 1 << 7, MLX5_WQE_UMR_CTRL_FLAG_INLINE;
    /// Fails unless the key is free.
    UMR_CHECK_FREE: u8 = 1 << 5, MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE;
    /// [`UmrCtrlSeg::offset_or_bsf_octowords`] is a translation offset.
    UMR_TRANSLATION_OFFSET: u8 = 1 << 4, MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET;
    /// Fails unless the key belongs to this QP.
    UMR_CHECK_QPN: u8 = 1 << 3, MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN;

    /// Length.
    MKEY_MASK_LEN: u64 = 1 << 0, MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN;
    /// Start address.
    MKEY_MASK_START_ADDR: u64 = 1 << 6, MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR;
    /// Signature error count.
    MKEY_MASK_SIG_ERR: u64 = 1 << 9, MLX5_WQE_UMR_CTRL_MKEY_MASK_SIG_ERR;
    /// BSF enable.
    MKEY_MASK_BSF_ENABLE: u64 = 1 << 12, MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE;
    /// Variable part of the key.
    MKEY_MASK_MKEY: u64 = 1 << 13, MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY;
    /// QP number.
    MKEY_MASK_QPN: u64 = 1 << 14, MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN;
    /// Local write access.
    MKEY_MASK_LOCAL_WRITE: u64 = 1 << 18, MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE;
    /// Remote read access.
    MKEY_MASK_REMOTE_READ: u64 = 1 << 19, MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ;
    /// Remote write access.
    MKEY_MASK_REMOTE_WRITE: u64 = 1 << 20, MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE;
    /// Atomic access.
    MKEY_MASK_ATOMIC: u64 = 1 << 21, MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC;
    /// Free bit.
    MKEY_MASK_FREE: u64 = 1 << 29, MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE;

    /// The key is free: it can be enabled by a UMR and not be used.
    MKEY_FREE: u8 = 1 << 6, MLX5_WQE_MKEY_CONTEXT_FREE;
    /// Remote atomics may use the key.
    ACCESS_ATOMIC: u8 = 1 << 6, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC;
    /// Remote writes may use the key.
    ACCESS_REMOTE_WRITE: u8 = 1 << 5, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE;
    /// Remote reads may use the key.
    ACCESS_REMOTE_READ: u8 = 1 << 4, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ;
    /// The HCA may write for this side.
    ACCESS_LOCAL_WRITE: u8 = 1 << 3, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE;
    /// The HCA may read for this side.
    ACCESS_LOCAL_READ: u8 = 1 << 2, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_READ;
    /// Bit of [`MkeySeg::flags_pd`]: the key has a BSF. rdma-core `providers/mlx5/wqe.h`.
    MKEY_BSF_ENABLE: u32 = 1 << 30;
    /// [`RepeatBlock::op`]. rdma-core `providers/mlx5/qp.c`, where interleaved keys are posted.
    REPEAT_BLOCK_OP: u32 = 0x400;

    /// Does nothing but report `sw_cnt`. rdma-core `providers/mlx5/mlx5.h`, `MLX5_TM_OPCODE_NOP`.
    TM_NOP: u8 = 0;
    /// Appends an entry. `MLX5_TM_OPCODE_APPEND`.
    TM_APPEND: u8 = 1;
    /// Removes an entry. `MLX5_TM_OPCODE_REMOVE`.
    TM_REMOVE: u8 = 2;
    /// [`TagMatchingSeg::sw_cnt`] counts. `MLX5_SRQ_FLAG_TM_SW_CNT`.
    TM_FLAG_SW_CNT: u8 = 1 << 6;
    /// A CQE reports the operation. `MLX5_SRQ_FLAG_TM_CQE_REQ`.
    TM_FLAG_CQE_REQ: u8 = 1 << 7;
}
