//! WQEs given as bytes.

use core::fmt;

use mlx5_sys::wqe::{CE_ALWAYS, CtrlSeg, MAX_DS, SEGMENT_SIZE, opcode};
use zerocopy::FromBytes;

use super::{Code, Encode, Limits, Operation, Segments};
use crate::wqe::PostError;

/// A WQE as bytes, for operations that this crate has no type for.
///
/// ```
/// # let rig::Link { mut reader, mut sends, .. } = rig::link()?;
/// use mlx5::expert::RawWqe;
///
/// // A NOP: a ctrl segment with a size of one segment. The post fills index and QP number in.
/// let mut bytes = [0; 16];
/// bytes[7] = 1;
/// // SAFETY: every queue pair executes a NOP, which names no memory.
/// let nop = unsafe { RawWqe::new(&bytes)?.signaled() };
/// // SAFETY: the request names no memory.
/// unsafe { sends.post(1, nop)? };
/// # assert!(matches!(rig::poll(&mut reader, &mut sends)?, mlx5::cqe::Completion::Send(_)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "mlx5dv_wr_raw_wqe")]
#[derive(Clone, Copy)]
#[must_use]
pub struct RawWqe<'a> {
    ctrl: CtrlSeg,
    body: &'a [u8],
    signaled: bool,
}

impl<'a> RawWqe<'a> {
    /// Creates a WQE from `bytes`: a ctrl segment, then its other segments, as they will be in the
    /// ring. When it is posted, index and queue pair number of the ctrl segment are filled in. Its
    /// other fields are posted unchanged, including the request for a completion. The bytes are
    /// copied then, so they may change afterwards.
    ///
    /// Its completion names the opcode ([`SendOperation`](crate::cqe::SendOperation)). If it is a
    /// READ or an atomic, its data segments must be where those of [`RdmaRead`](super::RdmaRead),
    /// [`CompareSwap`](super::CompareSwap), … are.
    ///
    /// # Errors
    /// [`PostError::WqeLength`], [`PostError::WqeSize`].
    ///
    /// # Safety
    /// - The WQE is one that queue pairs of the transport it is posted on execute.
    /// - Every post of it upholds the contract of [`Batch::ring`](crate::ring::Batch::ring) for all
    ///   memory that it names.
    /// - The caller answers for its effects on memory keys and on other queues.
    pub unsafe fn new(bytes: &'a [u8]) -> Result<Self, PostError> {
        let (ctrl, body) = CtrlSeg::read_from_prefix(bytes).map_err(|_| PostError::WqeLength)?;
        if bytes.len() % SEGMENT_SIZE != 0 || bytes.len() > MAX_DS * SEGMENT_SIZE {
            return Err(PostError::WqeLength);
        }
        if (ctrl.qpn_ds.get() & 0x3f) as usize * SEGMENT_SIZE != bytes.len() {
            return Err(PostError::WqeSize);
        }
        Ok(Self { ctrl, body, signaled: false })
    }

    /// Requests a completion, even if the bytes do not.
    pub const fn signaled(mut self) -> Self {
        self.signaled = true;
        self
    }
}

impl fmt::Debug for RawWqe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Code { opcode, modifier, .. } = self.code();
        f.debug_struct("RawWqe")
            .field("opcode", &format_args!("{opcode:#04x}"))
            .field("modifier", &modifier)
            .field("ds", &(1 + self.body_ds()))
            .finish()
    }
}

impl Operation for RawWqe<'_> {
    /// No opcode in particular: the WQE has its own.
    const OPCODE: u8 = opcode::NOP;

    #[inline(always)]
    fn code(&self) -> Code {
        let first = self.ctrl.opmod_idx_opcode.get();
        let stream =
            u32::from(self.ctrl.signature) << 16 | u32::from(self.ctrl.dci_stream_channel_id.get());
        Code { stream, ..Code::modified(first as u8, (first >> 24) as u8) }
    }
}

impl Encode for RawWqe<'_> {
    #[inline(always)]
    fn body_ds(&self) -> u32 {
        (self.body.len() / SEGMENT_SIZE) as u32
    }

    #[inline(always)]
    fn check(&self, _: &Limits) -> Result<(), PostError> {
        Ok(())
    }

    #[inline(always)]
    fn flags(&self) -> u8 {
        self.ctrl.fm_ce_se | if self.signaled { CE_ALWAYS } else { 0 }
    }

    #[inline(always)]
    fn immediate(&self) -> u32 {
        self.ctrl.imm.get()
    }

    #[inline(always)]
    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        for segment in self.body.chunks_exact(SEGMENT_SIZE) {
            let (first, second) = segment.split_at(8);
            let word = |half: &[u8]| half.try_into().map_or(0, u64::from_ne_bytes);
            // SAFETY: these are the segments that `body_ds` counts.
            unsafe { writer.put([word(first), word(second)]) }
        }
    }
}
