//! The completions that a poll returns.

use core::fmt;

use mlx5_sys::cqe::opcode as cqe_opcode;
use mlx5_sys::wqe::opcode;

use super::{CqeRef, QueueKind, Status};
use crate::ib::debug_as_display;

/// The result of one CQE.
///
/// ```
/// # let rig::Link { memory: _m, mut reader, mut sends, mut receives, sge, .. } = rig::link()?;
/// use mlx5::cqe::{Completion, ReceiveKind, SendOperation};
/// use mlx5::wqe::{Inline, SendImm};
///
/// // SAFETY: the payload is copied. The receive's memory is read after its completion.
/// unsafe {
///     receives.post(1, sge)?;
///     sends.post(2, SendImm::new(Inline(b"hello"), 42).signaled())?;
/// }
/// let mut open = 2;
/// while open > 0 {
///     let Some(completion) = reader.poll(&mut (&mut sends, &mut receives))? else { continue };
///     open -= 1;
///     match completion {
///         Completion::Send(done) => assert_eq!(done.operation, SendOperation::SendImm),
///         Completion::Receive(done) => assert_eq!(done.kind, ReceiveKind::SendImm(42)),
///         Completion::Failed(failure) => return Err(failure.into()),
///         Completion::UnexpectedCqe(cqe) => return Err(format!("{cqe:?}").into()),
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_wc")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a completion says which request is done, or that one failed"]
pub enum Completion {
    /// A request of a send queue is done, and with it the unsignaled ones before it.
    Send(SendDone),
    /// A receive is done.
    Receive(ReceiveDone),
    /// A request failed, or was flushed because an earlier one had failed.
    Failed(Failure),
    /// A CQE that no live queue of the CQ can take. It is of a queue that was dropped or that this
    /// crate does not drive, or it contradicts its queue's state. It is consumed from the CQ; this
    /// variant holds all of it. A CQE of a live queue that the poll was not given stays in the CQ,
    /// see [`PollError::QueueNotGiven`](crate::ring::PollError::QueueNotGiven).
    UnexpectedCqe(UnexpectedCqe),
}

/// A request of a send queue is done.
///
/// See the example on [`Completion`].
#[doc(alias = "ibv_wc")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendDone {
    /// The id that the request was posted with.
    pub id: u64,
    /// Number of the queue pair.
    pub qpn: u32,
    /// The operation that was requested.
    pub operation: SendOperation,
    /// READ: bytes fetched. Atomics: 8, or the operand size of a masked atomic. Otherwise 0.
    pub byte_len: u32,
}

/// An operation of a send queue.
///
/// See the example on [`Completion`].
#[doc(alias = "ibv_wc_opcode")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendOperation {
    /// NOP.
    Nop,
    /// SEND.
    #[doc(alias = "IBV_WC_SEND")]
    Send,
    /// SEND with immediate.
    SendImm,
    /// RDMA WRITE.
    #[doc(alias = "IBV_WC_RDMA_WRITE")]
    Write,
    /// RDMA WRITE with immediate.
    WriteImm,
    /// RDMA READ.
    #[doc(alias = "IBV_WC_RDMA_READ")]
    Read,
    /// Atomic compare and swap.
    #[doc(alias = "IBV_WC_COMP_SWAP")]
    CompareSwap,
    /// Atomic fetch and add.
    #[doc(alias = "IBV_WC_FETCH_ADD")]
    FetchAdd,
    /// Masked atomic compare and swap.
    MaskedCompareSwap,
    /// Masked atomic fetch and add.
    MaskedFetchAdd,
    /// DMA memcpy (MMO): a copy by the HCA.
    DmaMemcpy,
    /// WAIT: waits for completions of a CQ, or for a time.
    Wait,
    /// SEND_ENABLE: lets another send queue run.
    SendEnable,
    /// SEND with invalidate.
    SendInvalidate,
    /// UMR: a memory window was bound, or a key configured or invalidated.
    #[doc(alias = "IBV_WC_BIND_MW")]
    Umr,
    /// SET_PSV: a signature's starting value was set.
    SetPsv,
    /// TSO: a large send of Ethernet.
    #[doc(alias = "IBV_WC_TSO")]
    LargeSend,
    /// Several Ethernet packets.
    MultiPacket,
    /// DUMP: memory was read and not sent.
    Dump,
    /// An opcode that this crate does not post.
    Other(u8),
}

impl SendOperation {
    /// Returns the operation of an opcode less than 64, by table.
    #[inline(always)]
    pub(crate) fn from_small_opcode(code: u8) -> Self {
        const OPERATIONS: [SendOperation; 64] = {
            let mut operations = [SendOperation::Nop; 64];
            let mut code = 0;
            while code < 64 {
                operations[code] = SendOperation::from_opcode(code as u8);
                code += 1;
            }
            operations
        };
        static TABLE: [SendOperation; 64] = OPERATIONS;
        TABLE[usize::from(code & 63)]
    }

