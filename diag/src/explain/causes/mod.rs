//! Causes of what failed, ranked by what a record knows.
//!
//! [`evidence()`] has public threads: each names what was seen, and where they are known vendor
//! syndrome, operation and program, and the cause that the thread's author or a maintainer
//! confirmed. [`rank`] orders the causes by the threads that are like a record, and by the signs in
//! the text around it. Its cures name the program's own parameters, from a thread or from the
//! program's documentation. [`check()`] tells the frequent causes of a symptom apart.

mod check;
mod evidence;
mod order;
mod parameter;
mod program;
pub(super) mod reason;
pub(super) mod refusal;
mod signs;

use super::call::{self, CallError, CallKind};
use super::{Cause, Status, status};

pub use check::{Check, check};
pub use evidence::evidence;
pub use order::rank;
pub use program::Program;
pub(crate) use signs::MANY_CONTEXTS;
pub use signs::Signs;

bitflags::bitflags! {
    /// Kinds of requests.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Operations: u8 {
        /// SEND of every kind.
        const SEND = 1;
        /// RDMA WRITE of every kind.
        const WRITE = 2;
        /// RDMA READ.
        const READ = 4;
        /// Atomic operations.
        const ATOMIC = 8;
        /// Receives.
        const RECEIVE = 16;
        /// Operations on keys: UMR, bind, invalidate.
        const KEY = 32;
    }
}

impl Operations {
    /// Every kind of request.
    pub const ALL: Operations = Operations::all();

    /// Returns the kind of an operation by its name; every kind if it is not known.
    #[must_use]
    pub fn named(name: &str) -> Operations {
        match name {
            name if name.contains("WRITE") => Operations::WRITE,
            name if name.contains("READ") => Operations::READ,
            name if name.contains("ATOMIC") || name == "CSWAP" || name == "FADD" => {
                Operations::ATOMIC
            }
            name if name.contains("SEND") => Operations::SEND,
            name if name.contains("UMR") || name.contains("INV") || name.contains("BIND") => {
                Operations::KEY
            }
            _ => Operations::ALL,
        }
    }
}

/// The fabrics of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fabric {
    /// InfiniBand.
    InfiniBand,
    /// RoCE.
    Roce,
}

/// A symptom: the status of a completion, or a call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symptom {
    /// The status of a completion.
    Status(Status),
    /// A call, with its errno if that is printed.
    Call(CallKind, Option<CallError>),
}

impl Symptom {
    /// Returns its causes, the likeliest first if no more is known.
    #[must_use]
    pub fn causes(self) -> &'static [Cause] {
        match self {
            Symptom::Status(status) => status::explain(status).causes,
            Symptom::Call(kind, error) => call::explain(kind, error).causes,
        }
    }
}

/// The known facts of what failed.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The symptom.
    pub symptom: Symptom,
    /// The vendor syndrome.
    pub vendor: Option<u8>,
    /// The kinds of request that it may be.
    pub operations: Operations,
    /// The fabric of the port.
    pub fabric: Option<Fabric>,
    /// The program.
    pub program: Option<Program>,
    /// The signs in the text around it.
    pub signs: Signs,
}

impl Facts {
    /// Creates facts of which only the symptom is known.
    #[must_use]
    pub const fn of(symptom: Symptom) -> Facts {
        Facts {
            symptom,
            vendor: None,
            operations: Operations::ALL,
            fabric: None,
            program: None,
            signs: Signs::empty(),
        }
    }
}

/// A confirmed cause of a public thread.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Evidence {
    /// The symptom of the thread.
    pub symptom: Symptom,
    /// Its vendor syndrome, if the status has several.
    pub vendor: Option<u8>,
    /// The kinds of request that it may have been.
    pub operations: Operations,
    /// The program.
    pub program: Option<Program>,
    /// The confirmed cause.
    pub cause: Cause,
    /// The cure.
    pub cure: &'static str,
    /// The address of the thread.
    pub source: &'static str,
}

/// What supports a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Grounds {
    /// Nothing: it is one of several, and has to be checked.
    None,
    /// The code, or the message itself: it has no other known cause.
    Code,
    /// A line of the text.
    Text,
}

impl Grounds {
    /// Returns its name for programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Grounds::None => "none",
            Grounds::Code => "code",
            Grounds::Text => "text",
        }
    }
}

/// A cause of a record, with the thread that is most like it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LikelyCause {
    /// The cause.
    pub cause: &'static str,
    /// How to find it or put it right.
    pub cure: &'static str,
    /// A public thread with this cause.
    pub source: Option<&'static str>,
    /// What supports it.
    pub grounds: Grounds,
}

impl LikelyCause {
    /// Returns a cause that the code or the message itself tells.
    pub(crate) const fn told(cause: &'static str, cure: &'static str) -> LikelyCause {
        LikelyCause { cause, cure, source: None, grounds: Grounds::Code }
    }

    /// Returns the causes of an explanation. One alone is told by the code; of several none is.
    pub(super) fn all(causes: &[Cause]) -> Vec<LikelyCause> {
        let grounds = if causes.len() == 1 { Grounds::Code } else { Grounds::None };
        causes
            .iter()
            .map(|cause| LikelyCause { grounds, ..Self::told(cause.cause, cause.cure) })
            .collect()
    }
}
