//! What is made or asked by firmware command (DevX).
//!
//! A [`Command`] is the bytes of a firmware command with the names of what was set in it. It is
//! executed for itself, or makes an [`Object`] that is asked about, changed and destroyed by further
//! commands. A refusal comes back as [`Error::Refused`](crate::Error::Refused), in words and with
//! what was sent; a command that the kernel did not let through to the card as
//! [`Error::Withheld`](crate::Error::Withheld). [`ifc`] has the layouts and opcodes.
//!
//! Nothing here is on the path of a message: each command enters the kernel and waits for the
//! card's firmware, microseconds to milliseconds.

mod command;
mod error;
mod object;

pub use command::{Command, Reply};
pub use error::{CommandError, Sent, WithheldCommand};
pub use mlx5_sys::ifc;
pub use object::{DestroyError, Object};
