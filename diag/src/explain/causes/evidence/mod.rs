//! Public threads whose author or maintainer confirmed the cause, by what was seen.
//!
//! A commit's message is its author's word.

use super::super::call::CallKind;
use super::super::{Status, call};
use super::reason::*;
use super::refusal::*;
use super::{Evidence, Operations, Program, Symptom};

/// Threads about completions: status, vendor syndrome, operation, program, cause, cure, source.
macro_rules! statuses {
    ($($status:ident $vendor:tt $operations:ident $program:tt $cause:ident $cure:literal $source:literal;)*) => {
        pub(super) const ROWS: &[Evidence] = &[$(Evidence {
            symptom: Symptom::Status(Status::$status),
            vendor: optional!($vendor),
            operations: Operations::$operations,
            program: program!($program),
            cause: $cause,
            cure: $cure,
            source: $source,
        }),*];
    };
}

/// Threads about calls that failed: kind of call, errno, program, cause, cure, source.
macro_rules! calls {
    ($($kind:ident $errno:tt $program:tt $cause:ident $cure:literal $source:literal;)*) => {
        pub(super) const ROWS: &[Evidence] = &[$(Evidence {
            symptom: Symptom::Call(CallKind::$kind, errno!($errno)),
            vendor: None,
            operations: Operations::ALL,
            program: program!($program),
            cause: $cause,
            cure: $cure,
            source: $source,
        }),*];
    };
}

macro_rules! optional {
    (_) => {
        None
    };
    ($value:literal) => {
        Some($value)
    };
}

macro_rules! program {
    (_) => {
        None
    };
    ($program:ident) => {
        Some(Program::$program)
    };
}

macro_rules! errno {
    (_) => {
        None
    };
    ($name:ident) => {
        Some(call::errno::$name)
    };
}

mod calls;
mod memory;
mod network;
mod request;

/// Returns every thread.
pub fn evidence() -> impl Iterator<Item = &'static Evidence> {
    [network::ROWS, memory::ROWS, request::ROWS, calls::ROWS].into_iter().flatten()
}
