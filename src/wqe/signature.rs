//! Signed and encrypted data behind keys: what blocks carry, and which values they start from.
//!
//! A key that was made for it has, besides its layout, a byte stream format that says what data
//! looks like in memory and on the wire; and a PSV for each side that is signed, which a request of
//! its own sets. The HCA then adds, checks, copies or strips signatures as data goes by.
//!
//! The model refuses all of this, as an HCA without the capability, and libmlx5 makes no such keys
//! then. So what is here is held to the layouts that rdma-core, Linux and SPDK have in their
//! sources.

use mlx5_sys::wqe::{
    BFS_CRC_REPEAT, BFS_CRC_SEED_ZERO, BFS_CRC32, BFS_CRC32C, BFS_CRC64_XP10, BFS_SHIFT, BLOCK_512,
    BLOCK_520, BLOCK_4048, BLOCK_4096, BLOCK_4160, BSF_APPREF_ESCAPE, BSF_APPTAG_ESCAPE,
    BSF_INCREMENT_REFTAG, BSF_INLINE_VALID, BSF_PSV_MASK, BSF_REFRESH_DIF, BSF_REPEAT_BLOCK,
    BSF_SAME_BLOCKS, BSF_SEED, BSF_SIZE_INLINE, BSF_SIZE_SHIFT, BSF_SIZE_SIGNATURE_AND_CRYPTO,
    BSF_TYPE_CRYPTO, Bsf, BsfInline, CryptoBsf, ENCRYPTED_MEMORY_SIGNATURE, ENCRYPTED_RAW_MEMORY,
    ENCRYPTED_RAW_WIRE, ENCRYPTED_WIRE_SIGNATURE, ENCRYPTION_AES_XTS, PsvSeg, T10DIF_CHECKSUM,
    T10DIF_CRC, opcode,
};

use super::encode::setters;
use super::{Encode, Limits, Operation, PostOn, Segment, Segments};
use crate::ib::Rc;
use crate::wqe::EncodeError;

/// Size of the blocks that are signed, or of the units that are encrypted, without signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSize {
    /// 512 bytes.
    B512,
    /// 520 bytes.
    B520,
    /// 4048 bytes.
    B4048,
    /// 4096 bytes.
    B4096,
    /// 4160 bytes.
    B4160,
}

impl BlockSize {
    const fn selector(self) -> u8 {
        match self {
            Self::B512 => BLOCK_512,
            Self::B520 => BLOCK_520,
            Self::B4048 => BLOCK_4048,
            Self::B4096 => BLOCK_4096,
            Self::B4160 => BLOCK_4160,
        }
    }
}

/// The kind of a CRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrcKind {
    /// CRC32, 4 bytes.
    Crc32,
    /// CRC32C, 4 bytes.
    Crc32c,
    /// CRC64-XP10, 8 bytes.
    Crc64Xp10,
}

/// The guard of T10-DIF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The CRC of T10.
    Crc,
    /// The IP checksum.
    Checksum,
}

/// The blocks of T10-DIF that are not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    /// No block: all are checked.
    None,
    /// Blocks whose application tag is all ones.
    ApplicationTag,
    /// Blocks whose application and reference tags are all ones.
    BothTags,
}

/// The signature that follows each block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSignature {
    /// A CRC.
    Crc {
        /// Which one.
        kind: CrcKind,
        /// Whether it starts from ones, not from zeroes.
        from_ones: bool,
    },
    /// T10-DIF: guard, application tag, reference tag; 8 bytes.
    T10Dif {
        /// The kind of guard.
        guard: Guard,
        /// Whether the guard starts from ones, not from zeroes.
        from_ones: bool,
        /// Application tag of each block.
        application: u16,
        /// Reference tag of the first block.
        reference: u32,
        /// Whether the reference tag grows by one with each block.
        increment: bool,
        /// Which blocks are not checked.
        escape: Escape,
    },
}

impl BlockSignature {
    /// Returns the start value of the PSV, which [`SetPsv`] sets.
    pub const fn initial(&self) -> u64 {
        match *self {
            Self::Crc { from_ones: false, .. } => 0,
            Self::Crc { kind: CrcKind::Crc64Xp10, .. } => u64::MAX,
            Self::Crc { .. } => 0xffff_ffff << 32,
            Self::T10Dif { from_ones, application, reference, .. } => {
                let guard: u64 = if from_ones { 0xffff } else { 0 };
                guard << 48 | (application as u64) << 32 | reference as u64
            }
        }
    }

