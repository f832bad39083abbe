//! Operations of requests, and transports of queue pairs.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The operation of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// SEND: the peer's receive takes it
    Send,
    /// RDMA WRITE: the peer's memory takes it
    Write,
    /// RDMA WRITE with immediate: the same, and a receive of the peer's completes
    WriteImm,
    /// RDMA READ: the peer's memory is fetched
    Read,
    /// Atomic compare and swap of 8 bytes of the peer's memory
    Cas,
    /// Atomic fetch and add on 8 bytes of the peer's memory
    Fadd,
}

impl Operation {
    /// Returns whether the operation consumes receives of the peer.
    #[must_use]
    pub fn takes_receives(self) -> bool {
        matches!(self, Operation::Send | Operation::WriteImm)
    }

    /// Returns whether it fetches data; then only the peer's HCA answers.
    #[must_use]
    pub fn fetches(self) -> bool {
        matches!(self, Operation::Read | Operation::Cas | Operation::Fadd)
    }

    /// Returns whether it operates on one word of 8 bytes.
    #[must_use]
    pub fn is_atomic(self) -> bool {
        matches!(self, Operation::Cas | Operation::Fadd)
    }
}

/// How queue pairs are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// Reliable connection
    Rc,
    /// Unreliable connection: no READ, no atomics; a message that is lost is not told
    Uc,
    /// Unreliable datagram: SEND alone, of at most one packet
    Ud,
    /// Extended reliable connection: receives come from a shared queue that each request names
    Xrc,
    /// Ethernet frames with UDP packets, made by the program; SEND alone, on ports of Ethernet
    Raw,
    /// Dynamic connections, by an initiator and a target at each side: ConnectX-5 and later
    Dc,
}

impl Carrier {
    /// Returns whether the HCA sends again what is lost, and tells a failure.
    #[must_use]
    pub fn is_reliable(self) -> bool {
        matches!(self, Carrier::Rc | Carrier::Xrc | Carrier::Dc)
    }
}

macro_rules! named_as_on_the_command_line {
    ($($type:ty),*) => { $(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.to_possible_value() {
                    Some(value) => f.pad(value.get_name()),
                    None => Ok(()),
                }
            }
        }
    )* };
}

named_as_on_the_command_line!(Operation, Carrier);
pub(in crate::perf) use named_as_on_the_command_line;
