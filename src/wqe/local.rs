//! Copies that the HCA does by itself.

use mlx5_sys::wqe::opcode;

use super::encode::setters;
use super::{Code, Encode, Limits, Operation, Segments, Sge, Word, data_segment};
use crate::wqe::PostError;

/// DMA memcpy (MMO): a copy from memory to memory by the HCA.
///
/// The HCA's capabilities state whether it supports it, and how long a copy may be
/// (`mlx5dv_context::max_wr_memcpy_length`). If the HCA requires it, the queue pair must be created
/// for it: by `mlx5dv_create_qp` with `MLX5DV_QP_EX_WITH_MEMCPY`.
///
/// ```
/// use mlx5::wqe::{DmaMemcpy, Sge, Word};
///
/// // 4096 bytes from one region to another, by the HCA. It needs 64 bytes for notes.
/// let (from, to) = (Sge::new(0x1000, 4096, 1), Word::new(0x8000, 2));
/// let notes = Word::new(0x4000, 3);
/// let copy = DmaMemcpy::new(from, to, notes).signaled();
/// assert_eq!(notes.addr % DmaMemcpy::NOTES as u64, 0);
/// ```
#[doc(alias("mlx5dv_wr_memcpy", "MLX5_OPCODE_MMO"))]
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct DmaMemcpy {
    from: Sge,
    to: Word,
    notes: Word,
    flags: u8,
}

impl DmaMemcpy {
    /// Size of the memory for the HCA's notes, in bytes.
    pub const NOTES: usize = 64;

    /// Copies `from` to as many bytes at `to`: at least one, at most 2^31. During the copy, the HCA
    /// keeps [`NOTES`](Self::NOTES) bytes of notes at `notes`, aligned to that size. All copies of
    /// a protection domain may share them. It writes `to` and `notes`: from the post until the
    /// request is retired, nothing else reads or writes either.
    pub const fn new(from: Sge, to: Word, notes: Word) -> Self {
        Self { from, to, notes, flags: 0 }
    }

    setters!(signaled);
}

impl Operation for DmaMemcpy {
    const OPCODE: u8 = opcode::MMO;

    #[inline(always)]
    fn code(&self) -> Code {
        Code::modified(Self::OPCODE, opcode::OPMOD_MMO_DMA)
    }
}

impl Encode for DmaMemcpy {
    #[inline(always)]
    fn body_ds(&self) -> u32 {
        3
    }

    #[inline(always)]
    fn check(&self, _: &Limits) -> Result<(), PostError> {
        match self.from.length {
            0 => Err(PostError::NothingToCopy),
            1..=0x8000_0000 => Ok(()),
            bytes => Err(PostError::SgeTooLong { bytes }),
        }
    }

    #[inline(always)]
    fn flags(&self) -> u8 {
        self.flags
    }

    #[inline(always)]
    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        let Self { from, to, notes, .. } = *self;
        // The first one's count is a field of its own, which is 0 (`mlx5_mmo_metadata_seg`).
        let notes = Sge { addr: notes.addr, length: 0, lkey: notes.lkey };
        // SAFETY: these are the three segments that `body_ds` counts.
        unsafe {
            writer.put(data_segment(&notes));
            writer.put(data_segment(&from));
            writer.put(data_segment(&Sge { addr: to.addr, length: from.length, lkey: to.lkey }));
        }
    }
}