    /// Bits 31–24 of the word with the PSV.
    const fn format(&self) -> u32 {
        let Self::Crc { kind, from_ones } = *self else { return 0 };
        let base = match kind {
            CrcKind::Crc32 => BFS_CRC32,
            CrcKind::Crc32c => BFS_CRC32C,
            CrcKind::Crc64Xp10 => BFS_CRC64_XP10,
        };
        let seed = if from_ones { 0 } else { BFS_CRC_SEED_ZERO };
        ((base | BFS_CRC_REPEAT | seed) as u32) << BFS_SHIFT
    }

    fn inline(&self) -> BsfInline {
        let Self::T10Dif { guard, from_ones, application, reference, increment, escape } = *self
        else {
            return BsfInline::default();
        };
        let escape = match escape {
            Escape::None => 0,
            Escape::ApplicationTag => BSF_APPTAG_ESCAPE,
            Escape::BothTags => BSF_APPREF_ESCAPE,
        };
        BsfInline {
            vld_refresh: (BSF_INLINE_VALID | BSF_REFRESH_DIF).into(),
            dif_apptag: application.into(),
            dif_reftag: reference.into(),
            sig_type: match guard {
                Guard::Crc => T10DIF_CRC,
                Guard::Checksum => T10DIF_CHECKSUM,
            },
            rp_inv_seed: BSF_REPEAT_BLOCK | if from_ones { BSF_SEED } else { 0 },
            rsvd: [0; 3],
            dif_inc_ref_guard_check: escape | if increment { BSF_INCREMENT_REFTAG } else { 0 },
            dif_app_bitmask_check: u16::MAX.into(),
        }
    }

    /// Which bytes of a signature are the same in both, if both are of one kind.
    fn common(&self, other: &Self) -> Option<u8> {
        match (*self, *other) {
            (Self::Crc { kind, .. }, Self::Crc { kind: others, .. }) if kind == others => {
                Some(if kind == CrcKind::Crc64Xp10 { 0xff } else { 0xf0 })
            }
            (
                Self::T10Dif { guard, from_ones, application, reference, .. },
                Self::T10Dif {
                    guard: other_guard,
                    from_ones: other_ones,
                    application: other_application,
                    reference: other_reference,
                    ..
                },
            ) => {
                let bytes = |same, mask| if same { mask } else { 0 };
                Some(
                    bytes(guard == other_guard && from_ones == other_ones, 0xc0)
                        | bytes(application == other_application, 0x30)
                        | bytes(reference == other_reference, 0x0f),
                )
            }
            _ => None,
        }
    }
}

/// The signing of data on one side: in memory, or on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignedBlocks {
    /// The signature that follows each block.
    pub signature: BlockSignature,
    /// Size of the blocks.
    pub block: BlockSize,
    /// Index of the PSV that the side uses, 24 bits.
    pub psv: u32,
}

/// The signing of data behind a key, on at least one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// In memory.
    pub memory: Option<SignedBlocks>,
    /// On the wire.
    pub wire: Option<SignedBlocks>,
    /// Bytes of each signature that are checked, the first in bit 7.
    pub check: u8,
}

impl Signature {
    /// The format, as it follows the layout in a request; `encrypted`: that of encryption comes
    /// behind it.
    fn bsf(&self, encrypted: bool) -> Bsf {
        let size = if encrypted { BSF_SIZE_SIGNATURE_AND_CRYPTO } else { BSF_SIZE_INLINE };
        let word = |side: Option<SignedBlocks>| {
            side.map_or(0, |side| side.signature.format() | side.psv & BSF_PSV_MASK)
        };
        let common = match (self.memory, self.wire) {
            (Some(memory), Some(wire)) if memory.block == wire.block => {
                memory.signature.common(&wire.signature)
            }
            _ => None,
        };
        let selector = |side: Option<SignedBlocks>| side.map_or(0, |side| side.block.selector());
        let inline = |side: Option<SignedBlocks>| {
            side.map_or_else(BsfInline::default, |side| side.signature.inline())
        };
        Bsf {
            size_sbs: size << BSF_SIZE_SHIFT | if common.is_some() { BSF_SAME_BLOCKS } else { 0 },
            check_byte_mask: self.check,
            wire: common.unwrap_or_else(|| selector(self.wire)),
            memory: selector(self.memory),
            raw_data_size: u32::MAX.into(),
            wire_bfs_psv: word(self.wire).into(),
            memory_bfs_psv: word(self.memory).into(),
            extended: [0; 16],
            wire_inline: inline(self.wire),
            memory_inline: inline(self.memory),
        }
    }
}