    /// Returns the operation of a WQE's opcode.
    #[inline]
    pub const fn from_opcode(code: u8) -> Self {
        match code {
            opcode::NOP => Self::Nop,
            opcode::SEND => Self::Send,
            opcode::SEND_IMM => Self::SendImm,
            opcode::RDMA_WRITE => Self::Write,
            opcode::RDMA_WRITE_IMM => Self::WriteImm,
            opcode::RDMA_READ => Self::Read,
            opcode::ATOMIC_CS => Self::CompareSwap,
            opcode::ATOMIC_FA => Self::FetchAdd,
            opcode::ATOMIC_MASKED_CS => Self::MaskedCompareSwap,
            opcode::ATOMIC_MASKED_FA => Self::MaskedFetchAdd,
            opcode::MMO => Self::DmaMemcpy,
            opcode::WAIT => Self::Wait,
            opcode::SEND_EN => Self::SendEnable,
            opcode::SEND_INVAL => Self::SendInvalidate,
            opcode::UMR => Self::Umr,
            opcode::SET_PSV => Self::SetPsv,
            opcode::TSO => Self::LargeSend,
            opcode::ENHANCED_MPSW => Self::MultiPacket,
            opcode::DUMP => Self::Dump,
            other => Self::Other(other),
        }
    }
}

/// A receive is done.
///
/// See the example on [`Completion`]. For datagrams see [`DatagramHeader`](super::DatagramHeader).
#[doc(alias = "ibv_wc")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiveDone {
    /// The id that the receive was posted with.
    pub id: u64,
    /// Number of the queue pair.
    pub qpn: u32,
    /// The kind of message that arrived.
    pub kind: ReceiveKind,
    /// Length of the message in bytes. WRITE with immediate: number of bytes written.
    #[doc(alias = "ibv_wc_read_byte_len")]
    pub byte_len: u32,
    /// Number of the peer's queue pair, if the transport reports it (RC: 0).
    #[doc(alias = "ibv_wc_read_src_qp")]
    pub src_qp: u32,
    /// Source LID.
    #[doc(alias = "ibv_wc_read_slid")]
    pub slid: u16,
    /// Service level.
    #[doc(alias = "ibv_wc_read_sl")]
    pub sl: u8,
    /// Path bits of the destination LID.
    #[doc(alias = "ibv_wc_read_dlid_path_bits")]
    pub dlid_path_bits: u8,
    /// Whether the message had a global route header.
    #[doc(alias = "IBV_WC_GRH")]
    pub grh: bool,
    /// Whether the peer asked for a solicited event.
    pub solicited: bool,
}

impl ReceiveDone {
    #[inline(always)]
    pub(crate) fn decode(id: u64, qpn: u32, cqe: &CqeRef<'_>, kind: ReceiveKind) -> Self {
        let flags_rqpn = cqe.flags_rqpn();
        Self {
            id,
            qpn,
            kind,
            byte_len: cqe.byte_count(),
            src_qp: flags_rqpn & 0xff_ffff,
            slid: cqe.slid(),
            sl: (flags_rqpn >> 24) as u8 & 0xf,
            dlid_path_bits: cqe.ml_path() & 0x7f,
            grh: flags_rqpn >> 28 & 3 != 0,
            solicited: cqe.solicited(),
        }
    }
}

/// The kind of message that completed a receive.
///
/// See the example on [`Completion`].
#[doc(alias("ibv_wc_opcode", "IBV_WC_RECV"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveKind {
    /// A SEND.
    Send,
    /// A SEND with immediate data.
    #[doc(alias("IBV_WC_WITH_IMM", "ibv_wc_read_imm_data"))]
    SendImm(u32),
    /// A SEND that invalidated this remote key.
    #[doc(alias("IBV_WC_WITH_INV", "ibv_wc_read_invalidated_rkey"))]
    SendInvalidate(u32),
    /// A WRITE with immediate data. The payload is where the peer wrote it, not in the receive's
    /// memory.
    #[doc(alias = "IBV_WC_RECV_RDMA_WITH_IMM")]
    WriteImm(u32),
}

impl ReceiveKind {
    /// Decodes a responder's CQE. `None` for other CQEs.
    pub(crate) fn decode(cqe: &CqeRef<'_>) -> Option<Self> {
        let code = cqe.opcode();
        let success = matches!(
            code,
            cqe_opcode::RESP_SEND
                | cqe_opcode::RESP_SEND_IMM
                | cqe_opcode::RESP_SEND_INV
                | cqe_opcode::RESP_WR_IMM
        );
        success.then(|| Self::success(code, cqe))
    }

    /// Decodes a responder's successful CQE with this opcode.
    #[inline(always)]
    pub(crate) fn success(opcode: u8, cqe: &CqeRef<'_>) -> Self {
        // Read for every opcode, so that only one word depends on the opcode.
        let immediate = cqe.immediate();
        match opcode {
            cqe_opcode::RESP_SEND => Self::Send,
            cqe_opcode::RESP_SEND_IMM => Self::SendImm(immediate),
            cqe_opcode::RESP_SEND_INV => Self::SendInvalidate(immediate),
            _ => Self::WriteImm(immediate),
        }
    }
}

