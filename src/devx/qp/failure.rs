//! Why a queue pair failed, from the extension of its context.

use std::fmt;

use mlx5_diag::explain::vendor;
use mlx5_sys::ifc::{
    Field, cmd_hca_cap, cqe_error_syndrome, opcode, qpc_ext, query_qp_in, query_qp_out,
};

use crate::cqe::Status;
use crate::devx::{Command, CommandTarget};
use crate::error::Result;
use crate::ib::capability::Group;
use crate::ib::debug_as_display;
use crate::verbs::Context;

/// The place of the extension in the reply: that of the list of pages.
const AT: usize = query_qp_out::PAS.bytes().start;

/// Why a queue pair went to the error state, from the HCA's context of it (QUERY_QP with `qpc_ext`).
///
/// It is also there where no completion tells, as of a responder that refused a request of its peer:
/// Linux prints it as "QP 137 error: … (0x3a 0x0 0x93)". `Display` explains the numbers, as far as
/// public reports name their causes.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::devx::QueuePairFailure;
/// use mlx5::endpoint::Endpoint;
/// use mlx5::wqe::{Inline, RdmaWrite, Remote};
///
/// // An endpoint that is its own peer, and refuses its WRITE: there is no such key.
/// let unconnected = Endpoint::builder(&context).build()?;
/// let mine = unconnected.connection_data();
/// let mut endpoint = unconnected.connect(&mine)?;
/// let qp = endpoint.queue_pair();
/// assert_eq!(QueuePairFailure::query(&context, qp, qp.number())?, None);
/// endpoint.post(1, RdmaWrite::new(Inline(b"lost"), Remote::new(0x1000, 0xbad00)).signaled())?;
/// # mlx5_model::run();
/// // The completion says "flushed". The HCA knows more.
/// let qp = endpoint.queue_pair();
/// let failure = QueuePairFailure::query(&context, qp, qp.number())?.ok_or("none")?;
/// assert_eq!(failure.numbers(), [0x3a, 0, 0x93]);
/// assert!(failure.to_string().contains("a memory key that is gone"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct QueuePairFailure {
    syndrome: u8,
    numbers: [u8; 3],
}

impl QueuePairFailure {
    /// Asks the HCA why a queue pair failed. `None` if it did not, since RESET. Two calls into the kernel.
    ///
    /// # Errors
    /// [`Error::NoCapability`](crate::Error::NoCapability) if the HCA does not tell. Those of
    /// [`query_by`](CommandTarget::query_by).
    pub fn query(
        context: &Context,
        qp: &impl CommandTarget,
        number: u32,
    ) -> Result<Option<QueuePairFailure>> {
        let told = "the cause of a queue pair's failure";
        for field in [cmd_hca_cap::QPC_EXTENSION, cmd_hca_cap::QP_ERROR_SYNDROME] {
            context.capabilities().require(Group::General, field, told)?;
        }
        let reply = qp.query_by(&Self::command(number))?;
        Ok(Self::from_reply(reply.as_bytes()))
    }

    /// Returns the command that asks the HCA. [`CommandTarget`] executes it on a queue pair of this
    /// process.
    pub fn command(number: u32) -> Command {
        Command::new(opcode::QUERY_QP, query_qp_in::SIZE)
            .set(query_qp_in::QPC_EXT, 1u32)
            .set(query_qp_in::QPN, number)
            .reply(AT + qpc_ext::SIZE)
    }

    /// Returns the cause in the HCA's reply to [`command`](Self::command). `None` if there is none, or
    /// the reply is too short.
    pub fn from_reply(reply: &[u8]) -> Option<QueuePairFailure> {
        let word = reply.get(AT..)?.get(qpc_ext::ERROR_SYNDROME.bytes())?;
        let byte = |field: Field| field.get(word) as u8;
        let numbers = [
            byte(cqe_error_syndrome::VENDOR_ERROR_SYNDROME),
            byte(cqe_error_syndrome::HW_SYNDROME_TYPE),
            byte(cqe_error_syndrome::HW_ERROR_SYNDROME),
        ];
        let syndrome = byte(cqe_error_syndrome::SYNDROME);
        (syndrome != 0 || numbers != [0; 3]).then_some(QueuePairFailure { syndrome, numbers })
    }

    /// Returns the status that its completion would have. [`Status::General`] for a number that
    /// has no status.
    pub fn status(self) -> Status {
        Status::from_syndrome(self.syndrome)
    }

    /// Returns vendor syndrome, type of the hardware syndrome and hardware syndrome, in Linux's order.
    pub fn numbers(self) -> [u8; 3] {
        self.numbers
    }
}

impl fmt::Display for QueuePairFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [vendor, kind, hardware] = self.numbers;
        write!(f, "{} ({vendor:#x} {kind:#x} {hardware:#x})", self.status())?;
        match vendor::queue(self.numbers) {
            Some(known) => write!(f, ": {}. Cure: {}", known.what, known.cure),
            None => write!(f, ": {}", self.status().explanation()),
        }
    }
}

debug_as_display!(QueuePairFailure);