/// The side on which data is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encrypted {
    /// On the wire: memory is plain.
    Wire,
    /// In memory: the wire is plain.
    Memory,
}

/// The encryption of data behind a key: AES-XTS.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Encryption {
    /// The encrypted side.
    pub encrypted: Encrypted,
    /// Whether signatures cover the encrypted data, not the plain data.
    pub signs_encrypted: bool,
    /// Size of the units.
    pub unit: BlockSize,
    /// Tweak of the first unit, as the HCA takes it.
    pub tweak: [u8; 16],
    /// Number of the data encryption key, 24 bits.
    pub dek: u32,
    /// The tag that the encryption key must have.
    pub keytag: [u8; 8],
}

impl core::fmt::Debug for Encryption {
    /// Omits the tag, which is a secret.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Encryption")
            .field("encrypted", &self.encrypted)
            .field("unit", &self.unit)
            .field("dek", &self.dek)
            .finish_non_exhaustive()
    }
}

impl Encryption {
    fn bsf(&self, signed: bool) -> CryptoBsf {
        let size = if signed { BSF_SIZE_SIGNATURE_AND_CRYPTO } else { BSF_SIZE_INLINE };
        CryptoBsf {
            size_type: size << BSF_SIZE_SHIFT | BSF_TYPE_CRYPTO,
            enc_order: match (self.encrypted, self.signs_encrypted) {
                (Encrypted::Wire, false) => ENCRYPTED_WIRE_SIGNATURE,
                (Encrypted::Wire, true) => ENCRYPTED_RAW_WIRE,
                (Encrypted::Memory, false) => ENCRYPTED_MEMORY_SIGNATURE,
                (Encrypted::Memory, true) => ENCRYPTED_RAW_MEMORY,
            },
            rsvd0: 0,
            enc_standard: ENCRYPTION_AES_XTS,
            raw_data_size: u32::MAX.into(),
            block_size: self.unit.selector(),
            rsvd1: [0; 7],
            initial_tweak: self.tweak,
            dek: (self.dek & 0xff_ffff).into(),
            rsvd2: [0; 4],
            keytag: self.keytag,
            rsvd3: [0; 16],
        }
    }
}

/// A layout with the protection of its data: signed, encrypted, or both.
#[derive(Clone, Copy, Debug)]
pub struct Protected<L> {
    pub(super) layout: L,
    signature: Option<Signature>,
    encryption: Option<Encryption>,
    /// Parity of the signature errors that the key has met so far, if it is to be set.
    errors: Option<bool>,
}

impl<L> Protected<L> {
    /// Signs the data. `errors`: parity of the errors that were reported for the key so far. The
    /// first configuration sets it, to `true`, and those after an error set it again.
    pub const fn signed(layout: L, signature: Signature, errors: Option<bool>) -> Self {
        Self { layout, signature: Some(signature), encryption: None, errors }
    }

    /// Encrypts the data.
    pub const fn encrypted(layout: L, encryption: Encryption) -> Self {
        Self { layout, signature: None, encryption: Some(encryption), errors: None }
    }

    /// Encrypts the data as well.
    pub const fn and_encrypted(mut self, encryption: Encryption) -> Self {
        self.encryption = Some(encryption);
        self
    }

    pub(super) const fn errors(&self) -> Option<bool> {
        self.errors
    }

    /// 16-byte units of the formats.
    pub(super) const fn formats_ds(&self) -> u32 {
        4 * (self.signature.is_some() as u32 + self.encryption.is_some() as u32)
    }

    /// Writes the formats.
    ///
    /// # Safety
    /// There is space for [`formats_ds`](Self::formats_ds) segments.
    pub(super) unsafe fn put_formats<W: Segments>(&self, writer: &mut W) {
        if let Some(signature) = &self.signature {
            let bsf: [Segment; 4] = zerocopy::transmute!(signature.bsf(self.encryption.is_some()));
            // SAFETY: `formats_ds` counts these.
            bsf.into_iter().for_each(|segment| unsafe { writer.put(segment) });
        }
        if let Some(encryption) = &self.encryption {
            let bsf: [Segment; 4] = zerocopy::transmute!(encryption.bsf(self.signature.is_some()));
            // SAFETY: `formats_ds` counts these four as well.
            bsf.into_iter().for_each(|segment| unsafe { writer.put(segment) });
        }
    }
}

