//! Meanings, causes and cures of the HCA's codes.
//!
//! | module | codes | from |
//! |---|---|---|
//! | [`status`] | syndromes of error CQEs, as [`Status`] | InfiniBand specification, `ibv_poll_cq(3)` |
//! | [`causes`] | causes of statuses, ranked by the facts of a record, and what to check first | public threads |
//! | [`vendor`] | vendor and hardware syndromes of error CQEs and failed queue pairs | public threads and commits |
//! | [`command`] | statuses and syndromes of firmware commands | Linux, public threads and commits |
//! | [`health`] | syndromes of the health buffer | Linux |
//! | [`event`] | lines of Linux's driver about power, modules, links and resets | Linux |
//! | [`installation`] | modules, libraries and tools that do not fit each other | Linux, glibc, rdma-core, mstflint |
//! | [`crash`] | failures of the kernel itself | Linux |
//! | [`counter`] | counters of ports, interfaces and functions | Linux, NVIDIA |
//! | [`state`] | states of links, reporters and objects | Linux |
//! | [`kernel`] | messages of Linux's driver by families, and whose object failed | Linux |
//! | [`call`] | calls of libibverbs that failed | manual pages, public threads |
//! | [`timeout`] | none: when a peer that does not answer is noticed | public measurements of devices |
//!
//! Few vendor codes are documented. Each entry says how much is known of it ([`Knowledge`]) and
//! names a public source. For codes that are not here, no public source was found.
//! [`ExplainedCode`] is any of them in the same form.
//!
//! ```
//! use mlx5_diag::explain::{ExplainedCode, Knowledge, Status};
//!
//! let code = ExplainedCode::vendor_syndrome(Some(Status::RetriesExceeded), 0x81);
//! assert_eq!(code.knowledge, Knowledge::Told);
//! assert!(code.meaning.starts_with("No answer within the timeout"));
//! ```

pub mod call;
pub mod causes;
mod code;
pub mod command;
pub mod counter;
pub mod crash;
pub mod event;
pub mod health;
pub mod installation;
pub mod kernel;
pub mod state;
pub mod status;
mod syndrome;
pub mod timeout;
pub mod vendor;

pub use code::ExplainedCode;
pub use syndrome::Status;

use core::fmt;

use causes::{Fabric, Operations};

/// The meaning of a code, and its causes, the likeliest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The meaning of the code.
    pub meaning: &'static str,
    /// The causes, each with its cure.
    pub causes: &'static [Cause],
}

/// A cause, and what helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The cause.
    pub cause: &'static str,
    /// How to find it or put it right.
    pub cure: &'static str,
    /// The kinds of requests that it can concern.
    pub operations: Operations,
    /// The fabric that it is of; `None` for both.
    pub fabric: Option<Fabric>,
}

/// How much is publicly known of a code of the vendor's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Knowledge {
    /// A public header or document gives it a name.
    Named,
    /// An employee of the vendor has explained it in public.
    Told,
    /// It is not publicly documented; it was met in the circumstances that the source describes.
    Met,
    /// It is not publicly documented.
    Unknown,
}

impl fmt::Display for Knowledge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Knowledge::Named => "documented",
            Knowledge::Told => "said in public by the vendor's people",
            Knowledge::Met | Knowledge::Unknown => "not publicly documented",
        })
    }
}

/// Declares an [`Explanation`]: its meaning, then pairs `cause => cure`, each item ended by `;`.
macro_rules! explanation {
    ($meaning:literal; $($cause:literal => $cure:literal;)*) => {
        $crate::explain::Explanation {
            meaning: $meaning,
            causes: &[$($crate::explain::Cause {
                cause: $cause,
                cure: $cure,
                operations: $crate::explain::causes::Operations::ALL,
                fabric: None,
            }),*],
        }
    };
}
use explanation;

/// Declares a table of [`event::KernelEvent`]: tokens, title, [`explanation!`].
macro_rules! events {
    ($(#[$meta:meta])* $table:ident: $([$($token:literal),+] $title:literal { $($explanation:tt)* })*) => {
        $(#[$meta])*
        pub const $table: &[$crate::explain::event::KernelEvent] = &[$($crate::explain::event::KernelEvent {
            tokens: &[$($token),+],
            title: $title,
            explanation: $crate::explain::explanation! { $($explanation)* },
        }),*];
    };
}
use events;
