//! Back ends: what makes queues.
//!
//! Types of queues have a parameter for the back end that made them. What all back ends have in
//! common exists once, in this module: types, builders, checks, claims and errors.

use super::cq::{CqOptions, CqPart, VerbsCq};
use super::{CompletionQueue, CompletionQueueBuilder};
use crate::error::Result;

/// A back end: [`Verbs`], or [`Firmware`](crate::devx::Firmware).
pub trait Backend: QueueMaker {}

/// The back end of libibverbs: the default.
#[derive(Clone, Copy, Debug)]
pub enum Verbs {}

/// The types by which a back end makes queues.
pub trait QueueMaker: Sized + Send + Sync + 'static {
    /// Its part of a completion queue.
    type Cq: CqPart;
    /// Its part of the builder of completion queues.
    type CqOptions;

    /// Creates a completion queue.
    fn build_cq(builder: CompletionQueueBuilder<Self>) -> Result<CompletionQueue<Self>>
    where
        Self: Backend;
}

impl Backend for Verbs {}

impl QueueMaker for Verbs {
    type Cq = VerbsCq;
    type CqOptions = CqOptions;

    fn build_cq(builder: CompletionQueueBuilder) -> Result<CompletionQueue> {
        builder.build_by_verbs()
    }
}