/// Sets the start value of a PSV. Needed for each side, after a key was configured with
/// [`Protected::signed`]. The request after it waits for it.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct SetPsv {
    index: u32,
    value: u64,
    flags: u8,
}

impl SetPsv {
    /// Sets the PSV of that index to the [start value](BlockSignature::initial) of these blocks.
    pub const fn new(blocks: &SignedBlocks) -> Self {
        Self { index: blocks.psv & BSF_PSV_MASK, value: blocks.signature.initial(), flags: 0 }
    }

    setters!(signaled);
}

impl Operation for SetPsv {
    const OPCODE: u8 = opcode::SET_PSV;
}

impl Encode for SetPsv {
    #[inline(always)]
    fn body_ds(&self) -> u32 {
        1
    }

    #[inline(always)]
    fn check(&self, _: &Limits) -> Result<(), EncodeError> {
        Ok(())
    }

    #[inline(always)]
    fn flags(&self) -> u8 {
        self.flags
    }

    #[inline(always)]
    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        let segment: Segment = zerocopy::transmute!(PsvSeg {
            psv_index: self.index.into(),
            syndrome: 0.into(),
            reserved: 0.into(),
            transient_signature: self.value.into(),
        });
        // SAFETY: `body_ds` counts it.
        unsafe { writer.put(segment) }
    }
}

