//! WQEs, CQEs, EQEs and doorbell records as text.
//!
//! [`SendWqe`], [`ReceiveWqe`], [`Cqe`], [`Eqe`], [`QpRecord`] and [`CqRecord`] wrap bytes and
//! implement `Display`: one line per segment. Any bytes print without a panic: invalid ones are
//! printed in hex and marked. [`Structure`] does the same for commands and contexts, by the names
//! of their fields. [`SendWqe::head`] and [`Cqe::error`] return the fields that programs need most.

mod cqe;
mod eqe;
mod event_kind;
mod record;
mod structure;
mod words;
mod wqe;

pub use cqe::{Cqe, CqeError, QueueKind};
pub use eqe::Eqe;
pub use event_kind::EventKind;
pub use record::{CqRecord, QpRecord};
pub use structure::{FieldValue, Structure, StructureField};
pub use wqe::{Addressing, ReceiveWqe, SendWqe, WqeHead};

use core::fmt;

/// Bytes in hex, four to a group.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if index != 0 && index % 4 == 0 {
                f.write_str(" ")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}
