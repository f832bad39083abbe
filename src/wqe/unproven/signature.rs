//! Signatures of data behind a key, and the start values of their PSVs.

use mlx5_sys::wqe::{
    BFS_CRC_REPEAT, BFS_CRC_SEED_ZERO, BFS_CRC32, BFS_CRC32C, BFS_CRC64_XP10, BFS_SHIFT, BLOCK_512,
    BLOCK_520, BLOCK_4048, BLOCK_4096, BLOCK_4160, BSF_APPREF_ESCAPE, BSF_APPTAG_ESCAPE,
    BSF_INCREMENT_REFTAG, BSF_INLINE_VALID, BSF_PSV_MASK, BSF_REFRESH_DIF, BSF_REPEAT_BLOCK,
    BSF_SAME_BLOCKS, BSF_SEED, BSF_SIZE_INLINE, BSF_SIZE_SHIFT, BSF_SIZE_SIGNATURE_AND_CRYPTO, Bsf,
    BsfInline, PsvSeg, T10DIF_CHECKSUM, T10DIF_CRC,
};

use crate::ib::Rc;
use crate::wqe::encode::setters;
use crate::wqe::{PostOn, Segment};

/// Size of the blocks that are signed, or of the units that are encrypted, without signature.
///
/// See the example on [`Signature`].
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
    pub(super) const fn selector(self) -> u8 {
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
///
/// See the example on [`Signature`].
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
///
/// See the example on [`BlockSignature`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The CRC of T10.
    Crc,
    /// The IP checksum.
    Checksum,
}

/// The blocks of T10-DIF that are not checked.
///
/// See the example on [`BlockSignature`].
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
///
/// ```
/// use mlx5::wqe::unproven::{BlockSignature, Escape, Guard};
///
/// // T10-DIF with a reference tag that each block increments.
/// let dif = BlockSignature::T10Dif {
///     guard: Guard::Crc,
///     from_ones: false,
///     application: 0x1234,
///     reference: 0,
///     increment: true,
///     escape: Escape::ApplicationTag,
/// };
/// assert_eq!(dif.initial(), 0x1234 << 32); // what `SetPsv` sets
/// ```
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
///
/// See the example on [`Signature`].
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
///
/// ```
/// use mlx5::wqe::Sge;
/// use mlx5::wqe::unproven::{
///     BlockSignature, BlockSize, CrcKind, Protected, SetPsv, Signature, SignedBlocks,
/// };
///
/// // Behind each 512 bytes of memory is a CRC32C, which the HCA checks and strips.
/// let crc = BlockSignature::Crc { kind: CrcKind::Crc32c, from_ones: true };
/// let blocks = SignedBlocks { signature: crc, block: BlockSize::B512, psv: 0x123 };
/// let signature = Signature { memory: Some(blocks), wire: None, check: 0xf0 };
/// // The layout of a `ConfigureKey`. The PSV is set behind it.
/// let layout = Protected::signed([Sge::new(0x1000, 516, 1)], signature, Some(true));
/// let start = SetPsv::new(&blocks).signaled();
/// assert_eq!(crc.initial(), 0xffff_ffff << 32);
/// ```
#[doc(alias = "mlx5dv_sig_block_attr")]
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
    pub(super) fn bsf(&self, encrypted: bool) -> Bsf {
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

/// Sets the start value of a PSV. Needed for each side, after a key was configured with
/// [`Protected::signed`](super::Protected::signed). The request after it waits for it.
///
/// See the example on [`Signature`].
#[doc(alias = "MLX5_OPCODE_SET_PSV")]
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

    #[inline(always)]
    fn segment(&self) -> Segment {
        zerocopy::transmute!(PsvSeg {
            psv_index: self.index.into(),
            syndrome: 0.into(),
            reserved: 0.into(),
            transient_signature: self.value.into(),
        })
    }
}

one_segment!(SetPsv, SET_PSV);

impl PostOn<Rc> for SetPsv {}

#[cfg(test)]
mod tests;