/// A request failed.
///
/// ```
/// # let rig::Link { mut reader, mut sends, remote, .. } = rig::link()?;
/// use mlx5::cqe::{Completion, Status};
/// use mlx5::wqe::{RdmaWrite, Sge};
///
/// // A key that no region has.
/// let nowhere = Sge::new(0x1000, 8, 0xdead);
/// // SAFETY: the HCA reads no memory by this key.
/// unsafe { sends.post(7, RdmaWrite::new(nowhere, remote).signaled())? };
/// let failure = loop {
///     if let Some(Completion::Failed(failure)) = reader.poll(&mut sends)? {
///         break failure;
///     }
/// };
/// assert_eq!((failure.id, failure.status), (7, Status::LocalProtection));
/// assert!(failure.to_string().contains("IBV_WC_LOC_PROT_ERR")); // and usual causes
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_wc")]
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The id that the request was posted with.
    pub id: u64,
    /// Number of the queue pair.
    pub qpn: u32,
    /// The queue that the request was posted to.
    pub queue: QueueKind,
    /// The cause of the failure.
    pub status: Status,
    /// Vendor syndrome: the vendor's own code for the cause. 0 if the HCA gave none.
    #[doc(alias = "ibv_wc_read_vendor_err")]
    pub vendor_error: u8,
    /// Index of the WQE as the CQE names it: low 16 bits, in 64-byte blocks for a send queue.
    pub wqe_index: u16,
    /// Send queue: opcode of the WQE.
    pub opcode: u8,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, qpn, status, vendor_error, wqe_index, .. } = self;
        match self.queue {
            QueueKind::Send => {
                let name = opcode::name(self.opcode).unwrap_or("unknown opcode");
                write!(f, "{name} with id {id:#x} of QP {qpn:#x} (WQE index {wqe_index:#06x})")?;
            }
            QueueKind::Receive => {
                write!(f, "receive with id {id:#x} of QP {qpn:#x} (WQE index {wqe_index:#06x})")?;
            }
        }
        write!(f, " failed: {status}, vendor code {vendor_error:#04x}. {}", status.explanation())
    }
}

debug_as_display!(Failure);

impl std::error::Error for Failure {}

/// A CQE that none of the queues given to the poll could take.
///
/// ```
/// # use mlx5::cqe::{UnexpectedCqe, UnexpectedCqeReason};
/// /// Ignores what still comes for queues that the program has dropped.
/// fn check(cqe: UnexpectedCqe) -> Result<(), String> {
///     match cqe.reason {
///         UnexpectedCqeReason::UnknownQueue => Ok(()),
///         _ => Err(format!("QP {:#x}: {cqe:?}", cqe.qpn)),
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UnexpectedCqe {
    /// Why no queue could take it.
    pub reason: UnexpectedCqeReason,
    /// Number of the queue pair that the CQE names.
    pub qpn: u32,
    /// Opcode of the CQE (`mlx5dv.h`, `MLX5_CQE_*`).
    pub opcode: u8,
    /// The CQE's 64 bytes; `text::Cqe` shows them.
    pub bytes: [u8; 64],
}

impl UnexpectedCqe {
    #[cold]
    pub(crate) fn new(reason: UnexpectedCqeReason, cqe: &CqeRef<'_>) -> Self {
        let reason = match reason {
            // Tag-matching CQEs: no poll looks up their queue.
            UnexpectedCqeReason::UnknownQueue | UnexpectedCqeReason::UnknownOpcode
                if cqe.is_tagged() =>
            {
                UnexpectedCqeReason::TagMatching
            }
            other => other,
        };
        Self::tagged(reason, cqe)
    }

    /// Creates the value with `reason` as given, also for tag-matching CQEs.
    #[cold]
    pub(crate) fn tagged(reason: UnexpectedCqeReason, cqe: &CqeRef<'_>) -> Self {
        Self { reason, qpn: cqe.qpn(), opcode: cqe.opcode(), bytes: cqe.bytes() }
    }
}

impl fmt::Debug for UnexpectedCqe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reason, qpn, .. } = self;
        write!(f, "UnexpectedCqe({reason:?}, QP {qpn:#x}, {})", mlx5_diag::text::Cqe(&self.bytes))
    }
}

/// Why a CQE could not be given to a queue.
///
/// See the example on [`UnexpectedCqe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnexpectedCqeReason {
    /// It names a queue pair that the poll was not given, or whose queue completes on another CQ.
    UnknownQueue,
    /// It names a WQE that is not outstanding in its queue.
    NotOutstanding,
    /// It names a WQE of a receive queue that is not the oldest outstanding one. Receives complete
    /// in order, so the CQE of the oldest was lost. Nothing is retired, and the queue keeps all its
    /// receives: reset the QP, and restart the queue.
    NotOldest {
        /// Index of the oldest outstanding WQE: low 16 bits.
        oldest: u16,
        /// Index in the CQE.
        named: u16,
    },
    /// Its opcode is one that this reader does not know.
    UnknownOpcode,
    /// It is of a tag-matching queue. [`TmSrq::poll`](crate::expert::TmSrq::poll)
    /// takes its completions.
    TagMatching,
}
