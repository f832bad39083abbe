//! Mini CQEs: what remains of each completion in a compressed block.
//!
//! A block is a title CQE and then slots of [`MINI_CQES_PER_SLOT`] mini CQEs. Everything a mini CQE
//! does not have is taken from the title. Sources: Linux `mlx5/device.h`, `mlx5_mini_cqe8`, and
//! for the formats `enum mlx5dv_cqe_comp_res_format`.

use zerocopy::big_endian::{U16, U32};

use crate::layout::{constants, layouts};

layouts! {
    /// A mini CQE whose first word is looked at by format: see the other types of this module.
    MiniCqe 8 {
        /// Depends on the format.
        word: U32 = 0;
        /// Length of the message in bytes, as in [`Cqe64::byte_cnt`](super::Cqe64::byte_cnt).
        byte_cnt: U32 = 4;
    }

    /// A responder's mini CQE, format [`MINI_FORMAT_HASH`].
    MiniCqeHash 8 {
        /// RSS hash of the packet.
        rx_hash_result: U32 = 0;
        /// Length of the message in bytes.
        byte_cnt: U32 = 4;
    }

    /// A responder's mini CQE, format [`MINI_FORMAT_CSUM`] or [`MINI_FORMAT_CSUM_STRIDX`].
    MiniCqeChecksum 8 {
        /// Ones' complement sum of the packet.
        checksum: U16 = 0;
        /// Index of the first stride, with [`MINI_FORMAT_CSUM_STRIDX`].
        stridx: U16 = 2;
        /// Length of the message in bytes.
        byte_cnt: U32 = 4;
    }

    /// A requester's mini CQE.
    MiniCqeRequester 8 {
        /// As in [`Cqe64::wqe_counter`](super::Cqe64::wqe_counter).
        wqe_counter: U16 = 0;
        /// Opcode of the WQE.
        s_wqe_opcode: u8 = 2;
        /// Reserved.
        reserved: u8 = 3;
        /// Length of the message in bytes.
        byte_cnt: U32 = 4;
    }
}

constants! {
    /// Mini CQEs in a 64-byte slot. Linux `mlx5/device.h`, `MLX5_MINI_CQE_ARRAY_SIZE`.
    MINI_CQES_PER_SLOT: usize = 8;
    /// Responders' mini CQEs are [`MiniCqeHash`].
    MINI_FORMAT_HASH: u8 = 1 << 0, MLX5DV_CQE_RES_FORMAT_HASH;
    /// Responders' mini CQEs are [`MiniCqeChecksum`].
    MINI_FORMAT_CSUM: u8 = 1 << 1, MLX5DV_CQE_RES_FORMAT_CSUM;
    /// Responders' mini CQEs are [`MiniCqeChecksum`] with the stride.
    MINI_FORMAT_CSUM_STRIDX: u8 = 1 << 2, MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX;
}
