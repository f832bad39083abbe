//! The back end of firmware commands.

use super::cq::{CommandCq, CommandCqOptions};
use super::srq::{CommandSrq, CommandSrqOptions};
use crate::error::Result;
use crate::verbs::{
    Backend, CompletionQueue, CompletionQueueBuilder, QueueMaker, SharedReceiveQueue,
    SharedReceiveQueueBuilder,
};

/// The back end of firmware commands.
///
/// Its queues have the types, states and transitions of verbs queues. Their asynchronous events do
/// not come to the context's event file, but to an [`EventChannel`](super::EventChannel).
///
/// See the example on [`ByCommand`](super::ByCommand).
#[derive(Clone, Copy, Debug)]
pub enum Firmware {}

impl Backend for Firmware {}

impl QueueMaker for Firmware {
    type Cq = CommandCq;
    type CqOptions = CommandCqOptions;
    type Srq = CommandSrq;
    type SrqOptions = CommandSrqOptions;

    fn build_cq(builder: CompletionQueueBuilder<Self>) -> Result<CompletionQueue<Self>> {
        builder.build_by_command()
    }

    fn build_srq(builder: SharedReceiveQueueBuilder<Self>) -> Result<SharedReceiveQueue<Self>> {
        builder.build_by_command()
    }
}
