//! `struct mlx5_completion`, and its text.

use core::ffi::{c_char, c_int};

use mlx5::cqe::{
    Completion as Polled, Failure, QueueKind, ReceiveDone, ReceiveKind, SendDone, SendOperation,
    Status, UnexpectedCqe,
};
use mlx5_diag::explain::ExplainedCode;
use mlx5_sys::verbs::ibv_wc_status;

use crate::error::caught;
use crate::request::Operation;

/// The message had a global route header.
pub const COMPLETION_GRH: u8 = 1;
/// The peer asked for a solicited event.
pub const COMPLETION_SOLICITED: u8 = 2;

/// `struct mlx5_completion`: the end of one request or receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Completion {
    /// The id that it was posted with.
    pub id: u64,
    /// Number of the queue pair.
    pub qpn: u32,
    /// `enum ibv_wc_status`: 0 is success.
    pub status: u32,
    /// `enum mlx5_operation`.
    pub operation: u32,
    /// Receives, READs and atomics: bytes.
    pub byte_len: u32,
    /// Immediate data in host byte order, or the key that a SEND invalidated.
    pub immediate: u32,
    /// UD receives: number of the sender's queue pair.
    pub src_qp: u32,
    /// UD receives: source LID.
    pub slid: u16,
    /// Failures: index of the WQE in its queue.
    pub wqe_index: u16,
    /// UD receives: service level.
    pub sl: u8,
    /// UD receives: path bits of the destination LID.
    pub dlid_path_bits: u8,
    /// [`COMPLETION_GRH`], [`COMPLETION_SOLICITED`].
    pub flags: u8,
    /// Failures: vendor syndrome.
    pub vendor_error: u8,
}

impl Completion {
    /// Writes what was polled, in each case to its place: one value for all of them would be copied.
    ///
    /// # Safety
    /// `to` is writable.
    #[inline(always)]
    pub(crate) unsafe fn put(polled: Polled, to: *mut Self) {
        // SAFETY: this function's contract.
        unsafe {
            match polled {
                Polled::Send(done) => to.write(Self::sent(done)),
                Polled::Receive(done) => to.write(Self::received(done)),
                Polled::Failed(failure) => to.write(Self::failed(failure)),
                Polled::UnexpectedCqe(cqe) => to.write(Self::unexpected(cqe)),
            }
        }
    }

    #[inline]
    fn sent(done: SendDone) -> Self {
        Self {
            id: done.id,
            qpn: done.qpn,
            operation: Operation::of_send(done.operation) as u32,
            byte_len: done.byte_len,
            ..Self::default()
        }
    }

    #[inline]
    fn received(done: ReceiveDone) -> Self {
        let (operation, immediate) = match done.kind {
            ReceiveKind::Send => (Operation::Receive, 0),
            ReceiveKind::SendImm(immediate) => (Operation::ReceiveImm, immediate),
            ReceiveKind::SendInvalidate(key) => (Operation::ReceiveInvalidate, key),
            ReceiveKind::WriteImm(immediate) => (Operation::ReceiveWriteImm, immediate),
        };
        Self {
            id: done.id,
            qpn: done.qpn,
            status: 0,
            operation: operation as u32,
            byte_len: done.byte_len,
            immediate,
            src_qp: done.src_qp,
            slid: done.slid,
            wqe_index: 0,
            sl: done.sl,
            dlid_path_bits: done.dlid_path_bits,
            flags: (u8::from(done.grh) * COMPLETION_GRH)
                | (u8::from(done.solicited) * COMPLETION_SOLICITED),
            vendor_error: 0,
        }
    }

    #[cold]
    fn failed(failure: Failure) -> Self {
        let operation = match failure.queue {
            QueueKind::Send => Operation::of_send(SendOperation::from_opcode(failure.opcode)),
            QueueKind::Receive => Operation::Receive,
        };
        Self {
            id: failure.id,
            qpn: failure.qpn,
            status: failure.status.wc_status(),
            operation: operation as u32,
            wqe_index: failure.wqe_index,
            vendor_error: failure.vendor_error,
            ..Self::default()
        }
    }

    #[cold]
    fn unexpected(cqe: UnexpectedCqe) -> Self {
        Self {
            qpn: cqe.qpn,
            status: ibv_wc_status::IBV_WC_GENERAL_ERR,
            operation: Operation::Unexpected as u32,
            ..Self::default()
        }
    }

    /// Returns what happened, and for a failure its causes and cure.
    fn text(&self) -> String {
        let Self { id, qpn, status, operation, vendor_error, .. } = *self;
        if operation == Operation::Unexpected as u32 {
            return format!(
                "a completion of QP {qpn:#x} that no queue taken over has outstanding: its queue \
                 was abandoned, or something else posts to it"
            );
        }
        let name = Operation::name(operation);
        if status == ibv_wc_status::IBV_WC_SUCCESS {
            return format!("{name} with id {id:#x} of QP {qpn:#x} succeeded");
        }
        let Some(status) = Status::from_wc_status(status) else {
            return format!("{name} with id {id:#x} of QP {qpn:#x} failed: status {status}");
        };
        let mut text = format!(
            "{name} with id {id:#x} of QP {qpn:#x} failed: {status}. {}",
            status.explanation()
        );
        if vendor_error != 0 {
            let code = ExplainedCode::vendor_syndrome(Some(status), vendor_error.into());
            text.push_str(&format!(" Vendor syndrome {vendor_error:#04x}: {}", code.meaning));
        }
        text
    }
}

/// Writes the text of a completion, as `snprintf` does. Returns its length without the terminating null, or
/// a negative number if an argument is null.
///
/// # Safety
/// `completion` is null or readable, and `buffer` is null or has `size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_completion_text(
    completion: *const Completion,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    let written = caught(|| {
        // SAFETY: null or readable, by this function's contract.
        let Some(completion) = (unsafe { completion.as_ref() }) else { return Ok(-1) };
        if buffer.is_null() && size != 0 {
            return Ok(-1);
        }
        let text = completion.text();
        if size != 0 {
            let length = text.len().min(size - 1);
            // SAFETY: the buffer has `size` bytes, more than are written.
            unsafe {
                buffer.copy_from_nonoverlapping(text.as_ptr().cast(), length);
                buffer.add(length).write(0);
            }
        }
        Ok(c_int::try_from(text.len()).unwrap_or(c_int::MAX))
    });
    written.unwrap_or(-1)
}
