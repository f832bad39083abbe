//! Objects and queries by firmware command (DevX).
//!
//! A [`Command`] holds the bytes of a firmware command and the names of the fields that were set in
//! it. It is executed on its own, or creates an [`Object`] that further commands query, change and
//! destroy. If the HCA refuses a command, the error is [`Error::Refused`](crate::Error::Refused),
//! with the reason in words and the fields that were sent. If the kernel does not pass it to the
//! HCA, the error is [`Error::Withheld`](crate::Error::Withheld). [`ifc`] has the layouts and
//! opcodes.
//!
//! Queues need a [`Uar`], whose doorbell they ring, and a [`Umem`], in which their rings lie.
//! Queues by command are [`QueuePair`](crate::verbs::QueuePair)s,
//! [`CompletionQueue`](crate::verbs::CompletionQueue)s and
//! [`SharedReceiveQueue`](crate::verbs::SharedReceiveQueue)s of the back end [`Firmware`], and
//! rings take them over in the same way as those of verbs. [`Capabilities`] are the abilities of
//! the HCA, by name. Commands also work on verbs objects ([`CommandTarget`]), to see their contexts
//! in the HCA. Queries can be asynchronous ([`AsyncCommands`]).
//!
//! Events of objects come to an [`EventChannel`], which also wakes programs that wait for
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
mod ethernet;
mod event;
mod event_channel;
mod event_queue;
mod firmware;
mod function;
mod judge;
mod mkey;
mod object;
mod pending;
mod qp;
mod ring_spec;
mod srq;
mod timestamp;
mod uar;
mod umem;
#[cfg(feature = "unproven")]
pub mod unproven;

pub use crate::error::{CommandError, Sent, WithheldCommand};
pub use crate::ib::capability::{Capability, Group, GroupValues, MissingCapability};
pub use capability::Capabilities;
pub use command::{Command, Reply};
pub use command_target::CommandTarget;
pub use context::ObjectContext;
pub use counter::{QueueCounters, QueueCounts};
pub use domain::{DevxPd, DevxXrcd, Domain, TransportDomain};
pub use ethernet::{
    FlowCounter, FlowCounts, Rq, RqBuilder, Rqt, RssHash, SendTimes, Sq, SqBuilder, Tir, Tis,
};
pub use event::{DevxEvent, PortChange};
pub use event_channel::{DevxEventSource, EventChannel};
pub use event_queue::event_queue_number;
pub use firmware::Firmware;
pub use function::{Adapter, Traffic, VportCounters, VportState};
pub use mkey::{DevxMkey, DevxMkeyBuilder, Klm};
pub use mlx5_diag::text::EventKind;
pub use mlx5_sys::ifc;
pub use object::{DestroyError, Object};
pub use pending::{Answer, AsyncCommands};
pub use qp::{ByCommand, QueuePairFailure};
pub use uar::{Uar, UarChoice, UarKind};
pub use umem::{Umem, UmemBuilder};
