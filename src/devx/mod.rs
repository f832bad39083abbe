//! What is made or asked by firmware command (DevX).
//!
//! A [`Command`] is the bytes of a firmware command with the names of what was set in it. It is
//! executed for itself, or makes an [`Object`] that is asked about, changed and destroyed by
//! further commands. A refusal comes back as [`Error::Refused`](crate::Error::Refused), in words
//! and with what was sent; a command that the kernel did not let through to the HCA as
//! [`Error::Withheld`](crate::Error::Withheld). [`ifc`] has the layouts and opcodes. What queues
//! stand on is a [`Uar`], by which they ring, and a [`Umem`], in which they lie.
//! [`CompletionQueue`] and [`QueuePair`] are as those of [`verbs`](crate::verbs), and rings are
//! made of them alike. [`Capabilities`] tell what the HCA can do, by name. Commands are given on
//! what verbs made, too ([`CommandTarget`]), which shows what the HCA knows of it, and queries need
//! not be waited for ([`AsyncCommands`]).
//!
//! What other processes have open is asked in [`process`].
//!
//! What happens to objects comes to an [`EventChannel`], which also wakes those who sleep on
//! completions of a CQ that was made by command.
//!
//! Nothing here is on the path of a message: each command enters the kernel and waits for the
//! HCA's firmware, microseconds to milliseconds.

mod atomic;
mod capability;
mod command;
mod command_target;
mod context;
mod counter;
mod cq;
mod domain;
mod error;
mod ethernet;
mod event;
mod event_channel;
mod event_queue;
mod function;
mod group;
mod mkey;
mod object;
mod pending;
pub mod process;
mod psv;
mod qp;
mod srq;
mod target;
mod uar;
mod umem;

pub(crate) use capability::Cache;
pub use capability::{Capabilities, Capability, GroupValues, MissingCapability};
pub use command::{Command, Reply};
pub use command_target::CommandTarget;
pub use context::ObjectContext;
pub use counter::{QueueCounters, QueueCounts};
pub use cq::{CompletionQueue, CompletionQueueBuilder};
pub use domain::{Domain, ProtectionDomain, TransportDomain, XrcDomain};
pub use error::{CommandError, Sent, WithheldCommand};
pub use ethernet::{Rq, RqBuilder, Rqt, SpreadBy, Sq, SqBuilder, Tir, Tis};
pub use event::{Event, PortChange};
pub use event_channel::{EventChannel, EventSource};
pub use event_queue::{EventQueue, MsiVector, event_queue_number};
pub use function::{Adapter, Traffic, VportCounters, VportState};
pub use group::Group;
pub use mkey::{Mkey, MkeyBuilder, Piece};
pub use mlx5_diag::text::EventKind;
pub use mlx5_sys::ifc;
pub use object::{DestroyError, Object};
pub use pending::{Answer, AsyncCommands};
pub use psv::Psv;
pub use qp::{ByCommand, QueuePair, QueuePairBuilder, TransitionError};
pub use srq::{SharedReceiveQueue, SharedReceiveQueueBuilder};
pub use target::{DcTarget, DcTargetBuilder, TargetError};
pub use uar::{Uar, UarChoice, UarKind};
pub use umem::{Umem, UmemBuilder};