impl PostOn<Rc> for SetPsv {}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::super::{ConfigureKey, Linear, Sge};
    use super::*;
    use crate::ib::Access;

    const CRC: BlockSignature = BlockSignature::Crc { kind: CrcKind::Crc32, from_ones: true };
    const DIF: BlockSignature = BlockSignature::T10Dif {
        guard: Guard::Crc,
        from_ones: true,
        application: 0xabcd,
        reference: 0x0123_4567,
        increment: true,
        escape: Escape::BothTags,
    };

    fn side(signature: BlockSignature, psv: u32) -> Option<SignedBlocks> {
        Some(SignedBlocks { signature, block: BlockSize::B512, psv })
    }

    /// rdma-core `providers/mlx5/qp.c` (`mlx5_umr_fill_sig_bsf`) and Linux
    /// `drivers/infiniband/hw/mlx5/wr.c` (`mlx5_set_bsf`) write these bytes.
    #[test]
    fn a_signature_is_laid_out_as_rdma_core_and_linux_have_it() {
        let wire = Signature { memory: None, wire: side(DIF, 0x12_3456), check: 0xff };
        let bytes = wire.bsf(false);
        let mut expected = vec![0x80, 0xff, 1, 0, 0xff, 0xff, 0xff, 0xff];
        expected.extend([0, 0x12, 0x34, 0x56, 0, 0, 0, 0]);
        expected.extend([0; 16]);
        expected.extend([0xc0, 0, 0xab, 0xcd, 1, 0x23, 0x45, 0x67]);
        expected.extend([1, 0x88, 0, 0, 0, 0x42, 0xff, 0xff]);
        expected.extend([0; 16]);
        assert_eq!(bytes.as_bytes(), expected);

        let memory = Signature { memory: side(CRC, 7), wire: None, check: 0xf0 };
        let mut expected = vec![0x80, 0xf0, 0, 1, 0xff, 0xff, 0xff, 0xff];
        expected.extend([0, 0, 0, 0, 0x22, 0, 0, 7]);
        expected.extend([0; 48]);
        assert_eq!(memory.bsf(false).as_bytes(), expected);

        // Both sides alike: signatures are copied, and blocks of the wire are memory's.
        let both = Signature { memory: side(CRC, 7), wire: side(CRC, 8), check: 0 };
        assert_eq!(both.bsf(true).as_bytes()[..4], [0xd0, 0, 0xf0, 1]);
        let zeroes = BlockSignature::Crc { kind: CrcKind::Crc64Xp10, from_ones: false };
        let other = Signature { wire: side(zeroes, 9), ..both };
        assert_eq!(other.bsf(false).as_bytes()[..4], [0x80, 0, 1, 1]);
        assert_eq!(other.bsf(false).as_bytes()[8..12], [0x53, 0, 0, 9]);
        let apart = BlockSignature::T10Dif {
            guard: Guard::Checksum,
            from_ones: false,
            application: 0xabcd,
            reference: 1,
            increment: false,
            escape: Escape::ApplicationTag,
        };
        let mixed = Signature { memory: side(DIF, 1), wire: side(apart, 2), check: 0xff };
        let bytes = mixed.bsf(false);
        assert_eq!(bytes.as_bytes()[..4], [0x90, 0xff, 0x30, 1]);
        assert_eq!(bytes.as_bytes()[40..48], [2, 0x80, 0, 0, 0, 1, 0xff, 0xff]);
    }

    /// rdma-core `providers/mlx5/qp.c` (`mlx5_umr_fill_crypto_bsf`) and SPDK `lib/mlx5/mlx5_umr.c`
    /// (`mlx5_set_umr_crypto_bsf_seg`) write these bytes.
    #[test]
    fn encryption_is_laid_out_as_rdma_core_and_spdk_have_it() {
        let encryption = Encryption {
            encrypted: Encrypted::Memory,
            signs_encrypted: true,
            unit: BlockSize::B4096,
            tweak: *b"0123456789abcdef",
            dek: 0x55_1234,
            keytag: *b"keytag!!",
        };
        let mut expected = vec![0x81, 3, 0, 0, 0xff, 0xff, 0xff, 0xff, 3, 0, 0, 0, 0, 0, 0, 0];
        expected.extend(b"0123456789abcdef");
        expected.extend([0, 0x55, 0x12, 0x34, 0, 0, 0, 0]);
        expected.extend(b"keytag!!");
        expected.extend([0; 16]);
        assert_eq!(encryption.bsf(false).as_bytes(), expected);
        assert_eq!(encryption.bsf(true).as_bytes()[0], 0xc1);
        assert!(!format!("{encryption:?}").contains("keytag"));
    }

    /// Expects the bytes of `mlx5_umr_set_psv` in rdma-core's `qp.c` and of `set_psv_wr` in Linux's
    /// `wr.c`.
    #[test]
    fn a_psv_starts_from_what_its_blocks_do() {
        let put = |blocks: Option<SignedBlocks>| {
            let mut bytes = [[0u64; 2]; 1];
            // SAFETY: room for the segment.
            unsafe {
                let mut writer = Linear::new((&raw mut bytes).cast());
                SetPsv::new(&blocks.unwrap()).put(&mut writer);
            }
            bytes.as_bytes().to_vec()
        };
        let dif = [0, 0x12, 0x34, 0x56, 0, 0, 0, 0, 0xff, 0xff, 0xab, 0xcd, 1, 0x23, 0x45, 0x67];
        assert_eq!(put(side(DIF, 0xff12_3456)), dif);
        let crc = [0, 0, 0, 9, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
        assert_eq!(put(side(CRC, 9)), crc);
        let wide = BlockSignature::Crc { kind: CrcKind::Crc64Xp10, from_ones: true };
        assert_eq!(wide.initial(), u64::MAX);
    }

    #[test]
    fn formats_follow_the_layout_and_the_context_says_so() {
        let signature = Signature { memory: side(CRC, 7), wire: None, check: 0xf0 };
        let layout = Protected::signed([Sge::new(0x1000, 516, 0x99)], signature, Some(true));
        let request = ConfigureKey::new(0x55_00).access(Access::LOCAL_WRITE).layout(layout);
        assert_eq!(request.body_ds(), 7 + 4 + 4);
        let mut bytes = [[0u64; 2]; 15];
        // SAFETY: room for all of it.
        unsafe { request.put(&mut Linear::new((&raw mut bytes).cast())) };
        let bytes = bytes.as_bytes();
        // Inline, four units of each, and the mask: length, errors, format, key, rights, free.
        assert_eq!(bytes[..8], [0x80, 0, 0, 0, 0, 4, 0, 4]);
        let mask = 1u64 | 1 << 9 | 1 << 12 | 1 << 13 | 0xf << 18 | 1 << 29;
        assert_eq!(bytes[8..16], mask.to_be_bytes());
        assert_eq!(bytes[48 + 12..48 + 16], (1u32 << 30 | 1 << 26).to_be_bytes());
        assert_eq!(bytes[48 + 24..48 + 32], 516u64.to_be_bytes());
        assert_eq!(&bytes[112 + 64..], signature.bsf(false).as_bytes());
    }
}
