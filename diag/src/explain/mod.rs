//! Meanings, causes and cures of the HCA's codes.
//!
//! [`status`] has the reasons for which requests fail, [`vendor`] the vendor syndromes beside them,
//! [`command`] the reasons why firmware refuses commands, [`health`] firmware's own failures. Few
//! vendor codes are documented. Each entry says how much is known of it ([`Knowledge`]) and names a
//! public source. For codes that are not here, no public source was found.

pub mod command;
pub mod health;
pub mod status;
mod syndrome;
pub mod vendor;

pub use syndrome::Status;

use core::fmt;

/// The meaning of a code, and its causes, the likeliest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The meaning of the code.
    pub meaning: &'static str,
    /// Why it does so.
    pub causes: &'static [Cause],
}

/// A cause, and what helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The cause.
    pub cause: &'static str,
    /// How to find it or put it right.
    pub cure: &'static str,
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
}

impl fmt::Display for Knowledge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Knowledge::Named => "documented",
            Knowledge::Told => "said in public by the vendor's people",
            Knowledge::Met => "not publicly documented",
        })
    }
}

/// Declares an [`Explanation`]: its meaning, then pairs `cause => cure`, each item ended by `;`.
macro_rules! explanation {
    ($meaning:literal; $($cause:literal => $cure:literal;)*) => {
        $crate::explain::Explanation {
            meaning: $meaning,
            causes: &[$($crate::explain::Cause { cause: $cause, cure: $cure }),*],
        }
    };
}
use explanation;
