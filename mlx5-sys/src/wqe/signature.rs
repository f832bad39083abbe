//! Segments that say how a memory key's data is signed, or encrypted: they follow the key's
//! translation in a UMR.
//!
//! Neither structure is in an installed header. Both are laid out as rdma-core has them
//! (`providers/mlx5/wqe.h`: `mlx5_bsf`, `mlx5_bsf_inl`, `mlx5_crypto_bsf`), the first as Linux
//! does, too (`include/linux/mlx5/qp.h`: `mlx5_bsf`, `mlx5_bsf_inl`), and the second as SPDK does
//! (`lib/mlx5/mlx5_umr.c`: `mlx5_crypto_bsf_seg`).

use zerocopy::big_endian::{U16, U32};

use crate::layout::{constants, layouts};

layouts! {
    /// The expected contents of blocks of a T10-DIF domain.
    BsfInline 16 {
        /// [`BSF_INLINE_VALID`] and [`BSF_REFRESH_DIF`].
        vld_refresh: U16 = 0;
        /// Application tag.
        dif_apptag: U16 = 2;
        /// Reference tag of the first block.
        dif_reftag: U32 = 4;
        /// [`T10DIF_CRC`] or [`T10DIF_CHECKSUM`].
        sig_type: u8 = 8;
        /// [`BSF_REPEAT_BLOCK`] and [`BSF_SEED`].
        rp_inv_seed: u8 = 9;
        /// Zero.
        rsvd: [u8; 3] = 10;
        /// [`BSF_INCREMENT_REFTAG`], [`BSF_APPTAG_ESCAPE`] or [`BSF_APPREF_ESCAPE`].
        dif_inc_ref_guard_check: u8 = 13;
        /// Bits of the application tag that are checked.
        dif_app_bitmask_check: U16 = 14;
    }

    /// Byte stream format: how data behind a key is signed in memory and on the wire.
    Bsf 64 {
        /// Size of this segment in bits 7–6 (`BSF_SIZE_*`); bit 4 ([`BSF_SAME_BLOCKS`]): memory and
        /// wire have the same structure of blocks.
        size_sbs: u8 = 0;
        /// Bytes of a block's signature that are checked, the first in bit 7.
        check_byte_mask: u8 = 1;
        /// With [`BSF_SAME_BLOCKS`], bytes of the signature that are copied and not made anew;
        /// otherwise size of the wire's blocks (`BLOCK_*`).
        wire: u8 = 2;
        /// Size of memory's blocks.
        memory: u8 = 3;
        /// Most bytes of data.
        raw_data_size: U32 = 4;
        /// Wire: format in bits 31–24 (`BFS_*`), index of the PSV in 23–0.
        wire_bfs_psv: U32 = 8;
        /// Memory: the same.
        memory_bfs_psv: U32 = 12;
        /// For signatures over a whole transaction: zero.
        extended: [u8; 16] = 16;
        /// Wire, where it has T10-DIF.
        wire_inline: BsfInline = 32;
        /// Memory, where it has T10-DIF.
        memory_inline: BsfInline = 48;
    }

    /// How data behind a key is encrypted.
    CryptoBsf 64 {
        /// Size of this segment in bits 7–6, type ([`BSF_TYPE_CRYPTO`]) in the low ones.
        size_type: u8 = 0;
        /// The side that is encrypted, and whether before its signature: `ENCRYPTED_*`.
        enc_order: u8 = 1;
        /// Zero.
        rsvd0: u8 = 2;
        /// [`ENCRYPTION_AES_XTS`].
        enc_standard: u8 = 3;
        /// Most bytes of data.
        raw_data_size: U32 = 4;
        /// Size of data units (`BLOCK_*`).
        block_size: u8 = 8;
        /// Zero.
        rsvd1: [u8; 7] = 9;
        /// Tweak of the first data unit.
        initial_tweak: [u8; 16] = 16;
        /// Number of the data encryption key in bits 23–0.
        dek: U32 = 32;
        /// Zero.
        rsvd2: [u8; 4] = 36;
        /// Tag that the encryption key must have.
        keytag: [u8; 8] = 40;
        /// Zero.
        rsvd3: [u8; 16] = 48;
    }
}

constants! {
    /// Position of the size in the first byte.
    BSF_SIZE_SHIFT: u32 = 6;
    /// A [`Bsf`] with both [`BsfInline`]s, or a [`CryptoBsf`], alone.
    BSF_SIZE_INLINE: u8 = 2;
    /// A [`Bsf`] with a [`CryptoBsf`] behind it.
    BSF_SIZE_SIGNATURE_AND_CRYPTO: u8 = 3;
    /// Type of a [`CryptoBsf`].
    BSF_TYPE_CRYPTO: u8 = 1;
    /// Memory and wire have the same structure of blocks.
    BSF_SAME_BLOCKS: u8 = 1 << 4;

    /// The segment is valid.
    BSF_INLINE_VALID: u16 = 1 << 15;
    /// Values start anew with each transfer.
    BSF_REFRESH_DIF: u16 = 1 << 14;
    /// The format repeats, block by block.
    BSF_REPEAT_BLOCK: u8 = 1 << 7;
    /// The guard starts from ones, not from zeroes.
    BSF_SEED: u8 = 1 << 3;
    /// The reference tag grows by one with each block.
    BSF_INCREMENT_REFTAG: u8 = 1 << 6;
    /// Blocks whose application tag is all ones are not checked.
    BSF_APPTAG_ESCAPE: u8 = 1;
    /// Blocks whose application and reference tags are all ones are not checked.
    BSF_APPREF_ESCAPE: u8 = 2;
    /// The guard is a CRC.
    T10DIF_CRC: u8 = 1;
    /// The guard is the IP checksum.
    T10DIF_CHECKSUM: u8 = 2;

    /// Position of the format in the word.
    BFS_SHIFT: u32 = 24;
    /// CRC32.
    BFS_CRC32: u8 = 0x20;
    /// CRC32C.
    BFS_CRC32C: u8 = 0x40;
    /// CRC64-XP10.
    BFS_CRC64_XP10: u8 = 0x50;
    /// For CRCs: the format repeats, block by block.
    BFS_CRC_REPEAT: u8 = 2;
    /// For CRCs: they start from zeroes.
    BFS_CRC_SEED_ZERO: u8 = 1;
    /// Bits of a PSV's index.
    BSF_PSV_MASK: u32 = 0xff_ffff;

    /// Blocks of 512 bytes.
    BLOCK_512: u8 = 1;
    /// Blocks of 520 bytes.
    BLOCK_520: u8 = 2;
    /// Blocks of 4096 bytes.
    BLOCK_4096: u8 = 3;
    /// Blocks of 4160 bytes.
    BLOCK_4160: u8 = 4;
    /// Blocks of 4048 bytes.
    BLOCK_4048: u8 = 6;

    /// The wire is encrypted, and signed before.
    ENCRYPTED_WIRE_SIGNATURE: u8 = 0;
    /// Memory is encrypted, and signed before.
    ENCRYPTED_MEMORY_SIGNATURE: u8 = 1;
    /// The wire is encrypted, and what is encrypted is signed.
    ENCRYPTED_RAW_WIRE: u8 = 2;
    /// Memory is encrypted, and what is encrypted is signed.
    ENCRYPTED_RAW_MEMORY: u8 = 3;
    /// AES-XTS.
    ENCRYPTION_AES_XTS: u8 = 0;

    /// Position of the count of signature errors in [`MkeySeg::flags_pd`](super::MkeySeg): one bit.
    MKEY_SIG_ERR_SHIFT: u32 = 26;
}
