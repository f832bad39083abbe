//! Back ends: what makes queues.
//!
//! Types of queues have a parameter for the back end that made them. What all back ends have in
//! common exists once, in this module: types, builders, checks, claims and errors.

use super::cq::{CqOptions, CqPart, VerbsCq};
use super::srq::{SrqOptions, SrqPart, VerbsSrq};
use super::{
    CompletionQueue, CompletionQueueBuilder, SharedReceiveQueue, SharedReceiveQueueBuilder,
};
use crate::error::Result;

/// A back end: [`Verbs`], or [`Firmware`](crate::devx::Firmware).
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::expert::Backend;
/// use mlx5::verbs::CompletionQueue;
///
/// fn entries<B: Backend>(cq: &CompletionQueue<B>) -> u32 {
///     cq.capacity()
/// }
/// // One made by verbs, and one by firmware command.
/// assert!(entries(&CompletionQueue::new(&context, 64)?) >= 64);
/// assert!(entries(&CompletionQueue::by_command(&context, 64).build()?) >= 64);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Backend: QueueMaker {}

/// The back end of libibverbs: the default.
///
/// See the example on [`Backend`].
#[derive(Clone, Copy, Debug)]
pub enum Verbs {}

/// The types by which a back end makes queues.
pub trait QueueMaker: Sized + Send + Sync + 'static {
    /// Its part of a completion queue.
    type Cq: CqPart;
    /// Its part of the builder of completion queues.
    type CqOptions;

    /// Its part of a shared receive queue.
    type Srq: SrqPart;
    /// Its part of the builder of shared receive queues.
    type SrqOptions;

    /// Creates a completion queue.
    fn build_cq(builder: CompletionQueueBuilder<Self>) -> Result<CompletionQueue<Self>>
    where
        Self: Backend;

    /// Creates a shared receive queue.
    fn build_srq(builder: SharedReceiveQueueBuilder<Self>) -> Result<SharedReceiveQueue<Self>>
    where
        Self: Backend;
}

impl Backend for Verbs {}

impl QueueMaker for Verbs {
    type Cq = VerbsCq;
    type CqOptions = CqOptions;
    type Srq = VerbsSrq;
    type SrqOptions = SrqOptions;

    fn build_cq(builder: CompletionQueueBuilder) -> Result<CompletionQueue> {
        builder.build_by_verbs()
    }

    fn build_srq(builder: SharedReceiveQueueBuilder) -> Result<SharedReceiveQueue> {
        builder.build_by_verbs()
    }
}
